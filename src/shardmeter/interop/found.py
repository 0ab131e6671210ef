"""The formats of a package: one file each, found by what it has."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Iterable
from types import ModuleType


def found_in(package: str, path: Iterable[str], having: str) -> dict[str, ModuleType]:
    """The modules of a package that have an attribute, each by its `NAME`."""
    every = [importlib.import_module(f"{package}.{entry.name}") for entry in pkgutil.iter_modules(path)]
    return {module.NAME: module for module in every if hasattr(module, having)}
