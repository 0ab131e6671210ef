"""Text with units: what is read, what is refused with its readings, and the round trip through `show`."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardmeter.core.errors import BadQuantity
from shardmeter.core.quantity import BOUNDS, EXAMPLES, MONTH, counted, price, quantity, show

READ = [
    ("400 Gbps", "bandwidth", 50e9),
    ("400 Gbit/s", "bandwidth", 50e9),
    ("400Gb/s", "bandwidth", 50e9),
    ("50 GB/s", "bandwidth", 50e9),
    ("1 GiB/s", "bandwidth", 2.0**30),
    ("80 GiB", "size", 80 * 2.0**30),
    ("2 GB", "size", 2e9),
    ("8 Gbit", "size", 1e9),
    ("40 ms", "time", 0.04),
    ("6 us", "time", 6e-6),
    ("30 d", "time", 30 * 86400.0),
    ("2 h", "time", 7200.0),
    ("4M", "count", 4e6),
    ("1.5T", "count", 1.5e12),
    ("8", "count", 8.0),
    (8, "count", 8.0),
    ("1_000", "count", 1000.0),
    ("989 TFLOP/s", "flops_rate", 989e12),
    ("700 W", "power", 700.0),
    ("1 MW", "power", 1e6),
    ("$0.02/GB", "egress", 0.02e-9),
    ("$2M", "money", 2e6),
    ("$1,234", "money", 1234.0),
    ("2 USD", "money", 2.0),
    (0.001, "fraction", 0.001),
    ("5%", "fraction", 0.05),
    ("1.25", "ratio", 1.25),
]


@pytest.mark.parametrize(("text", "dimension", "value"), READ)
def test_reads(text: object, dimension: str, value: float) -> None:
    assert quantity(text, dimension) == pytest.approx(value, rel=1e-15)


@pytest.mark.parametrize(
    ("text", "dimension", "readings"),
    [
        ("400G", "bandwidth", ("GB/s", "Gb/s")),
        ("400 GBPS", "bandwidth", ("GB/s", "Gb/s")),
        ("400 gbps", "bandwidth", ("GB/s", "Gb/s")),
        ("80 gb", "size", ("GB", "Gbit")),
        ("80G", "size", ("GB", "Gbit")),
        ("80 Gb", "size", ("bits", "bytes")),
        ("5 m", "time", ("min", "months")),
        ("$2/h", "price", ("/gpu/h", "/node/h")),
        ("1,234", "count", ("1234", "1.234")),
        ("989 TFLOPs", "flops_rate", ("rate", "amount")),
    ],
)
def test_two_readings_are_refused_with_both(text: str, dimension: str, readings: tuple[str, str]) -> None:
    with pytest.raises(BadQuantity) as caught:
        quantity(text, dimension)
    assert all(reading in str(caught.value) for reading in readings)


@pytest.mark.parametrize("dimension", [d for d in EXAMPLES if d not in ("count", "ratio", "fraction")])
@pytest.mark.parametrize("bare", ["80", 80, 80.0])
def test_a_bare_number_needs_its_unit(dimension: str, bare: object) -> None:
    with pytest.raises(BadQuantity, match=r"has no (unit|\$)"):
        quantity(bare, dimension)


@pytest.mark.parametrize("dimension", EXAMPLES)
@pytest.mark.parametrize(
    "text", ["", "nan", "inf", "-inf", "GB", "1e999 GB", None, True, [1], {}, 1 << 5000, "9" * 400]
)
def test_no_number_is_refused(dimension: str, text: object) -> None:
    with pytest.raises(BadQuantity):
        quantity(text, dimension)


@pytest.mark.parametrize("text", [float("nan"), float("inf"), -1, "-3", 1e31, "1e31"])
def test_negative_huge_and_nan_are_refused(text: object) -> None:
    with pytest.raises(BadQuantity):
        quantity(text, "count")


def test_every_example_reads_as_what_it_is_an_example_of() -> None:
    for dimension, text in EXAMPLES.items():
        for part in text.replace(" or ", ", ").split(", "):
            assert quantity(part, dimension) > 0


def test_counts_keep_their_word() -> None:
    assert counted("8M tokens") == (8e6, "tokens")
    assert counted("100 steps") == (100.0, "steps")
    assert counted("1 sequence") == (1.0, "sequences")
    assert counted("1.5 T") == (1.5e12, "")
    with pytest.raises(BadQuantity):
        counted("8M bananas")
    assert quantity("8M tokens", "count", words=("tokens",)) == 8e6
    with pytest.raises(BadQuantity, match="counts tokens"):
        quantity("8 tokens", "count")


@pytest.mark.parametrize("dimension", BOUNDS)
def test_every_dimension_has_sane_bounds(dimension: str) -> None:
    unit = {"bandwidth": "B/s", "size": "B", "time": "s", "flops_rate": "FLOP/s", "power": "W", "length": "m"}.get(
        dimension, ""
    )
    pattern = {
        "price": "${}/gpu/h", "egress": "${}/GB", "money": "${}", "storage": "${}/GB/month", "electricity": "${}/kWh",
        "carbon": "{} g/kWh",
    }.get(dimension, "{} " + unit)  # fmt: skip
    least, most = BOUNDS[dimension]
    scale = {"price": 3600.0, "egress": 1e9, "storage": 1e9 * MONTH, "electricity": 3.6e6, "carbon": 3.6e9}.get(
        dimension, 1.0
    )
    for value in (most * 3.0, 1e250, *([least / 3.0, 1e-300] if least else [])):
        with pytest.raises(BadQuantity, match=r"too large|too small|no fraction"):
            quantity(pattern.format(repr(value * scale)), dimension)


def test_a_price_keeps_its_basis() -> None:
    assert price("$3.60/gpu/h") == (0.001, "gpu")
    assert price("$36/node/hour") == (0.01, "node")


@pytest.mark.parametrize(
    ("value", "unit", "text"),
    [
        (6.95, "s", "6.95 s"),
        (0.311, "s", "311 ms"),
        (0.9999, "s", "1 s"),
        (93.3 * 2**30, "B", "93.3 GiB"),
        (1.5e12, "tokens", "1.5T tokens"),
        (64, "1", "64"),
        (1234, "USD", "$1,234"),
        (2.345e6, "USD", "$2.35M"),
        (2.1 / 3600, "USD/s", "$2.10/h"),
        (0.02e-9, "USD/B", "$0.02/GB"),
        (989e12, "FLOP/s", "989 TFLOP/s"),
        (0.631, "%", "63.1%"),
        (30 * 86400, "s", "30 d"),
        (0, "B", "0 B"),
        (-2, "s", "-2 s"),
        (math.nan, "s", "n/a"),
        (None, "s", "n/a"),
    ],
)
def test_shows(value: float | None, unit: str, text: str) -> None:
    assert show(value, unit) == text


ROUND_TRIPS = [
    ("s", "time", 1e-7, 1e9),
    ("B", "size", 1.0, 1e15),
    ("B/s", "bandwidth", 1.01e3, 1e14),
    ("FLOP/s", "flops_rate", 1.01e6, 1e17),
    ("W", "power", 1.0, 1e8),
    ("USD", "money", 1.0, 1e11),
    ("USD/B", "egress", 1e-14, 1e-7),
    ("1", "count", 1.0, 1e15),
    ("tokens", "count", 1.0, 1e15),
    ("%", "fraction", 1e-8, 0.995),
]


@given(st.data())
def test_what_is_shown_reads_back_to_three_digits(data: st.DataObject) -> None:
    unit, dimension, low, high = data.draw(st.sampled_from(ROUND_TRIPS))
    value = data.draw(st.floats(low, high))
    assert quantity(show(value, unit), dimension, words=(unit,)) == pytest.approx(value, rel=5.01e-3, abs=1e-14)


@given(st.text(max_size=40) | st.floats() | st.integers() | st.none(), st.sampled_from(sorted(EXAMPLES)))
def test_fuzz_gives_a_finite_number_or_a_refusal(text: object, dimension: str) -> None:
    try:
        value = quantity(text, dimension)
    except BadQuantity:
        return
    assert math.isfinite(value)
    assert value >= 0


@given(st.from_regex(r"\A[$]?[0-9]{1,4}[.,]?[0-9]{0,4} ?[kKMGTgmb]?i?[bB]?(ps|/s|it/s|/gpu/h)?\Z"))
def test_near_misses_never_break(text: str) -> None:
    for dimension in EXAMPLES:
        try:
            assert quantity(text, dimension) >= 0
        except BadQuantity:
            continue


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(2.0, "2.00 s"), (14.9, "14.9 s"), (16.0, "16.0 s"), (0.41, "410 ms"), (0.005, "5.00 ms"), (0.0, "0 s"), (86400.0, "24.0 h"),
     (9.999, "10.0 s"), (1e9, "11600 d")],
)  # fmt: skip
def test_a_column_of_seconds_keeps_its_zeros(seconds: float, text: str) -> None:
    assert show(seconds, "s", padded=True) == text
