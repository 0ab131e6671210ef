"""Inference over islands: the four verbs over a model that only runs forward.

`servers` prices one island, `lines` what passes between them, `cut` says what lies where, `fold` adds; one file a way to serve.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from shardmeter.engine.inference.block_train import block_train
from shardmeter.engine.inference.lines import lines
from shardmeter.engine.inference.local import local
from shardmeter.engine.inference.pipeline import pipeline
from shardmeter.engine.inference.servers import Server, server
from shardmeter.engine.inference.soma import soma
from shardmeter.engine.links import Links
from shardmeter.specs.serving import Served, Serving

WAYS: dict[str, Callable[[Sequence[Server], Links | None, Serving], Served]] = {
    "pipeline": pipeline,
    "block_train": block_train,
    "soma": soma,
    "local": local,
}
"""By the words of `specs.serving.METHODS`."""


def serve(servers: Sequence[Server], links: Links | None, asked: Serving) -> Served:
    """Serve as asked. Raises KeyError for no word of WAYS; whether it is possible at all is the caller's business."""
    return WAYS[asked.how](servers, links, asked)


__all__ = ["WAYS", "Links", "Server", "lines", "serve", "server"]
