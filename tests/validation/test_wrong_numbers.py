"""Published numbers that were wrong: the model gives the right ones. `wrong_numbers.yaml` says what each is about."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML

import shardmeter
from shardmeter.physics.collectives import shard_traffic
from shardmeter.scenario.catalog import load_catalog
from shardmeter.study.predict import Prediction

CASES: dict[str, dict[str, Any]] = YAML(typ="safe").load(Path(__file__).with_name("wrong_numbers.yaml"))
GIB = 2.0**30
DECODER = {"layers": 4, "hidden": 1024, "ffn": 4096, "heads": 16, "vocab": 1000, "norm": "layer"}
CHECKS: dict[str, Callable[[dict[str, Any]], None]] = {}


def check(function: Callable[[dict[str, Any]], None]) -> Callable[[dict[str, Any]], None]:
    """A check belongs to the case that its name ends in."""
    CHECKS[function.__name__.removeprefix("check_").upper()] = function
    return function


def peak(name: str) -> float:
    return float(load_catalog().accelerator(name).peak["bf16"])


def ask(model: Any = "llama-2-7b", gpus: str = "8xH100-SXM5-80GB", plan: str = "fsdp", **more: Any) -> Prediction:
    return shardmeter.predict(model=model, gpus=gpus, plan=plan, **more)


def flops_a_token(model: Any, seq: int) -> float:
    """Model FLOPs of a token, forward and backward."""
    estimate = ask(model, "1xH100-SXM5-80GB", "none", seq=seq).estimate
    return float(estimate.model_flops / estimate.tokens)


def states(answer: Prediction, *labels: str) -> float:
    return sum(float(term.size) for term in answer.estimate.memory if term.label in labels)


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=pytest.mark.xfail(reason=case["xfail"], strict=True) if "xfail" in case else ())
        for name, case in CASES.items()
    ],
)
def test_the_right_number_comes_out(name):
    case = CASES[name]
    assert case["cite"].startswith("https://")
    assert len(case["says"]) > 30
    if "skip" in case:
        assert name not in CHECKS
        pytest.skip(case["skip"])
    CHECKS[name](case)


def test_every_check_has_its_case():
    assert set(CHECKS) == {name for name, case in CASES.items() if "skip" not in case}


@check
def check_b01(case):
    assert case["printed"] * peak("A100-SXM4-80GB") / peak("H100-SXM5-80GB") == pytest.approx(case["right"], rel=0.005)
    answer = ask("gpt2", "1xH100-SXM5-80GB", "none,micro_batch=16")
    assert answer.mfu == pytest.approx(
        float(answer.estimate.model_flops) / answer.step_time / peak("H100-SXM5-80GB"), rel=1e-12
    )
    assert answer.mfu < 1.0


@check
def check_b02(case):
    h100 = peak("H100-SXM5-80GB")
    assert h100 / peak("A100-SXM4-80GB") == pytest.approx(case["a100"], rel=0.005)
    assert h100 / peak("RTX 4090") == pytest.approx(case["rtx_4090"], rel=0.01)


@check
def check_b03(case):
    assert case["tokens"] / case["step"] == pytest.approx(case["rate"], rel=1e-4)
    swapped = case["of_a100"] * peak("A100-SXM4-80GB") / peak("H100-SXM5-80GB")
    assert swapped == pytest.approx(case["of_h100"], rel=0.005)


@check
def check_b07(case):
    def layers(mlp: str) -> float:
        """Of the layers' products alone: without the head, which both have, and without the core of attention."""
        per = [
            2.0 * flops_a_token({**DECODER, "mlp": mlp, "layers": count}, 512)
            - flops_a_token({**DECODER, "mlp": mlp, "layers": count}, 1024)
            for count in (2, 4)
        ]
        return per[1] - per[0]

    assert layers("gated") / layers("plain") == pytest.approx(case["right"], rel=1e-4)


@check
def check_b08(case):
    model = load_catalog().model("llama-3.1-70b")
    head = 2.0 * float(model.hidden * model.vocab)
    forward = flops_a_token("llama-3.1-70b", 8192) / 3.0 - head
    assert forward == pytest.approx(case["right"], rel=0.002)
    assert abs(forward / case["wrong"] - 1.0) > 0.2


@check
def check_b11(case):
    seq = case["seq"]
    full, windowed = (
        {"base": "gpt-oss-20b", "mixers": letter, "window": case["window"] if letter == "w" else 0} for letter in "fw"
    )
    key = (flops_a_token(full, seq) - flops_a_token(full, seq // 2)) / (seq / 2)
    rest = flops_a_token(full, seq) - key * seq
    assert key * seq / (flops_a_token(windowed, seq) - rest) == pytest.approx(case["right"], rel=1e-3)
    delta = {"base": "qwen3-next-80b-a3b", "mixers": "d"}
    assert flops_a_token(delta, seq) == pytest.approx(flops_a_token(delta, 8192), rel=1e-9)


@check
def check_b12(case):
    answer = ask(global_batch=8 * case["passes"], seq=2048)
    assert answer.tokens_per_s * answer.step_time == pytest.approx(8 * case["passes"] * 2048, rel=1e-12)


@check
def check_b13(case):
    answer = ask(global_batch=8 * case["passes"], seq=2048).to_dict()
    tokens = answer["tokens_per_s_per_gpu"] * 8 * answer["step_time_s"]
    assert tokens == pytest.approx(8 * case["passes"] * 2048, rel=1e-12)


@check
def check_b16(case):
    for plan in ("fsdp", "fsdp,cp=2"):
        answer = ask(gpus="4xH100-SXM5-80GB", plan=plan, seq=2048, global_batch=32, overrides={"run.steps": 5})
        run = answer.to_dict()["run"]
        assert run["tokens"] == case["right"]
        assert answer.tokens_per_s * run["wall_clock_s"] == pytest.approx(case["right"], rel=1e-12)


@check
def check_b17(case):
    answer = ask(plan=f"fsdp,tp={case['tp']}", seq=2048, global_batch=32).to_dict()
    assert answer["tokens_per_s_per_gpu"] * 8 * answer["step_time_s"] == pytest.approx(32 * 2048, rel=1e-12)


@check
def check_b18(case):
    answer = ask(plan=f"fsdp,cp={case['cp']}", seq=2048, global_batch=32).to_dict()
    assert answer["tokens_per_s_per_gpu"] * 8 * answer["step_time_s"] == pytest.approx(32 * 2048, rel=1e-12)


@check
def check_b21(case):
    plan = f"fsdp,micro_batch={case['micro_batch']}"
    scenario = ask(gpus=f"{case['gpus']}xH100-SXM5-80GB", plan=plan, global_batch=case["batch"]).scenario
    assert scenario.run.global_batch / (scenario.plan.dp * scenario.plan.micro_batch) == case["passes"]
    with pytest.raises(shardmeter.BadScenario, match="global_batch = 250 is no multiple"):
        ask(plan=plan, global_batch=250)


@check
def check_b23(case):
    for plan, passes in (("fsdp,micro_batch=4", case["alone"]), ("fsdp,micro_batch=4,cp=2", case["shared"])):
        scenario = ask(plan=plan, global_batch=256).scenario
        assert scenario.run.global_batch / (scenario.plan.dp * scenario.plan.micro_batch) == passes


@check
def check_b26(case):
    answer = ask("llama-2-7b", "1xH100-SXM5-80GB", "fsdp")
    parameters = states(answer, "parameters") / 4.0
    all_states = states(answer, "parameters", "gradients", "optimizer state")
    assert all_states / parameters * case["parameters"] == pytest.approx(case["right"], rel=1e-9)
    assert case["right"] / GIB == pytest.approx(104.3, rel=0.001)


@check
def check_b27(case):
    question = {
        "model": "qwen2.5-1.5b", "gpus": "1xA100-SXM4-80GB", "plan": "none",
        "run": {"seq_len": 2048, "reference": "qwen2.5-1.5b"},
    }  # fmt: skip
    answer = shardmeter.predict(shardmeter.load(question))
    count, run = states(answer, "parameters") / 2.0, answer.scenario.run
    scale = count / case["parameters"]
    logits = 2.0 * float(run.seq_len * answer.scenario.model.vocab)
    assert states(answer, "reference model") - logits == pytest.approx(scale * case["copies"] / 2.0, rel=0.01)
    master = 4.0 * count
    assert states(answer, "optimizer state") - master == pytest.approx(scale * case["states"], rel=1e-6)
    assert states(answer, "activations", "peak inside a layer") > 3e9, "over long completions"


@check
def check_b28(case):
    answer = ask("llama-2-7b", "32xA100-SXM4-80GB", "ddp,tp=8", stack="mcore-2025", seq=4096)
    found = float(answer.estimate.memory_peak)
    assert max(found / case["observed"], case["observed"] / found) <= 1.0 + case["tolerance"]


@check
def check_b31(case):
    labels = {term.label for term in ask(seq=4096).estimate.memory}
    assert not [label for label in labels if "cache" in label.lower()]
    short, long = (states(ask(seq=seq), "activations") for seq in (4096, 8192))
    assert long / short == pytest.approx(2.0, rel=1e-6), "linear in the tokens: nothing is kept twice"


@check
def check_b32(case):
    parameters = states(ask("llama-2-7b", "1xH100-SXM5-80GB", "fsdp"), "parameters") / 4.0
    for optimizer, wanted in (("adamw", case["adam"]), ("sgd", case["momentum"])):
        answer = ask("llama-2-7b", "1xH100-SXM5-80GB", f"fsdp,optimizer={optimizer}")
        assert states(answer, "optimizer state") / parameters == pytest.approx(wanted, rel=1e-6)


@check
def check_b33(case):
    model = load_catalog().model("llama-3.2-1b")
    head = 6.0 * float(model.hidden * model.vocab)
    counted = 2.0 * flops_a_token("llama-3.2-1b", 1024) - flops_a_token("llama-3.2-1b", 2048)
    assert counted == pytest.approx(6.0 * case["layers"] + head, rel=0.005)
    assert (counted - 2.0 / 3.0 * head) / counted == pytest.approx(case["right"], rel=0.005)


@check
def check_b36(case):
    answer = ask("phi-1.5", "32xA100-SXM4-80GB", "zero1,micro_batch=8", stack="foundry-t21", seq=2048)
    rate = answer.tokens_per_s / 32
    assert case["card"] < rate < case["paper"]
    flops = float(answer.estimate.model_flops / answer.estimate.tokens)
    assert flops * case["paper"] / peak("A100-SXM4-80GB") == pytest.approx(case["mfu"], rel=0.1)


@check
def check_b37(case):
    run = ask(gpus="64xH100-SXM5-80GB", global_batch=256, tokens=case["tokens"]).to_dict()
    hours = case["tokens"] / run["tokens_per_s_per_gpu"] / 3600.0
    assert run["run"]["gpu_hours"] == pytest.approx(hours, rel=1e-9)
    assert case["tokens"] / case["rate"] / 3600.0 == pytest.approx(case["right"], rel=0.001)
    assert run["run"]["goodput"] is None, (
        "the ideal: what is lost to failures and checkpoints is not counted, and not hidden"
    )


@check
def check_b38(case):
    tower = {
        "family": "vision", "layers": 48, "hidden": 6144, "ffn": 24576, "heads": 48, "vocab": 29593, "mlp": "plain",
        "norm": "layer", "positions": "learned", "image_size": 224, "patch": 14, "class_tokens": 1, "qk_norm": "full",
    }  # fmt: skip
    estimate = ask(tower, "4xTPU v4", "fsdp", stack="maxtext-2024").estimate
    utilisation = float(estimate.model_flops / estimate.tokens) * case["rate"] / peak("TPU v4")
    assert utilisation == pytest.approx(case["right"], rel=0.01)
    assert 2.0 * utilisation == pytest.approx(case["wrong"], rel=0.01), "as many tokens a core are beyond the chip"


@check
def check_b41(case):
    run = ask("llama-3.2-1b", "1xA100-SXM4-80GB", "none", price=case["price"], tokens="100B").to_dict()["run"]
    assert run["cost_usd"] / (run["wall_clock_s"] / 86400.0) == pytest.approx(case["right"], rel=1e-9)


@check
def check_b42(case):
    once, twice = (ask(price=f"${price}/gpu/h", tokens="1T").to_dict()["run"]["cost_usd"] for price in (1.3, 2.6))
    assert twice == 2.0 * once


def reduction(gpus: int) -> tuple[float, float, float]:
    """(seconds, bytes, rate of a ring) of an all-reduce of all gradients of a large model inside a node of A100."""
    answer = ask("llama-2-7b", f"{gpus}xA100-SXM4-80GB", "ddp", stack="mlm-2021")
    term = next(one for one in answer.estimate.terms if one.label == "gradient reduction")
    tier = answer.scenario.fleet.islands[0].tiers[0]
    size = 4.0 * states(answer, "parameters") / 2.0
    rate = float(tier.bandwidth * tier.share * answer.scenario.stack.scale_up_factor)
    return float(term.seconds + term.hidden), size, rate


@check
def check_b46(case):
    assert 2.0 * shard_traffic(1.0, case["ranks"], 1.0) == case["right"]
    seconds, size, rate = reduction(case["ranks"])
    assert 1.0 < seconds / (case["right"] * size / rate) < 1.15, "and the steps of every bucket"


@check
def check_b47(case):
    eight, size, _ = reduction(case["ranks"])
    two, _, _ = reduction(2)
    assert eight / two == pytest.approx(case["right"], rel=0.05)
    assert 1e10 < size / eight < 1e12, "bytes a second, not a millisecond"
