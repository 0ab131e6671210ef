"""How FLOPs of a token are counted: one row a convention. An MFU stated in one is told in all others."""

from __future__ import annotations

import csv
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from shardmeter import data
from shardmeter.core.errors import UnknownName
from shardmeter.core.record import changed, record
from shardmeter.core.units import Count, Flop
from shardmeter.families import active_parameters, family, given_sequence, parameters, sized
from shardmeter.families.decoder import query_width
from shardmeter.physics.flop_counts import attention_flops, megatron_flops, parameter_flops
from shardmeter.specs import Model

TRAINED, FROZEN, REPLAYED = 3.0, 2.0, 4.0
"""Passes of a token: forward and both gradients; without the gradient of weights; with the forward again."""
FILE = "audit_conventions.csv"
OWN = "mfu"
PLAIN = "plain"
"""The word of an MLP of two matrices."""
SHORT = "6n"


@record
class Subject:
    """A model at one length of sequence, and what several conventions need of it."""

    model: Model
    seq: float
    own: float
    """By mfu's count."""
    core: float
    """Of it, scores and weighted sums of attention."""
    core_causal: float
    """The same over the keys that a token may see."""

    @property
    def head(self) -> Flop:
        """Forward and backward of the head's product."""
        return float(parameter_flops(self.model.vocab * self.model.hidden, TRAINED))


def counted(model: Model, seq: float) -> Subject:
    """A model with its FLOPs of a token in sequences of `seq` (or of its own length, where it has one)."""
    own_length = given_sequence(model)
    seq = seq if own_length is None else float(own_length)
    core, causal = _core(model, seq)
    return Subject(model=model, seq=seq, own=own_count(model, seq), core=core, core_causal=causal)


def own_count(model: Model, seq: float) -> float:
    """FLOPs of a token by mfu's count."""
    whole = sized(model, seq)
    return float(family(whole.family).training_flops(whole, 1.0, seq))


def _core(model: Model, seq: float) -> tuple[float, float]:
    """(full, causal) FLOPs of a token in the core of attention, forward and backward."""
    whole = sized(model, seq)
    kind = family(whole.family)
    full = causal = 0.0
    for block in kind.blocks(whole):
        for op in kind.operations(whole, block.name, 1.0, seq, "fused"):
            if op.kind == "attention":
                full += float(block.count * op.flops)
                causal += float(block.count * op.flops * op.repeats)
    return full, causal


@record
class Convention:
    """One way to count. `count` gives FLOPs of a token, None where it means nothing for a model."""

    key: str
    says: str
    formula: str
    seen: str
    """Where it is used, or what it forgets."""
    source: str
    count: Callable[[Subject], Flop | None]
    mistake: bool = False
    """Whether it is no convention but a count that is wrong for such a model."""


def _is_decoder(s: Subject) -> bool:
    return s.model.family == "decoder" and s.model.vision is None


def _when(holds: Callable[[Subject], bool], count: Callable[[Subject], Flop]) -> Callable[[Subject], Flop | None]:
    return lambda s: count(s) if holds(s) else None


def _with(**fields: Callable[[Model], Any] | str) -> Callable[[Subject], Flop]:
    """Mfu's count of the model with some fields as somebody took them: words, or made from the model."""

    def count(s: Subject) -> Flop:
        taken = {name: of if isinstance(of, str) else of(s.model) for name, of in fields.items()}
        return own_count(changed(s.model, **taken), s.seq)

    return count


def _is_dense(s: Subject) -> bool:
    return _is_decoder(s) and bool(s.model.experts == 0.0)


def _grouped(s: Subject) -> bool:
    return _is_decoder(s) and bool(s.model.kv_heads != s.model.heads and s.model.kv_lora_rank == 0.0)


def _swapped(s: Subject) -> Flop:
    """Queries as wide as keys and values, and these as wide as queries; an MLP of two matrices."""
    plain = own_count(changed(s.model, mlp="plain"), s.seq)
    wider = (s.model.heads - s.model.kv_heads) * s.model.head_dim * s.model.hidden
    return plain + s.model.layers * float(parameter_flops(wider, TRAINED))


def _palm(s: Subject) -> Flop:
    return _six(active_parameters(s.model)) + float(
        attention_flops(s.model.layers, query_width(s.model), s.seq, TRAINED)
    )


def _megatron(passes: float) -> Callable[[Subject], Flop]:
    return lambda s: float(megatron_flops(s.model.layers, s.model.hidden, s.seq, s.model.vocab, passes))


def _six(count: Count) -> Flop:
    return float(parameter_flops(count, TRAINED))


def _attends(s: Subject) -> bool:
    return bool(s.core > 0.0)


def _windowed(s: Subject) -> bool:
    return any(letter in s.model.mixers for letter in "wc")


COUNTS: dict[str, Callable[[Subject], Flop | None]] = {
    OWN: lambda s: s.own,
    SHORT: lambda s: _six(parameters(s.model)),
    "6n-active": _when(lambda s: bool(s.model.experts > 0.0), lambda s: _six(active_parameters(s.model))),
    "6n-matmul": lambda s: s.own - s.core,
    "6n-layers": _when(_is_decoder, lambda s: s.own - s.core - s.head),
    "palm": _when(_is_decoder, _palm),
    "causal": _when(_attends, lambda s: s.own - s.core + s.core_causal),
    "no-window": _when(_windowed, _with(mixers=lambda m: m.mixers.replace("w", "f").replace("c", "f"))),
    "megatron-72": _when(_is_decoder, _megatron(TRAINED)),
    "megatron-96": _when(_is_decoder, _megatron(REPLAYED)),
    "hfu-selective": _when(_attends, lambda s: s.own + s.core / TRAINED),
    "hfu-full": lambda s: s.own * REPLAYED / TRAINED,
    "frozen": lambda s: s.core + (s.own - s.core) * FROZEN / TRAINED,
    "forward": lambda s: s.own / TRAINED,
    "all-experts": _when(lambda s: bool(s.model.experts > s.model.top_k > 0.0), _with(top_k=lambda m: m.experts)),
    "ffn-4h": _when(_is_dense, _with(ffn=lambda m: 4.0 * m.hidden, mlp=PLAIN, kv_heads=lambda m: m.heads)),
    "two-matrices": _when(lambda s: _is_dense(s) and s.model.mlp == "gated", _with(mlp=PLAIN)),
    "all-heads": _when(_grouped, _with(kv_heads=lambda m: m.heads)),
    "swapped": _when(lambda s: _grouped(s) and s.model.mlp == "gated", _swapped),
    "head-forward": _when(_is_decoder, lambda s: s.own - s.head * FROZEN / TRAINED),
    "no-head": _when(_is_decoder, lambda s: s.own - s.head),
}
"""How each row of `data/audit_conventions.csv` counts."""


def _rows() -> tuple[Convention, ...]:
    with data.open_text(FILE) as file:
        return tuple(_row(row) for row in csv.DictReader(file))


def _row(row: Mapping[str, str]) -> Convention:
    return Convention(
        key=row["key"], says=row["says"], formula=row["formula"], seen=row["seen"], source=row["source"],
        count=COUNTS[row["key"]], mistake=row["mistake"] == "yes",
    )  # fmt: skip


CONVENTIONS = _rows()


def convention(key: str) -> Convention:
    """The convention of a key. Raises UnknownName."""
    found = next((one for one in CONVENTIONS if one.key == key), None)
    if found is None:
        raise UnknownName("convention", key, [one.key for one in CONVENTIONS])
    return found


def counts(subject: Subject) -> tuple[tuple[Convention, float], ...]:
    """Every convention that means something for a model, with its FLOPs of a token."""
    rows = ((one, one.count(subject)) for one in CONVENTIONS)
    return tuple((one, float(value)) for one, value in rows if value is not None and value > 0.0)


def of_parameters(total: float, active: float) -> Sequence[tuple[Convention, float]]:
    """The conventions that parameters alone tell."""
    own = {SHORT: total, "6n-active": active}
    passes = {"hfu-full": REPLAYED, "frozen": FROZEN, "forward": 1.0}
    rows = []
    for one in CONVENTIONS:
        if one.key in own and (one.key == SHORT or active != total):
            rows.append((one, float(parameter_flops(own[one.key], TRAINED))))
        elif one.key in passes:
            rows.append((one, float(parameter_flops(active, passes[one.key]))))
    return rows
