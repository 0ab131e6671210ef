"""A fingerprint of what a source's rows mean: it changes when a rule of the mapping changes a reading, and with nothing else."""

from __future__ import annotations

from collections.abc import Iterable

from shardmeter import families
from shardmeter.study.validate.digest import fingerprints
from shardmeter.study.validate.fates import fate
from shardmeter.study.validate.runs.account import Judged, line
from shardmeter.study.validate.runs.mapping import Reading


def meaning(one: Judged) -> str:
    """What a row is read as: what became of it, its numbers, the plans it may have run; without predictions and the wording of
    reasons."""
    read = "" if one.reading is None else _reading(one.reading)
    return f"{one.id} {one.source} {one.tier} {fate(one)} {one.practice} {one.measured!r} {one.due!r} {read}"


def _reading(one: Reading) -> str:
    plans = [
        (leg.share, float(option.run.seq_len), float(option.run.global_batch), option.plan.precision, line(option))
        for leg in one.legs
        for option in leg.options
    ]
    size = float(families.parameters(one.model)), float(families.active_parameters(one.model))
    machine = f"{one.accelerator} {one.gpus!r} {one.given} {one.devices!r} {one.stack} {one.stand_in}"
    return (
        f"{one.kind.name} {one.model.name} {one.model.layers} {size!r} {machine} {one.tokens!r} {one.when!r} {plans!r}"
    )


def digests(judged: Iterable[Judged]) -> dict[str, tuple[int, str]]:
    """By source: the number of rows and a digest of their readings."""
    return fingerprints((one.source, meaning(one)) for one in judged)
