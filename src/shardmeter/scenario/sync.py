"""What a plan says of synchronisation to a `specs.Sync`: the method's defaults said, what it does not read refused."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from shardmeter.core.errors import UnknownName, nearest
from shardmeter.core.record import changed, field_names
from shardmeter.families import CUTTABLE, block_of
from shardmeter.scenario.between import SyncInput
from shardmeter.scenario.parts import Findings
from shardmeter.scenario.yaml_reader import Path
from shardmeter.specs import Inner, Model, Scenario, Sync
from shardmeter.sync import faults, inner_of, laid, method, names

ALIASES = {
    "fedavg": "local_sgd", "federated_averaging": "local_sgd", "post_local_sgd": "local_sgd",
    "streaming": "streaming_diloco", "eager": "eager_diloco", "overlapped": "eager_diloco",
    "async": "async_local_sgd", "asynchronous": "async_local_sgd", "decoupled": "decoupled_diloco",
    "sparse": "sparse_loco", "sparseloco": "sparse_loco",
    "synchronous": "every_step", "data_parallel": "every_step", "ddp": "every_step",
    "gossip": "noloco", "no_loco": "noloco", "pairs": "noloco", "btm": "branch_train_merge", "branch_train": "branch_train_merge",
    "isolated_experts": "branch_train_merge", "psyche": "demo", "distro": "demo", "decoupled_momentum": "demo",
    "blocktrain": "block_train", "spheroid": "block_train", "diffusion_blocks": "block_train",
    "low_rank": "powersgd", "power_sgd": "powersgd", "diloco_x": "dilocox", "path_composition": "dipaco",
    "zero_order": "mezo", "zeroth_order": "mezo",
}  # fmt: skip
"""Other words for a method."""
QUANTISED = 8.0
"""Bits of `should_quantize: true`."""


def method_named(word: str) -> str:
    """The method that a word means. Raises UnknownName."""
    plain = word.strip().lower().replace("-", "_").replace(" ", "_")
    name = ALIASES.get(plain, plain)
    if name not in names():
        close = dict.fromkeys(ALIASES.get(one, one) for one in nearest(plain, (*names(), *ALIASES), 6))
        raise UnknownName("sync method", word, [one for one in close if one in names()][:3] or names())
    return name


def resolve_sync(
    asked: SyncInput | None, path: Path, layers: float | None, found: Findings, cells: int | None = None
) -> Sync:
    """The synchronisation that is asked for, after noting what contradicts the method. `layers` of the model and the `cells` that are
    joined, where they are known."""
    said = {name: value for name, value in (asked or SyncInput()).model_dump().items() if value is not None}
    said |= _bits(said, path, found)
    try:
        name = method_named(said.pop("method", "every_step"))
    except UnknownName as error:
        found.unknown_name((*path, "method"), error)
        return Sync()
    fields, own = method(name).FIELDS, dict(method(name).DEFAULTS)
    usual = {field: own.get(field, value) for field, value in _values(Sync()).items()}
    for field, value in said.items():
        if field not in fields and value != usual[field]:
            readers = [other for other in names() if field in method(other).FIELDS]
            way_out = f"leave it out, or method: {' or '.join(nearest(name, readers))}" if readers else "leave it out"
            rule = f"{name} reads {', '.join(fields)}"
            found.refuse((*path, field), f"{field} = {_text(value)}, but {name} does not read it", way_out, rule)
    for field, value in fitting(own, said, layers, cells).items():
        if field not in said:
            own[field] = value
            found.assumptions.append(f"sync {field} = {_text(value)} (of {name}; left out)")
    made = changed(Sync(method=name), **{**own, **{f: v for f, v in said.items() if f in fields}})
    _check(made, path, layers, found)
    return made


def _bits(said: dict[str, Any], path: Path, found: Findings) -> dict[str, Any]:
    """What `should_quantize` says of the bits; it is taken out of what is said."""
    if not said.pop("should_quantize", False):
        return {}
    if said.get("bits", QUANTISED) != QUANTISED:
        says = f"should_quantize means bits = {QUANTISED:g}, but bits = {said['bits']:g}"
        found.refuse((*path, "should_quantize"), says, "keep one of the two")
        return {}
    return {"bits": QUANTISED}


def _values(sync: Sync) -> dict[str, Any]:
    return {name: getattr(sync, name) for name in field_names(Sync) if name != "method"}


def _text(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value).lower() if isinstance(value, bool) else str(value)


def fitting(
    own: Mapping[str, Any], said: Mapping[str, Any], layers: float | None, cells: int | None = None
) -> dict[str, Any]:
    """A method's defaults where the model, the cells and what is said leave room for them."""
    made = dict(own)
    if "blocks" in made:
        made["blocks"] = int(min(made["blocks"], cells or made["blocks"], layers or made["blocks"]))
    if "num_fragments" in made and layers is not None:
        made["num_fragments"] = int(min(made["num_fragments"], layers))
    if "fragment_sync_delay" in made:
        made["fragment_sync_delay"] = min(
            made["fragment_sync_delay"], said.get("sync_every", own.get("sync_every", 1.0))
        )
    return made


def under(scenario: Scenario, sync: Sync) -> Scenario:
    """A scenario as the cells of a method train it: one of the blocks of its model, or without a backward. Its plans are left
    unsynchronised."""
    inner = inner_of(sync)
    if inner == Inner():
        return scenario
    whole = scenario.assembled or scenario.model
    model = block_of(whole, inner.blocks)
    plan, *plans = (changed(laid(one, sync), sync=one.sync) for one in (scenario.plan, *scenario.plans))
    return changed(
        scenario, model=model, assembled=None if model is whole else whole, plan=plan, plans=tuple(plans)
    )  # fmt: skip


def check_cells(sync: Sync, model: Model | None, cells: int, placed: bool, found: Findings) -> None:
    """What a method asks of the model, and of the cells that it joins."""
    blocks, path = inner_of(sync).blocks, ("plan", "sync", "blocks")
    if blocks > 1 and model is not None and model.family not in CUTTABLE:
        says = f"{sync.method} cuts a row of layers into blocks; a model of family {model.family} is none"
        found.refuse(("plan", "sync", "method"), says, f"a model of family {' or '.join(CUTTABLE)}")
    if model is not None and blocks > model.layers:
        says = f"blocks = {blocks}, but the model has {model.layers} layers"
        found.refuse(path, says, f"{model.layers} or fewer", "a block is whole layers")
    if inner_of(sync) != Inner() and placed:
        joins = "joins whole islands by their losses" if inner_of(sync).probes else "trains its parts apart"
        says = f"{sync.method} {joins}: no axis crosses islands"
        found.refuse(("plan", "placement"), says, "leave placement out")
    for field, says, way_out in faults(sync, cells):
        found.refuse(("plan", "sync", field), says, way_out)


def _check(sync: Sync, path: Path, layers: float | None, found: Findings) -> None:
    """What no round can be."""
    every, delay, parts = float(sync.sync_every), float(sync.fragment_sync_delay), sync.num_fragments
    if layers is not None and parts > layers:
        says = f"num_fragments = {parts}, but the model has {layers:g} layers"
        found.refuse((*path, "num_fragments"), says, f"{layers:g} or fewer", "a fragment is whole layers")
    if delay > every and not found.touched((*path, "sync_every")):
        says = f"fragment_sync_delay = {delay:g}, but a round has sync_every = {every:g} inner steps"
        found.refuse(
            (*path, "fragment_sync_delay"),
            says,
            f"{every:g} or less",
            "what is sent is applied before it is sent again",
        )
