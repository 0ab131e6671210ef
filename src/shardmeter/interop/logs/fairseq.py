"""fairseq's and metaseq's JSON lines: every number is a text."""

from __future__ import annotations

import re

from shardmeter.interop.logs.json_lines import objects, scalar
from shardmeter.interop.logs.lines import Log
from shardmeter.interop.logs.record import Reading, Step
from shardmeter.interop.logs.values import inverse, number, positive, whole

NAME = "fairseq"
TITLE = "fairseq's and metaseq's JSON lines"
CLUES = ('"num_updates"', '"wps"')
SIGN = re.compile(r'"wps"\s*:')


def reading(log: Log) -> Reading:
    """A report a line: tokens of a step over tokens a second; steps a second, which has two digits, where these are missing."""
    steps = []
    for place, entry in objects(log):
        own = {key: scalar(value) for key, value in entry.items()}
        count = whole(own.get("num_updates"))
        if count is None or "wps" not in own:
            continue
        tokens, rate = positive(own.get("wpb")), positive(own.get("wps"))
        steps.append(
            Step(
                number=count, seconds=tokens / rate if tokens and rate else inverse(own.get("ups")), tokens=tokens, samples=positive(own.get("bsz")),
                tokens_per_s=rate, loss=number(own.get("loss")), at=positive(own.get("wall")), line=place,
            )
        )  # fmt: skip
    return Reading(steps=tuple(steps), averaged=True, resolution=2e-3)
