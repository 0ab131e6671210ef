"""Settings of torchtitan from 0.3: a Python function that returns a configuration, and flags that win over it.

A function is read from its syntax tree, never run: keywords with literal values, names that stand for such calls, and
assignments to fields of a configuration that another function of torchtitan's registries begins.
"""

from __future__ import annotations

import ast
import csv
import functools
import shlex
from collections.abc import Mapping
from importlib.resources import files
from typing import Any

from shardmeter.core.errors import BadScenario
from shardmeter.core.record import record

SECTIONS = {
    "training": "TrainingConfig", "parallelism": "ParallelismConfig", "compile": "CompileConfig", "comm": "CommConfig",
    "debug": "DebugConfig", "fault_tolerance": "FaultTolerance",
}  # fmt: skip
"""Parts of a configuration with one class each."""
LARGEST = 200_000
"""Characters of the longest file that is read."""


MOST = 1_000
"""Settings of the largest configuration; one in which a name stands for itself has ever more."""


@record
class Found:
    """What a function or a line of flags says."""

    settings: Mapping[str, Any]
    base: str = ""
    """The function of torchtitan's registries that it begins with, as `llama3 llama3_8b`; empty where there is none."""
    name: str = ""
    """Of the function."""


def functions(text: str, name: str) -> tuple[Found, ...]:
    """The functions of a Python file that return a configuration, each with what those that it begins with say. Raises BadScenario."""
    if len(text) > LARGEST:
        raise BadScenario(f"{name}: {len(text)} characters; a configuration has at most {LARGEST}")
    try:
        tree = ast.parse(text)
        modules = _imported(tree)
        found: dict[str, Found] = {}
        for node in tree.body:
            one = _of_function(node, modules, found) if isinstance(node, ast.FunctionDef) else None
            if one is not None:
                found[one.name] = one
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        line = getattr(error, "lineno", None)
        raise BadScenario(f"{name}{f':{line}' if line else ''}: not readable as Python ({_brief(error)})") from None
    return tuple(found.values())


def function(text: str, name: str) -> Found:
    """The last of these functions, which may begin with those before it. Raises BadScenario."""
    found = functions(text, name)
    if not found:
        raise BadScenario(f"{name}: no function in it returns a Trainer.Config")
    return found[-1]


def _brief(error: BaseException) -> str:
    return (str(error).split("(")[0].strip() or "too deep")[:80]


def _imported(tree: ast.Module) -> dict[str, str]:
    """The module that each imported name comes from."""
    found: dict[str, str] = {}
    for node in tree.body:
        if isinstance(node, ast.ImportFrom):
            found |= {alias.asname or alias.name: node.module or "" for alias in node.names}
    return found


def _of_function(node: ast.FunctionDef, modules: Mapping[str, str], before: Mapping[str, Found]) -> Found | None:
    """What one function says, with the functions `before` it; None for one that returns no configuration."""
    known, fields, made = _lines(node)
    if isinstance(made, ast.Name):
        made = known.get(made.id)
    if not isinstance(made, ast.Call):
        return None
    called = ast.unparse(made.func)
    settings: dict[str, Any] = {}
    base = ""
    if called.endswith("Trainer.Config"):
        _keywords(made, "", known, modules, settings)
    elif called in before:
        settings, base = dict(before[called].settings), before[called].base
    elif isinstance(made.func, ast.Name) and (module := _module(modules.get(called, ""))):
        base = f"{module} {called}"
    else:
        return None
    for key, value in fields.items():
        _value(key, value, known, modules, settings)
    return Found(settings=settings, base=base, name=node.name)


def _lines(node: ast.FunctionDef) -> tuple[dict[str, ast.expr], dict[str, ast.expr], ast.expr | None]:
    """Of a function: what its names are set to, what fields of them are set to, and what it returns."""
    names: dict[str, ast.expr] = {}
    fields: dict[str, ast.expr] = {}
    made: ast.expr | None = None
    for line in node.body:
        if isinstance(line, ast.Assign) and len(line.targets) == 1:
            target = line.targets[0]
            if isinstance(target, ast.Name):
                names[target.id] = line.value
            elif isinstance(target, ast.Attribute):
                fields[ast.unparse(target).partition(".")[2]] = line.value
        elif isinstance(line, ast.Return):
            made = line.value
    return names, fields, made


def _module(path: str) -> str:
    """`llama3` of `torchtitan.models.llama3.config_registry`; empty for a path that is none of torchtitan's registries."""
    steps = path.removesuffix(".config_registry").split(".")
    return ".".join(steps[2:]) if steps[:1] == ["torchtitan"] and len(steps) > 2 else ""


Known = Mapping[str, ast.expr]


def _keywords(call: ast.Call, before: str, known: Known, modules: Mapping[str, str], into: dict[str, Any]) -> None:
    for word in call.keywords:
        if word.arg is not None:
            _value(f"{before}{word.arg}", word.value, known, modules, into)


def _value(key: str, value: ast.expr, known: Known, modules: Mapping[str, str], into: dict[str, Any]) -> None:
    """Note what one keyword is set to: a literal, or a call with keywords of its own. Raises ValueError for too many."""
    if len(into) > MOST:
        raise ValueError(f"more than {MOST} settings")
    if isinstance(value, ast.Name) and value.id in known:
        value = known[value.id]
    if not isinstance(value, ast.Call):
        into[key] = _literal(value)
        return
    called = ast.unparse(value.func)
    if called == "model_registry":
        flavor = _literal(value.args[0]) if value.args else "?"
        into[key] = f"{_module(modules.get(called, ''))} {flavor}".strip()
        _keywords(value, "", known, modules, into)
        return
    if called.removesuffix(".Config") != SECTIONS.get(key):
        into[key] = called.removesuffix(".Config")
    _keywords(value, f"{key}.", known, modules, into)


def _literal(value: ast.expr) -> Any:
    """A literal as it is; anything else as it is written."""
    try:
        found = ast.literal_eval(value)
    except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
        if isinstance(value, ast.List):
            return [ast.unparse(one).replace(".Config(", "(") for one in value.elts]
        return ast.unparse(value)
    return list(found) if isinstance(found, tuple) else found


def flags(text: str, name: str) -> Found:
    """What a command line says: `--module llama3 --config llama3_8b --training.seq_len 8192`. Raises BadScenario."""
    try:
        words = shlex.split(text.replace("\\\n", " "), comments=True)
    except ValueError as error:
        raise BadScenario(f"{name}: not readable as a command line ({error})") from None
    began = next((at for at, word in enumerate(words) if word.endswith(STARTS)), -1)
    named = dict(word.split("=", 1) for word in words[: max(began, 0)] if word.startswith(("MODULE=", "CONFIG=")))
    words = words[began + 1 :]
    settings: dict[str, Any] = {}
    key = ""
    for word in words:
        if word.startswith("--") and len(word) > 2:
            key, equals, value = word[2:].partition("=")
            key = key.replace("-", "_")
            settings[key] = _of_flag(value) if equals else True
        elif ":" in word and word.partition(":")[0] == "activation_checkpoint":
            settings["activation_checkpoint"], key = POLICIES.get(word.partition(":")[2], word), ""
        elif key and settings[key] is True:
            settings[key] = _of_flag(word)
    module, config = (settings.pop(one.lower(), named.get(one, "")) for one in ("MODULE", "CONFIG"))
    base = f"{module} {config}".strip()
    if not settings and not base:
        raise BadScenario(f"{name}: no flags in it, as in --module llama3 --config llama3_8b --training.seq_len 8192")
    negated = {one: not value for one, value in settings.items() if isinstance(value, bool) and _negated(one) != one}
    plain = {one: value for one, value in settings.items() if one not in negated}
    return Found(settings=plain | {_negated(one): value for one, value in negated.items()}, base=base)


STARTS = ("torchtitan.train", "train.py", "run_train.sh")
"""Words behind which the flags are torchtitan's own; before the last of them `MODULE=` and `CONFIG=` stand as variables."""
POLICIES = {"selective": "SelectiveAC", "full": "FullAC", "memory-budget": "MemoryBudgetAC", "none": None}
"""Words of the command line → classes of activation checkpointing."""


def _negated(key: str) -> str:
    """`training.disable_x` of `training.no_disable_x`: how switches are turned off."""
    section, _, last = key.rpartition(".")
    return f"{section}.{last.removeprefix('no_')}" if section else key


def _of_flag(word: str) -> Any:
    """The value of a flag: a number, a truth, nothing, or the text itself."""
    plain = {"True": True, "true": True, "False": False, "false": False, "None": None}
    if word in plain:
        return plain[word]
    for kind in (int, float):
        try:
            return kind(word)
        except ValueError:
            continue
    return word


@functools.cache
def _registry() -> dict[str, dict[str, Any]]:
    """What the functions of torchtitan 0.3.0's registries say, by module and name."""
    found: dict[str, dict[str, Any]] = {}
    text = (files("shardmeter.data") / "torchtitan_configs.csv").read_text(encoding="utf-8")
    for row in csv.DictReader(text.splitlines()):
        found.setdefault(f"{row['module']} {row['config']}", {})[row["key"]] = ast.literal_eval(row["value"])
    return found


def base_of(found: Found) -> Mapping[str, Any] | None:
    """What the function that a text begins with says; None where it is none of torchtitan's."""
    return _registry().get(found.base) if found.base else {}
