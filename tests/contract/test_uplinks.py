"""What a scenario says of uplinks, windows of sends and behaviour of networks, and what is refused or said of it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from shardmeter import predict
from shardmeter.core.errors import BadScenario
from shardmeter.core.record import changed
from shardmeter.physics.network import HEADER
from shardmeter.scenario import load
from shardmeter.scenario.network import is_number_of_network
from shardmeter.specs import Scenario, Wan
from shardmeter.study.levers.network import levers

WIRE = 400e9 / 8
DEFAULT = {"distance": "100 km", "transport": "rdma", "window": "4 MiB", "streams": 2}


def fleet(default: dict[str, Any], islands: list[dict[str, Any]] | None = None, **more: Any) -> dict[str, Any]:
    """Two buildings of 128 GPUs."""
    both = [{"name": "b", "count": 2, "gpus": "128xH100-SXM5-80GB", "fabric": "ib-ndr400"}]
    return {
        "model": "llama-3.1-8b", "fleet": {"islands": islands or both, "wan": {"default": default, **more}},
        "plan": {"tp": 8}, "run": {"global_batch": 256, "seq_len": 4096},
    }  # fmt: skip


def lines(scenario: Scenario) -> Wan:
    """The network of a scenario."""
    assert scenario.fleet.wan is not None
    return scenario.fleet.wan


def refusal(given: dict[str, Any]) -> str:
    with pytest.raises(BadScenario) as error:
        load(given)
    return str(error.value)


def test_an_oversubscription_gives_the_rates_of_sites_and_pairs():
    made = load(fleet({**DEFAULT, "oversubscription": 4}))
    wan: Any = lines(made)
    assert wan.up.tolist() == wan.down.tolist() == [128 * WIRE * HEADER / 4] * 2
    assert wan.bandwidth[0, 1] == wan.up[0]
    assert wan.balance == ("planned", "planned")
    assert any("flows find uplinks as planned" in one for one in made.assumptions)
    one = load(fleet({**DEFAULT, "oversubscription": 4}, sites={"b-1": {"oversubscription": 8, "balance": "spray"}}))
    assert np.asarray(lines(one).up).tolist() == [128 * WIRE * HEADER / 8, 128 * WIRE * HEADER / 4]
    assert lines(one).balance == ("spray", "planned")


def test_shared_adapters_are_counted():
    shared = {"name": "b", "count": 2, "gpus": "128xH100-SXM5-80GB", "fabric": "ib-ndr400", "nics": 4}
    wan: Any = load(fleet({**DEFAULT, "oversubscription": 2}, [shared])).fleet.wan
    assert wan.up[0] == 64 * WIRE * HEADER / 2


@pytest.mark.parametrize(
    ("field", "value", "says"),
    [
        ("sites", {"b": {"oversubscription": 4, "up": "1 Tbps"}}, "stands beside up"),
        ("sites", {"b": {"balance": "ecpm"}}, "one of ecmp, planned, spray"),
        ("sites", {"b": {"planes": 0}}, "0 makes no sense here"),
        ("sites", {"b": {"slowest": 2}}, "between 0 and 1"),
        ("sites", {"b": {"buffer": "12"}}, "has no unit"),
        ("assumed", {"sprey": 0.9}, "spray"),
        ("assumed", {"spray": 1.2}, "between 0 and 1"),
        ("default", {**DEFAULT, "bandwidth": "1 Tbps", "redundancy": 0.95}, "at most 0.9"),
        ("default", {**DEFAULT, "oversubscription": 0.5}, "at least 1"),
    ],
)
def test_what_makes_no_sense_is_refused(field, value, says):
    given = fleet({**DEFAULT, "bandwidth": "1 Tbps"})
    given["fleet"]["wan"][field] = value
    assert says in refusal(given)


def test_what_is_taken_or_has_no_effect_is_said():
    hashed = load(fleet({**DEFAULT, "oversubscription": 4, "balance": "ecmp", "planes": 1}))
    said = "\n".join(hashed.assumptions)
    for words in (
        "1 flow of an adapter's transfer",
        "all wait for the most loaded uplink",
        "256 links fails every",
        "flaps",
    ):
        assert words in said
    planes = load(fleet({**DEFAULT, "oversubscription": 4, "balance": "spray", "planes": 8, "flows": 2}))
    assert "2,048 links in 8 planes" in "\n".join(planes.assumptions)
    assert any("flows changes nothing" in one for one in planes.warnings)
    assert lines(load(fleet({**DEFAULT, "bandwidth": "1 Tbps"}))).balance == ()


def test_assumed_numbers_are_replaced():
    given = fleet({**DEFAULT, "oversubscription": 4}, assumed={"spray": 0.92, "failures": 1e-3, "repair": "2 h"})
    assumed = lines(load(given)).assumed
    assert (assumed.spray, assumed.repair) == (0.92, 7200.0)
    assert assumed.failures * 365.25 * 86400 / 12 == pytest.approx(1e-3)


def test_a_send_has_its_own_window():
    """A stage's ranks send no more than `sends` each a round trip, and no more than their own adapters carry."""
    default = {**DEFAULT, "oversubscription": 1, "window": "1 GiB", "streams": 16}
    given = fleet(default)
    given["plan"] = {"tp": 8, "pp": 4, "placement": {"pp": ["b-1", "b-1", "b-2", "b-2"]}}
    slow = fleet({**default, "sends": "256 KiB", "hold": "35 us"})
    slow["plan"] = given["plan"]
    free, held = predict(given), predict(slow)
    assert held.step_time > 1.2 * free.step_time
    assert predict(fleet({**default, "sends": "256 KiB"})).step_time == predict(fleet(default)).step_time


def test_tiers_lose_what_hashing_takes():
    def inside(**tier: Any) -> Any:
        given = fleet({})
        given["fleet"] = {
            "islands": [{"gpus": "512xH100-SXM5-80GB", "fabric": "ib-ndr400", "tiers": [{"nodes": 16, **tier}]}]
        }
        return load(given).fleet.islands[0].tiers[-1].bandwidth

    plain = inside(oversubscription=2)
    assert inside(oversubscription=2, balance="planned") == plain
    assert inside(oversubscription=2, balance="spray") == pytest.approx(0.95 * plain)
    assert inside(oversubscription=2, balance="ecmp") < inside(oversubscription=2, balance="ecmp", flows=16) < plain


def test_presets_leave_open_what_a_scenario_says():
    made = load(
        fleet(
            {"preset": "nccl-default", "oversubscription": 4, "distance": "100 km"},
            sites={"b": {"preset": "spray-site"}},
        )
    )
    wan: Any = made.fleet.wan
    assert (wan.window[0, 1], wan.streams[0, 1], wan.sends[0, 1], wan.hold[0, 1]) == (4 * 2**20, 2.0, 4 * 2**20, 35e-6)
    assert wan.balance == ("spray", "spray")
    assert "no bandwidth is said" in refusal(fleet({"preset": "nccl-default", "distance": "100 km"}))


def test_numbers_of_uplinks_can_be_swept_and_moved():
    for field in (
        "default.oversubscription",
        "sites.b.flows",
        "default.sends",
        "links.0.hold",
        "sites.b-1.buffer",
        "assumed.spray",
    ):
        assert is_number_of_network(f"fleet.wan.{field}"), field
    names = {
        one.name for one in levers(load(fleet({**DEFAULT, "oversubscription": 4, "balance": "ecmp", "sends": "4 MiB"})))
    }
    assert {"fleet.wan.flows", "fleet.wan.sends"} <= names
    assert not {"fleet.wan.flows", "fleet.wan.hold"} & {
        one.name for one in levers(load(fleet({**DEFAULT, "bandwidth": "1 Tbps"})))
    }


def test_networks_made_in_python_are_checked():
    made = load(fleet({**DEFAULT, "oversubscription": 4}))
    wan: Any = made.fleet.wan
    wrong = changed(
        wan,
        balance=("ecmp", "hash"),
        slowest=2.0,
        buffer=np.zeros(2),
        hold=-1.0,
        assumed=changed(wan.assumed, drops=-1.0),
    )
    with pytest.raises(BadScenario) as error:
        predict(changed(made, fleet=changed(made.fleet, wan=wrong)))
    for words in ("balance 'hash'", "wan.slowest", "wan.buffer", "wan.hold", "assumed.drops"):
        assert words in str(error.value)


def test_links_that_never_fail_stop_no_job() -> None:
    islands = [{"name": name, "gpus": "8xH100-SXM5-80GB"} for name in ("a", "b")]
    wan = {"default": {"bandwidth": "400 Gbps", "rtt": "1 ms", "planes": 1}, "assumed": {"failures": 0}}
    scenario = load({"model": "gpt2", "fleet": {"islands": islands, "wan": wan}, "run": {"seq_len": 1024}})
    assert any("none of 16 links fails" in said for said in scenario.assumptions)
