"""How FLOPs of a token are counted: one row a convention. An MFU stated in one is told in all others."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from shardmeter.core.record import changed, record
from shardmeter.core.units import Flop
from shardmeter.families import active_parameters, family, given_sequence, parameters, sized
from shardmeter.families.decoder import query_width
from shardmeter.physics.flop_counts import attention_flops, megatron_flops, parameter_flops
from shardmeter.specs import Model

TRAINED, FROZEN, REPLAYED = 3.0, 2.0, 4.0
"""Passes of a token: forward and both gradients; without the gradient of weights; with the forward again."""
OWN = "mfu"
SHORT = "6n"


@record
class Subject:
    """A model at one length of sequence, and what several conventions need of it."""

    model: Model
    seq: float
    own: Flop
    """By mfu's count."""
    core: Flop
    """Of it, scores and weighted sums of attention."""
    core_causal: Flop
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


def own_count(model: Model, seq: float) -> Flop:
    """FLOPs of a token by mfu's count."""
    whole = sized(model, seq)
    return float(family(whole.family).training_flops(whole, 1.0, seq))


def _core(model: Model, seq: float) -> tuple[Flop, Flop]:
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


def _with(**fields: Callable[[Model], Any]) -> Callable[[Subject], Flop]:
    """Mfu's count of the model with some fields as somebody took them."""
    return lambda s: own_count(changed(s.model, **{name: of(s.model) for name, of in fields.items()}), s.seq)


def _grouped(s: Subject) -> bool:
    return _is_decoder(s) and s.model.kv_heads != s.model.heads and s.model.kv_lora_rank == 0.0


def _swapped(s: Subject) -> Flop:
    """Queries as wide as keys and values, and these as wide as queries; an MLP of two matrices."""
    plain = own_count(changed(s.model, mlp="plain"), s.seq)
    wider = (s.model.heads - s.model.kv_heads) * s.model.head_dim * s.model.hidden
    return plain + s.model.layers * float(parameter_flops(wider, TRAINED))


def _palm(s: Subject) -> Flop:
    count = float(parameter_flops(active_parameters(s.model), TRAINED))
    return count + float(attention_flops(s.model.layers, query_width(s.model), s.seq, TRAINED))


def _megatron(passes: float) -> Callable[[Subject], Flop]:
    return lambda s: float(megatron_flops(s.model.layers, s.model.hidden, s.seq, s.model.vocab, passes))


def _causal(s: Subject) -> Flop:
    return s.own - s.core + s.core_causal


def _windowed(s: Subject) -> bool:
    return any(letter in s.model.mixers for letter in "wc")


HERE = "this package"
CONVENTIONS: tuple[Convention, ...] = (
    Convention(key=OWN, says="ShardMeter's mfu: products of active matrices, full attention", formula="6·N_matmul,active + 12·L·H·Q·T",
        seen="PaLM's definition with the matrices that are multiplied; windows count the keys that can be seen", source="chowdhery2022",
        count=lambda s: s.own),
    Convention(key=SHORT, says="six times all parameters", formula="6·N", seen="scaling laws; blog posts; no attention",
        source="kaplan2020", count=lambda s: float(parameter_flops(parameters(s.model), TRAINED))),
    Convention(key="6n-active", says="six times active parameters", formula="6·N_active", seen="mixtures of experts; no attention",
        source="kaplan2020", count=_when(lambda s: s.model.experts > 0.0, lambda s: float(parameter_flops(active_parameters(s.model), TRAINED)))),
    Convention(key="6n-matmul", says="six times the matrices that are multiplied", formula="6·N_matmul", seen="no embedding, no attention",
        source="kaplan2020", count=lambda s: s.own - s.core),
    Convention(key="6n-layers", says="six times the parameters of the layers", formula="6·N_layers", seen="neither embedding nor head (Kaplan's N)",
        source="kaplan2020", count=_when(_is_decoder, lambda s: s.own - s.core - s.head)),
    Convention(key="palm", says="PaLM's formula with all parameters", formula="6·N + 12·L·H·Q·T", seen="nanoGPT and its descendants: the embedding is counted as if it were multiplied",
        source="chowdhery2022", count=_when(_is_decoder, _palm)),
    Convention(key="causal", says="attention over the keys that a token sees", formula="6·N_matmul + 6·L·H·Q·T", seen="MaxText, recent Megatron-LM, OLMo: half of the square",
        source="dao2023", count=_when(lambda s: s.core > 0.0, _causal)),
    Convention(key="no-window", says="every layer with full attention", formula="6·N_matmul + 12·L·H·Q·T, no windows", seen="counters that do not know windows or chunks",
        source="chowdhery2022", mistake=True, count=_when(_windowed, _with(mixers=lambda m: m.mixers.replace("w", "f").replace("c", "f")))),
    Convention(key="megatron-72", says="Megatron-LM's of 2021 without recomputation", formula="72·L·h²·(1 + s/6h + V/16hL)", seen="trainers with a factor of 3; MLP of two matrices 4h wide",
        source="narayanan2021", count=_when(_is_decoder, _megatron(TRAINED))),
    Convention(key="megatron-96", says="Megatron-LM's of 2021, full recomputation counted", formula="96·L·h²·(1 + s/6h + V/16hL)", seen="TFLOP/s of its tables: an HFU",
        source="narayanan2021", count=_when(_is_decoder, _megatron(REPLAYED))),
    Convention(key="hfu-selective", says="with the core of attention again", formula="mfu + 4·L·H·Q·T", seen="HFU of a selective recomputation",
        source="korthikanti2022", count=_when(lambda s: s.core > 0.0, lambda s: s.own + s.core / TRAINED)),
    Convention(key="hfu-full", says="with every forward again", formula="4/3 of mfu's (8·N)", seen="HFU of a full recomputation",
        source="chen2016", count=lambda s: s.own * REPLAYED / TRAINED),
    Convention(key="frozen", says="without gradients of weights", formula="2/3 of mfu's (4·N)", seen="LoRA: frozen weights have none; 6·N is 1.5 times what is done",
        source="kaplan2020", count=lambda s: s.own * FROZEN / TRAINED),
    Convention(key="forward", says="the forward alone", formula="1/3 of mfu's (2·N)", seen="inference; a backward that was forgotten",
        source="kaplan2020", mistake=True, count=lambda s: s.own / TRAINED),
    Convention(key="all-experts", says="every expert as if all were active", formula="6·N_total + attention", seen="counters that do not know experts",
        source="kaplan2020", mistake=True, count=_when(lambda s: s.model.experts > s.model.top_k > 0.0, _with(top_k=lambda m: m.experts))),
    Convention(key="ffn-4h", says="an MLP of two matrices 4h wide", formula="24·h² a layer forward, whatever the MLP is", seen="Megatron-LM before 2024, Megatron-DeepSpeed; SwiGLU 4h wide has 32",
        source="narayanan2021", mistake=True, count=_when(lambda s: _is_decoder(s) and s.model.experts == 0.0,
            _with(ffn=lambda m: 4.0 * m.hidden, mlp=lambda m: "plain", kv_heads=lambda m: m.heads))),
    Convention(key="two-matrices", says="an MLP of two matrices where there are three", formula="4·h·f for 6·h·f", seen="counters that do not know gated MLPs",
        source="narayanan2021", mistake=True, count=_when(lambda s: _is_decoder(s) and s.model.mlp == "gated" and s.model.experts == 0.0, _with(mlp=lambda m: "plain"))),
    Convention(key="all-heads", says="as many heads of keys and values as of queries", formula="8·h² for 4·h²·(1 + g/a)", seen="counters that do not know grouped queries",
        source="narayanan2021", mistake=True, count=_when(_grouped, _with(kv_heads=lambda m: m.heads))),
    Convention(key="swapped", says="widths of queries and of keys and values swapped, two MLP matrices", formula="6·h² + 2·h²·g/a + 4·h·f", seen="a correction of Megatron-LM that was proposed in 2024",
        source="narayanan2021", mistake=True, count=_when(lambda s: _grouped(s) and s.model.mlp == "gated", _swapped)),
    Convention(key="head-forward", says="the head in the forward alone", formula="mfu − 4·h·V", seen="calculators that leave the head out of the factor of three",
        source="kaplan2020", mistake=True, count=_when(_is_decoder, lambda s: s.own - s.head * FROZEN / TRAINED)),
    Convention(key="no-head", says="without the head", formula="mfu − 6·h·V", seen="calculators that count layers",
        source="kaplan2020", mistake=True, count=_when(_is_decoder, lambda s: s.own - s.head)),
)  # fmt: skip


def convention(key: str) -> Convention:
    """The convention of a key. Raises UnknownName."""
    from shardmeter.core.errors import UnknownName

    found = next((one for one in CONVENTIONS if one.key == key), None)
    if found is None:
        raise UnknownName("convention", key, [one.key for one in CONVENTIONS])
    return found


def counts(subject: Subject) -> tuple[tuple[Convention, Flop], ...]:
    """Every convention that means something for a model, with its FLOPs of a token."""
    rows = ((one, one.count(subject)) for one in CONVENTIONS)
    return tuple((one, float(value)) for one, value in rows if value is not None and value > 0.0)


def of_parameters(total: float, active: float) -> Sequence[tuple[Convention, Flop]]:
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
