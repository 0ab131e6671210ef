"""Rows of simulated tables (Douillard et al. 2025): the link that a compute utilisation needs, and hours at a given link.

The tables come from one program: a step of T seconds, its backward the last two thirds, layers of equal length; M islands
exchange 2·(M − 1)/M of what they send over a link of W. Bandwidths are taken from a grid of 50 points, a factor 1.207 apart: what
is printed is the last point at which the utilisation is still missed.
"""

from __future__ import annotations

import numpy as np

from shardmeter import sync
from shardmeter.core.record import changed, record
from shardmeter.core.sums import plain_sum
from shardmeter.core.units import BytesPerS, Fraction, Seconds
from shardmeter.engine.round import Pace, exposure
from shardmeter.specs import Leaving, Replica, Round, Sync
from shardmeter.study.validate.geo.cells import delay, first, link, number
from shardmeter.study.validate.geo.vocabulary import GBIT, kind_of_row, method_of, plain
from shardmeter.study.validate.rows import NotModelled, Row

GRID = np.logspace(-1.0, 3.0, 50)
"""Gbit/s at which the program was run."""
LEAD = 0.55
"""Share of a step behind which an outer message may pass before the step ends: how that program releases gradients."""
STEP_SECONDS = {1e9: 0.1, 10e9: 0.8, 100e9: 4.9, 405e9: 26.0, 671e9: 20.0}
"""Step of the simulated models, by parameters (the table of that program), where a row does not say."""
LAYERS = {1e9: 24.0, 4e9: 36.0, 10e9: 48.0, 100e9: 108.0, 405e9: 126.0, 671e9: 61.0}
"""Their layers, where a row does not say."""
METHODS = {"data_parallel": "every_step", "diloco": "diloco", "streaming_diloco": "streaming_diloco"}
"""Methods of `sync/` by the word of the vocabulary."""
ALIKE = 0.05
"""Parameters that differ by less are one model of these tables."""
FRAGMENT = 3.0
"""Layers of a fragment."""
ISLANDS = 2.0
BITS = 16.0
STEP_TOKENS = 2.0**20
"""Tokens of a step (512 sequences of 2048), where a row does not say."""


@record
class Simulated:
    """One model trained by one method, as the program takes it."""

    parameters: float
    layers: float
    step_time: float
    islands: float
    bits: float
    method: str
    """A file name of `sync/`."""
    steps: float = 1.0
    """Inner steps of a round (H)."""
    fragments: int = 1
    overlap: float = 0.0
    """Inner steps between sending and applying (τ)."""

    @property
    def share(self) -> float:
        """Bytes that an island sends for a byte of an all-reduce."""
        return 2.0 * (self.islands - 1.0) / self.islands


def wan_bandwidth(row: Row) -> float:
    """The bandwidth that the utilisation of a row needs. Raises NotModelled."""
    run, target = simulated(row), target_of(row)
    if target is None or not 0.0 < target < 1.0:
        raise NotModelled("the compute utilisation to reach is not stated, or not between 0 and 100 %")
    return needed(run, target)


def target_of(row: Row) -> float | None:
    """The compute utilisation that a text asks for: `CU=80%`, `to reach 90 % compute utilisation`."""
    percent = first(row.text("quantity"), r"([0-9.]+) ?%")
    return None if percent is None else percent / 100.0


def simulated(row: Row) -> Simulated:
    """What a row simulates. Raises NotModelled where it does not say enough."""
    if kind_of_row(row.text("kind")).name != "simulated":
        raise NotModelled("a real run whose islands and step time are not stated")
    method = method_of(row.text("method"))
    billions = number(row, "params_b") or first(row.text("model"), r"([0-9.]+) ?B\b")
    if billions is None:
        raise NotModelled("the size of the model is not stated")
    parameters = billions * 1e9
    layers = number(row, "n_layers") or _known(LAYERS, parameters, "the number of layers")
    period = number(row, "h") or first(row.text("method"), r"\bH ?= ?([0-9]+)") or 0.0
    if method in ("diloco", "streaming_diloco") and not period:
        raise NotModelled("the steps of a round (H) are not stated")
    if method not in METHODS:
        raise NotModelled(f"no closed form for {row.text('method')[:40] or 'an unnamed method'}")
    fragments = number(row, "fragments_p") or max(1.0, layers / FRAGMENT)
    return Simulated(
        parameters=parameters,
        layers=layers,
        step_time=number(row, "compute_step_s") or _known(STEP_SECONDS, parameters, "the time of a step"),
        islands=number(row, "islands_m") or ISLANDS,
        bits=number(row, "bits_per_param") or first(row.text("method"), r"\b(?:bf|fp|int)([0-9]+)\b") or BITS,
        method=METHODS[method],
        steps=period or 1.0,
        fragments=round(fragments) if method == "streaming_diloco" else 1,
        overlap=min(_overlap(row), period or 1.0),
    )


def _overlap(row: Row) -> float:
    found = delay(row, "overlap_tau_steps")
    return found if found is not None else 1.0 if "overlapped" in plain(row.text("method")) else 0.0


def _known(table: dict[float, float], parameters: float, what: str) -> float:
    for size, value in table.items():
        if abs(parameters / size - 1.0) <= ALIKE:
            return value
    raise NotModelled(f"{what} is not stated, and {parameters / 1e9:g}B parameters are none of the tables' models")


def round_of(run: Simulated, lead: Fraction = LEAD) -> Round:
    """The demands of one round of the run."""
    replica = Replica(parameters=run.parameters, gradient_bytes=run.bits / 8.0, layers=run.layers, cells=run.islands)
    if run.method == "every_step":
        return sync.round_of(replica, Sync())
    chosen = Sync(method=run.method, sync_every=run.steps, bits=run.bits, lead=lead)
    if run.method == "streaming_diloco":
        chosen = changed(chosen, num_fragments=run.fragments, fragment_sync_delay=run.overlap)
    return sync.round_of(replica, chosen)


def stall(run: Simulated, bandwidth: BytesPerS, lead: Fraction = LEAD) -> Seconds:
    """Seconds of a round in which an island waits for the link; `bandwidth` may be an array."""
    asked = round_of(run, lead)
    behind = Leaving(window=2.0 / 3.0 * run.step_time, pieces=run.layers)
    pace = Pace(step=run.step_time, tokens=0.0, leaving=((behind,),))
    waits: Seconds = 0.0
    for crossing in asked.crossings:
        waits = waits + exposure(crossing, asked.steps, pace, run.share * crossing.size / bandwidth)
    return waits


def utilization(run: Simulated, bandwidth: BytesPerS, lead: Fraction = LEAD) -> Fraction:
    """Compute seconds of a round over all its seconds."""
    compute = run.steps * run.step_time
    return compute / (compute + stall(run, bandwidth, lead))


def needed(run: Simulated, target: float, lead: float = LEAD) -> float:
    """The bandwidth that the table prints for a utilisation. Raises NotModelled where the grid ends before or after."""
    missed = np.flatnonzero(np.less(utilization(run, GRID * GBIT, lead), target))
    if not len(missed) or len(missed) == len(GRID):
        raise NotModelled(f"a utilisation of {target:g} is reached outside of the table's grid, 0.1 to 1000 Gbit/s")
    return printed(float(GRID[missed[-1]])) * GBIT


def printed(gigabits: float) -> float:
    """A grid point as the tables print it."""
    return round(round(gigabits, 2), 1)


def grid_step(bandwidth: BytesPerS) -> int:
    """The grid point nearest to a bandwidth."""
    return int(np.argmin(np.abs(np.log(GRID * GBIT / bandwidth))))


def wall_time(row: Row) -> float:
    """Seconds of a simulated run at the stated link. Raises NotModelled."""
    run, rate = simulated(row), link(row)
    if not rate.exact:
        raise NotModelled(f"the link is known as a range only: {rate.low:g} to {rate.high:g} Gbit/s")
    return float(_steps(row) * run.step_time / utilization(run, rate.low * GBIT))


def traffic(row: Row) -> float:
    """Bytes that an island sends in a simulated run. Raises NotModelled."""
    run = simulated(row)
    asked = round_of(run)
    return float(_steps(row) / asked.steps * plain_sum(run.share * one.messages * one.size for one in asked.crossings))


def _steps(row: Row) -> float:
    tokens = number(row, "tokens_b")
    if tokens is None:
        raise NotModelled("the tokens of the run are not stated")
    return tokens * 1e9 / (number(row, "global_batch_tokens") or STEP_TOKENS)
