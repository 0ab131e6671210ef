"""Texts of one line: the plan, `NAME[,key=value…]`, as in `fsdp,tp=8,recompute=full,sync.method=every_step`; GPUs that are none."""

from __future__ import annotations

import re
from typing import Any

from shardmeter.core.errors import BadScenario, Violation, nearest, shown
from shardmeter.scenario.read import SUFFIXES
from shardmeter.scenario.yaml_reader import scalar
from shardmeter.specs.plan import SHARDINGS

AUTO = "auto"
"""The NAME of a plan that the planner is to find."""
NAMES = (*SHARDINGS, "hsdp", AUTO)
"""What a one-line plan may start with."""
SYNC_ALIASES = {
    "H": "sync_every", "P": "num_fragments", "tau": "fragment_sync_delay", "τ": "fragment_sync_delay",
    "alpha": "fragment_update_alpha", "α": "fragment_update_alpha",
}  # fmt: skip
"""Letters of the DiLoCo papers → fields of `sync`."""
_LONGEST = 1000
_KEY = re.compile(r"[A-Za-z_τα][A-Za-z0-9_.]*")


def spelled_out(field: str) -> str:
    """`H`, `sync_every` and `plan.sync.H` as `plan.sync.sync_every`, and the like; any other field as it is."""
    last = field.rpartition(".")[2]
    if field in (last, f"plan.sync.{last}") and (last in SYNC_ALIASES or last in SYNC_ALIASES.values()):
        return f"plan.sync.{SYNC_ALIASES.get(last, last)}"
    return field


def parse_plan(text: str) -> dict[str, Any]:
    """The mapping that a one-line plan stands for; its NAME is under `sharding`, that of `auto` in a field of its own. Raises BadScenario, all violations at once.

    Values are text, numbers, true/false, lists in brackets (`offload=[optimizer]`); a dot in a key opens a sub-mapping.
    """
    if len(text) > _LONGEST:
        raise BadScenario(f"a plan of {len(text)} characters is no one-line plan; at most {_LONGEST}")
    head, *pairs = _split(text)
    found: list[Violation] = []
    if head not in NAMES:
        found.append(_unknown_head(head))
    made: dict[str, Any] = {AUTO: True} if head == AUTO else {"sharding": head}
    for pair in pairs:
        trouble = _assign(made, pair)
        if trouble:
            found.append(trouble)
    if found:
        raise BadScenario(f"plan {shown(text, 100)} is not NAME[,key=value…]", found)
    return made


def _unknown_head(head: str) -> Violation:
    rule = f"NAME is one of {', '.join(NAMES)}"
    words = [word for word in re.split(r"[\s;]+", head[:100]) if word]
    if len(words) > 1 and words[0] in NAMES:
        says = f"{shown(head)} has no commas"
        return Violation(field="plan", says=says, rule=rule, way_out=f"write {','.join(words)}")
    if "=" in head:
        return Violation(
            field="plan", says=f"it starts with {shown(head, 40)}", rule=rule, way_out=f"write fsdp,{head[:40]}"
        )
    close = nearest(head, NAMES)
    return Violation(
        field="plan", says=f"unknown plan {shown(head, 40)}", rule=rule, way_out=f"the nearest are {', '.join(close)}"
    )


def _assign(made: dict[str, Any], pair: str) -> Violation | None:
    """Put one `key=value` where it belongs, or say what is wrong with it."""
    key, equals, value = (part.strip() for part in pair.partition("="))
    if equals and not value and _KEY.fullmatch(key):
        return Violation(field="plan", says=f"{shown(pair, 40)} is no key=value: it has no value", way_out="as in tp=8")
    if not equals or not value or not _KEY.fullmatch(key) or ".." in key or key.endswith("."):
        return Violation(field="plan", says=f"{shown(pair, 40)} is no key=value", way_out="as in tp=8")
    steps = ["sync", SYNC_ALIASES[key]] if key in SYNC_ALIASES else key.split(".")
    inner: Any = made
    for step in steps[:-1]:
        inner = inner.setdefault(step, {}) if isinstance(inner, dict) else None
    if not isinstance(inner, dict):
        return Violation(
            field="plan", says=f"{shown(key, 40)} is set both as a value and as a mapping", way_out="keep one"
        )
    if steps[-1] in inner:
        return Violation(field="plan", says=f"{shown(key, 40)} is set twice", way_out="keep one")
    inner[steps[-1]] = _value(value)
    return None


def _value(text: str) -> Any:
    if text.startswith("[") and text.endswith("]"):
        return [scalar(item.strip()) for item in text[1:-1].split(",") if item.strip()]
    return scalar(text)


def _split(text: str) -> list[str]:
    """Parts between commas that stand outside brackets and parentheses."""
    parts, depth = [""], 0
    for character in text:
        depth += 1 if character in "[(" else -1 if character in "])" else 0
        if character == "," and depth <= 0:
            parts.append("")
        else:
            parts[-1] += character
    return [part.strip() for part in parts]


def names_several(name: str) -> bool:
    """Whether what stands for an accelerator names more of them: `H100,32xA100`."""
    return re.search(r"[,+;]\s*[0-9]+\s*[xX×*]", name) is not None


def no_gpus(value: Any) -> tuple[str, str, str]:
    """What is wrong with what is no NxNAME of one island, the way out and the rule."""
    if isinstance(value, str) and value.lower().endswith(SUFFIXES):
        return f"{shown(value)} is a file", "name it as SCENARIO, without --gpus", "gpus is NxNAME"
    if isinstance(value, str) and names_several(value):
        way_out = "list them as fleet.islands: [{gpus: 64xH100-SXM5-80GB}, {gpus: 32xA100-SXM4-80GB}]"
        return f"{shown(value)} names several islands", way_out, "gpus is one island: NxNAME"
    return f"{shown(value)} is no NxNAME", "as in 64xH100-SXM5-80GB", ""
