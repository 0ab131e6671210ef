"""The page of a lab's report: measured beside predicted, what broke, what training gave; and the page of what works here."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from shardmeter.render import cells
from shardmeter.render.document import Column, Document, Fact, Facts, Notes, Row, Section, Table
from shardmeter.render.figure import Figure, Line, Scale

Answer = Mapping[str, Any]


def title(answer: Answer) -> str:
    """`Study bundled · 2 cores of AMD EPYC · torch 2.13.0 · lines by tun · 2026-11-30`."""
    one = answer["machine"]
    cores = one.get("cores")
    parts = [
        f"Study {answer['study']}", f"{cores} core{'' if cores == 1 else 's'} of {one.get('cpu') or 'an unnamed processor'}",
        f"torch {one.get('torch') or '–'}", f"lines by {one.get('emulation') or 'nothing'}", str(one.get("date") or ""),
    ]  # fmt: skip
    return " · ".join(filter(None, parts))


def document(answer: Answer, bars_missed: Sequence[Any] = (), *, short: bool = False) -> Document:
    """A `lab report` JSON as a document. `short` leaves out what was assumed."""
    missed = tuple(map(str, bars_missed))
    sections: list[Section | None] = [
        times_table(answer), speed_table(answer), _fastest(answer), bytes_table(answer), _transport(answer), _losses(answer), _assembled(answer), _variance(answer), _broke(answer),
        _totals(answer["totals"]),
        Notes(title="Bars missed", lines=missed) if missed else None,
        Notes(title="Warnings", lines=tuple(answer["warnings"])),
        None if short else Notes(title="Assumed", lines=tuple(answer["assumptions"])),
    ]  # fmt: skip
    totals = answer["totals"]
    wrong = totals["failed"] + totals["broken_off"]
    return Document(
        title=title(answer), verdict=_verdict(answer), good=not missed and not wrong, sure=not answer["warnings"],
        sections=tuple(one for one in sections if one is not None),
        data={**answer, "bars_missed": list(missed), "figures": [figure.to_dict() for figure in figures(answer)]},
        flat=tuple(_flat(one) for one in answer["experiments"]), columns=FLAT,
    )  # fmt: skip


def _verdict(answer: Answer) -> str:
    totals, said = answer["totals"], answer["totals"]["round"]
    run = totals["experiments"] - totals["not_run"]
    did = f"{totals['as_asked']} of {run} experiments did what was asked, {totals['predicted_first']} of them predicted before they ran"
    if not said["n"]:
        return f"{did}; no round was scored."
    error = f"{100 * said['median_abs_error']:.1f} % in the median, {100 * said['worst_abs_error']:.1f} % at worst"
    whose = f"{said['n']} experiment{'s' if said['n'] > 1 else ''}"
    return f"{did}; the rounds of {whose} differ from what was predicted by {error}."


def times_table(answer: Answer) -> Table:
    """Rounds, inner steps and waits, predicted and measured."""
    columns = (
        Column(key="name", title="experiment"), Column(key="method", title="method", drop=3), Column(key="line", title="line", drop=2),
        Column(key="predicted", title="round, predicted", unit="s"), Column(key="measured", title="measured", unit="s"),
        Column(key="span", title="from … to", drop=4), Column(key="error", title="error", unit="±%"),
        Column(key="step", title="step, predicted", unit="s", drop=5), Column(key="step_measured", title="measured", unit="s", drop=5),
        Column(key="sync", title="waits, predicted", unit="s", drop=6), Column(key="sync_measured", title="measured", unit="s", drop=6),
        Column(key="status", title="run"),
    )  # fmt: skip
    return Table(title="Rounds", columns=columns, rows=tuple(_times(one) for one in answer["experiments"]))


def _times(one: Answer) -> Row:
    spent = one["round"]
    low, high = spent["low"], spent["high"]
    return {
        "name": one["name"], "method": one["method"], "line": _line(one), "predicted": spent["predicted"],
        "measured": spent["measured"], "span": None if low is None else f"{cells.text(low, 's')} to {cells.text(high, 's')}",
        "error": spent["error"], "step": one["inner_step"]["predicted"], "step_measured": one["inner_step"]["measured"],
        "sync": one["sync"]["predicted"], "sync_measured": one["sync"]["measured"], "status": one["status"],
    }  # fmt: skip


def _line(one: Answer) -> str:
    usual, *more = one["lines"]
    said = f"{one['islands']} × {cells.text(8.0 * usual['bandwidth_B_per_s'], 'bit/s')}, {cells.text(usual['rtt_s'], 's').strip()}"
    return said + (f", {len(more)} unlike" if more else "")


def speed_table(answer: Answer) -> Table | None:
    """Tokens a second of every experiment; of those that are alike but for the method, how many times as fast as the slowest."""
    columns = (
        Column(key="name", title="experiment"), Column(key="method", title="method", drop=2), Column(key="line", title="line", drop=3),
        Column(key="predicted", title="predicted", unit="tokens/s"), Column(key="measured", title="measured", unit="tokens/s"),
        Column(key="error", title="error", unit="±%"), Column(key="over", title="times the slowest, predicted", drop=1),
        Column(key="over_measured", title="measured", drop=1),
    )  # fmt: skip
    over = {
        name: ratio
        for group in answer["contests"]
        for name, ratio in zip(group["experiments"], group["over_slowest"], strict=True)
    }
    rows: list[Row] = [
        {
            "name": one["name"], "method": one["method"], "line": _line(one), **one["tokens_per_s"],
            "over": _times_as_fast(over.get(one["name"], {}).get("predicted")),
            "over_measured": _times_as_fast(over.get(one["name"], {}).get("measured")),
        }
        for one in answer["experiments"]
        if one["tokens_per_s"]["measured"] is not None
    ]  # fmt: skip
    caption = "Rounds of two methods have unlike numbers of steps; tokens a second compare. What a token teaches is not in them: see the losses."
    return Table(title="Speed", columns=columns, rows=tuple(rows), caption=caption) if rows else None


def _times_as_fast(ratio: float | None) -> str | None:
    return None if ratio is None else f"{ratio:.2f} ×"


def _fastest(answer: Answer) -> Notes | None:
    """Who is fastest among experiments that are alike but for the method, by how much, and whether that was predicted."""
    entries = {one["name"]: one for one in answer["experiments"]}
    lines = []
    for group in answer["contests"]:
        first, *others = zip(group["experiments"], group["over_slowest"], strict=True)
        than = ", ".join(
            f"{first[1]['measured'] / ratio['measured']:.2f} × as fast as {name} "
            f"(predicted {first[1]['predicted'] / ratio['predicted']:.2f} ×)"
            for name, ratio in others
        )
        right, pairs = group["pairs_as_predicted"], group["pairs"]
        order = "in the predicted order" if right == pairs else f"{right} of {pairs} pairs in the predicted order"
        lines.append(f"{_line(entries[first[0]])}: {first[0]} trains {than}; {order}")
    return Notes(title="Which is fastest", lines=tuple(lines)) if lines else None


def bytes_table(answer: Answer) -> Table | None:
    """What crossed in a round."""
    columns = (
        Column(key="name", title="experiment"), Column(key="predicted", title="on the lines, predicted", unit="B"),
        Column(key="measured", title="measured", unit="B"), Column(key="error", title="error", unit="±%"),
        Column(key="payload", title="a worker's messages, predicted", unit="B", drop=1),
        Column(key="payload_measured", title="measured", unit="B", drop=1), Column(key="payload_error", title="error", unit="±%", drop=1),
    )  # fmt: skip
    rows: list[Row] = [
        {
            "name": one["name"], **{key: one["wire_bytes"][key] for key in ("predicted", "measured", "error")},
            "payload": one["payload_bytes"]["predicted"], "payload_measured": one["payload_bytes"]["measured"],
            "payload_error": one["payload_bytes"]["error"],
        }
        for one in answer["experiments"]
        if one["wire_bytes"]["predicted"] is not None
    ]  # fmt: skip
    return Table(title="Bytes of a round", columns=columns, rows=tuple(rows)) if rows else None


def _transport(answer: Answer) -> Table | None:
    columns = (
        Column(key="name", title="probe"), Column(key="line", title="line"), Column(key="bytes", title="all-reduce of", unit="B"),
        Column(key="predicted", title="predicted", unit="s"), Column(key="measured", title="measured", unit="s"),
        Column(key="error", title="error", unit="±%"), Column(key="wire_error", title="error of bytes", unit="±%"),
    )  # fmt: skip
    rows: list[Row] = [
        {
            "name": one["name"], "line": _line(one), "bytes": point["bytes"],
            **{key: point["seconds"][key] for key in ("predicted", "measured", "error")}, "wire_error": point["wire_bytes"]["error"],
        }
        for one in answer["experiments"]
        for point in one["probes"]
    ]  # fmt: skip
    return Table(title="Single all-reduces", columns=columns, rows=tuple(rows)) if rows else None


def _losses(answer: Answer) -> Table | None:
    columns = (
        Column(key="name", title="experiment"), Column(key="before", title="loss before"), Column(key="after", title="after"),
        Column(key="falls", title="falls"), Column(key="basis", title="on text", drop=1),
        Column(key="peak_memory", title="memory of a worker, peak", unit="B", drop=2),
    )  # fmt: skip
    rows: list[Row] = [
        {
            "name": one["name"], **{key: _nats(one["loss"][key]) for key in ("before", "after")}, "falls": one["loss"]["falls"],
            "basis": one["loss"]["basis"], "peak_memory": one["peak_memory_bytes"],
        }
        for one in answer["experiments"]
        if one["loss"]["before"] is not None
    ]  # fmt: skip
    caption = "Nats a byte."
    return Table(title="Training", columns=columns, rows=tuple(rows), caption=caption) if rows else None


def _nats(value: float | None) -> str | None:
    return None if value is None else f"{value:.3f}"


def _assembled(answer: Answer) -> Table | None:
    columns = (
        Column(key="experiment", title="experiment"), Column(key="what", title="of parts"), Column(key="loss", title="loss"),
        Column(key="reference", title="trained whole"), Column(key="reference_loss", title="loss"),
        Column(key="difference", title="difference"),
    )  # fmt: skip
    rows: list[Row] = [
        {
            **one,
            "loss": _nats(one["loss"]),
            "reference_loss": _nats(one["reference_loss"]),
            "difference": f"{one['difference']:+.3f}",
        }
        for one in answer["assembled"]
    ]
    return (
        Table(title="Models of parts against models trained whole", columns=columns, rows=tuple(rows)) if rows else None
    )


def _variance(answer: Answer) -> Table | None:
    columns = (
        Column(key="experiment", title="experiment"), Column(key="name", title="figure"), Column(key="value", title="measured"),
        Column(key="expected", title="expected"), Column(key="error", title="standard error", drop=1), Column(key="samples", title="samples", drop=2),
    )  # fmt: skip
    rows: list[Row] = [
        {
            "experiment": one["experiment"], "name": one["name"], "value": _short(one.get("value")), "expected": _short(one.get("expected")),
            "error": _short(one.get("error")), "samples": one.get("samples"),
        }
        for one in answer["variance"]
    ]  # fmt: skip
    return (
        Table(title="Variance of what is estimated without gradients", columns=columns, rows=tuple(rows))
        if rows
        else None
    )


def _short(value: Any) -> str | None:
    return f"{value:.4g}" if isinstance(value, int | float) else None


def _broke(answer: Answer) -> Notes | None:
    lines = [line for one in answer["experiments"] for line in broken(one)]
    return Notes(title="What broke", lines=tuple(lines)) if lines else None


def broken(one: Answer) -> list[str]:
    """What broke in an experiment, who went on, who stopped, as sentences."""
    found = []
    fault = one["fault"]
    if fault is not None and one["status"] != "not run":
        what = (
            f"a worker of {fault['between'][0]} was killed"
            if fault["kind"] == "worker"
            else f"the line of {' and '.join(fault['between'])} was cut"
        )
        went = ", ".join(one["survivors"])
        ended = (
            f"{went} went on to the end" if went else "all stopped" if one["status"] == "stopped" else "nobody went on"
        )
        found.append(
            f"{one['name']}: {what} after {fault['after_round']} round{'s' if fault['after_round'] > 1 else ''}; {ended}"
        )
        for lost in one["lost"][:1]:
            members = ", ".join(map(str, lost.get("members") or ()))
            found.append(
                f"{one['name']}: workers {members} found each other again in round {lost.get('round')}: {lost.get('says', '')}"
            )
    if one["stopped"] or (one["says"] and one["status"] in ("failed", "broken off")):
        told = "; ".join(f"worker {each['rank']} stopped: {each.get('says', '')}" for each in one["stopped"][:3])
        found.append(f"{one['name']} ({one['status']}): {told or one['says']}")
    return found


def _totals(totals: Answer) -> Facts:
    facts = [
        _fact(label, totals[key])
        for label, key in (
            ("time of a round", "round"), ("inner step", "inner_step"), ("waits of a round", "sync"), ("single all-reduces", "transport"),
            ("bytes on the lines", "wire_bytes"), ("bytes of messages", "payload_bytes"),
        )
        if totals[key]["n"]
    ]  # fmt: skip
    loss = totals["loss"]
    note = f"not in {', '.join(loss['not_falling'])}" if loss["not_falling"] else ""
    facts.append(Fact(label="loss falls", value=f"in {loss['falls']} of {loss['told']}", note=note))
    return Facts(title="Errors (predicted over measured, less 1)", facts=tuple(facts))


def _fact(label: str, found: Answer) -> Fact:
    worst = f"{100 * found['worst_abs_error']:.1f} % at worst, bias {100 * found['bias']:+.1f} %, {found['n']} figures"
    return Fact(label=label, value=f"{100 * found['median_abs_error']:.1f} % in the median", note=worst)


FLAT = (
    "name", "method", "islands", "status", "predicted_first", "round_predicted_s", "round_measured_s", "round_error",
    "tokens_per_s_predicted", "tokens_per_s_measured", "inner_step_predicted_s", "inner_step_measured_s", "sync_predicted_s", "sync_measured_s", "wire_bytes_predicted", "wire_bytes_measured", "wire_bytes_error",
    "loss_before", "loss_after", "peak_memory_bytes",
)  # fmt: skip


def _flat(one: Answer) -> Row:
    loss = one["loss"]
    values = (
        one["name"], one["method"], one["islands"], one["status"], one["predicted_first"], one["round"]["predicted"], one["round"]["measured"],
        one["round"]["error"], one["tokens_per_s"]["predicted"], one["tokens_per_s"]["measured"],
        one["inner_step"]["predicted"], one["inner_step"]["measured"], one["sync"]["predicted"], one["sync"]["measured"],
        one["wire_bytes"]["predicted"], one["wire_bytes"]["measured"], one["wire_bytes"]["error"], loss["before"], loss["after"],
        one["peak_memory_bytes"],
    )  # fmt: skip
    return dict(zip(FLAT, values, strict=True))


# ---- figures ---------------------------------------------------------------------------------------------------------------------


def figures(answer: Answer) -> tuple[Figure, ...]:
    """Rounds predicted against measured, bytes likewise, losses over the time of the wall; each where there is something to draw."""
    found = (
        _met(answer, "round", "Rounds", "s", "rounds"), _met(answer, "wire_bytes", "Bytes of a round", "B", "bytes"), _curves(answer)
    )  # fmt: skip
    return tuple(one for one in found if one is not None)


def _met(answer: Answer, key: str, what: str, unit: str, slug: str) -> Figure | None:
    scored = [one for one in answer["experiments"] if one[key]["error"] is not None]
    if not scored:
        return None
    lines = []
    for method in dict.fromkeys(one["method"] for one in scored):
        own = [one[key] for one in scored if one["method"] == method]
        lines.append(
            Line(
                label=method, x=tuple(each["measured"] for each in own), y=tuple(each["predicted"] for each in own),
                left=tuple(each["low"] for each in own), right=tuple(each["high"] for each in own), style="points",
            )
        )  # fmt: skip
    values = [each for line in lines for each in (*line.x, *(y for y in line.y if y is not None))]
    ends = (min(values), max(values))
    lines.append(Line(label="as measured", x=ends, y=ends, style="dashed"))
    worst = max(abs(one[key]["error"]) for one in scored)
    return Figure(
        slug=slug, title=f"{what}: predicted before, within {100 * worst:.0f} % of what was measured",
        x=Scale(title="measured", unit=unit, log=True), y=Scale(title="predicted", unit=unit, log=True), lines=tuple(lines),
        caption=("Every point is an experiment; bars reach from its least to its greatest round.",),
    )  # fmt: skip


def _curves(answer: Answer) -> Figure | None:
    told = [one for one in answer["experiments"] if len(one["loss"]["curve"]) > 1]
    if not told:
        return None
    lines = tuple(
        Line(label=one["name"], x=tuple(at for at, _ in one["loss"]["curve"]), y=tuple(loss for _, loss in one["loss"]["curve"]))
        for one in told
    )  # fmt: skip
    falls = answer["totals"]["loss"]
    return Figure(
        slug="losses", title=f"Training loss over time: on held-out text it falls in {falls['falls']} of {falls['told']}",
        x=Scale(title="since the first step", unit="s"), y=Scale(title="nats a byte"), lines=lines,
        caption=("One worker of each experiment.",),
    )  # fmt: skip


# ---- what works here -------------------------------------------------------------------------------------------------------------


LINES_BY = {
    "netem": "netem, of the kernel",
    "tun": "tun: a forwarder of ours between TUN devices",
    "none": "none",
}
"""How lines are emulated, for people."""


def check_document(answer: Answer) -> Document:
    """A `lab check` JSON as a document."""
    facts = tuple(
        Fact(label=label, value=value)
        for label, value in (
            ("processor", answer["machine"]["cpu"]), ("cores", answer["machine"]["cores"]), ("kernel", answer["machine"]["kernel"]),
            ("PyTorch", answer["machine"]["torch"] or "not installed"), ("lines", LINES_BY.get(answer["emulation"] or "none", answer["emulation"])),
        )
    )  # fmt: skip
    verdict = "Studies run here over emulated lines." if answer["works"] else "Not all of the lab works here."
    return Document(
        title="What the lab can do on this machine", verdict=verdict, good=answer["works"],
        sections=(Facts(title="Found", facts=facts), Notes(title="Missing", lines=tuple(answer["missing"])), Notes(title="So", lines=tuple(answer["so"]))),
        data=answer, flat=tuple({"missing": says} for says in answer["missing"]), columns=("missing",),
    )  # fmt: skip
