"""Writes docs/methods.md: every sync method at its defaults, one model on three fleets; `--check` fails when the page is stale.

Every figure is what `shardmeter predict` says of the scenario: nothing is computed here but units.
"""

from __future__ import annotations

import copy
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import shardmeter
from shardmeter import sync
from shardmeter.core.errors import ShardMeterError

PAGE = Path(__file__).parent.parent / "docs" / "methods.md"
RUN = {"seq_len": 2048, "global_batch": 960, "tokens": "10B"}
FLEETS: dict[str, tuple[str, dict[str, Any], dict[str, Any]]] = {
    "Two buildings": (
        "8 × H100 in each of two buildings 40 km apart, on a line of a quarter of what their adapters have",
        {
            "islands": [{"name": name, "gpus": "8xH100-SXM5-80GB", "price": "$2.10/gpu/h"} for name in ("north", "south")],
            "wan": {"default": {"preset": "dci-4to1"}},
        },
        {"micro_batch": 4},
    ),
    "Three clouds": (
        "8 × H100 in Oregon, 8 × H200 in Iowa and 16 × A100 in Virginia, on the public lines between them",
        {
            "islands": [
                {"name": "oregon", "instance": "p5.48xlarge", "nodes": 1, "region": "aws:us-west-2"},
                {"name": "iowa", "instance": "a3-ultragpu-8g", "nodes": 1, "region": "gcp:us-central1"},
                {"name": "virginia", "gpus": "16xA100-SXM4-80GB", "region": "azure:eastus", "price": "$1.80/gpu/h"},
            ]
        },
        {"micro_batch": 4},
    ),
    "Thirty homes": (
        "an RTX 4090 in each of thirty homes, on cable of 110 Mbit/s up and 500 Mbit/s down",
        {
            "islands": [{"name": "home", "gpus": "1xRTX 4090", "count": 30}],
            "wan": {"default": {"preset": "home-cable"}},
        },
        {"micro_batch": 2, "recompute": "full"},
    ),
}  # fmt: skip
MODEL, LAYERS = "qwen2.5-0.5b", 24
COLUMNS = (
    "method", "step", "tokens/s", "run", "waits", "sent by an island, a step", "peak memory", "loss", "what is known",
)  # fmt: skip
HEAD = f"""# Every method on three fleets

Written by `make docs` from what `shardmeter predict` says; do not edit.

One model, {MODEL}, on the same {RUN["tokens"]} tokens in batches of {RUN["global_batch"]} sequences of {RUN["seq_len"]}, with every method
at its defaults ([what they are](sync.md)). *step* is an inner step with its part of the round, *waits* the part of it in which the
pace-setting island waits for others' messages, *loss* what the method is known to add to the loss of synchronous training on the
same tokens. **Published**: measured, in that range. **Derived**: follows from what was measured. **Guess**: carried beyond its range.
**Unknown**: nothing is published that could be carried over.

Time alone does not compare methods. Those without a backward (eggroll, mezo, soma, spsa) take quick steps that teach little; block_train
cuts the gradient between blocks; branch_train_merge, dipaco and soma end with several models, each of which has seen a part of the tokens.
"""
UNITS = ((1e12, "TB"), (1e9, "GB"), (1e6, "MB"), (1e3, "kB"), (1.0, "B"))


def page() -> str:
    """The whole page."""
    parts = [HEAD]
    for title, (says, fleet, plan) in FLEETS.items():
        parts += [f"## {title}", "", f"{says[0].upper()}{says[1:]}.", "", _line(COLUMNS), _line("---" for _ in COLUMNS)]
        parts += [*rows(fleet, plan), ""]
    return "\n".join(parts)


def rows(fleet: dict[str, Any], plan: dict[str, Any]) -> Iterator[str]:
    """A row for every method; one that the fleet cannot have says why."""
    for name in sync.names():
        said = {
            "model": MODEL,
            "stack": "titan-compile",
            "fleet": fleet,
            "run": RUN,
            "plan": {**plan, "sync": {"method": name}},
        }
        try:
            answer = shardmeter.predict(copy.deepcopy(said)).to_dict()
        except ShardMeterError as error:
            problem = getattr(error, "violations", [None])[0]
            yield _line((f"[{name}](sync.md#{name})", *("–",) * 7, str(problem.says if problem else error)))
            continue
        yield _line(row(name, answer))


def row(name: str, answer: dict[str, Any]) -> tuple[str, ...]:
    """One method on one fleet."""
    joined, run, steps = answer["sync"], answer["run"], answer["sync"]["period_steps"]
    step = joined["round_s"] / steps
    sent = max(one["sent_bytes"] for one in answer["islands"]) / steps
    loss = joined["loss_effect"]
    added = (
        "not known"
        if loss["nats"] is None and loss["factor"] is None
        else f"{loss['nats']:+.2g} nats"
        if loss["nats"] is not None
        else f"× {loss['factor']:.3f}"
    )
    fits = "" if answer["fits"] else " **(does not fit)**"
    return (
        f"[{name}](sync.md#{name})", _seconds(step), f"{answer['tokens_per_s']:,.0f}", _seconds(run["wall_clock_s"]) if run else "–",
        f"{joined['exposed_s'] / joined['round_s']:.1%}", _bytes(sent), f"{answer['memory']['peak_gib']:.1f} GiB{fits}", added,
        f"**{loss['basis']}**: {loss['text']}",
    )  # fmt: skip


def _seconds(value: float) -> str:
    for size, unit in ((86400.0, "d"), (3600.0, "h"), (60.0, "min"), (1.0, "s")):
        if value >= 2.0 * size or unit == "s":
            return f"{value / size:.3g} {unit}"
    raise AssertionError


def _bytes(value: float) -> str:
    if value == 0.0:
        return "nothing"
    size, unit = next(one for one in UNITS if value >= one[0] or one[0] == 1.0)
    return f"{value / size:.3g} {unit}"


def _line(cells: Any) -> str:
    return f"| {' | '.join(cells)} |"


def main() -> int:
    """Write the page, or with `--check` compare it."""
    made = page()
    if "--check" in sys.argv[1:]:
        fresh = PAGE.exists() and PAGE.read_text(encoding="utf-8") == made
        print("docs/methods.md is fresh" if fresh else "docs/methods.md is stale: make docs")
        return 0 if fresh else 1
    PAGE.write_text(made, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
