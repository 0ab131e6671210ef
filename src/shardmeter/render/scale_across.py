"""The page of a search across buildings: what to do and what it gains, each dimension alone and together, where which placement wins."""

from __future__ import annotations

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


def document(answer: Answer, heading: str = "", *, command: str = "", short: bool = False) -> Document:
    """A `plan --scale-across` JSON as a document. `short` leaves out what was assumed; `command` asks the same again."""
    cases = [case for case in answer["cases"] if case["points"]]
    drawn = figures(answer)
    sections: list[Section] = []
    if len(cases) > 1:
        case, point = max(
            ((case, point) for case in cases for point in case["points"]),
            key=lambda one: one[1]["speedup"]["joint"]["value"],
        )
        sections += [
            _cases(cases),
            *_of_case(case, point, f"Where it gains most: {cluster(case)}, {network_text(point)}"),
        ]
    elif cases:
        point = cases[0]["points"][cases[0]["own"]]
        sections += _of_case(cases[0], point, f"What to change: {network_text(point)}")
    sections += [figure for figure in drawn if _tells(figure)][: 2 if len(cases) == 1 else 1]
    if cases:
        if len(cases) == 1 and len(cases[0]["points"]) > 1:
            sections.append(_points(cases[0]))
        sections += [*([_purchases(cases[0])] if len(cases) == 1 else ()), _published(answer)]
    sections.append(_refused(answer["cases"]))
    if cases and cases[0]["plans"] and not short:
        sections.append(Notes(title="To predict the joint plan", lines=_again(command)))
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
        return _headline(cases[0]["points"][cases[0]["own"]])
    points = [point for case in cases for point in case["points"]]
    gains = sorted(point["speedup"]["joint"]["value"] for point in points)
    most = max(points, key=lambda point: point["speedup"]["joint"]["value"])
    little = sum(one < LITTLE for one in gains)
    return (
        f"Over {len(cases)} clusters and {len(points)} networks the joint choice is up to {gain(gains[-1])} faster than the production default, "
        f"{gain(statistics.median(gains))} at the median, less than {gain(LITTLE)} at {little}. Most: {network_text(most)}, {_doing(most)}."
    )


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
    facts += _open(case) if point is case["points"][case["own"]] else []
    if removed["term"] is not None:
        less = f"{cells.text(removed['seconds'], 's')} less of it a step"
        facts.append(Fact(label="what goes", value=removed["term"], note=less))
    if left["term"]:
        facts.append(
            Fact(label="what stays", value=left["term"], note=f"{100 * left['share']:.0f} % of the joint step")
        )
    for name, label in (("rtt", "twice the round trip"), ("oversubscription", "twice the oversubscription")):
        slopes = point["sensitivity"][name]
        facts.append(
            Fact(
                label=label, value=f"{_doubled(slopes['default'])} default, {_doubled(slopes['joint'])} joint",
                note=f"of the step; elasticities {_slope(slopes['default'])} and {_slope(slopes['joint'])}",
            )
        )  # fmt: skip
    return Facts(title="What it hangs on", facts=(*facts, _searched(case["space"])))


def _shape(degrees: Answer) -> str:
    return ", ".join(f"{name} {degrees[name]:g}" for name in DEGREES if degrees[name] not in (None, 1)) or "1 of each"


DEGREES = ("tp", "cp", "pp", "ep", "dp")


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
    note = f"{space['plans']:,} plans on {space['networks']:,} networks; {space['evaluated']:,} priced in {space['seconds']:.1f} s, {rest}"
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
            "model": case["model"], "buildings": case["buildings"], "gpus": case["gpus"], "degrees": _short(case["degrees"]),
            "median": gain(statistics.median(gains)), "most": gain(gains[-1]), "at": network_text(most),
            "single": gain(max(point["over_best_single"] for point in points)),
            "wins": ", ".join(f"{counts[word]} {placed(word)}" for word in ordered),
        })  # fmt: skip
    columns = (
        Column(key="model", title="model"),
        Column(key="buildings", title="buildings"),
        Column(key="gpus", title="GPUs"),
        Column(key="degrees", title="tp·pp·ep", drop=3),
        Column(key="median", title="median"),
        Column(key="most", title="most"),
        Column(key="at", title="at", drop=2),
        Column(key="single", title="over one alone", drop=1),
        Column(key="wins", title="networks won by", wide=True),
    )
    caption = "Median and most: how much faster the joint choice is than the production default; over one alone: than the best single change."
    return Table(title=CLUSTERS, columns=columns, rows=tuple(rows), caption=caption)


def _short(degrees: Answer) -> str:
    return "·".join(f"{degrees[name]:g}" for name in ("tp", "pp", "ep"))


def _points(case: Answer) -> Table:
    """A row a network of one cluster."""
    rows = [
        {
            "oversubscription": f"{point['oversubscription']:g}:1", "distance": point["distance_km"], "rtt": point["rtt_s"],
            "default": point["default"]["step_s"], "joint": point["joint"]["step_s"], "faster": gain(point["speedup"]["joint"]["value"]),
            "one": f"{gain(point['speedup'][point['best_single']]['value'])} {point['best_single']}", "winner": placed(point["winner"]),
            "holds": f"{point['bottleneck']['joint']['term']} {100 * point['bottleneck']['joint']['share']:.0f} %",
            "yours": "yours" if at == case["own"] else "",
        }
        for at, point in enumerate(case["points"])
    ]  # fmt: skip
    columns = (
        Column(key="oversubscription", title="oversub."),
        Column(key="distance", title="distance", unit="km"),
        Column(key="rtt", title="rtt", unit="s", drop=3),
        Column(key="default", title="default", unit="s", drop=1),
        Column(key="joint", title="joint", unit="s"),
        Column(key="faster", title="faster"),
        Column(key="one", title="best single", drop=2),
        Column(key="winner", title="placement"),
        Column(key="holds", title="then holds it", drop=4),
        Column(key="yours", title=""),
    )
    return Table(title="Networks", columns=columns, rows=tuple(rows))


def _purchases(case: Answer) -> Table | Notes:
    """What could be bought, or set for nothing, at the own network: the plan found anew with it; what gains next to nothing is named."""
    ordered = sorted(case["purchases"], key=lambda one: -one["speedup"]["value"])
    pays = [one for one in ordered if one["speedup"]["value"] >= PAYS]
    rest = ", ".join(one["says"].partition(":")[0] for one in ordered if one not in pays)
    caption = f"Less than {gain(PAYS)} each: {rest}." if rest else ""
    if not pays:
        return Notes(title=BUY, lines=(caption,) if rest else ())
    rows = tuple(
        {
            "says": one["says"], "from": one["from"], "to": one["to"], "faster": faster(one["speedup"]).removesuffix(" faster"),
            "worth": _worth(one),
        }
        for one in pays
    )  # fmt: skip
    columns = (
        Column(key="says", title="", wide=True),
        Column(key="from", title="from"),
        Column(key="to", title="to"),
        Column(key="faster", title="faster than the joint plan"),
        Column(key="worth", title="worth a GPU-hour", drop=1),
    )
    told = "Each by itself, the plan chosen anew; worth: the rent that the GPUs save at most."
    return Table(title=BUY, columns=columns, rows=rows, caption=f"{told} {caption}".rstrip())


BUY = "What to buy"
PAYS = 1.005
"""Speed-up from which a purchase is a row."""


def _worth(one: Answer) -> str:
    """Rent that a purchase saves, or that it is none."""
    each = one["worth_usd_per_gpu_h"]
    return "free" if one["free"] else cells.MISSING if each is None else f"${each:.2f}"


def _published(answer: Answer) -> Notes:
    return Notes(title="Published maxima", lines=tuple(map(first, answer["published"]["says"])))


def _refused(cases: Sequence[Answer]) -> Notes:
    lines = tuple(f"{cluster(case)}: {case['why']}" for case in cases if not case["feasible"])
    return Notes(title="Left out", lines=lines)


def _again(command: str) -> tuple[str, ...]:
    asked = f"{command} " if command else ""
    return (
        f"{asked}--format json > joint.json; its cases[0].plans[0].scenario in a file of its own: shardmeter predict FILE.json",
    )


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
