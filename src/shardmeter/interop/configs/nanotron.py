"""nanotron: its YAML, read and written."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from shardmeter.core.errors import BadScenario
from shardmeter.interop.configs import _trees
from shardmeter.interop.configs._reading import SHELL, YES, Reading
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


def keys(version: str) -> frozenset[str]:
    """Dotted names of the settings of a version."""
    return _trees.keys(f"nanotron-{version}")


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
    reading = Reading(NAME, values, keys(version), SHELL)
    plan, run = _plan(reading), _run(reading)
    passes = reading.whole("tokens.batch_accumulation_per_replica", "run.global_batch / (dp · micro_batch)", 1)
    if plan.get("micro_batch"):
        run["global_batch"] = passes * plan["micro_batch"] * plan["dp_shard"]
    model = _model(reading)
    kept = "fp32" if plan["reduce_dtype"] == "fp32" else "bf16"
    reading.assume(f"stack {STACK}: its fitted numbers")
    document: dict[str, Any] = {"plan": plan, "run": run, "stack": {"base": STACK, "gradient_dtype": kept}}
    document = document if model is None else {"model": model, **document}
    return reading.imported(
        version, lambda key: _REASONS.get(key.split(".")[0], "no figure here depends on it"), document
    )


def _plan(reading: Reading) -> dict[str, Any]:
    at = "parallelism."
    sequence = reading.word(f"{at}tp_mode", TP_MODES, "plan.sequence_parallel", "false") == "true"
    chunks = _truth(reading, f"{at}tp_linear_async_communication", "plan.async_tp")
    whole = _truth(reading, f"{at}recompute_layer", "plan.recompute", "full", "none")
    tp = reading.whole(f"{at}tp", "plan.tp", 1)
    cp = reading.whole(f"{at}context_parallel_size", "plan.cp", 1)
    kind = reading.word("model.model_config._attn_implementation", ATTENTION, "plan.cp_kind", "ring")
    precision = reading.word("model.dtype", DTYPES, "plan.precision", "bf16")
    summed = _truth(reading, "optimizer.accumulate_grad_in_fp32", "plan.reduce_dtype", "fp32", "as the model")
    found: dict[str, Any] = {
        "tp": tp,
        "pp": reading.whole(f"{at}pp", "plan.pp", 1),
        "cp": cp,
        "dp_shard": reading.whole(f"{at}dp", "plan.dp_shard", 1),
        "dp_replicate": 1,
        "sharding": reading.word("optimizer.zero_stage", SHARDINGS, "plan.sharding", "ddp"),
        "schedule": reading.word(f"{at}pp_engine", ENGINES, "plan.schedule", "gpipe"),
        "virtual_stages": 1,
        "recompute": "full" if whole else "none",
        "precision": precision,
        "gather_dtype": precision,
        "reduce_dtype": "fp32" if summed else precision,
        "master_dtype": "fp32" if summed else precision,
        "optimizer": reading.word("optimizer.optimizer_factory.name", OPTIMIZERS, "plan.optimizer", "adamw"),
        "cp_kind": kind if cp > 1 else None,
        "offload": "none",
        "micro_batch": reading.whole("tokens.micro_batch_size", "plan.micro_batch"),
    }
    if reading.said.get(f"{at}expert_parallel_size", "1") != "1":
        found["ep"] = reading.whole(f"{at}expert_parallel_size", "plan.ep", 1)
    if tp > 1 or sequence:
        found["sequence_parallel"] = sequence
    if tp > 1:
        found["async_tp"] = chunks and sequence
    return {name: value for name, value in found.items() if value is not None}


def _truth(reading: Reading, key: str, field: str, yes: str = "true", no: str = "false") -> bool:
    """A setting that is true or false, and which of two values of a field of ours it says; false where it is not said."""
    is_true = str(reading.value(key)).strip().lower() in YES
    reading.means(f"{field} = {yes if is_true else no}", key)
    return is_true


def _run(reading: Reading) -> dict[str, Any]:
    run = {"seq_len": reading.whole("tokens.sequence_length", "run.seq_len")}
    run["steps"] = reading.whole("tokens.train_steps", "run.steps")
    return {name: value for name, value in run.items() if value is not None}


def _model(reading: Reading) -> dict[str, Any] | None:
    """The fields of an inline decoder: a Llama or a Qwen 2; None where the file does not tell them."""
    at = "model.model_config."
    recipe = {field: reading.whole(at + key, f"model.{field}") for field, key in RECIPE.items()}
    hidden, heads = recipe["hidden"], recipe["heads"]
    if hidden is None or heads is None or any(recipe[name] is None for name in ("layers", "ffn", "vocab")):
        reading.assume("model: the file does not tell its shape; say --model")
        return None
    recipe["kv_heads"] = recipe["kv_heads"] or heads
    found: dict[str, Any] = {"name": "nanotron-model", "family": "decoder", **recipe, "head_dim": hidden // heads}
    found["tied"] = _truth(reading, f"{at}tie_word_embeddings", "model.tied")
    found["attention_bias"] = _truth(reading, f"{at}attention_bias", "model.attention_bias")
    window = reading.whole(f"{at}sliding_window_size", "model.window")
    if window:
        found |= {"window": window, "mixers": "w"}
    experts = reading.whole(f"{at}moe_config.num_experts", "model.experts")
    if experts:
        found |= {"experts": experts, "top_k": reading.whole(f"{at}moe_config.top_k", "model.top_k", 2)}
        found["moe_ffn"] = reading.whole(f"{at}moe_config.moe_intermediate_size", "model.moe_ffn", 1408)
        if _truth(reading, f"{at}moe_config.enable_shared_expert", "model.shared_ffn", "some", "none"):
            found["shared_ffn"] = reading.whole(
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
