"""The Python file of an export to torchtitan 0.3: imports, and one function that returns the configuration."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from shardmeter.interop.configs._torchtitan_python import SECTIONS

LOSS = "CrossEntropyLoss.Config(global_vocab_size=decoder_vocab_size(model_spec))"
IMPORTS = {
    "CrossEntropyLoss": "torchtitan.components.loss",
    "default_adamw": "torchtitan.components.optimizer",
    "Float8LinearConverter": "torchtitan.components.quantization",
    "MXFP8LinearConverter": "torchtitan.components.quantization",
    "CompileConfig": "torchtitan.config",
    "ParallelismConfig": "torchtitan.config",
    "TrainingConfig": "torchtitan.config",
    "FullAC": "torchtitan.distributed.activation_checkpoint",
    "SelectiveAC": "torchtitan.distributed.activation_checkpoint",
    "TorchFTCheckpointManager": "torchtitan.experiments.torchft.checkpoint",
    "FaultTolerance": "torchtitan.experiments.torchft.config.job_config",
    "TorchFTOptimizersContainer": "torchtitan.experiments.torchft.optimizer",
    "FaultTolerantTrainer": "torchtitan.experiments.torchft.trainer",
    "HuggingFaceTextDataLoader": "torchtitan.hf_datasets.text_datasets",
    "decoder_vocab_size": "torchtitan.models.common.config_utils",
    "Trainer": "torchtitan.trainer",
}
"""Where each name that may stand in the file comes from."""


def module_text(head: str, values: Mapping[str, Any], *, torchft: bool = False) -> str:
    """The file, its first line `head`; with torchft the trainer, the optimizer and the checkpoints are torchft's."""
    trainer = "FaultTolerantTrainer" if torchft else "Trainer"
    module, flavor = str(values["model_spec"]).split(" ")
    home = f"torchtitan.experiments.torchft.{module}" if torchft else f"torchtitan.models.{module}"
    body = _body(values, flavor, trainer, torchft=torchft)
    imports: dict[str, list[str]] = {home: ["model_registry"]}
    for name, place in IMPORTS.items():
        if any(f"{name}{mark}" in body for mark in "(."):
            imports.setdefault(place, []).append(name)
    lines = [f"from {place} import {', '.join(sorted(names))}" for place, names in sorted(imports.items())]
    return f'"""{head}."""\n\n' + "\n".join(lines) + f"\n\n\n{body}"


def _body(values: Mapping[str, Any], flavor: str, trainer: str, *, torchft: bool) -> str:
    """The function."""
    adamw = "default_adamw(lr=3e-4)"
    parts = [
        "model_spec=model_spec",
        f"loss={LOSS}",
        f'hf_assets_path="{values["hf_assets_path"]}"',
        'dataloader=HuggingFaceTextDataLoader.Config(dataset="c4")',
        f"optimizer=TorchFTOptimizersContainer.Config(param_groups={adamw}.param_groups)"
        if torchft
        else f"optimizer={adamw}",
        *(["checkpoint=TorchFTCheckpointManager.Config()"] if torchft else []),
        f"activation_checkpoint={_policy(values.get('activation_checkpoint'))}",
        *(_section(name, kind, values) for name, kind in SECTIONS.items() if _has(name, values)),
    ]
    lines = "".join(f"        {part},\n" for part in parts)
    return f"def plan() -> {trainer}.Config:\n    model_spec = {_registry(values, flavor)}\n    return {trainer}.Config(\n{lines}    )\n"


def _registry(values: Mapping[str, Any], flavor: str) -> str:
    compiled = values.get("compile.enable", False)
    words = [f'"{flavor}"']
    if "num_mtp_layers" in values:
        words.append(f"num_mtp_layers={values['num_mtp_layers']}")
    if "converters" in values:
        made = [
            text.replace("(", ".Config(", 1).removesuffix(")") + f", model_compile_enabled={compiled})"
            for text in values["converters"]
        ]
        words.append(f"converters=[{', '.join(made)}]".replace("'", '"'))
    return f"model_registry({', '.join(words)})"


def _policy(name: str | None) -> str:
    return "None" if name is None else f"{name}.Config()"


def _has(section: str, values: Mapping[str, Any]) -> bool:
    return any(key.startswith(f"{section}.") for key in values)


def _section(name: str, kind: str, values: Mapping[str, Any]) -> str:
    inside = [(key.partition(".")[2], value) for key, value in values.items() if key.startswith(f"{name}.")]
    lines = "".join(f"            {key}={_literal(value)},\n" for key, value in inside)
    return f"{name}={kind}(\n{lines}        )"


def _literal(value: Any) -> str:
    return f'"{value}"' if isinstance(value, str) else repr(value)
