"""The Python face of the studies: a scenario may be a record, a mapping, a file or keyword options."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from shardmeter.core.errors import BadScenario, Violation, kind_of, shown
from shardmeter.core.record import changed
from shardmeter.specs import Choices, Scenario

if TYPE_CHECKING:
    from shardmeter.scenario.catalog import Catalog
    from shardmeter.scenario.parts import Rows as CatalogRows
    from shardmeter.scenario.ranges import Over
    from shardmeter.scenario.read import Document
    from shardmeter.study.audit import Audit
    from shardmeter.study.diff import Difference
    from shardmeter.study.doctor import Diagnosis
    from shardmeter.study.explain import Explanation
    from shardmeter.study.front.front import Front
    from shardmeter.study.infer import Inference
    from shardmeter.study.planning.fleet_plans import FleetPlans
    from shardmeter.study.planning.plans import Plans
    from shardmeter.study.predict import Prediction
    from shardmeter.study.returns import Returns
    from shardmeter.study.scale_across import ScaleAcross
    from shardmeter.study.sensitivity import Sensitivity
    from shardmeter.study.solve import Solution
    from shardmeter.study.sweep import Sweep
    from shardmeter.study.tradeoffs import Tradeoffs
    from shardmeter.study.transitions import Transitions

Source: TypeAlias = Scenario | Mapping[str, Any] | str | Path | None
Overrides: TypeAlias = Iterable[str] | Mapping[str, Any]
Rows: TypeAlias = "Catalog | str | PathLike[str] | Sequence[str | PathLike[str]] | None"


def predict(scenario: Source = None, *, overrides: Overrides = (), catalog: Rows = None, **options: Any) -> Prediction:
    """Predict a scenario. `options` are those of the command: model, gpus, instance, fabric, price, prices, plan, stack, seq, micro_batch,
    global_batch, tokens.

    `shardmeter.predict("run.yaml")` or `shardmeter.predict(model="llama-3.1-8b", gpus="64xH100-SXM5-80GB")`. `overrides` are
    texts (`plan.tp=8`) or values by path (`{"plan.tp": 8}`); `catalog` is a catalog, or a folder of rows, or several.
    """
    from shardmeter.study.predict import predict as answer_to

    return answer_to(resolved(scenario, overrides, catalog, options))


def explain(scenario: Source = None, *, overrides: Overrides = (), catalog: Rows = None, **options: Any) -> Explanation:
    """The same prediction with every formula call recorded."""
    from shardmeter.study.explain import explain as explanation_of

    return explanation_of(resolved(scenario, overrides, catalog, options))


def plan(
    scenario: Source = None,
    *,
    objective: str | Sequence[str] = (),
    top: int = 10,
    processes: int | None = 1,
    overrides: Overrides = (),
    catalog: Rows = None,
    **options: Any,
) -> Plans | FleetPlans:
    """The best plans for what a scenario leaves open; the rest is as in `predict`.

    `shardmeter.plan(model="llama-3.1-8b", gpus="64xH100-SXM5-80GB").best.scenario`; `overrides` pin (`plan.tp=8`) or narrow
    (`plan.tp=1,2,4`). `processes` beyond 1 need a script that starts under `if __name__ == "__main__":`. None fits: `best` is None."""
    from shardmeter.scenario import load
    from shardmeter.study.planning.fleet_plans import plan_fleet
    from shardmeter.study.planning.plans import plan as plans_of

    words = _asked(objective, top, processes)
    if isinstance(scenario, Scenario):
        _alone(overrides, options)
        made = scenario if scenario.choices is not None else alone(_checked(scenario))
    else:
        made = load(scenario, overrides=overrides, catalog=catalog, options=dict(options), planning=True)
    if made.choices is not None and made.choices.joint is not None:
        return plan_fleet(made, objectives=words, top=top, processes=processes)
    return plans_of(made, objectives=words, top=top, processes=processes)


def front(
    scenario: Mapping[str, Any] | str | Path | None = None,
    *,
    deadline: str | None = None,
    budget: str | None = None,
    overrides: Overrides = (),
    catalog: Rows = None,
    **options: Any,
) -> Front:
    """The fleets out of a scenario's islands that no other one beats in both wall clock and dollars; the rest is as in `predict`.

    `shardmeter.front("clouds.yaml", deadline="30 d").points[0].scenario`, the fastest first; every one is a scenario that `predict` answers
    with the same figures. Raises BadScenario where the run has no length, or a price is not known."""
    from shardmeter.study.front.front import front as answer_to

    said = {"run.deadline": deadline, "run.budget": budget}
    limits = tuple(f"{name}={value}" for name, value in said.items() if value is not None)
    document, rows = _opened(scenario, overrides, catalog, options)
    if limits:
        from shardmeter.scenario.override import apply_overrides

        apply_overrides(document, limits)
    return answer_to(document, rows)


def scale_across(
    scenario: Mapping[str, Any] | str | Path | None = None,
    over: Over = (),
    *,
    buildings: int | None = None,
    overrides: Overrides = (),
    catalog: Rows = None,
    **options: Any,
) -> ScaleAcross:
    """Placement, schedule and network of a scenario's buildings chosen together, beside the production default; the rest is as in `predict`.

    `shardmeter.scale_across("run.yaml", {"distance": ["10 km", "400 km"]}).to_dict()["cases"][0]`; axes of `over` are oversubscription,
    distance, buildings, gpus and model; `buildings` divides a fleet of one island. Raises BadScenario, UnknownName."""
    from shardmeter.study.scale_across import scale_across as found
    from shardmeter.study.scale_across.cases import asked, lined
    from shardmeter.study.scale_across.question import question

    document, rows = _opened(scenario, overrides, catalog, options)
    said = buildings is None or lined(document)
    document = asked(document, buildings)
    return found(document, rows, question(document, rows, over, said=said))


def infer(
    scenario: Source = None,
    *,
    how: str = "pipeline",
    prompt: float = 512,
    output: float = 256,
    batch: float = 1,
    in_flight: float | None = None,
    experts: int = 0,
    top_k: int = 0,
    blocks: int = 0,
    traversals: float = 1,
    together: bool = False,
    eager: bool = False,
    compare: bool = False,
    crossover: bool = False,
    overrides: Overrides = (),
    catalog: Rows = None,
    **options: Any,
) -> Inference:
    """A trained model served over the islands of a scenario; the rest is as in `predict`.

    `shardmeter.infer("run.yaml", how="block_train", output=1024).served.output_time`; what the numbers mean is said by
    `specs.serving.Serving`, 0 = left out. Raises BadScenario with everything that is wrong, UnknownName."""
    from shardmeter.specs.serving import Serving
    from shardmeter.study.infer import infer as answer_to

    asked = Serving(
        how=how, prompt=prompt, output=output, batch=batch, in_flight=in_flight, experts=experts, top_k=top_k, blocks=blocks,
        traversals=traversals, together=together,
    )  # fmt: skip
    made = resolved(scenario, overrides, catalog, options)
    return answer_to(made, asked, compare=compare, crossover=crossover, eager=eager)


MOST_PROCESSES = 256


def _asked(objective: object, top: object, processes: object) -> tuple[str, ...]:
    """The words of an objective. Raises BadScenario with everything that is wrong with what a planner is asked for."""
    from shardmeter.study.planning.plans import MOST_TOP

    found: list[Violation] = []
    for name, value, most in (("top", top, MOST_TOP), ("processes", processes, MOST_PROCESSES)):
        whole = hasattr(value, "__index__") and not isinstance(value, bool)
        if not (whole and 1 <= value <= most) and not (name == "processes" and value is None):  # type: ignore[operator]
            out = f"a whole number from 1 to {most:,}" + (", or None" if name == "processes" else "")
            found.append(Violation(field=name, says=f"{shown(value)} is no number of {NUMBERED[name]}", way_out=out))
    given = [objective] if isinstance(objective, str) else objective
    if isinstance(given, Sequence) and all(isinstance(word, str) for word in given):
        words = [word.strip() for one in given for word in one.split(",")]
    else:
        out = "a word such as 'time', or a list of words"
        found.append(Violation(field="objective", says=f"{shown(objective)} is no objective", way_out=out))
    if found:
        raise BadScenario(f"plan: {len(found)} problem{'s' if len(found) > 1 else ''}", found)
    return tuple(words)


NUMBERED = {"top": "plans to list", "processes": "processes"}


def diff(
    a: Scenario | Mapping[str, Any] | str | Path,
    b: Scenario | Mapping[str, Any] | str | Path | None = None,
    *,
    overrides: Overrides = (),
    overrides_b: Overrides = (),
    catalog: Rows = None,
) -> Difference:
    """What two scenarios say differently and what that does to every figure, term by term; `b` left out: `a` with `overrides_b`.

    `shardmeter.diff("run.yaml", overrides_b=["plan.tp=4"]).to_dict()["says"]`; `overrides` are of both. Raises BadScenario with
    everything that is wrong with either, UnknownName."""
    from shardmeter.study.diff import difference, sides
    from shardmeter.study.planning.automatic import settled

    return difference(*sides(a, a if b is None else b, overrides, overrides_b, catalog=catalog, settle=settled))


def audit(
    scenario: Source = None,
    claims: Mapping[str, Any] | Iterable[str] = (),
    *,
    convention: str = "mfu",
    overrides: Overrides = (),
    catalog: Rows = None,
    **options: Any,
) -> Audit:
    """Claims about a run checked against each other and what is named of it; the rest is as in `predict`, and may be left out.

    `shardmeter.audit(claims={"mfu": "104 %", "accelerator": "H100-SXM5-80GB"}).verdict`; a claim that is made twice is a list.
    Raises BadScenario with every claim that cannot be read, UnknownName."""
    from shardmeter.study.audit import audit as answer_to
    from shardmeter.study.planning.automatic import settled

    _worded("convention", convention, "mfu")
    if not isinstance(overrides, Mapping):
        overrides = _texts("overrides", overrides, "plan.tp=8")
    if isinstance(scenario, Scenario):
        _alone(overrides, options)

    def settle(made: Scenario) -> Scenario:
        return made if made.choices is None else settled(made)

    return answer_to(
        scenario, claims, convention=convention, overrides=overrides, catalog=catalog, options=options, settle=settle
    )


def sensitivity(
    scenario: Source = None,
    of: str = "tokens_per_s",
    *,
    what_if: Sequence[str] = (),
    beside: Sequence[str] = (),
    pairs: int = 0,
    step: float = 0.01,
    overrides: Overrides = (),
    catalog: Rows = None,
    **options: Any,
) -> Sensitivity:
    """What one figure of `predict` hangs on, number by number, ranked by elasticity; the rest is as in `predict`.

    `shardmeter.sensitivity("run.yaml", "run.cost_usd").ranked[0].lever.title`; `what_if` moves numbers (`fleet.wan.bandwidth=x2`), each
    of them `beside` each of those; `pairs` pairs the first so many. Raises BadScenario, UnknownName."""
    from shardmeter.study.sensitivity import sensitivity as answer_to

    moved, others = (_texts(name, one, "plan.tp=x2") for name, one in (("what_if", what_if), ("beside", beside)))
    made = resolved(scenario, overrides, catalog, options)
    return answer_to(made, of, pairs=pairs, what_if=moved, beside=others, step=step)


def doctor(
    scenario: Source = None,
    *,
    measured: Iterable[str] | Mapping[str, Any],
    against: Source = None,
    measured_b: Iterable[str] | Mapping[str, Any] = (),
    overrides: Overrides = (),
    overrides_b: Overrides = (),
    catalog: Rows = None,
    **options: Any,
) -> Diagnosis:
    """What would explain measured numbers of a scenario; the rest is as in `predict`.

    `shardmeter.doctor("run.yaml", measured={"tokens_per_s_per_gpu": 1786}).findings[0]`. With `measured_b` what would explain the ratio to
    another one: `against`, or the same scenario with `overrides_b`. Raises BadScenario with everything that is wrong, UnknownName."""
    from shardmeter.study.doctor import doctor as diagnosis
    from shardmeter.study.doctor import measured as read

    measured, measured_b = (
        one if isinstance(one, Mapping) else _texts(name, one, "mfu=45%")
        for name, one in (("measured", measured), ("measured_b", measured_b))
    )
    given = read(measured)
    compared = against is not None or bool(overrides_b)
    if compared != bool(measured_b):
        says = "a comparison needs the other scenario (against, overrides_b) and what was measured of it (measured_b)"
        raise BadScenario("nothing to compare", [Violation(field="measured_b", says=says)])
    made = resolved(scenario, overrides, catalog, options)
    if not compared:
        return diagnosis(made, given)
    source, own = (scenario, options) if against is None else (against, {})
    other = resolved(source, _both(overrides, overrides_b), catalog, own)
    return diagnosis(made, given, other, read(measured_b, "measured_b"))


def _both(overrides: Overrides, more: Overrides) -> Overrides:
    """Overrides of both scenarios and those of one, which win. Raises TypeError for texts beside values by path."""
    if not overrides or not more:
        return more or overrides
    if isinstance(overrides, Mapping) and isinstance(more, Mapping):
        return {**overrides, **more}
    if isinstance(overrides, Mapping) or isinstance(more, Mapping):
        raise TypeError("overrides and overrides_b: both as texts, or both as values by path")
    return (*overrides, *more)


def solve(
    question: str, scenario: Source = None, *, overrides: Overrides = (), catalog: Rows = None, **options: Any
) -> Solution:
    """The largest `micro-batch`, the longest `seq` or the fewest `gpus` with which a scenario fits; the rest is as in `predict`.

    `shardmeter.solve("micro-batch", "run.yaml").answer`; None where no legal value fits."""
    from shardmeter.study.inverse import QUESTIONS
    from shardmeter.study.solve import solve as solution_of

    begins = QUESTIONS[question].begins if question in QUESTIONS else ()
    return solution_of(question, resolved(scenario, overrides, catalog, options, begins))


def sweep(
    scenario: Mapping[str, Any] | str | Path | None = None,
    over: Over = (),
    *,
    columns: Iterable[str] = (),
    engine: str = "local",
    workers: int = 1,
    overrides: Overrides = (),
    catalog: Rows = None,
    **options: Any,
) -> Sweep:
    """The figures of `predict` at every point of the product of the axes `over`; the rest is as in `predict`.

    `shardmeter.sweep("run.yaml", {"plan.tp": [1, 2, 4], "plan.micro_batch": "1..16:x2"}).columns["step_time_s"]`. `columns` are
    named as in the JSON of `predict`. `workers` above 1 starts processes, which needs the usual `if __name__ == "__main__"`;
    a sweep that should go to a file and be resumed is the command's business (`shardmeter sweep -o`). Raises BadScenario,
    UnknownName, Unavailable."""
    from shardmeter.study.sweep import space_of
    from shardmeter.study.sweep import sweep as swept

    document, rows = _opened(scenario, overrides, catalog, options)
    return swept(space_of(document, rows, over, columns), engine=engine, workers=workers)


def returns(
    scenario: Mapping[str, Any] | str | Path | None = None,
    axis: str = "gpus",
    *,
    over: Over = (),
    scaling: str = "",
    overrides: Overrides = (),
    catalog: Rows = None,
    **options: Any,
) -> Returns:
    """What more of an axis buys: the figures of `predict` along it, the knee, the regimes of returns, the next unit; the rest is as in
    `predict`.

    `shardmeter.returns("run.yaml", "islands").to_dict()["knee"]`; `axis` is gpus, islands, fabric, wan or a field, `over` a field with its
    values (`{"fleet.islands.0.nodes": "1..64:x2"}`), `scaling` strong or weak. Raises BadScenario, UnknownName."""
    from shardmeter.study.returns import returns as answer_to

    _worded("axis", axis, "gpus")
    document, rows = _opened(scenario, overrides, catalog, options)
    return answer_to(document, rows, axis, over, scaling)


def tradeoffs(
    scenario: Mapping[str, Any] | str | Path | None = None,
    over: Over = (),
    *,
    overrides: Overrides = (),
    catalog: Rows = None,
    **options: Any,
) -> Tradeoffs:
    """What turning each knob buys in throughput and costs in loss, memory and traffic; the rest is as in `predict`.

    `shardmeter.tradeoffs("run.yaml", {"plan.sync.sync_every": [10, 100, 1000]}).to_dict()["knobs"][0]["says"]`; `over` left out: the usual
    knobs that the scenario has. Raises BadScenario, UnknownName."""
    from shardmeter.study.tradeoffs import tradeoffs as answer_to

    document, rows = _opened(scenario, overrides, catalog, options)
    return answer_to(document, rows, over)


def transitions(
    scenario: Mapping[str, Any] | str | Path | None = None,
    x: str | None = None,
    y: str | None = None,
    *,
    overrides: Overrides = (),
    catalog: Rows = None,
    **options: Any,
) -> Transitions:
    """What rules a scenario's step along `x`, over `x` and `y`, or along every likely axis, and where exactly that changes; the rest is
    as in `predict`.

    `shardmeter.transitions("run.yaml", "fleet.wan.default.bandwidth=1Gbps..100Gbps:log25").to_dict()["lines"][0]["crossings"]`; an axis
    without values goes over a range around the scenario's own. Raises BadScenario with everything that is wrong, UnknownName."""
    from shardmeter.study.transitions import transitions as found

    for name, one in (("x", x), ("y", y)):
        if one is not None:
            _worded(name, one, "plan.micro_batch=1,2,4")
    document, rows = _opened(scenario, overrides, catalog, options)
    return found(document, rows, x, y)


def _worded(name: str, given: object, example: str) -> None:
    """Raises BadScenario for what is no text."""
    if not isinstance(given, str):
        raise BadScenario(f"{name}: {kind_of(given)}, where a text such as {example!r} belongs")


def _texts(name: str, given: object, example: str) -> tuple[str, ...]:
    """Several texts, of which one may stand alone. Raises BadScenario for anything else."""
    if isinstance(given, str):
        return (given,)
    if isinstance(given, bytes | Mapping) or not isinstance(given, Iterable):
        raise BadScenario(f"{name}: {kind_of(given)}, where a list of texts such as {example!r} belongs")
    found = tuple(given)
    for one in found:
        _worded(name, one, example)
    return found


def _opened(
    scenario: Source, overrides: Overrides, catalog: Rows, options: Mapping[str, Any]
) -> tuple[Document, CatalogRows]:
    """The document of a file or mapping, and the catalog. Raises TypeError for a record, which has no fields to go over."""
    from shardmeter.scenario import opened

    if isinstance(scenario, Scenario):
        raise TypeError("a resolved Scenario has no fields to go over: give the file or mapping")
    return opened(scenario, overrides=overrides, catalog=catalog, options=dict(options))


def resolved(
    scenario: Source, overrides: Overrides, catalog: Rows, options: Mapping[str, Any], begins: Collection[str] = ()
) -> Scenario:
    """The record that a scenario is, what `plan: auto` leaves open found. Raises as `predict` does."""
    if isinstance(scenario, Scenario):
        _alone(overrides, options)
        made = scenario
    else:
        from shardmeter.scenario import load

        made = load(scenario, overrides=overrides, catalog=catalog, options=dict(options), begins=begins)
    if made.choices is not None:
        from shardmeter.study.planning.automatic import settled

        made = settled(made)
    return _checked(made, begins) if isinstance(scenario, Scenario) else made


def _checked(scenario: Scenario, begins: Collection[str] = ()) -> Scenario:
    """The record itself. Raises BadScenario with every violation, TypeError for arrays."""
    from shardmeter.study.legal import checked

    return checked(scenario, begins)


def _alone(overrides: Overrides, options: Mapping[str, Any]) -> None:
    """Refuse options beside a record."""
    if options or (overrides if isinstance(overrides, Mapping) else tuple(overrides)):
        raise TypeError("a resolved Scenario takes no options: change the record, or give the file or mapping")


def alone(scenario: Scenario) -> Scenario:
    """A record whose plan stands beside all others at its batch and sequence."""
    run = scenario.run
    choices = Choices(
        plan={},
        seq_len=(float(run.seq_len),),
        global_batch=((float(run.global_batch), "sequences"),),
        islands=scenario.fleet.islands,
        said=(),
        stated=True,
    )
    return changed(scenario, choices=choices)
