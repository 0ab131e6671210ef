"""Inline parts of a scenario — accelerator, fabric, stack, model — as pydantic models made from the records themselves.

A field added to a record can be overridden in a scenario at once, in its own unit, with its own description.
"""

from __future__ import annotations

import ast
import inspect
import re
from dataclasses import fields
from types import GenericAlias
from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, create_model

from shardmeter.scenario.bounds import bound
from shardmeter.scenario.rows import DIMENSIONS
from shardmeter.scenario.values import Name, choice, int_field, number_field, refused
from shardmeter.specs import course, model, stack

DTYPES = ("fp32", "tf32", "fp16", "bf16", "fp8", "fp4")
"""Number formats of the contract."""
CHOICES: dict[tuple[str, str], tuple[str, ...]] = {
    **{("Model", field): words for field, words in model.WORDS.items()},
    ("Failures", "per"): course.PER,
    **{("Stack", field): words for field, words in stack.WORDS.items()},
}
FORBID = ConfigDict(extra="forbid", frozen=True)
"""Unknown keys are errors; what was read does not change."""


_MADE: dict[type[Any], type[BaseModel]] = {}


def inline(record: type[Any]) -> type[BaseModel]:
    """The model of an inline part: every field of the record, optional, and `base`, a catalog name it starts from."""
    if record in _MADE:
        return _MADE[record]
    notes = _descriptions(record)
    base = Field(default=None, description="Catalog name that fills every field left out.")
    made: dict[str, Any] = {"base": (str | None, base)}
    for name in (field.name for field in fields(record)):
        kind = _kind(record, name, record.__annotations__[name])
        made[name] = (kind | None, Field(default=None, description=notes.get(name) or name.replace("_", " ")))
    _MADE[record] = create_model(f"Inline{record.__name__}", __config__=FORBID, __doc__=inspect.getdoc(record), **made)
    return _MADE[record]


def _some(value: tuple[str, ...]) -> tuple[str, ...]:
    if not value:
        raise refused("the list is empty", "name one at least, or leave it out")
    return value


def _kind(record: type[Any], name: str, annotation: str) -> Any:
    """The annotated field type for a record's annotation, as written there."""
    words = CHOICES.get((record.__name__, name))
    if words and annotation == "tuple[str, ...]":
        return Annotated[GenericAlias(tuple, (choice(words), ...)), AfterValidator(_some)]
    if words:
        return choice(words)
    plain = annotation.replace(" | None", "")
    if plain == "Model":
        return Name | dict[str, Any]
    if plain in DIMENSIONS:
        return number_field(DIMENSIONS[plain], bound(name, DIMENSIONS[plain]))
    simple: dict[str, Any] = {
        "int": int_field(bound(name, "count")),
        "bool": bool,
        "str": Name,
        "tuple[str, ...]": tuple[Name, ...],
    }
    if plain in simple:
        return simple[plain]
    key: Any
    value: Any
    share: Any
    if plain == "Mapping[str, tuple[float, float]]":
        key, share = choice(stack.WORDS["attention"]), number_field("fraction", bound(name, "fraction"))
        value = GenericAlias(tuple, (share, share))
        return dict[key, value]
    inner = re.fullmatch(r"Mapping\[str, (\w+)\]", plain)
    if inner and inner.group(1) in DIMENSIONS:
        key, value = choice(DTYPES), number_field(DIMENSIONS[inner.group(1)], bound(name, DIMENSIONS[inner.group(1)]))
        return dict[key, value]
    raise TypeError(f"{record.__name__}.{name}: no field type for {annotation}")


def _descriptions(record: type[Any]) -> dict[str, str]:
    """The text under each field of a record's source; empty where the source is not there."""
    try:
        tree = ast.parse(inspect.getsource(inspect.getmodule(record) or record))
    except (OSError, SyntaxError):
        return {}
    notes: dict[str, str] = {}
    for found in tree.body:
        if isinstance(found, ast.ClassDef) and found.name == record.__name__:
            for field, after in zip(found.body, found.body[1:], strict=False):
                if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name):
                    notes[field.target.id] = _text(after)
    return notes


def _text(node: ast.stmt) -> str:
    """The text of a statement that is nothing but text, on one line; else nothing."""
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
        return " ".join(node.value.value.split())
    return ""
