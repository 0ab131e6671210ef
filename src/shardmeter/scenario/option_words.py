"""What somebody meant who wrote a field of the scenario as an option: `--tp`, `--bandwidth`, `--islands`."""

from __future__ import annotations

from collections.abc import Iterator

from pydantic import BaseModel

from shardmeter.scenario.grammar import SYNC_ALIASES
from shardmeter.scenario.schema import ScenarioInput, _models

MOST = 2
"""Paths that are told."""
DEEPEST = 6
EXAMPLES = {
    "fleet.islands": "'fleet.islands=[{gpus: 64xH100-SXM5-80GB}, {gpus: 32xA100-SXM4-80GB}]'",
    "fleet.wan": "'fleet.wan.default={bandwidth: 10 Gbps, rtt: 40 ms}'",
    "fleet.wan.default.bandwidth": "'fleet.wan.default.bandwidth=10 Gbps'",
    "fleet.wan.default.rtt": "'fleet.wan.default.rtt=40 ms'",
    "plan.sync": "plan.sync.method=diloco",
    "plan.sync.method": "plan.sync.method=diloco",
}
"""What a part that is no single value is set to, as typed in a shell."""
OF_SEVERAL = "fleet.wan and plan.sync join several islands, which fleet.islands lists"
"""Said where a field means nothing without."""


def meant_by(option: str) -> str:
    """What to write instead of an option that is a field of the scenario, in a sentence; "" where it is none.

    Leaves out: fields of rows of the catalog (`--memory-bandwidth`), which belong to an accelerator, a fabric or a stack."""
    name = option.lstrip("-").replace("-", "_")
    name = SYNC_ALIASES.get(name, name)
    found = sorted((path for path in _paths() if path[-1] == name), key=_nearness)
    if not found:
        return ""
    first, *others = [".".join(path) for path in found[:MOST]]
    also = f" (or {others[0]})" if others else ""
    several = f"; {OF_SEVERAL}" if first.startswith(("fleet.wan", "plan.sync")) else ""
    return f"it is a field of the scenario: --set {EXAMPLES.get(first, f'{first}=VALUE')}{also}{several}"


def _nearness(path: tuple[str, ...]) -> tuple[bool, int, bool]:
    """What is mostly meant by a word comes first, then what stands on top."""
    return ".".join(path) not in EXAMPLES, len(path), path[0] != "plan"


def _paths(
    shape: type[BaseModel] = ScenarioInput,
    before: tuple[str, ...] = (),
    above: frozenset[type[BaseModel]] = frozenset(),
) -> Iterator[tuple[str, ...]]:
    """Every path of the scenario; the first item of a list stands for all, and an island's own plan for nothing new."""
    if shape in above or len(before) > DEEPEST:
        return
    for name, field in shape.model_fields.items():
        path = (*before, field.alias or name)
        if path[-1] == "plan" and before:
            continue
        yield path
        text = str(field.annotation)
        if "_Named" in text or "dict[" in text:
            continue
        listed = ("0",) if "tuple[" in text or "list[" in text else ()
        for model in _models(field.annotation):
            yield from _paths(model, (*path, *listed), above | {shape})
