"""Rows of real runs and links that a formula predicts from what was known before: outer synchronisation, rounds, long links,
checkpoints."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from shardmeter.core.errors import ShardMeterError
from shardmeter.engine.course import BANDWIDTH_EACH
from shardmeter.physics import failures
from shardmeter.scenario import load
from shardmeter.scenario.catalog import Catalog
from shardmeter.specs.scenario import Scenario
from shardmeter.study.validate.accelerator import accelerator_name
from shardmeter.study.validate.geo.cells import first, link, number
from shardmeter.study.validate.geo.identities import round_bytes
from shardmeter.study.validate.geo.vocabulary import GBIT, plain
from shardmeter.study.validate.predictions import Predict
from shardmeter.study.validate.rows import NotModelled, Row

TERABYTE = 1e12
RECOMPUTE = ("none", "selective", "full")
"""Tried in this order where a row does not say: the first that fits."""


def sync_time(row: Row) -> float:
    """An all-reduce of a message of all parameters over the stated link: 2·(M − 1)/M of it. Raises NotModelled.

    Leaves out: latency, retries, what the library adds."""
    size, islands, rate = round_bytes(row), number(row, "islands_m"), link(row)
    if size is None:
        raise NotModelled("bits or parameters of a message are not stated")
    if not rate.exact:
        slow, fast = (2.0 * size / (end * GBIT) for end in (rate.low, rate.high))
        ends = f"{rate.low:g} to {rate.high:g} Gbit/s, at most {fast:.0f} to {slow:.0f} s"
        raise NotModelled(f"the link is known as a range only: {ends}")
    if islands is None:
        raise NotModelled("the number of islands is not stated")
    return 2.0 * (islands - 1.0) / islands * size / (rate.low * GBIT)


def network_rate(row: Row) -> float:
    """A lossless long link carries its rate where at least one bandwidth-delay product is under way, else that share of it.

    Raises NotModelled. Leaves out: headers (reported rates leave them out too), congestion control."""
    text = row.text("quantity")
    rate = first(text, r"([0-9.]+) ?G(?:bit/s|bps|b/s)?\b(?! ?B)")
    if rate is None:
        raise NotModelled("the rate of the link is not stated")
    return rate * GBIT * min(1.0, first(text, r"([0-9.]+) ?BDP") or 1.0)


def checkpoint_time(row: Row) -> float:
    """A checkpoint of so many bytes, at the rate for each accelerator that is taken where nothing is said. Raises NotModelled.

    Leaves out: what `write_time` does; that the store was another."""
    text = row.text("quantity")
    size, writers = first(text, r"([0-9.]+) ?TB\b"), first(text, r"([0-9]+) (?:processes|gpus|accelerators|ranks)\b")
    if size is None or writers is None:
        raise NotModelled("the bytes of the checkpoint, or how many accelerators write it, are not stated")
    return float(failures.write_time(size * TERABYTE, writers * BANDWIDTH_EACH))


def inner_phase_time(row: Row, catalog: Catalog, predictor: Predict) -> float:
    """The inner steps of a round on one island: the steps of the round times a step of the island, FSDP over all of it.

    Raises NotModelled where model, accelerator, batch or sequence are not stated. What is recomputed is the least that fits."""
    steps, batch = number(row, "h"), number(row, "global_batch_tokens")
    seq_len = first(row.text("model"), r"seq(?:uence)?(?:_?len)? ?([0-9]+)")
    gpus, model = number(row, "gpus_per_island"), _model(row, catalog)
    lacks = {"the steps of a round": steps, "a whole number of accelerators": gpus, "a model of the catalog": model,
             "the sequence length": seq_len}  # fmt: skip
    if missing := [name for name, found in lacks.items() if not found]:
        raise NotModelled(f"not stated: {', '.join(missing)}")
    if not batch or not steps or not seq_len or not gpus or "per" not in plain(row.text("global_batch_tokens")):
        raise NotModelled("the batch of one island is not stated")
    answers = [_island(row, model, gpus, seq_len, round(batch / seq_len), policy, catalog) for policy in RECOMPUTE]
    for answer in predictor(answers):
        if answer.fits:
            return steps * answer.step_time
    raise NotModelled("no policy of recomputation fits the accelerators")


def _island(row: Row, model: str, gpus: float, seq_len: float, batch: int, policy: str, catalog: Catalog) -> Scenario:
    """One island of the row as a scenario."""
    try:
        options: Mapping[str, Any] = {
            "model": model,
            "gpus": f"{int(gpus)}x{accelerator_name(row.text('gpu'))}",
            "plan": f"fsdp,recompute={policy}",
            "seq": int(seq_len),
            "global_batch": batch,
        }
        return load(None, options=options, catalog=catalog)
    except ShardMeterError as error:
        raise NotModelled(f"no scenario: {error.message.splitlines()[0][:120]}") from None


def _model(row: Row, catalog: Catalog) -> str:
    """The longest name of the catalog with which a row's model begins; empty where none does."""
    text = plain(row.text("model"))
    known: Sequence[str] = sorted(catalog.names("models"), key=len, reverse=True)
    return next((name for name in known if text == plain(name) or text.startswith(f"{plain(name)} ")), "")
