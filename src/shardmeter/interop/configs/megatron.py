"""Megatron-LM: the options of pretrain_gpt.py, read from a script or a line, and written as a script."""

from __future__ import annotations

import re
import shlex
from typing import Any

from shardmeter.core.errors import BadScenario
from shardmeter.core.sums import plain_sum
from shardmeter.interop.configs._reading import SHELL, Reading
from shardmeter.interop.configs._saying import Saying, harmless
from shardmeter.interop.configs.megatron_arguments import FLAG, VERSIONS, arguments, keys, version_like
from shardmeter.interop.configs.megatron_layout import write_plan
from shardmeter.interop.configs.megatron_model import read_model
from shardmeter.interop.configs.megatron_plan import read_plan, read_run, read_stack
from shardmeter.interop.configs.megatron_reasons import reason
from shardmeter.interop.configs.megatron_shape import write_model
from shardmeter.interop.configs.record import Exported, Imported, Setting, Written
from shardmeter.specs import Run, Scenario

__all__ = ["NAME", "TITLE", "VERSIONS", "read", "recognises", "settings", "write"]

NAME, TITLE = "megatron", "Megatron-LM: the options of pretrain_gpt.py"
FILE = "megatron.sh"
_TELLING = (
    "--num-layers", "--hidden-size", "--num-attention-heads", "--seq-length", "--micro-batch-size", "--global-batch-size",
    "--tensor-model-parallel-size", "--pipeline-model-parallel-size", "--use-distributed-optimizer", "pretrain_gpt.py",
)  # fmt: skip
_LEAST = 3


def recognises(text: str, name: str) -> bool:  # noqa: ARG001  (a script may have any name)
    """Whether a text has options of Megatron-LM's own."""
    said = set(re.findall(r"(?<![\w-])(?:--[a-z][a-z-]*|pretrain_gpt\.py)(?![\w-])", text))
    return len(said.intersection(_TELLING)) >= _LEAST


def settings(text: str, version: str = "") -> dict[str, object]:  # noqa: ARG001  (options are written alike in every version)
    """The options of a text by name, as texts."""
    return dict(arguments(text).values)


def read(text: str, name: str, version: str = "") -> Imported:
    """The options of a script as a scenario. Raises BadScenario with every value that cannot be read."""
    found = arguments(text)
    if not found.values:
        raise BadScenario(f"{name}: no options (words that begin with --) after a script or in an array")
    version = version or version_like(found.values)
    reading = Reading(NAME, {**found.launcher, **found.values}, keys(version), SHELL)
    tp = reading.whole("--tensor-model-parallel-size", "plan.tp", 1)
    model = read_model(reading, tp)
    plan = read_plan(reading, found.launcher, model or {}, version)
    summed = plan.pop("summed")
    document: dict[str, Any] = {"plan": plan, "run": read_run(reading), "stack": read_stack(reading, summed)}
    if model is not None:
        document = {"model": model, **document}
    return reading.imported(version, reason, document)


def write(scenario: Scenario, version: str = "") -> Exported:
    """A script that runs one process of the scenario. Raises Inexpressible with every reason."""
    version = version or VERSIONS[0]
    out = Saying(f"Megatron-LM {version}")
    plan, islands = scenario.plan, scenario.fleet.islands
    _islands(scenario, out)
    write_model(scenario.assembled or scenario.model, float(plan.tp), float(scenario.run.seq_len), out)
    write_plan(scenario, plan, float(plan.dp_replicate) * len(islands), version, out)
    _run(scenario.run, float(plan.micro_batch), out)
    _lacking(out, version)
    out.stop()
    return Exported(
        format=NAME,
        version=version,
        files=(Written(name=FILE, text=_script(out, version, scenario), executable=True),),
        launch=f"torchrun --no-python ./{FILE}",
        said=out.settings(),
        unsaid=tuple(out.unsaid),
        notes=(
            f"{FILE} runs one process: it stands beside pretrain_gpt.py, and torchrun starts one for every GPU",
            "data are made up (--mock-data): put --data-path, --tokenizer-type and --tokenizer-model in their place",
            "--lr is a placeholder; checkpoints are not written: add --save, --save-interval",
            "--rotary-base and --norm-epsilon are left out: say your model's",
            "--attention-dropout and --hidden-dropout are left out, and 0.1 then: 0 in most models of today",
        ),
    )


def _islands(scenario: Scenario, out: Saying) -> None:
    """One job runs on one island, or on several that are synchronised after every step and laid out alike."""
    several, plan = len(scenario.fleet.islands), scenario.plan
    if plan.sync.method != "every_step":
        out.refuse(
            "plan.sync",
            f"{plan.sync.method}: gradients are averaged after every step",
            "sync: {method: every_step}, or a torchft export",
        )
    if several == 1:
        return
    if plan.placement:
        out.refuse("plan.placement", "an axis that crosses islands in an order of its own", "islands as replicas")
    if any(one != scenario.plans[0] for one in scenario.plans):
        out.refuse("fleet.islands", f"{several} islands with unlike plans", "islands of one size with one plan")
    out.leave("fleet", f"{several} islands are one job over all their nodes; its ranks must follow the islands")
    for axis in ("dp_shard", "dp_replicate"):
        out.leave(
            f"plan.{axis}",
            f"the script counts the replicas of all {several} islands together: it is read as one island",
        )


def _run(run: Run, micro_batch: float, out: Saying) -> None:
    out.begin("run")
    out.say("--micro-batch-size", micro_batch, "plan.micro_batch")
    out.say("--global-batch-size", run.global_batch, "run.global_batch")
    out.say("--seq-length", run.seq_len, "run.seq_len")
    if run.phases:
        out.refuse("run.phases", f"{len(run.phases)} phases", "one export for each phase")
    if run.reference is not None:
        out.refuse("run.reference", "a frozen model beside the trained one", "reference: left out")
    if run.steps is not None:
        out.say("--train-iters", run.steps, "run.steps")
    elif run.tokens is not None:
        samples = round(float(run.tokens / run.seq_len))
        out.say("--train-samples", samples, "run.tokens / run.seq_len")
        if samples * run.seq_len != run.tokens:
            out.leave("run.tokens", f"{samples * run.seq_len:,.0f} in whole sequences")
    if run.target_loss is not None:
        out.leave("run.target_loss", "a run ends after steps or samples")
    if run.document_len is not None:
        out.leave("run.document_len", "comes of the data; add --reset-position-ids, --reset-attention-mask")
    if run.evaluation is None:
        out.say("--eval-iters", 0, "run.evaluation: none")
    out.begin("yours to fill in")
    out.say("--mock-data", True, "no data yet")
    out.say("--tokenizer-type", "NullTokenizer", "no tokenizer yet")
    out.say("--lr", "3e-4", "a placeholder")


def _lacking(out: Saying, version: str) -> None:
    """Options that the version does not have yet."""
    if version == "core_r0.16" and out.values.get("--optimizer") == "muon":
        out.refuse(
            "plan.optimizer", f"muon: {version} has it without overlapped reductions only", f"--for {VERSIONS[0]}"
        )
    for key in [key for key in out.values if key not in keys(version)]:
        out.refuse(out.means[key].split()[0], f"{version} has no {key}", f"--for {VERSIONS[0]}")


def _script(out: Saying, version: str, scenario: Scenario) -> str:
    plan, gpus = scenario.plan, plain_sum(float(island.gpus) for island in scenario.fleet.islands)
    lines = [
        "#!/usr/bin/env bash",
        f"# {harmless(scenario.model.name)} by Megatron-LM {version} on {gpus:g} GPUs, written by ShardMeter.",
        f"# It runs one process of them: torchrun --no-python ./{FILE}",
    ]
    if plan.sharding in ("zero2", "zero3", "fsdp"):
        lines += [
            "# FSDP gathers behind compute only where more than one connection is there.",
            "unset CUDA_DEVICE_MAX_CONNECTIONS",
        ]
    elif plan.tp > 1 or plan.cp > 1:
        lines += [
            "# Before Blackwell, tensor and context parallelism ask for it.",
            "export CUDA_DEVICE_MAX_CONNECTIONS=1",
        ]
    lines += ["", "ARGUMENTS=("]
    for group, said in out.groups().items():
        lines += [f"  # {group}", *(f"  {_option(one)}" for one in said)]
    return "\n".join([*lines, ")", "", 'exec python -u pretrain_gpt.py "${ARGUMENTS[@]}" "$@"', ""])


def _option(setting: Setting) -> str:
    """An option with its value: one word, or several where it takes several."""
    if setting.value == FLAG:
        return setting.key
    several = setting.key == "--recompute-modules"
    value = setting.value if several else shlex.quote(setting.value)
    return f"{setting.key} {value}"
