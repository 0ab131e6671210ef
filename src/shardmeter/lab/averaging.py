"""The mean of a vector over all members, in 32, 16, 8 or 4 bits a value.

32 bits: gloo's all-reduce. 16 bits: the same of half-precision numbers, each divided by the members first. 8 and 4 bits: each member
cuts its vector into one shard a member, quantises them and sends each to its owner (all-to-all); the owner sums in full precision,
quantises the mean and gives it to all (all-gather). A member so sends 2·(M − 1)/M of the quantised vector: what a ring would.

Quantised numbers are whole ones between ±(2^(bits−1) − 1), as bytes or two to a byte, times a scale of 4 bytes for every 1,024 of
them: the largest of these over the largest whole number. Scales add 0.03125 bit a value: 0.8 % at 4 bits, 0.4 % at 8. No number is
further than half a scale from what it was. Streaming DiLoCo's paper has E3M0, whose step grows with the value; its bytes are the same.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist

from shardmeter.lab import groups

BLOCK = 1024
"""Values that share a scale."""
SCALE = 4
"""Bytes of a scale."""


def mean(values: Any, bits: int, members: int, group: Any = None) -> Any:
    """The mean over the members of a group (None: all) of a vector (fp32), new. Raises RuntimeError where a peer is gone."""
    if bits == 32:
        summed = values.clone()
        dist.all_reduce(summed, group=group)
        return summed.div_(members)
    if bits == 16:
        halves = (values / members).to(torch.float16)
        dist.all_reduce(halves, group=group)
        return halves.to(torch.float32)
    return _mean_of_quantised(values, bits, members, group)


def size(count: int, bits: int, members: int) -> int:
    """Bytes that a member holds of such a message of `count` values, scales and what fills up the last block of a shard included."""
    if bits >= 16:
        return count * bits // 8
    blocks = -(-count // (members * BLOCK))
    return members * blocks * (BLOCK * bits // 8 + SCALE)


def quantised(values: Any, bits: int) -> Any:
    """Rows of numbers (… × whole blocks of 1,024, fp32) as rows of bytes: whole numbers, then scales."""
    blocks = values.reshape(*values.shape[:-1], -1, BLOCK)
    most = 2 ** (bits - 1) - 1
    scales = blocks.abs().amax(dim=-1, keepdim=True) / most
    whole = torch.where(scales > 0.0, blocks / scales, torch.zeros_like(blocks)).round_().clamp_(-most, most)
    whole = whole.reshape(values.shape).to(torch.int8)
    packed = whole.view(torch.uint8) if bits == 8 else _packed(whole)
    return torch.cat([packed, scales.squeeze(-1).contiguous().view(torch.uint8)], dim=-1)


def restored(rows: Any, bits: int) -> Any:
    """Rows of numbers (fp32) from what `quantised` gave."""
    blocks = rows.shape[-1] // (BLOCK * bits // 8 + SCALE)
    cut = blocks * BLOCK * bits // 8
    packed, scales = rows[..., :cut].contiguous(), rows[..., cut:].contiguous().view(torch.float32)
    whole = packed.view(torch.int8) if bits == 8 else _unpacked(packed)
    numbers = whole.to(torch.float32).view(*rows.shape[:-1], blocks, BLOCK) * scales.unsqueeze(-1)
    return numbers.reshape(*rows.shape[:-1], blocks * BLOCK)


def _packed(whole: Any) -> Any:
    """Whole numbers of four bits, two to a byte."""
    nibbles = (whole + 8).to(torch.uint8)
    return nibbles[..., 0::2] | (nibbles[..., 1::2] << 4)


def _unpacked(packed: Any) -> Any:
    both = torch.stack([packed & 15, packed >> 4], dim=-1).flatten(-2)
    return both.to(torch.int8) - 8


def _mean_of_quantised(values: Any, bits: int, members: int, group: Any) -> Any:
    shard = -(-len(values) // (members * BLOCK)) * BLOCK
    filled = torch.zeros(members * shard, dtype=torch.float32)
    filled[: len(values)] = values
    sent = quantised(filled.view(members, shard), bits)
    came = torch.empty_like(sent)
    dist.all_to_all_single(came, sent, group=group)
    own = quantised(restored(came, bits).mean(dim=0, keepdim=True), bits)
    whole = torch.empty_like(sent)
    groups.gather(whole, own.contiguous(), group)
    return restored(whole, bits).reshape(-1)[: len(values)]
