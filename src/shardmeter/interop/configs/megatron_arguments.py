"""Megatron-LM's options as they stand in a script, and which of them a version of it has."""

from __future__ import annotations

import re
from collections.abc import Mapping

from shardmeter.core.record import record
from shardmeter.interop.configs import _trees
from shardmeter.interop.configs.megatron_words import commands

VERSIONS = ("2026-08", "core_r0.18", "core_r0.16")
"""Snapshots whose options are listed in `data/keys`: main of 2026-08-22 (0.20 in the making), and two release branches."""
FLAG = "true"
"""What an option without a value is written as."""


_LAUNCHER = re.compile(
    r"--(nproc[-_]per[-_]node|nnodes|node[-_]rank|master[-_](addr|port)|rdzv[-_]\w+|standalone|max[-_]restarts|log[-_]dir|tee|redirects)"
)
"""Options of torchrun, wherever they stand."""
_HANDED_ON = re.compile(r"\$(?:[@*]|\{[@*][^}]*\})")
"""All that a script itself was given (`"$@"`): no value of the option before it."""


@record
class Arguments:
    """The options of one training command."""

    values: Mapping[str, str]
    """By name, dashes and all; several values are joined by blanks."""
    launcher: Mapping[str, str]
    """Options before the script: those of torchrun."""


def keys(version: str) -> frozenset[str]:
    """The names of the options of a version."""
    return _trees.keys(f"megatron-{version}")


def version_like(names: Mapping[str, str]) -> str:
    """The version that has most of these options; the usual one where several have as many."""
    return max(VERSIONS, key=lambda version: len(keys(version) & names.keys()))


def arguments(text: str) -> Arguments:
    """The options of the command of a script that has most of them; of a text with nothing but arrays, those of all arrays."""
    found, variables = commands(text)
    longest = max(found, key=_options, default=[])
    held = [word for values in variables.values() for value in values for word in value.split()]
    if _options(longest) < _options(held) and not any(_options(one) for one in found):
        longest = held
    longest = [part for word in longest for part in (word.split() if word.startswith("--") else [word])]
    begins = next((at for at, word in enumerate(longest) if word.endswith(".py")), -1)
    said = _paired(longest[begins + 1 :])
    launcher = {name: value for name, value in said.items() if _LAUNCHER.fullmatch(name)}
    values = {name: value for name, value in said.items() if name not in launcher}
    before = {name: value for name, value in _paired(longest[: max(begins, 0)]).items() if name not in values}
    return Arguments(values=values, launcher=before | launcher)


def _options(words: list[str]) -> int:
    return sum(word.startswith("--") for word in words)


def _paired(words: list[str]) -> dict[str, str]:
    """Options with the words that follow each; a later one replaces an earlier one of its name."""
    found: dict[str, list[str]] = {}
    name = ""
    for word in words:
        if re.match(r"--[A-Za-z]", word):
            name, _, value = word.partition("=")
            found[name] = [value] if value else []
        elif name and word != "\\" and not _HANDED_ON.fullmatch(word):
            found[name].append(word)
    return {name: " ".join(values) or FLAG for name, values in found.items()}
