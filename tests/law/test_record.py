"""Records: frozen, and batches of them: what `structure` calls equal, `stacked` can stack, field by field."""

from __future__ import annotations

import copy
import pickle
from dataclasses import FrozenInstanceError, asdict, dataclass, field, replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shardmeter.core.record import changed, field_names, record, stacked, structure


@record
class Part:
    """A nested record."""

    name: str = "part"
    rate: float = 1.0


@record
class Whole:
    """A record with every kind of field."""

    word: str = "a"
    flag: bool = False
    count: int = 1
    number: float = 1.0
    optional: float | None = None
    part: Part = Part()
    parts: tuple[Part, ...] = (Part(), Part())
    words: tuple[str, ...] = ()
    table: Any = None


def test_a_record_is_frozen_and_keyword_only() -> None:
    with pytest.raises(FrozenInstanceError):
        Whole().number = 2.0  # type: ignore[misc]
    with pytest.raises(TypeError):
        Part("x", 1.0)  # type: ignore[call-arg]
    assert field_names(Part) == ("name", "rate")


def test_changed_copies_and_refuses_what_is_no_field() -> None:
    old = Whole(number=3.0)
    new = changed(old, number=4.0)
    assert (old.number, new.number, new.part) == (3.0, 4.0, old.part)
    assert new == Whole(number=4.0)
    with pytest.raises(TypeError, match="nmber"):
        changed(old, nmber=1.0)


def test_numbers_become_arrays_and_equal_fields_stay() -> None:
    found: Any = stacked([Whole(number=1.0, part=Part(rate=5.0)), Whole(number=2.0, part=Part(rate=7.0))])
    assert found.number.tolist() == [1.0, 2.0]
    assert found.part.rate.tolist() == [5.0, 7.0]
    assert (found.part.name, found.word, found.optional) == ("part", "a", None)
    assert found.parts == (Part(), Part())
    columns: Any = stacked([Whole(parts=(Part(), Part(rate=2.0))), Whole(parts=(Part(), Part(rate=3.0)))]).parts
    assert columns[0] == Part()
    assert columns[1].rate.tolist() == [2.0, 3.0]


UNLIKE = [
    ("word", {"word": "b"}),
    ("flag", {"flag": True}),
    ("count", {"count": 2}),
    ("optional", {"optional": 1.0}),
    ("name", {"part": Part(name="other")}),
    ("words", {"words": ("x",)}),
    ("table", {"table": {"bf16": 2.0}}),
    (None, {"parts": (Part(),)}),
]


@pytest.mark.parametrize(("field", "change"), UNLIKE)
def test_unlike_records_are_told_apart_and_not_stacked(field: str | None, change: dict[str, Any]) -> None:
    left, right = Whole(table={"bf16": 1.0}), changed(Whole(table={"bf16": 1.0}), **change)
    assert structure(left) != structure(right)
    with pytest.raises(ValueError, match=field):
        stacked([left, right])


numbers = st.floats(-1e9, 1e9)
wholes = st.builds(
    Whole,
    word=st.sampled_from("ab"), flag=st.booleans(), count=st.integers(1, 2), number=numbers,
    optional=st.none() | numbers, part=st.builds(Part, name=st.sampled_from("xy"), rate=numbers),
    parts=st.lists(st.builds(Part, rate=numbers), max_size=2).map(tuple),
)  # fmt: skip


@settings(max_examples=200)
@given(st.lists(wholes, min_size=1, max_size=3))
def test_what_has_one_structure_can_be_stacked_and_taken_apart_again(records: list[Whole]) -> None:
    if len({structure(one) for one in records}) > 1:
        # names differ somewhere, or a number stands where another has none: unless the numbers there happen to be equal
        with pytest.raises(ValueError, match=r"differs|argument"):
            stacked(records)
        return
    together: Any = stacked(records)
    for place, one in enumerate(records):
        assert _at(together.number, place) == one.number
        assert _at(together.part.rate, place) == one.part.rate
        assert [_at(part.rate, place) for part in together.parts] == [part.rate for part in one.parts]
        assert (together.word, together.count) == (one.word, one.count)
        if one.optional is not None:
            assert _at(together.optional, place) == one.optional


def _at(value: Any, place: int) -> float:
    return float(value[place] if isinstance(value, np.ndarray) else value)


def test_a_record_is_what_a_dataclass_is():
    """Equal, hashed, shown, copied and pickled as the standard library's frozen dataclass with the same fields."""

    @dataclass(frozen=True, slots=True, kw_only=True)
    class Theirs:
        word: str = "a"
        number: float = 1.0
        words: tuple[str, ...] = ()

    @record
    class Ours:
        word: str = "a"
        number: float = 1.0
        words: tuple[str, ...] = ()

    one, same, other = Ours(number=2.0), Ours(number=2.0), Ours()
    unlike: Any = Theirs(number=2.0)
    assert (one == same, one == other, one != same, one == unlike) == (True, False, False, False)
    assert hash(one) == hash(same) == hash(unlike)
    assert repr(one).replace("Ours", "Theirs") == repr(unlike)
    assert replace(one, word="b") == Ours(word="b", number=2.0)
    assert asdict(one) == asdict(unlike)
    part = Part(name="x")
    assert pickle.loads(pickle.dumps(part)) == copy.deepcopy(part) == part
    with pytest.raises(FrozenInstanceError):
        del part.name
    with pytest.raises(TypeError, match="unexpected keyword"):
        Part(nme="x")  # type: ignore[call-arg]


def test_a_field_may_have_any_name() -> None:
    @record
    class Odd:
        write: float = 1.0
        fields: tuple[str, ...] = field(default_factory=tuple)
        default_write: str = ""

    odd = Odd(write=2.0)
    assert (odd.write, odd.fields, odd.default_write) == (2.0, (), "")
