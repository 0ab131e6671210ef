"""Trade-offs in sentences: only what numbers say."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from shardmeter.study.tradeoffs.knobs import Knob
from shardmeter.study.tradeoffs.turned import Base, Turned

LEAST = 5e-4
"""Relative change that is worth a sentence."""
OF_SEQUENCE = "laws of loss count tokens, not how long the sequences are: what a sequence does to the loss is left out"
OF_MEMORY = "plan.recompute", "plan.micro_batch"
"""Knobs that leave what is learned as it is while the batch is said."""


def says(one: Turned, base: Base) -> tuple[str, ...]:
    """From where the scenario stands to the fastest value that fits and, where a law tells what a loss costs, to the one that is first at the
    same loss; what no other value betters."""
    now = next((entry for entry in one.entries if entry["now"]), None)
    fitting = [entry for entry in one.entries if entry["status"] == "ok" and entry is not now]
    if now is None or not fitting:
        return ()
    found = []
    fastest = max(fitting, key=lambda entry: entry["tokens_per_s"])
    if fastest["speed"] > 1.0 + LEAST:
        found.append(_turn(one.knob, fastest, base))
    known = [entry for entry in fitting if entry["speed_to_loss"] is not None]
    best = max(known, key=lambda entry: entry["speed_to_loss"], default=None)
    if best is not None and best is not fastest and best["speed_to_loss"] > 1.0 + LEAST:
        found.append(_turn(one.knob, best, base))
    if not found:
        found.append(f"{one.knob.title}: no other value that fits is faster than {shown(one.knob.now)}")
    return tuple(found)


def _turn(knob: Knob, entry: dict[str, Any], base: Base) -> str:
    """`from H = 100 to 500: +9.0 % tokens/s, +0.012 nats, which costs 6.0 % more tokens: +2.8 % to the same loss: worth it`."""
    parts = [f"{_percent(entry['speed'])} tokens/s"]
    change, ratio = entry["loss_change"], entry["tokens_ratio"]
    if base.scenario.run.target_loss is not None and ratio is not None:
        parts.append(f"{_percent(ratio)} tokens to the target: {_worth(entry)}")
    elif change is not None and ratio is not None:
        nats = f"{change:+.4f} {_unit(base)}" if abs(change) >= 5e-5 else "the same loss as far as is known"
        more = "more" if ratio >= 1.0 else "fewer"
        costs = (
            "which no data makes up"
            if math.isinf(ratio)
            else f"which is {abs(100.0 * (ratio - 1.0)):.1f} % {more} tokens"
        )
        parts.append(nats if nats.startswith("the same") else f"{nats}, {costs}: {_worth(entry)}")
    elif entry["loss_factor"] is not None and knob.field.startswith("plan.sync"):
        parts.append(
            f"the loss × {entry['loss_factor']:.4f} of synchronous training; what that costs in tokens is not known"
        )
    elif knob.field not in OF_MEMORY:
        parts.append("what it does to the loss is not known")
    return f"from {knob.title} = {shown(knob.now)} to {shown(entry['value'])}: {', '.join(parts)}"


def _worth(entry: dict[str, Any]) -> str:
    net = entry["speed_to_loss"]
    if net is None or net == 0.0:
        return "not worth it"
    return f"{_percent(net)} to the same loss: {'worth it' if net > 1.0 + LEAST else 'not worth it'}"


def _unit(base: Base) -> str:
    law = base.scenario.run.law
    return "nats" if law is None else law.unit


def _percent(ratio: float) -> str:
    return "±0 %" if abs(ratio - 1.0) < LEAST else f"{100.0 * (ratio - 1.0):+.1f} %"


def shown(value: Any) -> str:
    """A value of a knob as people write it."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return str(value)
    return f"{value:,.0f}" if float(value).is_integer() else f"{value:,.6g}"


def notes(knobs: Sequence[Turned], base: Base) -> tuple[str, ...]:
    """What a reader should know beside the numbers."""
    found = [OF_SEQUENCE] if any(one.knob.field == "run.seq_len" for one in knobs) else []
    if base.why:
        found.append(f"no loss of the run is told: {base.why}")
    found.append("learning rates are taken to follow the batch and the method")
    return tuple(found)
