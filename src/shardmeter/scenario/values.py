"""Types of scenario fields: each reads text with its unit into plain SI floats, or says what is wrong and the way out."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias

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

from shardmeter.core.errors import BadQuantity, BadScenario, UnknownName, nearest, printable, shown
from shardmeter.core.files import LONGEST_PATH
from shardmeter.core.quantity import BOUNDS, EXAMPLES, counted, price, quantity
from shardmeter.scenario.bounds import GPUS, ISLANDS, STAGES, Bound, broken
from shardmeter.scenario.grammar import names_several, no_gpus, parse_plan
from shardmeter.scenario.read import SUFFIXES
from shardmeter.specs.plan import AXES
from shardmeter.strategies.adapters import NOTHING, trained
from shardmeter.strategies.offload import KINDS as OFFLOADS
from shardmeter.strategies.recompute import OPERATIONS

_GPUS = re.compile(r"\s*([0-9][0-9_.]*[kK]?)\s*[xX×*]\s*(\S.*?)\s*")


def refused(says: str, way_out: str = "", rule: str = "", kind: str = "value") -> PydanticCustomError:
    """The error of one field; its parts come back as a Violation."""
    parts = {"says": printable(says), "way_out": printable(way_out), "rule": printable(rule)}
    return PydanticCustomError(kind, "{says}", parts)


def not_modelled(what: str, way_out: str = "") -> PydanticCustomError:
    """The refusal of a word or field of the contract that this version does not model yet."""
    return refused(f"{what} is not modelled yet", way_out, kind="not_modelled")


def _number(dimension: str, limits: Bound, words: tuple[str, ...] = ()) -> Callable[[Any], float]:
    def read(value: Any) -> float:
        try:
            number = quantity(value, dimension, words)
        except BadQuantity as error:
            nothing = limits.least > 0.0 and re.fullmatch(r"0+(\.0*)?", str(value).strip())
            raise refused(f"0 makes no sense here: {error.message}" if nothing else error.message) from None
        if number == 0.0 and limits.least > 0.0 and dimension not in BARE:
            raise refused("0 makes no sense here", f"write it like {EXAMPLES[dimension]}")
        says, way_out = broken(number, limits)
        if says:
            raise refused(says, way_out)
        return number

    return read


BARE = ("count", "ratio", "fraction")
"""Dimensions whose numbers carry no unit."""


def number_field(dimension: str, limits: Bound) -> Any:
    """The annotated type of a number of one dimension: text with a unit in, an SI float out."""
    bare = dimension in BARE
    example = EXAMPLES[dimension].replace(" or ", ", ").split(", ")
    kinds = ["string", "number"] if bare else ["string"]
    schema: dict[str, Any] = {"type": kinds, "examples": example}
    if bare:
        schema |= {"minimum": limits.least, "maximum": limits.most}
    return Annotated[float, BeforeValidator(_number(dimension, limits)), WithJsonSchema(schema)]


def _whole(most: float, *words: str) -> Any:
    """The annotated type of a positive whole number, as a float; `words` may follow it."""
    schema = {"type": ["integer", "string"], "minimum": 1, "maximum": most, "examples": [8, "4M"]}
    return Annotated[float, BeforeValidator(_number("count", Bound(1, most, True), words)), WithJsonSchema(schema)]


def int_field(limits: Bound) -> Any:
    """The annotated type of a whole number that sets the length of an axis, as an int."""
    read = _number("count", limits)
    schema = {"type": ["integer", "string"], "minimum": limits.least, "maximum": limits.most}
    return Annotated[int, BeforeValidator(lambda value: int(read(value))), WithJsonSchema(schema)]


MOST_AHEAD = 64.0
"""Micro-batches that may be held ahead of one boundary."""

if TYPE_CHECKING:
    Ahead: TypeAlias = float
    Degree: TypeAlias = float
    Nodes: TypeAlias = float
    PerNode: TypeAlias = float
    Sequences: TypeAlias = float
    SeqLen: TypeAlias = float
    Stages: TypeAlias = int
    Copies: TypeAlias = int
    Loss: TypeAlias = float
else:
    Degree, Nodes, PerNode = _whole(GPUS), _whole(GPUS), _whole(1e4)
    Sequences, SeqLen = _whole(1e9, "sequences"), _whole(1e9, "tokens")
    Stages, Copies = int_field(Bound(1, STAGES, True)), int_field(Bound(1, ISLANDS, True))
    Loss = number_field("ratio", Bound(0.01, 100.0))
    Ahead = number_field("count", Bound(0.0, MOST_AHEAD, True))
Duration: TypeAlias = Annotated[
    float,
    BeforeValidator(_number("time", Bound(0.0, BOUNDS["time"][1]))),
    WithJsonSchema({"type": "string", "examples": ["40 ms", "30 d"]}),
]
"""Seconds, written with a unit."""

Deadline: TypeAlias = Annotated[
    float,
    BeforeValidator(_number("time", Bound(1e-9, BOUNDS["time"][1]))),
    WithJsonSchema({"type": "string", "examples": ["30 d", "36 h"]}),
]
"""Seconds of a run at most, written with a unit: more than none."""

Money: TypeAlias = Annotated[
    float,
    BeforeValidator(_number("money", Bound(*BOUNDS["money"]))),
    WithJsonSchema({"type": "string", "examples": ["$2M", "$80,000"]}),
]
"""US dollars."""
OBJECTIVES = ("time", "cost", "throughput", "energy")
"""What a planner looks for: least time, least cost, most tokens a second, least energy."""
_MEANT = {
    **dict.fromkeys(("speed", "tokens", "tokens_per_s", "tokens_per_second", "tps", "rate", "mfu"), "throughput"),
    **dict.fromkeys(("price", "money", "usd", "budget", "rent", "cheap"), "cost"),
    **dict.fromkeys(("duration", "latency", "step", "step_time", "wall_clock", "deadline", "fast"), "time"),
    **dict.fromkeys(("power", "kwh", "joules", "watts"), "energy"),
}
"""Other words for an objective, which are hinted at and not taken."""


def objectives_near(word: str) -> tuple[str, ...]:
    """The objectives that a word may mean, the likeliest first."""
    plain = word.strip().lower().replace("-", "_").replace("/", "_per_").replace(" ", "_")
    return tuple(dict.fromkeys((*filter(None, [_MEANT.get(plain)]), *nearest(word, OBJECTIVES))))[:3]


def _objectives(value: Any) -> tuple[str, ...]:
    asked = [value] if isinstance(value, str) else value
    if not isinstance(asked, list) or not asked or not all(isinstance(one, str) for one in asked):
        raise refused(f"{shown(value, 40)} is no objective", f"{', '.join(OBJECTIVES)}, or a list of them")
    words = [word.strip() for one in asked for word in one.split(",")]
    unknown = [word for word in dict.fromkeys(words) if word not in OBJECTIVES]
    if len(unknown) == 1:
        says = f"unknown word {shown(unknown[0], 40)}"
        raise refused(says, meant(objectives_near(unknown[0])), rule=f"one of {', '.join(OBJECTIVES)}")
    if unknown:
        close = dict.fromkeys(objectives_near(word)[0] for word in unknown)
        says = f"unknown words {', '.join(shown(word, 40) for word in unknown[:6])}"
        raise refused(says, f"did you mean {' and '.join(close)}?", rule=f"one or several of {', '.join(OBJECTIVES)}")
    return tuple(dict.fromkeys(words))


Objectives: TypeAlias = Annotated[
    tuple[str, ...],
    BeforeValidator(_objectives),
    WithJsonSchema(
        {"anyOf": [{"enum": list(OBJECTIVES)}, {"type": "array", "minItems": 1, "items": {"enum": list(OBJECTIVES)}}]}
    ),
]
"""One or several of `OBJECTIVES`, the first being that by which plans are ordered."""

OverSubscription: TypeAlias = Annotated[
    float, BeforeValidator(_number("ratio", Bound(1.0, 1e3))), WithJsonSchema({"type": "number", "minimum": 1})
]
"""A ratio of 1 or more."""

Bandwidth: TypeAlias = Annotated[
    float,
    BeforeValidator(_number("bandwidth", Bound(*BOUNDS["bandwidth"]))),
    WithJsonSchema({"type": "string", "examples": ["10 Gbps", "1.25 GB/s"]}),
]
"""Bytes per second, above zero."""
Size: TypeAlias = Annotated[
    float,
    BeforeValidator(_number("size", Bound(*BOUNDS["size"]))),
    WithJsonSchema({"type": "string", "examples": ["4 MiB"]}),
]
"""Bytes, above zero."""
Distance: TypeAlias = Annotated[
    float,
    BeforeValidator(_number("length", Bound(0.0, 4e7))),
    WithJsonSchema({"type": "string", "examples": ["80 km"]}),
]
"""Metres, at most once round the Earth."""
Traffic: TypeAlias = Annotated[
    float,
    BeforeValidator(_number("egress", Bound(0.0, BOUNDS["egress"][1]))),
    WithJsonSchema({"type": "string", "examples": ["$0.02/GB"]}),
]
"""US dollars a byte."""


def number(dimension: str, least: float, most: float, *, whole: bool = False) -> Any:
    """The annotated type of a bare number between two others."""
    return number_field(dimension, Bound(least, most, whole))


Skew: TypeAlias = Annotated[
    float, BeforeValidator(_number("ratio", Bound(1.0, 1e4))), WithJsonSchema({"type": "number", "minimum": 1})
]
"""The busiest over the mean: 1 or more."""

LONGEST_NAME = 200
"""Characters of a name that is no file's."""


def _named(value: str) -> str:
    most = LONGEST_PATH if value.lower().endswith(SUFFIXES) else LONGEST_NAME
    if len(value) > most:
        raise refused(f"a name of {len(value)} characters", f"at most {most}")
    return printable(value.strip())


Name: TypeAlias = Annotated[str, AfterValidator(_named)]
"""A name that appears in answers: never a control character in it."""


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
        if number != round(number) and word in ("", "sequences", "steps") and words[0] != "tokens":
            raise refused(f"{number:g} {word or words[0]} is no whole number", f"use {round(number):g}")
        return number, word or words[0]

    return read


_COUNTED_SCHEMA = WithJsonSchema({"type": ["number", "string"], "examples": [1024, "8M tokens", "1.5T"]})
Batch: TypeAlias = Annotated[tuple[float, str], BeforeValidator(_counted(("sequences", "tokens"))), _COUNTED_SCHEMA]
"""(count, "sequences" or "tokens")."""
Tokens: TypeAlias = Annotated[tuple[float, str], BeforeValidator(_counted(("tokens",))), _COUNTED_SCHEMA]
Steps: TypeAlias = Annotated[tuple[float, str], BeforeValidator(_counted(("steps",))), _COUNTED_SCHEMA]


def _gpus(value: Any) -> tuple[float, str]:
    match = _GPUS.fullmatch(value) if isinstance(value, str) and len(value) < 200 else None
    if match is None or names_several(match.group(2)):
        raise refused(*no_gpus(value))
    return _number("count", Bound(1, GPUS, True))(match.group(1)), match.group(2)


Gpus: TypeAlias = Annotated[
    tuple[float, str],
    BeforeValidator(_gpus),
    WithJsonSchema({"type": "string", "examples": ["64xH100-SXM5-80GB"]}),
]
"""(accelerators, accelerator name)."""


def _auto(value: Any) -> float | str:
    return "auto" if value == "auto" else _number("count", Bound(1, GPUS, True))(value)


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
    raise refused(f"unknown word {shown(value, 40)}", meant(nearest(value, words)), rule=f"one of {', '.join(words)}")


def meant(close: tuple[str, ...]) -> str:
    """The nearest names as a question: the first, then the others."""
    if not close:
        return ""
    others = f" (or {', '.join(close[1:])})" if close[1:] else ""
    return f"did you mean {shown(close[0])}?{others}"


def choice(words: tuple[str, ...]) -> Any:
    """The annotated type of a closed vocabulary."""
    check = AfterValidator(lambda value: check_word(value, words))
    return Annotated[str, check, WithJsonSchema({"enum": list(words)})]


POLICIES = "none, selective, full, every-K, N-of-M, or a list of operations"


def _recompute(value: Any) -> str:
    asked = value.split("+") if isinstance(value, str) else value
    if not isinstance(asked, list) or not asked or not all(isinstance(one, str) for one in asked):
        raise refused(f"{shown(value, 40)} is no policy", f"use {POLICIES}")
    if isinstance(value, list) or len(asked) > 1:
        words = [check_word(one.strip(), tuple(OPERATIONS)) for one in asked]
        return "+".join(word for word in OPERATIONS if word in words)
    if value in ("none", "selective", "full", *OPERATIONS) or re.fullmatch(r"every-0*[1-9][0-9]{0,5}", value):
        return str(value)
    some = re.fullmatch(r"([0-9]{1,6})-of-([0-9]{1,6})", value)
    if some and 1 <= int(some.group(1)) <= int(some.group(2)):
        return str(value)
    close = ("every-2",) if value.startswith("every") else ("5-of-32",) if "of" in value else ()
    raise refused(
        f"unknown word {shown(value, 40)}",
        meant(close or nearest(value, ("none", "selective", "full", *OPERATIONS))),
        rule=POLICIES,
    )


Recompute: TypeAlias = Annotated[
    str,
    BeforeValidator(_recompute),
    WithJsonSchema(
        {
            "anyOf": [
                {"type": "string", "pattern": "^(none|selective|full|every-[1-9][0-9]*|[1-9][0-9]*-of-[1-9][0-9]*)$"},
                {"type": "array", "items": {"enum": list(OPERATIONS)}, "minItems": 1},
            ]
        }
    ),
]
"""none, selective, full, every-K, N-of-M, or operations joined by + in a fixed order."""


def _offload(value: Any) -> tuple[str, ...]:
    asked = [value] if isinstance(value, str) else value
    if value in ("none", []):
        return ()
    if not isinstance(asked, list) or not all(isinstance(one, str) for one in asked):
        raise refused(f"{shown(value, 40)} is no list of {', '.join(OFFLOADS)}", "as in [optimizer]")
    found = [check_word(one, OFFLOADS) for one in asked]
    return tuple(kind for kind in OFFLOADS if kind in found)


Offload: TypeAlias = Annotated[
    tuple[str, ...],
    BeforeValidator(_offload),
    WithJsonSchema({"anyOf": [{"enum": ["none", *OFFLOADS]}, {"type": "array", "items": {"enum": list(OFFLOADS)}}]}),
]
"""What is kept on the host, in a fixed order."""


def _trainable(value: Any) -> str:
    parts = [value] if isinstance(value, str) else value
    if not isinstance(parts, list) or not parts or not all(isinstance(one, str) for one in parts):
        raise refused(f"{shown(value, 40)} says nothing that can be trained", "all, lora(r=16), or [layer, head]")
    text = "+".join(part.strip().replace(" ", "") for part in parts)
    if text == NOTHING:
        raise refused("nothing is trained", "all, lora(r=16), or [layer, head]")
    names = text.split("+")
    alone = next((name for name in names if name == "all" or name.startswith("lora(")), None)
    if alone is not None and len(names) > 1:
        what = "all trains everything" if alone == "all" else f"{alone} freezes all else"
        rule = "all and lora(r=N) stand alone, blocks may be joined"
        raise refused(f"{shown(text, 40)}: {what}, so nothing stands beside it", f"{alone}, or only blocks", rule=rule)
    try:
        trained(text)
    except UnknownName as error:
        rule = "all, lora(r=N), lora(r=N,on=qkv), or a list of embedding, layer, head, layer:FIRST-LAST"
        raise refused(f"unknown word {shown(error.name, 40)}", meant(tuple(error.nearest)), rule=rule) from None
    return text


Trainable: TypeAlias = Annotated[
    str,
    BeforeValidator(_trainable),
    WithJsonSchema({"type": ["string", "array"], "items": {"type": "string"}, "examples": ["lora(r=16)", ["head"]]}),
]
"""all, lora(r=N), or blocks joined by +."""


def _placement(value: Any) -> dict[str, tuple[tuple[str, ...], ...]]:
    if not isinstance(value, dict):
        raise refused(f"{shown(value, 40)} is no placement", "as in {pp: [oregon, iowa]}")
    made: dict[str, tuple[tuple[str, ...], ...]] = {}
    for axis, given in value.items():
        if axis in ("ep", "etp"):
            says = f"{axis}: experts lie over tp, cp and dp_shard, and cross islands with these"
            raise refused(says, "as in {dp_shard: [oregon, iowa]}")
        check_word(axis, AXES)
        if given == "auto":
            if axis != "pp":
                raise refused(f"{axis}: auto: only pp is placed by the planner", "as in {pp: auto}")
            made[axis] = ()
            continue
        cells = [given] if isinstance(given, list | tuple) and any(isinstance(one, str) for one in given) else given
        if not isinstance(cells, list | tuple) or not cells or not all(_is_cell(one) for one in cells):
            raise refused(f"{axis}: {shown(given, 40)} names no islands", f"as in {{{axis}: [oregon, iowa]}}")
        made[axis] = tuple(tuple(printable(name.strip()) for name in cell) for cell in cells)
    return made


def _is_cell(value: Any) -> bool:
    return isinstance(value, list | tuple) and bool(value) and all(isinstance(one, str) for one in value)


_NAMES_SCHEMA = {"type": "array", "items": {"type": "string"}, "minItems": 1}
Placement: TypeAlias = Annotated[
    dict[str, tuple[tuple[str, ...], ...]],
    BeforeValidator(_placement),
    WithJsonSchema(
        {
            "type": "object",
            "propertyNames": {"enum": list(AXES)},
            "additionalProperties": {
                "anyOf": [_NAMES_SCHEMA, {"type": "array", "items": _NAMES_SCHEMA, "minItems": 1}, {"const": "auto"}]
            },
        }
    ),
]
"""The cells of every axis that crosses islands, each the names of its islands in order; none of one that is left open."""


def plan_line(value: Any) -> Any:
    """A one-line plan as the mapping it stands for; anything else as it is."""
    if not isinstance(value, str):
        return value
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
            way_out = "leave it out" if allowed == "nothing" else f"leave it at {allowed}"
            raise not_modelled(f"{name} = {shown(value, 40)}", way_out)
        words = extra.get("enum")
        if isinstance(words, list) and isinstance(value, str):
            check_word(value, tuple(map(str, words)), tuple(map(str, extra.get("x-not-modelled-yet") or ())), name)  # type: ignore[arg-type]
        return value
