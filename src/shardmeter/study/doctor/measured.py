"""What was measured: its words, its numbers, and the same figure of a prediction."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np

from shardmeter.core.errors import BadQuantity, BadScenario, Violation, nearest, shown
from shardmeter.core.quantity import quantity
from shardmeter.core.record import changed, record
from shardmeter.core.sums import plain_sum
from shardmeter.core.units import Count, Number
from shardmeter.specs import Scenario
from shardmeter.study import intervals, trust
from shardmeter.study.doctor.benchmarks import bus, communication, product
from shardmeter.study.doctor.world import World

PACE, MEMORY = "pace", "memory"
"""What a figure tells of: how fast, or how full."""
MOST = 8
"""Measured numbers of one question."""


@record
class Quantity:
    """A figure that people measure."""

    name: str
    title: str
    unit: str
    """SI, as in `render.cells.text`."""
    kind: str
    of: Callable[[World, Length | None], Number]
    slower_is_more: bool
    within: float = 0.0
    """How far from its prediction, as a logarithm, 90 % of those lie that do not move with the pace of a step."""
    reads: str
    """The dimension of its texts, as `core.quantity` knows it; "share" = a fraction or a percentage."""
    aliases: tuple[str, ...] = ()


@record
class Length:
    """What a duration was measured over."""

    amount: Count
    unit: str
    """steps, tokens or samples; "" = unknown, and then only a ratio of two durations tells something."""

    def steps(self, world: World) -> Number:
        """Steps of that length."""
        if self.unit == "steps":
            return self.amount
        each = world.estimate.tokens if self.unit == "tokens" else world.estimate.samples
        return self.amount / each


def _rate(amount: str, per: str = "") -> Callable[[World, Length | None], Number]:
    """Tokens or samples a second, of all, or of each of something."""

    def of(world: World, _: Length | None) -> Number:
        share: Number = 1.0
        if per == "gpus":
            share = world.estimate.gpus
        elif per == "nodes":
            share = plain_sum(float(island.nodes) for island in world.scenario.fleet.islands)
        elif per == "islands":
            share = float(len(world.scenario.fleet.islands))
        whole: Number = getattr(world.estimate, amount)
        return whole / world.step / share

    return of


def _utilization(world: World, _: Length | None) -> Number:
    """Of one island what it computes of a step; of several, what of a round is inner steps."""
    whole = world.whole
    if whole.folded is None or whole.round is None:
        return world.estimate.compute_seconds / world.step
    inner = float(np.asarray(whole.folded.inner).reshape(-1)[whole.parts[whole.critical].cell])
    return inner / (whole.folded.seconds + world.extra * whole.round.steps)


def _reserved(world: World, _: Length | None) -> Number:
    outside: Number = 0.0
    for term in world.estimate.memory:
        if term.label == "context and communicators":
            outside = outside + term.size
    return world.estimate.memory_peak - outside


def _duration(world: World, length: Length | None) -> Number:
    whole = Length(amount=1.0, unit="samples") if length is None else length
    return world.step * whole.steps(world)


BENCHMARK, PROFILE = math.log(1.25), math.log(1.5)
"""Benchmarks are held to a quarter, shares of a profile to a half: assumptions of ours."""
QUANTITIES = (
    Quantity(name="step_time", title="step", unit="s", kind=PACE, of=lambda w, _: w.step, slower_is_more=True, reads="time",
             aliases=("step_time_s", "iteration", "s_per_it", "s/it", "s_per_step")),
    Quantity(name="its_per_s", title="steps a second", unit="1/s", kind=PACE, of=lambda w, _: 1.0 / w.step, slower_is_more=False,
             reads="count", aliases=("it/s", "it_per_s", "steps_per_s")),
    Quantity(name="tokens_per_s", title="throughput", unit="tokens/s", kind=PACE, of=_rate("tokens"), slower_is_more=False, reads="count"),
    Quantity(name="tokens_per_s_per_gpu", title="throughput of a GPU", unit="tokens/s", kind=PACE, of=_rate("tokens", "gpus"),
             slower_is_more=False, reads="count", aliases=("tok/s/gpu", "tgs")),
    Quantity(name="tokens_per_s_per_node", title="throughput of a node", unit="tokens/s", kind=PACE, of=_rate("tokens", "nodes"),
             slower_is_more=False, reads="count"),
    Quantity(name="tokens_per_s_per_island", title="throughput of an island", unit="tokens/s", kind=PACE,
             of=_rate("tokens", "islands"), slower_is_more=False, reads="count"),
    Quantity(name="samples_per_s", title="samples a second", unit="samples/s", kind=PACE, of=_rate("samples"), slower_is_more=False,
             reads="count"),
    Quantity(name="samples_per_s_per_gpu", title="samples a second of a GPU", unit="samples/s", kind=PACE,
             of=_rate("samples", "gpus"), slower_is_more=False, reads="count"),
    Quantity(name="mfu", title="MFU", unit="%", kind=PACE, of=lambda w, _: w.estimate.model_flops / (w.step * w.estimate.peak_flops),
             slower_is_more=False, reads="share"),
    Quantity(name="hfu", title="HFU", unit="%", kind=PACE,
             of=lambda w, _: w.estimate.hardware_flops / (w.step * w.estimate.peak_flops), slower_is_more=False, reads="share"),
    Quantity(name="tflops_per_gpu", title="model FLOPs of a GPU", unit="FLOP/s", kind=PACE,
             of=lambda w, _: w.estimate.model_flops / (w.step * w.estimate.gpus), slower_is_more=False, reads="tflops",
             aliases=("tflops", "tflop_s_per_gpu")),
    Quantity(name="compute_utilization", title="compute utilisation", unit="%", kind=PACE, of=_utilization, slower_is_more=False,
             reads="share", aliases=("utilization", "utilisation")),
    Quantity(name="forward", title="forward passes of a step", unit="s", kind=PACE, of=lambda w, _: w.phases()[0] + 0.0 * w.step,
             slower_is_more=True, reads="time"),
    Quantity(name="backward", title="backward passes of a step", unit="s", kind=PACE, of=lambda w, _: w.phases()[1] + 0.0 * w.step,
             slower_is_more=True, reads="time"),
    Quantity(name="busbw", title="bus bandwidth of an all-reduce of 1 GB over all GPUs", unit="B/s", kind=PACE,
             of=lambda w, _: bus(w, across=True), slower_is_more=False, reads="bandwidth", within=BENCHMARK),
    Quantity(name="busbw_node", title="bus bandwidth of an all-reduce of 1 GB inside a node", unit="B/s", kind=PACE,
             of=lambda w, _: bus(w, across=False), slower_is_more=False, reads="bandwidth", within=BENCHMARK),
    Quantity(name="matmul", title="rate of a matrix product of 8192 × 8192 × 8192", unit="FLOP/s", kind=PACE,
             of=lambda w, _: product(w), slower_is_more=False, reads="tflops", within=BENCHMARK),
    Quantity(name="communication_share", title="share of communication kernels", unit="%", kind=PACE,
             of=lambda w, _: communication(w), slower_is_more=True, reads="share", within=PROFILE),
    Quantity(name="duration", title="duration", unit="s", kind=PACE, of=_duration, slower_is_more=True, reads="duration",
             aliases=("hours", "time", "wall_clock")),
    Quantity(name="memory", title="memory of a process", unit="B", kind=MEMORY, of=lambda w, _: w.estimate.memory_peak,
             slower_is_more=True, reads="size", aliases=("memory_process", "memory_peak", "peak")),
    Quantity(name="memory_reserved", title="memory reserved", unit="B", kind=MEMORY, of=_reserved, slower_is_more=True, reads="size"),
    Quantity(name="memory_allocated", title="memory allocated", unit="B", kind=MEMORY, of=lambda w, _: w.estimate.memory_allocated,
             slower_is_more=True, reads="size"),
)  # fmt: skip
"""All figures that can be measured; the memory is that of the fullest GPU."""
NAMED = {name: one for one in QUANTITIES for name in (one.name, *one.aliases)}


@record
class Spread:
    """How far a prediction may be off: 90 % lie between both ends."""

    fast: tuple[float, float]
    """(inner steps, messages between islands) over the predicted ones if all are fast."""
    slow: tuple[float, float]
    memory: tuple[float, float]


UNKNOWN = Spread(fast=(1.0, 1.0), slow=(1.0, 1.0), memory=(1.0, 1.0))
"""Before any fit."""


def spread(scenario: Scenario) -> Spread:
    """Of a scenario as it was said: what would explain a number does not make the prediction less sure."""
    paces = trust.paces(scenario)
    if paces is None:
        return UNKNOWN
    low, high = trust.memory_factors(scenario) or (1.0, 1.0)
    return Spread(fast=paces[0], slow=paces[1], memory=(low, high))


def of_ratio(scenario: Scenario) -> Spread:
    """Of a scenario whose common unknowns another measured one has fixed: what is wrong with both alike cancels."""
    half = intervals.ratio()
    own = spread(scenario)
    if half is None:
        return own
    return changed(own, fast=(math.exp(-half), own.fast[1]), slow=(math.exp(half), own.slow[1]))


@record
class Measured:
    """One measured number, in SI."""

    quantity: Quantity
    value: float
    length: Length | None = None

    def of(self, world: World) -> Number:
        """The same figure of a prediction."""
        return self.quantity.of(world, self.length)

    def ends(self, world: World, spread: Spread) -> tuple[Number, Number]:
        """Both ends of its 90 % interval, the lower first. Memory is never less than what is counted exactly."""
        if self.quantity.kind == MEMORY:
            size, low, high = self.of(world), *spread.memory
            return np.maximum(size * low, np.minimum(world.estimate.memory_exact, size)), size * high
        if self.quantity.within:
            middle = self.of(world)
            return middle * math.exp(-self.quantity.within), middle * math.exp(self.quantity.within)
        fast, slow = (self.of(world.paced(*pace)) for pace in (spread.fast, spread.slow))
        return (fast, slow) if self.quantity.slower_is_more else (slow, fast)

    def slowness(self, world: World) -> float:
        """Logarithm of how many times as slow, or as full, as predicted."""
        ratio = math.log(self.value / float(self.of(world)))
        return ratio if self.quantity.slower_is_more else -ratio

    def deviations(self, world: World, spread: Spread) -> float:
        """How many standard deviations of the prediction it lies from its middle; positive = slower, fuller."""
        low, high = (math.log(float(end)) for end in self.ends(world, spread))
        wide = max((high - low) / (2.0 * intervals.NORMAL_90), LEAST_DEVIATION)
        found = (math.log(self.value) - (low + high) / 2.0) / wide
        return found if self.quantity.slower_is_more else -found


LEAST_DEVIATION = 0.01
"""Of the logarithm of a figure: no measurement is better known."""
_LENGTH = re.compile(
    r"(?P<time>.*?)(?:\s+for\s+|\s+over\s+|\s*/\s*)(?P<count>[\d.,_eE+]+\s*[kKMBT]?)\s*"
    r"(?P<unit>steps?|tokens?|samples?|sequences?|epochs?)(?:\s+of\s+(?P<each>[\d.,_eE+]+\s*[kKMBT]?)\s*(?P<of>samples?|tokens?|sequences?)?)?\s*"
)
_ENDING = re.compile(
    r"\s*(?:/\s*)?(?:s?/?it(?:er|eration)?s?|/step|tok(?:en)?s?/s|samples?/s|/s|/gpu)*\s*$", re.IGNORECASE
)


def measured(texts: Iterable[str] | Mapping[str, Any], option: str = "--measured") -> tuple[Measured, ...]:
    """Read `tokens_per_s_per_gpu=1786`, `memory=26.47GiB`, `duration=13.5 h for 500 steps`, or a mapping of them. Raises BadScenario with
    everything that is wrong."""
    given = list(texts.items()) if isinstance(texts, Mapping) else [tuple(_parted(text)) for text in texts]
    if len(given) > MOST:
        many = Violation(field=option, says=f"{len(given):,} numbers", way_out=f"at most {MOST}")
        raise BadScenario("1 problem with what was measured", [many])
    found: list[Measured] = []
    bad: list[Violation] = []
    for name, text in given:
        try:
            found.append(_one(str(name), text))
        except BadQuantity as error:
            bad.append(Violation(field=f"{option} {name}", says=str(error)))
    twice = {one.quantity.name for at, one in enumerate(found) if one.quantity in [two.quantity for two in found[:at]]}
    bad += [
        Violation(field=f"{option} {name}", says="is measured twice", way_out="say one of them")
        for name in sorted(twice)
    ]
    if not given:
        bad.append(
            Violation(
                field=option, says="nothing was measured", way_out=f"{option} step_time=1.2s, or another of {_some()}"
            )
        )
    if bad:
        raise BadScenario(f"{len(bad)} problem{'s' if len(bad) > 1 else ''} with what was measured", bad)
    return tuple(found)


def _parted(text: str) -> tuple[str, str]:
    name, _, value = str(text).partition("=")
    return name.strip(), value.strip()


def _some() -> str:
    return ", ".join(one.name for one in QUANTITIES)


def _one(name: str, text: Any) -> Measured:
    known = NAMED.get(name)
    if known is None and name[:1].isdigit():
        raise BadQuantity(
            "a number without its name; write NAME=VALUE, as in tokens_per_s_per_gpu=1786, step_time=1.2s or mfu=40%"
        )
    if known is None:
        raise BadQuantity(
            f"{shown(name)} is nothing that is measured here; the nearest are: {', '.join(nearest(name, NAMED))}"
        )
    if text is None or text == "":
        raise BadQuantity(f"no number is given; write {name}={EXAMPLES[known.reads]}")
    length = None
    if known.reads == "duration":
        value, length = _timed(text)
    else:
        value = READERS[known.reads](text)
    if not (math.isfinite(value) and value > 0.0 and (length is None or length.amount > 0.0)):
        raise BadQuantity(f"{shown(text)} is no number above 0")
    return Measured(quantity=known, value=value, length=length)


def _timed(text: Any) -> tuple[float, Length | None]:
    """A duration and what it was measured over, where that is said."""
    found = _LENGTH.fullmatch(text) if isinstance(text, str) else None
    if found is None:
        return quantity(text, "time"), None
    count, unit = quantity(found["count"], "count"), found["unit"].rstrip("s")
    if unit == "epoch":
        if found["each"] is None:
            return quantity(found["time"], "time"), None
        count, unit = count * quantity(found["each"], "count"), (found["of"] or "samples").rstrip("s")
    unit = {"step": "steps", "token": "tokens"}.get(unit, "samples")
    return quantity(found["time"], "time"), Length(amount=count, unit=unit)


def _bare(text: Any) -> Any:
    """A text without the words behind its unit: `8.68 s/it`, `1786 tok/s`."""
    return _ENDING.sub("", text) if isinstance(text, str) else text


def _seconds(text: Any) -> float:
    stripped = re.sub(r"\s*/\s*(?:it(?:er|eration)?|step)\s*$", "", text) if isinstance(text, str) else text
    return quantity(stripped, "time")


def _share(text: Any) -> float:
    """A fraction; above 1 only as a percentage, so that 45.5 is not taken for 4,550 %."""
    if isinstance(text, str) and text.strip().endswith("%"):
        return quantity(text.strip()[:-1].strip(), "ratio") / 100.0
    value = quantity(text, "ratio")
    if value > 1.5:
        raise BadQuantity(
            f"{shown(text)} could be {value:g} % or {100 * value:g} %: write {value:g}% or {value / 100:g}"
        )
    return value


def _tflops(text: Any) -> float:
    """Bare numbers are TFLOP/s."""
    try:
        return quantity(text, "count") * 1e12
    except BadQuantity:
        return quantity(text, "flops_rate")


READERS: Mapping[str, Callable[[Any], float]] = {
    "time": _seconds, "count": lambda text: quantity(_bare(text), "count"), "share": _share, "tflops": _tflops,
    "size": lambda text: quantity(text, "size"), "bandwidth": lambda text: quantity(text, "bandwidth"),
}  # fmt: skip
EXAMPLES = {
    "time": "8.68s", "count": "1786", "share": "45.5%", "tflops": "150", "size": "26.47GiB", "duration": "'13.5 h for 500 steps'",
    "bandwidth": "2.9GB/s",
}  # fmt: skip
