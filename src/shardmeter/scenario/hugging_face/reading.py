"""One configuration from its mapping to a `specs.Model`: who reads it, what it did not say, what nobody knows."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from shardmeter.core.errors import BadScenario, Violation, nearest, printable, shown
from shardmeter.families import active_parameters, parameters
from shardmeter.scenario.bounds import bound, broken, model_faults
from shardmeter.scenario.hugging_face import files, keys
from shardmeter.scenario.hugging_face.config import Config
from shardmeter.scenario.hugging_face.report import Report
from shardmeter.specs import Model

NEEDED = ("hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size", "vocab_size")
"""Sizes without which a decoder of an unknown type is not read."""
KEYS = {
    "layers": "num_hidden_layers", "hidden": "hidden_size", "heads": "num_attention_heads", "kv_heads": "num_key_value_heads",
    "ffn": "intermediate_size", "vocab": "vocab_size", "experts": "num_local_experts", "top_k": "num_experts_per_tok",
    "moe_ffn": "moe_intermediate_size", "window": "sliding_window", "context": "max_position_embeddings",
}  # fmt: skip
"""Keys that fields of a model come from: a fault of a field is told at its key."""
TELLING = re.compile(
    r".*expert.*|.*lora_rank|.*ssm.*|mamba.*|.*conv.*|linear_.*|.*vision.*|.*audio.*|.*_config|rwkv.*|index_.*"
)
"""Keys of an unknown type that tell of layers other than Llama's."""

LONGEST = 1023
"""Bits of the largest whole number that is a float for certain."""


@dataclass(frozen=True, slots=True)
class Reading:
    """A configuration that was read: the model it describes (None where something is wrong), and the report."""

    model: Model | None
    report: Report

    def answer(self) -> dict[str, Any]:
        """The model with its counts, and the report, as plain data. Only where there is a model."""
        model, report = self.model, self.report
        if model is None:
            raise ValueError("nothing was read")
        return {
            "source": report.source,
            "model_type": report.kind,
            "model": {
                "name": model.name, "parameters": parameters(model), "active_parameters": active_parameters(model),
                "fields": _fields_said(model),
            },
            "understood": report.understood,
            "assumed": {key: {"value": value, "why": why} for key, (value, why) in report.assumed.items()},
            "ignored": {group: list(found) for group, found in report.ignored.items()},
            "unknown": list(report.unknown),
            "notes": report.notes,
            "assumptions": [sentence for sentence in (report.sentence(), *report.notes) if sentence],
            "warnings": report.warnings,
        }  # fmt: skip


def _fields_said(model: Model) -> dict[str, Any]:
    """Fields of a model that differ from what a model has that says nothing: keys of a scenario's `model:`."""
    usual = {field.name: field.default for field in fields(Model)}
    found = {}
    for name, default in usual.items():
        value = getattr(model, name)
        if name not in ("name", "source", "retrieved", "parameters") and value != default:
            found[name] = _fields_said(value) if isinstance(value, Model) else value
    return found


def open_model(path: Path) -> Reading:
    """The model of a config.json, or of a folder that holds one. Raises BadScenario with every violation."""
    from shardmeter.scenario.read import read_file

    file = files.configuration(path)
    document = read_file(file, f"a {files.CONFIG}", files.LEAST)
    found = read(document.data, files.model_name(document.data, file), str(file))
    if found.model is None:
        bad = [_placed(one, document.where(tuple(one.field.split(".")))) for one in found.report.violations]
        count = "1 problem" if len(bad) == 1 else f"{len(bad)} problems"
        raise BadScenario(f"{file}: {count}", bad)
    return found


def _placed(violation: Violation, where: str) -> Violation:
    from shardmeter.core.record import changed

    return changed(violation, where=where)


def read(data: Mapping[str, Any], name: str, source: str) -> Reading:
    """The model that a configuration describes."""
    report = Report(source=source)
    refuse = report.violations.append
    is_other = files.other(data)
    if is_other:
        refuse(Violation(field="", says=f"this is {is_other}"))
        return Reading(None, report)
    kind, reader = _reader(data, report)
    if reader is None:
        return Reading(None, report)
    c = Config(data, kind, report)
    c.asked.add("model_type")
    report.kind = kind
    for where, value in _endless(data, ()):
        refuse(Violation(field=where, says=f"{shown(value)} is beyond reason", way_out="a number below 1e308"))
    made = {} if report.violations else _fields(reader, c)
    _say_the_rest(c, report)
    _check(made, c)
    if report.violations:
        return Reading(None, report)
    return Reading(Model(name=printable(name), source=source, **made), report)


def _endless(value: Any, path: tuple[str, ...]) -> Iterator[tuple[str, int]]:
    """Whole numbers anywhere in a file that no float holds, with where they stand: arithmetic with one would fail."""
    if isinstance(value, Mapping):
        for key, item in value.items():
            yield from _endless(item, (*path, str(key)))
    elif isinstance(value, list):
        for place, item in enumerate(value):
            yield from _endless(item, (*path, str(place)))
    elif isinstance(value, int) and value.bit_length() > LONGEST:
        yield ".".join(path), value


def _fields(reader: Any, c: Config) -> dict[str, Any]:
    """What a reader makes of a config; nothing where a fault that is noted already broke it."""
    try:
        found: dict[str, Any] = reader(c)
    except (ArithmeticError, ValueError, TypeError, KeyError):
        if not c.report.violations:
            raise
        return {}
    return found


def _reader(data: Mapping[str, Any], report: Report) -> tuple[str, Any]:
    """The model type and what reads it; None after noting why nothing does."""
    from shardmeter.scenario.hugging_face import types

    said, known = data.get("model_type"), types.readers()
    refuse = report.violations.append
    if said is None and isinstance(data.get("_class_name"), str):
        return _of_diffusers(str(data["_class_name"]), report)
    if said is not None and not isinstance(said, str):
        refuse(Violation(field="model_type", says=f"{shown(said)} is no name of a model type"))
        return "", None
    kind = said or types.by_architecture(data)
    found = types.named(data, kind)
    if found and not said:
        report.assume("model_type", found, "by its architecture" if kind else "by its keys")
    if found in known:
        return found, known[found]
    return _unknown(data, kind, report)


def _of_diffusers(name: str, report: Report) -> tuple[str, Any]:
    from shardmeter.scenario.hugging_face import refused, types

    found = types.readers().get(name)
    if found is None:
        says = f"{shown(name)} is not modelled: {refused.class_reason(name)}"
        report.violations.append(Violation(field="_class_name", says=says))
    return name, found


def _unknown(data: Mapping[str, Any], kind: str, report: Report) -> tuple[str, Any]:
    """A type that no table has: refused with its reason, or read as a Llama where the file tells all sizes of one."""
    from shardmeter.scenario.hugging_face import refused, types

    why = refused.reason(kind)
    close = ", ".join(nearest(kind, types.readers())) if kind else ""
    probe = Config(data, "", Report(source=""))
    lacking = [key for key in NEEDED if key not in probe]
    named = data.get("architectures")
    causal = isinstance(named, list) and bool(named) and isinstance(named[0], str) and named[0].endswith("ForCausalLM")
    telling = [
        key
        for key in data
        if TELLING.fullmatch(key) and not keys.group(key) and data[key] not in (None, False, 0, [], {})
    ]
    way_out = "write its sizes as a model (docs/scenario.md) if a family has its layers"
    if why:
        says = f"{shown(kind)} is not modelled: {why}"
    elif not kind:
        says, way_out = "is missing, and no architecture tells it", '"model_type": "llama", say'
    elif types.in_library(kind):
        says = f"{shown(kind)} is a model type of the library whose layers no reader here knows; the nearest that are: {close}"
    elif not lacking and causal and not telling:
        report.warnings.append(
            f"model type {shown(kind)} is unknown: read as a decoder with Llama's layers (gated MLP, RMS norms, rotations), which "
            f"is assumed, not known; the nearest types are {close}"
        )
        return kind, types.readers()["llama"]
    else:
        because = (
            f"it has {', '.join(telling[:4])}"
            if telling
            else f"{', '.join(lacking)} missing"
            if lacking
            else "no …ForCausalLM"
        )
        says = f"unknown model type {shown(kind)} ({because}: not to be read as a Llama); the nearest are: {close}"
    report.violations.append(Violation(field="model_type", says=says, way_out=way_out))
    return kind, None


def _say_the_rest(c: Config, report: Report) -> None:
    """Sort the keys that nobody asked for: ignored by group, known to the class, or unknown."""
    ignored: dict[str, list[str]] = {}
    unknown: list[str] = []
    doubtful: list[str] = []
    for part in (c, *report.parts):
        for key, value in part.data.items():
            label = part.label(key)
            if key in part.asked or label in report.understood:
                continue
            group = keys.group(key)
            if group or key in part.model_class.defaults or key in part.model_class.inside:
                ignored.setdefault(group or "no change of size", []).append(label)
                continue
            unknown.append(label)
            if keys.could_change_shapes(key, value):
                doubtful.append(label)
    report.ignored = {group: tuple(dict.fromkeys(found)) for group, found in ignored.items()}
    report.unknown = tuple(dict.fromkeys(unknown))
    if doubtful and not report.violations:
        listed = ", ".join(printable(key) for key in dict.fromkeys(doubtful))
        report.warnings.append(
            f"{report.source}: nothing here knows the key{'s' if len(doubtful) > 1 else ''} {listed}: if one changes a size, the "
            f"counts are wrong"
        )
    if c.data.get("quantization_config") or c.data.get("compression_config"):
        report.warnings.append(
            f"{report.source}: the checkpoint is quantised ({_method(c.data)}); what is trained is taken to be the dequantised "
            f"weights, in the plan's precision"
        )


def _method(data: Mapping[str, Any]) -> str:
    found = data.get("quantization_config") or data.get("compression_config")
    method = found.get("quant_method") if isinstance(found, Mapping) else None
    return method if isinstance(method, str) and method else "quantization_config"


def _check(made: dict[str, Any], c: Config) -> None:
    """Bounds of every number, and what no model can be; not asked where a fault is noted already."""
    if c.report.violations:
        return
    for name, value in made.items():
        if isinstance(value, float | int) and not isinstance(value, bool):
            says, way_out = broken(float(value), bound(name, "count")) if math.isfinite(value) else ("is no number", "")
            if says:
                c.refuse(_key(c, name), says, way_out)
    if c.report.violations:
        return
    for name, says, way_out in model_faults(made):
        if says:
            c.refuse(_key(c, name), _in_keys(c, says), _in_keys(c, way_out))


def _key(c: Config, field: str) -> str:
    """The key of the file that a field comes from; the field itself where it is made of several."""
    own = c.own(KEYS.get(field, field))
    return own if own in c.data else field


def _in_keys(c: Config, text: str) -> str:
    """A text about fields (kv_heads, top_k) as one about the keys of the file."""
    return re.sub(r"\b[a-z]+_[a-z]+\b", lambda word: _key(c, word[0]) if word[0] in KEYS else word[0], text)
