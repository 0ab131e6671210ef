"""What a study ran on, and what of the lab works here; nothing of it loads PyTorch."""

from __future__ import annotations

import datetime as dt
import os
import platform
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from shardmeter.core.errors import Unavailable

CPUINFO = Path("/proc/cpuinfo")
INSTALL = "pip install 'shardmeter[lab]'"

ROOM = 0.8
"""Share of the cores that workers may want; lines need the rest."""


def machine(emulation: str) -> dict[str, Any]:
    """`machine.json`: processor, cores that this process may use, kernel, versions, how lines are emulated, the date."""
    return {
        "made_by": "shardmeter lab", "cpu": processor(), "cores": cores(), "kernel": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(), "torch": torch_version(), "emulation": emulation,
        "date": dt.datetime.now(tz=dt.UTC).date().isoformat(),
    }  # fmt: skip


def processor() -> str:
    """What the processor calls itself, as far as the system tells."""
    try:
        lines = CPUINFO.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        lines = []
    named = (line.partition(":")[2].strip() for line in lines if line.lower().startswith("model name"))
    return next(named, "") or platform.processor() or platform.machine()


def cores() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def crowded(wanted: float, known: float) -> str:
    """What to say of workers that want so many of the known cores that they slow each other; empty where there is room, or 0 are known."""
    if not 0.0 < ROOM * known < wanted:
        return ""
    return (
        f"all workers together want {wanted:.1f} of {known:g} cores: they slow each other, which nothing predicts; "
        "a lower pace or a smaller batch leaves room"
    )


def torch_version() -> str:
    """Of PyTorch; empty where it is not installed."""
    try:
        return version("torch")
    except PackageNotFoundError:
        return ""


def refuse_without_torch() -> None:
    """Raises Unavailable where PyTorch is not installed."""
    if not torch_version():
        raise Unavailable(f"the lab trains with PyTorch, which is not installed: {INSTALL}")
