"""Asks Megatron-LM's own parser and its validation whether they take the options of a script, and builds the configuration of a
transformer from them. There is no GPU and no Transformer Engine: a Hopper GPU and a new Transformer Engine are pretended."""

from __future__ import annotations

import os
import re
import shlex
import sys
import typing

FORMAT = "megatron"
FOR = "2026-08"
ENVIRONMENT = "torch"
NEEDS = ("torch==2.13.0", "numpy", "triton", "regex", "pyyaml", "pydantic", "six", "requests", "einops")
SOURCES = {"Megatron-LM": ("https://github.com/NVIDIA/Megatron-LM.git", "d98e8a64ddf34856e74b24714e3bedb2f5a39553")}
KEYS = "megatron-2026-08.txt"


def parser() -> str:
    """Which snapshot of Megatron-LM was asked."""
    return "Megatron-LM d98e8a64dd (main of 2026-08-22)"


def _arguments() -> typing.Any:
    """Its module of arguments, on a machine that is no training node."""
    if not hasattr(typing, "override"):  # Python 3.11
        typing.override = lambda method: method  # type: ignore[attr-defined]
    import torch
    from megatron.training import arguments

    torch.cuda.get_device_capability = lambda *_: (9, 0)
    arguments.get_device_arch_version = lambda: 9
    arguments.is_te_min_version = lambda *_, **__: True
    return arguments


def accepts(files: dict[str, str], launch: str) -> None:
    """Raises whatever the parser or its validation raise."""
    arguments = _arguments()
    from megatron.core.transformer import transformer_config
    from megatron.training.argument_utils import core_transformer_config_from_args

    text = files["megatron.sh"]
    assert launch == "torchrun --no-python ./megatron.sh", launch
    listed = re.search(r"^ARGUMENTS=\(\n(.*?)^\)$", text, re.MULTILINE | re.DOTALL)
    gpus = re.search(r" on (\d+) GPUs", text)
    assert listed is not None, text
    assert gpus is not None, text
    os.environ["WORLD_SIZE"] = gpus[1]
    os.environ.pop("CUDA_DEVICE_MAX_CONNECTIONS", None)
    if "\nexport CUDA_DEVICE_MAX_CONNECTIONS=1\n" in text:
        os.environ["CUDA_DEVICE_MAX_CONNECTIONS"] = "1"
    sys.argv = ["pretrain_gpt.py", *shlex.split(listed[1], comments=True)]
    args = arguments.validate_args(arguments.parse_args(), {})
    assert args.global_batch_size % (args.micro_batch_size * args.data_parallel_size) == 0, "global batch"
    transformer_config.is_te_min_version = lambda *_, **__: True
    args.apply_rope_fusion = False  # a kernel of Transformer Engine
    core_transformer_config_from_args(args)
