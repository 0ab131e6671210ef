"""Formats of settings, one file each, found by this package. A file has

* `NAME`: the word of `--to` and `--from`; `TITLE`: what it is, one line; `VERSIONS`: those it knows, the usual one first;
* `recognises(text, name) -> bool`: whether a file of that text and name is one of these (reading formats only);
* `read(text, name, version="") -> Imported` and `settings(text, version="") -> dict[str, object]` (reading formats only): the same
  text as a scenario, and as a flat mapping of its keys, for comparisons;
* `write(scenario, version="") -> Exported` (writing formats only). Raises `Inexpressible` with every reason at once where a run of that
  format would be another run than the scenario; what is merely not said in it goes to `unsaid`.

Law: `read(write(s).files[0].text)` is the plan and run of `s`, but for what `unsaid` lists.
"""

from __future__ import annotations

import importlib
import pkgutil
from types import ModuleType

from shardmeter.core.errors import UnknownName


def formats() -> dict[str, ModuleType]:
    """Every format by its name."""
    found = {}
    for entry in pkgutil.iter_modules(__path__):
        module = importlib.import_module(f"{__name__}.{entry.name}")
        if hasattr(module, "NAME"):
            found[module.NAME] = module
    return found


def format_named(name: str, doing: str) -> ModuleType:
    """The format of that name that can do it (`read` or `write`). Raises UnknownName with the nearest ones."""
    able = {key: module for key, module in formats().items() if hasattr(module, doing)}
    if name not in able:
        raise UnknownName("format", name, able)
    return able[name]
