"""Texts that are almost files of settings and logs, for every reader there is: each is read, or refused with a ShardMeterError.

`scripts/fuzz_readers.py --count 20000` takes some minutes; a seeded share of it is among the tests. What it begins with: the files of
tests/samples/, and what the exporters write of the plans that the parsers are shown.
"""

from __future__ import annotations

import argparse
import functools
import importlib
import itertools
import pkgutil
import random
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from types import ModuleType

import shardmeter
from parsers_checks import ROOT, plans
from shardmeter.core.errors import ShardMeterError
from shardmeter.interop import configs, logs
from shardmeter.interop.configs.record import Imported, Inexpressible

SAMPLES = ROOT / "tests" / "samples"
NASTY = (
    "nan", "inf", "-inf", "1e999", "-1", "0", "0.5", "1e-320", "9" * 40, "true", "null", "~", "", " ", "[]", "{}", "[[[[", "}}}", '"', "'", "`", "\\",
    "\x00", "\x1b[31m", "\r", "\n", "\t", "\ud800", "\ufeff", "\u202e", "１２", "é", "$HOME", "${X:-4}", "$((", "%s", "{0}", "a.b.c", "=", "==", ":", "::", ",", "--", "---",
    "...", "&a [*a]", "*a", "!!python/object:os.system", "<<: {}", "0x10", "0o7", "1_000", "1,000", "1e5", "4k", "8 GB", "NaN%", "2024-13-45 99:99:99", "auto", "none",
)  # fmt: skip
LOAD = {"model": "llama-3.1-8b", "gpus": "8xH100-SXM5-80GB"}
"""What fills an imported document that does not tell it."""
OWN = 0.9
"""Share of the texts that begin as what their reader reads."""
PLANS = 8
"""Exports of a format that texts begin as."""
LONGEST = 20_000
"""Characters of a text that is tried."""


def readers() -> dict[str, Callable[[str], object]]:
    """Every reader by its name."""
    return {
        **{f"configs/{one.NAME}": functools.partial(_read_settings, one) for one in _with(configs, "read")},
        **{f"logs/{one.NAME}": functools.partial(_read_log, one.NAME) for one in _with(logs, "reading")},
        **{f"logs/{one.NAME}": functools.partial(_read_output, one) for one in _with(logs, "read", "recognises")},
    }


def _with(package: ModuleType, *doing: str) -> Iterator[ModuleType]:
    """The formats of a package that can do all of these."""
    for entry in pkgutil.iter_modules(package.__path__):
        module = importlib.import_module(f"{package.__name__}.{entry.name}")
        if all(hasattr(module, one) for one in ("NAME", *doing)):
            yield module


def _read_settings(module: ModuleType, text: str) -> object:
    """What a format makes of a text; settings on to the scenario that they are."""
    if hasattr(module, "recognises"):
        module.recognises(text, "sample")
    if hasattr(module, "settings"):
        _or_refused(lambda: module.settings(text))
    read = module.read(text, "sample")
    if isinstance(read, Imported):
        document = dict(read.document)
        shardmeter.load(document, options={key: value for key, value in LOAD.items() if _lacks(document, key)})
    return read


def _lacks(document: dict[str, object], option: str) -> bool:
    return option not in document and not (option == "gpus" and "fleet" in document)


def _or_refused(do: Callable[[], object]) -> None:
    try:
        do()
    except ShardMeterError:
        return


def _read_log(name: str, text: str) -> object:
    return logs.read(f"{text}\n", name).to_dict()


def _read_output(module: ModuleType, text: str) -> object:
    module.recognises(text)
    return module.read(text)


@functools.cache
def seeds() -> dict[str, tuple[str, ...]]:
    """What is mutated, by the reader that reads it."""
    found: dict[str, list[str]] = {name: [] for name in readers()}
    for path in sorted(path for path in SAMPLES.rglob("*") if path.is_file()):
        text = path.read_text(encoding="utf-8")[:LONGEST]
        for name in _read_by(text, path.name):
            found[name].append(text)
    for module in configs.formats().values():
        if hasattr(module, "write") and hasattr(module, "read"):
            made = (file.text for scenario in plans().values() for file in _exported(module, scenario))
            found[f"configs/{module.NAME}"] += itertools.islice(made, PLANS)
    return {name: tuple(texts) for name, texts in found.items()}


def _read_by(text: str, name: str) -> Iterator[str]:
    """The readers that take a text for theirs."""
    yield from (f"logs/{one}" for one in logs.recognised(text))
    yield from (f"logs/{one.NAME}" for one in _with(logs, "read", "recognises") if one.recognises(text))
    yield from (f"configs/{one.NAME}" for one in _with(configs, "read", "recognises") if one.recognises(text, name))


@functools.cache
def every() -> tuple[str, ...]:
    """Every text that is mutated."""
    return tuple(text for texts in seeds().values() for text in texts)


def _exported(module: ModuleType, scenario: shardmeter.Scenario) -> tuple[configs.record.Written, ...]:
    try:
        files: tuple[configs.record.Written, ...] = module.write(scenario).files
    except Inexpressible:
        return ()
    return files[:1]


def mutated(dice: random.Random, text: str) -> str:
    """A text with a few things wrong."""
    for _ in range(dice.choice((1, 1, 1, 2, 3, 8))):
        text = dice.choice(MUTATIONS)(dice, text)
    return text[:LONGEST]


def _cut(dice: random.Random, text: str) -> str:
    return text[: dice.randrange(len(text) + 1)]


def _inserted(dice: random.Random, text: str) -> str:
    at = dice.randrange(len(text) + 1)
    return text[:at] + dice.choice(NASTY) + text[at:]


def _replaced(dice: random.Random, text: str) -> str:
    """One word, or one number, by something nasty."""
    words = text.split(" ")
    words[dice.randrange(len(words))] = dice.choice(NASTY)
    return " ".join(words)


def _revalued(dice: random.Random, text: str) -> str:
    """What stands behind one colon or equals sign by something nasty."""
    sign = dice.choice((": ", "=", " = ", "--"))
    head, found, tail = text.partition(sign) if dice.random() < 0.5 else text.rpartition(sign)
    rest = tail.partition("\n")[2]
    return f"{head}{found}{dice.choice(NASTY)}\n{rest}"


def _of_lines(dice: random.Random, text: str) -> str:
    """One line away, twice, elsewhere, or of another file."""
    lines = text.split("\n")
    at, other = dice.randrange(len(lines)), dice.choice(every()).split("\n")
    line = lines.pop(at)
    lines[at:at] = dice.choice(((), (line, line), (dice.choice(other),), (line[: len(line) // 2],), (line, "")))
    if dice.random() < 0.2:
        dice.shuffle(lines)
    return "\n".join(lines)


def _swapped(dice: random.Random, text: str) -> str:
    """One character by another one of the text."""
    if not text:
        return text
    at = dice.randrange(len(text))
    return text[:at] + dice.choice(text) + text[at + 1 :]


MUTATIONS = (_cut, _inserted, _replaced, _revalued, _revalued, _of_lines, _of_lines, _swapped, _swapped)


def failures(count: int, seed: int = 0) -> Iterator[tuple[str, str, str]]:
    """(reader, text, traceback) of every text, of so many, that a reader neither reads nor refuses."""
    dice = random.Random(seed)  # noqa: S311 — nothing secret
    ways = readers()
    for number in range(count):
        name = list(ways)[number % len(ways)]
        own = seeds()[name] if dice.random() < OWN else ()
        text = mutated(dice, dice.choice(own or every()))
        try:
            ways[name](text)
        except ShardMeterError:
            continue
        except Exception:  # noqa: BLE001 — whatever else comes out is what is looked for
            yield name, text, traceback.format_exc()


def main() -> None:
    """Try so many texts; print the first fault of every kind and end with 1 if there is one."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--count", type=int, default=20_000)
    options.add_argument("--seed", type=int, default=0)
    asked = options.parse_args()
    began, kinds = time.monotonic(), dict[str, int]()
    for name, text, trace in failures(asked.count, asked.seed):
        kind = f"{name}: {trace.splitlines()[-1]} {[line for line in trace.splitlines() if 'shardmeter' in line][-1:]}"
        kinds[kind] = kinds.get(kind, 0) + 1
        if kinds[kind] == 1:
            print(f"--- {name}\n{text[:2000]!r}\n{trace}", file=sys.stderr)
    for kind, times in sorted(kinds.items(), key=lambda one: -one[1]):
        print(f"{times:6} x {kind}")
    print(
        f"{asked.count} texts, {len(readers())} readers, {sum(kinds.values())} faults, {time.monotonic() - began:.0f} s"
    )
    sys.exit(bool(kinds))


if __name__ == "__main__":
    main()
