"""Everything that a worker needs, imported and read once: workers are forked from a process that has it, so that one starts in a moment."""

from __future__ import annotations

import gc
import importlib

SELDOM = (50_000, 20, 100)
"""How often a worker looks for garbage: an answer makes much, and nearly none of it in circles."""

MODULES = (
    "numpy", "shardmeter.render.described", "shardmeter.render.doctor", "shardmeter.render.explanation", "shardmeter.render.gantt",
    "shardmeter.render.planning", "shardmeter.render.planning_figures", "shardmeter.render.planning_fleet", "shardmeter.render.prediction",
    "shardmeter.render.prediction_figures", "shardmeter.render.returns", "shardmeter.render.sensitivity", "shardmeter.render.tracing",
    "shardmeter.render.tradeoffs", "shardmeter.render.transitions", "shardmeter.render.yaml_text", "shardmeter.scenario.resolve",
    "shardmeter.study.doctor", "shardmeter.study.explain", "shardmeter.study.planning.automatic", "shardmeter.study.returns",
    "shardmeter.study.rounds", "shardmeter.study.sensitivity", "shardmeter.study.trace", "shardmeter.study.tradeoffs",
    "shardmeter.study.transitions", "shardmeter.ui.answers", "shardmeter.ui.catalogs", "shardmeter.ui.downloads", "shardmeter.ui.work",
)  # fmt: skip


def warm() -> None:
    """Import all, and answer one question of one island and one of several: rows and fits that are read when first asked are then there."""
    from shardmeter.scenario.catalog import catalog_of
    from shardmeter.ui.answers import answer
    from shardmeter.ui.state import parsed

    for name in MODULES:
        importlib.import_module(name)
    catalog = catalog_of(None)
    one = "model=llama-3.1-8b&gpus=16xH100-SXM5-80GB&tokens=1T&price=$2/gpu/h"
    for query in (one, f"{one}&islands=2&bandwidth=10 Gbps&rtt=10 ms&method=diloco"):
        answer("predict", parsed(query), catalog).to_dict()
    gc.collect()
    gc.freeze()  # what is there stays, in every worker: it is not looked through again
    gc.set_threshold(*SELDOM)


if __name__ != "__main__":
    warm()
