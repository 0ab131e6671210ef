"""nanotron: its YAML, read and written."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from importlib.resources import files
from typing import Any

from shardmeter.core.errors import BadScenario
from shardmeter.interop.configs._account import Account
from shardmeter.interop.configs._saying import Saying
from shardmeter.interop.configs.nanotron_lines import FILE, write_settings, yaml_of
from shardmeter.interop.configs.nanotron_words import (
    ATTENTION,
    DTYPES,
    ENGINES,
    OPTIMIZERS,
    RECIPE,
    SHARDINGS,
    STACK,
    TP_MODES,
)
from shardmeter.interop.configs.record import Exported, Imported, Written
from shardmeter.scenario.yaml_reader import read_yaml
from shardmeter.specs import Scenario

__all__ = ["NAME", "TITLE", "VERSIONS", "read", "recognises", "settings", "write"]

NAME, TITLE = "nanotron", "nanotron: its YAML"
VERSIONS = ("2026-04",)
"""Main of 2026-04-07, which calls itself 0.4."""
_TELLING = ("parallelism", "tokens", "model_config", "zero_stage", "batch_accumulation_per_replica", "pp_engine")
_REASONS = {
    "data_stages": "data: no figure depends on which",
    "tokenizer": "data: no figure depends on which",
    "general": "a name, or a seed",
    "logging": "what it logs",
    "metrics_logging": "what it logs",
    "profiler": "what it logs",
    "lighteval": "evaluation: say run.evaluation",
    "checkpoints": "checkpoints: say run.checkpoint",
    "s3_upload": "checkpoints: say run.checkpoint",
    "optimizer": "how it learns, not how fast it runs",
    "model": "a number of the model that costs no time of its own, or of the stack's kernels",
}


def recognises(text: str, name: str) -> bool:
    """Whether a text has nanotron's own sections and settings."""
    return not name.endswith((".json", ".toml", ".sh", ".py")) and sum(f"{word}:" in text for word in _TELLING) >= 4


@functools.cache
def keys(version: str) -> frozenset[str]:
    """Dotted names of the settings of a version."""
    text = files("shardmeter").joinpath("data", "keys", f"nanotron-{version}.txt").read_text("utf-8")
    return frozenset(text.split())


def settings(text: str, version: str = "", name: str = NAME) -> dict[str, object]:  # noqa: ARG001  (one version)
    """The settings of a text by dotted name, as texts; those that say null are not there."""
    data, _ = read_yaml(text, name)
    if not isinstance(data, dict):
        raise BadScenario(f"{name}: holds no mapping at the top; it has at least general, model, parallelism, tokens")
    return dict(_flat(data))


def _flat(value: Any, path: str = "") -> Iterator[tuple[str, str]]:
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from _flat(inner, f"{path}.{key}" if path else str(key))
    elif isinstance(value, list) and any(isinstance(one, dict | list) for one in value):
        for inner in value:
            yield from _flat(inner, path)
    elif isinstance(value, list):
        yield path, " ".join(map(str, value))
    elif value is not None:
        yield path, str(value).lower() if isinstance(value, bool) else str(value)


def read(text: str, name: str, version: str = "") -> Imported:
    """The settings as a scenario. Raises BadScenario with every value that cannot be read."""
    version, values = version or VERSIONS[0], {key: str(value) for key, value in settings(text, name=name).items()}
    account = Account(values, name)
    plan, run = _plan(account), _run(account)
    passes = account.whole("tokens.batch_accumulation_per_replica", "run.global_batch / (dp · micro_batch)", 1) or 1
    if plan.get("micro_batch"):
        run["global_batch"] = passes * plan["micro_batch"] * plan["dp_shard"]
    model = _model(account)
    kept = "fp32" if plan["reduce_dtype"] == "fp32" else "bf16"
    account.assumed.append(f"stack {STACK}: its fitted numbers")
    document: dict[str, Any] = {"plan": plan, "run": run, "stack": {"base": STACK, "gradient_dtype": kept}}
    known = keys(version)
    unknown = account.left(
        known.__contains__, known, lambda key: _REASONS.get(key.split(".")[0], "no figure here depends on it")
    )
    account.stop()
    return Imported(
        format=NAME,
        version=version,
        document=document if model is None else {"model": model, **document},
        understood=tuple(account.understood),
        assumed=tuple(account.assumed),
        ignored=tuple(account.ignored),
        unknown=unknown,
    )


def _plan(account: Account) -> dict[str, Any]:
    at = "parallelism."
    sequence = account.word(f"{at}tp_mode", TP_MODES, "plan.sequence_parallel", "false") == "true"
    chunks = account.truth(f"{at}tp_linear_async_communication", "plan.async_tp")
    whole = account.truth(f"{at}recompute_layer", "plan.recompute", "full", "none")
    tp = account.whole(f"{at}tp", "plan.tp", 1) or 1
    cp = account.whole(f"{at}context_parallel_size", "plan.cp", 1) or 1
    kind = account.word("model.model_config._attn_implementation", ATTENTION, "plan.cp_kind", "ring")
    precision = account.word("model.dtype", DTYPES, "plan.precision", "bf16")
    summed = account.truth("optimizer.accumulate_grad_in_fp32", "plan.reduce_dtype", "fp32", "as the model")
    found: dict[str, Any] = {
        "tp": tp,
        "pp": account.whole(f"{at}pp", "plan.pp", 1),
        "cp": cp,
        "dp_shard": account.whole(f"{at}dp", "plan.dp_shard", 1),
        "dp_replicate": 1,
        "sharding": account.word("optimizer.zero_stage", SHARDINGS, "plan.sharding", "ddp"),
        "schedule": account.word(f"{at}pp_engine", ENGINES, "plan.schedule", "gpipe"),
        "virtual_stages": 1,
        "recompute": "full" if whole else "none",
        "precision": precision,
        "gather_dtype": precision,
        "reduce_dtype": "fp32" if summed else precision,
        "master_dtype": "fp32" if summed else precision,
        "optimizer": account.word("optimizer.optimizer_factory.name", OPTIMIZERS, "plan.optimizer", "adamw"),
        "cp_kind": kind if cp > 1 else None,
        "offload": "none",
        "micro_batch": account.whole("tokens.micro_batch_size", "plan.micro_batch"),
    }
    if account.values.get(f"{at}expert_parallel_size", "1") != "1":
        found["ep"] = account.whole(f"{at}expert_parallel_size", "plan.ep", 1)
    if tp > 1 or sequence:
        found["sequence_parallel"] = sequence
    if tp > 1:
        found["async_tp"] = chunks and sequence
    return {name: value for name, value in found.items() if value is not None}


def _run(account: Account) -> dict[str, Any]:
    run = {"seq_len": account.whole("tokens.sequence_length", "run.seq_len")}
    run["steps"] = account.whole("tokens.train_steps", "run.steps")
    return {name: value for name, value in run.items() if value is not None}


def _model(account: Account) -> dict[str, Any] | None:
    """The fields of an inline decoder: a Llama or a Qwen 2; None where the file does not tell them."""
    at = "model.model_config."
    recipe = {field: account.whole(at + key, f"model.{field}") for field, key in RECIPE.items()}
    hidden, heads = recipe["hidden"], recipe["heads"]
    if hidden is None or heads is None or any(recipe[name] is None for name in ("layers", "ffn", "vocab")):
        account.assumed.append("model: the file does not tell its shape; say --model")
        return None
    recipe["kv_heads"] = recipe["kv_heads"] or heads
    found: dict[str, Any] = {"name": "nanotron-model", "family": "decoder", **recipe, "head_dim": hidden // heads}
    found["tied"] = account.truth(f"{at}tie_word_embeddings", "model.tied")
    found["attention_bias"] = account.truth(f"{at}attention_bias", "model.attention_bias")
    window = account.whole(f"{at}sliding_window_size", "model.window")
    if window:
        found |= {"window": window, "mixers": "w"}
    experts = account.whole(f"{at}moe_config.num_experts", "model.experts")
    if experts:
        found |= {"experts": experts, "top_k": account.whole(f"{at}moe_config.top_k", "model.top_k", 2)}
        found["moe_ffn"] = account.whole(f"{at}moe_config.moe_intermediate_size", "model.moe_ffn", 1408)
        if account.truth(f"{at}moe_config.enable_shared_expert", "model.shared_ffn", "some", "none"):
            found["shared_ffn"] = account.whole(
                f"{at}moe_config.shared_expert_intermediate_size", "model.shared_ffn", 5632
            )
    return {name: value for name, value in found.items() if value is not None}


def write(scenario: Scenario, version: str = "") -> Exported:
    """The YAML of a scenario. Raises Inexpressible with every reason."""
    out = Saying("nanotron")
    write_settings(scenario, out)
    out.stop()
    return Exported(
        format=NAME,
        version=version or VERSIONS[0],
        files=(Written(name=FILE, text=yaml_of(out, scenario)),),
        launch=f"torchrun run_train.py --config-file {FILE}",
        said=out.settings(),
        unsaid=tuple(out.unsaid),
        notes=(
            "run_train.py is nanotron's own; the launch needs CUDA_DEVICE_MAX_CONNECTIONS=1",
            "data are made up (dataset: null): say data_stages and tokenizer; the learning rate is a placeholder",
        ),
    )
