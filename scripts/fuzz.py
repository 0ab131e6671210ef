"""Inputs that are almost right, for everything that reads a user's text: each is answered or refused in a sentence, soon, in bounded memory.

    scripts/fuzz.py                            all targets, 110,000 inputs, some twenty minutes
    scripts/fuzz.py --target units --count 5000 --seed 3

A share of it is among the tests. Targets: units, plan lines, overrides, scenarios (YAML, JSON and TOML files that are mutated examples),
tables (catalogs, prices, measured runs, bars), readers (settings and logs, `fuzz_readers.py`), arguments (whole command lines, in this
process). The same seed gives the same inputs. A fault is whatever is no answer and no ShardMeterError, an exit code of no meaning, a
traceback, a refusal that computes for more than 2 s, an answer of more than a minute, and a figure that is not finite.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import itertools
import json
import math
import os
import random
import re
import resource
import shlex
import signal
import sys
import tempfile
import time
import traceback
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import click
from ruamel.yaml import YAML

import fuzz_readers
import shardmeter
from fuzz_readers import LOAD, NASTY, mutated
from parsers_checks import ROOT
from shardmeter.cli import cli
from shardmeter.cli import main as command
from shardmeter.core.errors import BadQuantity, ShardMeterError
from shardmeter.core.quantity import _UNITS, EXAMPLES, quantity, show
from shardmeter.scenario.catalog import load_catalog
from shardmeter.scenario.grammar import NAMES, parse_plan

REFUSED, ANSWERED = 2.0, 60.0
"""Seconds that a refusal may compute, and an answer."""
STUCK = 1800.0
"""Seconds after which what waits for something is given up."""
MEMORY = 4 * 2**30
"""Bytes of address space that a whole run may take."""
CODES = frozenset({0, 1, 2, 74})
SHARES = {"units": 40_000, "plans": 15_000, "overrides": 10_000, "scenarios": 12_000, "tables": 5_000, "readers": 22_000, "arguments": 6_000}  # fmt: skip
"""Inputs of a whole run, by target."""
EXAMPLE = ROOT / "examples"
GPUS = (
    "8xH100-SXM5-80GB",
    "16xH100-SXM5-80GB",
    "1xA100-SXM4-80GB",
    "0xH100-SXM5-80GB",
    "8xH100",
    "9xH100-SXM5-80GB",
    "-8xB200",
    "64xTPU-v5p",
)
UNITS = ("", "%", "k", "M", "B", "T", "G", "s", "ms", "us", "µs", "min", "h", "d", "months", "y", "B", "GB", "GiB", "Gb", "Gbit", "Gbps", "GBps", "GB/s", "Gbit/s",
         "FLOP/s", "TFLOPS", "W", "kW", "/gpu/h", "/node/h", "/h", "/GB", "/kWh", "/GB/month", "g/kWh", "km", "m", "tokens", "sequences", "steps", "gb", "GBPS", "USD")  # fmt: skip
NUMBERS = ("0", "1", "8", "-1", "1.5", ".5", "5.", "1e3", "1e-9", "1e308", "1e309", "1e9999", "1_000", "1,000", "1,00", "1,5", "0x10", "١٢", "8 8", "+4", "--4", "nan", "inf", "∞", "½")  # fmt: skip


class Fault(NamedTuple):
    """An input that was neither answered nor refused as it should be."""

    target: str
    given: str
    why: str


class TooLongError(BaseException):
    """No answer in time. No Exception: nothing that is tried may swallow it."""


def units(dice: random.Random) -> tuple[str, Callable[[], object]]:
    """A quantity of any dimension."""
    dimension = dice.choice(list(EXAMPLES))
    units_ = dice.choice((UNITS, tuple(_UNITS.get(dimension, UNITS))))
    sign, gap = dice.choice(("", "", "", "$", "€", "-", "+", "~")), dice.choice(("", " ", "  ", "\t", "/"))
    made = f"{sign}{dice.choice(NUMBERS)}{gap}{dice.choice(units_)}"
    text = made if dice.random() < 0.6 else mutated(dice, dice.choice(EXAMPLES[dimension].split(" or ")))

    def read() -> None:
        value = quantity(text, dimension, ("tokens",) if dice.random() < 0.2 else ())
        _finite(value)
        for unit in ("s", "B", "B/s", ""):
            show(value, unit)

    return f"{dimension}: {text!r}", read


KEYS = ("tp", "pp", "cp", "ep", "etp", "dp_shard", "dp_replicate", "micro_batch", "schedule", "virtual_stages", "recompute", "precision", "optimizer",
        "reshard", "sequence_parallel", "rank_order", "placement", "sync", "sync_every", "H", "τ", "trainable", "offload", "bits", "tpp", "", "sharding")  # fmt: skip
VALUES = ("1", "2", "8", "64", "3", "auto", "any", "full", "selective", "every-2", "[mlp]", "[", "]", "(", "lora(r=16)", "lora(r=", "1f1b", "zb-v", "bf16", "fp8", "adamw", "true", "no",
          "ring", "diloco", "[tp,cp]", "{pp: [a, b]}", "1..8", "1..8:x2", "1,2,4")  # fmt: skip


def plans(dice: random.Random) -> tuple[str, Callable[[], object]]:
    """A plan in one line, read alone and as part of a scenario."""
    text = ",".join(
        [
            dice.choice((*NAMES, *NAMES, "fsdp2", "", "zero4")),
            *(
                f"{dice.choice(KEYS)}{dice.choice('===: ')}{dice.choice((*VALUES, *NASTY))}"
                for _ in range(dice.choice((0, 1, 1, 2, 3, 9)))
            ),
        ]
    )
    text = mutated(dice, text) if dice.random() < 0.3 else text

    def read() -> None:
        with contextlib.suppress(ShardMeterError):
            parse_plan(text)
        shardmeter.load(None, options=LOAD | {"plan": text})

    return repr(text), read


@cache
def documents() -> dict[str, dict[str, Any]]:
    """The examples, by name."""
    return {
        path.stem: YAML(typ="safe").load(path.read_text(encoding="utf-8")) for path in sorted(EXAMPLE.glob("*.yaml"))
    }


def _paths(value: Any, at: str = "") -> Iterator[tuple[str, Any]]:
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in items:
        here = f"{at}.{key}" if at else str(key)
        yield here, inner
        yield from _paths(inner, here)


@cache
def paths() -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Every field that an example says, and every value as it is typed."""
    found = [one for document in documents().values() for one in _paths(document)]
    values = [json.dumps(value, default=str) if isinstance(value, dict | list) else str(value) for _, value in found]
    return tuple(dict.fromkeys(path for path, _ in found)), tuple(dict.fromkeys(values))


@cache
def fitting() -> dict[str, tuple[str, ...]]:
    """Values of the examples by the last word of their field."""
    found: dict[str, list[str]] = {}
    for path, value in (one for document in documents().values() for one in _paths(document)):
        if not isinstance(value, dict | list):
            found.setdefault(path.rpartition(".")[2], []).append(str(value))
    return {name: tuple(dict.fromkeys(values)) for name, values in found.items()}


def overrides(dice: random.Random) -> tuple[str, Callable[[], object]]:
    """Fields of examples set to values of others, to nasty ones and to nothing."""
    fields, values = paths()
    name = dice.choice(list(documents()))
    own, made = [path for path, _ in _paths(documents()[name])], []
    for _ in range(dice.choice((1, 1, 2, 4))):
        path = dice.choice(own if dice.random() < 0.8 else fields)
        fit = fitting().get(path.rpartition(".")[2], values)
        value = dice.choice(dice.choice((fit, fit, values, (*NASTY, *NUMBERS, *VALUES))))
        path = mutated(dice, path) if dice.random() < 0.1 else path
        made.append(f"{path}{dice.choice(('=', '=', '=', '==', ''))}{value}")
    return f"{name}: {made!r}", lambda: _answered(EXAMPLE / f"{name}.yaml", made, dice.random() < 0.2)


def scenarios(dice: random.Random) -> tuple[str, Callable[[], object]]:
    """An example with a few things wrong, as YAML, JSON or TOML."""
    name = dice.choice(list(documents()))
    text = (EXAMPLE / f"{name}.yaml").read_text(encoding="utf-8")
    suffix = dice.choice((".yaml", ".yaml", ".json", ".toml"))
    if suffix != ".yaml":
        data = documents()[name]
        text = json.dumps(data, indent=1, default=str) if suffix == ".json" else _toml(data)
    text = mutated(dice, text)

    def read() -> None:
        path = Path(f"scenario{suffix}")
        path.write_text(text, encoding="utf-8", errors="surrogatepass")
        _answered(path, (), dice.random() < 0.3)

    return f"{suffix} {text!r}", read


def _toml(data: dict[str, Any]) -> str:
    """One line a key, tables inline. Leaves out: nothing that the examples have."""
    return "".join(f"{json.dumps(str(key))} = {_inline(value)}\n" for key, value in data.items())


def _inline(value: Any) -> str:
    if isinstance(value, dict):
        return "{" + ", ".join(f"{json.dumps(str(key))} = {_inline(inner)}" for key, inner in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(_inline, value)) + "]"
    return json.dumps(value, default=str)


def _answered(source: Path, changes: Sequence[str], predicts: bool) -> None:
    """Load a scenario; predict it too where it is small or that is asked."""
    scenario = shardmeter.load(source, overrides=list(changes), catalog=load_catalog())
    if predicts and scenario.plan.pp <= 16 and len(scenario.fleet.islands) <= 8:
        json.dumps(shardmeter.predict(scenario).to_dict(), allow_nan=False)


@cache
def _tables() -> dict[str, str]:
    """Texts of tables, by what they are."""
    data = ROOT / "src" / "shardmeter" / "data"
    made = {
        path.name: _rows(path.read_text(encoding="utf-8"), 4)
        for path in sorted(data.glob("*.csv"))
        if path.stem in {"accelerators", "fabrics", "instances", "models", "stacks"}
    }
    measured = {
        f"measured/{path.name}": _rows(path.read_text(encoding="utf-8"), 3)
        for path in sorted((data / "measured").glob("*.csv"))
    }
    templates = {
        f"template/{name}": (EXAMPLE / name).read_text(encoding="utf-8")
        for name in ("measured-template.csv", "runs-template.csv")
    }
    prices = "provider,accelerator,accelerators,region,price,spot,date\nx,H100-SXM5-80GB,8,eu,$2.10/gpu/h,$1/gpu/h,2026-01-02\n"
    runs = "step_time,plan.tp,run.seq_len\n3.2 s,1,4096\n2.9 s,2,4096\n"
    return (
        made
        | measured
        | templates
        | {"prices.csv": prices, "runs.csv": runs, "bars.yaml": "metrics.step_time.mape: {max: 100}\n"}
    )


def _rows(text: str, most: int) -> str:
    return "".join(text.splitlines(keepends=True)[: most + 1])


def tables(dice: random.Random) -> tuple[str, Callable[[], object]]:
    """A table with a few things wrong, given to what reads such tables."""
    kind = dice.choice(list(_tables()))
    text = mutated(dice, _cell(dice, _tables()[kind]) if dice.random() < 0.5 else _tables()[kind])

    def read() -> None:
        path = Path(kind.replace("/", "-"))
        path.write_text(text, encoding="utf-8", errors="surrogatepass")
        try:
            _read_table(kind, path)
        finally:
            path.unlink()

    return f"{kind}: {text!r}", read


def _cell(dice: random.Random, text: str) -> str:
    lines = text.split("\n")
    at = dice.randrange(len(lines))
    cells = lines[at].split(",")
    cells[dice.randrange(len(cells))] = dice.choice((*NASTY, *NUMBERS))
    return "\n".join([*lines[:at], ",".join(cells), *lines[at + 1 :]])


def _read_table(kind: str, path: Path) -> None:
    if kind == "prices.csv":
        shardmeter.load(None, options=LOAD | {"prices": str(path)})
    elif kind == "runs.csv":
        from shardmeter.interop.runs_table import runs_table

        runs_table(path, lambda more: shardmeter.load(None, options=LOAD, overrides=list(more)))
    elif kind == "bars.yaml":
        shardmeter.validate(EXAMPLE / "runs-template.csv", bars=path)
    elif "/" in kind:
        shardmeter.validate(path)
    else:
        folder = Path("catalog")
        folder.mkdir(exist_ok=True)
        path.rename(folder / kind)
        try:
            load_catalog((folder,))
        finally:
            (folder / kind).rename(path)


LONG = {"measure": ("--from", "none.json"), "validate": (str(EXAMPLE / "runs-template.csv"),)}
"""What keeps a command from its long work."""
NAMED = {
    "run.yaml": EXAMPLE / "llama-8b-64xh100.yaml", "islands.yaml": EXAMPLE / "intellect-1.yaml", "a.yaml": EXAMPLE / "unreliable-diloco.yaml",
    "b.yaml": EXAMPLE / "unreliable-every-step.yaml", "two-nodes.yaml": EXAMPLE / "llama-8b-64xh100.yaml", "train.log": EXAMPLE / "logs" / "torchtitan.log",
    "llama3_8b.toml": EXAMPLE / "trainers" / "torchtitan-8b.toml", "mine.toml": EXAMPLE / "trainers" / "torchtitan-8b.toml",
}  # fmt: skip
"""Files that the examples of commands name."""
UNTRIED = frozenset({"ui", "lab"})
"""Commands that do not end by themselves, or start others."""


@cache
def _shown() -> tuple[tuple[str, ...], ...]:
    """The command lines that the commands give as examples, without those that are long work."""
    lines = [
        line
        for name, one in cli.commands.items()
        if name not in {*UNTRIED, *LONG, "plan", "front"}
        for line in (one.epilog or "").split("\n")
    ]
    typed = (
        shlex.split(line)
        for line in lines
        if line.startswith("  shardmeter ") and "&&" not in line and not line.endswith("\\")
    )
    return tuple(tuple(word.replace("examples/", f"{EXAMPLE}/") for word in words[1:]) for words in typed)


def _typed(dice: random.Random) -> list[str]:
    """An example of a command with a word or two wrong, or none."""
    words = list(dice.choice(_shown()))
    for _ in range(dice.choice((0, 0, 1, 1, 2))):
        at = dice.randrange(1, len(words)) if len(words) > 1 else 0
        word = words[at]
        words[at : at + 1] = dice.choice(
            ((), (word, word), (mutated(dice, word),), (mutated(dice, word),), (word, dice.choice((*NASTY, *NUMBERS))))
        )
        words = words or ["predict"]
    return words


def arguments(dice: random.Random) -> tuple[str, Callable[[], object]]:
    """A command line: an example of one with a few things wrong; or a command, some of its own options, values that fit and values that
    do not."""
    words = _typed(dice) if dice.random() < 0.5 else _made(dice)
    words = [word.replace("\0", "").encode("utf-8", "replace").decode() for word in words]
    return repr(words), lambda: _run(words)


def _made(dice: random.Random) -> list[str]:
    name = dice.choice([one for one in cli.commands if one not in UNTRIED])
    words = [name, *LONG.get(name, ())]
    if name in LONG or dice.random() < 0.2:
        pass
    elif dice.random() < 0.6:
        words += ["--model", dice.choice(("gpt2", "llama-3.1-8b", "lama")), "--gpus", dice.choice(GPUS)]
    else:
        words.append(
            str(EXAMPLE / dice.choice(("llama-8b-64xh100.yaml", "does-not-fit.yaml", "intellect-1.yaml", "none.yaml")))
        )
    tried: Any = cli.commands[name]
    for inner in range(3):
        if not isinstance(tried, click.Group) or inner == 2 or dice.random() < 0.1:
            break
        word = dice.choice(list(tried.commands))
        words.insert(1 + inner, word)
        tried = tried.commands[word]
    options = [one for one in tried.params if isinstance(one, click.Option)]
    for _ in range(dice.choice((0, 1, 2, 3))):
        option = dice.choice(options) if options else None
        if option is not None and option.name != "processes":
            words += [dice.choice(option.opts), *([] if option.is_flag else [_value(dice, option)])]
    if dice.random() < 0.15:
        words.insert(dice.randrange(len(words) + 1), dice.choice((*NASTY, "--", "-h", "--no-such")))
    return words


def _value(dice: random.Random, option: click.Option) -> str:
    if isinstance(option.type, click.Choice) and dice.random() < 0.8:
        return str(dice.choice(list(option.type.choices)))
    if option.name in {"overrides", "over"}:
        fields, values = paths()
        return f"{dice.choice(fields)}={dice.choice((*values, *VALUES, *NASTY))}"
    examples = re.findall(r"'([^']+)'", option.help or "")
    drawn: str = dice.choice(
        (*NASTY, *VALUES, *NUMBERS, *itertools.islice(paths()[1], 40), *examples * 6, "out.yaml", "out.svg", "out", ".")
    )
    return drawn


def _run(words: Sequence[str]) -> None:
    """Run a command line here. Raises AssertionError for an end that no user should see."""
    out, said = io.StringIO(), io.StringIO()
    before, level = sys.stdout, sys.stderr
    sys.stdout, sys.stderr = out, said
    try:
        code = command(words)
    finally:
        sys.stdout, sys.stderr = before, level
    told = said.getvalue()
    assert code in CODES, f"exit code {code}: {told[-500:]}"  # noqa: S101  (reported as a fault)
    assert "Traceback" not in told + out.getvalue(), told[-500:]  # noqa: S101
    assert code != 2 or told.strip(), "refused without a word"  # noqa: S101
    if code == 2:
        raise ShardMeterError(told)


def readers(dice: random.Random) -> tuple[str, Callable[[], object]]:
    """A file of settings or a log, for a reader."""
    ways = fuzz_readers.readers()
    name = dice.choice(list(ways))
    own = fuzz_readers.seeds()[name] if dice.random() < fuzz_readers.OWN else ()
    text = mutated(dice, dice.choice(own or fuzz_readers.every()))
    return f"{name}: {text!r}", lambda: ways[name](text)


TARGETS: dict[str, Callable[[random.Random], tuple[str, Callable[[], object]]]] = {
    "units": units, "plans": plans, "overrides": overrides, "scenarios": scenarios, "tables": tables, "readers": readers, "arguments": arguments,
}  # fmt: skip


def faults(target: str, count: int, seed: int = 0, ends: Counter[str] | None = None) -> Iterator[Fault]:
    """What goes wrong with so many inputs of a target, in a folder of their own; `ends` counts how they end."""
    dice = random.Random(f"{target} {seed}")  # noqa: S311 — nothing secret
    ends = Counter() if ends is None else ends
    shardmeter.predict(**LOAD)  # what is read and imported once
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder), warnings.catch_warnings():
        warnings.simplefilter("error")
        for name, path in NAMED.items():
            Path(name).write_bytes(path.read_bytes())
        for _ in range(count):
            given, do = TARGETS[target](dice)
            began = time.process_time()
            end = _tried(do)
            seconds = time.process_time() - began
            if end == "refused" and seconds > REFUSED:
                end = f"refused after {seconds:.1f} s"
            ends[end if end in {"answered", "refused"} else "fault"] += 1
            if end not in {"answered", "refused"}:
                yield Fault(target, given, end)


def _tried(do: Callable[[], object]) -> str:
    """How an input ends: answered, refused, or what else came out."""
    before = [(number, signal.signal(number, _late)) for number in (signal.SIGALRM, signal.SIGPROF)]
    signal.setitimer(signal.ITIMER_PROF, ANSWERED)
    signal.setitimer(signal.ITIMER_REAL, STUCK)
    try:
        do()
    except (ShardMeterError, BadQuantity) as error:
        return "refused" if str(error).strip() else "refused without a word"
    except TooLongError:
        return f"no end within {ANSWERED:.0f} s of work or {STUCK:.0f} s\n{traceback.format_exc()}"
    except Exception:  # noqa: BLE001 — whatever else comes out is what is looked for
        return traceback.format_exc()
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0.0)
        signal.setitimer(signal.ITIMER_REAL, 0.0)
        for number, handler in before:
            signal.signal(number, handler)
    return "answered"


def _late(*_: object) -> None:
    raise TooLongError


def _finite(value: float) -> None:
    if not math.isfinite(value):
        raise ValueError(f"{value} came out")


def main() -> None:
    """Try the inputs; print the first fault of every kind and end with 1 if there is one."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--target", choices=TARGETS, action="append")
    options.add_argument("--count", type=int, help="of each target; left out, its share of a whole run")
    options.add_argument("--seed", type=int, default=0)
    asked = options.parse_args()
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    os.environ["COLUMNS"] = "100"
    kinds: Counter[str] = Counter()
    for target in asked.target or TARGETS:
        count, began, ends = asked.count or SHARES[target], time.monotonic(), Counter[str]()
        for fault in faults(target, count, asked.seed, ends):
            kind = f"{target}: {fault.why.strip().splitlines()[-1][:160]} {[line for line in fault.why.splitlines() if 'src/shardmeter' in line][-1:]}"
            kinds[kind] += 1
            if kinds[kind] == 1:
                print(f"--- {target}\n{fault.given[:2000]}\n{fault.why}", file=sys.stderr)
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024.0
        print(
            f"{target}: {count:,} inputs, {dict(ends)}, {time.monotonic() - began:.0f} s, peak {peak:.0f} MiB",
            flush=True,
        )
    for kind, times in kinds.most_common():
        print(f"{times:6} x {kind}")
    sys.exit(bool(kinds))


if __name__ == "__main__":
    main()
