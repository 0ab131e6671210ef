"""The Python face of the studies: a scenario may be a record, a mapping, a file or keyword options."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from shardmeter.specs import Scenario

if TYPE_CHECKING:
    from shardmeter.scenario.catalog import Catalog
    from shardmeter.study.explain import Explanation
    from shardmeter.study.predict import Prediction

Source: TypeAlias = Scenario | Mapping[str, Any] | str | Path | None


def predict(
    scenario: Source = None, *, overrides: Iterable[str] = (), catalog: Catalog | None = None, **options: Any
) -> Prediction:
    """Predict a scenario. `options` are those of the command: model, gpus, instance, fabric, price, plan, stack, seq, micro_batch,
    global_batch, tokens.

    `shardmeter.predict("run.yaml")` or `shardmeter.predict(model="llama-3.1-8b", gpus="64xH100-SXM5-80GB")`.
    """
    from shardmeter.study.predict import predict as answer_to

    return answer_to(_resolved(scenario, overrides, catalog, options))


def explain(
    scenario: Source = None, *, overrides: Iterable[str] = (), catalog: Catalog | None = None, **options: Any
) -> Explanation:
    """The same prediction with every formula call recorded."""
    from shardmeter.study.explain import explain as explanation_of

    return explanation_of(_resolved(scenario, overrides, catalog, options))


def _resolved(
    scenario: Source, overrides: Iterable[str], catalog: Catalog | None, options: Mapping[str, Any]
) -> Scenario:
    if isinstance(scenario, Scenario):
        if options or tuple(overrides):
            raise TypeError("a resolved Scenario takes no options: change the record, or give the file or mapping")
        return scenario
    from shardmeter.study.ask import ask

    return ask(scenario, overrides=tuple(overrides), catalog=catalog, options=dict(options))
