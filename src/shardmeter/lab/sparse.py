"""Messages of the largest: of every chunk of 4,096 values only `kept` cross, in few bits, with their positions of 12 bits (Sarfi 2025).

Values of 2, 4 or 8 bits are cells of equal width between ± the chunk's largest, which crosses as a scale of 2 bytes (bfloat16): 1.8 %
more than the message at 64 values of 2 bits. 16 and 32 bits are half and single precision, without a scale. Where all are kept no
position crosses. Positions are packed two to three bytes, values of less than a byte as many as go into one.
"""

from __future__ import annotations

from typing import Any

import torch

CHUNK = 4096
SCALE = 2
"""Bytes of a scale."""
ROUNDING = 2.0**-8
"""What a scale may lose as bfloat16: it is made so much larger, so that the largest value is within it."""
TOGETHER = 4
"""Values are kept in multiples of this, so that bytes are whole."""


def kept(share: float) -> int:
    """Values of a chunk that cross, of a share of them: a multiple of 4."""
    return min(CHUNK, max(TOGETHER, TOGETHER * round(share * CHUNK / TOGETHER)))


def size(count: int, keep: int, bits: int) -> int:
    """Bytes of the message of a vector of so many values; its last chunk is filled up with zeros."""
    positions = 0 if keep == CHUNK else keep * 3 // 2
    return -(-count // CHUNK) * (keep * bits // 8 + positions + (SCALE if bits <= 8 else 0))


def message(values: Any, keep: int, bits: int) -> Any:
    """The bytes (chunks × bytes of each) of the `keep` largest values of every chunk of a vector (fp32)."""
    chunks = torch.zeros(-(-len(values) // CHUNK) * CHUNK)
    chunks[: len(values)] = values
    chunks = chunks.view(-1, CHUNK)
    parts = []
    if keep < CHUNK:
        positions = chunks.abs().topk(keep, dim=1).indices.sort(dim=1).values
        chunks = chunks.gather(1, positions)
        parts.append(_positions_packed(positions))
    if bits > 8:
        kind = torch.float32 if bits == 32 else torch.float16
        return torch.cat([*parts, chunks.to(kind).contiguous().view(torch.uint8)], dim=1)
    scales = (chunks.abs().amax(dim=1, keepdim=True) * (1.0 + ROUNDING)).to(torch.bfloat16)
    levels = 2**bits
    shares = torch.where(scales > 0, chunks / scales.float(), torch.zeros_like(chunks))
    cells = ((shares + 1.0) * (levels / 2)).floor_().clamp_(0, levels - 1).to(torch.uint8)
    return torch.cat([*parts, _packed(cells, bits), scales.contiguous().view(torch.uint8)], dim=1)


def dense(rows: Any, count: int, keep: int, bits: int) -> Any:
    """The vector (fp32, `count` values) of a message, zeros where nothing was sent."""
    cut = 0 if keep == CHUNK else keep * 3 // 2
    values = rows[:, cut : cut + keep * bits // 8].contiguous()
    if bits > 8:
        numbers = values.view(torch.float32 if bits == 32 else torch.float16).to(torch.float32)
    else:
        scales = rows[:, -SCALE:].contiguous().view(torch.bfloat16).float()
        numbers = ((2.0 * _unpacked(values, bits).float() + 1.0) / 2**bits - 1.0) * scales
    if keep < CHUNK:
        numbers = torch.zeros(len(rows), CHUNK).scatter_(1, _positions_unpacked(rows[:, :cut]), numbers)
    return numbers.reshape(-1)[:count]


def _packed(cells: Any, bits: int) -> Any:
    each = 8 // bits
    packed = torch.zeros_like(cells[:, ::each])
    for place in range(each):
        packed |= cells[:, place::each] << (bits * place)
    return packed


def _unpacked(packed: Any, bits: int) -> Any:
    each = 8 // bits
    return torch.stack([(packed >> (bits * place)) & (2**bits - 1) for place in range(each)], dim=-1).flatten(1)


def _positions_packed(positions: Any) -> Any:
    first, second = positions[:, 0::2], positions[:, 1::2]
    three = torch.stack([first & 255, (first >> 8) | ((second & 15) << 4), second >> 4], dim=-1)
    return three.to(torch.uint8).flatten(1)


def _positions_unpacked(packed: Any) -> Any:
    three = packed.view(len(packed), -1, 3).to(torch.int64)
    first = three[..., 0] | ((three[..., 1] & 15) << 8)
    second = (three[..., 1] >> 4) | (three[..., 2] << 4)
    return torch.stack([first, second], dim=-1).flatten(1)
