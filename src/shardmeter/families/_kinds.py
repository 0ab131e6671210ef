"""Kinds of layers: what mixes the tokens and what follows it, named, and in which order a model has them.

A model says both as letters, one a layer, repeated to the last layer (`Model.mixers`, `Model.mlps`): `wf` alternates windowed
and full attention (Gemma 2, GPT-OSS), `cccf` is Llama 4, `dddf` Qwen3-Next; layers of one part alone have `-` for the other
(Nemotron-H). Source of the idea: the published `layer_types` and `hybrid_override_pattern` of those models (2024, 2025).
"""

from __future__ import annotations

import functools

from shardmeter.core.record import record
from shardmeter.specs.model import Model

FULL, WINDOW, CHUNK, MAMBA, DELTA, SCAN, LSTM, NONE = "f", "w", "c", "m", "d", "s", "l", "-"
DENSE, ROUTED = "d", "e"
ATTENTION = (FULL, WINDOW, CHUNK)
RECURRENT = (MAMBA, DELTA, SCAN)
"""Mixers with a state whose steps are taken in chunks; those of an LSTM are not."""
_MIXERS = {
    FULL: "", WINDOW: "window", CHUNK: "chunk", MAMBA: "mamba", DELTA: "delta", SCAN: "scan", LSTM: "lstm", NONE: "",
}  # fmt: skip
_PREDICTING = "predicting"


@record
class Kind:
    """One kind of layer."""

    mixer: str
    """f full attention, w in a sliding window, c in chunks, m Mamba-2, d gated delta rule, s the first Mamba's
    selective scan, l an LSTM (of family recurrent alone), - nothing."""
    mlp: str
    """d dense, e routed experts, - nothing."""
    predicting: bool = False
    """Whether it is a multi-token-prediction module: a layer with a projection before it and a pass through the head after."""

    @property
    def name(self) -> str:
        """The name of its block: `layer`, `moe layer`, `window layer`, `mamba layer`, `mlp layer`, …"""
        if self.mixer == NONE:
            own = "mlp" if self.mlp == DENSE else "experts"
        else:
            attends = self.mixer in ATTENTION
            follows = {ROUTED: "moe", DENSE: "" if attends else "mlp", NONE: "attention" if attends else ""}[self.mlp]
            own = f"{_MIXERS[self.mixer]} {follows}".strip()
        return " ".join(word for word in (_PREDICTING if self.predicting else "", own, "layer") if word)

    @property
    def routed(self) -> bool:
        """Whether it has routed experts."""
        return self.mlp == ROUTED

    @property
    def parts(self) -> float:
        """Mixer and MLP: 2, or 1 where it has but one of them."""
        return 2.0 - float(NONE in (self.mixer, self.mlp))


_NAMED = {
    kind.name: kind
    for predicting in (False, True)
    for mixer in _MIXERS
    for mlp in (DENSE, ROUTED, NONE)
    for kind in (Kind(mixer=mixer, mlp=mlp, predicting=predicting),)
    if (mixer, mlp) != (NONE, NONE)
}


def named(block: str) -> Kind:
    """The kind of a layer by the name of its block. Raises KeyError for the embedding and the head."""
    return _NAMED[block]


def has_experts(model: Model) -> bool:
    """Whether the model has layers with routed experts. Structure, not a number: a batch has them or has none."""
    return not (isinstance(model.experts, float) and model.experts == 0.0)


def kinds(model: Model) -> tuple[Kind, ...]:
    """The kind of every layer in order, prediction modules after the last."""
    return _kinds(
        int(model.layers), model.mixers or FULL, model.mlps or (ROUTED if has_experts(model) else DENSE),
        int(model.dense_first) if has_experts(model) else 0, int(model.mtp),
    )  # fmt: skip


@functools.lru_cache(maxsize=1024)
def _kinds(layers: int, mixers: str, mlps: str, dense_first: int, mtp: int) -> tuple[Kind, ...]:
    found = [
        Kind(mixer=mixers[place % len(mixers)], mlp=DENSE if place < dense_first else mlps[place % len(mlps)])
        for place in range(layers)
    ]
    module = Kind(
        mixer=next((kind.mixer for kind in reversed(found) if kind.mixer in ATTENTION), FULL),
        mlp=next((kind.mlp for kind in reversed(found) if kind.mlp != NONE), DENSE),
        predicting=True,
    )
    return (*found, *(module for _ in range(mtp)))


def order(model: Model) -> tuple[tuple[str, int], ...]:
    """Runs of equal layers in order: (name of the block, how many)."""
    return _runs(kinds(model))


@functools.lru_cache(maxsize=1024)
def _runs(found: tuple[Kind, ...]) -> tuple[tuple[str, int], ...]:
    runs: list[tuple[str, int]] = []
    for kind in found:
        if runs and runs[-1][0] == kind.name:
            runs[-1] = (kind.name, runs[-1][1] + 1)
        else:
            runs.append((kind.name, 1))
    return tuple(runs)


def placed(model: Model) -> tuple[tuple[Kind, tuple[int, ...]], ...]:
    """Kinds in order of their first layer, each with the places of its layers in the model."""
    return _placed(kinds(model))


@functools.lru_cache(maxsize=1024)
def _placed(found: tuple[Kind, ...]) -> tuple[tuple[Kind, tuple[int, ...]], ...]:
    return tuple(
        (kind, tuple(place for place, one in enumerate(found) if one == kind)) for kind in dict.fromkeys(found)
    )
