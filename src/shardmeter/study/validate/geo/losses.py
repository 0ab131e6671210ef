"""Losses of trained models: synchronous ones by a law of other papers, those of replicas by a synchronous run beside them and what
replicas lost in other papers.

A synchronous run of the same paper, parameters and tokens is known before its replicas are trained: it takes the place of a law
that was recalibrated. No row of the paper itself goes into the law or into the gap of the replicas.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence

from shardmeter.core.record import record
from shardmeter.physics.convergence import law_loss
from shardmeter.scenario.catalog import Catalog
from shardmeter.specs import LossLaw
from shardmeter.study.validate.geo.cells import delay, number, value_of
from shardmeter.study.validate.geo.vocabulary import method_of, plain, quantity_of
from shardmeter.study.validate.rows import NotModelled, Row, Unclear
from shardmeter.sync import measured_gap, was_measured

BILLION = 1e9
SYNCHRONOUS = ("data_parallel", "single")
MEASURED = ("diloco", "streaming_diloco")
"""Methods of whose replicas there are measured losses of more than one paper."""
PAPER = re.compile(r"(?:arxiv[: ]*)?([0-9]{4}\.[0-9]{5})", re.IGNORECASE)
NEAR_RATIO = 1.35
"""Tokens a parameter may be off by this factor from those of a law that holds at one ratio only."""
FREE_DELAY = 5.0
"""Inner steps of delay below which none was seen to cost anything."""


@record
class Base:
    """A synchronous run of a file."""

    papers: frozenset[str]
    text: str
    """Its quantity, as plain text."""
    loss: float


Bases = Mapping[tuple[float, float], Sequence[Base]]
"""By parameters and tokens, both in billions."""


def papers(row: Row) -> frozenset[str]:
    """The numbers of the papers that a source names."""
    return frozenset(PAPER.findall(row.text("source")))


def bases(rows: Sequence[Row]) -> Bases:
    """The synchronous runs of a file."""
    found: dict[tuple[float, float], list[Base]] = {}
    for row in rows:
        try:
            name = quantity_of(row.text("quantity"), row.text("unit")).name
            size, tokens = number(row, "params_b"), number(row, "tokens_b")
            if name != "loss" or method_of(row.text("method")) not in SYNCHRONOUS or size is None or tokens is None:
                continue
            value = value_of(row)
        except (NotModelled, Unclear):
            continue
        if value.exact:
            one = Base(papers=papers(row), text=plain(row.text("quantity")), loss=value.low)
            found.setdefault((size, tokens), []).append(one)
    return found


def loss(row: Row, known: Bases, catalog: Catalog) -> float:
    """What a row's loss should be, in its unit. Raises NotModelled."""
    if "byte" in row.text("unit").casefold():
        raise NotModelled("no law of losses per byte is known")
    if re.search(r"\b(gap|difference|increase)\b", plain(row.text("quantity"))):
        raise NotModelled("a difference of losses whose baseline the row does not state")
    method = method_of(row.text("method"))
    if method in SYNCHRONOUS:
        return _by_law(row, catalog)
    if method not in MEASURED:
        raise NotModelled(f"losses of {method} were measured in no paper but the row's own")
    return _base(row, known) * math.exp(_gap(row))


def perplexity(row: Row, known: Bases, catalog: Catalog) -> float:
    """The exponential of the loss. Raises NotModelled."""
    return math.exp(loss(row, known, catalog))


def _gap(row: Row) -> float:
    """Log of a replica's loss over the synchronous one, from papers that are not the row's. Raises NotModelled."""
    cells, period, size = number(row, "islands_m"), number(row, "h"), number(row, "params_b")
    if cells is None or period is None or size is None:
        raise NotModelled("replicas, steps of a round or parameters are not stated")
    late = delay(row, "overlap_tau_steps")
    if late is not None and late >= FREE_DELAY:
        raise NotModelled("what so long a delay costs was measured in the row's own paper only")
    if not was_measured(cells, size * BILLION, period):
        raise NotModelled(f"{cells:g} replicas, H = {period:g}, {size:g}B: outside of the measured runs")
    own = papers(row)
    return float(measured_gap(cells, size * BILLION, period, f"arXiv:{min(own)}" if own else ""))


def _base(row: Row, known: Bases) -> float:
    """The synchronous run beside a row: of its paper, as large and as long, by the same words where there are several. Raises NotModelled."""
    size, tokens = number(row, "params_b"), number(row, "tokens_b")
    found = known.get((size, tokens), ()) if size is not None and tokens is not None else ()
    found = [one for one in found if one.papers & papers(row)]
    same = [one for one in found if one.text == plain(row.text("quantity"))] or found
    if len({one.loss for one in same}) != 1:
        raise NotModelled("no synchronous run of the same paper, parameters and tokens stands beside it")
    return same[0].loss


def _by_law(row: Row, catalog: Catalog) -> float:
    """The loss by a law of the row's data that another paper fitted, one that holds at one ratio of tokens, moved to the
    row's. Raises NotModelled."""
    size, tokens = number(row, "params_b"), number(row, "tokens_b")
    if size is None or tokens is None:
        raise NotModelled("parameters or tokens are not stated")
    words, own = plain(row.text("quantity")).split(), papers(row)
    laws = [
        law for law in map(catalog.law, catalog.names("laws"))
        if law.data.casefold() in words and not own & set(PAPER.findall(law.source))
    ]  # fmt: skip
    law = next((one for one in laws if one.tokens_per_parameter is not None and _holds(one, size, tokens)), None)
    if law is None:
        raise NotModelled("no law of its data in its range was fitted by another paper")
    beside = next((one for one in laws if one.b), None)
    return _at(law, size, tokens) + (0.0 if beside is None else _moved(law, beside, size, tokens))


def _moved(law: LossLaw, beside: LossLaw, size: float, tokens: float) -> float:
    """What other tokens a parameter than those of a law change, by the data term of a law of both on the same data."""
    return _at(beside, size, tokens) - _at(beside, size, size * float(law.tokens_per_parameter or 1.0))


def _at(law: LossLaw, size: float, tokens: float) -> float:
    """A law's loss at billions of parameters and tokens."""
    n, d = size * BILLION, tokens * BILLION
    return float(law_loss(n, d, law.irreducible, law.a, law.alpha, law.b, law.beta, law.gamma))


def _holds(law: LossLaw, size: float, tokens: float) -> bool:
    """Whether billions of parameters and tokens lie within the range of a law that holds at one ratio of the two."""
    least, most = law.parameters_least or math.inf, law.parameters_most or 0.0
    off = tokens / size / float(law.tokens_per_parameter or math.inf)
    return bool(least <= size * BILLION <= most and 1.0 / NEAR_RATIO <= off <= NEAR_RATIO)
