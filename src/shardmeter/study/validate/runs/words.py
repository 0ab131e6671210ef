"""The words of files of whole runs: which kinds of run and which ways to count hours mean what. The first pattern decides.

Rules are regular words, never ids: a file that nobody has seen is read by them.
"""

from __future__ import annotations

import re

from shardmeter.core.record import record
from shardmeter.study.validate.rows import NotModelled, Unclear


@record
class Kind:
    """A kind of run: the words that mean it, and why it cannot be expressed where it cannot."""

    name: str
    pattern: str
    """Searched in the small letters of `kind` and of the model's name."""
    skip: str = ""
    named: bool = False
    """Whether only a model of the catalog will do: the size alone does not say what is computed."""


TEACHER = "a teacher's passes beside the model, and what is trained on which of its outputs, are not stated"
KINDS: tuple[Kind, ...] = (
    Kind(name="growing", pattern=r"grow", skip="the model grows during the run: its sizes and their tokens are not stated"),
    Kind(name="distilled", pattern=r"distil|prun", skip=TEACHER),
    Kind(name="rl", pattern=r"\brl|reinforce|\bppo\b|\bgrpo\b", skip="rollouts of reinforcement learning are out of scope"),
    Kind(name="preferences", pattern=r"\bdpo\b|preference", skip="the passes of a reference model are not stated"),
    Kind(name="adapters", pattern=r"lora|adapter|peft", skip="which adapters were trained, and of what rank, is not stated"),
    Kind(name="self-supervised", pattern=r"\bmim\b|dino|ibot|jepa|\bmae\b", skip=f"self-supervised images: {TEACHER}"),
    Kind(name="recurrent", pattern=r"\bssm\b|mamba|rwkv|hybrid", named=True),
    Kind(name="decentralised", pattern=r"decentrali|diloco|internet", skip="the links between its islands are not stated"),
    Kind(name="audio", pattern=r"audio|speech|\btts\b|whisper", skip="models of sound are not modelled"),
    Kind(name="encoder-decoder", pattern=r"enc-?dec|encoder-decoder|\bt5\b|\bul2\b", named=True),
    Kind(name="diffusion", pattern=r"diffusion|\bdit\b", named=True),
    Kind(name="vision-language", pattern=r"\bvlm\b|\bvla\b|vision-language", named=True),
    Kind(name="two towers", pattern=r"dual|clip|siglip|contrastive", named=True),
    Kind(name="vision", pattern=r"vision|image|\bvit\b", named=True),
    Kind(name="encoder", pattern=r"encoder|\bbert\b|roberta|\bmlm\b", named=True),
    Kind(name="finetune", pattern=r"\bsft\b|fine-?tun|instruct|post-?train"),
    Kind(name="pretrain", pattern=r"train|speedrun|^"),
)  # fmt: skip


def kind_of(text: str, model: str) -> Kind:
    """The kind of a run by its own words, then by the model's name."""
    plain = text.lower()
    kind = next(one for one in KINDS if re.search(one.pattern, plain))
    if kind.name not in ("pretrain", "finetune", "vision"):
        return kind
    by_name = next(one for one in KINDS if re.search(one.pattern, model.lower()))
    return by_name if by_name.name in BY_NAME else kind


BY_NAME = ("growing", "distilled", "self-supervised", "recurrent", "encoder-decoder", "two towers", "encoder")
"""Kinds that a model's name tells where its row says no more than `pretrain`."""
ALMOST = re.compile(r"slightly|just|nearly|almost")
NOT_MEASURED: tuple[tuple[str, str], ...] = (
    (r"upper bound|at most|lower bound|at least|access", "the hours are a bound, not what the run took"),
    (r"assume|assumption|guess", "the hours are assumed, not measured"),
    (r"memory|unverified", "the hours are remembered, not read in a source"),
    (r"budget", "the hours are a budget that was given"),
    (r"estimat|projected|planned", "the hours are an estimate, not what a run took"),
)  # fmt: skip


def check_hours(kind: str) -> None:
    """Refuse hours that nobody measured; what is `just under` a bound counts as the bound. Raises Unclear."""
    plain = kind.lower()
    for pattern, why in NOT_MEASURED:
        if re.search(pattern, plain) and not (ALMOST.search(plain) and "bound" in pattern):
            raise Unclear(why)


FROM_RATE = re.compile(r"(derived|computed|calculated) from .*(tok/s|tokens/s|tok_s|throughput|samples?/s)")
"""Hours that are data over a measured rate."""
PER_TOKENS = re.compile(r"per\s+([0-9.]*)\s*(t|trillion|b|billion)\b\s*tok", re.IGNORECASE)
"""Hours for so many tokens, not for the run."""


def tokens_of_hours(kind: str) -> float | None:
    """Tokens that the hours are for, where they are not for the whole run (`172.8K per T tokens`)."""
    found = PER_TOKENS.search(kind)
    if found is None:
        return None
    return float(found[1] or 1.0) * (1e12 if found[2].lower().startswith("t") else 1e9)


def check_kind(kind: Kind) -> None:
    """Refuse what cannot be expressed, by its kind. Raises NotModelled."""
    if kind.skip:
        raise NotModelled(kind.skip)
