"""The shipped examples: scenarios that can be opened by name."""

from __future__ import annotations

from functools import lru_cache
from importlib import resources
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING

from shardmeter.core.errors import UnknownName

if TYPE_CHECKING:
    from collections.abc import Mapping

SUFFIX = ".yaml"


def example(name: str) -> str:
    """The text of an example. Raises UnknownName."""
    texts = examples()
    if name not in texts:
        raise UnknownName("example", name, texts)
    return texts[name]


@lru_cache(maxsize=1)
def examples() -> Mapping[str, str]:
    """Every example by its name: those of the installed package, or of the source tree that runs."""
    shipped = resources.files("shardmeter.ui").joinpath("examples")
    folder = shipped if shipped.is_dir() else Path(__file__).parents[3] / "examples"
    if not folder.is_dir():
        return MappingProxyType({})
    found = {file.name.removesuffix(SUFFIX): file for file in folder.iterdir() if file.name.endswith(SUFFIX)}
    return MappingProxyType({name: found[name].read_text(encoding="utf-8") for name in sorted(found)})


def line(text: str) -> str:
    """What an example is, in a line: the sentence that its file begins with."""
    lines = [one.lstrip("# ").strip() for one in text.splitlines() if one.startswith("#")]
    return next((one for one in lines if one and not one.startswith("shardmeter ")), "")
