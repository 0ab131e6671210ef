"""Numbers of a model that somebody set and that nothing reads: found by setting others, not by a table that could go stale."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from shardmeter.core.record import changed, structure
from shardmeter.engine.evaluate import evaluate
from shardmeter.families import given_sequence
from shardmeter.scenario.yaml_reader import Path
from shardmeter.specs import Island, Model, Plan, Scenario, bare
from shardmeter.specs.model import WORDS

_TALK = frozenset({"name", "family", "parameters", "source", "retrieved"})
"""Fields that say something and are in no formula."""
_LETTERS = {"mixers": ("f", "w", "-"), "mlps": ("d", "-")}


def ignored(scenario: Scenario, said: Iterable[tuple[Path, str]]) -> list[str]:
    """A warning for every field of a model that was set (`said`: the path of the model, the field) and changes nothing: whatever else
    it is set to, the estimate stays the same, number by number. What a catalog row says is not set by anybody.

    Leaves out: what holds for another plan; `context`, which is compared with the sequence."""
    found, here = [], ""
    for path, field in dict.fromkeys(said):
        model = _at(scenario, path)
        if model is None or field in _TALK or (field == "context" and given_sequence(model) is None):
            continue
        here = here or _answer(scenario)
        value = getattr(model, field)
        if all(_answer(_with(scenario, path, field, other)) == here for other in _others(field, value)):
            name = ".".join(map(str, (*path, field)))
            found.append(
                f"{name} = {_text(value)} changes nothing: no formula of {model.name} (family {model.family}) uses it"
            )
    return found


def _text(value: Any) -> str:
    if isinstance(value, Model):
        return value.name
    return f"{value:g}" if isinstance(value, float) else str(value).lower() if isinstance(value, bool) else str(value)


def _at(scenario: Scenario, path: Path) -> Model | None:
    """The model at a path: the trained one, the reference, or the image tower of either."""
    model = scenario.run.reference if path[:2] == ("run", "reference") else scenario.model
    return model.vision if model is not None and path[-1:] == ("vision",) else model


def _with(scenario: Scenario, path: Path, field: str, value: Any) -> Scenario | None:
    """The scenario with one number of one of its models changed."""
    model = _at(scenario, path)
    if model is None:
        return None
    made = changed(model, **{field: value})
    if path[-1:] == ("vision",):
        whole = _at(scenario, path[:-1])
        made = made if whole is None else changed(whole, vision=made)
    if path[:2] == ("run", "reference"):
        return changed(scenario, run=changed(scenario.run, reference=made))
    return changed(scenario, model=made)


def _others(field: str, value: Any) -> Sequence[Any]:
    """Other values of a field, of which one at least shows whether it is read."""
    if isinstance(value, bool):
        return (not value,)
    if isinstance(value, Model):
        return (changed(value, hidden=2.0 * value.hidden), None)
    if isinstance(value, str):
        return [word for word in (_LETTERS.get(field) or WORDS[field]) if word != value]
    return (value + 1, 2 * value + 2, type(value)(0))


def _answer(scenario: Scenario | None) -> str:
    """Every number of the estimate, on one island of every kind; of what cannot be evaluated, that."""
    if scenario is None:
        return ""
    try:
        with np.errstate(all="ignore"):
            return repr(
                [
                    evaluate(scenario.model, island, plan, scenario.run, scenario.stack, meets=True)
                    for island, plan in _kinds(scenario)
                ]
            )
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
        return repr(error)


def _kinds(scenario: Scenario) -> Iterable[tuple[Island, Plan]]:
    """An island of every kind with its plan: those that differ in numbers alone use the same formulas."""
    islands = scenario.fleet.islands
    if len(islands) == 1:
        return [(islands[0], scenario.plan)]
    pairs = zip(islands, scenario.plans, strict=True)
    return {(structure(bare(one)), structure(plan)): (one, plan) for one, plan in pairs}.values()
