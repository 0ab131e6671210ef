"""Every sync method in its package: one cell moves nothing, fewer bits and longer rounds move less, memory is counted once.

Methods are found by name: a new file needs no new test.
"""

from __future__ import annotations

import dataclasses
import itertools
import re
from typing import Any

import numpy as np
import pytest

from shardmeter import sync
from shardmeter.core.errors import UnknownName
from shardmeter.core.record import changed, field_names
from shardmeter.core.units import Number
from shardmeter.scenario.catalog import load_catalog
from shardmeter.specs import Replica, Round, Sync
from shardmeter.specs.round import BASES, COLLECTIVES
from shardmeter.sync import _measured

CATALOG = load_catalog()
ONE_B = Replica(
    parameters=1e9, gradient_bytes=2.0, layers=24.0, cells=2.0,
    matrices=((32_000.0, 2_048.0, 2.0), (2_048.0, 2_048.0, 64.0), (2_048.0, 8_192.0, 32.0)),
)  # fmt: skip
"""A billion parameters, 937 million of them in matrices of three shapes."""
LABELS = ("Bytes", "Period", "Window", "Memory", "Compute", "Convergence", "Source", "Leaves out")
VALUES: dict[str, tuple[Any, Any]] = {
    "sync_every": (30.0, 100.0), "num_fragments": (2, 8), "fragment_sync_delay": (1.0, 3.0),
    "fragment_update_alpha": (0.0, 0.5), "bits": (16.0, 8.0), "top_k": (1.0, 0.01), "lead": (0.0, 0.55),
    "outer_state": ("device", "host"), "topology": ("ring", "star"), "hierarchical": (True, False),
    "grace": (0.0, 9.0), "split": ("speed", "equal"), "release": ("layers", "end"), "blocks": (2, 4), "levels": (1, 2), "rank": (4.0, 64.0),
    "perturbations": (1.0, 8.0), "together": (1.0, 8.0), "experts": (0.0, 4.0),
}  # fmt: skip
"""Two values of every field of `Sync`, the method apart."""
OF_THE_ENGINE = {"topology", "hierarchical", "release", "split", "grace", "fragment_update_alpha", "experts"}
"""Fields that change how messages pass, who computes what, how many there may be, or the loss; never the demands."""
PERIODIC = tuple(name for name in sync.names() if "sync_every" in sync.method(name).FIELDS)
every_method = pytest.mark.parametrize("name", sync.names())
periodic_method = pytest.mark.parametrize("name", PERIODIC)


def fewest(name: str, **fields: Any) -> float:
    """The least cells above one that a method can join: two, if it does not deal out parts of a model."""
    asked = changed(sync.defaults(name), **fields)
    return next(float(cells) for cells in range(2, 100) if not sync.faults(asked, cells))


def round_of(name: str, replica: Replica = ONE_B, **fields: Any) -> Round:
    """A round of a method at its defaults, some fields changed."""
    return sync.round_of(replica, changed(sync.defaults(name), **fields))


def is_silent(name: str) -> bool:
    """Whether nothing crosses, by the docstring's own word."""
    return re.search(r"^Bytes: none\.$", sync.method(name).__doc__ or "", re.MULTILINE) is not None


def deals_out(name: str) -> bool:
    """Whether cells train different parts: the groups of its messages follow from a plain count of cells."""
    return any(one.groups for one in round_of(name, changed(ONE_B, cells=4.0)).crossings)


def held(demands: Round) -> Number:
    """Bytes that one cell holds of all messages of a round."""
    return sum(one.messages * one.size for one in demands.crossings)


def memory(demands: Round) -> float:
    return float(sum(one.size for one in (*demands.residents, *demands.host_residents)))


def per_step(name: str, **fields: Any) -> Number:
    demands = round_of(name, **fields)
    return held(demands) / demands.steps


def all_reduce(demands: Round, cells: float) -> Number:
    """Bytes that a cell sends in a round whose messages are all-reduces: the least there can be."""
    assert {one.collective for one in demands.crossings} == {"all_reduce"}
    return 2.0 * (cells - 1.0) / cells * held(demands)


def test_every_field_has_two_values() -> None:
    assert set(VALUES) == set(field_names(Sync)) - {"method"}


def test_an_unknown_method_is_told_the_nearest() -> None:
    with pytest.raises(UnknownName, match="streaming_diloco"):
        sync.method("streaming")


@every_method
def test_it_is_documented_and_cited(name: str) -> None:
    module = sync.method(name)
    text = module.__doc__ or ""
    missing = [label for label in LABELS if not re.search(rf"^{label}: \S", text, re.MULTILINE)]
    missing += [field for field in module.FIELDS if f"`{field}`" not in text]
    assert not missing, f"the docstring of {name} does not say {missing}"
    assert module.SOURCE in CATALOG.names("citations")
    assert set(module.DEFAULTS) <= set(module.FIELDS) <= set(VALUES)


@every_method
def test_its_fields_are_those_that_it_reads(name: str) -> None:
    """Four cells: enough for two levels, two blocks and two copies of each."""
    four = changed(ONE_B, cells=4.0)

    def demands(**said: Any) -> Any:
        """Of a round and of an inner step."""
        return round_of(name, four, **said), sync.inner_of(changed(sync.defaults(name), **said))

    fields, plain = sync.method(name).FIELDS, demands()
    for field, values in VALUES.items():
        moved = any(demands(**{field: value}) != plain for value in values)
        assert moved == (field in fields and field not in OF_THE_ENGINE), field


@every_method
def test_one_cell_moves_nothing_and_counts_as_one(name: str) -> None:
    alone, several = round_of(name, changed(ONE_B, cells=1.0)), round_of(name, changed(ONE_B, cells=fewest(name)))
    assert held(alone) == 0.0
    assert (held(several) == 0.0) == is_silent(name)
    assert alone.progress.replicas == 1.0
    assert alone.steps == several.steps


@every_method
def test_its_words_are_known(name: str) -> None:
    demands = round_of(name)
    assert demands.pace in {"barrier", "deadline", "own"}
    assert {one.collective for one in demands.crossings} <= set(COLLECTIVES)
    assert all(one.behind in {"", "backward"} for one in demands.crossings)
    assert all(note and note[0].islower() and not note.endswith(".") for note in demands.notes)


@periodic_method
def test_int8_halves_the_bytes_of_bf16(name: str) -> None:
    """Where positions are sent beside the values, they keep their bits: all values are sent here."""
    bf16, int8 = round_of(name, bits=16.0, top_k=1.0), round_of(name, bits=8.0, top_k=1.0)
    assert held(int8) == pytest.approx(held(bf16) / 2.0)
    assert int8.progress.bits == pytest.approx(bf16.progress.bits / 2.0)


@periodic_method
def test_longer_rounds_move_less_and_in_the_limit_nothing(name: str) -> None:
    moved = [per_step(name, sync_every=steps) for steps in (1.0, 10.0, 1e3, 1e9, 1e15)]
    assert moved == sorted(moved, reverse=True)
    assert moved[-1] < 1e-4


@pytest.mark.parametrize("name", [name for name in PERIODIC if "num_fragments" in sync.method(name).FIELDS])
def test_fragments_keep_the_bytes_of_a_round(name: str) -> None:
    whole, parts = round_of(name, num_fragments=1), round_of(name, num_fragments=12)
    assert held(parts) == pytest.approx(held(whole))
    assert parts.crossings[0].size == pytest.approx(whole.crossings[0].size / 12.0)
    assert parts.crossings[0].messages == 12.0


@every_method
@pytest.mark.parametrize("outer_state", ["device", "host"])
def test_memory_is_positive_and_counted_once(name: str, outer_state: str) -> None:
    """Of eight cells: two copies of each of four blocks."""
    where: dict[str, Any] = {"outer_state": outer_state} if "outer_state" in sync.method(name).FIELDS else {}
    eight = changed(ONE_B, cells=8.0)
    demands = round_of(name, eight, **where)
    terms = (*demands.residents, *demands.host_residents)
    assert all(term.size > 0.0 and term.exactness in {"exact", "modelled", "estimated"} for term in terms)
    assert len({term.label for term in terms}) == len(terms)
    twice = tuple((rows, columns, 2.0 * many) for rows, columns, many in ONE_B.matrices)
    double = round_of(name, changed(eight, parameters=2e9, matrices=twice), **where)
    assert memory(double) == pytest.approx(2.0 * memory(demands))


@pytest.mark.parametrize("name", [name for name in sync.names() if "outer_state" in sync.method(name).FIELDS])
def test_state_on_hosts_leaves_the_device(name: str) -> None:
    device, host = round_of(name, outer_state="device"), round_of(name, outer_state="host")

    def bytes_of(terms: Any) -> float:
        return float(sum(one.size for one in terms))

    assert bytes_of(host.residents) < bytes_of(device.residents)
    assert bytes_of(host.host_residents) > bytes_of(device.host_residents)
    assert host.traffic < device.traffic
    assert any("hosts" in note for note in host.notes)


@every_method
def test_scalar_equals_vector(name: str) -> None:
    """Cells too, but where groups of them are dealt out: those are counted one by one."""
    cells = np.full(4, 4.0) if deals_out(name) else np.array([1.0, 2.0, 5.0, 14.0])
    arrays = {
        "sync_every": np.array([1.0, 7.0, 30.0, 500.0]), "bits": np.array([32.0, 16.0, 8.0, 2.0]),
        "top_k": np.array([1.0, 0.5, 0.02, 0.001]), "fragment_sync_delay": np.array([0.0, 1.0, 2.0, 40.0]),
        "lead": np.array([0.0, 0.3, 0.55, 1.0]), "rank": np.array([0.0, 4.0, 512.0, 8_192.0]),
        "perturbations": np.array([1.0, 2.0, 64.0, 1e6]),
    }  # fmt: skip
    together = round_of(name, changed(ONE_B, cells=4.0 if deals_out(name) else cells), **arrays)
    for k in range(4):
        alone = round_of(
            name, changed(ONE_B, cells=float(cells[k])), **{key: float(value[k]) for key, value in arrays.items()}
        )
        assert numbers(alone) == [float(np.broadcast_to(one, 4)[k]) for one in numbers(together)]


def numbers(value: Any) -> list[Any]:
    """Every number of a record, in order."""
    if isinstance(value, tuple):
        return [one for part in value for one in numbers(part)]
    if dataclasses.is_dataclass(value):
        return [one for field in dataclasses.fields(value) for one in numbers(getattr(value, field.name))]
    return [] if isinstance(value, str | bool | None) else [value]


def test_what_the_optimizer_sees() -> None:
    """(replicas, period, delay, bits) of every method: 4 cells, H = 100, τ = 2, 8 bits of every value, 2 blocks, 2 levels. A method
    without a line of its own fails here."""
    seen = {
        name: round_of(
            name,
            changed(ONE_B, cells=4.0),
            sync_every=100.0,
            fragment_sync_delay=2.0,
            bits=8.0,
            top_k=1.0,
            rank=0.0,
            blocks=2,
            levels=2,
        ).progress
        for name in sync.names()
    }
    assert {n: (p.replicas, p.period, p.delay, p.bits) for n, p in seen.items()} == {
        "every_step": (1.0, 1.0, 0.0, 16.0),
        "local_sgd": (4.0, 100.0, 0.0, 8.0),
        "diloco": (4.0, 100.0, 0.0, 8.0),
        "streaming_diloco": (4.0, 100.0, 2.0, 8.0),
        "eager_diloco": (4.0, 100.0, 100.0, 8.0),
        "async_local_sgd": (4.0, 100.0, 75.0, 8.0),
        "decoupled_diloco": (4.0, 100.0, 2.0, 8.0),
        "sparse_loco": (4.0, 100.0, 0.0, 8.0),
        "powersgd": (4.0, 100.0, 0.0, 8.0),
        "dilocox": (4.0, 100.0, 100.0, 8.0),
        "noloco": (4.0, 100.0, 0.0, 16.0),
        "demo": (1.0, 1.0, 2.0, 8.0),
        "block_train": (2.0, 100.0, 0.0, 8.0),
        "dipaco": (2.0, 100.0, 0.0, 8.0),
        "branch_train_merge": (1.0, 1.0, 0.0, 0.0),
        "mezo": (1.0, 1.0, 0.0, 0.0),
        "spsa": (1.0, 1.0, 0.0, 0.0),
        "eggroll": (1.0, 1.0, 0.0, 0.0),
        "soma": (1.0, 1.0, 0.0, 0.0),
    }


@every_method
def test_it_says_what_is_known_of_its_loss(name: str) -> None:
    """A figure that is known is no gain, and one that is not is none."""
    for cells in (fewest(name), 64.0):
        for size in (20e6, 1e9, 400e9):
            known = sync.effect(changed(ONE_B, cells=cells, parameters=size), sync.defaults(name))
            assert known.basis in BASES
            assert known.source in CATALOG.names("citations")
            assert re.search(r"^[a-z0-9].*[^.]$", known.text)
            assert known.factor is None or np.all(np.greater_equal(known.factor, 1.0))
            assert known.nats is None or np.all(np.greater_equal(known.nats, 0.0))
            assert known.basis == "unknown" or known.factor is not None or known.nats is not None


@periodic_method
def test_more_cells_and_longer_rounds_are_never_known_to_cost_less(name: str) -> None:
    """Cells that a method can join: powers of four, of which every part has more copies."""

    def costs(cells: float, period: float) -> list[float]:
        known = sync.effect(changed(ONE_B, cells=cells), changed(sync.defaults(name), sync_every=period))
        return [float(known.factor or 1.0), float(known.nats or 0.0)]

    for fewer, more in itertools.pairwise((4.0, 16.0, 64.0)):
        assert all(np.less_equal(costs(fewer, 30.0), costs(more, 30.0)))
    for shorter, longer in itertools.pairwise((1.0, 30.0, 100.0, 500.0)):
        assert all(np.less_equal(costs(4.0, shorter), costs(4.0, longer)))


def test_what_replicas_cost_is_that_of_the_measured_runs() -> None:
    """Charles 2025, Table 4 at 2.4B and H = 30; Douillard 2025, Table 6 at 1B and H = 100. A gain that was measured counts as none."""
    asked = changed(sync.defaults("diloco"), sync_every=30.0)
    for cells, ratio in ((1.0, 1.0), (2.0, 1.0), (4.0, 2.332 / 2.326), (8.0, 2.351 / 2.326)):
        known = sync.effect(changed(ONE_B, cells=cells, parameters=2.4e9), asked)
        assert known.basis == "published"
        assert float(known.factor or 0.0) == pytest.approx(ratio, abs=1e-4)
    longer = changed(asked, sync_every=100.0)
    for cells, ratio in ((2.0, 2.50 / 2.49), (4.0, 2.53 / 2.49)):
        known = sync.effect(changed(ONE_B, cells=cells), longer)
        assert known.basis == "published"
        assert float(known.factor or 0.0) == pytest.approx(ratio, abs=1e-4)


@pytest.mark.parametrize(
    ("outside", "period"),
    [({"cells": 9.0}, 30.0), ({"parameters": 30e6}, 30.0), ({"parameters": 11e9}, 30.0), ({}, 101.0), ({"cells": 8.0}, 100.0)],
)  # fmt: skip
def test_beyond_the_measured_runs_replicas_are_no_free_lunch(outside: dict[str, float], period: float) -> None:
    """Flagged, and no less than the joint fit, whose exponent grows with ln H."""
    told = changed(ONE_B, **{"cells": 4.0, **outside})
    known = sync.effect(told, changed(sync.defaults("diloco"), sync_every=period))
    assert known.basis == "extrapolated"
    assert known.text.startswith("beyond the measured runs")
    least = float(told.cells) ** (0.0116 * max(np.log(period) / np.log(30.0), 1.0))
    assert float(known.factor or 0.0) >= least * (1.0 - 1e-12)


def test_rounds_shorter_than_measured_cost_what_those_do() -> None:
    short, measured = (
        sync.effect(changed(ONE_B, cells=4.0), changed(sync.defaults("diloco"), sync_every=period)) for period in (5.0, 30.0)
    )  # fmt: skip
    assert short.basis == "derived"
    assert short.factor == measured.factor


def test_the_gap_of_replicas_is_that_of_each_scalar() -> None:
    cells, periods = np.array([1.0, 2.0, 3.0, 8.0, 40.0])[:, None], np.array([1.0, 30.0, 60.0, 100.0, 700.0])
    asked = changed(sync.defaults("diloco"), sync_every=periods)
    whole = sync.effect(changed(ONE_B, cells=cells), asked).factor
    for i, j in np.ndindex(5, 5):
        one = sync.effect(changed(ONE_B, cells=float(cells[i, 0])), changed(asked, sync_every=float(periods[j])))
        # a power of an array and of a number may differ in the last digit: processors have instructions of their own for many
        assert np.asarray(whole)[i, j] == pytest.approx(float(one.factor or 0.0), rel=1e-15)


def test_an_effect_of_several_things_says_each_with_its_basis() -> None:
    """Replicas where they were measured; so long a delay is a guess, and so the whole is."""
    asked = changed(sync.defaults("streaming_diloco"), sync_every=100.0, fragment_sync_delay=50.0)
    known = sync.effect(changed(ONE_B, cells=2.0), asked)
    assert known.basis == "guess"
    assert [(one.basis, one.source) for one in known.parts] == [("published", "douillard2025"), ("guess", "kale2025")]


def test_fragments_under_way_are_those_of_the_window() -> None:
    """8 fragments of 100 steps start 12.5 apart: 1 under way for τ ≤ 12.5, 2 up to 25, all 8 from 87.5 on."""

    def under_way(delay: float) -> float:
        terms = round_of("streaming_diloco", num_fragments=8, bits=8.0, fragment_sync_delay=delay).residents
        return float(next(one.size for one in terms if one.label == "outer messages under way")) / (1e9 / 8.0)

    assert [under_way(delay) for delay in (0.0, 12.5, 13.0, 25.0, 100.0, 500.0)] == [1.0, 1.0, 2.0, 2.0, 8.0, 8.0]


# what the papers print


def test_intellect_1_moves_400_times_less() -> None:
    """100 steps a round and int8 against fp32 gradients every step (Jaghouar 2024b, abstract)."""
    ten_b = changed(ONE_B, parameters=10e9, gradient_bytes=4.0, cells=14.0)
    every = per_step("every_step", replica=ten_b)
    assert every / per_step("diloco", replica=ten_b, sync_every=100.0, bits=8.0) == pytest.approx(400.0)
    assert all_reduce(round_of("diloco", ten_b, bits=8.0), 14.0) == pytest.approx(18.57e9, rel=1e-3)


def test_open_diloco_sends_3_3_gb() -> None:
    """1.1 B parameters in fp16 over four islands (Jaghouar 2024)."""
    assert all_reduce(round_of("diloco", changed(ONE_B, parameters=1.1e9, cells=4.0)), 4.0) == pytest.approx(3.3e9)


def test_covenant_72b_uploads_1_99_gb() -> None:
    """72.7 B parameters, 64 of 4,096 with 2 + 12 bits: 0.21875 bit a parameter, 146.3 times less than fp32."""
    demands = round_of("sparse_loco", changed(ONE_B, parameters=72.7e9, cells=20.0))
    assert demands.crossings[0].collective == "all_gather"
    assert demands.progress.bits == pytest.approx(0.21875)
    assert held(demands) == pytest.approx(1.99e9, rel=2e-3)
    assert 32.0 / demands.progress.bits == pytest.approx(146.3, rel=1e-3)


@pytest.mark.parametrize(
    ("every_tb", "streaming_tb", "hours", "hours_at_1_gbps"),
    [(441.0, 1.10, 0.67, 109.0), (1767.0, 4.42, 2.7, 438.0), (4418.0, 11.05, 6.75, 1097.0)],
)
def test_streaming_diloco_moves_400_times_less(
    every_tb: float, streaming_tb: float, hours: float, hours_at_1_gbps: float
) -> None:
    """Table 1 of Douillard 2025: 25, 100 and 250 B tokens of a 1 B model over two cells.

    The ratio is H · 16/4 = 400. Of the volume itself the table contradicts itself: 441 TB do not pass 1 Gb/s in 109 h, which
    carry 49. The steps are those of the hours at infinite bandwidth, 0.1 s each (1.04 M tokens); with 16 bits a gradient
    they move what the hours at 1 Gb/s carry, and the printed figures are within an eighth of it in terabits."""
    ratio = per_step("every_step") / per_step("streaming_diloco")
    assert ratio == pytest.approx(400.0)
    assert ratio == pytest.approx(every_tb / streaming_tb, rel=3e-3)
    steps = hours * 3600.0 / 0.1
    moved = steps * all_reduce(round_of("every_step"), 2.0)
    assert moved == pytest.approx(hours_at_1_gbps * 3600.0 * 1e9 / 8.0, rel=0.03)
    assert moved * 8.0 == pytest.approx(every_tb * 1e12, rel=0.125)


def test_diloco_keeps_8_bytes_a_parameter_more() -> None:
    """fp32 copy and momentum; half as much again, and more, beside the 12 of an fp32 master and two moments."""
    assert memory(round_of("diloco")) == 8.0 * ONE_B.parameters
    assert memory(round_of("diloco")) / (12.0 * ONE_B.parameters) == pytest.approx(0.66, abs=0.01)


def test_how_far_the_measured_runs_go_is_what_the_runs_are() -> None:
    """Each end that the words name is inside, and a step beyond it is not: so a reader can tell why a fleet is extrapolated."""
    told = _measured.reach()
    assert told == "C4 from 35M: at H = 30 4 cells to 10B and 8 to 2.4B; at H = 100 2 cells to 4B and 4 to 1B"
    for cells, period, size in ((4.0, 30.0, 10e9), (8.0, 30.0, 2.4e9), (2.0, 100.0, 4e9), (4.0, 100.0, 1e9)):
        assert _measured.is_inside(cells, size, period)
        assert not _measured.is_inside(cells, 1.01 * size, period)
        assert not _measured.is_inside(cells, 34e6, period)
