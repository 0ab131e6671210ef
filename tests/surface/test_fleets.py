"""Several islands: every fault at once, each with its place, the rule and the way out."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import shardmeter
from shardmeter.cli import main
from shardmeter.core.errors import BadScenario, ShardMeterError, UnknownName
from shardmeter.core.record import changed as record_changed
from shardmeter.scenario import json_schema, load

H100 = {"accelerator": "H100-SXM5-80GB", "nodes": 2}
GOOD: dict[str, Any] = {
    "model": "llama-3.1-8b",
    "fleet": {
        "islands": [
            {"name": "oregon", **H100, "region": "aws:us-west-2"},
            {"name": "iowa", **H100, "count": 2, "region": "gcp:us-central1"},
            {"name": "dublin", "accelerator": "A100-SXM4-80GB", "nodes": 4, "plan": {"micro_batch": 2}},
        ],
        "wan": {
            "default": {"bandwidth": "10 Gbps", "rtt": "40 ms"},
            "links": [{"between": ["oregon", "iowa"], "bandwidth": "25 Gbps", "rtt": "35 ms"}],
            "sites": {"iowa": {"up": "5 Gbps", "down": "10 Gbps"}},
            "self": {"bandwidth": "100 Gbps", "rtt": "1 ms"},
        },
    },
    "plan": {"sharding": "fsdp", "tp": 8, "sync": {"method": "streaming_diloco", "sync_every": 100}},
    "run": {"seq_len": 8192, "global_batch": 128},
}
BAD = """\
model: llama-3.1-8b
fleet:
  islands:
    - {name: oregon, accelerator: H100-SXM5-80GB, nodes: 2, region: aws:us-wst-2}
    - {name: iowa, nodes: 8}
    - {name: dublin, accelerator: A100-SXM4-80GB, nodes: 5}
    - {name: tokyo, accelerator: A100-SXM4-80GB, nodes: 2, plan: {tp: 5}}
  wan:
    links:
      - {between: [oregon, iowa], bandwidth: 0 Gbps, rtt: 35 ms}
      - {between: [oregon, dublin], bandwidth: 1 Gbps, rtt: -35 ms}
      - {between: [oregon, dublim], bandwidth: 1 Gbps, rtt: 35 ms}
      - {from: oregon, bandwidth: 1 Gbps}
    sites: {paris: {up: 1 Gbps}}
plan:
  tp: 8
  sync: {method: streaming_diloco, H: 0, num_fragments: 40, top_k: 0.5}
run: {seq_len: 8192}
"""


def changed(path: str, value: Any) -> dict[str, Any]:
    data = copy.deepcopy(GOOD)
    inner: Any = data
    *steps, last = path.split(".")
    for step in steps:
        inner = inner[int(step)] if step.isdigit() else inner.setdefault(step, {})
    inner[int(last) if last.isdigit() else last] = value
    return data


def refused(source: object, **more: Any) -> str:
    with pytest.raises(ShardMeterError) as caught:
        load(source, **more)
    return str(caught.value)


def test_the_good_one_is_good() -> None:
    assert [island.name for island in load(GOOD).fleet.islands] == ["oregon", "iowa-1", "iowa-2", "dublin"]


def test_all_faults_are_said_at_once_with_their_places(tmp_path: Path) -> None:
    file = tmp_path / "bad.yaml"
    file.write_text(BAD)
    text = refused(file)
    for place, said in (
        ("4:61", "fleet.islands.0.region: unknown region 'aws:us-wst-2'; the nearest are: aws:us-west-2"),
        ("5:7", "fleet.islands.1: neither accelerator, instance nor gpus is given"),
        ("10:35", "fleet.wan.links.0.bandwidth: 0 makes no sense here"),
        ("11:56", "fleet.wan.links.1.rtt: '-35 ms' is negative"),
        ("12:9", "fleet.wan.links.2: unknown island 'dublim'; the nearest are: dublin"),
        ("13:9", "fleet.wan.links.3: does not say which two it joins"),
        ("14:13", "fleet.wan.sites.paris: unknown island 'paris'"),
        ("8:3", "fleet.wan: no link joins"),
        ("17:36", "plan.sync.H: 0 makes no sense here; at least 1"),
        ("17:42", "plan.sync.num_fragments: num_fragments = 40, but the model has 32 layers"),
        ("17:61", "plan.sync.top_k: top_k = 0.5, but streaming_diloco does not read it"),
        ("7:67", "fleet.islands.tokyo.plan.tp: tp = 5 does not divide 32 attention heads"),
        ("18:7", "run.seq_len: seq_len = 8192 is no multiple of tp = 5 (on tokyo)"),
    ):
        assert f"bad.yaml:{place}: {said}" in text, (place, said, text)


@pytest.mark.parametrize(
    ("path", "value", "says"),
    [
        ("fleet.islands.1.count", 0, "0 makes no sense here"),
        ("fleet.islands.1.count", 5000, "at most 1000"),
        ("fleet.islands.2.name", "oregon", "oregon is also the name of fleet.islands.0"),
        ("fleet.islands.2.name", "iowa-2", "iowa-2 is also the name of fleet.islands.1"),
        ("fleet.wan.default", {"bandwidth": "10 Gbps"}, "no round trip is said of oregon and dublin"),
        ("fleet.wan.default", {"rtt": "10 ms"}, "no bandwidth is said of oregon and dublin"),
        ("fleet.wan.default", {}, "no link joins oregon and dublin"),
        ("fleet.wan.default.loss", 1.5, "no fraction"),
        ("fleet.wan.default.loss", 0.95, "at most 0.9"),
        ("fleet.wan.default.streams", 0, "0 makes no sense here"),
        ("fleet.wan.default.window", "0 B", "0 makes no sense here"),
        ("fleet.wan.default.transport", "udp", "one of tcp, rdma, selective, coded, lossless"),
        ("fleet.wan.default.distance", "1000", "has no unit"),
        ("fleet.wan.default.preset", "home-fiber", "the nearest are: home-fibre"),
        ("fleet.wan.links.0", {"between": ["oregon", "oregon"], "bandwidth": "1 Gbps"}, "joins oregon with itself"),
        (
            "fleet.wan.links.0",
            {"between": ["oregon"], "bandwidth": "1 Gbps"},
            "are no two islands; as in between: [oregon, iowa]",
        ),
        ("fleet.wan.links.0", {"between": ["a", "b"], "to": "oregon"}, "stands beside from or to"),
        ("fleet.wan.links.0.frm", "oregon", "did you mean 'from'?"),
        ("fleet.wan.links.0.preset", "home-cable", "is a site's own connection"),
        ("fleet.wan.sites.iowa.preset", "campus", "campus joins two islands"),
        ("fleet.wan.sites.iowa.upp", "1 Gbps", "did you mean 'up'?"),
        ("plan.sync.method", "streemimg", "the nearest are: streaming_diloco"),
        ("plan.sync.bits", 64, "at most 32"),
        ("plan.sync.alpha", 1.2, "no fraction"),
        ("plan.sync.tau", 101, "a round has sync_every = 100 inner steps"),
        ("plan.sync", {"should_quantize": True, "bits": 4, "method": "diloco"}, "should_quantize means bits = 8"),
        ("plan.sync", {"H": 100}, "every_step does not read it"),
        ("plan.sync.topology", "mesh", "one of auto, ring, tree"),
        ("fleet.islands.2.plan.sync", {"method": "diloco"}, "is of the fleet, not of one island; say plan.sync"),
        ("plan.placement", {"pp": ["oregon", "iovva"]}, "unknown island 'iovva'"),
        ("plan.placement", {"tq": ["oregon", "iowa"]}, "one of tp, cp, dp_shard, dp_replicate, pp"),
        ("plan.placement", {"pp": "oregon"}, "names no islands"),
        ("plan.placement", ["oregon"], "is no placement"),
        ("plan.placement", {"pp": [["oregon", "dublin"], ["iowa-1"]]}, "cells of 1 and 2 steps"),
        ("plan.placement", {"pp": [["oregon", "dublin"], ["dublin", "iowa-1"]]}, "dublin is in two cells"),
        ("plan.placement", {"pp": ["oregon", "dublin"], "cp": ["iowa-1", "iowa-2"]}, "several axes"),
        ("fleet.islands.2.plan.tp", 3, "fleet.islands.dublin.plan: GPUs/(tp·pp·cp·dp_replicate) = 32/(3·1·1·1)"),
        ("plan.tp", 64, "plan.tp: tp = 64 does not divide 32 attention heads"),
    ],
)
def test_one_fault(path: str, value: Any, says: str) -> None:
    assert says in refused(changed(path, value))


def test_a_pair_is_said_once() -> None:
    twice = [{"between": ["oregon", "dublin"], "bandwidth": "1 Gbps"}, {"between": ["dublin", "oregon"], "rtt": "1 ms"}]
    assert "says a pair that fleet.wan.links.0 says too" in refused(changed("fleet.wan.links", twice))


def test_a_transport_that_a_site_cannot_have_is_refused() -> None:
    links = [{"between": ["oregon", "dublin"], "transport": "tcp"}, {"between": ["oregon", "iowa"], "transport": "rdma"},
             {"between": ["iowa", "dublin"], "transport": "rdma"}]  # fmt: skip
    text = refused(changed("fleet.wan.links", links))
    assert "oregon → dublin says transport tcp, but both have links that are rdma" in text


def test_what_every_island_breaks_is_said_once_and_what_one_breaks_with_its_name() -> None:
    assert refused(changed("plan.tp", 64)).count("attention heads") == 2  # the rule is quoted beside it
    text = refused(changed("fleet.islands.2.plan.tp", 64))
    assert "fleet.islands.dublin.plan.tp: tp = 64 does not divide 32 attention heads" in text
    assert "fleet.islands.oregon" not in text


def test_an_unknown_name_alone_is_an_unknown_name() -> None:
    with pytest.raises(UnknownName):
        load(changed("fleet.islands.0.region", "aws:us-wst-2"))


@pytest.mark.parametrize(
    ("field", "value", "says"),
    [
        (
            "fleet.wan",
            {"default": {"rtt": "1 ms"}},
            "fleet.wan changes nothing: there is one island; several are listed in fleet.islands: [{gpus: …}, {gpus: …}]",
        ),
        (
            "plan.sync",
            {"method": "diloco"},
            "plan.sync changes nothing: there is one island; several are listed in fleet.islands: [{gpus: …}, {gpus: …}]",
        ),
        ("plan.placement", {"pp": ["oregon"]}, "plan.placement changes nothing: there is one island"),
    ],
)
def test_one_island_needs_nothing_of_it(field: str, value: Any, says: str) -> None:
    alone = changed("fleet", {"islands": GOOD["fleet"]["islands"][:1]})
    alone["plan"] = {"tp": 8}
    part, _, name = field.partition(".")
    alone[part] = {**alone[part], name: value}
    made = load(alone)
    assert says in made.warnings
    assert made.fleet.wan is None
    assert made.plans == ()


def test_a_sync_that_contradicts_itself_is_refused_on_one_island_too() -> None:
    alone = changed("fleet", {"islands": GOOD["fleet"]["islands"][:1]})
    alone["plan"] = {"tp": 8, "sync": {"method": "diloco", "num_fragments": 4}}
    assert "diloco does not read it" in refused(alone)


def test_overrides_reach_every_part(capsys: pytest.CaptureFixture[str]) -> None:
    made = load(
        GOOD,
        overrides=[
            "fleet.islands.dublin.nodes=8", "fleet.wan.default.bandwidth=5 Gbps", "fleet.wan.links.0.rtt=7 ms",
            "fleet.wan.sites.iowa.up=1 Gbps", "plan.sync.sync_every=500", "fleet.islands.1.count=3",
        ],
    )  # fmt: skip
    assert made.fleet.islands[-1].nodes == 8.0
    assert made.fleet.wan is not None
    assert np.asarray(made.fleet.wan.bandwidth)[0, 4] == 5e9 / 8
    assert np.asarray(made.fleet.wan.rtt)[0, 1] == 7e-3
    assert np.asarray(made.fleet.wan.up)[1:4].tolist() == [1e9 / 8] * 3
    assert made.plan.sync.sync_every == 500.0
    unnamed = changed("fleet.islands.2", {"gpus": "8xA100-SXM4-80GB"})
    assert load(unnamed, overrides=["fleet.islands.island-3.gpus=16xA100-SXM4-80GB"]).fleet.islands[-1].gpus == 16.0
    assert main(["predict", "x: 1\n", "--set", "fleet.wan=3"]) == 2
    assert "Traceback" not in capsys.readouterr().err


def test_a_plan_line_says_a_method() -> None:
    made = load(changed("plan", "fsdp,tp=8,sync.method=diloco,H=250,sync.should_quantize=true"))
    assert (made.plan.sync.method, made.plan.sync.sync_every, made.plan.sync.bits) == ("diloco", 250.0, 8.0)


def test_the_schema_names_every_field() -> None:
    parts = json_schema()["$defs"]
    assert {"between", "from", "to", "bandwidth", "rtt", "distance", "preset"} <= parts["LinkInput"][
        "properties"
    ].keys()
    assert {"default", "links", "sites", "self", "assumed", "backend"} == set(parts["WanInput"]["properties"])


# ---- fuzz ------------------------------------------------------------------------------------------------------------------------

_FIELDS = [
    "fleet.islands", "fleet.islands.1.count", "fleet.islands.0.region", "fleet.islands.2.plan", "fleet.wan", "fleet.wan.backend", "fleet.wan.default",
    "fleet.wan.default.bandwidth", "fleet.wan.default.rtt", "fleet.wan.default.loss", "fleet.wan.default.mtu", "fleet.wan.default.preset", "fleet.wan.links",
    "fleet.wan.links.0", "fleet.wan.links.0.between", "fleet.wan.links.0.from", "fleet.wan.sites", "fleet.wan.sites.iowa",
    "fleet.wan.sites.iowa.up", "fleet.wan.self", "plan.sync", "plan.sync.method", "plan.sync.H", "plan.sync.bits",
    "plan.sync.num_fragments", "plan.sync.alpha", "plan.placement", "plan.placement.pp", "plan.placement.dp_shard",
]  # fmt: skip
_LEAVES = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=8)
    | st.sampled_from(
        ["oregon", "iowa", "iowa-1", "10 Gbps", "40 ms", "0 s", "1e99 Gbps", "home-cable", "campus", "diloco", "8"]
    )
)
_KEYS = st.sampled_from(["oregon", "iowa", "bandwidth", "rtt", "between", "from", "to", "up", "pp", "H"]) | st.text(
    max_size=5
)
_TREES = st.recursive(_LEAVES, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_KEYS, inner, max_size=3))
_FUZZ = settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])


@_FUZZ
@given(st.lists(st.tuples(st.sampled_from(_FIELDS), _TREES), min_size=1, max_size=3))
def test_fuzz_what_joins_islands(changes: list[tuple[str, Any]]) -> None:
    try:
        made = load(GOOD, overrides=dict(changes))
    except ShardMeterError as error:
        assert str(error)  # noqa: PT017  (that nothing else escapes is the test)
        return
    assert len(made.plans) in (0, len(made.fleet.islands))


# ---- two ways to say one thing, and what does not meet ------------------------------------------------------------------------------


def two(plan: dict[str, Any], other: dict[str, Any] | None = None, **wan: Any) -> dict[str, Any]:
    """Two islands of 8 H100, the second with `other` in its own plan."""
    islands: list[dict[str, Any]] = [{"name": name, "accelerator": "H100-SXM5-80GB", "nodes": 1} for name in ("a", "b")]
    islands[1] |= {"plan": other} if other else {}
    line = {"bandwidth": "10 Gbps", "rtt": "20 ms"}
    return {
        "model": "llama-3.1-8b",
        "fleet": {"islands": islands, "wan": {"default": {**line, **wan}}},
        "plan": {"sharding": "fsdp", "recompute": "full", **plan},
        "run": {"seq_len": 4096, "global_batch": 64},
    }


@pytest.mark.parametrize("axis", ["tp", "cp", "dp_shard"])
@pytest.mark.parametrize("cells", [["a"], ["a", "a"], [["a"], ["b"]]])
def test_an_axis_that_crosses_nothing_is_refused(axis: str, cells: list[Any]) -> None:
    with pytest.raises(ShardMeterError, match="with no other island; list two or more"):
        load(two({"placement": {axis: cells}}))


def test_experts_are_placed_by_the_axes_they_lie_over() -> None:
    with pytest.raises(ShardMeterError, match="experts lie over tp, cp and dp_shard"):
        load(two({"placement": {"ep": ["a", "b"]}}))


def test_islands_train_the_same_parameters() -> None:
    with pytest.raises(ShardMeterError, match=r"trainable = all on a, lora\(r=8\) on b"):
        load(two({}, {"trainable": "lora(r=8)"}))


def test_copies_that_step_unlike_are_warned_of() -> None:
    assert any("optimizer = adamw on a, sgd on b" in one for one in load(two({}, {"optimizer": "sgd"})).warnings)
    apart = load(two({"sync": {"method": "diloco"}}, {"optimizer": "sgd"}))
    assert not any("optimizer" in one for one in apart.warnings)


def test_what_meets_does_not_depend_on_which_island_is_first() -> None:
    ahead = two({}, {"reduce_dtype": "bf16"})
    behind = copy.deepcopy(ahead)
    behind["fleet"]["islands"].reverse()
    one, other, alike = (shardmeter.predict(source).to_dict() for source in (ahead, behind, two({})))
    assert one["step_time_s"] == other["step_time_s"]
    assert one["sync"]["crossings"][0]["bytes"] == alike["sync"]["crossings"][0]["bytes"]  # the wider format passes


def test_a_round_trip_and_a_distance_contradict_each_other() -> None:
    with pytest.raises(ShardMeterError, match=r"distance: stands beside rtt = 20 ms, and means .* keep one of the two"):
        load(two({}, distance="5 km"))


def test_two_spellings_of_one_field_contradict_each_other() -> None:
    with pytest.raises(ShardMeterError, match="H: is sync_every, which is said too; keep one of the two"):
        load(two({"sync": {"method": "diloco", "H": 3, "sync_every": 5}}))


@pytest.mark.parametrize(
    ("sync", "override", "field", "value"),
    [
        ({"H": 3}, "plan.sync.sync_every=5", "sync_every", 5.0),
        ({"H": 3}, "plan.sync.H=5", "sync_every", 5.0),
        ({"sync_every": 3}, "plan.sync.H=5", "sync_every", 5.0),
        ({"should_quantize": True}, "plan.sync.bits=4", "bits", 4.0),
        ({"bits": 4}, "plan.sync.should_quantize=true", "bits", 8.0),
    ],
)
def test_an_override_wins_however_the_file_spells_it(
    sync: dict[str, Any], override: str, field: str, value: float
) -> None:
    made = load(two({"sync": {"method": "diloco", **sync}}), overrides=[override])
    assert getattr(made.plan.sync, field) == value


def test_an_override_of_a_distance_wins_over_the_round_trip() -> None:
    made = load(two({}), overrides=["fleet.wan.default.distance=5 km"])
    assert made.fleet.wan is not None
    assert float(np.asarray(made.fleet.wan.rtt)[0, 1]) == pytest.approx(188.6e-6, rel=1e-3)
    assert any("wins over rtt" in one for one in (*made.assumptions, *made.warnings))


# ---- records -------------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("bandwidth", [[1, 2], [3]]),
        ("bandwidth", np.ones((3, 3))),
        ("bandwidth", 1e-300),
        ("rtt", np.nan),
        ("window", np.inf),
        ("streams", np.full((2, 2), 1e300)),
        ("egress", np.inf),
        ("egress", [[1, 2], [3]]),
    ],
)
def test_a_record_with_a_malformed_network_is_refused_by_field(field: str, value: Any) -> None:
    scenario = load(two({}))
    wan = record_changed(scenario.fleet.wan, **{field: value})
    with pytest.raises(BadScenario) as caught:
        shardmeter.predict(record_changed(scenario, fleet=record_changed(scenario.fleet, wan=wan)))
    assert [one.field for one in caught.value.violations] == [f"fleet.wan.{field}"]


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("method", None),
        ("sync_every", 2.5),
        ("num_fragments", 2.5),
        ("hierarchical", "x"),
        ("split", None),
    ],
)
def test_a_record_with_a_malformed_method_is_refused_by_field(field: str, value: Any) -> None:
    scenario = load(two({"sync": {"method": "streaming_diloco"}}))
    sync = record_changed(scenario.plan.sync, **{field: value})
    with pytest.raises(BadScenario) as caught:
        shardmeter.predict(record_changed(scenario, plan=record_changed(scenario.plan, sync=sync), plans=()))
    assert [one.field for one in caught.value.violations] == [f"plan.sync.{field}"]


@pytest.mark.parametrize(
    "placement",
    ["pp", None, (("foo", (("a", "b"),)),), (("tp", (("a",),)),), (("pp", ((),)),), (("pp", (("a", "x"),)),)],
)
def test_a_record_with_a_malformed_placement_is_refused(placement: Any) -> None:
    scenario = load(two({}))
    plan = record_changed(scenario.plan, placement=placement)
    with pytest.raises(BadScenario, match=r"plan\.placement"):
        shardmeter.predict(record_changed(scenario, plan=plan, plans=()))


def test_records_of_islands_that_train_unlike_parameters_are_refused() -> None:
    scenario = load(two({}))
    other = record_changed(scenario.plan, trainable="lora(r=8)")
    with pytest.raises(BadScenario, match=r"trainable = all, lora\(r=8\)"):
        shardmeter.predict(record_changed(scenario, plans=(scenario.plan, other)))
