"""Every face of several islands: records that are checked, batches that cannot be shared, explain, trace, solve, CSV."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import numpy as np
import pytest

import shardmeter
from shardmeter.cli import main
from shardmeter.core.quantity import show
from shardmeter.core.record import changed
from shardmeter.engine import split
from shardmeter.scenario import json_schema
from shardmeter.study.explain import explain
from shardmeter.study.rounds import one_island, trace_rounds

TEXT = """
model: llama-3.1-8b
fleet:
  islands:
    - {name: oregon, accelerator: H100-SXM5-80GB, nodes: 2, price: $3/gpu/h}
    - {name: iowa, accelerator: A100-SXM4-80GB, nodes: 4, price: $1.8/gpu/h}
    - {name: home, accelerator: L40S, nodes: 1, price: $1/gpu/h, plan: {recompute: full}}
  wan: {default: {bandwidth: 10 Gbps, rtt: 40 ms, egress: $0.02/GB}}
plan: {sharding: fsdp, recompute: selective, sync: {method: diloco, sync_every: 6}}
run: {seq_len: 4096, global_batch: 280, tokens: 100B}
"""


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("fleet") / "islands.yaml"
    path.write_text(TEXT, encoding="utf-8")
    return str(path)


@pytest.fixture(scope="module")
def scenario(file: str) -> shardmeter.Scenario:
    return shardmeter.load(file)


# ---- what is refused -------------------------------------------------------------------------------------------------------------


def test_a_record_is_answered_as_its_file(file: str, scenario: shardmeter.Scenario) -> None:
    assert shardmeter.predict(scenario).to_dict() == shardmeter.predict(file).to_dict()


def test_everything_wrong_with_a_record_is_said_at_once(scenario: shardmeter.Scenario) -> None:
    wan = scenario.fleet.wan
    assert wan is not None
    bandwidth, rtt = np.array(wan.bandwidth), np.array(wan.rtt)
    bandwidth[0, 1], rtt[2, 1] = 0.0, -1.0
    np.fill_diagonal(rtt, np.nan)  # nothing is read of the diagonal
    broken = changed(
        scenario,
        fleet=changed(
            scenario.fleet,
            wan=changed(
                wan, bandwidth=bandwidth, rtt=rtt, loss=np.zeros((2, 2)), up=0.0, transport=("tcp", "udp", "tcp"), egress=-1.0
            ),
        ),
        plan=changed(scenario.plan, sync=changed(scenario.plan.sync, bits=64.0, sync_every=0.0, num_fragments=4, topology="x")),
        plans=tuple(changed(plan, tp=3.0) for plan in scenario.plans),
    )  # fmt: skip
    with pytest.raises(shardmeter.BadScenario) as error:
        shardmeter.predict(broken)
    said = [f"{one.field}: {one.says}" for one in error.value.violations]
    for part in (
        "fleet.wan.bandwidth: oregon → iowa: 0", "fleet.wan.rtt: home → iowa: -1", "fleet.wan.loss: 2 × 2 numbers",
        "fleet.wan.up: oregon: 0", "fleet.wan.transport: unknown transport 'udp'", "fleet.wan.egress: oregon → iowa: -1",
        "plan.sync.bits: bits = 64", "plan.sync.sync_every: sync_every = 0", "plan.sync.topology: topology = 'x'",
        "plan.sync.num_fragments: diloco does not read", "plan.tp: tp = 3",
    ):  # fmt: skip
        assert any(text.startswith(part) for text in said), part
    assert all("nan" not in text for text in said)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda one: changed(one, fleet=changed(one.fleet, wan=None)), "nothing joins 3 islands"),
        (lambda one: changed(one, plans=one.plans[:2]), "2 plans for 3 islands"),
        (lambda one: changed(one, fleet=changed(one.fleet, islands=one.fleet.islands[:2])), "joins oregon, iowa, home"),
        (lambda one: changed(one, run=changed(one.run, global_batch=281.0)), "global_batch = 281"),
        (lambda one: changed(one, plan=changed(one.plan, placement=(("pp", (("nowhere",),)),))), "unknown island 'nowhere'"),
        (lambda one: changed(one, plan=changed(one.plan, sync=changed(one.plan.sync, method="x"))), "unknown sync method"),
    ],
)  # fmt: skip
def test_a_record_that_does_not_hang_together(scenario: shardmeter.Scenario, change: Any, says: str) -> None:
    with pytest.raises(shardmeter.BadScenario, match=says):
        shardmeter.predict(change(scenario))


def test_arrays_belong_to_the_engine(scenario: shardmeter.Scenario) -> None:
    with pytest.raises(TypeError, match="is an array"):
        shardmeter.predict(
            changed(scenario, plan=changed(scenario.plan, sync=changed(scenario.plan.sync, bits=np.ones(2))))
        )


@pytest.mark.parametrize(
    ("batch", "near"),
    [("281", "280 and 288"), ("55", "56"), ("1", "56"), ("20k tokens", "at least 229376 tokens")],
)
def test_a_batch_that_islands_cannot_share(capsys: Any, file: str, batch: str, near: str) -> None:
    assert main(["predict", file, "--global-batch", batch]) == 2
    error = capsys.readouterr().err
    assert near in error
    assert "Traceback" not in error
    assert "tokens" in batch or all(text in error for text in ("oregon 16", "iowa 32", "home 8", "dp·micro_batch"))


def test_batches_that_are_left_out_or_in_tokens_are_said(file: str) -> None:
    left_out = shardmeter.predict(file, overrides=["run.global_batch=null"])
    assert left_out.scenario.run.global_batch == 56.0
    assert any("global_batch = 56: one micro-batch for every" in text for text in left_out.scenario.assumptions)
    tokens = shardmeter.predict(file, overrides=["run.global_batch=1M tokens"])
    assert tokens.scenario.run.global_batch == 248.0  # 244.1 sequences; units of 8 are left over


def test_the_nearest_batches_are_all_that_can_be_split() -> None:
    """Against counting: sums of units from the least on."""
    rng = np.random.default_rng(3)
    for _ in range(300):
        units = [
            (float(unit), float(unit * rng.integers(1, 3)))
            for unit in rng.choice([1, 2, 3, 4, 6, 10, 15, 16], rng.integers(1, 4))
        ]
        fewest, most = int(sum(least for _, least in units)), 200
        reach = [True] + [False] * most
        for left in range(1, most + 1):
            reach[left] = any(left >= unit and reach[left - int(unit)] for unit, _ in units)
        can = [float(fewest + left) for left in range(most + 1) if reach[left]]
        batch = float(rng.integers(1, 120))
        wanted = {max([one for one in can if one <= batch], default=None), min(one for one in can if one >= batch)}
        assert set(split.nearest(batch, units)) == wanted - {None}
        shares = [
            split.Share(unit=u, least=m, start=float(rng.random()), each=float(rng.random()) + 0.1) for u, m in units
        ]
        parts = split.by_speed(batch, shares)
        assert (parts is not None) == (batch in wanted)
        assert parts is None or sum(parts) == batch


@pytest.mark.parametrize("question", ["micro-batch", "seq", "gpus"])
def test_solve_says_what_answers_it(capsys: Any, file: str, question: str) -> None:
    assert main(["solve", question, file]) == 2
    assert "shardmeter sweep" in capsys.readouterr().err


# ---- explain ---------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("method", ["every_step", "diloco", "streaming_diloco", "decoupled_diloco"])
def test_terms_of_a_fleet_are_seconds_times_count(file: str, method: str) -> None:
    found = explain(shardmeter.load(file, overrides={"plan.sync": {"method": method}}))
    rows = found.terms()
    assert [row["term"] for row in rows] == [term.label for term in found.prediction.estimate.terms]
    assert all(row["each_s"] * row["count"] == pytest.approx(row["seconds"]) for row in rows)
    assert sum(row["seconds"] for row in rows) == pytest.approx(found.prediction.step_time)
    across = "gradients across islands" if method == "every_step" else "outer synchronisation"
    assert {step.formula for step in found.of((across,))} & {"ring_time", "star_time", "pass_time"}
    if method != "every_step":
        round_ = found.prediction.whole.round
        assert round_ is not None
        assert next(row["count"] for row in rows if row["term"] == across) == 1.0 / float(round_.steps)
        assert {step.formula for step in found.of(("outer update",))} == {"traffic_time"}


def test_the_calls_are_those_of_the_island_that_sets_the_pace(scenario: shardmeter.Scenario) -> None:
    found = explain(scenario)
    part = found.prediction.whole.parts[found.prediction.whole.critical]
    peaks = {step.arguments["peak"] for step in found.steps if step.formula == "matmul_rate"}
    assert peaks == {part.island.accelerator.peak["bf16"]}


def test_explain_prints_arrays_by_their_range(capsys: Any, file: str) -> None:
    assert main(["explain", file, "--term", "outer synchronisation"]) == 0
    page = capsys.readouterr().out
    assert "3 × 3: 40 ms" in page
    assert "ndarray" not in page
    assert main(["explain", file, "--format", "json"]) == 0
    json.loads(capsys.readouterr().out, parse_constant=lambda text: pytest.fail(f"{text} in JSON"))


# ---- trace -----------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "method", ["every_step", "diloco", "streaming_diloco", "eager_diloco", "local_sgd", "sparse_loco"]
)
def test_rounds_are_drawn_as_they_are_folded(file: str, method: str) -> None:
    answer = trace_rounds(shardmeter.load(file, overrides={"plan.sync": {"method": method}}), rounds=6).to_dict()
    assert abs(answer["error"]) <= 0.01
    assert sum(term["timeline_s"] for term in answer["terms"]) == pytest.approx(answer["round_time_s"], rel=0.01)
    assert [row["island"] for row in answer["streams"]] == ["oregon", "iowa", "home", "network"]


def test_pictures_of_rounds(capsys: Any, file: str, tmp_path: Path) -> None:
    out, svg = tmp_path / "rounds.json", tmp_path / "rounds.svg"
    arguments = ["trace", file, "--rounds", "3", "-o", str(out), "--svg", str(svg), "--format", "json"]
    assert main(arguments) == 0
    answer = json.loads(capsys.readouterr().out)
    events = json.loads(out.read_text(encoding="utf-8"))["traceEvents"]
    threads = {one["args"]["name"]: one["tid"] for one in events if one["name"] == "thread_name"}
    assert set(threads) == {"oregon · compute", "iowa · compute", "home · compute", "network · network"}
    steps = [one for one in events if one.get("cat") == "inner step"]
    assert len(steps) == 3 * 3 * 6
    for name, tid in threads.items():  # what a cell does and waits for fills its row
        spans = sorted((one["ts"], one["ts"] + one["dur"]) for one in events if one["ph"] == "X" and one["tid"] == tid)
        if name != "network · network":
            assert sum(end - begin for begin, end in spans) == pytest.approx(3e6 * answer["round_time_s"], rel=0.01)
    waits = {one["name"] for one in events if one.get("cat") == "wait"}
    assert waits == {"wait: wait", "wait: outer gradient across islands"}
    texts = [
        one.text for one in ET.fromstring(svg.read_text(encoding="utf-8")).iter("{http://www.w3.org/2000/svg}text")
    ]
    assert {"oregon", "iowa", "home", "network", "inner step", "message between islands", "wait"} <= set(texts)


def test_one_island_of_a_fleet_is_drawn_alone(capsys: Any, file: str, scenario: shardmeter.Scenario) -> None:
    assert main(["trace", file, "--island", "home", "--steps", "2", "--format", "json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    part = next(part for part in shardmeter.predict(scenario).whole.parts if part.island.name == "home")
    assert answer["closed_form_s"] == pytest.approx(float(part.estimate.step_time))
    assert one_island(scenario, "home").run.global_batch == part.run.global_batch


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("--steps", "2"), "--island NAME"),
        (("--island", "hme"), "the nearest are: home"),
        (("--set", "plan.sync.method=decoupled_diloco"), "do not wait for each other"),
        (("--set", "plan.sync.method=async_local_sgd"), "--island oregon"),
        (("--island", "home", "--rounds", "3"), "one island has no rounds"),
    ],
)
def test_what_is_not_drawn_is_said(capsys: Any, file: str, arguments: tuple[str, ...], says: str) -> None:
    assert main(["trace", file, *arguments]) == 2
    assert says in capsys.readouterr().err


# ---- other faces -----------------------------------------------------------------------------------------------------------------


def test_csv_has_a_row_of_all_and_one_an_island(capsys: Any, file: str) -> None:
    assert main(["predict", file, "--format", "csv"]) == 0
    rows = list(csv.DictReader(io.StringIO(capsys.readouterr().out)))
    assert [row["island"] for row in rows] == ["all", "oregon", "iowa", "home"]
    assert sum(float(row["tokens_per_s"]) for row in rows[1:]) == pytest.approx(float(rows[0]["tokens_per_s"]))
    assert all(float(row["memory.peak_gib"]) > 0.0 for row in rows)


def test_what_nothing_reads_is_named_over_islands(file: str) -> None:
    scenario = shardmeter.load(file, overrides=["model={base: llama-3.1-8b, patch: 16, vocab: 64000}"])
    assert [text.partition(" =")[0] for text in scenario.warnings if "no formula" in text] == ["model.patch"]


def test_the_schema_knows_what_joins_islands() -> None:
    found = json_schema()
    parts = found["$defs"]
    assert {"sync", "placement"} <= set(parts["PlanInput"]["properties"])
    assert {"default", "links", "sites", "self"} <= set(parts["WanInput"]["properties"])


def test_islands_in_vain_are_warned_of(capsys: Any, file: str) -> None:
    slow = ["--set", "plan.sync.method=decoupled_diloco", "--set", "fleet.wan.default.bandwidth=10 Mbps"]
    assert main(["predict", file, *slow, "--set", "plan.sync.sync_every=24"]) == 0
    assert "comes too late" in capsys.readouterr().err
    assert main(["predict", file, *slow, "--set", "plan.sync.sync_every=24", "--set", "plan.sync.topology=tree"]) == 0
    found = capsys.readouterr()
    assert "no token counts" in found.err
    assert "The whole run" not in found.out


# ---- the page --------------------------------------------------------------------------------------------------------------------


def test_what_is_paid_for_traffic_stands_apart(capsys: Any, file: str) -> None:
    run = shardmeter.predict(file).to_dict()["run"]
    rent = sum(one["usd"] for one in run["cost_terms"] if one["term"].startswith("accelerators"))
    traffic = run["cost_usd"] - rent
    assert traffic > 0.0
    assert main(["predict", file]) == 0
    lines = [" ".join(line.split()) for line in capsys.readouterr().out.splitlines()]
    assert any(line.startswith(f"cost {show(run['cost_usd'], 'USD')} 90 %: ") for line in lines)
    rents = [line for line in lines if line.startswith("accelerators of") and line.endswith("given per gpu")]
    assert len(rents) == 3
    paid = [one for one in run["cost_terms"] if one["term"].startswith("traffic from")]
    assert sum(one["usd"] for one in paid) == pytest.approx(traffic)
    assert all(any(line.startswith(f"{one['term']} {show(one['usd'], 'USD')} ") for line in lines) for one in paid)


@pytest.mark.parametrize("width", [80, 100, 140])
def test_what_made_a_message_slow_stays_on_a_narrow_page(
    capsys: Any, monkeypatch: pytest.MonkeyPatch, file: str, width: int
) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    assert main(["predict", file]) == 0
    page = capsys.readouterr().out
    table = page.partition("What crosses between islands in a round")[2].partition("\n\n")[0]
    assert "narrowest" in "".join(table.splitlines()[1:3])  # the head, in two lines where there is little room
    assert "due after" not in table  # outer gradients of DiLoCo are waited for


def test_where_windows_bind_more_streams_relieve(file: str) -> None:
    bound = ["fleet.wan.default.bandwidth=100 Gbps", "fleet.wan.default.streams=4", "plan.sync.sync_every=1"]
    found = shardmeter.predict(file, overrides=bound).to_dict()  # four for each of eight accelerators
    assert "window of 32 streams" in found["sync"]["crossings"][0]["narrowest"]
    gain = {one["change"]: one["step_time_s"] for one in found["bottleneck"]["relief"]}
    twice = shardmeter.predict(file, overrides=[*bound[:1], "fleet.wan.default.streams=8", *bound[2:]])
    assert gain["twice the streams between islands"] == pytest.approx(twice.step_time)


def test_a_change_for_unlike_islands_is_what_its_option_does(file: str) -> None:
    found = shardmeter.predict(file).to_dict()["bottleneck"]["relief"]
    tried = [one for one in found if one["set"] and "plan.sync" not in " ".join(one["set"])]
    assert tried
    for one in tried:
        assert shardmeter.predict(file, overrides=one["set"]).step_time == pytest.approx(one["step_time_s"])


def test_a_link_that_is_not_said_cannot_be_changed(capsys: Any, file: str) -> None:
    assert main(["predict", file, "--set", "fleet.wan.links.0.bandwidth=5 Gbps"]) == 2
    assert "there is no item 0: no fleet.wan.links is said" in capsys.readouterr().err


def test_points_between_two_ends_are_read_at_four_digits(capsys: Any, file: str) -> None:
    axis = ["--over", "fleet.wan.default.bandwidth=1Gbps..10Gbps:log3"]
    assert main(["sweep", file, *axis]) == 0
    page = capsys.readouterr().out
    assert "3.162Gbps" in page
    assert main(["sweep", file, *axis, "--format", "csv"]) == 0
    assert "3.16227766017Gbps" in capsys.readouterr().out


def test_the_step_is_the_last_figure_that_a_narrow_sweep_leaves_out(
    capsys: Any, monkeypatch: pytest.MonkeyPatch, file: str
) -> None:
    monkeypatch.setenv("COLUMNS", "60")
    assert main(["sweep", file, "--over", "plan.sync.sync_every=6,12"]) == 0
    table = capsys.readouterr().out.partition("Points\n")[2]
    head, hidden = table.splitlines()[0], table.partition("left out for lack of room: ")[2]
    assert {"step", "tokens/s"} <= set(head.split())
    assert "longest term" in hidden
    assert (
        main(["sweep", file, "--over", "plan.sync.sync_every=6,12", "--columns", "mfu,hfu,run.tokens,step_time_s"]) == 0
    )
    assert "MFU" in capsys.readouterr().out.partition("Points\n")[2].splitlines()[0]


def test_a_long_timeline_is_told_in_hours(file: str, tmp_path: Path) -> None:
    picture = tmp_path / "rounds.svg"
    assert main(["trace", file, "--set", "plan.sync.sync_every=600", "--rounds", "3", "--svg", str(picture)]) == 0
    assert ">0 h<" in picture.read_text(encoding="utf-8")
