"""Fields of Hugging Face's TrainingArguments, alone or beside a program's own (JSON or YAML: `HfArgumentParser`, TRL, LLaMA-Factory, axolotl).

`fsdp_config` is read as accelerate's section of that name, an inline `deepspeed` as DeepSpeed's JSON, whose `auto` these fields fill in.
Leaves out: flags on a command line; a mesh that the program makes (`parallelism_config` is no field of a file).
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any

from shardmeter.core.record import changed
from shardmeter.interop.configs import _deepspeed_read
from shardmeter.interop.configs._accelerate_read import STRATEGIES, policy, read_fsdp
from shardmeter.interop.configs._reading import TREE, Reading, by_pattern
from shardmeter.interop.configs._trees import flat, keys, mapping, topped
from shardmeter.interop.configs.record import Imported

NAME = "transformers"
TITLE = "Hugging Face TrainingArguments, JSON or YAML, with what TRL, LLaMA-Factory and axolotl put beside"
VERSIONS = ("5.24.0",)
OWN = ("per_device_train_batch_size", "num_train_epochs", "gradient_checkpointing", "max_steps")
MICRO = ("per_device_train_batch_size", "micro_batch_size")
LENGTH = ("max_seq_length", "max_length", "block_size", "cutoff_len", "sequence_len", "model_max_length")
"""The length of sequences, as programs call it."""
MODEL = ("model_name_or_path", "base_model", "model_name", "model_id")
RANK = ("lora_rank", "lora_r", "peft_lora_r")
IDLE = {
    "num_train_epochs": "how many samples there are is not known: say --tokens",
    "fsdp_config.*": "it is about how weights are wrapped, loaded and saved",
    "learning_rate": "a learning rate changes no step time",
    "torch_compile*": "say --stack titan-compile or titan-eager",
}  # fmt: skip
BESIDE = "no field of TrainingArguments: the program's own"


def recognises(text: str, name: str) -> bool:
    """Whether a text has fields of TrainingArguments at its top, or axolotl's in their place."""
    found = topped(text, name, (*OWN, *MICRO))
    axolotl = "base_model" in found and "micro_batch_size" in found
    return (any(key in found for key in OWN) or axolotl) and "distributed_type" not in found


def settings(text: str, version: str = "") -> dict[str, Any]:  # noqa: ARG001  (one version is known)
    """The settings by their dotted paths."""
    return flat(mapping(text, NAME))


def read(text: str, name: str = NAME, version: str = "") -> Imported:
    """The fields as a scenario. Raises BadScenario with everything that is malformed."""
    tree = mapping(text, name)
    inner = tree.pop("deepspeed", None)
    given = flat(tree) | ({} if inner is None or isinstance(inner, Mapping) else {"deepspeed": inner})
    found = Reading(NAME, given, _known(), TREE)
    plan: dict[str, Any] = {}
    document: dict[str, Any] = {"plan": plan, "stack": _deepspeed_read.STACK}
    found.assume(
        f"stack {_deepspeed_read.STACK}: none is fitted on transformers; `shardmeter calibrate` fits one on a log of yours"
    )
    _read_program(found, plan, document)
    _read_sharding(found, plan, is_inline=isinstance(inner, Mapping))
    _read_batch(found, plan, document)
    _read_optimizer(found, plan)
    if isinstance(inner, Mapping):
        return _with_deepspeed(
            found, document, _deepspeed_read.imported(_filled(inner, plan), ""), version or VERSIONS[0]
        )
    return found.imported(version or VERSIONS[0], by_pattern(IDLE), document, beside=BESIDE)


def _read_program(found: Reading, plan: dict[str, Any], document: dict[str, Any]) -> None:
    """Model, lengths and adapters, which programs say beside."""
    run: dict[str, Any] = {}
    for key in LENGTH:
        length = found.whole(key)
        if length:
            run.setdefault("seq_len", length)
        found.means(f"run.seq_len = {run.get('seq_len')}", key)
    steps = found.whole("max_steps", least=-1)
    if steps and steps > 0:
        run["steps"] = steps
    found.means(f"run.steps = {steps}" if steps and steps > 0 else "as many as the epochs have", "max_steps")
    if run:
        document["run"] = run
    for key in MODEL:
        found.ignore(key, f"say --model: a catalog name, or the folder of {found.said.get(key)!s:.60}")
    rank = next((key for key in RANK if key in found.said), RANK[0])
    is_lora = "lora" in (str(found.said.get(key)).lower() for key in ("finetuning_type", "adapter")) or found.flag(
        "use_peft"
    )
    if is_lora:
        plan["trainable"] = f"lora(r={found.whole(rank) or 8})"
        for key in (rank, "finetuning_type", "adapter", "use_peft"):
            found.means(f"plan.trainable = {plan['trainable']}", key)


def _read_sharding(found: Reading, plan: dict[str, Any], *, is_inline: bool) -> None:
    """FSDP by its words and its section, or replicas; formats and what is recomputed."""
    words = _words(found)
    named = next((word for word in words if word in STRATEGIES), "")
    wrapped = bool(words) and words != ["false"]
    if wrapped:
        elsewhere = any(key.endswith("sharding_strategy") for key in found.said)
        read_fsdp(found, plan, "" if elsewhere else named)
        found.means(f"plan.sharding = {plan['sharding']}, plan.reshard = {str(plan['reshard']).lower()}", "fsdp")
        if "offload" in words:
            plan["offload"] = ["optimizer", "parameters"]
    elif not is_inline:
        plan |= {"sharding": "ddp", "recompute": "none", "offload": "none"}
        found.assume(
            "plan.sharding ddp: neither fsdp nor deepspeed is said here; what launches the program may say more"
        )
    again = found.flag("gradient_checkpointing") or found.flag("activation_checkpointing")
    plan["recompute"] = "full" if again or plan.get("recompute") == "full" else "none"
    for key in ("gradient_checkpointing", "activation_checkpointing"):
        found.means(f"plan.recompute = {plan['recompute']}", key)
    found.ignore("deepspeed", "its settings are in that file: read it by itself, and lay both together")
    dtypes = [key for key in ("bf16", "fp16") if found.flag(key)]
    if len(dtypes) > 1:
        found.refuse("bf16", "bf16 and fp16 are both true", "keep one", "TrainingArguments refuse both at once")
    base = dtypes[0] if dtypes else "fp32"
    plan["precision"] = "tf32" if base == "fp32" and found.flag("tf32") else base
    for key in ("bf16", "fp16", "tf32"):
        found.means(f"plan.precision = {plan['precision']}", key)
    policy(found, plan, base, wrapped)


def _words(found: Reading) -> list[str]:
    """What `fsdp` says: a flag, words in a text, or a list of them."""
    given = found.said.get("fsdp")
    listed = given if isinstance(given, list) else str(given or "").split()
    words = [str(one).lower() for one in listed]
    known = (*STRATEGIES, "offload", "auto_wrap", "true", "false")
    strange = [word for word in words if word not in known]
    if strange:
        found.refuse("fsdp", f"{', '.join(strange)[:60]} is no word of it", f"of {', '.join(known)}")
        return []
    return words


def _read_batch(found: Reading, plan: dict[str, Any], document: dict[str, Any]) -> None:
    """Micro-batches, and how many are added up: the number of replicas is the launcher's."""
    key = next((one for one in MICRO if one in found.said), MICRO[0])
    micro = found.whole(key) or 8
    if not found.has(key):
        found.assume("plan.micro_batch 8: TrainingArguments' where per_device_train_batch_size is left out")
    plan["micro_batch"] = micro
    found.means(f"plan.micro_batch = {micro}", key)
    found.adds_up("gradient_accumulation_steps", found.whole("gradient_accumulation_steps") or 1)
    length = "" if document.get("run", {}).get("seq_len") else ", --seq"
    found.assume(f"the file tells no accelerators: say --gpus; nor a model that is certain: --model{length}")


def _read_optimizer(found: Reading, plan: dict[str, Any]) -> None:
    """The optimizer by what it keeps."""
    key = "optim" if "optim" in found.said else "optimizer"
    name = str(found.said.get(key, "adamw_torch_fused")).lower()
    eight = "8bit" in name or "int8" in name
    kinds = (
        ("adafactor", "adafactor"),
        ("muon", "muon"),
        ("adam", "adamw8bit" if eight else "adamw"),
        ("lion", "sgd"),
        ("sgd", "sgd"),
    )
    plan["optimizer"] = next((ours for word, ours in kinds if word in name), "adamw")
    if key not in found.said:
        found.assume("plan.optimizer adamw: TrainingArguments' where optim is left out")
    found.means(f"plan.optimizer = {plan['optimizer']}, by the moments that it keeps", key)


def _filled(inner: Mapping[str, Any], plan: Mapping[str, Any]) -> dict[str, Any]:
    """DeepSpeed's settings with what the Trainer puts where they say `auto`."""
    own = {
        "train_micro_batch_size_per_gpu": plan["micro_batch"],
        "bf16.enabled": plan["precision"] == "bf16",
        "fp16.enabled": plan["precision"] == "fp16",
    }
    given = flat(inner)
    return {key: own[key] if key in own and str(value).lower() == "auto" else value for key, value in given.items()}


def _with_deepspeed(found: Reading, document: dict[str, Any], inner: Imported, version: str) -> Imported:
    """Both reports as one: DeepSpeed's plan, and what the Trainer says of recomputation, the optimizer and batches."""
    outer = found.imported(version, by_pattern(IDLE), document, beside=BESIDE)
    plan = document["plan"] | inner.document["plan"]
    if document["plan"]["recompute"] == "full":
        plan["recompute"] = "full"
    if "optimizer.type" not in {one.key for one in inner.understood}:
        plan["optimizer"] = document["plan"]["optimizer"]
    run = {**inner.document.get("run", {}), **document.get("run", {})}
    both: dict[str, Any] = {
        kind: (*getattr(outer, kind), *(changed(one, key=f"deepspeed.{one.key}") for one in getattr(inner, kind)))
        for kind in ("understood", "ignored", "unknown")
    }
    said = [one for one in outer.assumed if not one.startswith(("plan.reduce_dtype", "plan.precision", "stack"))]
    more = [one for one in inner.assumed if not one.startswith(("plan.recompute", "plan.optimizer", "the file"))]
    joined = {**document, "plan": plan, "stack": inner.document["stack"]} | ({"run": run} if run else {})
    return changed(outer, document=joined, assumed=(*said, *more), **both)


@cache
def _known() -> frozenset[str]:
    """Fields of TrainingArguments, what stands below those that are mappings, and accelerate's section of FSDP."""
    fields = keys("training-arguments-5.24.0")
    below = [f"{one}.*" for one in fields if one.endswith(("_kwargs", "_config")) and one != "fsdp_config"]
    return fields.union(below, (one for one in keys("accelerate-1.15.0") if one.startswith("fsdp_config.")))
