"""DeepSpeed's JSON, read and written (https://www.deepspeed.ai/docs/config-json, and the parser of 0.19.8).

DeepSpeed takes unknown keys at the top, and in sections that are no models of pydantic, in silence: a mistyped `zero_optimisation` trains
with stage 0. What is read and written here is held to `data/keys/deepspeed-0.19.8.txt`, the keys that its parser asks for.
Leaves out: what a program says in code (the pipeline's module, checkpointed layers, groups of experts), of which the file has at most a part.
"""

from __future__ import annotations

from typing import Any

from shardmeter.interop.configs._deepspeed_read import imported
from shardmeter.interop.configs._deepspeed_write import exported
from shardmeter.interop.configs._trees import flat, mapping, topped
from shardmeter.interop.configs.record import Exported, Imported
from shardmeter.specs import Scenario

NAME = "deepspeed"
TITLE = "DeepSpeed JSON: ZeRO, offloading, automatic tensor and expert parallelism"
VERSIONS = ("0.19.8",)
OWN = (
    "train_batch_size", "train_micro_batch_size_per_gpu", "zero_optimization", "zero_allow_untested_optimizer", "wall_clock_breakdown",
    "activation_checkpointing", "steps_per_print",
)  # fmt: skip
"""Keys of the top that no other file of settings has."""


def recognises(text: str, name: str) -> bool:
    """Whether a text has a key of the top that only DeepSpeed has."""
    found = topped(text, name, OWN)
    return any(key in found for key in OWN)


def settings(text: str, version: str = "") -> dict[str, Any]:  # noqa: ARG001  (one version is known)
    """The settings by their dotted paths."""
    return flat(mapping(text, NAME))


def read(text: str, name: str = NAME, version: str = "") -> Imported:
    """The file as a scenario. Raises BadScenario with everything that is malformed, or contradicts itself."""
    return imported(flat(mapping(text, name)), version or VERSIONS[0])


def write(scenario: Scenario, version: str = "") -> Exported:
    """A scenario as `deepspeed.json`. Raises Inexpressible with every reason."""
    return exported(scenario, version or VERSIONS[0])
