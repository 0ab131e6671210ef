"""One worked number for every formula: a call that was made while a command answered, with the arguments that it had then.

Commands are tried in the order of `COMMANDS`; the first call with the smallest arrays (plain numbers, mostly) that is no 0 and no 1 is kept. What no command calls is
called with the arguments of `BESIDE`, and what they are taken from is said.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import io
import math
import pkgutil
import shlex
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import shardmeter
from shardmeter.cli import main as shell
from shardmeter.core.formula import REGISTRY, Step, trace

ROOT = Path(__file__).parent.parent
BUILDINGS = "predict examples/two-buildings-hsdp.yaml --set"
CLOUDS = "predict examples/three-clouds-money.yaml --set"
COMMANDS = (
    "predict examples/llama-8b-64xh100.yaml",
    "predict examples/two-buildings-hsdp.yaml",
    "predict examples/home-workers.yaml",
    "predict examples/three-clouds-70b.yaml",
    "predict examples/three-clouds-money.yaml",
    "predict examples/target-loss.yaml",
    "predict examples/llama-8b-64xh100.yaml --set 'run.failures={mtbf: 50000 h, per: gpu}'",
    "predict examples/llama-8b-64xh100.yaml --set stack.jitter=0.02",
    "predict examples/unreliable-every-step.yaml",
    "predict examples/unreliable-diloco.yaml",
    "predict examples/scale-across.yaml",
    "predict examples/soma-256.yaml",
    "audit --model llama-3.1-8b --gpus 64xH100-SXM5-80GB --claim mfu=52%",
    "infer examples/three-clouds-70b.yaml",
    "infer examples/soma-256.yaml --how soma",
    "infer --model mixtral-8x7b --gpus 8xH100-SXM5-80GB --how local",
    "predict --model llama-3.1-8b --gpus '64xTPU v5p' --plan fsdp",
    "predict --model mixtral-8x7b --gpus '64xTPU v5p' --plan fsdp,ep=8",
    "predict --model deepseek-v3 --gpus 1024xH100-SXM5-80GB --plan fsdp,ep=64,pp=4 --stack megatron-core",
    "predict --model gpt2-xl --gpus 8xV100-SXM2-16GB --stack mlm-2021",
    "predict examples/llama-8b-64xh100.yaml --set fleet.islands.0.accelerator.host_ahead=false",
    ("predict examples/llama-8b-64xh100.yaml --set plan.offload=optimizer"
    " --set 'fleet.islands.0.accelerator.host_memory_bandwidth=300 GB/s'"),
    (f"{BUILDINGS} 'fleet.wan.default={{preset: nccl-default, oversubscription: 4, balance: ecmp, flows: 2, distance: 100 km, "
    "buffer: 64 kB}'"),
    (f"{BUILDINGS} 'fleet.wan.default={{oversubscription: 4, balance: spray, planes: 8, distance: 100 km, transport: selective, "
    "loss: 0.0001, streams: 64, window: 4 MiB}'"),
    f"{BUILDINGS} 'fleet.wan.default={{oversubscription: 4, balance: spray, distance: 100 km, transport: coded, loss: 0.0001}}'",
    f"{BUILDINGS} 'fleet.wan.default={{oversubscription: 4, distance: 100 km, transport: lossless, buffer: 64 MiB}}'",
    f"{BUILDINGS} 'fleet.wan.default={{oversubscription: 2, distance: 100 km, balance: spray, planes: 1}}'",
    f"{BUILDINGS} 'fleet.wan={{backend: gloo, default: {{bandwidth: 1 Gbps, rtt: 20 ms, streams: 1, mtu: 9 kB}}}}'",
    (f"{BUILDINGS} 'plan.placement={{pp: [north, south]}}' --set"
    " 'fleet.wan.default={preset: nccl-default, oversubscription: 4, distance: 100 km}'"),
    "predict examples/three-clouds-70b.yaml --set fleet.wan.backend=gloo --set 'plan.sync={method: noloco}'",
    "predict examples/home-workers.yaml --set plan.sync.topology=tree",
    "predict examples/home-workers.yaml --set plan.sync.topology=sharded_star",
    "predict examples/unreliable-diloco.yaml --set plan.sync.method=decoupled_diloco",
    "predict examples/soma-256.yaml --set 'plan.sync={method: eggroll, perturbations: 512}'",
    "predict examples/target-loss.yaml --set run.critical_batch=kaplan-2020",
    (f"{CLOUDS} fleet.islands.virginia.reserved=null"
    " --set 'fleet.islands.virginia.owned={power_price: $0.08/kWh, value: \"$30,000\", life: 1460 d}'"),
)  # fmt: skip
"""What is asked, as behind `shardmeter`."""

ENDLESS = 1e60
"""What stands for no end: no quantity is as large."""


@dataclass(frozen=True, slots=True)
class Worked:
    """A call of a formula that was really made, and where."""

    says: str
    """Where the arguments come from, in Markdown."""
    arguments: Mapping[str, Any]
    value: Any


Found = Mapping[str, Worked]
BESIDE: dict[str, tuple[str, Callable[[Found], Mapping[str, Any]]]] = {
    "batch_steps": (
        "the critical batch of [batch_tokens](#batch_tokens), the batch of that run, and 10,000 steps",
        lambda found: {"least": 1e4, **_of(found, "batch_tokens", "batch", "critical")},
    ),
    "interrupted_time": (
        "the checkpoint and the MTBF of [daly_interval](#daly_interval), its interval, ten days of work, restarts of 5 min",
        lambda found: {
            "productive": 864_000.0, "interval": found["daly_interval"].value, "restart": 300.0,
            **_of(found, "daly_interval", "write", "mtbf"),
        },
    ),
    "young_interval": (
        "the checkpoint and the MTBF of [daly_interval](#daly_interval)",
        lambda found: _of(found, "daly_interval", "write", "mtbf"),
    ),
    "batch_variance": (
        "the probes of [spsa_variance](#spsa_variance), 64 of them of 64 sequences each, and a gradient of one sequence as uncertain",
        lambda found: {"probe": found["spsa_variance"].value, "sample": 100.0, "perturbations": 64.0, "batch": 64.0},
    ),
    "best_batch": (
        "4,096 evaluations, the probes of [spsa_variance](#spsa_variance), 100 for one sequence",
        lambda found: {"evaluations": 4096.0, "probe": found["spsa_variance"].value, "sample": 100.0},
    ),
    "run_operations": (
        "one update of the smallest expert of [the published runs](../zero-order.md)",
        lambda _: {
            "length": 1024.0, "perturbations": 64.0, "batch": 64.0, "experts": 1.0, "forward": 81_920.0, "updates": 1.0,
        },
    ),
    "most_updates": (
        "updates of [run_operations](#run_operations), 150 hours of an accelerator that computes 4.84 TFLOP/s, 0.142 s each",
        lambda found: {
            "budget": 150.0 * 3600.0 * 4.84e12, "update": found["run_operations"].value, "deadline": 540_000.0, "lasts": 0.142,
        },
    ),
    "variance_of_independent": (
        "the probes of [spsa_variance](#spsa_variance), over 256 experts",
        lambda found: {"shared": found["spsa_variance"].value, "experts": 256.0},
    ),
    "practice_factor": (
        "five sources whose runs took 10 % more than their steps, two that lost nothing as the prior",
        lambda _: {"mean_log": math.log(1.1), "sources": 5.0, "prior": 2.0, "lowest": 1.0, "highest": 2.0},
    ),
}  # fmt: skip
"""Formulas that no command calls: where their arguments come from, and which they are."""


def modules() -> None:
    """Import whatever may hold a formula; the lab, which loads trainers, holds none."""
    for found in pkgutil.walk_packages(shardmeter.__path__, "shardmeter."):
        if found.name.split(".")[1] not in {"lab", "__main__"}:
            importlib.import_module(found.name)


@functools.cache
def worked() -> dict[str, Worked]:
    """A worked number for every registered formula. Raises SystemExit for one that has none, or a call that is not repeated."""
    modules()
    best: dict[str, tuple[tuple[bool, int, int], Worked]] = {}
    for place, command in enumerate(COMMANDS):
        for step in _calls(command):
            rank = (_trivial(step), _size(step), place)
            if step.formula not in best or rank < best[step.formula][0]:
                best[step.formula] = rank, Worked(f"in `shardmeter {command}`", step.arguments, step.value)
    found = {name: one for name, (_, one) in best.items()}
    for name, (says, arguments) in _ordered():
        if name in found:
            raise SystemExit(f"{name}: a command calls it; it needs no arguments of its own")
        given = arguments(found)
        found[name] = Worked(f"with {says}", given, REGISTRY[name].body(**given))
    lacking = sorted(set(REGISTRY) - set(found))
    if lacking:
        raise SystemExit(f"no command of scripts/worked_numbers.py calls {', '.join(lacking)}: add one, or arguments")
    for name, one in found.items():
        again = REGISTRY[name].body(**one.arguments)
        if not np.array_equal(np.asarray(again), np.asarray(one.value), equal_nan=True):
            raise SystemExit(f"{name}: {again} when called again, {one.value} in the answer")
    return found


def _ordered() -> Iterator[tuple[str, tuple[str, Callable[[Found], Mapping[str, Any]]]]]:
    """Those that others are taken from first."""
    yield from sorted(BESIDE.items(), key=lambda item: item[0] != "run_operations")


def _calls(command: str) -> list[Step]:
    words = [str(ROOT / word) if word.startswith("examples/") else word for word in shlex.split(command)]
    said = io.StringIO()
    with trace() as steps, contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(said):
        code = shell([*words, "--format", "json"])
    if code not in (0, 1):
        raise SystemExit(f"shardmeter {command}: {said.getvalue().strip()}")
    return steps


def _size(step: Step) -> int:
    """Numbers of its largest argument."""
    return max(np.size(value) for value in (step.value, *step.arguments.values()))


def _trivial(step: Step) -> bool:
    """Whether it comes to nothing, or to all of it; or something in it stands for never."""
    numbers = np.asarray(step.value, dtype=float)
    nothing = bool(np.all((numbers == 0.0) | (numbers == 1.0) | ~np.isfinite(numbers)))
    known = (np.asarray(value) for value in step.arguments.values() if value is not None and not isinstance(value, str))
    return nothing or any(bool(np.any(np.abs(values) > ENDLESS)) for values in known)


def _of(found: Found, name: str, *arguments: str) -> dict[str, Any]:
    return {argument: found[name].arguments[argument] for argument in arguments}
