"""torchft in torchtitan 0.2: torchtitan's parser reads it."""

from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import ModuleType

FORMAT = "torchft"
FOR = "0.2.2"
ENVIRONMENT = "torch"
NEEDS = ("torch==2.13.0", "torchtitan==0.3.0", "triton==3.9.0")
ALONE = ("torchtitan==0.2.2",)
KEYS = "torchtitan-0.2.2.txt"


def trainer(name: str = "torchtitan_0_2.py") -> ModuleType:
    """The check of the trainer that torchft is part of."""
    loader = SourceFileLoader(f"check_of_{name.removesuffix('.py')}", str(Path(__file__).with_name(name)))
    module = ModuleType(loader.name)
    loader.exec_module(module)
    return module


def parser() -> str:
    """Its version."""
    return str(trainer().parser())


def accepts(files: dict[str, str], launch: str) -> None:
    """As torchtitan's."""
    trainer().accepts(files, launch)
