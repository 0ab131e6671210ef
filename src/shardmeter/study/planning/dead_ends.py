"""Where a search ends without a plan: pins that contradict each other or the fleet, and which of them to drop."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping
from typing import Any

from shardmeter.core.errors import BadScenario, Violation
from shardmeter.core.record import changed
from shardmeter.engine.constraints import violations
from shardmeter.engine.rules import divisors
from shardmeter.scenario.choices import ANY
from shardmeter.specs import Choices, Scenario
from shardmeter.specs.plan import AXES
from shardmeter.study.planning import boxes, words
from shardmeter.study.planning.block import CHUNK, DEGREES, Question, legal_somewhere, search_box
from shardmeter.study.planning.space import Space, space_of
from shardmeter.study.planning.tally import Tally

GRID = ("tp", "pp", "cp", "dp_shard", "dp_replicate")
"""Degrees that multiply to the GPUs."""
LISTED = 4
"""Reasons that a message lists."""


MOST_CROSSED = 100_000
"""Crossings of pinned degrees that are held against the GPUs before a search; it counts what is more."""


def undivided(space: Space) -> None:
    """Raise BadScenario where the pinned degrees alone leave no way to place them on the GPUs, before anything is searched."""
    pins = {name: values for name in GRID if (values := space.choices.plan.get(name))}
    sizes = sorted({float(island.gpus) for island in space.choices.islands})
    found = [
        Violation(field=f"plan.{name}", says=f"{name} {_either(values)} does not divide {_gpus(sizes)}", rule=DEGREES,
                  way_out=_divisors(name, values, sizes))
        for name, values in pins.items() if not _place({name: values}, sizes)
    ]  # fmt: skip
    if not found and math.prod(map(len, pins.values())) <= MOST_CROSSED and not _place(pins, sizes):
        freeing = [name for name in pins if _place({key: one for key, one in pins.items() if key != name}, sizes)]
        widen = " or ".join(f"{name}={_text(pins[name])}" for name in freeing)
        way_out = f"drop or widen {widen}" if widen else "drop two or more of the pins"
        found = [Violation(field="plan", says=_product(space), rule=DEGREES, way_out=way_out)]
    if found:
        held = ", ".join(f"{name}={_text(values)}" for name, values in pins.items())
        raise BadScenario(f"{space.scenario.name}: no legal plan with {held}", found)


def _place(pins: Mapping[str, tuple[Any, ...]], sizes: list[float]) -> bool:
    """Whether some crossing of the degrees divides some number of GPUs."""
    products = {math.prod(map(float, one)) for one in itertools.product(*pins.values())}
    return any(size % product == 0.0 for size in sizes for product in products if product >= 1.0)


def _divisors(name: str, values: tuple[Any, ...], sizes: list[float]) -> str:
    """The divisors next to the first of the values."""
    first, known = float(values[0]), sorted({one for size in sizes for one in divisors(size)})
    below, above = [one for one in known if one < first], [one for one in known if one > first]
    near = " or ".join(f"{name}={one:g}" for one in (*below[-1:], *above[:1]))
    return f"say {near}, or leave it out"


def _either(values: tuple[Any, ...]) -> str:
    return " | ".join(_word(one) for one in values[:6]) + (" | …" if len(values) > 6 else "")


def _gpus(sizes: list[float]) -> str:
    return f"{' | '.join(f'{one:,.0f}' for one in sizes[:6])} GPUs"


def empty(question: Question, tally: Tally) -> BadScenario:
    """No plan keeps the rules: the counted reasons, and the pins without which there would be one."""
    space = question.space
    pins = space.choices.plan
    said = {name: _text(values) for name, values in pins.items()}
    reasons = tally.rejected.most_common(LISTED)
    out = [name for name in pins if _opens(space.scenario, space.choices, name)]
    way_out = f"drop or widen {' or '.join(f'{name}={said[name]}' for name in out)}" if out else _other_way_out(space)
    found = [
        Violation(field="plan", says=f"{count:,} of {tally.evaluated:,} plans break it", rule=reason, way_out=way_out)
        for reason, count in reasons
    ] or [Violation(field="plan", says=_product(space), rule=DEGREES, way_out=way_out)]
    held = f" with {', '.join(f'{name}={text}' for name, text in said.items())}" if said else ""
    return BadScenario(f"{space.scenario.name}: no legal plan{held}", found)


def shut_out(question: Question) -> tuple[dict[str, Any], ...]:
    """The sizes of a space of which no plan keeps every rule, where others do: `gpus`, `accelerator`, and in `says` why."""
    space = question.space
    found = []
    for place, island in enumerate(space.choices.islands if len(space.choices.islands) > 1 else ()):
        own = changed(space, variants=tuple(one for one in space.variants if one.place == place))
        if legal_somewhere(own):
            continue
        tally = question.tally()
        for variant in own.variants:
            for picked in boxes.cut(boxes.whole(variant.shape), CHUNK):
                search_box(changed(question, space=own), variant, picked, tally)
        batches = sorted({float(one) for variant in own.variants for one in variant.batches.flat})
        counted = [
            f"{rule} ({count:,} of {tally.evaluated:,} plans break it)"
            for rule, count in tally.rejected.most_common(LISTED)
        ]
        why = ", ".join(counted) or _product(own)
        sizes = " | ".join(f"{one:,.0f}" for one in batches[:6])
        says = f"no plan of {island.gpus:,.0f} GPUs takes a batch of {sizes}: {why}"
        found.append({"gpus": float(island.gpus), "accelerator": island.accelerator.name, "says": says})
    return tuple(found)


def _product(space: Space) -> str:
    """What the smallest of the pinned degrees come to, beside the GPUs that there are."""
    pins = {name: min(values) for name, values in space.choices.plan.items() if name in AXES and values}
    gpus = max(float(island.gpus) for island in space.choices.islands)
    if not pins:
        return f"no plan is left to try on {gpus:,.0f} GPUs"
    return f"{' · '.join(f'{name} {_word(one)}' for name, one in pins.items())} = {math.prod(pins.values()):,.0f} on {gpus:,.0f} GPUs"


def _text(values: tuple[Any, ...]) -> str:
    shown = [_word(one) for one in values[:6]]
    return shown[0] if len(values) == 1 else f"[{', '.join(shown)}{', …' if len(values) > 6 else ''}]"


def _word(value: Any) -> str:
    if isinstance(value, tuple):
        return f"[{', '.join(value)}]"
    return f"{value:g}" if isinstance(value, float) else str(value).lower() if isinstance(value, bool) else str(value)


def _opens(scenario: Scenario, choices: Choices, pin: str) -> bool:
    """Whether there is a legal plan without one pin."""
    left = changed(choices, plan={name: values for name, values in choices.plan.items() if name != pin})
    return legal_somewhere(space_of(changed(scenario, choices=left)))


def _other_way_out(space: Space) -> str:
    if not space.choices.plan:
        return "say another global batch, sequence length or number of GPUs"
    without = changed(space.choices, plan={})
    if legal_somewhere(space_of(changed(space.scenario, choices=without))):
        return "drop two or more of the pins"
    return "say another global batch, sequence length or number of GPUs"


def legal(scenario: Scenario) -> None:
    """Raise BadScenario with every rule that the user's own plan breaks at the batch of the search."""
    found = violations(scenario.model, scenario.fleet.islands[0], scenario.plan, scenario.run, scenario.stack)
    if found:
        count = len(found)
        batch = f"global batch {float(scenario.run.global_batch):,.0f}"
        problems = f"{count} problem{'s' if count > 1 else ''}"
        raise BadScenario(f"the plan to compare with, at {batch}: {problems}", found)


def chosen_from(space: Space) -> list[str]:
    """What the planner chose from, in words: what it offered by itself, and that the rest stays as it is."""
    choices, stack = space.choices, space.scenario.stack
    offered = {
        "sharding": words.shardings(stack),
        "schedule": words.schedules(stack),
        "recompute": words.POLICIES,
        "cp_kind": ("ring",),
        "offload": ("none",),
    }
    free = [f"{name} {' | '.join(values)}" for name, values in offered.items() if name not in choices.plan]
    kept = [
        f"{name} {getattr(space.scenario.plan, name)}"
        for name in ("precision", "optimizer", "reduce_dtype")
        if name not in choices.plan
    ]
    found = []
    if free:
        found.append(
            f"chosen from: {', '.join(free)} (what {stack.name} is known for; a pin, or {ANY}, asks for others)"
        )
    if kept:
        found.append(f"kept: {', '.join(kept)} (they change the arithmetic; a list chooses)")
    if "tp" not in choices.plan:
        found.append("tp within the scale-up domain (wider ones took longer than predicted)")
    return found
