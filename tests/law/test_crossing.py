"""What passes between islands: better networks are never slower, names do not matter, one cell sends nothing, bits count."""

from itertools import permutations
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from shardmeter.core.errors import UnknownName
from shardmeter.core.record import changed
from shardmeter.engine.crossing import WORDS, price
from shardmeter.engine.links import rates
from shardmeter.engine.ring import bottleneck_bound, ring_front, ring_order
from shardmeter.physics import crossing as physics
from shardmeter.specs.plan import Sync
from shardmeter.specs.round import COLLECTIVES, Crossing
from shardmeter.specs.wan import TRANSPORTS, Wan

ROUNDING = 1 + 1e-9
ISLANDS = 5
law = settings(max_examples=15, deadline=None)
PASSING = [("all_reduce", word) for word in WORDS if word != "auto"] + [("exchange", "auto")]


def network(rng: np.random.Generator, islands: int = ISLANDS) -> Any:
    """A random network, unlike in both directions."""
    pairs = (islands, islands)
    return Wan(
        islands=tuple(f"i{at}" for at in range(islands)),
        bandwidth=rng.lognormal(20, 1, pairs),
        rtt=rng.uniform(1e-3, 0.1, pairs),
        loss=10 ** rng.uniform(-8, -2, pairs),
        window=10 ** rng.uniform(5, 8),
        streams=rng.integers(1, 33) * 1.0,
        lanes=rng.choice([1.0, 8.0]),
        egress=2e-11,
        up=rng.lognormal(20, 1, islands),
        down=rng.lognormal(20, 1, islands),
        transport=tuple(rng.choice(TRANSPORTS, islands)),
    )


def message(collective="all_reduce", size=1e9, **fields):
    return Crossing(label="m", collective=collective, size=size, **fields)


def alone(wan):
    return [(at,) for at in range(len(wan.islands))]


def seconds(wan, collective="all_reduce", topology="auto", size=1e9, cells=None, **more):
    sync = Sync(topology=topology, hierarchical=more.pop("hierarchical", True))
    return price(message(collective, size), wan, cells or alone(wan), sync, **more).seconds


@pytest.mark.parametrize(("collective", "topology"), PASSING)
@law
@given(seed=st.integers(0, 10**6), log_size=st.floats(5, 11))
def test_a_better_network_is_never_slower(collective, topology, seed, log_size):
    rng = np.random.default_rng(seed)
    wan, size = network(rng), 10**log_size
    source, target = rng.choice(ISLANDS, 2, replace=False)
    wider = np.array(wan.bandwidth)
    wider[source, target] *= 3.0
    site = np.array(wan.up)
    site[source] *= 3.0
    before = seconds(wan, collective, topology, size)
    for better in (
        {"bandwidth": wider},
        {"bandwidth": wan.bandwidth * 2.0},
        {"up": site},
        {"down": wan.down * 2.0},
        {"rtt": wan.rtt / 2.0},
        {"loss": wan.loss / 10.0},
        {"window": wan.window * 2.0},
        {"streams": wan.streams * 2.0},
    ):
        assert seconds(changed(wan, **better), collective, topology, size) <= before * ROUNDING, better


@pytest.mark.parametrize(("collective", "topology"), PASSING)
@law
@given(seed=st.integers(0, 10**6))
def test_names_do_not_matter(collective, topology, seed):
    rng = np.random.default_rng(seed)
    wan, order = network(rng), rng.permutation(ISLANDS)
    grid = np.ix_(order, order)
    renamed = changed(
        wan,
        islands=tuple(wan.islands[at] for at in order),
        bandwidth=wan.bandwidth[grid],
        rtt=wan.rtt[grid],
        loss=wan.loss[grid],
        up=wan.up[order],
        down=wan.down[order],
        transport=tuple(wan.transport[at] for at in order),
    )
    assert seconds(renamed, collective, topology) == pytest.approx(seconds(wan, collective, topology), rel=1e-12)


@pytest.mark.parametrize("collective", COLLECTIVES)
@pytest.mark.parametrize("own", [False, True])
def test_one_cell_moves_nothing(collective, own):
    wan = network(np.random.default_rng(0))
    found: Any = price(message(collective, np.array([1e6, 1e9])), wan, [(0, 1, 2)], Sync(), own=own)
    assert np.all(found.seconds == 0.0)
    assert found.seconds.shape == ((2, 1) if own else (2,))
    assert np.all(found.sent == 0.0)
    assert np.all(found.egress == 0.0)


@pytest.mark.parametrize(("collective", "topology"), PASSING)
def test_sizes_in_an_array_are_sizes_one_by_one(collective, topology):
    wan, sizes = network(np.random.default_rng(3)), np.array([1e5, 1e8, 1e10])
    sync = Sync(topology=topology)
    many: Any = price(message(collective, sizes), wan, alone(wan), sync, own=True)
    assert many.seconds.shape == (3, ISLANDS)
    assert many.sent.shape == (3, ISLANDS)
    if topology != "star":  # one server for all sizes
        for size, row in zip(sizes, many.seconds, strict=True):
            assert np.array_equal(price(message(collective, size), wan, alone(wan), sync, own=True).seconds, row)
    one = price(message(collective, sizes[1]), wan, alone(wan), sync)
    assert one.seconds <= price(message(collective, 2.0 * sizes[1]), wan, alone(wan), sync).seconds


def test_half_the_bits_are_half_the_bytes():
    wan = network(np.random.default_rng(1))
    whole, half = (price(message(size=size), wan, alone(wan), Sync()) for size in (1e9, 5e8))
    assert np.array_equal(half.sent * 2.0, whole.sent)
    assert half.egress * 2.0 == pytest.approx(whole.egress)
    assert half.seconds < whole.seconds
    assert whole.sent == pytest.approx(np.full(ISLANDS, 2 * (ISLANDS - 1) / ISLANDS * 1e9))


@pytest.mark.parametrize("lanes", [1.0, 8.0])
@pytest.mark.parametrize("islands", [2, 3, 6])
@pytest.mark.parametrize("size", [2e8, 1e10])
def test_large_messages_are_never_slower_reduced_inside_first(lanes, islands, size):
    wan = changed(network(np.random.default_rng(islands), islands), lanes=lanes)
    inside, flat = (
        seconds(wan, size=size, hierarchical=first, accelerators=[8.0] * islands) for first in (True, False)
    )
    assert inside <= flat


def test_parts_of_a_cell_pass_between_islands_of_one_place():
    wan = changed(network(np.random.default_rng(4), 4), egress=np.nan)
    two = price(message(), wan, [(0, 1), (2, 3)], Sync())
    first, second = (price(message(size=5e8), wan, cells, Sync()) for cells in ([(0,), (2,)], [(1,), (3,)]))
    assert two.seconds == max(first.seconds, second.seconds)
    assert np.array_equal(two.sent, first.sent + second.sent)
    assert two.narrowest in {first.narrowest, second.narrowest}
    assert np.isnan(two.egress)


def test_a_server_shares_its_site_and_a_gather_too():
    plain: dict[str, Any] = {
        "loss": 0.0,
        "lanes": 1.0,
        "window": np.inf,
        "streams": 1.0,
        "egress": 0.0,
        "transport": ("lossless",) * 4,
    }
    free, site = np.full(4, np.inf), np.full(4, 1e9)
    wan = Wan(islands=("a", "b", "c", "d"), bandwidth=1e9, rtt=0.0, up=free, down=free, **plain)
    limited = changed(wan, up=site, down=site)
    for topology, times in (("star", 3.0), ("all_gather", 3.0), ("ring", 1.0), ("sharded_star", 3.0)):
        ratio = seconds(limited, topology=topology) / seconds(wan, topology=topology)
        assert ratio == pytest.approx(times, rel=1e-3), topology
    said = price(message(), limited, alone(limited), Sync(topology="star")).narrowest
    assert said == "b → a at 2.67 Gbit/s, what comes into the site, 3 at once"


@pytest.mark.parametrize(
    ("better", "why"),
    [
        ({}, "i0 → i1 at 80 Mbit/s, window of 4 streams"),
        ({"window": np.inf}, "i0 → i1 at 8 Gbit/s, the link"),
        ({"window": np.inf, "loss": 1e-3}, "i0 → i1 at 17.9 Mbit/s, loss on 4 streams"),
        ({"window": np.inf, "up": np.array([1e8, 1e8])}, "i0 → i1 at 800 Mbit/s, what leaves the site"),
    ],
)
def test_the_narrowest_pair_says_why(better, why):
    wan = Wan(
        islands=("i0", "i1"), bandwidth=np.array([[9e9, 1e9], [2e9, 9e9]]), rtt=0.1, loss=0.0, window=2.5e5, streams=4.0,
        lanes=1.0, egress=0.0, up=np.full(2, np.inf), down=np.full(2, np.inf), transport=("tcp", "rdma"),
    )  # fmt: skip
    assert price(message(size=1e12), changed(wan, **better), [(0,), (1,)], Sync()).narrowest.startswith(why)


def test_words_that_are_none_are_named():
    wan = network(np.random.default_rng(0))
    with pytest.raises(UnknownName, match=r"unknown topology 'rings'.*ring"):
        seconds(wan, topology="rings")
    with pytest.raises(UnknownName, match=r"unknown collective 'all_redcue'.*all_reduce"):
        seconds(wan, "all_redcue")


def test_rates_are_of_pairs():
    wan = network(np.random.default_rng(0))
    found = rates(wan)
    assert found.shape == (ISLANDS, ISLANDS)
    assert np.all(found <= wan.bandwidth)
    assert np.all(np.asarray(wan.up) >= found.T)
    assert np.all(found <= np.asarray(wan.down))


def test_chunks_hide_the_shorter_phases():
    assert physics.hierarchical_time(2.0, 10.0, 3.0, 1.0) == 15.0
    assert physics.hierarchical_time(2.0, 10.0, 3.0, 100.0) == pytest.approx(10.05)


# ---- the order of a ring -----------------------------------------------------------------------------------------------------------


def worth(order, wide, long):
    at, to = np.array(order), np.roll(order, -1)
    return float(wide[at, to].min()), float(long[at, to].sum())


def drawn(seed, members):
    rng = np.random.default_rng(seed)
    wide = rng.lognormal(0, 1, (members, members))
    return np.round(wide, 1) if seed % 2 else wide, rng.uniform(0.01, 0.1, (members, members))


@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 10**6), members=st.integers(2, 7))
@example(seed=1, members=2)
def test_the_front_is_that_of_all_orders(seed, members):
    wide, long = drawn(seed, members)
    front = ring_front(wide, long)
    every = [worth((0, *rest), wide, long) for rest in permutations(range(1, members))]
    for narrowest, around in every:
        assert any(one.narrowest >= narrowest and one.rtt <= around * ROUNDING for one in front)
    assert ring_order(wide, long) == front[0].order
    assert (front[0].narrowest, front[0].rtt) == worth(front[0].order, wide, long)


@pytest.mark.parametrize("members", [9, 10])
def test_subsets_find_what_every_order_finds(members, monkeypatch):
    wide, long = drawn(members, members)
    found = ring_front(wide, long)
    monkeypatch.setattr("shardmeter.engine.ring.EVERY", members)
    ring_front.__globals__["_kept"].cache_clear()
    every = ring_front(wide, long)
    assert (found[0].narrowest, found[-1].rtt) == pytest.approx((every[0].narrowest, every[-1].rtt))


@pytest.mark.parametrize("members", [13, 40, 100])
def test_long_rings_are_near_their_bound(members):
    rng = np.random.default_rng(members)
    places = rng.uniform(0, 1, (members, 2))
    long = np.hypot(*(places[:, None] - places[None]).transpose(2, 0, 1)) * 0.1 + 1e-3
    site = rng.lognormal(0, 1, members)
    wide = np.minimum(site[:, None], site[None, :])
    front = ring_front(wide, long)
    assert front[0].narrowest == bottleneck_bound(wide)
    assert (
        front[-1].rtt < 0.095 * members**0.5 + 1e-3 * members
    )  # the shortest tour of a square is about 0.0712·√n and its edge
    order = rng.permutation(members)
    renamed = ring_front(wide[np.ix_(order, order)], long[np.ix_(order, order)])
    assert [one.narrowest for one in renamed] == [one.narrowest for one in front]
    assert [one.rtt for one in renamed] == pytest.approx([one.rtt for one in front])


def test_the_diagonal_of_a_network_is_not_read():
    rng = np.random.default_rng(5)
    wan = network(rng)
    for name in ("lanes", "bandwidth", "rtt", "loss", "window", "streams"):
        table = np.broadcast_to(np.asarray(getattr(wan, name), dtype=float), (ISLANDS, ISLANDS)).copy()
        np.fill_diagonal(table, 7.0 * table[0, 1])
        for collective, topology in (("all_reduce", "ring"), ("all_reduce", "sharded_star")):
            before = seconds(wan, collective, topology, 1e9)
            assert seconds(changed(wan, **{name: table}), collective, topology, 1e9) == before, name
