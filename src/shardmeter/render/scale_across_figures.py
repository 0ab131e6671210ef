"""Figures of a search across buildings: which placement wins where, and how much faster the joint choice is."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from shardmeter.render.figure import Field, Figure, Line, Mark, Scale

Answer = Mapping[str, Any]
LEAST_KM = 1.0
"""Kilometres from which distances are drawn in factors; nearer ones lie there."""
SHORT = {"dp": "data parallel", "pp": "one pipeline", "dp_shard": "sharded parameters"}
"""By the word of a placement: the axis that crosses buildings, for people."""
TURNED = " turned"
"""What a placement's word ends with whose mesh is turned inside a building."""


def placed(word: str) -> str:
    """What crosses buildings, in two words."""
    base = word.partition(" ")[0]
    groups = re.fullmatch(r"pp(\d+)×dp", base)  # noqa: RUF001
    says = f"pipelines of {groups[1]}" if groups else SHORT.get(base, base)
    return f"{says}, turned" if word.endswith(TURNED) else says


def gain(value: float) -> str:
    """A ratio of speeds as what it adds: 23 %, 4.2 %."""
    share = 100.0 * (value - 1.0)
    return f"{share:.0f} %" if abs(share) >= 9.95 else f"{share + 0.0:.1f} %"


def faster(ratio: Answer) -> str:
    """A speed-up with its interval: `23 % (15 to 31 %) faster`."""
    return f"{gain(ratio['value'])} ({gain(ratio['low']).removesuffix(' %')} to {gain(ratio['high'])}) faster"


def network_text(point: Answer) -> str:
    """`4:1 over 80 km`."""
    return f"{point['oversubscription']:.3g}:1 over {point['distance_km']:,.4g} km"


def figures(answer: Answer) -> tuple[Figure, ...]:
    """Of one cluster the map of placements and the speed-up over distance; of several a map and a field of gains for every model."""
    cases = [case for case in answer["cases"] if case["points"]]
    distances, rates = answer["question"]["distance_km"], answer["question"]["oversubscription"]
    if not cases or len(distances) < 2:
        return ()
    if len(cases) == 1:
        maps = (_winners(answer, cases[0]),) if len(rates) > 1 else ()
        return (*maps, _speedups(answer, cases[0]))
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
    words = _words([case])
    scale, x = _across(far)
    values = tuple(tuple(_place(grid.get((rate, one)), words) for one in far) for rate in over)
    return Figure(
        slug="winners", title=_won(case["points"], words), x=scale, y=Scale(title="oversubscription between buildings", unit=":1", log=True),
        field=Field(x=x, y=tuple(over), values=values, scale=Scale(title="what crosses buildings", labels=tuple(map(placed, words)))),
        marks=_yours(case), caption=(_what(case), CROSSES),
    )  # fmt: skip


CROSSES = "What crosses buildings in the fastest choice of placement, schedule and network."


def _words(cases: Sequence[Answer]) -> list[str]:
    """Placements that win somewhere, the most frequent first."""
    won = [point["winner"] for case in cases for point in case["points"]]
    return sorted(dict.fromkeys(won), key=lambda word: (-won.count(word), word))


def _place(point: Answer | None, words: Sequence[str]) -> float | None:
    return None if point is None else float(words.index(point["winner"]))


def _won(points: Sequence[Answer], words: Sequence[str]) -> str:
    """Which placement wins how often, in a sentence."""
    if len(words) == 1:
        return f"{_first(placed(words[0]))} across buildings wins everywhere on this map"
    won = [point["winner"] for point in points]
    rest = ", ".join(f"{placed(word)} {won.count(word)}" for word in words[1:4])
    return f"{_first(placed(words[0]))} across buildings wins {won.count(words[0])} of {len(won)} networks, {rest}"


def _first(text: str) -> str:
    return text[:1].upper() + text[1:]


def _what(case: Answer) -> str:
    return f"{case['model']} on {case['gpus']:,} GPUs in {case['buildings']} buildings."


def _yours(case: Answer) -> tuple[Mark, ...]:
    point = case["points"][case["own"]]
    return (Mark(says="yours", x=max(point["distance_km"], LEAST_KM), y=point["oversubscription"]),)


def _speedups(answer: Answer, case: Answer) -> Figure:
    """How much faster the joint choice is than the default, a line an oversubscription."""
    far, over = answer["question"]["distance_km"], answer["question"]["oversubscription"]
    grid = _grid(case)
    scale, x = _across(far)
    lines = []
    for rate in over:
        ratios = [grid[rate, one]["speedup"]["joint"] if (rate, one) in grid else None for one in far]
        ends = [tuple(None if one is None else one[key] - 1.0 for one in ratios) for key in ("value", "low", "high")]
        lines.append(Line(label=f"{rate:g}:1 oversubscribed", x=x, y=ends[0], low=ends[1], high=ends[2]))
    most = max(case["points"], key=lambda point: point["speedup"]["joint"]["value"])
    return Figure(
        slug="speedup", title=f"All three chosen together: up to {gain(most['speedup']['joint']['value'])} faster, at {network_text(most)}",
        x=scale, y=Scale(title="faster than the production default", unit="%"), lines=tuple(lines),
        caption=(_what(case), "The bands are 90 % intervals of the ratio of two plans."),
    )  # fmt: skip


# ---- several clusters ------------------------------------------------------------------------------------------------------------


def _of_model(answer: Answer, cases: Sequence[Answer]) -> tuple[Figure, ...]:
    """The map of placements and the field of gains of one model on its largest clusters: rows are buildings and oversubscriptions."""
    gpus = max(case["gpus"] for case in cases)
    largest = sorted((case for case in cases if case["gpus"] == gpus), key=lambda case: -case["buildings"])
    over, far = sorted(answer["question"]["oversubscription"], reverse=True), answer["question"]["distance_km"]
    rows = [(case, rate) for case in largest for rate in over]
    names = tuple(f"{case['buildings']} buildings, {rate:g}:1" for case, rate in rows)
    grids = [_grid(case) for case in largest for _ in over]
    points = [[grid.get((rate, one)) for one in far] for grid, (_, rate) in zip(grids, rows, strict=True)]
    words = _words(largest)
    scale, x = _across(far)
    upright = Scale(title="buildings, oversubscription", labels=names)
    y = tuple(float(at) for at in range(len(rows)))
    what = f"{cases[0]['model']} on {gpus:,} GPUs"
    won = tuple(tuple(_place(point, words) for point in row) for row in points)
    gains = tuple(
        tuple(None if point is None else point["speedup"]["joint"]["value"] - 1.0 for point in row) for row in points
    )
    held = [point for row in points for point in row if point is not None]
    most = max(held, key=lambda point: point["speedup"]["joint"]["value"])
    slug = re.sub(r"[^a-z0-9]+", "-", str(cases[0]["model"]).lower()).strip("-")
    return (
        Figure(
            slug=f"winners-{slug}", title=f"{what}: {_won(held, words).lower()}", x=scale, y=upright,
            field=Field(x=x, y=y, values=won, scale=Scale(title="what crosses buildings", labels=tuple(map(placed, words)))),
            caption=(CROSSES,),
        ),
        Figure(
            slug=f"speedup-{slug}", title=f"{what}: up to {gain(most['speedup']['joint']['value'])} faster than the production default",
            x=scale, y=upright, field=Field(x=x, y=y, values=gains, scale=Scale(title="faster than the production default", unit="%")),
            caption=("Placement, schedule and network chosen together.",),
        ),
    )  # fmt: skip
