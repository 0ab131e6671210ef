"""Published scaling curves among the measured runs: series of one source in which nothing changes but the number of accelerators.

The rows are those that the stacks were fitted on; beside each prediction stands that of a fit that had not seen their source
(`shipped.left_out`). Rows become scenarios as everywhere in this room: a series is found among the scenarios, not among the texts."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from shardmeter.core.record import changed, record
from shardmeter.scenario.catalog import Catalog, load_catalog
from shardmeter.specs import Scenario
from shardmeter.study.planning.scenarios import told
from shardmeter.study.validate import predictions, score, shipped
from shardmeter.study.validate.metrics import STEP_TIME, Score
from shardmeter.study.validate.report import once
from shardmeter.study.validate.resolve import map_rows

SOURCES = {"ultrascale": "nanotron/ultrascale-playbook", "foundry": "mosaicml/llm-foundry"}
"""Sources that published scaling curves."""
LEAST = {"ultrascale": 4, "foundry": 3}
"""Sizes of a series at least: 8, 16, 32 and 64 accelerators of the one; the other has few, of many models."""


@record
class Measured:
    """One run of a series, and what is predicted for it: seconds of a step."""

    id: str
    gpus: float
    tokens: float
    """Of a step."""
    measured: float
    predicted: float
    left_out: float | None
    """Predicted by a fit that had not seen the source."""

    low: float | None
    high: float | None
    """The 90 % interval around the prediction."""

    @property
    def error(self) -> float:
        """Of the predicted step, relative; above zero where it is too slow."""
        return self.predicted / self.measured - 1.0

    @property
    def error_left_out(self) -> float | None:
        """The same of the fit that had not seen the source."""
        return None if self.left_out is None else self.left_out / self.measured - 1.0


@record
class Series:
    """Runs that differ in the number of accelerators alone, ascending: `strong` at one global batch, `weak` at one batch an accelerator."""

    source: str
    scenario: Scenario
    """Of the smallest run."""
    kind: str
    runs: tuple[Measured, ...]

    @property
    def title(self) -> str:
        """`llama-1B, ddp, 8 … 64 × H100-SXM5-80GB`: the model, the plan without its data parallelism, the sizes."""
        plan = self.scenario.plan
        sizes = f"{self.runs[0].gpus:g} … {self.runs[-1].gpus:g} × {self.scenario.fleet.islands[0].accelerator.name}"
        laid = ",".join(word for word in told(plan, self.scenario.stack).split(",") if not word.startswith("dp_"))
        return f"{self.scenario.model.name}, {laid}, {sizes}"

    @property
    def is_data_parallel(self) -> bool:
        """Whether nothing but the data is shared out."""
        plan = self.scenario.plan
        return float(plan.tp) == float(plan.pp) == float(plan.cp) == 1.0

    def efficiency(self, seconds: str) -> list[float]:
        """Tokens a second and accelerator of every run over those of the smallest; `seconds`: measured, predicted or left_out."""
        rates = [run.tokens / run.gpus / getattr(run, seconds) for run in self.runs]
        return [rate / rates[0] for rate in rates]

    def lost(self, seconds: str) -> float:
        """Share of the efficiency that is lost from the smallest run to the largest."""
        return 1.0 - self.efficiency(seconds)[-1]


def curves(source: str, catalog: Catalog | None = None) -> tuple[Series, ...]:
    """Every series of a source (a key of SOURCES) with so many sizes (LEAST) or more, data parallelism alone first, then as the rows stand."""
    key = SOURCES[source]
    rows = [row for row in shipped.measured().rows if row.text("source_key") == key]
    mapped, _ = once(rows, map_rows(rows, catalog or load_catalog()))
    compared = score.compare(mapped, predictions.predict)
    scores = {one.id: one for one in compared.scores if one.quantity == STEP_TIME}
    groups: dict[Any, list[tuple[Scenario, Score]]] = {}
    for row in compared.rows:
        if row.scenario is not None and row.id in scores:
            for kind, share in _batches(row.scenario):
                groups.setdefault((kind, share, _else(row.scenario)), []).append((row.scenario, scores[row.id]))
    made = [_series(source, kind, runs) for (kind, _, _), runs in groups.items()]
    kept = [
        one for one in made if len(one.runs) >= LEAST[source] and len({run.gpus for run in one.runs}) == len(one.runs)
    ]
    return tuple(sorted(kept, key=lambda one: not one.is_data_parallel))


def _batches(scenario: Scenario) -> Iterator[tuple[str, float]]:
    """What a run has in common with others of a strong, and of a weak series."""
    batch = float(scenario.run.global_batch)
    yield "strong", batch
    yield "weak", batch / float(scenario.fleet.islands[0].gpus)


def _else(scenario: Scenario) -> str:
    """Everything but the number of accelerators and the batch."""
    island = scenario.fleet.islands[0]
    plan = changed(scenario.plan, dp_shard=1.0, dp_replicate=1.0)
    run = changed(scenario.run, global_batch=1.0)
    return repr((scenario.model, scenario.stack, island.accelerator, plan, run))


def _series(source: str, kind: str, runs: Sequence[tuple[Scenario, Score]]) -> Series:
    ordered = sorted(runs, key=lambda one: float(one[0].fleet.islands[0].gpus))
    return Series(
        source=source,
        kind=kind,
        scenario=ordered[0][0],
        runs=tuple(
            Measured(
                id=one.id, gpus=float(scenario.fleet.islands[0].gpus), tokens=float(scenario.run.global_batch * scenario.run.seq_len),
                measured=one.measured, predicted=one.predicted, left_out=one.loso, low=one.low,
                high=one.high,
            )
            for scenario, one in ordered
        ),
    )  # fmt: skip
