"""The state of the page, which is its query string: what it says as a scenario, and a scenario as such a text.

One question has three forms: fields (`model=llama-3.1-8b&gpus=64xH100-SXM5-80GB`), a whole scenario (`yaml=` its text, deflated, in base64url)
and one of the shipped examples (`example=NAME`); `set=a.b=VALUE` changes any of them. Nothing in it may name a file.
"""

from __future__ import annotations

import base64
import binascii
import json
import zlib
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl, quote, urlencode

from shardmeter.core.errors import BadScenario, Violation, cut, nearest, shown
from shardmeter.core.record import changed, record
from shardmeter.ui.examples import example

if TYPE_CHECKING:
    from shardmeter.scenario.parts import Rows
    from shardmeter.scenario.read import Document

OPTIONS = ("model", "gpus", "price", "plan", "stack", "seq", "micro_batch", "global_batch", "tokens")
"""Fields that are options of `predict`."""
LIMITS = ("deadline", "budget")
ACROSS = {
    "bandwidth": "fleet.wan.default.bandwidth",
    "rtt": "fleet.wan.default.rtt",
    "method": "plan.sync.method",
    "sync_every": "plan.sync.sync_every",
}
"""Fields of several equal islands, and where the scenario has them."""
FIELDS = (*OPTIONS, *LIMITS, "islands", *ACROSS)
"""Fields of a question, which a whole scenario replaces."""
WHOLE = ("yaml", "example")
SET = "set"
KEYS = (*WHOLE, *FIELDS, SET)
WORDS = (
    "axis", "over", "scaling", "x", "y", "of", "what_if", "with", "pairs", "measured", "term", "steps", "rounds", "island",
    "objective", "top", "format", "version", "trainer", "kind", "view",
)  # fmt: skip
"""What is asked of one view, beside the state; a view takes its own and leaves the others."""
REPEATED = ("set", "over", "what_if", "with", "measured")
PAGE = ("tab", "theme")
"""What the page keeps for itself in its address."""
LONGEST_TEXT = 64 * 1024
"""Bytes of a query string, and of the text of a whole scenario."""
LONGEST_VALUE = 4096
"""Characters of any other value."""
MOST_PAIRS = 200
MOST_SETS = 24
"""Fields that are said one by one before the whole scenario is."""


@record
class State:
    """A question: its pairs in the order of `KEYS`, `set` in the order in which it was said."""

    pairs: tuple[tuple[str, str], ...] = ()

    def text(self) -> str:
        """The query string. Equal questions, said in any order, have equal texts."""
        return urlencode(self.pairs, quote_via=quote, safe="$,:/()[]{}@*.")

    def value(self, key: str) -> str:
        """What is said under a key; empty where nothing is."""
        return next((value for name, value in self.pairs if name == key), "")

    def sets(self) -> tuple[str, ...]:
        """Every `a.b=VALUE`."""
        return tuple(value for name, value in self.pairs if name == SET)


@record
class Asked:
    """A query string: the state, and the words of the view."""

    state: State
    words: Mapping[str, tuple[str, ...]]

    def word(self, key: str, left_out: str = "") -> str:
        """One word of the view."""
        return next(iter(self.words.get(key, ())), left_out)


def parsed(query: str) -> Asked:
    """What a query string says. Raises BadScenario with every key that is none, twice there or too long."""
    if len(query) > LONGEST_TEXT:
        raise BadScenario(f"a question of {len(query):,} characters; at most {LONGEST_TEXT:,}")
    try:
        pairs = parse_qsl(query, keep_blank_values=True, max_num_fields=MOST_PAIRS, errors="strict")
    except UnicodeDecodeError:
        raise BadScenario("the address is no UTF-8 text") from None
    except ValueError:
        raise BadScenario(f"more than {MOST_PAIRS} fields are in one question") from None
    found, said = [], dict[str, list[str]]()
    for key, raw in pairs:
        value = raw.strip()
        trouble = _trouble(key, value, said)
        if trouble:
            found.append(trouble)
        elif value:
            said.setdefault(key, []).append(value)
    found += _two_questions(said)
    if found:
        raise BadScenario(_counted(found), found)
    state = State(pairs=tuple((key, value) for key in KEYS for value in said.get(key, ())))
    return Asked(state=state, words={key: tuple(said[key]) for key in WORDS if key in said})


def _trouble(key: str, value: str, said: Mapping[str, list[str]]) -> Violation | None:
    """What is wrong with one pair, if anything."""
    if key not in KEYS and key not in WORDS and key not in PAGE:
        close = ", ".join(nearest(key, (*KEYS, *WORDS)))
        return Violation(field=cut(key), says=f"unknown field {shown(key)}", way_out=f"the nearest are {close}")
    if key != "yaml" and len(value) > LONGEST_VALUE:
        return Violation(field=key, says=f"{len(value):,} characters; at most {LONGEST_VALUE:,}")
    if value and key in said and key not in REPEATED:
        return Violation(field=key, says="is said twice", way_out="keep one of the two")
    return None


def _two_questions(said: Mapping[str, list[str]]) -> list[Violation]:
    """A whole scenario beside fields, or beside another one."""
    whole = [key for key in WHOLE if key in said]
    others = [key for key in (*whole[1:], *FIELDS) if key in said]
    if not whole or not others:
        return []
    says = (
        f"{whole[0]} is a whole scenario, and {', '.join(others)} {'is' if len(others) == 1 else 'are'} said beside it"
    )
    return [Violation(field=others[0], says=says, way_out="change a scenario with set=a.b=VALUE")]


def _counted(found: list[Violation]) -> str:
    return "1 problem" if len(found) == 1 else f"{len(found)} problems"


def opened(state: State, catalog: Rows) -> tuple[Document, Rows]:
    """The document that a state stands for, and the catalog: what is resolved next. Raises BadScenario for what cannot be read at all, and
    for what names a file."""
    from shardmeter.scenario import opened as document_of

    source, options, overrides = _said(state)
    document, rows = document_of(source, options=options, overrides=overrides, catalog=catalog)
    if found := files_in(document.data):
        raise BadScenario(_counted(found), found)
    return document, rows


def opened_to_plan(state: State, catalog: Rows, more: Iterable[str] = ()) -> tuple[Document, Rows]:
    """The same for a planner, with `more` overrides."""
    from shardmeter.scenario import opened as document_of

    source, options, overrides = _said(state)
    document, rows = document_of(source, options=options, overrides=(*overrides, *more), catalog=catalog, planning=True)
    if found := files_in(document.data):
        raise BadScenario(_counted(found), found)
    return document, rows


def _said(state: State) -> tuple[Mapping[str, Any] | str | None, dict[str, Any], tuple[str, ...]]:
    """The source, the options and the overrides of `scenario.opened`."""
    if text := state.value("yaml"):
        return f"{inflated(text)}\n", {}, state.sets()
    if name := state.value("example"):
        return f"{example(name)}\n", {}, state.sets()
    if not state.pairs:
        raise BadScenario(
            "nothing is asked", [Violation(field="model", says="no model is named", way_out="say a model and GPUs")]
        )
    options: dict[str, Any] = {key: value for key in OPTIONS if (value := state.value(key))}
    source: Mapping[str, Any] | None = None
    if (islands := state.value("islands")) and (gpus := options.pop("gpus", None)):
        source = {"fleet": {"islands": [{"gpus": gpus, "count": _whole(islands)}]}}
    limits = [f"run.{key}={value}" for key in LIMITS if (value := state.value(key))]
    across = [f"{path}={value}" for key, path in ACROSS.items() if (value := state.value(key))]
    return source, options, (*limits, *across, *state.sets())


def _whole(text: str) -> int | str:
    return int(text) if text.isascii() and text.isdigit() and len(text) < 10 else text


def inflated(text: str) -> str:
    """The scenario of `yaml=`. Raises BadScenario for what is no such text, and for what is larger than a scenario."""
    try:
        packed = base64.b64decode(text + "=" * (-len(text) % 4), b"-_", validate=True)
        machine = zlib.decompressobj(wbits=-15)
        raw = machine.decompress(packed, LONGEST_TEXT + 1)
    except (ValueError, binascii.Error, zlib.error):
        raise _unreadable("is no deflated text in base64url") from None
    if len(raw) > LONGEST_TEXT or machine.unconsumed_tail:
        raise _unreadable(f"more than {LONGEST_TEXT:,} bytes are no scenario")
    if not machine.eof or machine.unused_data:
        raise _unreadable("is cut off, or has something behind its end")
    try:
        found = raw.decode("utf-8")
    except UnicodeDecodeError:
        raise _unreadable("is no UTF-8 text") from None
    if not found.strip():
        raise _unreadable("is empty")
    return found


def _unreadable(says: str) -> BadScenario:
    return BadScenario("the scenario cannot be read", [Violation(field="yaml", says=says)])


def deflated(text: str) -> str:
    """A scenario as `yaml=` has it."""
    machine = zlib.compressobj(level=9, wbits=-15)
    return base64.urlsafe_b64encode(machine.compress(text.encode()) + machine.flush()).decode("ascii").rstrip("=")


def files_in(data: Any) -> list[Violation]:
    """What in a scenario's data names a file, a folder or an address; the file system is not asked."""
    from shardmeter.scenario.hugging_face.files import WEIGHTS, named_like_a_path
    from shardmeter.scenario.named import TABLE
    from shardmeter.scenario.read import SUFFIXES

    endings = (*SUFFIXES, *WEIGHTS, TABLE)
    found: list[Violation] = []

    def look(value: Any, path: tuple[str, ...]) -> None:
        if isinstance(value, dict):
            for key, one in value.items():
                look(one, (*path, key))
        elif isinstance(value, list):
            for place, one in enumerate(value):
                look(one, (*path, str(place)))
        elif isinstance(value, str) and path[-1:] != ("name",):
            text = value.strip()
            named = named_like_a_path(text) or "://" in text or "\\" in text or text.lower().endswith(endings)
            if named or path == ("fleet", "prices"):
                out = "name a part of the catalog, or write its numbers out"
                found.append(
                    Violation(
                        field=".".join(path),
                        says=f"{shown(text)} names a file, which the page does not read",
                        way_out=out,
                    )
                )

    look(data, ())
    return found


def state_of(data: Mapping[str, Any], catalog: Rows) -> State:
    """A scenario as a state: its fields where they say all of it, fields and `set` where little is left, else the whole text. Opened again
    it is the same document."""
    plain = _parsed(json.loads(json.dumps(data)))
    by_fields = _by_fields(plain)
    if by_fields is not None:
        try:
            again, _ = opened(by_fields, catalog)
        except BadScenario:
            return _by_text(data)
        if not again.problems and _parsed(again.data) == plain:
            return by_fields
    return _by_text(data)


def _by_text(data: Mapping[str, Any]) -> State:
    from shardmeter.render import yaml_text

    return State(pairs=(("yaml", deflated(yaml_text.text(data))),))


def _parsed(data: dict[str, Any]) -> dict[str, Any]:
    """A document with its one-line plan spelled out."""
    from shardmeter.scenario.grammar import parse_plan

    plan = data.get("plan")
    return {**data, "plan": parse_plan(plan)} if isinstance(plan, str) else data


def _by_fields(data: dict[str, Any]) -> State | None:
    """The pairs of a document of one kind of island; None where it has several, or too much that no field says."""
    rest = json.loads(json.dumps(data))
    said: dict[str, str] = {}
    _take(rest, ("model",), "model", said)
    _take(rest, ("stack",), "stack", said)
    if not _take_fleet(rest, said):
        return None
    plan = rest.pop("plan", None)
    if isinstance(plan, dict):
        _take(plan, ("sync", "method"), "method", said)
        _take(plan, ("sync", "sync_every"), "sync_every", said)
        _take(plan, ("micro_batch",), "micro_batch", said)
        line = _line(plan)
        if line is None:
            return None
        if line:
            said["plan"] = line
    for field, key in (
        ("seq_len", "seq"),
        ("global_batch", "global_batch"),
        ("tokens", "tokens"),
        *((one, one) for one in LIMITS),
    ):
        _take(rest, ("run", field), key, said)
    sets = list(_leaves(rest, ()))
    if len(sets) > MOST_SETS or any(len(value) > LONGEST_VALUE for value in (*said.values(), *sets)):
        return None
    return State(pairs=(*((key, said[key]) for key in FIELDS if key in said), *((SET, text) for text in sets)))


def _take(data: dict[str, Any], path: tuple[str, ...], key: str, said: dict[str, str]) -> None:
    """Move one value of a document into a field; what is left empty by that goes too."""
    *above, last = path
    inner: Any = data
    for step in above:
        inner = inner.get(step) if isinstance(inner, dict) else None
    value = inner.get(last) if isinstance(inner, dict) else None
    if isinstance(value, bool) or not isinstance(value, str | int | float) or not str(value).strip():
        return
    del inner[last]
    said[key] = str(value)
    if above and not inner and len(above) == 1:
        del data[above[0]]


def _take_fleet(rest: dict[str, Any], said: dict[str, str]) -> bool:
    """Move GPUs, price and what joins equal islands into fields. False where the fleet is another one."""
    _take(rest, ("gpus",), "gpus", said)
    fleet = rest.get("fleet")
    if fleet is None:
        return True
    islands = fleet.get("islands") if isinstance(fleet, dict) else None
    if not isinstance(islands, list) or len(islands) != 1 or not isinstance(islands[0], dict) or "gpus" in said:
        return False
    first = islands[0]
    for field, key in (("gpus", "gpus"), ("price", "price"), ("count", "islands")):
        _take(first, (field,), key, said)
    wan = fleet.get("wan")
    default = wan.get("default") if isinstance(wan, dict) else None
    if isinstance(default, dict):
        for field in ("bandwidth", "rtt"):
            _take(default, (field,), field, said)
        if not default:
            del wan["default"]
        if not wan:
            del fleet["wan"]
    if not first:
        del fleet["islands"]
    if not fleet:
        del rest["fleet"]
    return "gpus" in said


def _line(plan: dict[str, Any]) -> str | None:
    """A plan on one line; None where a line cannot say it. What names no sharding is said field by field."""
    if "auto" not in plan and "sharding" not in plan:
        return None if plan else ""
    head = "auto" if plan.get("auto") is True else plan.get("sharding")
    words = [str(head)]
    for key, value in plan.items():
        if key in ("auto", "sharding"):
            continue
        if isinstance(value, dict):
            for below, one in value.items():
                words.append(f"{key}.{below}={_word(one)}")
        else:
            words.append(f"{key}={_word(value)}")
    return ",".join(words)


def _word(value: Any) -> str:
    if isinstance(value, list):
        return f"[{','.join(map(_word, value))}]"
    return str(value).lower() if isinstance(value, bool) else str(value)


def _leaves(value: Any, path: tuple[str, ...]) -> Iterable[str]:
    """Every value of a mapping as `a.b=VALUE`."""
    if isinstance(value, dict) and (value or not path):
        for key, one in value.items():
            yield from _leaves(one, (*path, key))
    else:
        yield f"{'.'.join(path)}={json.dumps(value, ensure_ascii=False)}"


def with_sets(state: State, more: Iterable[str]) -> State:
    """The state with more overrides."""
    return changed(state, pairs=(*state.pairs, *((SET, text) for text in more)))


def key_of(violation: Violation) -> str:
    """The key of the state that a violation is about; empty where it is about none."""
    field = violation.field
    own = (*ACROSS.values(), *(f"run.{key}" for key in LIMITS))
    if "--set" in violation.where and not any(f" {path}=" in violation.where for path in own):
        return SET
    if field in KEYS:
        return field
    return next((key for path, key in _PLACES.items() if field == path or field.startswith(f"{path}.")), "")


_PLACES = {
    **{path: key for key, path in ACROSS.items()},
    "fleet.islands.0.count": "islands",
    "fleet.islands.0.price": "price",
    "fleet.islands.0": "gpus",
    "fleet.wan": "bandwidth",
    "fleet": "gpus",
    "run.seq_len": "seq",
    "run.global_batch": "global_batch",
    "run.tokens": "tokens",
    "run.deadline": "deadline",
    "run.budget": "budget",
    "plan.micro_batch": "micro_batch",
    "plan.sync": "method",
    "plan": "plan",
    "model": "model",
    "stack": "stack",
}
"""Places of a scenario and the key that says them, the nearest first."""
