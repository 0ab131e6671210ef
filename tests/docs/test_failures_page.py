"""The figures of the page on failures are what the product says."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

import shardmeter
from shardmeter.engine.course import BANDWIDTH_EACH, DETECT, START
from shardmeter.physics import failures
from shardmeter.scenario.catalog import load_catalog
from shardmeter.scenario.stores import STATE

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "failures.md").read_text(encoding="utf-8")
ROWS = load_catalog()
HOUR, DAY = 3600.0, 86400.0
METHODS = re.findall(r"^\| `(\w+)` \| (\d+) %(?: goodput)? \| (\d+) % \|$", PAGE, re.MULTILINE)


def found(pattern: str, text: str = PAGE) -> list[float]:
    """The numbers that a pattern of the page holds."""
    match = re.search(re.sub(r"\s+", r"\\s+", pattern), text)
    assert match is not None, pattern
    return [float(one.replace(",", "")) for one in match.groups()]


def run_of(source: Any, *overrides: str) -> dict[str, Any]:
    """`run` of the answer."""
    answer: dict[str, Any] = shardmeter.predict(source, overrides=overrides).to_dict()["run"]
    return answer


def mtbf_of(name: str, units: float) -> float:
    """Hours between two failures of so many units of a row."""
    return float(1.0 / failures.failure_rate(units, ROWS.failures(name).mtbf)) / HOUR


def test_rates_of_parts_add() -> None:
    gpus, each, hours = found(r"([\d,]+) GPUs of ([\d,]+) h each fail every ([\d.]+) h")
    assert each / gpus == pytest.approx(hours, abs=0.05)
    assert ROWS.failures("llama-3-405b").mtbf == each * HOUR


def test_what_is_taken_where_nothing_is_said() -> None:
    detect, start = found(r"`detect` \((\d+) min where nothing is said; .*? `restart` \((\d+) min")
    assert (detect * 60.0, start * 60.0) == (DETECT, START)
    each, rate, sustained = found(
        r"\((\d+) a parameter where nothing is said\).* (\d+) MB/s for each GPU are taken: the (\d) TB/s"
    )
    assert each == STATE
    assert rate * 1e6 == pytest.approx(BANDWIDTH_EACH, rel=0.005)
    assert pytest.approx(sustained * 1e12, rel=0.01) == 16384.0 * BANDWIDTH_EACH


def test_a_checkpoint_over_a_long_line_behind_the_steps_and_beside_the_machine() -> None:
    said = found(
        r"over 1 Gbps, on 64 GPUs of 2000 h: ([\d.]+) % goodput, ([\d.]+) % with checkpoints behind the steps "
        r"\(([\d.]+) % if the line is yours alone: `every: 15 min`\), ([\d.]+) % with a store beside"
    )
    asked = {
        "model": "llama-3.1-8b", "gpus": "64xH100-SXM5-80GB", "plan": "fsdp",
        "run": {"seq_len": 4096, "global_batch": 512, "tokens": "100B", "failures": {"mtbf": "2000 h", "per": "gpu"}},
    }  # fmt: skip
    far = "run.checkpoint.bandwidth=1 Gbps"
    behind = "run.checkpoint.blocking=false"
    ways = ((far,), (far, behind), (far, behind, "run.checkpoint.every=15 min"), ())
    made = [run_of(asked, *way) for way in ways]
    assert said == [pytest.approx(100.0 * one["goodput"], abs=0.05) for one in made]


def test_the_scenario_of_the_page_has_its_terms() -> None:
    block = re.search(r"```yaml\n(.*?)```", PAGE, re.DOTALL)
    assert block is not None
    run = run_of(block[1])
    assert [one["term"] for one in run["hours"]] == ["productive", "evaluation", "lost work", "restarts"]
    assert run["checkpoints"]["exposed_s"] == 0.0
    assert run["wall_clock_s"] == pytest.approx(sum(one["seconds"] for one in run["hours"]), rel=1e-12)


@pytest.mark.parametrize(("name", "late", "soon"), METHODS, ids=[name for name, *_ in METHODS])
def test_islands_that_stop_and_islands_that_go_on(name: str, late: str, soon: str) -> None:
    path = ROOT / "examples" / ("unreliable-every-step.yaml" if name == "every_step" else "unreliable-diloco.yaml")
    sync = () if name in path.stem.replace("-", "_") else (f"plan.sync={{method: {name}}}",)
    for said, more in ((late, ()), (soon, ("fleet.islands.0.preemption.wait=5 min",))):
        assert 100.0 * run_of(path, *sync, *more)["goodput"] == pytest.approx(float(said), abs=0.5)


def test_the_table_of_methods_is_read_whole() -> None:
    assert [name for name, *_ in METHODS] == ["every_step", "diloco", "decoupled_diloco"]
    fields = "nodes that stay 12 h, 100B tokens of an 8B model, H = 500 for DiLoCo"
    assert fields in PAGE
    scenario = shardmeter.load(ROOT / "examples" / "unreliable-diloco.yaml")
    assert (scenario.run.tokens, scenario.plan.sync.sync_every, len(scenario.fleet.islands)) == (100e9, 500, 4)
    assert {(one.nodes, one.gpus) for one in scenario.fleet.islands} == {(4, 32)}
    preempted = scenario.fleet.islands[0].preemption
    assert preempted is not None
    assert (preempted.mtbf, preempted.wait) == (12 * HOUR, 1.85 * HOUR)


def test_a_spot_fleet_beside_the_same_nodes_on_demand() -> None:
    often, every, good, days, usd, other_days, other_usd = found(
        r"(\d+) interruptions, one every ([\d.]+) h of running, ([\d.]+) % goodput, ([\d.]+) d and \$([\d,]+), where the same nodes on demand take "
        r"([\d.]+) d and \$([\d,]+):"
    )
    path = ROOT / "examples" / "spot-fleet.yaml"
    spot = run_of(path)
    held = run_of(path, "fleet.islands.iowa.spot=false", "fleet.islands.iowa.preemption=null")
    assert often == round(spot["interruptions"])
    assert every == pytest.approx(mtbf_of("gcp-spot", 8), abs=0.02), "nearly all of them are preemptions"
    assert good == pytest.approx(100.0 * spot["goodput"], abs=0.05)
    for said, one in (((days, usd), spot), ((other_days, other_usd), held)):
        assert said[0] == pytest.approx(one["wall_clock_s"] / DAY, abs=0.005)
        assert said[1] == pytest.approx(one["cost_usd"], abs=0.5)


def test_what_is_published_of_llama_3() -> None:
    (good,) = found(r"Llama 3.1 405B on 16,384 H100, effective time \| above 90 % \| (\d+) % with its own rate")
    asked = {
        "model": "llama-3.1-405b", "gpus": "16384xH100-SXM5-80GB", "plan": "fsdp,tp=8,pp=16,dp_shard=128",
        "run": {"seq_len": 8192, "global_batch": "16M tokens", "tokens": "3.8T", "failures": "llama-3-405b"},
    }  # fmt: skip
    goodput = run_of(asked)["goodput"]
    assert goodput > 0.90
    assert 100.0 * goodput == pytest.approx(good, abs=0.5)


def test_what_is_published_of_rsc() -> None:
    published, here = found(r"mean time to failure of 16,384 GPUs \| ([\d.]+) h \| ([\d.]+) h")
    assert here == pytest.approx(mtbf_of("rsc-1", 16384 / 8), abs=0.005)
    assert here == pytest.approx(published, rel=0.01)
    published, here = found(r"of 131,072 \| ([\d.]+) h \| ([\d.]+) h")
    assert here == pytest.approx(mtbf_of("rsc-1", 131072 / 8), abs=0.0005)
    assert here == pytest.approx(published, rel=0.03)
    published, here = found(r"whatever ends them \| ([\d.]+) h \| ([\d.]+) h by the rate of the infrastructure alone")
    assert here == pytest.approx(mtbf_of("rsc-1", 1024 / 8), abs=0.05)
    assert published == pytest.approx(mtbf_of("rsc-jobs", 1024), rel=0.001)


def test_what_islands_that_go_on_lose_on_equal_tokens() -> None:
    factor, law, apart, together = re.search(
        r"loss × ([\d.]+) that of\s+`every_step` \(extrapolated; by the law `([\w-]+)` ([\d.]+) nats a token where ([\d.]+)",
        PAGE,
    ).groups()  # type: ignore[union-attr]
    pair = [str(ROOT / "examples" / f"unreliable-{name}.yaml") for name in ("every-step", "diloco")]
    told = {one["figure"]: one for one in shardmeter.diff(*pair, overrides=[f"run.law={law}"]).to_dict()["figures"]}
    assert told["loss_factor"]["basis_b"] == "extrapolated"
    assert told["loss_factor"]["ratio"] == pytest.approx(float(factor), abs=5e-4)
    assert (told["run.loss"]["a"], told["run.loss"]["b"]) == pytest.approx((float(together), float(apart)), abs=5e-4)
