"""Writes docs/methods.md: every sync method at its defaults, one model on three fleets; `--check` fails when the page is stale.

Every figure is what `shardmeter predict` says of the scenario: nothing is computed here but units.
"""

from __future__ import annotations

import copy
import sys
from pathlib import Path
from typing import Any

import shardmeter
from pages import closed, kept
from shardmeter import sync
from shardmeter.core.errors import BadScenario
from shardmeter.render.islands import loss_text

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
MODEL = "qwen2.5-0.5b"
COLUMNS = ("method", "step", "tokens/s", "run", "waits", "sent by an island, a step", "peak memory", "loss", "basis")
OWN: dict[str, dict[str, Any]] = {"eggroll": {"perturbations": 960}}
"""Settings without which the batch would not do."""
FEWER: dict[str, tuple[str, int]] = {"dipaco": ("home", 25)}
"""Islands of a name that a method can use: 2 levels of 5 modules have 25 paths."""
HEAD = f"""# Every method on three fleets

Written by `make docs` from what `shardmeter predict` says; do not edit.

One model, {MODEL}, on the same {RUN["tokens"]} tokens in batches of {RUN["global_batch"]} sequences of {RUN["seq_len"]}, with every method at its
defaults ([what they are](sync.md); eggroll has 960 members, one a sequence, and dipaco trains in 25 of the homes). *step* is an inner
step with its part of the round, *waits* the part of it in which the pace-setting island waits for others' messages, *tokens/s* those that count: methods with a deadline lose what comes too late. *loss* is
what the method is known to do to the loss of synchronous training on the same tokens, *basis* how well: **published** in that
range, **derived** from what was measured, a **guess** beyond its range, or **unknown**. [What is known](#what-is-known-of-the-loss) of
each is said below.

Time alone does not compare methods. Those without a backward (eggroll, mezo, soma, spsa) take quick steps that teach little; block_train
cuts the gradient between blocks; branch_train_merge, dipaco and soma end with several models, each of which has seen a part of the tokens.
"""
UNITS = ((1e12, "TB"), (1e9, "GB"), (1e6, "MB"), (1e3, "kB"), (1.0, "B"))
NEXT = (
    "[What each method is](sync.md), with its defaults and its source.",
    "[What H, bits and delays cost in loss](tradeoffs.md), for a scenario of yours.",
    "[What papers say of them](zoo.md), and what the arithmetic says.",
)


def page() -> str:
    """The whole page."""
    parts: list[str] = [HEAD]
    known: dict[str, str] = {}
    for title, (says, fleet, plan) in FLEETS.items():
        parts += [f"## {title}", "", f"{says[0].upper()}{says[1:]}.", "", _line(COLUMNS), _line("---" for _ in COLUMNS)]
        for name in sync.names():
            cells, text = row(name, fleet, plan)
            parts.append(_line((f"[{name}](sync.md#{name})", *cells)))
            known[name] = text or known.get(name, "")
        parts.append("")
    parts += ["## What is known of the loss", "", "As `predict` says it of the thirty homes.", ""]
    parts += [f"- **{name}**: {text}" for name, text in known.items()]
    return closed("\n".join([*parts, ""]), *NEXT)


def row(name: str, fleet: dict[str, Any], plan: dict[str, Any]) -> tuple[tuple[str, ...], str]:
    """One method on one fleet, and what is known of its loss there; one that the fleet cannot have says why."""
    said: dict[str, Any] = {
        "model": MODEL, "stack": "titan-compile", "fleet": copy.deepcopy(fleet), "run": RUN,
        "plan": {**plan, "sync": {"method": name, **OWN.get(name, {})}},
    }  # fmt: skip
    for island in said["fleet"]["islands"]:
        if name in FEWER and island["name"] == FEWER[name][0]:
            island["count"] = FEWER[name][1]
    try:
        answer = shardmeter.predict(said).to_dict()
    except BadScenario as error:
        return (*("–",) * 7, f"cannot: {error.violations[0].says}"), ""
    joined, run, steps = answer["sync"], answer["run"], answer["sync"]["period_steps"]
    loss = joined["loss_effect"]
    return (
        _seconds(joined["round_s"] / steps), f"{answer['tokens_per_s']:,.0f}", _seconds(run["wall_clock_s"]),
        f"{joined['exposed_s'] / joined['round_s']:.1%}", _bytes(max(one["sent_bytes"] for one in answer["islands"]) / steps),
        f"{answer['memory']['peak_gib']:.1f} GiB{'' if answer['fits'] else ' **(does not fit)**'}",
        loss_text(loss) or "none", loss["basis"],
    ), f"{loss['text']} ({loss['basis']})"  # fmt: skip


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
    """Write the page, or check it."""
    return kept(PAGE, page())


if __name__ == "__main__":
    sys.exit(main())
