"""Whatever plan a search prints, `predict` takes it and gives the same figures, bit for bit; and what an export says is read again.

Scenarios are drawn with a seed. PLANS_AGAIN=400 draws that many questions; left out, a few (docs/hardening.md has a whole run).
"""

from __future__ import annotations

import json
import os
import random
from typing import Any

import pytest

from shardmeter.cli import main

MANY = int(os.environ.get("PLANS_AGAIN", "8"))
"""Questions of one island; a quarter as many of several, of fronts and of buildings."""
SAME = ("fits", "fits_probability", "step_time_s", "tokens_per_s", "tokens_per_s_per_gpu", "mfu")
OF_RUN = ("wall_clock_s", "gpu_hours", "cost_usd", "energy_kwh")
MODELS = ("gpt2", "llama-3.1-8b", "qwen3-0.6b", "qwen3-30b-a3b", "llama-3.1-70b", "mixtral-8x7b")
GPUS = (
    "8xH100-SXM5-80GB",
    "64xH100-SXM5-80GB",
    "16xA100-SXM4-80GB",
    "32xB200-SXM-180GB",
    "24xH100-SXM5-80GB",
    "72xGB200",
    "8xL40S",
)
STACKS = ("titan-compile", "titan-eager", "mcore-2024", "nanotron-2025")
OPEN = ("plan.schedule=any", "plan.offload=any", "plan.precision=any", "plan.recompute=none,full", "plan.tp=1,2", "plan.pp=1..4:x2", "plan.micro_batch=1,2",
        "plan.cp=1,2", "plan.optimizer=adamw,muon", "plan.sharding=fsdp,zero1", "plan.dp_replicate=1,2")  # fmt: skip


def asked(capsys: Any, *arguments: str) -> Any:
    """The JSON of a command; None where it is refused in a sentence."""
    code = main([*arguments, "--format", "json"])
    out, said = capsys.readouterr()
    assert code in (0, 1, 2), said
    assert "Traceback" not in said
    return json.loads(out) if code < 2 else None


def question(dice: random.Random) -> list[str]:
    """A question of one island, as it is typed."""
    words = ["--model", dice.choice(MODELS), "--gpus", dice.choice(GPUS), "--stack", dice.choice(STACKS)]
    for option, values in (("--seq", ("1024", "4096", "8192")), ("--global-batch", ("64", "512", "1M tokens"))):
        words += [option, dice.choice(values)] if dice.random() < 0.6 else []
    words += dice.choice(([], ["--tokens", "10B"], ["--tokens", "1B", "--price", "$2.10/gpu/h"]))
    for field in dice.sample(OPEN, dice.choice((0, 1, 1, 2))):
        words += ["--set", field]
    return words


def island(dice: random.Random, name: str) -> dict[str, Any]:
    kind = dice.choice(("H100-SXM5-80GB", "A100-SXM4-80GB", "H200-SXM-141GB"))
    return {
        "name": name,
        "gpus": f"{dice.choice((8, 16, 32))}x{kind}",
        "price": dice.choice(("$1.50/gpu/h", "$2.90/gpu/h")),
    }


def fleet(dice: random.Random) -> dict[str, Any]:
    """A scenario of two or three islands whose plans are open."""
    method = dice.choice(({"method": "diloco", "sync_every": 50}, {"method": "every_step"}, {"method": "streaming_diloco", "sync_every": 100, "num_fragments": 4}, {"method": ["diloco", "local_sgd"], "sync_every": [20, 100]}))  # fmt: skip
    return {
        "model": dice.choice(("gpt2", "llama-3.1-8b", "qwen3-0.6b")),
        "fleet": {
            "islands": [island(dice, name) for name in ("oregon", "iowa", "kent")[: dice.choice((2, 2, 3))]],
            "wan": {"default": {"bandwidth": dice.choice(("1 Gbps", "25 Gbps")), "rtt": "40 ms", "loss": 0, "egress": "$0.02/GB"}},
        },
        "plan": {"sync": method, **dice.choice(({}, {"tp": [1, 2]}, {"pp": 1}))},
        "run": {"seq_len": 1024, "global_batch": 768, "tokens": "5B"},
    }  # fmt: skip


def buildings(dice: random.Random) -> list[str]:
    """A question of several buildings."""
    return [
        "--scale-across", "--model", dice.choice(("llama-3.1-8b", "llama-3.1-70b")), "--gpus", dice.choice(("64xH100-SXM5-80GB", "128xB200-SXM-180GB")),
        "--buildings", "2", "--over", f"distance={dice.choice((10, 400, dice.randint(2, 4000)))}km",
        "--over", f"oversubscription=1,{dice.choice((4, dice.randint(2, 16)))}",
    ]  # fmt: skip


IN_TURN = ["--scale-across", "--model", "llama-3.1-70b", "--gpus", "128xB200-SXM-180GB", "--buildings", "2", "--over", "distance=400km", "--over", "oversubscription=1,4"]  # fmt: skip
"""Pipelines that send in turn over a network whose windows bind: beside other networks their step was one rounding off."""


def again(capsys: Any, folder: Any, scenario: Any) -> Any:
    """What `predict` says of a scenario that was printed."""
    file = folder / "again.json"
    file.write_text(json.dumps(scenario), encoding="utf-8")
    found = asked(capsys, "predict", str(file))
    assert found is not None, "a plan that was printed is refused"
    return found


def compare(found: Any, printed: Any) -> None:
    """The figures of a plan, bit for bit."""
    for name in SAME:
        if name in printed:
            assert found[name] == printed[name], name
    for name in OF_RUN:
        if printed.get(name) is not None:
            assert found["run"][name] == printed[name], name
    if printed.get("memory_peak_gib") is not None:
        assert found["memory"]["peak_gib"] == printed["memory_peak_gib"]
    for name, bounds in printed.get("intervals", {}).items():
        if name in found["intervals"]:
            assert found["intervals"][name] == bounds, f"interval of {name}"


@pytest.mark.parametrize("seed", range(MANY))
def test_a_plan(capsys, tmp_path, seed):
    dice = random.Random(seed)
    found = asked(capsys, "plan", *question(dice), "--top", "12", "--processes", "1")
    for one in found["plans"] if found else ():
        compare(again(capsys, tmp_path, one["scenario"]), one)
    for one in dice.sample(found["plans"], min(2, len(found["plans"]))) if found else ():
        compare(again(capsys, tmp_path, one), one)


@pytest.mark.parametrize("seed", range(max(MANY // 4, 2)))
def test_a_plan_of_several_islands(capsys, tmp_path, seed):
    file = tmp_path / "fleet.json"
    file.write_text(json.dumps(fleet(random.Random(seed))), encoding="utf-8")
    found = asked(capsys, "plan", str(file), "--top", "6", "--processes", "1")
    assert found is not None
    for one in found["plans"]:
        compare(again(capsys, tmp_path, one), one)


@pytest.mark.parametrize("seed", range(max(MANY // 4, 2)))
def test_a_point_of_a_front(capsys, tmp_path, seed):
    file = tmp_path / "fleet.json"
    question = fleet(random.Random(1000 + seed))
    question["fleet"]["islands"] = [
        one | {"gpus": f"16x{one['gpus'].partition('x')[2]}"} for one in question["fleet"]["islands"][:2]
    ]
    question["plan"] |= {"tp": 1, "pp": 1}
    file.write_text(json.dumps(question), encoding="utf-8")
    found = asked(capsys, "front", str(file))
    for one in found["points"] if found else ():
        compare(again(capsys, tmp_path, one["scenario"]), {name: one[name] for name in (*SAME, *OF_RUN) if name in one})


@pytest.mark.parametrize(
    "words", [IN_TURN, *(buildings(random.Random(seed)) for seed in range(max(MANY // 8, 1)))], ids=" ".join
)
def test_a_plan_of_buildings(capsys, tmp_path, words):
    found = asked(capsys, "plan", *words)
    assert found is not None
    for case in found["cases"]:
        for one in case["plans"]:
            assert again(capsys, tmp_path, one["scenario"])["step_time_s"] == one["step_s"]


@pytest.mark.parametrize("seed", range(MANY))
def test_an_export_that_is_read_again_is_the_same_question(capsys, tmp_path, seed):
    """In the format of torchtitan, which says most: the step and the memory of what comes back are those of what was written."""
    dice = random.Random(2000 + seed)
    words = ["--model", dice.choice(MODELS), "--gpus", "16xH100-SXM5-80GB", "--stack", "titan-compile", "--seq", "2048", "--global-batch", "64",
             "--plan", f"fsdp,tp={dice.choice((1, 2))},micro_batch={dice.choice((1, 2))},recompute={dice.choice(('none', 'full', 'selective'))}"]  # fmt: skip
    made = tmp_path / "run"
    if asked(capsys, "export", *words, "--to", "torchtitan", "-o", str(made)) is None or not made.exists():
        return
    (file,) = made.iterdir()
    whole = tmp_path / "back.yaml"
    filled = [word for word in ("--model", words[1]) if asked(capsys, "import", str(file), "--gpus", words[3]) is None]
    assert asked(capsys, "import", str(file), "--gpus", words[3], *filled, "-o", str(whole)) is not None
    one, other = asked(capsys, "predict", *words), asked(capsys, "predict", str(whole))
    for name in SAME:
        assert one[name] == other[name], name
