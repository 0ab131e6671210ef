"""Scenarios: files, texts, mappings and command-line options to a resolved `specs.Scenario`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from shardmeter.scenario.override import apply_options, apply_overrides
from shardmeter.scenario.read import read

if TYPE_CHECKING:
    from shardmeter.scenario.parts import Rows
    from shardmeter.specs import Scenario

__all__ = ["json_schema", "load"]


def load(
    source: object,
    *,
    overrides: Iterable[str] = (),
    catalog: Rows | None = None,
    options: Mapping[str, Any] | None = None,
) -> Scenario:
    """A resolved scenario from a file, a YAML text, a mapping, or None (options only).

    `options` are the shortcuts of the command line (model, gpus, plan, stack, seq or seq_len, micro_batch, global_batch,
    tokens); `overrides` are `a.b=VALUE` texts and win over them. `catalog` is the shipped one where it is None.
    Raises BadScenario with every violation, or UnknownName; the file itself may raise BadScenario first.
    """
    from shardmeter.scenario.resolve import resolve

    document = read(source)
    apply_options(document, dict(options or {}))
    apply_overrides(document, (overrides,) if isinstance(overrides, str) else tuple(overrides))
    if catalog is None:
        from shardmeter.scenario.catalog import load_catalog

        catalog = load_catalog()
    return resolve(document, catalog)


def json_schema() -> dict[str, Any]:
    """The JSON Schema of a scenario file, for editors."""
    from shardmeter.scenario import schema

    return schema.json_schema()
