"""Types of scenario fields: each reads text with its unit into plain SI floats, or says what is wrong and the way out."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Annotated, Any, TypeAlias

from pydantic import (
    AfterValidator,
    AliasChoices,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationInfo,
    WithJsonSchema,
    field_validator,
)
from pydantic_core import PydanticCustomError

from shardmeter.core.errors import BadQuantity, BadScenario, nearest
from shardmeter.core.quantity import EXAMPLES, counted, price, quantity
from shardmeter.scenario.grammar import parse_plan

_GPUS = re.compile(r"\s*([0-9][0-9_.]*[kK]?)\s*[xX×*]\s*(\S.*?)\s*")


def refused(says: str, way_out: str = "", rule: str = "", kind: str = "value") -> PydanticCustomError:
    """The error of one field; its parts come back as a Violation."""
    return PydanticCustomError(kind, "{says}", {"says": says, "way_out": way_out, "rule": rule})


def not_modelled(what: str, way_out: str = "") -> PydanticCustomError:
    """The refusal of a word or field of the contract that this version does not model yet."""
    return refused(f"{what} is not modelled yet", way_out, kind="not_modelled")


def _read(value: Any, dimension: str) -> float:
    try:
        return quantity(value, dimension)
    except BadQuantity as error:
        raise refused(error.message) from None


def _number(dimension: str, *, least: float = 0.0, whole: bool = False) -> Callable[[Any], float]:
    def read(value: Any) -> float:
        number = _read(value, dimension)
        if whole and number != round(number):
            raise refused(f"{number:g} is no whole number", f"{max(least, round(number)):g}")
        if number < least:
            raise refused(f"{number:g} is too small", f"at least {least:g}")
        if number == 0.0 and dimension in ("bandwidth", "size", "flops_rate", "power", "ratio", "money"):
            raise refused("0 makes no sense here", f"write it like {EXAMPLES[dimension]}")
        return number

    return read


def number_field(dimension: str, *, least: float = 0.0, whole: bool = False) -> Any:
    """The annotated type of a number of one dimension: text with a unit in, an SI float out."""
    bare = dimension in ("count", "ratio", "fraction")
    example = EXAMPLES[dimension].replace(" or ", ", ").split(", ")
    kinds = ["string", "number"] if bare else ["string"]
    schema = {"type": kinds, "examples": example}
    return Annotated[float, BeforeValidator(_number(dimension, least=least, whole=whole)), WithJsonSchema(schema)]


def _as_int(value: float) -> int:
    return int(value)


Whole: TypeAlias = Annotated[
    float,
    BeforeValidator(_number("count", least=1.0, whole=True)),
    WithJsonSchema({"type": ["integer", "string"], "minimum": 1, "examples": [8, "4M"]}),
]
"""A positive whole number, as a float."""
WholeInt: TypeAlias = Annotated[
    int,
    BeforeValidator(lambda value: _as_int(_number("count", least=1.0, whole=True)(value))),
    WithJsonSchema({"type": ["integer", "string"], "minimum": 1}),
]
"""A positive whole number that sets the length of an axis, as an int."""
Duration: TypeAlias = Annotated[
    float, BeforeValidator(_number("time")), WithJsonSchema({"type": "string", "examples": ["40 ms", "30 d"]})
]
"""Seconds, written with a unit."""

OverSubscription: TypeAlias = Annotated[
    float, BeforeValidator(_number("ratio", least=1.0)), WithJsonSchema({"type": "number", "minimum": 1})
]
"""A ratio of 1 or more."""


def _price(value: Any) -> tuple[float, str]:
    try:
        return price(value)
    except BadQuantity as error:
        raise refused(error.message) from None


Price: TypeAlias = Annotated[
    tuple[float, str],
    BeforeValidator(_price),
    WithJsonSchema({"type": "string", "examples": ["$2.10/gpu/h", "$98.32/node/h"]}),
]
"""(USD/s, per "gpu" or "node")."""


def _counted(words: tuple[str, ...]) -> Callable[[Any], tuple[float, str]]:
    def read(value: Any) -> tuple[float, str]:
        try:
            number, word = counted(value)
        except BadQuantity as error:
            raise refused(error.message) from None
        if word not in ("", *words):
            raise refused(f"{word} where {' or '.join(words)} belong", f"write it in {words[0]}")
        if number < 1.0:
            raise refused(f"{number:g} {word or words[0]} is too small", "at least 1")
        return number, word or words[0]

    return read


_COUNTED_SCHEMA = WithJsonSchema({"type": ["number", "string"], "examples": [1024, "8M tokens", "1.5T"]})
Batch: TypeAlias = Annotated[tuple[float, str], BeforeValidator(_counted(("sequences", "tokens"))), _COUNTED_SCHEMA]
"""(count, "sequences" or "tokens")."""
Tokens: TypeAlias = Annotated[tuple[float, str], BeforeValidator(_counted(("tokens",))), _COUNTED_SCHEMA]
Steps: TypeAlias = Annotated[tuple[float, str], BeforeValidator(_counted(("steps",))), _COUNTED_SCHEMA]


def _gpus(value: Any) -> tuple[float, str]:
    match = _GPUS.fullmatch(value) if isinstance(value, str) and len(value) < 200 else None
    if match is None:
        raise refused(f"{str(value)[:60]!r} is no NxNAME", "as in 64xH100-SXM5-80GB")
    return _number("count", least=1.0, whole=True)(match.group(1)), match.group(2)


Gpus: TypeAlias = Annotated[
    tuple[float, str],
    BeforeValidator(_gpus),
    WithJsonSchema({"type": "string", "examples": ["64xH100-SXM5-80GB"]}),
]
"""(accelerators, accelerator name)."""


def _auto(value: Any) -> float | str:
    return "auto" if value == "auto" else _number("count", least=1.0, whole=True)(value)


AutoWhole: TypeAlias = Annotated[
    float | str, BeforeValidator(_auto), WithJsonSchema({"type": ["integer", "string"], "examples": ["auto", 8]})
]
"""A positive whole number, or "auto"."""


def check_word(value: str, words: tuple[str, ...], planned: tuple[str, ...] = (), what: str = "") -> str:
    """The word itself, if it is one of `words`; `planned` words are refused as not modelled yet, others with the nearest."""
    if value in words:
        return value
    if value in planned:
        raise not_modelled(f"{what} {value}".strip(), f"use {', '.join(words)}")
    close = nearest(value, (*words, *planned), 1)
    raise refused(f"unknown word {value[:40]!r}", f"did you mean {close[0]!r}?", rule=f"one of {', '.join(words)}")


def choice(words: tuple[str, ...]) -> Any:
    """The annotated type of a closed vocabulary."""
    check = AfterValidator(lambda value: check_word(value, words))
    return Annotated[str, check, WithJsonSchema({"enum": list(words)})]


def _recompute(value: Any) -> str:
    if isinstance(value, list):
        raise not_modelled("recompute of single operations", "use none, selective, full or every-K")
    if not isinstance(value, str):
        raise refused(f"{value!r:.40} is no policy", "use none, selective, full or every-K")
    match = re.fullmatch(r"every-([0-9]{1,6})", value)
    if value in ("none", "selective", "full") or (match and int(match.group(1)) >= 1):
        return value
    close = "every-2" if value.startswith("every") else nearest(value, ("none", "selective", "full"), 1)[0]
    raise refused(f"unknown word {value[:40]!r}", f"did you mean {close!r}?", rule="none, selective, full or every-K")


Recompute: TypeAlias = Annotated[
    str,
    BeforeValidator(_recompute),
    WithJsonSchema({"type": "string", "pattern": "^(none|selective|full|every-[1-9][0-9]*)$"}),
]
"""none, selective, full or every-K."""


def plan_line(value: Any) -> Any:
    """A one-line plan as the mapping it stands for; anything else as it is."""
    if not isinstance(value, str):
        return value
    if value.split(",")[0].strip() == "auto":
        raise refused(
            "plan auto needs the planner, which is not built yet", "name a plan, e.g. fsdp", kind="not_modelled"
        )
    try:
        return parse_plan(value)
    except BadScenario as error:
        says = "; ".join(f"{v.says} ({v.rule})" if v.rule else v.says for v in error.violations) or error.message
        outs = "; ".join(v.way_out for v in error.violations if v.way_out)
        raise refused(says, outs) from None


def said(
    description: str,
    *,
    words: tuple[str, ...] = (),
    planned: tuple[str, ...] = (),
    only: Any = None,
    aliases: tuple[str, ...] = (),
) -> Any:
    """An optional field with its description and, where it has one, its vocabulary.

    `words` are legal, `planned` belong to the contract but are refused as not modelled yet; `only` is the one value modelled
    so far ("nothing" = the field must be left out). `aliases` are other spellings, the field's own name first.
    """
    extra: dict[str, Any] = {}
    if words:
        extra["enum"] = list(words)
    if planned:
        extra["x-not-modelled-yet"] = list(planned)
    if only is not None:
        extra["x-only"] = only
    alias = AliasChoices(*aliases) if aliases else None
    return Field(default=None, description=description, json_schema_extra=extra, validation_alias=alias)


class Input(BaseModel):
    """Base of every part of a scenario: unknown keys are errors, nothing changes after reading, words are checked."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    @field_validator("*", mode="before")
    @classmethod
    def _vocabulary(cls, value: Any, info: ValidationInfo) -> Any:
        """Refuse unknown words, and words and values that are not modelled yet."""
        extra = cls.model_fields[info.field_name or ""].json_schema_extra
        if value is None or not isinstance(extra, dict):
            return value
        name = str(info.field_name)
        allowed = extra.get("x-only")
        if allowed is not None and not (value == allowed or (allowed == "nothing" and value in ([], {}, "none"))):
            shown = (
                "a list" if isinstance(value, list) else "a mapping" if isinstance(value, dict) else f"{value!r:.40}"
            )
            raise not_modelled(
                f"{name} = {shown}", "leave it out" if allowed == "nothing" else f"leave it at {allowed}"
            )
        words = extra.get("enum")
        if isinstance(words, list) and isinstance(value, str):
            check_word(value, tuple(map(str, words)), tuple(map(str, extra.get("x-not-modelled-yet") or ())), name)  # type: ignore[arg-type]
        return value
