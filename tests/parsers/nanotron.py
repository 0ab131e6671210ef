"""Asks nanotron's own reader of its YAML (dacite, strict) whether it takes a file. Of the packages that only its training loop needs,
empty ones are put in their place."""

from __future__ import annotations

import importlib.machinery
import sys
import types
from pathlib import Path
from typing import Any

FORMAT = "nanotron"
FOR = "2026-04"
ENVIRONMENT = "torch"
NEEDS = ("torch==2.13.0", "dacite", "safetensors", "numpy", "pyyaml", "triton", "einops")
SOURCES = {"nanotron": ("https://github.com/huggingface/nanotron.git", "2411b022a75fb7f7561a1bb4166706da5e1b76de")}
KEYS = "nanotron-2026-04.txt"
EMPTY = ("datasets", "transformers", "flash_attn", "datatrove", "torchtyping", "tqdm")


def parser() -> str:
    """Which snapshot of nanotron was asked."""
    return "nanotron 2411b022a7 (main of 2026-04-07)"


class _Empty(types.ModuleType):
    """A package in which every name is a class without anything in it."""

    __path__: list[str] = []  # noqa: RUF012  (of a module)
    __version__ = "9.9.9"

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return type(name, (), {})


class _Finder:
    """Finds the empty packages."""

    def find_spec(self, name: str, path: object = None, target: object = None) -> Any:
        if name.partition(".")[0] in EMPTY:
            return importlib.machinery.ModuleSpec(name, self, is_package=True)  # type: ignore[arg-type]
        return None

    def create_module(self, spec: Any) -> types.ModuleType:
        return _Empty(spec.name)

    def exec_module(self, module: types.ModuleType) -> None:
        """There is nothing in it."""


def _configuration() -> Any:
    """Its module of configurations, which is read with the empty packages and then stands alone."""
    finder: Any = _Finder()
    sys.path += [f"{folder}/src" for folder in sys.path if Path(folder, "src", "nanotron").is_dir()]
    before = {name: sys.modules.pop(name) for name in list(sys.modules) if name.partition(".")[0] in EMPTY}
    sys.meta_path.insert(0, finder)
    try:
        from nanotron.config import config
    finally:
        sys.meta_path.remove(finder)
        for name in [name for name in sys.modules if name.partition(".")[0] in EMPTY]:
            del sys.modules[name]
        sys.modules.update(before)
    return config


def accepts(files: dict[str, str], launch: str) -> None:
    """Raises whatever the reader raises."""
    import yaml

    assert launch == "torchrun run_train.py --config-file nanotron.yaml", launch
    text = files["nanotron.yaml"]
    made = _configuration().get_config_from_dict(yaml.safe_load(text))
    degrees = made.parallelism
    gpus = degrees.tp * degrees.pp * degrees.dp * degrees.context_parallel_size
    assert f" on {gpus} GPUs," in text, gpus
