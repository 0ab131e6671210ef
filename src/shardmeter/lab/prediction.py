"""What an experiment will take, asked of the engine and written down before it runs."""

from __future__ import annotations

import hashlib
import json
import os
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from shardmeter.engine.crossing import price
from shardmeter.lab import alone, scenarios
from shardmeter.lab.alone import Calibrated
from shardmeter.lab.records import Experiment
from shardmeter.scenario import load
from shardmeter.scenario.catalog import load_catalog
from shardmeter.specs.plan import Sync
from shardmeter.specs.round import Crossing
from shardmeter.study.islands import headers
from shardmeter.study.predict import predict

FILE = "prediction.json"


def made(
    experiment: Experiment, found: Sequence[Calibrated], folder: Path, *, shaped: bool
) -> tuple[dict[str, Any], dict[str, Any]]:
    """(scenario, prediction) of an experiment whose rows lie in `folder`. The scenario of a probe, which trains nothing, is empty.

    The prediction: `round_s`, `inner_step_s` (null where the crossing is within the step), `sync_s` (exposed in a round; null where the
    engine has it within the step), `wire_bytes_round` of all islands, `period_steps`, `alone`, `predict` (its whole JSON)
    or `probes` (`bytes`, `seconds`, `wire_bytes` of each size)."""
    if not scenarios.way(experiment.method).sync:
        return {}, _probes(experiment, shaped=shaped)
    question = scenarios.scenario(experiment, alone.rows(experiment, found), shaped=shaped)
    answer = predict(load(question, catalog=load_catalog((folder,)))).to_dict()
    sync = answer["sync"]
    within, placed = scenarios.way(experiment.method).stops, "placement" in question["plan"]
    return question, {
        "round_s": sync["round_s"],
        "inner_step_s": None if within else sync["inner_s"] / sync["period_steps"],
        "sync_s": None if placed else sync["exposed_s"],
        "wire_bytes_round": sync["wire_bytes"],
        "period_steps": sync["period_steps"],
        "alone": [_said(one) for one in found],
        "cores_wanted": alone.cores_wanted(experiment, found),
        "predict": answer,
    }


def _said(one: Calibrated) -> dict[str, Any]:
    step = one.step
    return {
        "row": one.row, "islands": list(one.islands), "step_s": step.seconds, "low_s": step.low, "high_s": step.high,
        "steps": step.steps, "busy_s": step.busy, "flop_per_s": one.rate, "timed_in": one.source,
    }  # fmt: skip


def _probes(experiment: Experiment, *, shaped: bool) -> dict[str, Any]:
    """Each all-reduce at the engine's price of it on the same network: no scenario has a run of nothing but messages.

    The round of a probe is one all-reduce of every size."""
    names = [site.name for site in experiment.sites]
    fleet = {
        "islands": [{"name": name, "gpus": f"1x{NOMINAL}"} for name in names],
        "wan": scenarios.wan(experiment, shaped=shaped),
    }
    network = load(
        {"model": scenarios.model(experiment.model), "stack": "titan-eager", "fleet": fleet, "plan": "none"}
    ).fleet.wan
    if network is None:  # pragma: no cover  (several islands have one)
        raise AssertionError
    cells = [(at,) for at in range(len(names))]
    points = []
    for size in experiment.said["sizes"]:
        message = Crossing(label="all-reduce", collective="all_reduce", size=float(size))
        crossed = price(message, network, cells, Sync())
        sent = float(np.sum(crossed.sent)) * headers(network)
        points.append({"bytes": size, "seconds": float(np.max(crossed.seconds)), "wire_bytes": sent})
    return {
        "round_s": sum(one["seconds"] for one in points), "inner_step_s": None, "sync_s": None,
        "wire_bytes_round": sum(one["wire_bytes"] for one in points),
        "period_steps": float(len(points)), "alone": [], "cores_wanted": 0.0, "probes": points,
    }  # fmt: skip


NOMINAL = "H100-SXM5-80GB"
"""Accelerator of a probe's islands: none computes."""


def store(prediction: Mapping[str, Any], folder: Path) -> str:
    """Write a prediction with its time, and wait until the disk has it; gives the digest of the file."""
    text = json.dumps({"predicted_at": time.time(), **prediction}, indent=1, allow_nan=False) + "\n"
    written(folder / FILE, text)
    return digest(folder / FILE)


def digest(path: Path) -> str:
    """SHA-256 of a file."""
    return hashlib.sha256(path.read_bytes()).hexdigest()


def written(path: Path, text: str) -> None:
    """A whole file, on the disk before this returns."""
    with path.open("w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
