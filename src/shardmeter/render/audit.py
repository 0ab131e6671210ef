"""The page of an audit: verdict, claims beside what they imply, causes, what cannot be, an MFU in every convention."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import date
from typing import Any

from shardmeter.render import cells
from shardmeter.render.document import Column, Document, Row, Section, Table, remarks
from shardmeter.render.figure import Figure, Line, Mark, Scale

Answer = Mapping[str, Any]
VERDICTS = {
    "impossible": "Impossible", "contradiction": "Contradicts itself", "beyond measured": "Beyond anything measured",
    "consistent": "Consistent", "unchecked": "Not checked",
}  # fmt: skip
STATUS = {"agreed": "agrees", "contradicted": "contradicted", "given": "given", "alone": "not checked",
          "impossible": "impossible", "beyond measured": "beyond measured"}  # fmt: skip
CLOSE = {"same": "", "near": "near, ", "order": "order of magnitude, "}
TOLD = (
    "mfu", "tflops_per_gpu", "tokens_per_s", "tokens_per_s_per_gpu", "step_time", "global_batch", "accumulation", "dp", "tokens", "steps",
    "wall_clock", "gpu_hours", "cost", "flops", "flops_per_token", "memory_states", "memory_parameters", "memory_gradients",
    "memory_optimizer", "busbw", "allreduce_time", "egress_cost", "energy", "carbon",
)  # fmt: skip
"""Quantities that the page tells where they follow; the JSON has all."""
DAY = 86400.0
MOST_CAUSES = 4
PEAKS_SHOWN = 9
MOST_BARS = 16
NEAR = 0.02
"""Relative difference of a convention from the claim that is called the same."""


def title(names: Iterable[str]) -> str:
    """The question in one line."""
    return f"audit of {', '.join(dict.fromkeys(names))}"


def document(answer: Answer, heading: str = "", *, short: bool = False) -> Document:
    """An `audit` JSON as a document. `short` leaves out what was assumed."""
    drawn = figures(answer)
    sections: list[Section] = [_claims(answer)]
    if any(one["quantity"] in TOLD for one in answer["implied"]):
        sections.append(_implied(answer))
    if any(one["causes"] or one["status"] == "contradicted" for one in answer["claims"]):
        sections.append(_causes(answer))
    if answer["findings"]:
        sections.append(_findings(answer))
    if answer["predicted"]:
        sections.append(_predicted(answer))
    if answer["conventions"] and (answer["claimed_mfu"] is not None or answer["implied_mfu"] is not None):
        sections.append(_conventions(answer))
    if answer["peaks"]:
        sections.append(_peaks(answer))
    sections.append(remarks(answer, short=short))
    data = {**answer, "figures": [figure.to_dict() for figure in drawn]}
    return Document(
        title=heading or title(one["claim"] for one in answer["claims"]), verdict=_verdict(answer), good=answer["consistent"],
        sure=answer["verdict"] != "unchecked", sections=tuple(sections), data=data, flat=_flat(answer),
    )  # fmt: skip


def _shown(value: float | None, unit: str) -> str:
    if unit == "date" and value is not None:
        return date.fromordinal(round(value / DAY)).isoformat()
    return cells.text(value, unit)


def _verdict(answer: Answer) -> str:
    head = VERDICTS[answer["verdict"]]
    if answer["verdict"] in ("impossible", "beyond measured"):
        first = next(one for one in answer["findings"] if one["kind"] == answer["verdict"])
        return f"{head}: {first['says']}."
    wrong = [one for one in answer["claims"] if one["status"] == "contradicted"]
    if wrong:
        return f"{head}: {_says(wrong[0])}."
    if answer["verdict"] == "consistent":
        checked = sum(1 for one in answer["claims"] if one["status"] == "agreed")
        return f"{head}: of {len(answer['claims'])} claims {checked} follow from others."
    return f"{head}{_unchecked(answer)}"


def _unchecked(answer: Answer) -> str:
    """Of claims that nothing implies: where the first lies beside its prediction, and what would tell more."""
    says = "no claim follows from the others"
    if not answer["predicted"]:
        lacks = "--gpus" if answer["conventions"] else "--model and --gpus"
        return f": {says}; say more of them, or name {lacks} to have a prediction beside them."
    one = answer["predicted"][0]
    predicted = f"{_shown(one['predicted'], one['unit'])} is predicted"
    if one["interval"] is None:
        return f": {says}. Beside {one['claim']} {_shown(one['value'], one['unit'])} {predicted}."
    low, high = (_shown(end, one["unit"]) for end in one["interval"])
    where = f"{'inside' if one['inside'] else 'outside'} what 90 % of such runs have, {low} to {high}"
    return (
        f": {says}. Beside the prediction, {one['claim']} {_shown(one['value'], one['unit'])} is {where} ({predicted})."
    )


def _says(one: Answer) -> str:
    """A contradicted claim in one sentence, with its likeliest cause."""
    claim = f"{one['claim']} {one['text']}"
    if one["implied"] is None:
        return f"{claim} cannot be with the others"
    head = f"{claim}, where {_shown(one['implied'], one['unit'])} follows ({_times(one['ratio'])})"
    if one["causes"] and one["causes"][0]["close"] == "same":
        return f"{head}: {one['causes'][0]['cause']}"
    if one["integer"]:
        return f"{head}: an integer factor of {one['integer']}, and nothing given has it"
    return head


def _times(ratio: float) -> str:
    size, way = (ratio, "large") if ratio >= 1.0 else (1.0 / ratio, "small")
    return f"{size:.4g} times too {way}"


def _claims(answer: Answer) -> Table:
    rows = []
    for one in answer["claims"]:
        implied = _shown(one["implied"], one["unit"]) if one["implied"] is not None else ""
        low, high = one["implied_range"] or (0.0, 0.0)
        if high > low * 1.001:
            implied = f"{_shown(low, one['unit'])} to {_shown(high, one['unit'])}"
        ratio = "" if one["ratio"] is None else f"{one['ratio']:.4g}"
        rows.append({**one, "value": _shown(one["value"], one["unit"]), "implied": implied, "ratio": ratio,
                     "status": STATUS[one["status"]], "from": ", ".join(one["from"])})  # fmt: skip
    columns = (
        Column(key="claim", title="claim"),
        Column(key="value", title="claimed"),
        Column(key="implied", title="implied"),
        Column(key="ratio", title="claimed / implied"),
        Column(key="status", title="verdict"),
        Column(key="from", title="implied by", wide=True, below=True),
    )
    told = tuple(column for column in columns if any(row[column.key] for row in rows))
    caption = "Implied by the other claims, the scenario, the model and the accelerator." if columns[-1] in told else ""
    return Table(title="Claims", columns=told, rows=tuple(rows), caption=caption)


def _implied(answer: Answer) -> Table:
    rows = []
    for one in (one for one in answer["implied"] if one["quantity"] in TOLD):
        low, high = one["range"]
        value = _shown(one["value"], one["unit"])
        if high > low * 1.001:
            value = f"{_shown(low, one['unit'])} to {_shown(high, one['unit'])}"
        claims = [text.split()[0] for text in one["from"] if "(" not in text]
        rows.append({**one, "value": value, "from": ", ".join(dict.fromkeys(claims))})
    columns = (
        Column(key="quantity", title="quantity"),
        Column(key="value", title=""),
        Column(key="says", title="what it is", drop=1),
        Column(key="from", title="from", wide=True, drop=2),
    )
    return Table(title="What follows", columns=columns, rows=tuple(rows))


def _causes(answer: Answer) -> Table:
    rows = [row for one in answer["claims"] for row in _explained(one)]
    columns = (
        Column(key="claim", title="claim"),
        Column(key="factor", title="factor"),
        Column(key="left", title="left", drop=2),
        Column(key="cause", title="what would explain it", wide=True),
        Column(key="source", title="seen in", drop=1),
    )
    return Table(
        title="Causes, the likeliest first", columns=columns, rows=tuple(rows), caption="Left: what the factor leaves."
    )


def _explained(one: Answer) -> Iterable[Row]:
    """The causes of one claim's ratio, and what the others would have to be instead."""
    for cause in one["causes"][:MOST_CAUSES]:
        text = f"{CLOSE[cause['close']]}{cause['cause']}"
        yield {"claim": one["claim"], "factor": f"× {cause['factor']:.4g}", "left": f"{cause['left']:.3f}", "cause": text,
               "source": cause["source"]}  # fmt: skip
    if one["status"] == "contradicted" and not one["causes"] and one["ratio"]:
        text = f"an integer factor of {one['integer']}: nothing given has it" if one["integer"] else "no named factor"
        yield {"claim": one["claim"], "factor": f"× {one['ratio']:.4g}", "left": "", "cause": text, "source": ""}
    for other in one["would_be"]:
        text = f"or {other['claim']} is {_shown(other['value'], other['unit'])}, not {other['text']}"
        yield {"claim": one["claim"], "factor": "", "left": "", "cause": text, "source": ""}


def _findings(answer: Answer) -> Table:
    rows: list[Row] = []
    for one in answer["findings"]:
        rows.append({"kind": one["kind"], "says": one["says"], "would": ""})
        unit = "B" if one["quantity"].startswith("memory") else "%"
        rows += [
            {"kind": "", "says": f"if {r['cause']}", "would": cells.text(r["value"], unit)} for r in one["readings"]
        ]
    columns = (
        Column(key="kind", title=""),
        Column(key="says", title="what cannot be, and readings that could", wide=True),
        Column(key="would", title="then"),
    )
    return Table(title="Limits", columns=columns, rows=tuple(rows))


def _predicted(answer: Answer) -> Table:
    rows = []
    for one in answer["predicted"]:
        low, high = one["interval"] or (None, None)
        bounds = "" if low is None else f"{_shown(low, one['unit'])} to {_shown(high, one['unit'])}"
        inside = {True: "inside", False: "outside", None: ""}
        rows.append({"claim": one["claim"], "value": _shown(one["value"], one["unit"]), "predicted": _shown(one["predicted"], one["unit"]),
                     "interval": bounds, "inside": inside[one["inside"]],
                     "implied": "" if one["implied"] is None else f"{_shown(one['implied'], one['unit'])}: {inside[one['implied_inside']]}"})  # fmt: skip
    columns = (
        Column(key="claim", title="claim"),
        Column(key="value", title="claimed"),
        Column(key="predicted", title="predicted"),
        Column(key="interval", title="90 % of runs"),
        Column(key="inside", title="claim"),
        *(
            (Column(key="implied", title="what the others imply", drop=1),)
            if any(row["implied"] for row in rows)
            else ()
        ),
    )
    return Table(title="Beside the prediction", columns=columns, rows=tuple(rows))


def _conventions(answer: Answer) -> Table:
    columns = (
        Column(key="key", title="convention"),
        Column(key="formula", title="FLOPs of a token", wide=True),
        Column(key="flops_per_token", title="count", unit="FLOP"),
        Column(key="ratio", title="over mfu's"),
        *((Column(key="prints", title="this throughput prints", unit="%"),) if answer["implied_mfu"] is not None else ()),
        *((Column(key="claim_converted", title="the claim prints", unit="%"),
           Column(key="claim_as_mfu", title="stated so, it is", unit="%", drop=2)) if answer["claimed_mfu"] is not None else ()),
        Column(key="seen", title="where", wide=True, below=True),
    )  # fmt: skip
    rows = tuple({**row, "ratio": f"{row['ratio']:.3f}"} for row in answer["conventions"])
    caption = f"The claim is taken as stated in `{answer['convention']}` (--convention). Stated so, it is: mfu, if the claim is in the convention of the line."
    return Table(
        title="The same in every convention",
        columns=columns,
        rows=rows,
        caption=caption if answer["claimed_mfu"] is not None else "",
    )


def _peaks(answer: Answer) -> Table:
    own = answer["peaks"][0]
    rows: tuple[Row, ...] = tuple(
        {**one, "device": f"{one['format']} of {one['device']}"} for one in answer["peaks"][:PEAKS_SHOWN]
    )
    columns = (
        Column(key="device", title="peak"),
        Column(key="peak", title="", unit="FLOP/s"),
        Column(key="mfu", title="its rate is", unit="%"),
        Column(key="claim_of_own", title="a claim of this peak is", unit="%"),
    )
    name = f"{own['format']} of {own['device']}"
    caption = f"Its rate: what is behind the claim, over that peak. A claim of this peak: what it is of {name}, if that peak was taken. Dense peaks."
    return Table(title="The same over other peaks", columns=columns, rows=rows, caption=caption)


def figures(answer: Answer) -> tuple[Figure, ...]:
    """MFU by convention as lying bars, with the claim and 100 %; by peak, where no model tells of conventions."""
    implied, claimed = answer["implied_mfu"], answer["claimed_mfu"]
    key = "prints" if implied is not None else "claim_converted"
    rows = sorted((row for row in answer["conventions"] if row[key] is not None), key=lambda row: row[key])
    if rows:
        ends = f"{_percent(rows[0][key])} to {_percent(rows[-1][key])}"
        near = None if claimed is None or implied is None else _nearest(rows, key, claimed)
        if near is None:
            found = f"One throughput is an MFU of {ends}, by convention"
        elif abs(near[key] / claimed - 1.0) < NEAR:
            found = f"The claimed {_percent(claimed)} is what {near['key']} prints; others print {ends}"
        else:
            found = f"No convention prints the claimed {_percent(claimed)}: they print {ends}"
        return (_bars("conventions", found, "MFU", [(row["key"], row[key]) for row in rows], claimed),)
    peaks = sorted(answer["peaks"][:MOST_BARS], key=lambda row: row["claim_of_own"])
    if not peaks:
        return ()
    own = answer["peaks"][0]
    found = f"What the claimed {_percent(claimed)} is of {own['device']}, by the peak that was taken"
    bars = [(f"{row['format']} of {row['device']}", row["claim_of_own"]) for row in peaks]
    return (_bars("peaks", found, f"MFU of the dense {own['format']} peak", bars, claimed),)


def _nearest(rows: Sequence[Answer], key: str, claimed: float) -> Answer:
    """The convention that prints the claim; one that is merely a mistake only where no other is near."""

    def off(row: Answer) -> float:
        return abs(float(row[key]) / claimed - 1.0)

    return min(rows, key=lambda row: (off(row) >= NEAR, row["mistake"] and off(row) < NEAR, off(row)))


def _bars(slug: str, found: str, axis: str, bars: Sequence[tuple[str, float]], claimed: float | None) -> Figure:
    marks = [Mark(says="100 %", x=1.0)]
    if claimed is not None:
        marks.append(Mark(says=f"claimed {_percent(claimed)}", x=claimed))
    line = Line(label="", x=tuple(value for _, value in bars), y=tuple(map(float, range(len(bars)))), style="bars")
    names = tuple(name for name, _ in bars)
    return Figure(
        slug=slug, title=found, x=Scale(title=axis, unit="%"), y=Scale(title="", labels=names), lines=(line,), marks=tuple(marks)
    )  # fmt: skip


def _percent(share: float) -> str:
    return f"{100 * share:.3g} %"


def _flat(answer: Answer) -> tuple[Row, ...]:
    """CSV: a row a claim, with its likeliest cause."""
    keys = ("claim", "text", "value", "unit", "implied", "ratio", "status", "integer")
    return tuple(
        {**{key: one[key] for key in keys}, "cause": one["causes"][0]["cause"] if one["causes"] else "", "verdict": answer["verdict"]}
        for one in answer["claims"]
    )  # fmt: skip
