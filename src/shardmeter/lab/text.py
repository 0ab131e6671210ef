"""What workers read: the topics of Python's own documentation (460 kB of English), or a file; tokens are bytes.

The last tenth is held out. A window is drawn at random by the seed, the step and its place in the batch of all workers, so that two
workers of 4 sequences read what one of 8 does.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from shardmeter.core.errors import BadData

if TYPE_CHECKING:
    from numpy.typing import NDArray

HELD_OUT = 0.1
"""Share of the text, its end, that nobody trains on."""
LEAST = 20
"""Windows that a text has at least."""


def documents(path: str = "") -> tuple[bytes, ...]:
    """The topics of Python's documentation, in sorted order, or the paragraphs of a file. Raises BadData."""
    if not path:
        from pydoc_data import topics

        return tuple(topics.topics[name].encode() for name in sorted(topics.topics))
    try:
        whole = Path(path).read_bytes()
    except OSError as error:
        raise BadData(f"{path}: cannot be read: {error.strerror}") from None
    return tuple(part for part in whole.split(b"\n\n") if part.strip())


class Text:
    """Windows of `seq_len` bytes and what follows each byte."""

    def __init__(self, seq_len: int, seed: int, path: str = "") -> None:
        """Raises BadData where the file is none, or too short."""
        whole = np.frombuffer(b"\n\n".join(documents(path)), dtype=np.uint8)
        least = int(LEAST * (seq_len + 1) / HELD_OUT)
        if len(whole) < least:
            raise BadData(f"{path}: {len(whole):,} bytes; windows of {seq_len} need {least:,}, {LEAST} held out")
        cut = int(len(whole) * (1.0 - HELD_OUT))
        self.seq_len, self.seed = seq_len, seed
        self.train: NDArray[np.uint8] = whole[:cut]
        self.held: NDArray[np.uint8] = whole[cut:]

    def windows(self, step: int, first: int, count: int) -> tuple[Any, Any]:
        """(tokens, targets), each count × seq_len, int64 tensors: the windows `first` … `first + count` of the step's batch."""
        draw = np.random.default_rng((self.seed, step))
        starts = draw.integers(0, len(self.train) - self.seq_len, first + count)[first:]
        return self._tensors(self.train, starts)

    def held_out(self, count: int) -> tuple[Any, Any]:
        """(tokens, targets) of so many windows, evenly spread over what is held out; the same for everybody."""
        return self._tensors(self.held, np.linspace(0, len(self.held) - self.seq_len - 1, count).astype(np.int64))

    def _tensors(self, source: NDArray[np.uint8], starts: NDArray[np.int64]) -> tuple[Any, Any]:
        import torch

        rows = source[starts[:, None] + np.arange(self.seq_len + 1)].astype(np.int64)
        both = torch.from_numpy(rows)
        return both[:, :-1].contiguous(), both[:, 1:].contiguous()
