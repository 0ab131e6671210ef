"""The page of a search across buildings: what to do and what it gains, each dimension alone and together, where which placement wins."""

from __future__ import annotations

import shlex
import statistics
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from shardmeter.render import cells
from shardmeter.render.document import Column, Document, Fact, Facts, Notes, Row, Section, Table, remarks
from shardmeter.render.figure import Figure
from shardmeter.render.scale_across_figures import figures
from shardmeter.render.scale_across_words import WORTH, changes, faster, first, gain, network_text, placed
from shardmeter.specs import Scenario

__all__ = ["document", "figures", "title"]

Answer = Mapping[str, Any]
CLUSTERS = "Clusters"
"""Title of the table of several."""
LITTLE = 1.02
"""Speed-up below which a network gains little."""
DIMENSIONS = ("placement", "schedule", "network")
ALONE = {"placement": "placement alone", "schedule": "schedule alone", "network": "network alone"}
TOGETHER = {
    "placement+schedule": "placement, schedule", "placement+network": "placement, network", "schedule+network": "schedule, network",
}  # fmt: skip
ALL = "all three"


def says(dimension: str) -> str:
    """The key of a choice that holds a dimension in words."""
    return f"{dimension}_says"


def title(scenario: Scenario | None, asked: Answer) -> str:
    """What is asked in one line, from the scenario of the first cluster (None where none has a plan that fits) and the `question`."""
    of = {name: ", ".join(f"{one:,}" for one in asked[name]) for name in ("gpus", "buildings")}
    made = "" if scenario is None else f" × {scenario.fleet.islands[0].accelerator.name}"
    stack = "" if scenario is None else f" · {scenario.stack.name}"
    return f"{', '.join(asked['models'])} on {of['gpus']}{made or ' GPUs'} in {of['buildings']} buildings{stack}"


def shown(answer: Answer) -> tuple[Answer, int] | None:
    """The cluster and the place of the network that the page is about: the scenario's own or, of several clusters, where it gains most."""
    cases = [case for case in answer["cases"] if case["points"]]
    if not cases:
        return None
    if len(cases) == 1:
        return cases[0], cases[0]["own"]
    places = [(case, at) for case in cases for at in range(len(case["points"]))]
    return max(places, key=lambda one: _gained(one[0]["points"][one[1]]))


def plan_shown(answer: Answer) -> dict[str, Any] | None:
    """The joint plan of that network as a scenario."""
    found = shown(answer)
    if found is None:
        return None
    case, at = found
    plans: dict[int, dict[str, Any]] = {plan["point"]: plan["scenario"] for plan in case["plans"]}
    return plans[at]


def _gained(point: Answer) -> float:
    return float(point["speedup"]["joint"]["value"])


def document(
    answer: Answer, heading: str = "", *, command: str = "", saved: str = "", short: bool = False
) -> Document:  # fmt: skip
    """A `plan --scale-across` JSON as a document. `short` leaves out what was assumed; `command` asks the same again, and `saved` is the
    file that holds the joint plan."""
    cases = [case for case in answer["cases"] if case["points"]]
    drawn = figures(answer)
    sections: list[Section] = []
    found = shown(answer)
    if found is not None:
        case, point = found[0], found[0]["points"][found[1]]
        several = f"Where it gains most: {cluster(case)}, {network_text(point)}"
        one = f"{'What to change' if _gained(point) >= WORTH else 'Fastest by less than ' + gain(WORTH)}: {network_text(point)}"
        sections += [_cases(cases), *_of_case(case, point, several)] if len(cases) > 1 else _of_case(case, point, one)
    sections += [figure for figure in drawn if _tells(figure)][: 2 if len(cases) == 1 else 1]
    if cases:
        if len(cases) == 1 and len(cases[0]["points"]) > 1:
            sections.append(_points(cases[0]))
        sections += [*([_purchases(cases[0])] if len(cases) == 1 else ()), _published(answer)]
    sections.append(_refused(answer["cases"]))
    if cases and cases[0]["plans"] and not short:
        sections.append(Notes(title="To predict the joint plan", lines=_again(command, saved)))
    sections.append(remarks(answer, short=short))
    return Document(
        title=heading, verdict=_verdict(cases, answer["stopped"]), good=bool(cases), sure=bool(answer["space"]["optimal"]),
        sections=tuple(sections), data={**answer, "figures": [figure.to_dict() for figure in drawn]}, flat=tuple(_flat(answer)),
        columns=COLUMNS,
    )  # fmt: skip


def _tells(figure: Figure) -> bool:
    """Whether a page shows a figure: not the map of a single winner, which its title says."""
    return figure.field is None or len(figure.field.scale.labels) > 1


# ---- what to do ------------------------------------------------------------------------------------------------------------------


def _verdict(cases: Sequence[Answer], stopped: bool) -> str:
    if not cases:
        return "Stopped before a cluster was searched." if stopped else "No plan fits."
    if len(cases) == 1:
        return _headline(cases[0]["points"][cases[0]["own"]]) + _elsewhere(cases[0])
    points = [point for case in cases for point in case["points"]]
    gains = sorted(map(_gained, points))
    over = f"{len(cases)} clusters, {len(points)} networks"
    if gains[-1] < WORTH:
        return f"Keep the production default: on {over} nothing is more than {gain(WORTH)} faster."
    case, most = max(((case, point) for case in cases for point in case["points"]), key=lambda one: _gained(one[1]))
    little, more = sum(one < LITTLE for one in gains), gain(max(point["over_best_single"] for point in points))
    return (
        f"{over}: the joint choice is up to {gain(gains[-1])} faster than the production default, {gain(statistics.median(gains))} at the "
        f"median, less than {gain(LITTLE)} on {little}, and up to {more} faster than the best "
        f"single change. Most: {cluster(case)}, {network_text(most)}, by {_doing(most)}."
    )


def _elsewhere(case: Answer) -> str:
    """Where on a map it gains more than at the own network."""
    most = max(case["points"], key=_gained)
    if _gained(most) < _gained(case["points"][case["own"]]) + WORTH - 1.0:
        return ""
    return f" Up to {gain(_gained(most))} on other networks, at {network_text(most)}."


def _headline(point: Answer) -> str:
    """What to do at one network, and what it gains."""
    ratio = point["speedup"]["joint"]
    if ratio["value"] < WORTH:
        return f"Keep the production default at {network_text(point)}: nothing is more than {gain(WORTH)} faster."
    best = point["best_single"]
    alone = point["speedup"][best]["value"]
    rest = f"{best} alone gives {gain(alone)}" if alone >= WORTH else "none of the three alone gives 1 %"
    doubt = "" if ratio["low"] >= 1.0 else " Measured runs leave open whether it is faster."
    return f"{first(_doing(point))}: {faster(ratio)} than the production default; {rest}.{doubt}"


def _doing(point: Answer) -> str:
    """The joint choice in words: of the default what differs."""
    return ", ".join(changes(point["joint"], point["default"])) or "the production default"


def _of_case(case: Answer, point: Answer, heading: str) -> list[Section]:
    """One network of a cluster: what the joint choice changes, and what every dimension gives alone and with others."""
    joint, default = point["joint"], point["default"]
    changes = tuple(
        {
            "dimension": name, "default": default[says(name)],
            "joint": SAME if joint[says(name)] == default[says(name)] else joint[says(name)],
        }
        for name in DIMENSIONS
    )  # fmt: skip
    columns = (
        Column(key="dimension", title=""),
        Column(key="default", title="production default", wide=True),
        Column(key="joint", title="joint choice", wide=True),
    )
    return [
        Table(title=heading, columns=columns, rows=changes),
        _gives(point),
        _facts(case, point),
    ]


SAME = "stays"


def _gives(point: Answer) -> Table:
    """A row for nothing, each dimension, two of them and all."""
    names = {"default": "nothing", **ALONE, **TOGETHER, "joint": ALL}
    choices = {"default": point["default"], **point["one"], **point["two"], "joint": point["joint"]}
    columns = (
        Column(key="may", title="what may change"),
        Column(key="step_s", title="step", unit="s"),
        Column(key="faster", title="faster"),
        Column(key="between", title="90 % between", drop=2),
        Column(key="mfu", title="MFU", unit="%", drop=3),
        Column(key="with", title="with", wide=True, drop=1),
    )
    return Table(
        title="What each gives", columns=columns, rows=tuple(_given(names[key], choices[key], point, key) for key in names),
    )  # fmt: skip


def _given(label: str, choice: Answer, point: Answer, key: str) -> Row:
    ratio = None if key == "default" else point["speedup"][key]
    return {
        "may": label, "step_s": choice["step_s"], "mfu": choice["mfu"], "with": ", ".join(changes(choice, point["default"])),
        "faster": "" if ratio is None else gain(ratio["value"]),
        "between": "" if ratio is None or ratio["low"] == ratio["high"] else f"{gain(ratio['low'])} … {gain(ratio['high'])}",
    }  # fmt: skip


def _facts(case: Answer, point: Answer) -> Facts:
    """Degrees, what goes and what stays of the step, what lines do to it, how much was searched."""
    degrees, removed, left = case["degrees"], point["removed"], point["bottleneck"]["joint"]
    whose = "the scenario's" if degrees["pinned"] else "the best of the production default"
    facts = [Fact(label="degrees", value=_shape(degrees), note=f"{whose}, the same in all")]
    facts += [_passes(degrees)] if degrees["pp"] > 1 else []
    facts += _open(case) if point is case["points"][case["own"]] else []
    if removed["term"] is not None:
        less = f"{cells.text(removed['seconds'], 's')} a step"
        facts.append(Fact(label="saves most of", value=removed["term"], note=less))
    if left["term"]:
        facts.append(
            Fact(label="still waits for", value=left["term"], note=f"{100 * left['share']:.0f} % of the joint step")
        )
    facts.append(
        Fact(label="memory", value=_gib(point["joint"]["memory_peak"]), note="at most on a GPU, by the joint choice")
    )
    for name, label in (("rtt", "twice the round trip"), ("oversubscription", "twice the oversubscription")):
        slopes, at = point["sensitivity"][name], f" at {cells.text(point['rtt_s'], 's')}" if name == "rtt" else ""
        facts.append(
            Fact(
                label=label, value=f"{_doubled(slopes['default'])} default, {_doubled(slopes['joint'])} joint",
                note=f"of the step{at}; elasticities {_slope(slopes['default'])} and {_slope(slopes['joint'])}",
            )
        )  # fmt: skip
    return Facts(title="What it hangs on", facts=(*facts, _searched(case["space"])))


def _gib(held: float) -> str:
    return f"{held / 2.0**30:.1f} GiB"


def _shape(degrees: Answer) -> str:
    return ", ".join(f"{name} {degrees[name]:g}" for name in DEGREES if degrees[name] not in (None, 1)) or "1 of each"


DEGREES = ("tp", "cp", "pp", "ep", "dp")


def _passes(degrees: Answer) -> Fact:
    """Micro-batches of a pipeline in a step, and the schedules that they are too few for."""
    count, stages = degrees["micro_batches"], degrees["pp"]
    rest = ""
    if count < stages:
        rest = ", too few for any schedule but 1F1B: a larger batch gains more than any choice here"
    elif count < 2 * stages:
        rest = ", too few for zb-h2, zb-v and DualPipe"
    return Fact(label="micro-batches", value=f"{count:g} a step", note=f"through {stages:g} stages{rest}")


def _open(case: Answer) -> list[Fact]:
    """What other degrees would do; nothing where they were not asked."""
    other, label = case["open_degrees"], "degrees open too"
    if other is None:
        return []
    if _shape(other["degrees"]) == _shape(case["degrees"]):
        return (
            []
            if case["degrees"]["pinned"]
            else [Fact(label=label, value="the same", note="the next best sets are no faster")]
        )
    return [
        Fact(
            label=label,
            value=faster(other["speedup"]),
            note=f"than the production default, with {_shape(other['degrees'])}",
        )
    ]


def _searched(space: Answer) -> Fact:
    """How many choices there were, and how many had to be priced."""
    rest = "no other can be faster" if space["optimal"] else "stopped there"
    note = f"{space['plans']:,} plans on {space['networks']:,} networks; {space['evaluated']:,} priced, {rest}"
    return Fact(label="choices", value=f"{space['feasible']:,}", note=note)


def _doubled(slope: float | None) -> str:
    """What a factor of two does to the step at an elasticity."""
    return cells.MISSING if slope is None else f"{100 * (2.0**slope - 1.0):+.1f} %"


def _slope(slope: float | None) -> str:
    return cells.MISSING if slope is None else f"{slope:.2f}"


# ---- over networks and clusters --------------------------------------------------------------------------------------------------


def cluster(case: Answer) -> str:
    """A case in words."""
    return f"{case['model']} on {case['gpus']:,} GPUs in {case['buildings']} buildings"


def _cases(cases: Sequence[Answer]) -> Table:
    """A row a cluster: least and most gain over its networks, and what wins where."""
    rows = []
    for case in cases:
        points = case["points"]
        gains = sorted(point["speedup"]["joint"]["value"] for point in points)
        most = max(points, key=lambda point: point["speedup"]["joint"]["value"])
        wins = dict.fromkeys(point["winner"] for point in points)
        counts = {word: sum(point["winner"] == word for point in points) for word in wins}
        ordered = sorted(counts, key=lambda word: -counts[word])
        rows.append({
            "model": case["model"], "cluster": f"{case['buildings']} × {case['gpus'] // case['buildings']:,}", "degrees": _short(case["degrees"]),
            "mfu": points[case["own"]]["default"]["mfu"], "median": gain(statistics.median(gains)), "most": gain(gains[-1]), "at": network_text(most).replace(":1 over ", ":1, "),
            "single": gain(max(point["over_best_single"] for point in points)),
            "wins": ", ".join(f"{counts[word]} {placed(word)}" for word in ordered),
        })  # fmt: skip
    columns = (
        Column(key="model", title="model"),
        Column(key="cluster", title="buildings × GPUs"),
        Column(key="degrees", title="tp·pp·ep", drop=3),
        Column(key="mfu", title="MFU", unit="%", drop=4),
        Column(key="median", title="median"),
        Column(key="most", title="most"),
        Column(key="at", title="at", drop=2),
        Column(key="single", title="single", drop=1),
        Column(key="wins", title="networks won by", wide=True),
    )
    caption = f"Median and most: over the production default, whose MFU it is; single: over the best single change. {_pipelines(cases)}"
    return Table(title=CLUSTERS, columns=columns, rows=tuple(rows), caption=caption)


def _pipelines(cases: Sequence[Answer]) -> str:
    """How often pipelines across buildings beat gradients: on production's network, and on the best one."""
    points = [point for case in cases for point in case["points"]]
    pairs = [(point["two"]["placement+schedule"]["placement"], point["winner"]) for point in points]
    usual, best = (sum(pair[at].startswith("pp") for pair in pairs) for at in (0, 1))
    return f"Pipelines cross on {usual:,} of {len(points):,} with production's network, on {best:,} with the best."


def _short(degrees: Answer) -> str:
    return "·".join(f"{degrees[name]:g}" for name in ("tp", "pp", "ep"))


def _points(case: Answer) -> Table:
    """A row a network of one cluster."""
    rows = [
        {
            "oversubscription": f"{point['oversubscription']:.3g}:1", "distance": point["distance_km"],
            "default": point["default"]["step_s"], "joint": point["joint"]["step_s"], "faster": gain(point["speedup"]["joint"]["value"]),
            "one": f"{gain(point['speedup'][point['best_single']]['value'])} {point['best_single']}", "winner": placed(point["winner"]),
            "holds": f"{point['bottleneck']['joint']['term']} {100 * point['bottleneck']['joint']['share']:.0f} %",
            "yours": "yours" if point["own"] else "",
        }
        for point in case["points"]
    ]  # fmt: skip
    columns = (
        Column(key="oversubscription", title="oversub."),
        Column(key="distance", title="distance", unit="km"),
        Column(key="default", title="default", unit="s", drop=1),
        Column(key="joint", title="joint", unit="s"),
        Column(key="faster", title="faster"),
        Column(key="one", title="best single", drop=2),
        Column(key="winner", title="placement", wide=True),
        Column(key="holds", title="still waits for", wide=True, drop=4),
        Column(key="yours", title=""),
    )
    return Table(title="Networks", columns=columns, rows=tuple(rows))


def _purchases(case: Answer) -> Table:
    """What could be bought, or set for nothing, at the own network: the plan found anew with it."""
    rows = tuple(
        {
            "says": one["says"], "from": one["from"], "to": one["to"], "faster": faster(one["speedup"]).removesuffix(" faster"),
            "worth": _worth(one),
        }
        for one in sorted(case["purchases"], key=lambda one: -float(one["speedup"]["value"]))
    )  # fmt: skip
    columns = (
        Column(key="says", title="", wide=True),
        Column(key="from", title="from"),
        Column(key="to", title="to"),
        Column(key="faster", title="faster than the joint plan"),
        Column(key="worth", title="worth a GPU-hour", drop=1),
    )
    told = "Each by itself, the plan chosen anew; worth: the rent that the GPUs save, and so the most to pay for it."
    return Table(title="What to buy", columns=columns, rows=rows, caption=told)


def _worth(one: Answer) -> str:
    """Rent that a purchase saves, that it is none, or that it saves none."""
    each = one["worth_usd_per_gpu_h"]
    if one["free"] or each is None:
        return "free" if one["free"] else cells.MISSING
    return f"${each:.2f}" if each >= CENT / 2.0 else "nothing"


CENT = 0.01
"""USD."""


def _published(answer: Answer) -> Facts:
    """What ScaleAcross Explorer reports, and whether, where and why it is reached here."""
    return Facts(title="Published maxima", facts=tuple(Fact(**row) for row in answer["published"]["rows"]))


def _refused(cases: Sequence[Answer]) -> Notes:
    lines = tuple(f"{cluster(case)}: {case['why']}" for case in cases if not case["feasible"])
    return Notes(title="Left out", lines=lines)


def _again(command: str, saved: str) -> tuple[str, ...]:
    """What to type: the question again where nothing was saved."""
    asked = "" if saved else f"{command} --save joint.yaml && ".lstrip()
    return (f"{asked}shardmeter predict {shlex.quote(saved or 'joint.yaml')}",)


# ---- CSV -------------------------------------------------------------------------------------------------------------------------

COLUMNS = (
    "model", "buildings", "gpus", "oversubscription", "distance_km", "rtt_s", "may_change", "placement", "schedule", "network", "step_s",
    "tokens_per_s", "mfu", "memory_peak", "speedup", "speedup_low", "speedup_high",
)  # fmt: skip
"""Of CSV: a row a network and what may change."""


def _flat(answer: Answer) -> Iterator[Row]:
    for case in answer["cases"]:
        for point in case["points"]:
            choices = {
                "nothing": point["default"],
                **point["one"],
                **point["two"],
                "placement+schedule+network": point["joint"],
            }
            for name, choice in choices.items():
                key = "joint" if choice is point["joint"] else name
                ratio = point["speedup"].get(key, {"value": 1.0, "low": 1.0, "high": 1.0})
                yield {
                    **{field: case[field] for field in COLUMNS[:3]}, **{field: point[field] for field in COLUMNS[3:6]},
                    "may_change": name, **{field: choice[says(field)] for field in DIMENSIONS},
                    **{field: choice[field] for field in ("step_s", "tokens_per_s", "mfu", "memory_peak")},
                    "speedup": ratio["value"], "speedup_low": ratio["low"], "speedup_high": ratio["high"],
                }  # fmt: skip
