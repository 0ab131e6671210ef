"""The shipped rows of regions, pairs, prices of traffic and kinds of lines mean what a fleet takes them for."""

from __future__ import annotations

import itertools
import statistics

import pytest

from shardmeter.scenario import geography
from shardmeter.scenario.catalog import load_catalog
from shardmeter.specs.geography import WORDS

CATALOG = load_catalog()
REGIONS = [CATALOG.region(name) for name in CATALOG.names("regions")]
PAIRS = [CATALOG.pair(name) for name in CATALOG.names("pairs")]
LINES = [CATALOG.link(name) for name in CATALOG.names("links")]
GIGABIT = 1e9 / 8


def ends(pair):
    return [CATALOG.region(name) for name in pair.name.split("/")]


def test_all_tables_together_are_few_rows():
    assert sum(len(CATALOG.names(kind)) for kind in ("regions", "links", "pairs", "egress")) <= 500


@pytest.mark.parametrize("region", REGIONS, ids=lambda one: one.name)
def test_a_region_is_named_by_its_provider_and_lies_on_the_earth(region):
    assert region.name.startswith(f"{region.provider}:")
    assert -60.0 < region.latitude < 70.0
    assert -180.0 <= region.longitude <= 180.0
    assert 1 * GIGABIT < region.vm_bandwidth < 20 * GIGABIT


def test_no_round_trip_is_shorter_than_light_in_fibre_allows():
    for pair in PAIRS:
        assert float(pair.rtt) > 0.99 * geography.kilometres(*ends(pair)) * 2 / 2.04e5, pair.name


def test_every_main_region_has_a_row_with_every_other():
    named = {frozenset(pair.name.split("/")) for pair in PAIRS}
    main = sorted({name for names in named for name in names})
    assert named == {frozenset(two) for two in itertools.combinations(main, 2)}
    assert {name.partition(":")[0] for name in main} == {"aws", "gcp", "azure"}


def test_a_pair_is_found_both_ways_with_its_own_rate():
    one, other = CATALOG.region("aws:us-east-1"), CATALOG.region("gcp:us-central1")
    there, back = geography.between(one, other, CATALOG), geography.between(other, one, CATALOG)
    row = CATALOG.pair("aws:us-east-1/gcp:us-central1")
    assert (there.bandwidth, back.bandwidth) == (row.bandwidth, row.bandwidth_back)
    assert there.rtt == back.rtt == row.rtt
    assert "measured 2022-01" in there.basis


def test_the_route_factor_of_estimates_is_the_median_of_the_measured_pairs():
    far = [(float(pair.rtt), geography.kilometres(*ends(pair))) for pair in PAIRS]
    factors = [(rtt - 123e-6) / (10.09e-6 * km) for rtt, km in far if km > 300.0]
    assert len(factors) == 313
    assert statistics.median(factors) == pytest.approx(geography.ROUTE_OF_REGIONS, abs=0.05)


def test_a_pair_that_nobody_measured_is_estimated_and_says_so():
    made = geography.between(CATALOG.region("aws:sa-east-1"), CATALOG.region("gcp:us-south1"), CATALOG)
    assert made.bandwidth == 5 * GIGABIT
    assert 0.1 < made.rtt < 0.2
    assert "never measured" in made.basis
    assert "estimated from" in made.basis


def test_every_pair_of_regions_has_a_price_or_a_sender_without_one():
    unpriced = {(one.provider, one.continent) for one in REGIONS for other in REGIONS
                if geography.egress(one, other, CATALOG) is None}  # fmt: skip
    assert not unpriced


def test_traffic_to_others_costs_no_less_than_inside_a_provider():
    for one in REGIONS:
        inside = [geography.egress(one, other, CATALOG) for other in REGIONS if other.provider == one.provider]
        out = geography.egress(one, None, CATALOG)
        assert out is not None
        assert all(price is not None and price[0] <= max(out[0], 0.15e-9) for price in inside)


@pytest.mark.parametrize("line", LINES, ids=lambda one: one.name)
def test_a_line_is_a_site_or_joins_two(line):
    assert line.of in WORDS["of"]
    rates, others = (
        ((line.bandwidth,), (line.up, line.down)) if line.of == "link" else ((line.up, line.down), (line.bandwidth,))
    )
    assert others == (None,) * len(others)
    assert line.transport in WORDS["transport"]
    if None not in rates:
        assert line.shared in WORDS["shared"]
    else:
        assert line.balance in WORDS["balance"] if line.of == "site" else "say" in line.notes
    assert line.notes
