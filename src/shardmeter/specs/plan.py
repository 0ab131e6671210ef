"""How the model is laid over the accelerators. Numbers broadcast; what sets the length of an axis (`pp`, `virtual_stages`) is an int."""

from __future__ import annotations

import numpy as np

from shardmeter.core.record import record
from shardmeter.core.units import Count, Fraction, Ratio, Seconds

AXES = ("tp", "cp", "dp_shard", "dp_replicate", "pp")
EXPERT_AXES = ("etp", "ep", "edp")
"""A second mesh over the ranks of tp · cp · dp_shard, innermost first: how experts lie on them. `edp` is what is left."""
SHARDINGS = ("none", "ddp", "zero1", "zero2", "zero3", "fsdp")

OUTER_STATES = ("device", "host")
TOPOLOGIES = ("auto", "ring", "tree", "star", "sharded_star", "all_gather")
SPLITS = ("speed", "equal")
RELEASES = ("layers", "end")


@record
class Sync:
    """Synchronisation across islands; one island needs none. Which fields a method reads is said by its file in `sync/`."""

    method: str = "every_step"
    sync_every: Count = 1.0
    """Inner steps of a round (H)."""
    num_fragments: int = 1
    """Parts in which the parameters are sent (P)."""
    fragment_sync_delay: Count = 0.0
    """Inner steps between sending and applying (τ)."""
    fragment_update_alpha: Fraction = 0.0
    """Weight of the local parameters when what was sent is applied (α)."""
    bits: Count = 16.0
    """Of one value on the wire."""
    top_k: Fraction = 1.0
    """Share of the values that is sent; their positions cost extra."""
    lead: Fraction = 0.0
    """Share of the last inner step behind which the outer message may pass already."""
    outer_state: str = "device"
    """Where the outer copy and momentum lie: device or host."""
    topology: str = "auto"
    """How messages pass: ring, tree, star, sharded_star, all_gather, or auto (the method's own, the fastest ring order)."""
    hierarchical: bool = True
    """Reduce inside islands first, every node sending its part across; false = one ring through all accelerators."""
    grace: Seconds = 0.0
    """What a deadline method waits for late islands after a round."""
    release: str = "layers"
    """When gradients of a step leave for other islands: layers (each when it is whole), or end (all of them after the last)."""
    split: str = "speed"
    """How the batch is shared among unlike islands: speed, or equal."""
    blocks: int = 1
    """Equal parts that the layers are cut into; every cell trains one of them."""
    levels: int = 1
    """Rows of modules that a path goes through, one module of each."""
    rank: Count = 0.0
    """Of what is sent of a matrix, or of its perturbation; 0 = the whole matrix."""
    perturbations: Count = 1.0
    """Directions in which a step without gradients is probed."""
    together: Count = 1.0
    """Passes that run side by side, each with weights of its own."""
    experts: Count = 0.0
    """Models that are trained apart from one another; 0 = one a cell."""


@record
class Probes:
    """How a step without a backward is made: forward passes with perturbed weights (Spall 1992)."""

    passes: Count
    """Forward passes over every sequence."""
    together: Count = 1.0
    """Of them side by side on a rank, each with weights of its own."""
    rank: Count = 0.0
    """Of a perturbation that is multiplied beside the weights; 0 = the weights themselves are perturbed."""
    moments: Count = 0.0
    """Numbers kept a parameter for the update, fp32."""
    directions: Count = 1.0
    """Perturbations that an update adds up."""
    members: Count = 1.0
    """Perturbed models that the sequences of a step are dealt out to; 1 = every pass sees all of them."""
    of: str = "all"
    """What is perturbed, moved and kept moments of, in the words of `Plan.trainable`: everything, or blocks joined by +."""

    @property
    def losses(self) -> Count:
        """Numbers that a step compares: one a pass, or one a member."""
        return self.passes * self.members

    @property
    def whole(self) -> bool:
        """Whether the weights themselves are perturbed. Structure, not a number: a batch has one kind."""
        return isinstance(self.rank, int | float) and self.rank == 0


@record
class Plan:
    """Degrees multiply to the accelerators of the island: tp · pp · cp · dp_shard · dp_replicate."""

    tp: Count = 1.0
    pp: int = 1
    cp: Count = 1.0
    ep: Count = 1.0
    etp: Count = 1.0
    expert_skew: Ratio = 1.0
    """Tokens of the busiest expert rank over the mean; 1 = balanced."""
    dp_shard: Count = 1.0
    dp_replicate: Count = 1.0
    sharding: str = "fsdp"
    reshard: bool = True
    """fsdp: free gathered parameters after the forward pass and gather again for the backward."""
    micro_batch: Count = 1.0
    schedule: str = "1f1b"
    virtual_stages: int = 1
    ahead: Count = 0.0
    """Micro-batches more that the stages before a boundary between islands hold for each such boundary, to fill its round trip."""
    stagger: bool = False
    """Pipelines side by side send over the line between islands in turn, each with all of it, not all at once."""
    recompute: str = "none"
    precision: str = "bf16"
    gather_dtype: str = "bf16"
    reduce_dtype: str = "fp32"
    optimizer: str = "adamw"
    master_dtype: str = "fp32"
    sequence_parallel: bool = True
    async_tp: bool = False
    """Tensor-parallel gathers and scatters pass in chunks behind the product they feed or empty (needs sequence_parallel)."""
    cp_kind: str = "ring"
    offload: tuple[str, ...] = ()
    offload_layers: Count = 0.0
    """How many layers' activations go to the host; 0 = those of all. Only with `offload: [activations]`."""
    trainable: str = "all"
    """all, lora(r=16), or blocks joined by +: embedding, layer, head, layer:24-31."""
    rank_order: tuple[str, ...] = AXES
    """Mesh axes, innermost (neighbouring ranks) first."""
    placement: tuple[tuple[str, tuple[tuple[str, ...], ...]], ...] = ()
    """(axis, cells) pairs, a cell being the islands that the axis crosses, in order; an island listed k times takes k steps of the
    axis. Empty where every island is a cell of its own."""
    sync: Sync = Sync()
    probes: Probes | None = None
    """Of a method without a backward (`sync.laid`); `trainable` is then empty, as nothing runs back, and its words are `probes.of`."""

    @property
    def dp(self) -> Count:
        """Data-parallel degree: replicas that see different sequences."""
        return self.dp_shard * self.dp_replicate

    @property
    def gpus(self) -> Count:
        """Product of the degrees."""
        return self.tp * self.pp * self.cp * self.dp_shard * self.dp_replicate

    def degree(self, axis: str) -> Count:
        """Size of one mesh axis, or of one of the expert mesh."""
        if axis == "edp":
            return self.tp * self.cp * self.dp_shard / (self.etp * self.ep)
        return float(self.pp) if axis == "pp" else getattr(self, axis)

    def stride(self, axis: str) -> Count:
        """Distance between neighbouring ranks of one mesh axis: the product of the degrees inside it."""
        stride: Count = 1.0
        for inner in self.rank_order[: self.rank_order.index(axis)]:
            stride = stride * self.degree(inner)
        return stride

    def spans(self, axis: str) -> tuple[tuple[Count, Count], ...]:
        """(degree, stride) of the rows of ranks that a group of one axis is made of: one row for an axis of the mesh.

        `ep` takes the innermost part of tp · cp · dp_shard (without tp where etp = tp), axis by axis in rank order; `edp`
        has what is left of each. Leaves out: degrees of which neither divides the other."""
        if axis not in EXPERT_AXES:
            return ((self.degree(axis), self.stride(axis)),)
        if axis == "etp":
            return ((self.etp, self.stride("tp")),)
        left: Count = self.ep
        taken: list[tuple[Count, Count]] = []
        rest: list[tuple[Count, Count]] = []
        for name in (one for one in self.rank_order if one in ("tp", "cp", "dp_shard")):
            degree, stride = self.degree(name), self.stride(name)
            if name == "tp":
                degree, stride = degree / self.etp, stride * self.etp
            part = np.minimum(degree, left)
            left = left / part
            taken.append((part, stride))
            rest.append((degree / part, stride * part))
        return tuple(taken if axis == "ep" else rest)
