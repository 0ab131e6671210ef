"""What a fleet's answer says of its islands and of the round that joins them."""

from __future__ import annotations

from typing import Any

import numpy as np

from shardmeter.core.sums import plain_sum
from shardmeter.core.units import GIB, Number
from shardmeter.engine import add
from shardmeter.engine.fleet import Part, Whole
from shardmeter.physics.wan import HEADERS, WIRE, wire_share
from shardmeter.specs.plan import Sync
from shardmeter.specs.round import Round
from shardmeter.specs.scenario import Scenario
from shardmeter.specs.wan import Wan
from shardmeter.study import zero_order
from shardmeter.sync import method

WAITS_FOR_NOBODY = "own"
"""Pace of methods without a common step."""


def nobody_waits(whole: Whole) -> bool:
    """Whether there is no step that all islands take."""
    return whole.round is not None and whole.round.pace == WAITS_FOR_NOBODY


def critical(whole: Whole) -> Part:
    """The island that sets the pace: the slowest where all wait, the fastest where nobody does; the only one of one."""
    return whole.parts[whole.critical]


def entries(whole: Whole) -> list[dict[str, Any]]:
    """`islands[]` of the answer: figures of each island's own inner step, and what the round makes of it."""
    return [_entry(whole, at, part) for at, part in enumerate(whole.parts)]


def _entry(whole: Whole, at: int, part: Part) -> dict[str, Any]:
    e, folded = part.estimate, whole.folded
    gpus, rate = _plain(e.gpus), _plain(e.tokens / e.step_time)
    own: dict[str, Any] = {
        "name": part.island.name,
        "gpus": gpus,
        "step_time_s": _plain(e.step_time),
        "tokens_per_s": rate,
        "tokens_per_s_per_gpu": rate / gpus,
        "mfu": _plain(e.model_flops / (e.step_time * e.peak_flops)),
        "memory_peak_gib": _plain(e.memory_peak) / GIB,
        "compute_utilization": _plain(e.compute_seconds / e.step_time),
    }
    if folded is None or whole.round is None:
        return own
    seconds, steps, counted = _plain(folded.seconds), _of(folded.steps, part), _of(folded.counted, part)
    mine = _plain(e.tokens) * steps / seconds
    return own | {
        "tokens_per_s": mine * counted,
        "tokens_per_s_per_gpu": mine * counted / gpus,
        "mfu": own["mfu"] * _plain(e.step_time) * steps * counted / seconds,
        "compute_utilization": _plain(e.compute_seconds) * steps / seconds,
        "accelerator": part.island.accelerator.name,
        "region": part.island.region or None,
        "global_batch": _plain(part.run.global_batch),
        "memory_limit_gib": _plain(e.memory_limit) / GIB,
        "fits": bool(e.memory_peak <= e.memory_limit),
        "steps_per_round": steps,
        "counted": counted,
        "wait_s": _of(folded.wait, part),
        "sent_bytes": _known(_plain(whole.sent[at])),
        "sets_the_pace": at == whole.critical,
    }


def synchronisation(whole: Whole, scenario: Scenario) -> dict[str, Any] | None:
    """`sync` of the answer: the round, its messages and what they hide behind; None for one island."""
    round_, folded = whole.round, whole.folded
    if round_ is None or folded is None:
        return None
    seconds = _plain(folded.seconds)
    inner = _of(folded.inner, critical(whole))
    return {
        "method": scenario.plan.sync.method,
        "pace": round_.pace,
        "period_steps": _plain(round_.steps),
        "parts": _plain(round_.parts),
        "round_s": seconds,
        "inner_s": inner,
        "utilization": inner / seconds,
        "exposed_s": plain_sum(_plain(one) for one in folded.exposed),
        "hidden_s": plain_sum(_plain(one) for one in folded.hidden),
        "update_s": _plain(folded.update),
        "sent_bytes": _known(plain_sum(_plain(one) for one in whole.sent)),
        "wire_bytes": _known(plain_sum(_plain(one) for one in whole.sent) * headers(whole.wan)),
        "paid_usd": _known(plain_sum(_plain(one) for one in whole.paid)),
        "crossings": [
            {
                "label": one.label, "collective": one.collective, "bytes": _plain(one.size), "messages": _plain(one.messages),
                "seconds": _plain(priced.seconds), "window_steps": _plain(one.window), "exposed_s": _plain(shown),
                "hidden_s": _plain(behind), "narrowest": priced.narrowest,
            }
            for one, priced, shown, behind in zip(
                round_.crossings, whole.priced, folded.exposed, folded.hidden, strict=True
            )
        ],
        "progress": _progress(round_),
        "variance": None if scenario.plan.probes is None else _plain(zero_order.variance(scenario.model, scenario.plan)),
        "loss_effect": loss_effect(whole),
    }  # fmt: skip


def headers(wan: Wan | None) -> float:
    """Bytes on the wire for one that is sent: by the packets of the network, their mean where pairs have unlike ones."""
    mtu = np.zeros(()) if wan is None else np.asarray(wan.mtu, dtype=float)
    pairs = mtu if mtu.ndim < 2 else mtu[~np.eye(len(mtu), dtype=bool)]
    said = pairs[pairs > 0.0]
    return float(np.mean(wire_share(said, HEADERS))) if said.size else WIRE


def loss_effect(whole: Whole) -> dict[str, Any] | None:
    """What the method is known to cost in loss, beside synchronous training on the same tokens."""
    one = whole.effect
    if one is None:
        return None
    numbers = {
        name: None if value is None else _plain(value) for name, value in (("nats", one.nats), ("factor", one.factor))
    }
    return {"basis": one.basis, **numbers, "per": one.per, "text": one.text, "source": one.source or None}


def _progress(round_: Round) -> dict[str, float]:
    """What the optimizer sees."""
    seen = round_.progress
    return {name: _plain(getattr(seen, name)) for name in ("replicas", "period", "delay", "bits")}


def egress(whole: Whole) -> tuple[Number, Number]:
    """(bytes sent between islands, USD they cost) of one inner step; NaN for the cost where no price of a pair that sends is known, or
    what is sent is not counted (NaN)."""
    if whole.round is None:
        return 0.0, 0.0
    sent: Number = add.folded(whole.sent)
    return sent / whole.round.steps, add.folded(whole.paid) / whole.round.steps


def too_late(whole: Whole, sync: Sync) -> list[str]:
    """A warning where islands' messages come too late to count, with what the method reads that would help."""
    if whole.folded is None:
        return []
    late = [part.island.name for part in whole.parts if not _of(whole.folded.counted, part)]
    if not late:
        return []
    names = ", ".join(late[:MOST_NAMES]) + (f" and {len(late) - MOST_NAMES} more" if len(late) > MOST_NAMES else "")
    says = "what all islands send comes too late: no token counts, and the run has no end"
    if len(late) < len(whole.parts):
        says = f"what {names} send{'s' if len(late) == 1 else ''} comes too late: those tokens do not count"
    helps = [text for field, text in IN_TIME.items() if field in method(sync.method).FIELDS]
    return [f"{says} ({', '.join(helps)})"]


IN_TIME = {
    "fragment_sync_delay": "more fragment_sync_delay", "grace": "more grace", "sync_every": "a longer round", "bits": "fewer bits",
}  # fmt: skip
"""What lets messages come in time, by the field that says it."""


MOST_NAMES = 3
"""Islands that a sentence names."""


def _of(value: Number, part: Part) -> float:
    """What one island's cell has of a number per cell."""
    return _plain(np.asarray(value)[..., part.cell])


def _known(value: float) -> float | None:
    """None for what is not counted."""
    return value if np.isfinite(value) else None


def _plain(value: Number) -> float:
    """A plain float; of per-cell seconds (methods in which each has a message of its own) the longest."""
    return float(np.max(value))
