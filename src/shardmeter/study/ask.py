"""From what a person says to a scenario: `scenario.load`, and short-cuts that need the fleet's first island."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from shardmeter.core.errors import BadScenario
from shardmeter.scenario import load
from shardmeter.scenario.override import OPTIONS

if TYPE_CHECKING:
    from shardmeter.specs import Scenario

ISLAND = "fleet.islands.0"
FIELDS = ("price", "fabric")
"""Short-cuts that are a field of the first island."""
_COUNTED = re.compile(r"(?:(\d+)\s*[x×*]\s*)?(\S+)")


def ask(
    source: object,
    *,
    overrides: Any = (),
    catalog: Any = None,
    options: Mapping[str, Any] | None = None,
) -> Scenario:
    """A resolved scenario. `overrides` are `a.b=VALUE` texts or values by path; `options` are those of the command line: what `scenario.load` takes, and price, fabric, instance.

    Raises BadScenario, UnknownName."""
    said = {name: value for name, value in (options or {}).items() if value is not None}
    own = {name: said.pop(name) for name in ("instance", *FIELDS) if name in said and name not in OPTIONS}
    if not own:
        return load(source, overrides=overrides, catalog=catalog, options=said)
    first: list[str] = []
    if "instance" in own:
        first.append(_rented(str(own["instance"]), said, catalog))
    if "price" in own and not re.search(r"\$|usd", str(own["price"]), re.IGNORECASE):
        says = f"--price {own['price']} has no currency; in a shell, $ needs single quotes: --price '$2.10/gpu/h'"
        raise BadScenario(says)
    first += [f"{ISLAND}.{name}={own[name]}" for name in FIELDS if name in own]
    given = (overrides,) if isinstance(overrides, str) else overrides
    if isinstance(given, Mapping):
        given = [f"{path}={value}" for path, value in given.items()]
    return load(source, overrides=(*first, *given), catalog=catalog, options=said)


def _rented(instance: str, said: dict[str, Any], catalog: Any) -> str:
    """The override for `N x INSTANCE`, or for INSTANCE with as many as the GPUs asked for need: it replaces the fleet."""
    found = _COUNTED.fullmatch(instance.strip())
    count, name = (found[1], found[2]) if found else (None, instance)
    gpus = _COUNTED.fullmatch(str(said.pop("gpus", "")).strip())
    if count is None and gpus is not None and gpus[1] is not None:
        each = float(_rows(catalog).instance(name).accelerators)
        nodes = float(gpus[1]) / each
        if nodes != int(nodes):
            raise BadScenario(f"{gpus[1]} GPUs are no whole number of {name}, which has {each:g}")
        count = f"{nodes:g}"
    return f"fleet={{islands: [{{instance: {name}, nodes: {count or 1}}}]}}"


def _rows(catalog: Any) -> Any:
    from shardmeter.scenario.catalog import load_catalog

    return catalog if hasattr(catalog, "instance") else load_catalog()
