"""Calibration: what one kind of island takes for a step by itself, as rows with which `predict` says the same.

One number is solved for, the rate of products; everything else of the row is so fast that it does not count. So the rate holds all that
the step of a small model takes on a processor: products, attention, kernels between them, the optimizer, what workers of one island tell
each other. Leaves out: that these would scale apart with another model or batch; the row is for the very step that was timed.
"""

from __future__ import annotations

import datetime as dt
import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from shardmeter.core.errors import BadData
from shardmeter.core.record import record
from shardmeter.core.units import Count, FlopPerS, Seconds
from shardmeter.lab import reading, scenarios
from shardmeter.lab.records import Experiment
from shardmeter.scenario import load
from shardmeter.scenario.catalog import load_catalog
from shardmeter.study.calibrate import profile
from shardmeter.study.predict import predict

CLOSE = 1e-4
"""How far the prediction of the step may be from the timed one: the digits of a row leave 1e-6."""
TRIES = 40
FEWEST = 3
"""Steps without which there is no median."""
FAST = "9e+17 B/s"
"""Of memory and links: what passes there takes no time."""
ROOM = "1e+13 B"


@record
class Step:
    """The step of an island alone, as it was timed."""

    seconds: Seconds
    """Median."""
    low: Seconds
    """5th per cent, and `high` the 95th."""
    high: Seconds
    steps: Count
    busy: Seconds = 0.0
    """Time of a processor that a worker's step takes, waiting for its pace left out, the median; 0 where it was not logged."""


@record
class Calibrated:
    """One kind of island: its row, and what the row rests on."""

    row: str
    """Name of the accelerator in the catalog of the experiment."""
    islands: tuple[str, ...]
    step: Step
    rate: FlopPerS
    source: str
    """The experiment whose calibrating run it was."""


def timed(folder: Path) -> Step:
    """The step of a calibrating run: of all its workers, the first step of each left out. Raises BadData where too few were logged."""
    found, busy = list[float](), list[float]()
    for events in reading.logs(folder).values():
        found += reading.numbers(reading.of(events, "step"), "seconds")[1:]
        busy += reading.numbers(reading.of(events, "step"), "busy")[1:]
    if len(found) < FEWEST:
        raise BadData(f"{folder}: {len(found)} steps of the island alone were logged, {FEWEST} are needed")
    ordered = sorted(found)
    last = len(ordered) - 1
    return Step(
        seconds=statistics.median(ordered),
        low=ordered[int(0.05 * last)],
        high=ordered[round(0.95 * last)],
        steps=float(len(ordered)),
        busy=statistics.median(busy) if busy else 0.0,
    )


def cores_wanted(experiment: Experiment, found: Sequence[Calibrated]) -> float:
    """Cores that all workers of an experiment would keep busy if none slowed another, as busy as each was alone.

    Leaves out: the forwarder and the kernel's TCP."""
    islands = sum(len(one.islands) * float(one.step.busy) / float(one.step.seconds) for one in found)
    return experiment.workers / len(experiment.sites) * islands


def kinds(experiment: Experiment) -> tuple[tuple[int, ...], ...]:
    """Islands that take the same step: their places in `sites`, kind by kind."""
    found: dict[Any, list[int]] = {}
    for at, site in enumerate(experiment.sites):
        found.setdefault((site.workers, site.pace), []).append(at)
    return tuple(map(tuple, found.values()))


def key(experiment: Experiment, at: int) -> tuple[Any, ...]:
    """What sets the step of an island alone: experiments of equal keys share one calibrating run."""
    site = experiment.sites[at]
    averaged = not scenarios.way(experiment.method).stops and experiment.method not in ("block_train", "soma")
    inner = "averaged" if averaged else experiment.method
    words = ("blocks", "perturbations", "together", "inner")
    told = tuple((word, experiment.said[word]) for word in words if word in experiment.said)
    return (inner, experiment.model, experiment.batch, experiment.micro_batches, site.workers, site.pace, told)


def solved(
    question: Mapping[str, Any], row: str, workers: int, seconds: float, folder: Path, *, hides: bool = True
) -> float:
    """The rate of products with which `predict` says `seconds` of a question of one island; its row is left in the catalog at `folder`.

    Found by evaluating the engine, to `CLOSE`. Raises BadData where no rate gives it."""
    rate = 1e10
    for _ in range(TRIES):
        put(folder, row, workers, rate, hides=hides)
        said = said_step(question, folder)
        if abs(said / seconds - 1.0) < CLOSE:
            return rate
        rate = min(max(rate * said / seconds, 1e6), 1e20)
    raise BadData(
        f"{row}: no rate of products gives the {seconds:.4g} s that a step took alone; with {rate:.3g} FLOP/s it is {said:.4g} s"
    )


def said_step(question: Mapping[str, Any], folder: Path) -> float:
    """The inner step of the first island, as the engine says it."""
    answer = predict(load(question, catalog=load_catalog((folder,))))
    return float(answer.whole.parts[0].estimate.step_time)


def put(folder: Path, row: str, workers: int, rate: FlopPerS, *, hides: bool = True) -> None:
    """Write the row of an island's workers, and that of their software, into a catalog; `hides`: whether messages pass behind what a worker
    computes, as those of FSDP do not on processors, which have no streams."""
    today = dt.datetime.now(tz=dt.UTC).date().isoformat()
    source = "shardmeter lab: an island timed alone"
    profile.put(folder, "accelerators", {
        "name": row, "arch": row, "memory": ROOM, "memory_bandwidth": FAST, "memory_share": "1",
        "peak_fp32": f"{rate:.8g} FLOP/s", "matmul_share_fp32": "1", "matmul_share_basis": "measured", "attention_half": "0",
        "scale_up_bandwidth": FAST, "scale_up_share": "1", "scale_up_latency": "0 s", "scale_up_step": "0 s",
        "scale_up_domain": str(workers), "node_size": str(workers), "dense": "yes", "source": source, "retrieved": today,
    })  # fmt: skip
    profile.put(folder, "stacks", {
        "name": scenarios.STACK, "title": "eager PyTorch over gloo, as the lab runs it", "framework": "PyTorch", "year": today[:4],
        "attention": "fa2", "kernels": "eager", "loss": "torch", "stage_cut": "even", "reduce_dtype": "fp32", "gather_dtype": "fp32",
        "gradient_dtype": "fp32", "gradient_overlap": "yes" if hides else "no", "gather_overlap": "yes" if hides else "no", "pipeline_overlap": "yes", "bucket": f"{scenarios.BUCKET:.9g} B",
        "collectives": "ring", "gemm_factor": "1", "traffic_factor": "1", "launch_overhead": "0 s", "nic_factor": "1",
        "attention_factor": "1", "scale_up_factor": "1", "contention": "0", "step_overhead": "0 s", "context": "300 MB",
        "fragmentation": "0", "fitted_on": "the rate of products alone", "fitted_date": today, "source": source,
    })  # fmt: skip


def calibrated(
    experiment: Experiment, steps: Sequence[tuple[tuple[int, ...], Step, str]], folder: Path
) -> tuple[Calibrated, ...]:
    """The rows of an experiment's islands, written to the catalog at `folder`; `steps`: (places of a kind, its step alone, the experiment
    that timed it). Raises as `solved`."""
    made = []
    for number, (places, step, source) in enumerate(steps, 1):
        row, workers = f"lab-{number}", experiment.sites[places[0]].workers
        question, hides = scenarios.alone(experiment, places[0], row), not scenarios.shards(experiment)
        rate = solved(question, row, workers, float(step.seconds), folder, hides=hides)
        islands = tuple(experiment.sites[at].name for at in places)
        made.append(Calibrated(row=row, islands=islands, step=step, rate=rate, source=source))
    return tuple(made)


def rows(experiment: Experiment, found: Sequence[Calibrated]) -> list[str]:
    """The row of every island, in order."""
    of_island = {name: one.row for one in found for name in one.islands}
    return [of_island[site.name] for site in experiment.sites]
