"""An experiment in the words of a scenario: what the engine is asked before the run. Nothing is priced here.

Numbers are fp32 throughout, and so are messages where the method does not say otherwise. An island is as many accelerators of one
calibrated row as it has workers; what its workers tell each other inside it is in that row's rate. Leaves out: jitter of a line,
its queue, and what the emulation itself costs, of which a scenario has no words.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from shardmeter.core.errors import UnknownName
from shardmeter.core.record import record
from shardmeter.lab.records import VOCABULARY, Experiment, Line, Shape, Site
from shardmeter.sync import method as engine_method

NETEM, TUN, LOOPBACK = "netem", "tun", "loopback"
UNSHAPED = Line(bandwidth=5e9, rtt=5e-5, mtu=65535.0)
"""What a prediction for plain loopback takes the line for: faster than what runs over it, so that its time does not count."""
STACK = "lab-torch"
"""The row of the software in every catalog of the lab."""
STEPS = 10
"""Steps a round where a method averages every step and says nothing."""
FULL = 32.0
"""Bits of a value where a method has no number of bits of its own."""
BUCKET = 25.0 * 2**20
"""Bytes of gradients that DistributedDataParallel sends at once; small models leave layer by layer all the same, as far as measured."""


@record
class Way:
    """How a method of the lab is said to the engine."""

    sync: str
    """Method of `plan.sync`; empty: no scenario, each collective is priced by itself."""
    by_step: bool = False
    """Whether a round is one step: a run takes `rounds` × `steps` of them."""
    stops: bool = False
    """Whether all stop where a peer is gone: what crosses is within the step."""
    several: bool = False
    """Whether an island may have several workers."""
    bits: tuple[float, ...] = ()
    """Bits of a value that it can send, where it reads them."""
    own: tuple[str, ...] = ()
    """Words of the lab's own that it reads beside those of `plan.sync`."""


OUTER = ("outer_rate", "outer_momentum")
QUANTISED = (4.0, 8.0, 16.0, 32.0)
DONE = (
    "sync_every", "num_fragments", "fragment_sync_delay", "fragment_update_alpha", "bits", "top_k", "blocks", "perturbations", "together",
)  # fmt: skip
"""Words of `plan.sync` that the lab does as they are said; of the others it has one way."""
WAYS: Mapping[str, Way] = {
    "all_reduce": Way(sync="", stops=True, several=True, own=("sizes", "pause")),
    "block_train": Way(sync="block_train", bits=(16.0, 32.0), own=("reference",)),
    "ddp": Way(sync="every_step", by_step=True, stops=True, several=True, own=("steps", "bucket")),
    "diloco": Way(sync="diloco", several=True, bits=QUANTISED, own=(*OUTER, "inner")),
    "fsdp2": Way(sync="every_step", by_step=True, stops=True, several=True, own=("steps",)),
    "hsdp": Way(sync="every_step", by_step=True, stops=True, several=True, own=("steps",)),
    "local_sgd": Way(sync="local_sgd", several=True, bits=QUANTISED, own=("inner",)),
    "noloco": Way(sync="noloco", bits=(16.0, 32.0), own=(*OUTER, "pull")),
    "pipeline": Way(sync="every_step", by_step=True, stops=True, own=("steps", "schedule")),
    "soma": Way(sync="soma", by_step=True, own=("steps", "reference", "probe", "samples", "top_k")),
    "sparse_loco": Way(sync="sparse_loco", bits=(2.0, *QUANTISED), own=OUTER),
    "streaming_diloco": Way(sync="streaming_diloco", several=True, bits=QUANTISED, own=(*OUTER, "inner")),
}
"""The methods of the lab."""


def way(method: str) -> Way:
    """How a method is said to the engine. Raises UnknownName."""
    if method not in WAYS:
        raise UnknownName("method of the lab", method, WAYS)
    return WAYS[method]


def scenario(
    experiment: Experiment, accelerators: Sequence[str], stack: str = STACK, *, shaped: bool = True
) -> dict[str, Any]:
    """The scenario of an experiment, as `predict` reads it; `accelerators`: the row of every island. Not `shaped`: the line is `UNSHAPED`.

    Raises UnknownName for a method that is none, ValueError for one that has no scenario."""
    if not way(experiment.method).sync:
        raise ValueError(f"{experiment.method} has no scenario")
    names = [site.name for site in experiment.sites]
    islands = [_island(site, row) for site, row in zip(experiment.sites, accelerators, strict=True)]
    sequences = float(experiment.batch * experiment.micro_batches)
    copies = 1.0 if experiment.method == "pipeline" else float(experiment.workers)
    return {
        "name": experiment.name,
        "model": model(experiment.model),
        "stack": stack,
        "fleet": {"islands": islands, "wan": wan(experiment, shaped=shaped)},
        "plan": {**_plan(experiment), **_placement(experiment, names), "sync": sync(experiment)},
        "run": {"seq_len": experiment.model.seq_len, "global_batch": sequences * copies},
    }


def alone(experiment: Experiment, at: int, accelerator: str, stack: str = STACK) -> dict[str, Any]:
    """The scenario of one island, that at `at`, by itself: the inner step that its calibrating run takes, nothing crossing.

    A method that trains parts or probes is asked as it is, over as many islands alike as it needs, of which one is read off: such
    islands tell each other nothing within a step. One of a
    pipeline takes the step of the whole model."""
    own = way(experiment.method).sync
    site = experiment.sites[at]
    said: dict[str, Any] = {
        "name": f"{experiment.name}-alone",
        "model": model(experiment.model),
        "stack": stack,
        "plan": _plan(experiment),
        "run": {"seq_len": experiment.model.seq_len, "global_batch": float(experiment.batch * experiment.micro_batches * site.workers)},
    }  # fmt: skip
    if own == "block_train":
        blocks = int(experiment.said.get("blocks", 1))
        names = [f"{site.name}-{place}" for place in range(blocks)]
        line = {"bandwidth": "1 Tbps", "rtt": "1 us"}
        islands = [{**_island(site, accelerator), "name": name} for name in names]
        said["fleet"] = {"islands": islands, "wan": {"default": line} if blocks > 1 else {}}
        said["run"]["global_batch"] *= blocks
        said["plan"]["sync"] = sync(experiment)
        return said
    said["gpus"] = f"{site.workers}x{accelerator}"
    if own == "soma":
        said["plan"]["sync"] = sync(experiment)
    return said


def sync(experiment: Experiment) -> dict[str, Any]:
    """`plan.sync` of an experiment: what it says, in fp32 and in equal parts where it says nothing. The gradients of hsdp pass behind
    nothing: PyTorch's FSDP has no streams on processors."""
    own = way(experiment.method)
    fields, usual = engine_method(own.sync).FIELDS, engine_method(own.sync).DEFAULTS
    made: dict[str, Any] = {"method": own.sync}
    if "bits" in fields and "bits" not in usual:
        made["bits"] = FULL
    if "split" in fields:
        made["split"] = "equal"
    if "hierarchical" in fields and experiment.method == "ddp" and experiment.workers > len(experiment.sites):
        made["hierarchical"] = False
    if experiment.method == "hsdp":
        made["release"] = "end"
    said = {word: value for word, value in experiment.settings if word not in own.own}
    return made | said


def wan(experiment: Experiment, *, shaped: bool = True) -> dict[str, Any]:
    """What joins the islands, in the words of `fleet.wan`."""
    if not shaped:
        return _backed({"default": _line(UNSHAPED)})
    links = [{"between": list(pair), **_line(line)} for pair, line in experiment.lines]
    return _backed({"default": _line(experiment.line)} | ({"links": links} if links else {}))


def model(shape: Shape) -> dict[str, Any]:
    """A small model as a scenario has it inline."""
    if shape.kind == "lstm":
        return {
            "family": "recurrent", "name": shape.name, "layers": shape.layers, "hidden": shape.hidden, "ffn": 4 * shape.hidden,
            "vocab": VOCABULARY, "mlps": "-",
        }  # fmt: skip
    return {
        "family": "decoder", "name": shape.name, "layers": shape.layers, "hidden": shape.hidden, "ffn": 4 * shape.hidden,
        "heads": shape.heads, "kv_heads": shape.heads, "head_dim": shape.hidden // shape.heads, "vocab": VOCABULARY,
        "context": shape.seq_len, "mlp": "plain", "norm": "layer", "positions": "learned",
    }  # fmt: skip


def _island(site: Site, accelerator: str) -> dict[str, Any]:
    return {"name": site.name, "gpus": f"{site.workers}x{accelerator}"}


def shards(experiment: Experiment) -> bool:
    """Whether an experiment runs PyTorch's FSDP."""
    several = max(site.workers for site in experiment.sites) > 1
    within = experiment.method == "hsdp" or experiment.said.get("inner") == "fsdp2"
    return experiment.method == "fsdp2" or (within and several)


def _plan(experiment: Experiment) -> dict[str, Any]:
    """The layout inside an island."""
    several = max(site.workers for site in experiment.sites) > 1
    inside = "fsdp" if shards(experiment) else "ddp" if several else "none"
    return {"sharding": inside, "precision": "fp32", "optimizer": "adamw", "micro_batch": experiment.batch}


def _placement(experiment: Experiment, names: Sequence[str]) -> dict[str, Any]:
    """Which axis crosses islands, where one does."""
    if experiment.method == "fsdp2":
        return {"placement": {"dp_shard": list(names)}}
    if experiment.method == "pipeline":
        return {"placement": {"pp": list(names)}, "schedule": experiment.said.get("schedule", "1f1b")}
    return {}


def _line(line: Line) -> dict[str, Any]:
    """A line as a scenario has it."""
    return {
        "bandwidth": f"{line.bandwidth:.9g} B/s",
        "rtt": f"{line.rtt:.9g} s",
        "loss": line.loss,
        "streams": 1,
        "mtu": f"{line.mtu:.9g} B",
    }


def _backed(said: dict[str, Any]) -> dict[str, Any]:
    """With the software that passes messages."""
    return {"backend": "gloo"} | said
