"""What can be named, as the form shows it: names of the catalog with a line each, examples, and the fields of the form."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from shardmeter.core.errors import UnknownName
from shardmeter.ui.examples import examples, line
from shardmeter.ui.state import FIELDS, WHOLE, WORDS

if TYPE_CHECKING:
    from shardmeter.scenario.catalog import Catalog

KINDS = ("models", "accelerators", "instances", "fabrics", "stacks", "regions")
LINES: Mapping[str, tuple[str, ...]] = {
    "models": ("family", "parameters", "layers", "context"),
    "accelerators": ("memory", "memory_bandwidth", "peak_bf16"),
    "instances": ("accelerators", "accelerator", "price", "provider"),
    "fabrics": ("bandwidth", "latency"),
    "stacks": ("title", "framework", "year"),
    "regions": ("city", "continent"),
}
"""Columns that make the line of a name."""
WORDED = {
    "parameters": "parameters",
    "layers": "layers",
    "context": "context",
    "accelerators": "×",
    "peak_bf16": "bf16",
    "memory_bandwidth": "memory",
}
"""Words after a value that does not speak for itself."""
FORM: tuple[dict[str, Any], ...] = (
    {"key": "model", "label": "Model", "group": "model", "placeholder": "llama-3.1-8b", "unit": "", "list": "models",
     "help": "A model of the catalog."},
    {"key": "gpus", "label": "GPUs", "group": "fleet", "placeholder": "64xH100-SXM5-80GB", "unit": "", "list": "accelerators",
     "help": "How many of which kind: one island of them, or each of several."},
    {"key": "price", "label": "Price", "group": "fleet", "placeholder": "$2.10/gpu/h", "unit": "$/gpu/h",
     "help": "Rent of a GPU or a node: $2.10/gpu/h, $98.32/node/h."},
    {"key": "islands", "label": "Islands", "group": "islands", "placeholder": "4", "unit": "", "number": True,
     "slider": {"least": 1, "most": 64, "log": True}, "help": "Equal islands of these GPUs, joined by a network."},
    {"key": "bandwidth", "label": "Bandwidth between islands", "group": "islands", "placeholder": "10 Gbps", "unit": "Gbps",
     "slider": {"least": 0.1, "most": 1000, "log": True, "unit": "Gbps"}, "help": "Of every pair, each way."},
    {"key": "rtt", "label": "Round trip", "group": "islands", "placeholder": "40 ms", "unit": "ms",
     "help": "From one island to another and back."},
    {"key": "method", "label": "Synchronisation", "group": "islands", "placeholder": "diloco", "unit": "", "choices": "methods",
     "help": "How islands keep together: gradients in every step, or an outer step once in a while."},
    {"key": "sync_every", "label": "Steps between synchronisations (H)", "group": "islands", "placeholder": "100", "unit": "steps",
     "number": True, "slider": {"least": 1, "most": 1000, "log": True}, "help": "Inner steps of a round."},
    {"key": "plan", "label": "Plan", "group": "plan", "placeholder": "fsdp,tp=8,recompute=full", "unit": "", "choices": "plans",
     "help": "NAME[,key=value…]; auto asks the planner."},
    {"key": "micro_batch", "label": "Micro-batch", "group": "plan", "placeholder": "1", "unit": "sequences", "number": True,
     "slider": {"least": 1, "most": 64, "log": True}, "help": "Sequences a group of GPUs takes at once."},
    {"key": "stack", "label": "Software", "group": "plan", "placeholder": "titan-compile", "unit": "", "list": "stacks",
     "help": "The training software."},
    {"key": "seq", "label": "Sequence length", "group": "run", "placeholder": "8192", "unit": "tokens", "number": True,
     "slider": {"least": 512, "most": 131072, "log": True}, "help": "Tokens of a sequence; left out, the model's context, at most 8192."},
    {"key": "global_batch", "label": "Global batch", "group": "run", "placeholder": "1024", "unit": "sequences", "number": True,
     "slider": {"least": 1, "most": 16384, "log": True}, "help": "Sequences of an optimizer step, or a text such as 8M tokens."},
    {"key": "tokens", "label": "Tokens of the run", "group": "run", "placeholder": "1T", "unit": "tokens",
     "help": "How long the run is: days and dollars need it."},
    {"key": "deadline", "label": "Deadline", "group": "run", "placeholder": "30 d", "unit": "", "help": "Is the run done by then?"},
    {"key": "budget", "label": "Budget", "group": "run", "placeholder": "$2M", "unit": "USD", "help": "Does it cost no more?"},
)  # fmt: skip
"""Fields of the form in their order."""


def catalog_list(kind: str, catalog: Catalog) -> dict[str, Any]:
    """Every name of a kind with a short line. Raises UnknownName."""
    if kind not in KINDS:
        raise UnknownName("kind", kind, KINDS)
    rows = [
        {"name": row["name"], "line": _line(kind, row), "aliases": list(catalog.aliases(kind, row["name"]))}
        for row in catalog.rows(kind)
    ]
    return {"kind": kind, "rows": rows}


def _line(kind: str, row: Mapping[str, str]) -> str:
    said = [f"{_short(row[key])} {WORDED.get(key, '')}".strip() for key in LINES[kind] if row.get(key)]
    return " · ".join(said).replace("× · ", "× ")


def _short(text: str) -> str:
    """A large count in three digits: 8.03B, 131k."""
    from shardmeter.core.quantity import show

    return show(float(text), "") if text.isascii() and text.isdigit() and len(text) > 4 else text


def example_list() -> dict[str, Any]:
    """Every shipped example with its line and its text."""
    return {"examples": [{"name": name, "line": line(text), "yaml": text} for name, text in examples().items()]}


def form(*, drawn: bool) -> dict[str, Any]:
    """The fields of the form with what can be chosen in them; `drawn`: whether pictures can be downloaded."""
    from shardmeter.interop.configs import formats
    from shardmeter.scenario.grammar import NAMES
    from shardmeter.sync import method, names

    writers = {
        name: module for name, module in formats().items() if hasattr(module, "write") or hasattr(module, "launch")
    }
    return {
        "fields": list(FORM),
        "keys": list(FIELDS),
        "whole": list(WHOLE),
        "words": list(WORDS),
        "choices": {
            "methods": list(names()),
            "plans": list(NAMES),
            "objectives": ["time", "cost", "throughput", "energy"],
        },
        "methods": [{"name": name, "reads": list(method(name).FIELDS)} for name in names()],
        "formats": [{"name": name, "launcher": not hasattr(module, "write")} for name, module in writers.items()],
        "kinds": list(KINDS),
        "svg": drawn,
    }
