"""What a report rests on: assumptions with where they come from, measured runs, formulas."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from shardmeter import __version__
from shardmeter.data import DATA_DATE
from shardmeter.render import report_words
from shardmeter.render.document import Column, Fact, Facts, Row, Section, Table
from shardmeter.render.paper import Chapter
from shardmeter.render.report_risks import FAR

Answer = Mapping[str, Any]
_ENDS = re.compile(r"(?P<what>.+?)\s*\((?P<whence>[^()]*(?:\([^()]*\)[^()]*)*)\)$")
"""A sentence that ends with where it comes from, in brackets."""
_DATED = re.compile(r"\b20\d\d(?:-\d\d){0,2}\b")
_MEASURED = re.compile(r"\bmeasured 20\d\d(?:-\d\d){0,2}\b")
DEFAULT = "the default of a scenario (docs/scenario.md)"
RULE = "a rule of this tool"


def assumptions(answer: Answer) -> Chapter:
    """What was not said and taken, each with its source; the rows of the catalog."""
    rows = [_taken(text) for text in answer["assumptions"]]
    taken = Table(
        title="What was not said, and taken",
        columns=(
            Column(key="what", title="taken", wide=True),
            Column(key="whence", title="where it comes from", wide=True),
        ),
        rows=tuple(rows),
    )
    columns = (
        Column(key="part", title="part"),
        Column(key="name", title="row"),
        Column(key="source", title="source", wide=True),
        Column(key="retrieved", title="of"),
    )
    held = Table(title="The rows it rests on", columns=columns, rows=tuple(dict(one) for one in answer["sources"]))
    says = ("Everything that the scenario says stands in the last chapter; what it leaves out was taken as follows.",)
    return Chapter(title="What was assumed, and where numbers come from", says=says, sections=(taken, held))


def _taken(text: str) -> Row:
    """An assumption and its source: what stands in brackets at its end, or after its colon."""
    match = _ENDS.match(text)
    if match is not None:
        return {"what": match["what"], "whence": _whence(match["whence"])}
    head, colon, tail = text.rpartition(": ")
    dated = _DATED.search(tail)
    if colon and dated is not None and " " in head:
        return {"what": head, "whence": tail}
    measured = _MEASURED.search(text)
    return {"what": text, "whence": RULE if measured is None else measured[0]}


def _whence(text: str) -> str:
    """What stands in brackets, as a source."""
    if text == "none named":
        return f"none was named; {DEFAULT}"
    if text.endswith("left out"):
        before = text.removesuffix("left out").rstrip(" ;")
        return (
            DEFAULT
            if not before
            else f"{before}; {DEFAULT}"
            if " " in before
            else f"`{before}` was left out; {DEFAULT}"
        )
    return f"the catalog, {text}" if _DATED.fullmatch(text) else text


def validated(answer: Answer) -> Chapter:
    """Errors of this stack's rows, the source left out first; the measured runs that are nearest to this scenario."""
    block = answer["validation"]
    rows: list[Row] = []
    stack = block["stack"]
    if stack is not None:
        rows += [_metrics(f"step time, {stack['name']}", stack["step_time"])]
        if len(stack["by_source"]) > 1:
            rows += [_metrics(f"… {source}", one) for source, one in stack["by_source"].items()]
        rows += [_metrics(f"memory, {stack['name']}", stack["memory"])] if stack["memory"]["n"] else []
    every = block["everything"]
    rows.append(
        {"of": "step time, all stacks", "n": every["n"], "left_out": every["mape"], "median": None, "p90": None}
    )
    rows += [
        {"of": f"{quantity.replace('_', ' ')}, across islands", "n": one["n"], "in_sample": one["mape"], "median": one["median_ape"], "p90": one["p90_ape"]}
        for quantity, one in (block["islands"] or {}).items()
    ]  # fmt: skip
    columns = (
        Column(key="of", title="measured", wide=True),
        Column(key="n", title="rows"),
        Column(key="left_out", title="source left out", unit="%"),
        Column(key="in_sample", title="in sample", unit="%"),
        Column(key="median", title="median", unit="%"),
        Column(key="p90", title="90th", unit="%"),
        Column(key="bias", title="bias", unit="±%"),
        Column(key="coverage", title="inside 90 %", unit="%"),
    )
    table = Table(
        title="How far predictions were off", columns=columns, rows=tuple(rows),
        caption="Size of predicted over measured less one, mean over sources. Source left out: the stack was refitted without the source. "
        "Bias below zero: predicted too fast. Inside 90 %: the share of measured runs in their intervals.",
    )  # fmt: skip
    return Chapter(
        title="What was validated", says=(report_words.sureness(answer), *_near_or_not(block)), sections=(table, *_nearest(block["nearest"]))
    )  # fmt: skip


def _near_or_not(block: Answer) -> tuple[str, ...]:
    near = block["nearest"]
    if not near:
        return ("No measured run can be set beside it.",)
    if near[0]["distance"] >= FAR:
        return ("No measured run is like this scenario; the nearest are far from it, and say little of it.",)
    return ()


def _metrics(of: str, one: Answer) -> Row:
    return {
        "of": of, "n": one["n"], "left_out": one["loso_mape"], "in_sample": one["mape"], "median": one["median_ape"], "p90": one["p90_ape"],
        "bias": one["bias"], "coverage": one["coverage_90"],
    }  # fmt: skip


def _nearest(near: Sequence[Answer]) -> tuple[Section, ...]:
    rows: list[Row] = [
        {
            "run": f"{one['model']}, {one['gpus']:,.0f} × {one['accelerator']}, {_plan(one)}, {one['stack']}",
            "measured": one["measured_s"], "predicted": one["predicted_s"], "left_out": one["loso_error"], "error": one["error"],
            "inside": _inside(one), "distance": f"{one['distance']:.1f}", "source": one["source"],
        }
        for one in near
    ]  # fmt: skip
    columns = (
        Column(key="run", title="run", wide=True),
        Column(key="measured", title="measured", unit="s"),
        Column(key="predicted", title="predicted", unit="s"),
        Column(key="left_out", title="source left out", unit="±%"),
        Column(key="error", title="error", unit="±%"),
        Column(key="inside", title="in 90 %"),
        Column(key="distance", title="distance"),
        Column(key="source", title="source", wide=True),
    )
    caption = (
        "Distance: factors of two in parameters, GPUs, sequence, tokens a GPU, tp and pp, added up; another accelerator or stack counts as two, "
        "another family as four."
    )
    return (Table(title="The measured runs that are most like it", columns=columns, rows=tuple(rows), caption=caption),)


def _inside(one: Answer) -> str:
    if one["low_s"] is None or one["high_s"] is None:
        return ""
    return "yes" if one["low_s"] <= one["measured_s"] <= one["high_s"] else "no"


def _plan(one: Answer) -> str:
    plan = one["plan"]
    degrees = [f"{name} {plan[name]:g}" for name in ("tp", "pp", "cp") if plan[name] != 1.0]
    return ", ".join([plan["sharding"], *degrees, f"micro-batch {plan['micro_batch']:g}", f"seq {one['seq_len']:,.0f}"])


def formulas(answer: Answer) -> Chapter:
    """Every formula that was called, with its source; the versions."""
    rows: list[Row] = [
        {"formula": one["formula"], "says": one["says"], "source": _cited(one["source"])} for one in answer["formulas"]
    ]
    columns = (
        Column(key="formula", title="formula"),
        Column(key="says", title="what it is", wide=True),
        Column(key="source", title="source", wide=True),
    )
    versions = Facts(
        title="Versions", facts=(Fact(label="ShardMeter", value=__version__), Fact(label="data", value=DATA_DATE))
    )
    table = Table(title="Formulas that were called", columns=columns, rows=tuple(rows))
    says = ("`shardmeter explain` on the scenario below shows every call with its numbers.",)
    return Chapter(title="Formulas and versions", says=says, sections=(table, versions))


def _cited(source: Answer) -> str:
    return f"{source['authors']}, {source['title']} ({source['year']})"
