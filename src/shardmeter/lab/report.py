"""Measured beside predicted: the report of a folder of results, made here or elsewhere.

Errors are predicted over measured − 1. The totals count what was scored: no time of plain loopback, no run that failed. Each prediction
is held to have been written before its run (its own time, its digest when the run began); where it was not, the report says so and the
experiment does not count.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from shardmeter import __version__
from shardmeter.core.errors import BadData
from shardmeter.core.files import file_name
from shardmeter.core.record import record
from shardmeter.data import DATA_DATE
from shardmeter.lab import folder, kept, prediction, reading, scenarios, speeds, study
from shardmeter.lab.machine import crowded
from shardmeter.lab.measured import Measured, Spread, measured
from shardmeter.lab.reading import Logs
from shardmeter.lab.records import Experiment, Line, Study
from shardmeter.lab.running import DONE, FAILED, STOPPED

ASSEMBLED, REFERENCE = "assembled", "reference"
"""What evaluations of a model put together of parts, and of one trained whole, are called."""
PARTS = ("block ", "expert ")
"""How evaluations of single parts begin, which a model trained whole is not compared with."""
BARRIER = "barrier"
"""Pace of methods whose messages are alike on all workers."""
STEADY, NEAR = 1.25, 0.1
"""How far above its 5th per cent the 95th of steps alone may be, and how far a step of the run from that alone, before the page warns."""
NOT_RUN, BROKEN_OFF = "not run", "broken off"
PLAIN = "plain loopback: lines are not shaped, so that times and bytes on the wire are not scored; losses and bytes of messages are"


@record
class Report:
    """The answer of `lab report`: its JSON, and what a trace is drawn from."""

    data: Mapping[str, Any]
    study: Study
    logs: Mapping[str, Logs]
    """By experiment."""

    def to_dict(self) -> dict[str, Any]:
        """The JSON."""
        return dict(self.data)

    @property
    def failed(self) -> tuple[str, ...]:
        """Experiments that did not do what was asked of them."""
        return tuple(
            one["name"] for one in self.data["experiments"] if not one["as_asked"] and one["status"] != NOT_RUN
        )


def report(place: Path) -> Report:
    """Read a folder of results. Raises BadData for one that is none, or damaged, BadScenario for its study."""
    if not (place / folder.STUDY).is_file() or not (place / folder.MACHINE).is_file():
        raise BadData(
            f"{file_name(place)}: no folder of `shardmeter lab run` (needs {folder.STUDY} and {folder.MACHINE})"
        )
    asked = study.read(place / folder.STUDY)
    machine = folder.read(place / folder.MACHINE, "description of a machine", kept.MACHINE) or {}
    logs = {one.name: reading.logs(place / one.name / folder.RUN) for one in asked.experiments}
    entries = [_entry(one, place / one.name, logs[one.name]) for one in asked.experiments]
    warnings = [f"{one['name']}: {says}" for one in entries for says in (*one["complaints"], *_unsteady(one, machine))]
    if machine.get("emulation") == scenarios.LOOPBACK:
        warnings.insert(0, PLAIN)
    return Report(
        data={
            "version": __version__, "data_date": DATA_DATE, "study": asked.name, "seed": asked.seed, "machine": machine,
            "experiments": entries, "totals": _totals(entries), "contests": speeds.contests(entries),
            "variance": _variance(entries), "assembled": _assembled(entries),
            "assumptions": list(ASSUMED), "warnings": warnings,
        },
        study=asked, logs=logs,
    )  # fmt: skip


ASSUMED = (
    "the rate of products is that with which the engine says the step that an island took alone, before the run",
    "a round's time is the median over the rounds that count, each the mean over workers",
    "the round that warms up, and rounds from a fault on, are left out",
    "bytes of a round are those that the interfaces of all islands sent in it, headers and acknowledgements included, the mean over rounds",
    "a measured round has as many tokens as the predicted one",
    "an error is predicted over measured − 1",
)


def _entry(one: Experiment, place: Path, logs: Logs) -> dict[str, Any]:
    """What came of one experiment."""
    said = folder.read(place / prediction.FILE, "prediction", kept.PREDICTION)
    outcome = folder.read(place / folder.OUTCOME, "outcome of a run", kept.OUTCOME)
    found = measured(one, logs)
    status = NOT_RUN if outcome is None else str(outcome.get("status", FAILED))
    if status not in (DONE, STOPPED, FAILED, NOT_RUN):
        status = BROKEN_OFF
    complaints = _complaints(place, said, outcome, status)
    as_asked = status == DONE or (status == STOPPED and one.fault is not None)
    emulation = str((outcome or {}).get("emulation") or "")
    shaped = emulation not in ("", scenarios.LOOPBACK)
    counts = as_asked and not complaints and said is not None
    spent = _compared(_of_round(said, "round_s", one), found.round, scored=counts and shaped)
    return {
        **_asked(one), "status": status, "as_asked": as_asked, "says": str((outcome or {}).get("says") or ""), "emulation": emulation,
        "predicted_first": said is not None and outcome is not None and not complaints, "complaints": complaints,
        "scored": counts, "round": spent, "tokens_per_s": speeds.tokens_per_s(said, spent, scored=counts and shaped),
        "inner_step": _compared(_number(said, "inner_step_s"), found.step, scored=counts and shaped),
        "sync": _compared(_of_round(said, "sync_s", one), found.sync, scored=counts and shaped),
        "wire_bytes": {
            **_compared(_of_round(said, "wire_bytes_round", one), found.wire, scored=counts and shaped),
        },
        "payload_bytes": _compared(_payload(said), found.payload, scored=counts),
        "steps_more": _steps_more(said, one, found), "alone": (said or {}).get("alone") or [],
        "cores_wanted": _number(said, "cores_wanted"), "probes": _probes(said, found, scored=counts and shaped),
        "loss": _loss(found), "evaluations": [{"what": what, "rank": rank, "loss": loss} for what, rank, loss in found.others],
        "figures": [dict(one) for one in found.figures], "peak_memory_bytes": found.peak_memory,
        "lost": [dict(one) for one in found.lost], "stopped": [dict(one) for one in found.stopped],
        "survivors": (outcome or {}).get("survivors") or [], "traffic": (outcome or {}).get("traffic"),
    }  # fmt: skip


def _unsteady(one: Mapping[str, Any], machine: Mapping[str, Any]) -> list[str]:
    """What else is to be known: workers that want more than the cores there are, a training that diverged, steps alone that spread, steps of
    the run that took longer than alone."""
    full = crowded(one["cores_wanted"] or 0.0, _number(machine, "cores") or 0.0)
    found = [full] if full else []
    for kind in one["alone"]:
        if kind["high_s"] > STEADY * kind["low_s"] > 0.0 and kind.get("timed_in") == one["name"]:
            spread = kind["high_s"] / kind["low_s"]
            found.append(
                f"steps of island {''.join(kind['islands'][:1])} by itself spread by {spread:.2f} ×: something else uses this machine"
            )
    if one["loss"]["diverged"]:
        found.append("a loss was no finite number: the training diverged")
    if one["steps_more"]:
        found.append(
            f"a round had {one['steps_more']:+.3g} of the steps that it was predicted with: some were begun again"
        )
    error = one["inner_step"]["error"]
    if error is not None and abs(error) > NEAR and error > -1.0:
        who = "islands slow each other, or something else does"
        if one["cores_wanted"]:
            who = "islands slow each other" if full else "something else uses this machine"
        found.append(f"a step took {1.0 / (1.0 + error):.2f} × as long in the run as alone: {who}")
    return found


def _asked(one: Experiment) -> dict[str, Any]:
    """What was asked, as the JSON has it."""
    fault = one.fault
    lines = [_line(one.line), *({"between": list(pair), **_line(line)} for pair, line in one.lines)]
    return {
        "name": one.name, "method": one.method, "islands": len(one.sites), "workers": one.workers,
        "paces_flop_per_s": [site.pace for site in one.sites], "lines": lines,
        "model": {"name": one.model.name, "kind": one.model.kind, "layers": one.model.layers, "hidden": one.model.hidden},
        "settings": {name: list(value) if isinstance(value, tuple) else value for name, value in one.settings},
        "fault": None if fault is None else {"kind": fault.kind, "between": list(fault.between), "after_round": fault.after_round},
    }  # fmt: skip


def _line(line: Line) -> dict[str, float]:
    numbers = {
        "bandwidth_B_per_s": line.bandwidth,
        "rtt_s": line.rtt,
        "jitter_s": line.jitter,
        "loss": line.loss,
        "mtu_B": line.mtu,
    }
    return {name: float(value) for name, value in numbers.items()}


def _complaints(
    place: Path, said: Mapping[str, Any] | None, outcome: Mapping[str, Any] | None, status: str
) -> list[str]:
    """Why a prediction cannot be taken for one, and runs without an end."""
    if outcome is None:
        return []
    found = []
    if status == BROKEN_OFF:
        found.append("the run has no end: whoever ran it was ended")
    if said is None:
        return [*found, *(["there is no prediction"] if status != FAILED else [])]
    when, started = _number(said, "predicted_at"), _number(outcome, "started_at")
    if started is None:
        return found if status in (FAILED, BROKEN_OFF) else [*found, "nobody wrote down when the run began"]
    if when is None or when >= started:
        found.append("the prediction is no older than the run")
    if prediction.digest(place / prediction.FILE) != outcome.get("prediction_sha256"):
        found.append("the prediction is not the one that was there when the run began")
    return found


def _number(data: Mapping[str, Any] | None, name: str) -> float | None:
    value = (data or {}).get(name)
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None


def _of_round(said: Mapping[str, Any] | None, name: str, one: Experiment) -> float | None:
    """A number of a predicted round, as an experiment has rounds: of one step where it meets in every one. Nothing measured is in it."""
    value, period = _number(said, name), _number(said, "period_steps")
    if value is None or not period or not scenarios.way(one.method).by_step:
        return value
    return value / period


def _steps_more(said: Mapping[str, Any] | None, one: Experiment, found: Measured) -> float | None:
    """Steps of a logged round above those of a predicted one; None where nothing tells."""
    asked = _of_round(said, "period_steps", one)
    if not asked or not found.steps or (said or {}).get("probes") is not None:
        return None
    return found.steps - asked


def _payload(said: Mapping[str, Any] | None) -> float | None:
    """Bytes of messages that a worker holds in a round, as the engine has them; None where it prices them inside the step."""
    sync = ((said or {}).get("predict") or {}).get("sync")
    if not sync or (said or {}).get("sync_s") is None or sync["pace"] != BARRIER:
        return None
    return sum(one["bytes"] * one["messages"] for one in sync["crossings"]) or None


def _compared(predicted: float | None, found: Spread | None, *, scored: bool) -> dict[str, Any]:
    """Predicted and measured side by side; `error` only where it counts."""
    error = None
    if scored and predicted is not None and found is not None and found.middle > 0.0:
        error = predicted / found.middle - 1.0
    return {
        "predicted": predicted, "measured": None if found is None else found.middle, "low": None if found is None else found.low,
        "high": None if found is None else found.high, "rounds": None if found is None else found.rounds, "error": error,
    }  # fmt: skip


def _probes(said: Mapping[str, Any] | None, found: Measured, *, scored: bool) -> list[dict[str, Any]]:
    """Every size of a probe."""
    priced = {float(one["bytes"]): one for one in (said or {}).get("probes") or ()}
    made = []
    for point in found.points:
        one = priced.get(float(point.size), {})
        made.append({
            "bytes": point.size, "after_a_pause_s": point.paused,
            "seconds": _compared(_number(one, "seconds"), point.seconds, scored=scored),
            "wire_bytes": _compared(_number(one, "wire_bytes"), point.wire, scored=scored),
        })  # fmt: skip
    return made


def _loss(found: Measured) -> dict[str, Any]:
    falls = (
        False if found.diverged else None if found.before is None or found.after is None else found.after < found.before
    )
    return {
        "before": found.before,
        "after": found.after,
        "basis": found.basis,
        "falls": falls,
        "diverged": found.diverged,
        "curve": [list(one) for one in found.curve],
    }


def _totals(entries: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Over all experiments."""
    trained = [one for one in entries if one["method"] != "all_reduce"]
    told = [one for one in trained if one["loss"]["falls"] is not None]
    points = [point for one in entries for point in one["probes"]]
    return {
        "experiments": len(entries),
        **{name: sum(one["status"] == status for one in entries) for name, status in
           (("done", DONE), ("stopped", STOPPED), ("failed", FAILED), ("broken_off", BROKEN_OFF), ("not_run", NOT_RUN))},
        "as_asked": sum(one["as_asked"] for one in entries),
        "predicted_first": sum(one["predicted_first"] for one in entries),
        "round": _errors(one["round"]["error"] for one in trained),
        "inner_step": _errors(one["inner_step"]["error"] for one in trained),
        "sync": _errors(one["sync"]["error"] for one in trained),
        "wire_bytes": _errors([*(one["wire_bytes"]["error"] for one in trained), *(point["wire_bytes"]["error"] for point in points)]),
        "payload_bytes": _errors(one["payload_bytes"]["error"] for one in trained),
        "transport": _errors(point["seconds"]["error"] for point in points),
        "loss": {"told": len(told), "falls": sum(one["loss"]["falls"] for one in told),
                 "not_falling": [one["name"] for one in told if not one["loss"]["falls"]]},
    }  # fmt: skip


def _errors(found: Iterable[float | None]) -> dict[str, Any]:
    """Median and worst of absolute errors, their number, and the median with its sign."""
    known = [one for one in found if one is not None]
    if not known:
        return {"n": 0, "median_abs_error": None, "worst_abs_error": None, "bias": None}
    sizes = [abs(one) for one in known]
    return {
        "n": len(known),
        "median_abs_error": statistics.median(sizes),
        "worst_abs_error": max(sizes),
        "bias": statistics.median(known),
    }


def _variance(entries: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Ratios of variances that workers measured, beside what they should be."""
    return [
        {"experiment": one["name"], **{key: value for key, value in figure.items() if key not in ("event", "t", "rank")}}
        for one in entries
        for figure in one["figures"]
        if str(figure.get("name", "")).startswith("variance")
    ]  # fmt: skip


def _assembled(entries: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Evaluations beside those of text held out, of every experiment that has a reference."""
    made = []
    for one in entries:
        losses = {evaluation["what"]: evaluation["loss"] for evaluation in one["evaluations"]}
        references = {what: loss for what, loss in losses.items() if REFERENCE in what}
        for what, loss in losses.items():
            for reference, other in references.items():
                if what not in references and not what.startswith(PARTS):
                    row = {
                        "experiment": one["name"],
                        "what": what,
                        "loss": loss,
                        "reference": reference,
                        "reference_loss": other,
                    }
                    made.append({**row, "difference": loss - other})
    return made
