"""Writes `data/keys/accelerate-VERSION.txt` and `training-arguments-VERSION.txt`: the settings of the installed Hugging Face accelerate's
configuration file, and the fields of transformers' TrainingArguments. Run with the Python that has both.

Accelerate refuses unknown keys at the top of the file and takes those below in silence: they are options of `accelerate launch`.
"""

from __future__ import annotations

import dataclasses
import datetime as dt
from pathlib import Path

import accelerate
import transformers
from accelerate.commands.config.config_args import ClusterConfig
from accelerate.commands.launch import launch_command_parser

TARGET = Path(__file__).parents[1] / "src/shardmeter/data/keys"
OLDER = ("fp16", "dynamo_backend")
"""Keys of the top that it still turns into others."""
SECTIONS = {
    "fsdp_config": "FSDP Arguments",
    "deepspeed_config": "DeepSpeed Arguments",
    "megatron_lm_config": "Megatron-LM Arguments",
    "fp8_config": "FP8 Arguments",
    "mpirun_config": "MPI Arguments",
    "parallelism_config": "ParallelismConfig Arguments",
    "dynamo_config": "Resource Selection Arguments",
}  # fmt: skip
PREFIXED = {"fsdp_config": "fsdp_", "fp8_config": "fp8_", "dynamo_config": "dynamo_"}
"""Sections whose keys may leave the beginning of their option out."""


def found() -> set[str]:
    """Every path of the configuration file."""
    paths = {field.name for field in dataclasses.fields(ClusterConfig)} | set(OLDER)
    groups = {group.title: group for group in launch_command_parser()._action_groups}  # noqa: SLF001  (argparse tells them nowhere else)
    for section, title in SECTIONS.items():
        options = {action.dest for action in groups[title]._group_actions}  # noqa: SLF001
        prefix = PREFIXED.get(section, "")
        options = {one for one in options if one.startswith(prefix)}
        paths |= {f"{section}.{one}" for one in options}
        paths |= {f"{section}.{one.removeprefix(prefix)}" for one in options if prefix}
    return paths


def write(name: str, version: str, what: str, paths: set[str]) -> None:
    """One file, sorted."""
    TARGET.mkdir(exist_ok=True)
    head = f"# {what} {version}; written by scripts/keys_of_accelerate.py, {dt.datetime.now(tz=dt.UTC).date()}"
    (TARGET / f"{name}-{version}.txt").write_text("\n".join([head, *sorted(paths)]) + "\n", encoding="utf-8")


def main() -> None:
    """Write both files."""
    write("accelerate", accelerate.__version__, "settings of accelerate", found())
    fields = {field.name for field in dataclasses.fields(transformers.TrainingArguments) if field.init}
    write("training-arguments", transformers.__version__, "fields of TrainingArguments of transformers", fields)


if __name__ == "__main__":
    main()
