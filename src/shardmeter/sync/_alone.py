"""What methods whose cells never meet have in common: a step is a round, and nothing crosses."""

from __future__ import annotations

from shardmeter.specs import Progress, Round


def every_step(*notes: str) -> Round:
    """A round of one step that every cell takes alone, with what is taken for granted of it."""
    return Round(steps=1.0, pace="own", progress=Progress(replicas=1.0, bits=0.0), notes=notes)
