"""The lines of a log, without what terminals and launchers put around them."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import NamedTuple

from shardmeter.core.record import record

ESCAPES = re.compile(r"\x1b(?:\[[0-9;:?<=>]*[ -/]*[@-~]|\][^\x07\x1b\n]*(?:\x07|\x1b\\)|[@-Z\\^_])")
"""Colours, titles and movements of the cursor."""
RANK = re.compile(
    r"\s*(?:\[(?:rank|default)(\d+)\]:|(\d{1,5}):(?= )|\[\d+,(\d+)\]<std(?:out|err)>:|"
    r"\(\w[\w. ]* pid=(\d+)(?:, ip=[\d.]+)?\)|\(pid=(\d+)(?:, ip=[\d.]+)?\))\s?"
)
"""torchrun's and torchtitan's, srun's `--label`, mpirun's `--tag-output`, Ray's."""
INSIDE = re.compile(r"(?<=[^\s:\]])(?=\[(?:rank|default)\d+\]:)")
"""Where one rank's line begins within another's."""
HEAD = 24
"""Characters that a label's signs lie in."""
MOST_PREFIXES = 3
LONGEST = 2_000
"""Characters of a line that are read; reports are shorter."""
MOST_JOINED = 6
"""Pieces that a wrapped line is put together from."""


class Line(NamedTuple):
    """One line, cleaned."""

    number: int
    """In the file, from 1; the pieces of a line that carriage returns divide share one."""
    rank: str
    """Who printed it; several labels are joined by a slash."""
    text: str


@record
class Log:
    """A log: its text without escapes, and its lines."""

    name: str
    text: str
    lines: tuple[Line, ...]

    def having(self, word: str) -> list[Line]:
        """The lines that a word is in."""
        return [line for line in self.lines if word in line.text]


def opened(text: str, name: str = "") -> Log:
    """A text as a log."""
    text = plain(text)
    return Log(name=name, text=text, lines=tuple(_lines(text)))


def plain(text: str) -> str:
    """A text without the mark of its order of bytes, escapes of terminals, zero bytes and backspaces."""
    text = text.removeprefix("\ufeff").replace("\x00", "").replace("\x08", "")
    return ESCAPES.sub("", text) if "\x1b" in text else text


def _lines(text: str) -> Iterator[Line]:
    mixed = "[rank" in text or "[default" in text
    for number, whole in enumerate(text.split("\n"), 1):
        for drawn in whole.split("\r") if "\r" in whole else (whole,):
            for piece in INSIDE.split(drawn) if mixed and drawn.count("]:") > 1 else (drawn,):
                head = piece[:HEAD]
                rank, start = _rank(piece) if ":" in head[:13] or "pid=" in head or "]<std" in head else ("", 0)
                yield Line(number, rank, piece[start : start + LONGEST] if start or len(piece) > LONGEST else piece)


def _rank(text: str) -> tuple[str, int]:
    """The labels before a line, and where they end."""
    labels, start = [], 0
    for _ in range(MOST_PREFIXES):
        if text[start : start + 1] not in "[( 0123456789" or (found := RANK.match(text, start)) is None:
            break
        labels.append(next(label for label in found.groups() if label is not None))
        start = found.end()
    return "/".join(labels), start


def joined(
    log: Log, begins: re.Pattern[str], word: str, whole: Callable[[str], bool]
) -> Iterator[tuple[Line, re.Match[str]]]:
    """Every line with `word` that `begins` is found in, with what was found, and with the lines after it that terminals wrapped it into,
    until `whole` says that it is one.

    A report that never is whole comes out as far as it goes."""
    lines = log.lines
    for place, line in enumerate(lines):
        if word not in line.text or (found := begins.search(line.text)) is None:
            continue
        text = line.text
        for after in lines[place + 1 : place + MOST_JOINED] if not whole(text) else ():
            if not after.text or after.rank != line.rank or begins.search(after.text) or whole(text):
                break
            text += after.text
        yield line if text is line.text else Line(line.number, line.rank, text), found


def matches(log: Log, word: str, pattern: re.Pattern[str]) -> Iterator[tuple[Line, re.Match[str]]]:
    """Every line with `word` that a pattern is found in, with what was found."""
    for line in log.lines:
        if word in line.text and (found := pattern.search(line.text)) is not None:
            yield line, found
