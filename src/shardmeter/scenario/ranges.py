"""Ranges and lists on one line: `1,2,4`, `1..64`, `1..64:x2`, `1..64:+8`, `1Gbps..400Gbps:log20`, `40 ms..2 s:lin20`,
`none,selective,full`; axes put a field in front: `plan.tp=1,2,4`, or several that move together:
`plan.tp,plan.dp_shard=(1,8),(2,4)`.

A bare count comes out as a number, what has a unit as text in the unit of the first end; points between the ends are rounded
to 12 digits, so that they are the same on every machine.
"""

from __future__ import annotations

import json
import math
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeAlias

from shardmeter.core.errors import BadQuantity, BadScenario, Violation, cut, kind_of, nearest, shown
from shardmeter.core.quantity import EXAMPLES, counted, quantity
from shardmeter.core.record import record
from shardmeter.scenario.yaml_reader import NESTING, read_yaml, scalar

MOST = 1_000_000
"""Points of the longest axis."""
FORMS = "1,2,4 | 1..64 | 1..64:x2 | 1..64:+8 | 1Gbps..400Gbps:log20 | 40ms..2s:lin20 | none,full"
"""Every way to write the values of an axis."""
DIGITS = 12
"""Significant digits of a point between the ends."""

Over: TypeAlias = Iterable[str] | Mapping[str, str | Sequence[Any]]
"""`FIELD=VALUES` texts, or by field the text of the values or a list of them."""
_RANGE = re.compile(r"(.+?)\.\.(.+?)(?::([^:]*))?", re.DOTALL)
_END = re.compile(r"(\$?)\s*([+-]?(?:\d[\d_]*(?:\.\d*)?|\.\d+)(?:[eE][+-]?\d{1,4})?)(\s*)(.*?)\s*", re.DOTALL)
_SPACING = re.compile(r"(x|\+|lin|log)\s*(.+)", re.DOTALL)
_BARE = frozenset({"count", "ratio", "fraction"})


@record
class Axis:
    """One axis: the fields that it sets (more than one are tied), and at each point a value for every one of them."""

    fields: tuple[str, ...]
    points: tuple[tuple[Any, ...], ...]
    spacing: str = "list"
    """list, whole, factor, step, linear or log: how the points lie, for a figure's axis."""

    @property
    def name(self) -> str:
        """The fields, joined by commas."""
        return ",".join(self.fields)


@record
class _End:
    """One end of a range: `sign` `number` `gap` `unit`, as written, and the dimensions that it can be."""

    text: str
    sign: str
    number: float
    gap: str
    unit: str
    dimensions: frozenset[str]

    def scale(self, dimension: str) -> float:
        """Size of its unit in SI; of a word that is counted, in those."""
        if dimension.startswith("count of "):
            return counted(f"1{self.gap}{self.unit}")[0]
        return 1.0 if not self.unit and not self.sign else quantity(f"{self.sign}1{self.gap}{self.unit}", dimension)


def axes(over: Over, most: int = MOST) -> tuple[Axis, ...]:
    """The axes in the order given, of at most `most` points each. Raises BadScenario with every fault of all of them."""
    made: list[Axis] = []
    found: list[Violation] = []
    if isinstance(over, str | bytes) or not isinstance(over, Iterable):
        says = f"{shown(over)} is no list of axes, and no mapping"
        raise BadScenario(f"{says}; as in ['plan.tp=1,2,4'], or {{'plan.tp': [1, 2, 4]}}")
    pairs = over.items() if isinstance(over, Mapping) else (_parted(text, found) for text in over)
    for pair in pairs:
        if pair is not None:
            axis = _axis(pair[0], pair[1], found, most)
            made += [] if axis is None else [axis]
    fields = [field for axis in made for field in axis.fields]
    found += [
        Violation(field=cut(field), says="is on two axes", way_out="keep one of the two")
        for field, count in Counter(fields).items()
        if count > 1
    ]
    if found:
        raise BadScenario(f"{len(found)} problem{'s' if len(found) > 1 else ''} in what to go over", found)
    return tuple(made)


def values(text: str, field: str = "") -> tuple[Any, ...]:
    """The values of a list or range, in order. Raises BadScenario with every fault; `field` is what the messages name."""
    found: list[Violation] = []
    made, _ = _values(text, field, found)
    if found:
        raise BadScenario(f"{shown(text)} is no list or range", found)
    return tuple(made)


def is_range(text: str) -> bool:
    """Whether a text stands for several values: a list or a range, and not one name."""
    return len(parts(text)) > 1 or (_RANGE.fullmatch(text) is not None and not _is_path(text))


@record
class Ruler:
    """Values of one field as numbers, and how a number between them is written."""

    numbers: tuple[float, ...]
    """In SI."""
    dimension: str
    """As `core.quantity` calls it; "bare" of numbers without a unit, "count of WORD" of what is counted."""
    whole: bool
    """Whether only whole numbers are meant: all of the values are."""
    end: _End
    """The first value, in whose unit others are written."""

    def write(self, number: float) -> Any:
        """A value as a scenario takes it."""
        bare = self.dimension == "bare"
        scale = 1.0 if bare else self.end.scale(self.dimension)
        return _written(float(f"{number / scale:.15g}"), None if bare else self.end)


def ruler(values: Sequence[Any]) -> Ruler | None:
    """The ruler of values that are numbers of one dimension; None where they are not."""
    faults: list[str] = []
    made = [_end(str(one), lambda says, *_: faults.append(says)) for one in values if not isinstance(one, bool)]
    ends = [one for one in made if one is not None]
    if faults or not ends or len(ends) < len(values):
        return None
    common = frozenset.intersection(*(one.dimensions for one in ends))
    if not common:
        return None
    bare = all(not one.unit and not one.sign for one in ends)
    dimension = "bare" if bare else max(common)
    numbers = tuple(one.number * (1.0 if bare else one.scale(dimension)) for one in ends)
    whole = all(isinstance(one, int) for one in values)
    return Ruler(numbers=numbers, dimension=dimension, whole=whole, end=ends[0])


def parts(text: str) -> list[str]:
    """What stands between commas outside of brackets, braces, parentheses and quotes."""
    made, depth, quote = [""], 0, ""
    for character in text:
        if quote:
            quote = "" if character == quote else quote
        elif character in "'\"":
            quote = character
        else:
            depth += 1 if character in "[({" else -1 if character in "])}" else 0
        if character == "," and depth <= 0 and not quote:
            made.append("")
        else:
            made[-1] += character
    return [part.strip() for part in made]


def value(text: str, where: str = "") -> Any:
    """One value as a scenario takes it: YAML where it has brackets or braces, else a scalar or the text as it stands
    (`$2.10/gpu/h`, `aws:us-west-2`). Raises BadScenario for malformed YAML."""
    if text[:1] in ("{", "["):
        return read_yaml(text, where)[0]
    if text[:1] in ("'", '"') and text[-1:] == text[:1] and len(text) > 1:
        return text[1:-1]
    return scalar(text)


def typed(value: Any) -> str:
    """A value as it is typed: a text as it stands, anything else as YAML on one line."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)


def _parted(text: object, found: list[Violation]) -> tuple[str, str] | None:
    """FIELD and VALUES of one axis, or None after noting why not."""
    if not isinstance(text, str):
        found.append(Violation(field="", says=f"{kind_of(text)} is no FIELD=VALUES", way_out="as in plan.tp=1,2,4"))
        return None
    field, equals, rest = (part.strip() for part in text.partition("="))
    if not equals or not field:
        says = f"{shown(text)} is no FIELD=VALUES"
        found.append(Violation(field="", says=says, way_out="as in plan.tp=1,2,4"))
        return None
    return field, rest


def _axis(name: object, given: object, found: list[Violation], most: int) -> Axis | None:
    if not isinstance(name, str) or not name.strip():
        found.append(Violation(field="", says=f"{shown(name)} is no field", way_out="as in plan.tp"))
        return None
    fields = tuple(parts(name))
    field, before = cut(name), len(found)
    spacing = "list"
    if isinstance(given, str):
        made, spacing = _values(given, field, found, tied=len(fields) > 1)
    elif isinstance(given, Iterable) and not isinstance(given, Mapping):
        made = list(given)
        if not made:
            found.append(_count(field, 0))
    else:
        found.append(Violation(field=field, says=f"{shown(given)} is no list or range", way_out=FORMS))
        made = []
    if len(made) > most and len(found) == before:
        found.append(_count(field, len(made), most))
        return None
    points: list[tuple[Any, ...]] = []
    for one in made:
        point = tuple(one) if len(fields) > 1 and isinstance(one, tuple | list) else (one,)
        if len(point) != len(fields):
            says = f"a point with {len(point)} values for {len(fields)} fields"
            found.append(Violation(field=field, says=says, way_out="as in plan.tp,plan.dp_shard=(1,8),(2,4)"))
            break
        points.append(point)
    unwritten = [one for point in points for one in point if not _is_unicode(one)][:3]
    found += [Violation(field=field, says=f"{shown(one)} is no text of Unicode characters") for one in unwritten]
    return None if len(found) > before else Axis(fields=fields, points=tuple(points), spacing=spacing)


def _is_unicode(value: Any, deeper: int = NESTING) -> bool:
    """Whether every text of a value can be written to a file: bytes of a command line that are no UTF-8 cannot."""
    if isinstance(value, str):
        return value.isascii() or not re.search("[\ud800-\udfff]", value)
    if isinstance(value, Mapping):
        value = [*value, *value.values()]
    return not isinstance(value, list | tuple) or deeper == 0 or all(_is_unicode(one, deeper - 1) for one in value)


def _values(text: str, field: str, found: list[Violation], *, tied: bool = False) -> tuple[list[Any], str]:
    """Values and spacing of a text; what is wrong is noted in `found`."""
    made: list[Any] = []
    spacings: set[str] = set()
    for item in parts(text):
        spacing = "list"
        if not item:
            says = "has no values" if not text.strip() else "has an empty value between commas"
            found.append(Violation(field=field, says=says, way_out=FORMS))
        elif tied:
            inside = item[1:-1] if item[:1] == "(" and item[-1:] == ")" else item
            made.append(tuple(_one(part, field, found) for part in parts(inside)))
        else:
            range_ = _RANGE.fullmatch(item)
            if range_ and not _is_path(item):
                some, spacing = _range(item, range_[1].strip(), range_[2].strip(), range_[3], field, found)
                made += some
            elif _is_half(item):
                found.append(Violation(field=field, says=f"{shown(item)} has one end only", way_out="as in 1..64"))
            else:
                made.append(_one(item, field, found))
        spacings.add(spacing)
    twice = [text for text, count in Counter(map(repr, made)).items() if count > 1][:3]
    found += [Violation(field=field, says=f"{text} is given twice", way_out="keep one of the two") for text in twice]
    if len(made) > MOST:
        found.append(_count(field, len(made)))
    return made, spacings.pop() if len(spacings) == 1 else "list"


def _is_path(text: str) -> bool:
    """Whether the two dots go up a folder."""
    return "/.." in text or "../" in text


def _is_half(text: str) -> bool:
    """Whether a range lacks an end: `8..`, `..8`; a folder above is none."""
    return (text.startswith("..") or text.endswith("..")) and "/" not in text and "\\" not in text


def _one(text: str, field: str, found: list[Violation]) -> Any:
    try:
        made = value(text, field)
    except BadScenario as error:
        found.extend(error.violations or [Violation(field=field, says=error.message)])
        return None
    if isinstance(made, float) and not math.isfinite(made):
        found.append(Violation(field=field, says=f"{shown(text)} is no finite number", way_out=FORMS))
    return made


def _range(
    item: str, first: str, last: str, spacing: str | None, field: str, found: list[Violation]
) -> tuple[list[Any], str]:
    """The points between two ends, both included where the spacing reaches them."""

    def wrong(says: str, way_out: str = "", rule: str = "") -> None:
        found.append(Violation(field=field, says=f"{shown(item)}: {says}", rule=rule, way_out=way_out))

    before = len(found)
    ends = [end for end in (_end(text, wrong) for text in (first, last)) if end is not None]
    if len(ends) < 2:
        _points(1.0, 2.0, spacing, None, wrong)  # a spacing that cannot be read is said all the same
        return [], "list"
    low, high = ends
    dimension = _dimension(low, high, wrong)
    if dimension is None:
        return [], "list"
    unit = None if dimension == "bare" else low
    if unit is None:
        start, stop = low.number * low.scale("count"), high.number * high.scale("count")
    else:
        start = low.number
        stop = high.number * (1.0 if high.unit == low.unit else high.scale(dimension) / low.scale(dimension))
    if start > stop:
        wrong(f"descends from {first} to {last}", f"{last}..{first}", "a range ascends")
    made, kind = _points(start, stop, spacing, unit, wrong)
    if len(found) > before:
        return [], kind
    rounded = [start, *(float(f"{one:.{DIGITS}g}") for one in made[1:])]
    if abs(rounded[-1] - stop) <= 1e-11 * abs(stop):
        rounded[-1] = stop
    return [_written(one, unit) for one in rounded], kind


def _end(text: str, wrong: Callable[..., None]) -> _End | None:
    """One end of a range, or None after saying what is wrong with it."""
    if re.fullmatch(r"[+-]?\.?(nan|inf|infinity)\b.*", text, re.IGNORECASE):
        wrong(f"{text} is no finite number", FORMS)
        return None
    match = _END.fullmatch(text)
    if match is None:
        wrong(f"{shown(text, 30)} is no number", f"a list of names has commas; else {FORMS}")
        return None
    sign, digits, gap, unit = match.groups()
    number = float(digits.replace("_", ""))
    if not math.isfinite(number):
        wrong(f"{text} is no finite number", FORMS)
        return None
    if not sign and not unit:
        return _End(text=text, sign="", number=number, gap="", unit="", dimensions=_BARE)
    dimensions: set[str] = set()
    faults: list[str] = []
    for dimension in EXAMPLES:
        try:
            quantity(text, dimension)
            dimensions.add(dimension)
        except BadQuantity as error:
            faults.append(error.message)
    try:
        word = counted(text)[1]
        dimensions |= {f"count of {word}"} if word else set()
    except BadQuantity as error:
        faults.append(error.message)
    if not dimensions:
        telling = (
            "two ways",
            "did you mean",
            "too large",
            "too small",
            "negative",
            "between 0 and 1",
            "per GPU or per",
        )
        says = next(
            (f for mark in telling for f in faults if mark in f), f"{shown(text, 30)} has a unit that nothing has"
        )
        wrong(says)
        return None
    return _End(text=text, sign=sign, number=number, gap=gap, unit=unit, dimensions=frozenset(dimensions))


def _dimension(low: _End, high: _End, wrong: Callable[..., None]) -> str | None:
    """The dimension of both ends ("bare": a count without a word), or None after saying why there is none."""
    common = low.dimensions & high.dimensions
    if common:
        return "bare" if "count" in common and "size" not in common else max(common)
    bare = next((end for end in (low, high) if not end.unit and not end.sign), None)
    if bare is not None:
        other = high if bare is low else low
        wrong("a unit on one end only", f"write {other.sign}{bare.text}{other.gap}{other.unit}", "both ends have one")
    else:
        what = [" or ".join(sorted(end.dimensions)).replace("_", " ") for end in (low, high)]
        wrong(f"{low.text} is a {what[0]}, {high.text} a {what[1]}", "", "both ends are of one kind")
    return None


def _points(
    start: float, stop: float, spacing: str | None, unit: _End | None, wrong: Callable[..., None]
) -> tuple[list[float], str]:
    """The points from start to stop, in the unit of the first end, and the name of the spacing."""
    if spacing is None:
        if unit is not None:
            wrong("does not say its steps", "add :x2, :lin20 or :log20", "only bare whole numbers go in steps of one")
        elif start != math.floor(start):
            wrong(
                f"whole steps from {start:g}", "add :+0.5, :x2, :lin20 or :log20", "whole steps start at a whole number"
            )
        else:
            return _steps(start, stop, 1.0, wrong), "whole"
        return [], "list"
    match = _SPACING.fullmatch(spacing.strip())
    if match is None:
        close = nearest(spacing[:20], ("x2", "+8", "lin20", "log20"), 1)
        wrong(f"{shown(spacing, 20)} is no spacing", f"did you mean :{close[0]}?", "xFACTOR, +STEP, linN or logN")
        return [], "list"
    kind, amount = match.groups()
    if kind in ("lin", "log"):
        return _spaced(start, stop, kind, amount.strip(), wrong)
    return _stepped(start, stop, kind, amount.strip(), unit, wrong)


def _stepped(
    start: float, stop: float, kind: str, amount: str, unit: _End | None, wrong: Callable[..., None]
) -> tuple[list[float], str]:
    """`x2` and `+8`: what is beyond the last end is left out."""
    step = _end(amount, wrong)
    if step is None:
        return [], "list"
    if kind == "x":
        if step.unit or step.sign or not step.number > 1.0:
            wrong(f"the factor {amount}", "as in :x2", "a factor is a bare number above 1")
        elif start <= 0.0:
            wrong(f"a factor from {start:g}", "start above 0, or use :+STEP or :linN", "a factor needs a start above 0")
        else:
            count = math.floor(math.log(max(stop, start) / start) / math.log(step.number) + 1e-9) + 1
            if _few(count, wrong):
                return [start * step.number**k for k in range(count)], "factor"
        return [], "factor"
    size = step.number
    if unit is not None:
        dimension = _dimension(unit, step, wrong)
        if dimension is None:
            return [], "step"
        size = step.number * (1.0 if step.unit == unit.unit else step.scale(dimension) / unit.scale(dimension))
    elif step.unit:
        size = step.number * step.scale("count") if "count" in step.dimensions else math.nan
    if not size > 0.0:
        wrong(f"the step {amount}", "as in :+8", "a step is above 0, in the unit of the ends")
        return [], "step"
    return _steps(start, stop, size, wrong), "step"


def _spaced(start: float, stop: float, kind: str, amount: str, wrong: Callable[..., None]) -> tuple[list[float], str]:
    """`linN` and `logN`: N points, both ends among them."""
    name = "linear" if kind == "lin" else "log"
    if not re.fullmatch(r"[0-9]{1,9}", amount) or int(amount) < 2:
        wrong(f"{shown(amount, 20)} points", f"as in :{kind}20", "a whole number of points, 2 or more")
        return [], name
    count = int(amount)
    fine = _few(count, wrong)
    if start == stop:
        wrong(f"{count} points between {start:g} and {stop:g}", "two ends that differ", "points are distinct")
        return [], name
    if kind == "log" and start <= 0.0:
        wrong(f"log spacing from {start:g}", "start above 0, or use :linN", "a log range has no 0 and nothing negative")
        return [], name
    if not fine or start > stop:
        return [], name
    share = [k / (count - 1) for k in range(count)]
    if kind == "lin":
        return [start + (stop - start) * x for x in share], name
    return [start * (stop / start) ** x for x in share], name


def _steps(start: float, stop: float, step: float, wrong: Callable[..., None]) -> list[float]:
    count = math.floor(max(stop - start, 0.0) / step + 1e-9) + 1
    return [start + k * step for k in range(count)] if _few(count, wrong) else []


def _few(count: int, wrong: Callable[..., None]) -> bool:
    if count > MOST:
        wrong(f"{_many(count)} points", "larger steps, or fewer points", f"at most {MOST:,} on one axis")
    return count <= MOST


def _count(field: str, count: int, most: int = MOST) -> Violation:
    if count == 0:
        return Violation(field=field, says="has no values", way_out=FORMS)
    out = "larger steps, or fewer points" if most < MOST else ""
    return Violation(field=field, says=f"{_many(count)} points", rule=f"at most {most:,} on one axis", way_out=out)


def _many(count: float) -> str:
    """A count with all of its digits, unless they are too many to be read."""
    return f"{count:,}" if count < 1e15 else f"{count:.3g}"


def _written(number: float, end: _End | None) -> Any:
    """A point as a scenario takes it: a number, or text in the unit of an end."""
    plain = int(number) if number == math.floor(number) and abs(number) < 2.0**53 else number
    return plain if end is None else f"{end.sign}{plain!r}{end.gap}{end.unit}"
