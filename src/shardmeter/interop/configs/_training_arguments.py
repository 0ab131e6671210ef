"""Fields of transformers' TrainingArguments that say what a launcher's file does not: batches, recomputation, the optimizer, steps."""

from __future__ import annotations

import json
from typing import Any

from shardmeter.interop.configs._saying import count
from shardmeter.interop.configs._writing import steps_of
from shardmeter.interop.configs.record import Written
from shardmeter.specs import Scenario

FILE = "training_arguments.json"
OPTIMIZERS = {"adamw": "adamw_torch", "adamw8bit": "adamw_bnb_8bit", "adafactor": "adafactor", "sgd": "sgd"}
"""By the words of `optim`."""


def arguments(scenario: Scenario, *, checkpoints: bool) -> dict[str, Any]:
    """The fields. `checkpoints`: whether the launcher's file already says that layers run again."""
    plan, run = scenario.plan, scenario.run
    found: dict[str, Any] = {
        "output_dir": "output",
        "per_device_train_batch_size": count(plan.micro_batch),
        "gradient_accumulation_steps": steps_of(scenario),
    }
    steps = run.steps if run.tokens is None else run.tokens / (run.global_batch * run.seq_len)
    if steps is not None:
        found["max_steps"] = max(1, count(steps))
    if plan.precision in ("bf16", "fp16"):
        found[plan.precision] = True
    if plan.precision == "tf32":
        found["tf32"] = True
    if plan.optimizer in OPTIMIZERS:
        found["optim"] = OPTIMIZERS[plan.optimizer]
    if plan.recompute == "full" and not checkpoints:
        found["gradient_checkpointing"] = True
    return found


def file(scenario: Scenario, *, checkpoints: bool) -> Written:
    """The file that HfArgumentParser.parse_json_file reads."""
    return Written(name=FILE, text=json.dumps(arguments(scenario, checkpoints=checkpoints), indent=2) + "\n")
