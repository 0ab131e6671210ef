"""docs/zero-order.md, figure by figure: what is published of SOMA against the counts, prices and laws of this package.

Every test computes what its section of the page says, and finds it there.
"""

from __future__ import annotations

import functools
import itertools
import re
from pathlib import Path
from typing import Any

import pytest

import shardmeter
from shardmeter.core.record import changed
from shardmeter.engine.evaluate import evaluate
from shardmeter.engine.fleet import evaluate_fleet
from shardmeter.families import family, sized
from shardmeter.physics.zero_order import best_batch, low_rank_variance, run_operations, spsa_variance
from shardmeter.scenario import load
from shardmeter.scenario.catalog import load_catalog
from shardmeter.specs import Estimate, Plan
from shardmeter.specs.demands import FORWARD
from shardmeter.specs.serving import Serving
from shardmeter.strategies.probes import dimension, shapes
from shardmeter.study.course import durations
from shardmeter.study.infer import infer

ROOT = Path(__file__).parents[2]
PAGE = " ".join((ROOT / "docs" / "zero-order.md").read_text(encoding="utf-8").split())
CATALOG = load_catalog()
HOUR = 3600.0
STEPS = 1024.0
MEAN, MOST, UPDATES = 0.142, 0.165, 4.16e6
"""Published of N = 256: seconds of an update in the mean and at most, and how many."""
OF_TWO = 150.0 * HOUR / 65_000.0 / 2.0
"""Published of N = 2: 65,000 updates of each in 150 accelerator-hours of both."""
OF_ONE = 152.0 * HOUR / 30_000.0
"""Published of one model: 30,000 updates in 152 accelerator-hours."""
MODELS = {256: "soma-lstm-32", 8: "soma-lstm-204", 2: "soma-lstm-414", 1: "soma-lstm-588"}
KERNELS = {"eager": "titan-eager", "compiled": "titan-compile", "fused": "titan-compile"}


def says(*texts: str) -> None:
    """The page has every text."""
    missing = [text for text in texts if text not in PAGE]
    assert not missing, f"docs/zero-order.md does not say {missing}"


@functools.cache
def update(experts: int, kernels: str, together: int, launch: float | None = None) -> Estimate:
    """One update of one of so many experts on an RTX 5090, so many passes side by side."""
    plan = {
        "sharding": "none", "micro_batch": 64, "precision": "tf32", "trainable": "layer+head",
        "sync": {"method": "soma", "together": together},
    }  # fmt: skip
    asked = {"model": MODELS[experts], "gpus": "1xRTX 5090", "stack": KERNELS[kernels], "plan": plan}
    own = load(asked | {"run": {"seq_len": 1024, "global_batch": 64}})
    stack = changed(own.stack, kernels=kernels, launch_overhead=own.stack.launch_overhead if launch is None else launch)
    return evaluate(own.model, own.fleet.islands[0], own.plan, own.run, stack)


def seconds(experts: int, kernels: str, together: int, launch: float | None = None) -> float:
    return float(update(experts, kernels, together, launch).step_time)


@functools.cache
def most_together(experts: int) -> int:
    """The most passes side by side, of powers of two, that fit with every software."""
    limit = float(CATALOG.accelerator("RTX 5090").memory)
    return max(
        size for size in (1, 2, 4, 8, 16, 32, 64, 128)
        if all(float(update(experts, kernels, size).memory_peak) <= limit for kernels in KERNELS)
    )  # fmt: skip


@functools.cache
def published() -> dict[str, Any]:
    """The prediction of the published run of 256."""
    return shardmeter.predict(ROOT / "examples" / "soma-256.yaml").to_dict()


def slow() -> tuple[float, float]:
    """What 90 % of steps take of the predicted time, with a stack never seen."""
    rate, (low, high) = published()["tokens_per_s"], published()["intervals"]["tokens_per_s"]
    return rate / high, rate / low


# ---- how long the run lasts ------------------------------------------------------------------------------------------------------


def test_the_wall_clock_is_the_slowest_and_the_hours_are_the_mean() -> None:
    own = load(ROOT / "examples" / "soma-256.yaml")
    whole = evaluate_fleet(own.model, own.fleet, own.plan, own.run, own.stack, own.plans)
    rest = (256.0 * MEAN - MOST) / 255.0
    parts = tuple(
        changed(part, estimate=changed(part.estimate, step_time=MOST if at == 0 else rest))
        for at, part in enumerate(whole.parts)
    )
    wall, held = (float(one) / HOUR for one in durations(changed(whole, parts=parts), UPDATES))
    assert wall == pytest.approx(191.0, rel=0.002)
    assert held == pytest.approx(41_900.0, rel=0.003)
    says(f"{wall:.1f} h", f"{held / 1e3:.1f}k accelerator-hours", f"{UPDATES * MEAN / HOUR:.1f} h")
    says(f"256 · 16.8 = {256 * 16.8:,.0f}", f"2 · 17.3 = {2 * 17.3:.1f}")


def test_what_is_predicted_of_it() -> None:
    answer = published()
    run, step = answer["run"], 1.0 / answer["tokens_per_s"] * 256 * 64 * STEPS
    says(
        f"{run['wall_clock_s'] / HOUR:.0f} h",
        f"{run['gpu_hours'] / 1e3:.1f}k accelerator-hours",
        f"{step * 1e3:.0f} ms",
    )
    says(f"{step * slow()[0] * 1e3:.0f} to {step * slow()[1] * 1e3:.0f} ms")
    assert step * slow()[0] < MEAN < MOST < step * slow()[1]
    assert answer["sync"]["sent_bytes"] == 0.0


def test_what_an_update_computes() -> None:
    forward = 2.0 * (float(dimension(sized(CATALOG.model(MODELS[256]), 1.0), Plan())) - 192.0)
    assert forward == 81_920.0
    counted = update(256, "compiled", 128).model_flops / (2.0 * 64.0 * 64.0 * 1024.0)
    assert counted == forward - 2.0 * 256.0 * 32.0 == 65_536.0
    one = float(run_operations(STEPS, 64.0, 64.0, 1.0, forward, 1.0))
    says(
        f"{one / 1e9:.0f} GFLOP", f"{one / MEAN / 1e12:.2f} TFLOP/s", f"{one / MEAN / 104.8e12:.1%}".replace("%", " %")
    )
    says(f"{2 * 64 * 64 * STEPS / MEAN / 1e6:.1f}M bytes", f"{MEAN / STEPS * 1e6:.0f} µs a time step")


# ---- updates of N = 256, 8, 2 and one ----------------------------------------------------------------------------------------------


def test_the_device_rate_of_256_carried_over() -> None:
    """Calibrated: one factor a software, between its prediction and the published mean of N = 256."""
    assert [most_together(experts) for experts in MODELS] == [128, 32, 8, 8]
    low, high = slow()
    factors = {kernels: MEAN / seconds(256, kernels, 128) for kernels in KERNELS}
    for kernels, factor in factors.items():
        others = (factor * seconds(n, kernels, most_together(n)) for n in (8, 2, 1))
        row = [f"{seconds(256, kernels, 128):.3f} s", f"{factor:.2f}", *(f"{one:.2f} s" for one in others)]
        says(f"| {kernels} | {' | '.join(row)} |")
    ends = {n: [factors[k] * seconds(n, k, most_together(n)) for k in KERNELS] for n in (8, 2, 1)}
    found = {n: (low * min(each), high * max(each)) for n, each in ends.items()}
    says("| 90 % | | | " + " | ".join(f"{a:.2f} to {b:.2f} s" for a, b in found.values()) + " |")
    assert found[2][1] < OF_TWO < 1.06 * found[2][1], "published of N = 2: just outside"
    assert 3.0 * found[1][1] < OF_ONE, "published of one model: far outside"
    says(f"{OF_TWO:.2f} s", f"{OF_ONE:.2f} s", f"{OF_TWO / found[2][1] - 1.0:.0%}".replace("%", " %"))
    updates = [87.5 * HOUR / end / 1e3 for end in reversed(found[8])]
    says(f"{updates[0]:.0f},000 to {updates[1]:.0f},000 updates")


def test_the_pace_of_the_host_explains_what_the_device_does_not() -> None:
    """Six launches a time step of 139 µs: passes one after the other last 128 times as long, whatever the width."""
    model = CATALOG.model(MODELS[256])
    blocks = [name for name, _ in family("recurrent").order(model)]
    launches = sum(
        op.launches for name in blocks
        for op in family("recurrent").operations(model, name, 64.0 * STEPS, STEPS, "eager") if op.phase == FORWARD
    )  # fmt: skip
    assert launches == 6.0 * STEPS
    launch, (low, high) = MEAN / launches, slow()
    says(f"{launch * 1e6:.1f} µs", f"{128 * MEAN:.2f} s", "25 µs")
    rows = {(1, 1): OF_ONE, (2, 4): OF_TWO, (2, 8): OF_TWO, (8, 32): None}
    for (experts, together), measured in rows.items():
        found = seconds(experts, "eager", together, launch)
        told = "–" if measured is None else f"{measured:.2f} s"
        says(f"| {experts} | {together} | {found:.2f} s | {low * found:.2f} to {high * found:.2f} s | {told} |")
        assert measured is None or low * found < measured < high * found
    assert pytest.approx(128.0 * MEAN, rel=0.005) == OF_ONE
    assert seconds(1, "eager", 1, launch) == pytest.approx(OF_ONE, rel=0.02)
    says(f"{seconds(256, 'eager', 128, launch):.3f} s", f"{seconds(256, 'eager', 128, 0.0):.3f} s")


def test_the_rows_of_one_model_have_no_batch_in_common() -> None:
    """18.24, 409.1 and 635.0 accelerator-seconds an update with 64, 256 and 1,024 perturbations."""
    each = [OF_ONE / 128.0, 150.0 * HOUR / 1320.0 / 512.0, 148.0 * HOUR / 839.0 / 2048.0]
    says(", ".join(f"{one:.3f}" for one in each[:2]) + f" and {each[2]:.3f} s a pass")
    assert not all(a == pytest.approx(b, rel=0.5) for a, b in itertools.pairwise(each))


# ---- ensembles -------------------------------------------------------------------------------------------------------------------


@functools.cache
def written(experts: int, batch: int) -> float:
    """Tokens a second that an RTX 5090 writes in batches: of the four of 256 experts that a sequence is routed to, or of one model."""
    plan = {"precision": "tf32", "sharding": "none"}
    own = load(
        {
            "model": MODELS[experts],
            "gpus": "1xRTX 5090",
            "stack": "titan-compile",
            "plan": plan,
            "run": {"seq_len": 1024},
        }
    )
    asked = Serving(how="local", prompt=1.0, output=1023.0, batch=float(batch))
    if experts > 1:
        asked = changed(asked, how="soma", experts=experts, top_k=4, together=True)
    return float(infer(own, asked).to_dict()["tokens_per_s_in_flight"])


def test_ensembles_against_one_model() -> None:
    batches = (64, 512, 4096, 65_536)
    gains = {batch: written(256, batch) / written(1, batch) for batch in batches}
    for batch, gain in gains.items():
        rates = " | ".join(f"{written(n, batch) / 1e6:.2f}M" for n in (256, 1))
        says(f"| {batch:,} | {rates} | {gain:.1f} × | {gain / 4.0:.1f} to {gain * 4.0:.1f} × |")
    assert [gain / 4.0 < 9.19 < gain * 4.0 for gain in gains.values()] == [False, True, True, True]
    assert max(gains.values()) < 9.19
    says(f"8.45M/(4 · 32,960) = {8.45e6 / (4 * 32_960):.0f} times", f"588/(4 · 32) = {588 / (4 * 32):.1f}")
    many, few = (
        min(range(8, 1024, 8), key=lambda b: abs(written(n, b) - rate)) for n, rate in ((256, 2.36e6), (1, 257e3))
    )
    says(f"{many} sequences", f"{few} sequences", f"{many / few:.1f} times")
    assert many / few == pytest.approx(9.19, rel=0.2)


# ---- variance --------------------------------------------------------------------------------------------------------------------


def test_how_noisy_the_published_updates_are() -> None:
    plan = load(ROOT / "examples" / "soma-256.yaml").plan
    for experts, name in MODELS.items():
        size = float(dimension(sized(CATALOG.model(name), 1.0), plan))
        says(f"| {experts} | {size:,.0f} | {float(spsa_variance(size, 64.0)):,.0f} |")
    whole = sized(CATALOG.model(MODELS[1]), 1.0)
    size = float(dimension(whole, plan))
    widest = max(
        float(low_rank_variance(size, rows, columns, 1.0, 2.0**20)) for rows, columns, _ in shapes(whole, plan)
    )
    says(f"| EGGROLL, 2²⁰ of rank 1 | {size:,.0f} | {widest:.1f} |")
    least = float(dimension(sized(CATALOG.model(MODELS[256]), 1.0), plan))
    says(f"{float(best_batch(4096.0, least - 1.0, 100.0)):.1f} sequences", f"ν = {least - 1.0:,.0f}")
    assert best_batch(4096.0, least - 1.0, least - 1.0) == 64.0


# ---- how to describe and to read a run --------------------------------------------------------------------------------------------


def test_the_files_of_the_page_answer_what_it_says(tmp_path: Path) -> None:
    text = (ROOT / "docs" / "zero-order.md").read_text(encoding="utf-8")
    one, four = re.findall(r"```yaml\n(.*?)```", text, re.DOTALL)

    def answer(text: str) -> dict[str, Any]:
        path = tmp_path / "asked.yaml"
        path.write_text(text, encoding="utf-8")
        return shardmeter.predict(path).to_dict()

    for method in ("mezo", "spsa", "eggroll"):
        found = answer(one.replace("mezo", method).replace("global_batch: 16", "global_batch: 1024"))
        assert found["fits"] == (method != "spsa")
        says(f"{found['memory']['peak_gib']:.1f} GiB")
    found = answer(four)
    assert found["step_time_s"] is None
    assert found["zero_order"]["variance"] == pytest.approx(65_968.0, abs=1.0)
    wall, held = found["run"]["wall_clock_s"], found["run"]["gpu_hours"]
    says(f"{wall / 86_400:.2f} d", f"{held:.0f} accelerator-hours", f"would take {4.0 * wall / HOUR:.0f}")
