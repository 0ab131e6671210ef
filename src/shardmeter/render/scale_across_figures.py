"""Figures of a search across buildings: which placement wins where, and how much faster the joint choice is."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from shardmeter.render.figure import Field, Figure, Line, Mark, Scale
from shardmeter.render.scale_across_words import WORTH, first, gain, network_text, placed

Answer = Mapping[str, Any]
LEAST_KM = 1.0
"""Kilometres from which distances are drawn in factors; nearer ones lie there."""


def figures(answer: Answer) -> tuple[Figure, ...]:
    """Of one cluster the map of placements and the speed-up over distance; of several a map and a field of gains for every model."""
    cases = [case for case in answer["cases"] if case["points"]]
    distances, rates = answer["question"]["distance_km"], answer["question"]["oversubscription"]
    if not cases or len(distances) < 2:
        return ()
    if len(cases) == 1:
        maps = (_winners(answer, cases[0]), _speedups(answer, cases[0])) if len(rates) > 1 else ()
        return (*maps, _dimensions(answer, cases[0]))
    models = list(dict.fromkeys(case["model"] for case in cases))
    made: list[Figure] = []
    for model in models:
        made += _of_model(answer, [case for case in cases if case["model"] == model])
    return tuple(made)


def _grid(case: Answer) -> dict[tuple[float, float], Answer]:
    """The points of a case by oversubscription and distance."""
    return {(point["oversubscription"], point["distance_km"]): point for point in case["points"]}


def _across(distances: Sequence[float]) -> tuple[Scale, tuple[float, ...]]:
    """The axis of distances, and where they lie."""
    return Scale(title="distance between buildings", unit="km", log=True), tuple(
        max(far, LEAST_KM) for far in distances
    )


# ---- one cluster -----------------------------------------------------------------------------------------------------------------


def _winners(answer: Answer, case: Answer) -> Figure:
    """The placement of the joint choice over distance and oversubscription."""
    far, over = answer["question"]["distance_km"], answer["question"]["oversubscription"]
    grid = _grid(case)
    words = _words(case["points"])
    scale, x = _across(far)
    values = tuple(tuple(_place(grid.get((rate, one)), words) for one in far) for rate in over)
    return Figure(
        slug="winners", title=first(_won(case["points"], words)), x=scale, y=Scale(title="oversubscription between buildings", log=True),
        field=Field(x=x, y=tuple(over), values=values, scale=Scale(title="what crosses buildings", labels=tuple(map(placed, words)))),
        marks=_yours(case), caption=(_what(case), CROSSES),
    )  # fmt: skip


BAND = "The band is the 90 % interval of all three, of the ratio of two plans."
CROSSES = "What crosses buildings in the fastest choice of placement, schedule and network."


def _words(points: Sequence[Answer]) -> list[str]:
    """Placements that win somewhere, the most frequent first."""
    won = [point["winner"] for point in points]
    return sorted(dict.fromkeys(won), key=lambda word: (-won.count(word), word))


def _place(point: Answer | None, words: Sequence[str]) -> float | None:
    return None if point is None else float(words.index(point["winner"]))


def _won(points: Sequence[Answer], words: Sequence[str]) -> str:
    """Up to where gradients should cross and from where on pipelines, where that is so; else which placement wins how often."""
    if len(words) == 1:
        return f"{placed(words[0])} across buildings wins everywhere on this map"
    far = sorted({point["distance_km"] for point in points})
    most = [
        2 * sum(point["winner"].startswith(DP) for point in points if point["distance_km"] == one) > _count(points, one)
        for one in far
    ]
    turn = most.index(False) if False in most else len(far)
    sharded = any(word.startswith(SHARDS) for word in words)
    if 0 < turn < len(far) and not any(most[turn:]) and not sharded:
        return f"data parallel wins most places up to {far[turn - 1]:,.0f} km, pipelines from {far[turn]:,.0f} km on"
    won = [point["winner"] for point in points]
    rest = ", ".join(f"{placed(word)} in {won.count(word)}" for word in words[1:4])
    return f"{placed(words[0])} across buildings wins in {won.count(words[0])} of {len(won)} places; {rest}"


DP, SHARDS = "dp", "dp_shard"
"""What words of placements begin with by which no pipeline crosses, and of these by which shards do."""


def _count(points: Sequence[Answer], far: float) -> int:
    return sum(point["distance_km"] == far for point in points)


def _what(case: Answer) -> str:
    return f"{case['model']} on {case['gpus']:,} GPUs in {case['buildings']} buildings."


def _yours(case: Answer) -> tuple[Mark, ...]:
    own = [point for point in case["points"] if point["own"]]
    return tuple(
        Mark(says="yours", x=max(point["distance_km"], LEAST_KM), y=point["oversubscription"]) for point in own
    )


def _speedups(answer: Answer, case: Answer) -> Figure:
    """How much faster the joint choice is than the default, a line an oversubscription."""
    far, over = answer["question"]["distance_km"], answer["question"]["oversubscription"]
    grid = _grid(case)
    scale, x = _across(far)
    most = max(case["points"], key=lambda point: point["speedup"]["joint"]["value"])
    banded = most["oversubscription"]  # of one line: those of all lie over one another
    lines = [
        _gained(f"{rate:.3g}:1 oversubscribed", "joint", x, [grid.get((rate, one)) for one in far], band=rate == banded)
        for rate in over
    ]
    return Figure(
        slug="speedup", title=f"All three chosen together: up to {gain(most['speedup']['joint']['value'])} faster, at {network_text(most)}",
        x=scale, y=Scale(title="faster than the production default", unit="%"), lines=tuple(lines),
        caption=(_what(case), f"The band is the 90 % interval at {banded:.3g}:1, of the ratio of two plans."),
    )  # fmt: skip


ALONE = ("placement", "schedule", "network")
SINGLE = "no more than the best single change"


def _dimensions(answer: Answer, case: Answer) -> Figure:
    """What every dimension gives alone, beside all three, at the oversubscription nearest to the scenario's."""
    own = case["points"][case["own"]]["oversubscription"]
    rate = min(answer["question"]["oversubscription"], key=lambda one: abs(one - own))
    grid = _grid(case)
    points = [grid[rate, far] for far in answer["question"]["distance_km"] if (rate, far) in grid]
    scale, x = _across([point["distance_km"] for point in points])
    lines = [_gained("all three", "joint", x, points, band=True)]
    lines += [_gained(f"{name} alone", name, x, points, band=False) for name in ALONE]
    best = max(points, key=lambda point: point["over_best_single"], default=case["points"][case["own"]])
    more = best["over_best_single"]
    found = f"up to {gain(more)} more than the best single change, at {best['distance_km']:,.0f} km"
    return Figure(
        slug="dimensions", title=f"At {rate:.3g}:1 together: {found if more >= WORTH else SINGLE}", x=scale,
        y=Scale(title="faster than the production default", unit="%"), lines=tuple(lines), caption=(_what(case), BAND),
    )  # fmt: skip


def _gained(label: str, key: str, x: tuple[float, ...], points: Sequence[Answer | None], *, band: bool) -> Line:
    """What a choice adds to the default's speed, point by point."""
    ratios = [None if point is None else point["speedup"][key] for point in points]
    y, low, high = (
        tuple(None if one is None else one[end] - 1.0 for one in ratios) for end in ("value", "low", "high")
    )
    return Line(label=label, x=x, y=y, low=low if band else (), high=high if band else ())


# ---- several clusters ------------------------------------------------------------------------------------------------------------


def _of_model(answer: Answer, cases: Sequence[Answer]) -> tuple[Figure, ...]:
    """The map of placements and the field of gains of one model, a row a cluster, at the oversubscription nearest to the scenario's."""
    first_own = cases[0]["points"][cases[0]["own"]]["oversubscription"]
    rates, far = answer["question"]["oversubscription"], answer["question"]["distance_km"]
    rate = min(rates, key=lambda one: abs(one - first_own))
    rows = sorted(cases, key=lambda case: (-case["buildings"], -case["gpus"]))
    names = tuple(f"{case['buildings']} × {case['gpus'] // case['buildings']:,}" for case in rows)
    grids = [_grid(case) for case in rows]
    points = [[grid.get((rate, one)) for one in far] for grid in grids]
    held = [point for row in points for point in row if point is not None]
    words = _words(held)
    scale, x = _across(far)
    upright, y = Scale(title="buildings × GPUs of each", labels=names), tuple(float(at) for at in range(len(rows)))
    won = tuple(tuple(_place(point, words) for point in row) for row in points)
    ratios = tuple(
        tuple(None if point is None else point["speedup"]["joint"]["value"] for point in row) for row in points
    )
    most = max((point["speedup"]["joint"]["value"] for point in held), default=1.0)
    model = str(cases[0]["model"])
    slug = re.sub(r"[^a-z0-9]+", "-", model.lower()).strip("-")
    return (
        Figure(
            slug=f"winners-{slug}", title=f"{model}: {_won(held, words)}", x=scale, y=upright,
            field=Field(x=x, y=y, values=won, scale=Scale(title="what crosses buildings", labels=tuple(map(placed, words)))),
            caption=(CROSSES, _moved(grids, rates, far, rate)[0]),
        ),
        Figure(
            slug=f"speedup-{slug}", title=f"{model}: together up to {most:.2f} times as fast as the production default", x=scale, y=upright,
            field=Field(x=x, y=y, values=ratios, scale=Scale(title="speed over the production default's", unit="×", log=True)),
            caption=("Placement, schedule and network chosen together.", _alone(held), _moved(grids, rates, far, rate)[1]),
        ),
    )  # fmt: skip


def _alone(points: Sequence[Answer]) -> str:
    """How much of the gains the best single change has, and which that is."""
    best = [point["best_single"] for point in points if point["speedup"]["joint"]["value"] >= WORTH]
    if not best:
        return ""
    word = max(ALONE, key=best.count)
    more = gain(max(point["over_best_single"] for point in points))
    return f"The best single change, at {best.count(word)} of {len(best)} the {word}, comes within {more} of it."


def _moved(
    grids: Sequence[Mapping[Any, Answer]], rates: Sequence[float], far: Sequence[float], rate: float
) -> tuple[str, str]:
    """What another oversubscription changes, in a sentence about winners and one about gains."""
    at = f"At {rate:.3g}:1 oversubscribed"
    if len(rates) < 2:
        return f"{at}.", f"{at}."
    columns = [[grid[one, way] for one in rates if (one, way) in grid] for grid in grids for way in far]
    others = sum(len({point["winner"] for point in column}) > 1 for column in columns)
    spans = [[point["speedup"]["joint"]["value"] for point in column] for column in columns if column]
    most = max((max(span) - min(span) for span in spans), default=0.0)
    ends = f"{min(rates):.3g}:1 to {max(rates):.3g}:1"
    return (
        f"{at}; from {ends} the winner changes at {others} of {len(columns)} places.",
        f"{at}; from {ends} no place changes by more than {most:.2f}×.",
    )
