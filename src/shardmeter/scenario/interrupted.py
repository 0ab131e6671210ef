"""What a scenario says of interruptions: checkpoints, failures, evaluation; with every default said."""

from __future__ import annotations

from collections.abc import Sequence

from shardmeter.core.quantity import show
from shardmeter.core.record import changed
from shardmeter.engine.course import BANDWIDTH_EACH, BUSY, DETECT, START
from shardmeter.families import parameters
from shardmeter.physics import money
from shardmeter.scenario.causes import failing
from shardmeter.scenario.interruptions import CheckpointInput
from shardmeter.scenario.layout import Parts
from shardmeter.scenario.money import StorageInput
from shardmeter.scenario.schema import RunInput
from shardmeter.scenario.stores import STATE
from shardmeter.specs import Checkpoint, Evaluation, Failures, Island, Run
from shardmeter.specs.course import AUTO

CHECKPOINT, FAILURES, EVALUATION = ("run", "checkpoint"), ("run", "failures"), ("run", "evaluation")
NONE = "none"
"""The word for a run in which nothing fails."""
FIELDS = ("checkpoint", "failures", "evaluation")


def with_kept(asked: RunInput) -> RunInput:
    """The run with a store that holds the checkpoints which are written: as many as are kept and as large, where it does not say that
    itself. `_checkpoint` takes the size from the store in turn."""
    written, stored = asked.checkpoint, asked.storage
    if written is None or (written.keep is None and stored is None):
        return asked
    stored = stored or StorageInput()
    update: dict[str, float] = {}
    if stored.checkpoints is None and written.keep is not None:
        update["checkpoints"] = written.keep
    if stored.bytes_per_parameter is None:
        update["bytes_per_parameter"] = STATE if written.bytes_per_parameter is None else written.bytes_per_parameter
    return asked.model_copy(update={"storage": stored.model_copy(update=update)})


def resolve_interruptions(parts: Parts, islands: Sequence[Island], run: Run) -> Run:
    """The run with what interrupts it, after noting what is wrong with it."""
    failures = _failures(parts)
    causes = [one for one in (failures, *(island.preemption for island in islands)) if one is not None]
    return changed(run, failures=failures, checkpoint=_checkpoint(parts, causes), evaluation=_evaluation(parts))


def _failures(parts: Parts) -> Failures | None:
    """How often something fails: a row of the catalog, or numbers."""
    asked, found = parts.run.failures, parts.found
    if asked is None or asked == NONE:
        return None
    made = failing(asked, parts.rows, FAILURES, found)
    if made is None:
        return None
    lacking = []
    if made.detect is None:
        lacking.append(f"found after {show(float(DETECT), 's')}")
    if made.restart is None:
        lacking.append(f"started in {show(float(START), 's')} and the time to read a checkpoint")
    if lacking:
        found.assumptions.append(f"run.failures: {', '.join(lacking)} (left out)")
    return made


def _checkpoint(parts: Parts, causes: Sequence[Failures]) -> Checkpoint | None:
    """When checkpoints are written; where something fails and nothing is said of them, by default."""
    asked, found = parts.run.checkpoint, parts.found
    if asked is None and not causes:
        return None
    given = asked or CheckpointInput()
    every, unit = given.every or (0.0, AUTO)
    if unit == AUTO and not causes and not found.touched(FAILURES):
        says = "how often follows from how often something fails, of which nothing is said"
        found.refuse((*CHECKPOINT, "every"), f"{AUTO}: {says}", "failures: llama-3-405b, or every: 3 h")
    if given.every is None and causes:
        how = (
            "Daly's interval" if given.blocking is not False else f"{100.0 * BUSY:g} % of the store's time at the most"
        )
        found.assumptions.append(f"run.checkpoint.every = auto (left out): {how}")
    if given.bandwidth is None:
        found.assumptions.append(
            f"run.checkpoint.bandwidth = {show(float(BANDWIDTH_EACH), 'B/s')} for each GPU (left out: what Llama 3's store sustains)"
        )
    _check_said_once(parts, given)
    each = given.bytes_per_parameter
    if each is None:
        each = None if parts.run.storage is None else parts.run.storage.bytes_per_parameter
        each, basis = (STATE, "left out") if each in (None, STATE) else (each, "run.storage")
        found.assumptions.append(f"run.checkpoint.bytes_per_parameter = {each:g} ({basis})")
    model = parts.assembled or parts.model
    size = 0.0 if model is None else float(money.checkpoint_size(parameters(model), each, 1.0))
    return Checkpoint(
        every=float(every), unit=unit, size=size, bandwidth=given.bandwidth, blocking=given.blocking is not False
    )


def _check_said_once(parts: Parts, given: CheckpointInput) -> None:
    """Refuse a store and checkpoints that contradict each other."""
    stored = parts.run.storage
    for name, other in (("keep", "checkpoints"), ("bytes_per_parameter", "bytes_per_parameter")):
        mine, its = getattr(given, name), None if stored is None else getattr(stored, other)
        if mine is not None and its is not None and mine != its:
            says = f"{mine:g}, but run.storage.{other} = {its:g}"
            parts.found.refuse(
                (*CHECKPOINT, name), says, "keep one of the two", "a state has one size, and one number is kept"
            )


def _evaluation(parts: Parts) -> Evaluation | None:
    asked, found = parts.run.evaluation, parts.found
    if asked is None:
        return None
    lacking = [name for name in ("every", "lasts") if getattr(asked, name) is None]
    for name in lacking:
        found.refuse((*EVALUATION, name), "is missing", "evaluation: {every: 1000 steps, lasts: 10 min}")
    if asked.every is None or asked.lasts is None:
        return None
    return Evaluation(every=float(asked.every[0]), unit=asked.every[1], lasts=asked.lasts)
