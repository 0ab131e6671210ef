"""The configuration file of Hugging Face accelerate, read and written: DDP, FSDP, FSDP2 with a mesh (`parallelism_config`), DeepSpeed inside.

Accelerate refuses unknown keys at the top of its file and takes those inside a section in silence: `fsdp_reshard_after_foward: false` trains
with the default. Keys are held to `data/keys/accelerate-1.15.0.txt`: the options of `accelerate launch`, which sections are turned into.
The file says nothing of batches, sequences, the optimizer or the model; a second file says what TrainingArguments can.
Leaves out: SageMaker and TPU pods; of Megatron-LM inside accelerate all but its degrees.
"""

from __future__ import annotations

from typing import Any

from shardmeter.interop.configs._accelerate_read import imported
from shardmeter.interop.configs._accelerate_write import exported
from shardmeter.interop.configs._trees import flat, mapping, topped
from shardmeter.interop.configs.record import Exported, Imported
from shardmeter.specs import Scenario

NAME = "accelerate"
TITLE = "Hugging Face accelerate YAML: DDP, FSDP, FSDP2 with parallelism_config, ZeRO"
VERSIONS = ("1.15.0",)
OWN = ("distributed_type", "compute_environment")
"""Keys that say what is distributed, as only accelerate's file does."""


def recognises(text: str, name: str) -> bool:
    """Whether a text says what is distributed, as only accelerate's file does."""
    found = topped(text, name, OWN)
    return any(key in found for key in OWN)


def settings(text: str, version: str = "") -> dict[str, Any]:  # noqa: ARG001  (one version is known)
    """The settings by their dotted paths."""
    return flat(mapping(text, NAME))


def read(text: str, name: str = NAME, version: str = "") -> Imported:
    """The file as a scenario. Raises BadScenario with everything that is malformed, or contradicts itself."""
    return imported(flat(mapping(text, name)), version or VERSIONS[0])


def write(scenario: Scenario, version: str = "") -> Exported:
    """A scenario as `accelerate.yaml`, and `training_arguments.json` beside it. Raises Inexpressible with every reason."""
    return exported(scenario, version or VERSIONS[0])
