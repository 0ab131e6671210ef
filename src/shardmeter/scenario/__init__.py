"""Scenarios: files, texts, mappings and command-line options to a resolved `specs.Scenario`."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from os import PathLike
from typing import TYPE_CHECKING, Any, cast

from shardmeter.core.errors import BadScenario, kind_of
from shardmeter.scenario.override import Overrides, apply_options, apply_overrides
from shardmeter.scenario.read import Document, checkpoint, read, within

if TYPE_CHECKING:
    from shardmeter.scenario.parts import Rows
    from shardmeter.specs import Scenario

__all__ = ["json_schema", "load", "opened"]


def load(
    source: object,
    *,
    overrides: Overrides = (),
    catalog: Rows | str | PathLike[str] | Sequence[str | PathLike[str]] | None = None,
    options: Mapping[str, Any] | None = None,
    begins: Collection[str] = (),
    planning: bool = False,
) -> Scenario:
    """A resolved scenario from a file, a YAML text, a mapping, or None (options only). A Hugging Face config.json, or a folder
    that holds one, is a scenario that names its model and nothing else.

    `options` are the shortcuts of the command line (model, stack, gpus, instance, fabric, price, prices, plan, seq or seq_len,
    micro_batch, global_batch, tokens); `overrides` are `a.b=VALUE` texts, or values by path, and win over them. `catalog` is a catalog, a folder of
    rows or several; the shipped one where it is None. `begins` names rules of `engine.constraints` that the scenario may break.
    Of several islands each has its plan in the scenario's `plans`, and the network between them is `fleet.wan`. What `plan: auto` leaves open is in the scenario's `choices`; with `planning` a plan that names no sharding is open too, one
    that does is a plan beside the open ones, and overrides of the plan are pins. Raises BadScenario with every violation, or
    UnknownName; the file itself may raise BadScenario first.
    """
    from shardmeter.scenario.choices import left_open
    from shardmeter.scenario.resolve import resolve

    document, rows = opened(source, overrides=overrides, catalog=catalog, options=options, planning=planning)
    document.begins = frozenset(begins)
    return resolve(document, rows, left_open(document, planning=planning))


def opened(
    source: object,
    *,
    overrides: Overrides = (),
    catalog: Rows | str | PathLike[str] | Sequence[str | PathLike[str]] | None = None,
    options: Mapping[str, Any] | None = None,
    planning: bool = False,
) -> tuple[Document, Rows]:
    """The document of a scenario with options and overrides applied, and the catalog: what is resolved next. As `load`."""
    from shardmeter.scenario.choices import set_aside

    if options is not None and not isinstance(options, Mapping):
        raise BadScenario(f"options: {kind_of(options)}, where a mapping such as {{'model': 'llama-3.1-8b'}} belongs")
    document = checkpoint(source) or within(read(source))
    if not hasattr(catalog, "accelerator"):
        from shardmeter.scenario.catalog import catalog_of

        catalog = catalog_of(catalog)
    rows = cast("Rows", catalog)
    apply_options(document, options or {}, rows)
    given = _several(overrides)
    given = given if isinstance(given, Mapping) else tuple(given)
    if planning:
        set_aside(document, given)
    apply_overrides(document, given, rows=rows)
    return document, rows


def _several(overrides: Any) -> Overrides:
    """One text as several; refuses what is no collection of overrides."""
    if isinstance(overrides, str):
        return (overrides,)
    if not isinstance(overrides, Iterable) or isinstance(overrides, bytes):
        raise BadScenario(f"overrides: {kind_of(overrides)}, where texts such as plan.tp=8, or a mapping, belong")
    return cast("Overrides", overrides)


def json_schema() -> dict[str, Any]:
    """The JSON Schema of a scenario file, for editors."""
    from shardmeter.scenario import schema

    return schema.json_schema()
