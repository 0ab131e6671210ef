"""Every row of a file of runs across islands: predicted, skipped, excluded or an identity, each with its reason."""

from __future__ import annotations

import csv
import math
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import cache

from shardmeter import data
from shardmeter.core.record import changed, record
from shardmeter.scenario.catalog import Catalog
from shardmeter.study.validate.geo import bandwidth, collectives, identities, losses, pipelines, runs
from shardmeter.study.validate.geo.cells import first, link, number, stated, value_of, written
from shardmeter.study.validate.geo.vocabulary import Quantity, kind_of_row, method_of, quantity_of, si, source_of
from shardmeter.study.validate.predictions import Predict
from shardmeter.study.validate.rows import Damaged, NotModelled, Row, Unclear

EXCLUSIONS_FILE = "geo/exclusions.csv"
TOLERANCE = 0.005
"""Identities agree within this share, or within half of the last digit that is printed."""
BOUND = "the value is a bound or a range, not a number"


@record
class Predictor:
    """What predicts a quantity, in SI, from a row alone; `left_out`: the same with constants that have not seen the row's case,
    None where the constants were fitted on no row."""

    predict: Callable[[Row], float]
    left_out: Callable[[Row], float] | None = None


COLLECTIVES: Mapping[str, str] = {
    "all_reduce_time": "allreduce", "broadcast_time": "broadcast", "reduce_time": "reduce", "p2p_time": "p2p",
    "dp_sync_all_reduce_time": "dp_sync_allreduce", "dp_sync_central_time": "dp_sync_centralized_ps",
    "dp_sync_sharded_time": "dp_sync_sharded_ps",
}  # fmt: skip
"""The word of `collectives` for a canonical quantity."""
MIB = {"k": 2.0**-10, "m": 1.0, "g": 2.0**10}


def collective_time(row: Row) -> float:
    """Seconds of one collective; sizes are read in any spelling. Raises NotModelled, Unclear."""
    text = row.text("quantity")
    size = first(text, r"([0-9.]+) ?[KMG]i?B\b")
    if size is None:
        raise Unclear("the size of the message is not stated")
    scale = next(MIB[letter] for letter in re.findall(r"[0-9.] ?([kmg])i?b\b", text.casefold()))
    word = COLLECTIVES[quantity_of(text, row.text("unit")).name]
    library = "NCCL/TCP" if "nccl" in row.text("method").casefold() else row.text("method")
    texts = {"quantity": f"{word} time {size * scale:.12g} MB", "method": library, "wan_gbps": written(row, "wan_gbps")}
    return collectives.predict_row({**row.cells, **texts})


def _sound(row: Row) -> Mapping[str, str]:
    """The cells of a row whose numbers a pipeline can be made of. Raises Damaged."""
    for column in ("n_layers", "global_batch_tokens", "gpus_per_island"):
        number(row, column)
    if stated(row, "wan_gbps") is not None:  # a cell may also name the file that holds it
        link(row)
    trip = stated(row, "rtt_ms")
    if trip is not None and math.isinf(trip.low):
        raise Damaged("rtt_ms", "is not finite", "a number of 0 or more")
    return row.cells


PREDICTORS: Mapping[str, Predictor] = {
    **dict.fromkeys(COLLECTIVES, Predictor(predict=collective_time)),
    "iteration_time": Predictor(
        predict=lambda row: pipelines.predict_row(_sound(row)), left_out=lambda row: pipelines.left_out(_sound(row))
    ),
    "wan_bandwidth": Predictor(predict=bandwidth.wan_bandwidth),
    "wall_time": Predictor(predict=bandwidth.wall_time),
    "traffic": Predictor(predict=bandwidth.traffic),
    "sync_time": Predictor(predict=runs.sync_time),
    "network_rate": Predictor(predict=runs.network_rate),
    "checkpoint_time": Predictor(predict=runs.checkpoint_time),
}
"""By canonical quantity; what is not here follows from others, or has its predictor in `_predicted`."""

LOSSES: Mapping[str, Callable[[Row, losses.Bases, Catalog], float]] = {
    "loss": losses.loss, "perplexity": losses.perplexity,
}  # fmt: skip
"""What predicts a loss from the other rows of its file and from other papers, by canonical quantity."""

UNPREDICTED: Mapping[str, str] = {
    **dict.fromkeys(
        ("failures", "mtbf"), "how often machines fail is an input of a run (run.failures), not a prediction"
    ),
    "mfu": "which FLOPs its MFU counts is not stated (its times are predicted)",
    **dict.fromkeys(("compute_utilization", "sync_share", "ring_bandwidth"), "the times of its rounds are not stated"),
    **dict.fromkeys(("compression_factor", "round_bytes"), "bits or parameters of a message are not stated"),
}
"""Quantities that follow from others of the same run, and what a row lacks of which they do not."""


@record
class Judged:
    """One row and what became of it: one of `skip`, `exclude`, `due` (an identity) and `predicted` is set. SI throughout."""

    row: Row
    id: str
    source: str
    quantity: str = ""
    method: str = ""
    kind: str = ""
    case: str = ""
    skip: str = ""
    exclude: str = ""
    measured: float = math.nan
    due: float | None = None
    """What an identity must be."""
    rounding: float = 0.0
    """Half of the last printed digit, as a share of the value."""
    predicted: float | None = None
    left_out: float | None = None
    """The prediction of constants that have not seen the row's case."""

    @property
    def fold(self) -> str:
        """Rows of one fold resemble each other: one case, one setting of the network, or one model of a table."""
        return self.case or " ".join(written(self.row, column) for column in ("wan_gbps", "rtt_ms", "params_b"))

    @property
    def groups(self) -> tuple[str, ...]:
        """The groups of the report that the row counts in."""
        return (f"method:{self.method}", f"kind:{self.kind}", *((f"case:{self.case}",) if self.case else ()))


def compare(
    rows: Sequence[Row], catalog: Catalog, predictor: Predict, only: Collection[str] | None = None
) -> tuple[Judged, ...]:
    """Judge all rows of a file, or those of `only` some quantities; `predictor` answers scenarios of islands."""
    known, bases = identities.runs(rows), losses.bases(rows)
    return tuple(_judged(row, known, bases, catalog, predictor) for row in rows if only is None or _named(row) in only)


def _named(row: Row) -> str:
    """The quantity of a row; empty where its words mean none."""
    try:
        return quantity_of(row.text("quantity"), row.text("unit")).name
    except (NotModelled, Unclear):
        return ""


def _judged(row: Row, known: identities.Runs, bases: losses.Bases, catalog: Catalog, predictor: Predict) -> Judged:
    """One row: texts first, then the value, then what it must be, else what is predicted."""
    kind = kind_of_row(row.text("kind"))
    one = Judged(
        row=row,
        id=row.id,
        source=source_of(row.text("source")),
        method=method_of(row.text("method")),
        kind=kind.name,
        case=case_of(row),
    )
    try:
        quantity = quantity_of(row.text("quantity"), row.text("unit"))
        one = changed(one, quantity=quantity.name)
        if reason := kind.exclude or excluded(row, quantity.name):
            return changed(one, exclude=reason)
        measured, rounding = _value(row, quantity)
        one = changed(one, measured=measured, rounding=rounding)
        due = identities.identity(row, quantity.name, known)
        if due is not None:
            return changed(one, due=due)
        predicted, left_out = _predicted(row, quantity.name, bases, catalog, predictor)
    except NotModelled as why:
        return changed(one, skip=str(why))
    except Unclear as why:
        return changed(one, exclude=str(why))
    return changed(one, predicted=predicted, left_out=left_out)


def _value(row: Row, quantity: Quantity) -> tuple[float, float]:
    """(what was measured in SI, half of its last printed digit as a share of it). Raises NotModelled, Unclear."""
    if quantity.skip:
        raise NotModelled(quantity.skip)
    value = value_of(row)
    if not value.exact:
        raise NotModelled(BOUND)
    decimals = re.search(r"[0-9]+(?:\.([0-9]+))?", row.text("value"))
    digits = len(decimals[1]) if decimals and decimals[1] else 0
    return si(value.low, row.text("unit"), quantity.dimension), 0.5 * 10.0**-digits / value.low


def _predicted(
    row: Row, name: str, bases: losses.Bases, catalog: Catalog, predictor: Predict
) -> tuple[float, float | None]:
    """(prediction, prediction of constants that have not seen the row's case). Raises NotModelled, Unclear."""
    if name == "inner_phase_time":
        made = runs.inner_phase_time(row, catalog, predictor)
        return made, made
    if name in LOSSES:
        made = LOSSES[name](row, bases, catalog)
        return made, made
    found = PREDICTORS.get(name)
    if found is None:
        raise NotModelled(UNPREDICTED.get(name, f"no formula predicts {name} yet"))
    made = found.predict(row)
    if not (math.isfinite(made) and made > 0.0):
        raise NotModelled("the prediction is not finite: some number of the row is beyond reason")
    return made, made if found.left_out is None else found.left_out(row)


def case_of(row: Row) -> str:
    """The case of an emulated network that the notes name, as in `case4`; empty where they name none."""
    found = re.search(r"\bcase[ _]?([0-9]+)", row.text("notes"), re.IGNORECASE)
    return f"case{found[1]}" if found else ""


@cache
def _exclusions() -> tuple[tuple[str, str, str, str], ...]:
    with data.open_text(EXCLUSIONS_FILE) as file:
        return tuple((one["id"], one["source"], one["quantity"], one["reason"]) for one in csv.DictReader(file))


def excluded(row: Row, quantity: str) -> str:
    """Why a row does not count, by its id or by its source and quantity; empty if it does."""
    source = row.text("source").casefold()
    for id_, part, name, reason in _exclusions():
        if (id_ and id_ == row.text("id")) or (part and part.casefold() in source and name in ("", quantity)):
            return reason
    return ""
