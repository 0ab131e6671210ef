"""What `--over` can say, and what it cannot: every fault is one sentence with the way out."""

from __future__ import annotations

import math
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardmeter.core.errors import BadScenario
from shardmeter.core.quantity import quantity
from shardmeter.scenario.ranges import MOST, axes, is_range, parts, values


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("1,2,4", (1, 2, 4)),
        ("7", (7,)),
        ("1..4", (1, 2, 3, 4)),
        ("1..64:x2", (1, 2, 4, 8, 16, 32, 64)),
        ("1..100:x3", (1, 3, 9, 27, 81)),
        ("8..32:+8", (8, 16, 24, 32)),
        ("8..30:+8", (8, 16, 24)),
        ("1,2,8..10", (1, 2, 8, 9, 10)),
        ("0..1:lin5", (0, 0.25, 0.5, 0.75, 1)),
        ("-2..2:+2", (-2, 0, 2)),
        ("4k..16k:x2", (4000, 8000, 16000)),
        ("none,selective,full", ("none", "selective", "full")),
        ("true,false,null", (True, False, None)),
        ("1Gbps..100Gbps:log3", ("1Gbps", "10Gbps", "100Gbps")),
        ("100 Mbps..1 Gbps:lin2", ("100 Mbps", "1000 Mbps")),
        ("10 ms..30 ms:+10 ms", ("10 ms", "20 ms", "30 ms")),
        ("$1/gpu/h..$3/gpu/h:lin3", ("$1/gpu/h", "$2/gpu/h", "$3/gpu/h")),
        ("[optimizer],[]", (["optimizer"], [])),
        ("{base: llama-3.1-8b, layers: 16},llama-3.1-8b", ({"base": "llama-3.1-8b", "layers": 16}, "llama-3.1-8b")),
        ("../models/a.yaml,../b.yaml", ("../models/a.yaml", "../b.yaml")),
        ("'1,2',3", ("1,2", 3)),
    ],
)
def test_what_is_written_is_meant(text, wanted):
    made = values(text)
    assert made == wanted
    assert list(map(type, made)) == list(map(type, wanted))


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "has no values"),
        ("1,,2", "an empty value between commas"),
        ("0..4:log3", "start above 0, or use :linN"),
        ("-1..4:log3", "a log range has no 0 and nothing negative"),
        ("0..64:x2", "a factor needs a start above 0"),
        ("8..1", "descends from 8 to 1 (a range ascends); 1..8"),
        ("4Gbps..1Gbps:log3", "1Gbps..4Gbps"),
        ("1..8:x1", "a factor is a bare number above 1"),
        ("1..8:x-2", "a factor is a bare number above 1"),
        ("1..8:+0", "a step is above 0"),
        ("1..8:lin1", "2 or more"),
        ("1..8:log2.5", "a whole number of points"),
        ("4..4:lin3", "two ends that differ"),
        ("1..8:cube", "is no spacing"),
        ("1Gbps..4Gbps", "does not say its steps"),
        ("0.5..4", "add :+0.5"),
        ("1Gbps..4:log3", "write 4Gbps"),
        ("1Gbps..4 ms:log3", "both ends are of one kind"),
        ("1Gbps..4Gbps:+1", "a unit on one end only"),
        ("1..nan", "no finite number"),
        ("1..1e999", "no finite number"),
        ("1..inf:log3", "no finite number"),
        ("a..b", "is no number"),
        ("1 parsec..2 parsec:lin3", "a unit that nothing has"),
        ("400G..800G:lin3", "two ways"),
        ("1..99999999999", "at most 1,000,000 on one axis"),
        ("1..2:lin999999999", "at most 1,000,000 on one axis"),
        ("1,2,1", "1 is given twice"),
        ("1..4,3", "3 is given twice"),
        ("[1,2", "'[1,2'"),
    ],
)
def test_what_cannot_be_meant(text, says):
    with pytest.raises(BadScenario) as caught:
        values(text, "plan.tp")
    assert says in str(caught.value)
    assert len(str(caught.value)) < 800


def test_all_faults_of_all_axes_at_once():
    over = [
        "plan.tp=8..1",
        "nonsense",
        "run.seq_len=0..4:log3",
        "plan.pp=1,2",
        "plan.pp=4",
        "plan.tp,plan.cp=(1,2),(3)",
    ]
    with pytest.raises(BadScenario) as caught:
        axes(over)
    said = [f"{one.field} {one.says}" for one in caught.value.violations]
    assert len(said) == 5
    for piece in (
        "descends",
        "no FIELD=VALUES",
        "log spacing from 0",
        "plan.pp is on two axes",
        "1 values for 2 fields",
    ):
        assert any(piece in one for one in said), piece


def test_fields_that_move_together():
    (axis,) = axes(["plan.tp,plan.pp=(1,8),(2,4),(8,1)"])
    assert axis.fields == ("plan.tp", "plan.pp")
    assert axis.points == ((1, 8), (2, 4), (8, 1))


def test_values_in_python():
    made = axes({"plan.tp": [1, 2], "plan.pp": "1..8:x2", "plan.cp,plan.ep": [(1, 2), (2, 1)], "stack": iter(["a"])})
    assert [len(axis.points) for axis in made] == [2, 4, 2, 1]


@pytest.mark.parametrize("given_", [5, None, {}, [], {"a": 1}])
def test_python_values_that_are_none(given_):
    with pytest.raises(BadScenario):
        axes({"plan.tp": given_})


@given(
    low=st.floats(1e-6, 1e6),
    factor=st.floats(1.001, 1e6),
    count=st.integers(2, 200),
    kind=st.sampled_from(["lin", "log"]),
)
def test_spaced_points_ascend_from_end_to_end(low, factor, count, kind):
    made = values(f"{low!r}..{low * factor!r}:{kind}{count}")
    assert (made[0], made[-1], len(made)) == (low, low * factor, count)
    assert all(a < b for a, b in pairwise(made))
    rest = [b - a if kind == "lin" else math.log(b / a) for a, b in pairwise(made)]
    assert max(rest) - min(rest) <= 1e-6 * max(made[-1] if kind == "lin" else 1.0, 1e-6)


@given(low=st.integers(1, 1000), high=st.integers(1, 5000), step=st.integers(1, 50))
def test_steps_are_those_of_a_range(low, high, step):
    if high >= low:
        assert values(f"{low}..{high}:+{step}") == tuple(range(low, high + 1, step))


@given(unit=st.sampled_from(["Gbps", " GB/s", " Mbit/s"]), low=st.integers(1, 9), high=st.integers(10, 900))
def test_every_point_has_the_unit_of_the_ends(unit, low, high):
    made = [quantity(text, "bandwidth") for text in values(f"{low}{unit}..{high}{unit}:log7")]
    assert made[0] == quantity(f"{low}{unit}", "bandwidth")
    assert made[-1] == quantity(f"{high}{unit}", "bandwidth")
    assert made == sorted(set(made))


@given(st.text(alphabet="0123456789.,:x+-linogGMbps ms$[](){}'\"\\eE_/\n", max_size=30))
def test_any_text_is_values_or_one_refusal(text):
    try:
        assert 0 < len(values(text)) <= MOST
    except BadScenario as error:
        assert str(error)  # noqa: PT017  (either outcome is right)


@pytest.mark.parametrize(("text", "several"), [("1,2", True), ("1..4", True), ("none", False), ("../a.yaml", False)])
def test_what_stands_for_several_values(text, several):
    assert is_range(text) is several


def test_commas_inside_brackets_part_nothing():
    assert parts("[1,2],{a: 1, b: 2},(3,4),'5,6'") == ["[1,2]", "{a: 1, b: 2}", "(3,4)", "'5,6'"]
