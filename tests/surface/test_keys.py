"""Keys that are misspelt, at every depth of a scenario: each is refused with the nearest three that stand there."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest
from pydantic import BaseModel

import shardmeter
from shardmeter.core.errors import BadScenario
from shardmeter.scenario.schema import ScenarioInput, _fields, _inside

FLEET: dict[str, Any] = {
    "model": "llama-3.1-8b",
    "fleet": {
        "islands": [
            {"name": "a", "accelerator": "H100-SXM5-80GB", "nodes": 2, "tiers": [{"name": "leaf", "nodes": 2}]},
            {"name": "b", "accelerator": "H100-SXM5-80GB", "nodes": 2},
        ],
        "wan": {
            "default": {"bandwidth": "10 Gbps", "rtt": "40 ms"},
            "links": [{"from": "a", "to": "b", "bandwidth": "1 Gbps", "rtt": "40 ms"}],
            "sites": {"a": {"up": "10 Gbps"}},
        },
    },
    "plan": "fsdp",
}
DEEPEST = 4
"""Levels below a part of the scenario; a model may hold itself."""


def places(path: tuple[str, ...] = (), models: frozenset[type[BaseModel]] = frozenset()) -> Iterator[tuple[str, ...]]:
    """Every path of a mapping, with 0 for the items of lists and the name of an island where islands are keys."""
    found = frozenset(_inside(ScenarioInput, _numbered(path)))
    if not found or found & models or len(path) > 2 * DEEPEST:
        return
    yield path
    for model in found:
        for name, field in model.model_fields.items():
            step = field.alias or name
            text = str(field.annotation)
            inner = ("0",) if "tuple[" in text or "list[" in text else ("a",) if "dict[" in text else ()
            yield from places((*path, step, *inner), models | found)


def _numbered(path: tuple[str, ...]) -> tuple[str | int, ...]:
    return tuple(int(step) if step.isdigit() else step for step in path)


PLACES = sorted(set(places()))


def test_the_places_are_of_every_depth() -> None:
    assert len(PLACES) > 20
    assert {
        ("fleet", "islands", "0", "fabric"),
        ("run", "failures"),
        ("plan", "sync"),
        ("fleet", "wan", "default"),
    } <= set(PLACES)


def wrong(text: str, source: Any = FLEET) -> str:
    with pytest.raises(BadScenario) as caught:
        shardmeter.load(source, overrides=[text])
    return str(caught.value)


@pytest.mark.parametrize("place", PLACES, ids=".".join)
def test_a_misspelt_key_is_refused_with_the_nearest_three(place: tuple[str, ...]) -> None:
    known = _fields(ScenarioInput, _numbered(place))
    name = max(known, key=len)
    typo = f"{name[:-2]}{name[-1]}{name[-2]}x"
    assert typo not in known
    said = wrong(f"{'.'.join((*place, typo))}=3")
    hint = re.search(rf"{typo}\b.*did you mean '([\w.]+)'\?(?: \(or ([^)]*)\))?", said)
    if hint is None:  # a list that the scenario does not have: said so, with what to write
        assert re.search(r"there is no item (0|a)|no item '0'", said), said
        return
    near = [hint[1], *(hint[2] or "").split(", ")]
    assert hint[1] == name
    assert len([one for one in near if one]) == min(3, len(known))


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("fleet.islands[0].fabric.bandwith=1 Gbps", "bandwidth"),
        ("fleet.islands[a].fabric.bandwith=1 Gbps", "bandwidth"),
        ("fleet.islands.0.accelerator.memory_bandwith=3 TB/s", "memory_bandwidth"),
        ("fleet.wan.links[0].bandwith=1 Gbps", "bandwidth"),
        ("fleet.islands[0].tiers[0].oversubscripton=2", "oversubscription"),
        ("model.layerz=4", "layers"),
        ("stack.nic_fctor=0.5", "nic_factor"),
        ("run.failures.mtbff=3 h", "mtbf"),
        ("plan.sync.methud=diloco", "method"),
        ("model={base: llama-3.1-8b, layerz: 4}", "layers"),
    ],
)
def test_what_was_meant(text: str, meant: str) -> None:
    assert f"did you mean '{meant}'?" in wrong(text)


def test_an_item_is_named_as_in_python_too() -> None:
    """`a[0].b` is `a.0.b`."""
    dotted, bracketed = (
        shardmeter.load(FLEET, overrides=[f"fleet.islands{item}.nodes=4"]).fleet.islands for item in (".0", "[0]")
    )
    assert float(bracketed[0].nodes) == 4.0
    assert bracketed == dotted
