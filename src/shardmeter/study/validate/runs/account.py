"""Every row of a file of whole runs: predicted, skipped, excluded or an identity, each with its reason."""

from __future__ import annotations

import csv
import math
import re
from collections.abc import Sequence
from functools import cache

from shardmeter import data, families
from shardmeter.core.record import changed, record
from shardmeter.engine.constraints import violations
from shardmeter.scenario.catalog import Catalog
from shardmeter.specs.scenario import Scenario
from shardmeter.study import practice
from shardmeter.study.course.hours import HOUR
from shardmeter.study.validate.predictions import Predict, Predicted
from shardmeter.study.validate.rows import Damaged, NotModelled, Row, Unclear
from shardmeter.study.validate.runs import cells, mapping
from shardmeter.study.validate.runs.words import FROM_RATE, check_hours, check_kind, kind_of

EXCLUSIONS_FILE = "runs/exclusions.csv"
TOLERANCE = 0.005
"""Identities agree within this share."""
FASTEST = 0.70
"""Share of the dense peak beyond which 6 · parameters · tokens of a whole run is no measurement: products alone reach 0.8."""
SLOWEST = 0.02
"""Share below which the hours are a project's, not a run's."""
APART = 2.5
"""Factor by which a row's hours and its own rate may differ."""


@record
class Judged:
    """One row and what became of it: one of `skip`, `exclude`, `due` (an identity) and `steps` is set. Hours throughout."""

    row: Row
    id: str
    source: str
    tier: str
    skip: str = ""
    exclude: str = ""
    measured: float = math.nan
    due: float | None = None
    """What an identity must be."""
    steps: float | None = None
    """Accelerator-hours of the steps alone."""
    practice: str = ""
    """Its class (`practice.CLASSES`)."""
    reading: mapping.Reading | None = None
    plans: tuple[str, ...] = ()
    """What ran, one plan for each part of the run."""
    assumptions: tuple[str, ...] = ()

    @property
    def predicted(self) -> float | None:
        """Accelerator-hours with the factor of the class, fitted without the row's source."""
        return None if self.steps is None else self.steps * practice.factor(self.practice, self.source)

    @property
    def groups(self) -> tuple[str, ...]:
        """The groups of the report that the row counts in."""
        kind = () if self.reading is None else (f"kind:{self.reading.kind.name}", f"stack:{self.reading.stack}")
        return (f"tier:{self.tier}", f"class:{self.practice}", *kind)


def compare(rows: Sequence[Row], catalog: Catalog, predictor: Predict) -> tuple[Judged, ...]:
    """Judge all rows of a file; `predictor` answers scenarios."""
    return tuple(_judged(row, catalog, predictor) for row in rows)


def source_of(row: Row) -> str:
    """Who trained a family of models: the maker, and the letters that the names of its runs begin with."""
    name = cells.run_id(row) if row.text("run_id") else row.text("model")
    stem = re.match(r"[^\W\d_]+", name.casefold())
    return f"{row.text('org') or 'not stated'}: {stem[0] if stem else name}"


def _judged(row: Row, catalog: Catalog, predictor: Predict) -> Judged:
    """One row: whether its hours count, what they must be, else what is predicted."""
    one = Judged(row=row, id=cells.run_id(row), source=source_of(row), tier=row.text("tier") or "unstated")
    if why := excluded(one.id):
        return changed(one, exclude=why)
    try:
        one = changed(one, measured=_measured(row))
        due = _from_rate(row)
        return changed(one, due=due) if due is not None else _predicted(one, catalog, predictor)
    except NotModelled as limit:
        return changed(one, skip=str(limit))
    except Unclear as fault:
        return changed(one, exclude=str(fault))


def _measured(row: Row) -> float:
    """The hours, where somebody measured them. Raises Unclear."""
    hours = cells.amount(row, "accel_hours")
    if hours is None:
        raise Unclear("no accelerator-hours are stated")
    check_hours(row.text("accel_hours_kind"))
    return hours


def _predicted(one: Judged, catalog: Catalog, predictor: Predict) -> Judged:
    """The row with the hours of its steps and its class. Raises NotModelled, Unclear."""
    row = one.row
    check_kind(kind_of(row.text("kind"), row.text("model")))
    if re.search(r"offload", f"{row.text('framework')} {row.text('parallel_layout')}".lower()):
        raise NotModelled("what is kept on hosts is not stated")
    _check_consistent(row, one.measured)
    reading = mapping.read(row, catalog)
    _check_rate(reading, one.measured)
    steps, plans, said = _hours(reading, predictor)
    notes = row.text("notes") if PER_TRILLION.search(row.text("notes")) else ""
    named = practice.class_of(
        reading.gpus / reading.devices, reading.given, reading.model.family, reading.accelerator,
        f"{row.text('accel_hours_kind')} {notes}",
    )  # fmt: skip
    return changed(
        one, steps=steps, practice=named, reading=reading, plans=plans, assumptions=(*reading.assumptions, *said)
    )


PER_TRILLION = re.compile(r"GPU-?h(ours)? per T(rillion)? tokens", re.IGNORECASE)
"""Notes that say by what rate the hours were counted."""


def _from_rate(row: Row) -> float | None:
    """Hours that follow from the data and a measured rate of the same run; None where the row is no identity."""
    rate, seen = _rate(row, "tok_s_per_accel"), cells.amount(row, "data_seen")
    if rate is None or seen is None or not FROM_RATE.search(row.text("accel_hours_kind").lower()):
        return None
    return seen / rate / HOUR


def _rate(row: Row, column: str) -> float | None:
    """A rate that is only looked at beside the hours: one that cannot be read is named among the damaged cells, and missing."""
    try:
        return cells.amount(row, column)
    except Damaged:
        return None


def _check_consistent(row: Row, hours: float) -> None:
    """Refuse a row whose hours and whose own FLOP/s differ by more than `APART`. Raises Unclear."""
    rate, size, seen = (
        _rate(row, "tflops_per_accel"),
        cells.amount(row, "params_active"),
        cells.amount(row, "data_seen"),
    )
    if rate is None or size is None or seen is None or "token" not in row.text("data_unit").lower():
        return
    implied = 6.0 * size * seen / (hours * HOUR) / 1e12
    if not 1.0 / APART <= implied / rate <= APART:
        raise Unclear(f"the row contradicts itself: {rate:g} TFLOP/s stated, {implied:.0f} by its tokens and hours")


def _check_rate(reading: mapping.Reading, hours: float) -> None:
    """Refuse hours that no device could keep, or that are no run's. Raises Unclear."""
    if reading.model.family != "decoder" or not math.isfinite(reading.peak):
        return
    size = float(
        families.active_parameters(reading.model) if reading.model.experts else families.parameters(reading.model)
    )
    share = 6.0 * size * reading.tokens / (hours * HOUR) / reading.peak
    if share > FASTEST:
        raise Unclear(f"faster than the device can: {100 * share:.0f} % of its peak over the whole run")
    if share < SLOWEST:
        raise Unclear(f"the hours are a project's, not a run's: {100 * share:.1f} % of the peak")


def _hours(reading: mapping.Reading, predictor: Predict) -> tuple[float, tuple[str, ...], tuple[str, ...]]:
    """(accelerator-hours of all steps, what ran, what was taken for granted). Raises NotModelled where no plan is legal."""
    total, plans, said = 0.0, [], []
    for leg in reading.legs:
        scenario, answer = _best(leg.options, predictor)
        if not answer.fits:
            lacks = (answer.peak - answer.limit) / 2.0**30
            said.append(f"the plan that was published lacks {lacks:.0f} GiB a device by this model, and ran")
        run = scenario.run
        each = 1.0 if reading.model.family in practice.FIXED else float(run.seq_len)
        steps = reading.tokens * leg.share / (each * float(run.global_batch))
        total += steps * answer.step_time * reading.gpus / reading.devices / HOUR
        plans.append(line(scenario))
    if not (math.isfinite(total) and total > 0.0):
        raise NotModelled("the prediction is not finite: some number of the row is beyond reason")
    return total, tuple(plans), tuple(said)


def _best(options: Sequence[Scenario], predictor: Predict) -> tuple[Scenario, Predicted]:
    """The fastest legal plan that fits, by sample; else the one that lacks least memory. Where degrees are open, policies of
    recomputation are taken one after the other until one fits: it saves most of the search.

    Raises NotModelled where no plan is legal."""
    if not options:
        raise NotModelled("the published layout does not divide the accelerators")
    short: list[tuple[float, int, Scenario, Predicted]] = []
    illegal = ""
    for own in _searches(options):
        found = [
            (answer.step_time / float(one.run.global_batch), at, one, answer)
            for at, (one, answer) in enumerate(zip(own, predictor(own), strict=True))
            if answer.finite and answer.step_time > 0.0
        ]
        for _, at, one, answer in sorted(found, key=lambda each: each[:2]):
            broken = violations(one.model, one.fleet.islands[0], one.plan, one.run, one.stack)
            illegal = illegal or (broken[0].says if broken else "")
            if not broken and answer.fits:
                return one, answer
            if not broken:
                short.append((answer.peak, at, one, answer))
    if not short:
        raise NotModelled(f"the plan is not legal here: {illegal}" if illegal else "the prediction is not finite")
    return min(short, key=lambda each: each[:2])[2:]


def _searches(options: Sequence[Scenario]) -> Sequence[Sequence[Scenario]]:
    """Plans that are compared with one another: all where degrees are published, else those of one policy."""
    if len({(one.plan.tp, one.plan.pp) for one in options}) == 1:
        return (options,)
    policies = dict.fromkeys(one.plan.recompute for one in options)
    return [[one for one in options if one.plan.recompute == policy] for policy in policies]


def line(scenario: Scenario) -> str:
    """A plan in few words: `zero1 tp4 pp12 dp8 micro-batch 2 full`."""
    plan = scenario.plan
    sharded = f" shard {plan.dp_shard:g}" if plan.dp_replicate != 1.0 else ""
    degrees = "".join(f" {axis}{getattr(plan, axis):g}" for axis in ("tp", "pp", "ep") if getattr(plan, axis) != 1.0)
    chunks = f" {plan.schedule} {plan.virtual_stages}" if plan.schedule != "1f1b" else ""
    again = "" if plan.recompute == "none" else f" recompute {plan.recompute}"
    return f"{plan.sharding}{degrees} dp{plan.dp:g}{sharded}{chunks} micro-batch {plan.micro_batch:g}{again}"


@cache
def _exclusions() -> dict[str, str]:
    with data.open_text(EXCLUSIONS_FILE) as file:
        return {one["run_id"]: one["reason"] for one in csv.DictReader(file)}


def excluded(id_: str) -> str:
    """Why a row does not count, by its id; empty if it does."""
    return _exclusions().get(id_, "")
