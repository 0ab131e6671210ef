"""The software: a row of `data/stacks.csv`. Named fields are documented facts about the code; a few numbers are fitted."""

from __future__ import annotations

from shardmeter.core.record import record
from shardmeter.core.units import Bytes, Count, Fraction, Ratio, Seconds

FITTED = ("gemm_factor", "traffic_factor", "launch_overhead", "nic_factor", "contention")
"""The five numbers that `make fit` may move, per stack."""

WORDS: dict[str, tuple[str, ...]] = {
    "attention": ("unfused", "fused", "fa1", "fa2", "fa3", "cudnn"),
    "kernels": ("eager", "autocast", "fused_norm", "fused", "compiled"),
    "loss": ("torch", "parallel", "fused", "compiled"),
    "stage_cut": ("even", "cost", "edges"),
    "selective": ("attention", "alternate"),
    "reduce_dtype": ("fp32", "bf16", "fp16"),
    "gather_dtype": ("fp32", "bf16", "fp16"),
    "gradient_dtype": ("fp32", "bf16", "fp16"),
    "expert_copies": ("receivers", "nodes"),
    "accumulate": ("usual", "last", "every"),
    "collectives": ("ring", "tree", "nvls", "direct"),
}
"""The words each named field of a stack may hold."""


@record
class Stack:
    """One training software of one age."""

    name: str
    title: str = ""
    aliases: tuple[str, ...] = ()
    framework: str = ""
    year: int = 0
    # facts about the code
    attention: str = "fa2"
    """unfused (scores in memory, separate kernels), fused (one softmax kernel), fa1, fa2, fa3, cudnn."""
    kernels: str = "eager"
    """eager, autocast (eager over fp32 parameters: residuals stay in fp32), fused_norm (only the norms have a kernel of their
    own), fused (norms, rotation and activation have), compiled (a compiler fuses pointwise chains)."""
    loss: str = "torch"
    """torch (separate kernels on fp32 logits), parallel (vocabulary-parallel, Megatron's kernels), fused (one kernel), compiled."""
    logits_gathered: bool = False
    """Whether the loss works on logits gathered over the tensor-parallel ranks, so that each holds all of them."""
    stage_cut: str = "even"
    """even (layers spread evenly), cost (by cost, head and embedding counted), edges (embedding and head count as one layer each)."""
    reduce_dtype: str = "fp32"
    gather_dtype: str = "bf16"
    gradient_dtype: str = "fp32"
    """What gradients are accumulated in."""
    gradient_copy: bool = False
    """Whether 16-bit gradients live beside the accumulation buffer, instead of being written into it."""
    gradient_fused: bool = False
    """Whether the product of the weight gradient adds into the accumulation buffer itself, so that no kernel reads both again."""
    gather_copy: bool = False
    """fsdp: whether gathered parameters are copied out of their buffer, one by one (sharding per parameter)."""
    selective: str = "attention"
    """What `recompute: selective` means here: attention (core attention runs again) or alternate (every second product kept)."""
    gradient_overlap: bool = True
    """Whether the data-parallel reduction of gradients runs behind the backward pass."""
    gather_overlap: bool = False
    """zero1/zero2: whether the gather of updated parameters runs behind the next forward pass."""
    async_tp: bool = False
    """Whether tensor-parallel gathers and scatters pass in chunks behind the products they belong to, where a plan is silent."""
    bucket: Bytes = 50e6
    """Bytes in one gradient bucket (PyTorch DDP 25 MiB; Megatron 40 M elements; nanotron 50 MB; DeepSpeed 500 M elements)."""
    accumulate: str = "usual"
    """When gradients are reduced while micro-batches accumulate: usual (ddp and zero1 with the last one, the others after every
    one), last (no_sync everywhere: gradients are kept whole until then), every (DDP without no_sync)."""
    collectives: tuple[str, ...] = ("ring", "tree", "nvls")
    """Algorithms that a collective may take, the cheapest every time: ring (always there), tree, nvls (the switch sums, where it
    can), direct (every rank reads all others at once, inside a switched or fully meshed domain)."""
    sends_cut: bool = False
    """Without sequence parallelism: whether each tensor-parallel rank sends its part of the activations to the next stage."""
    expert_overlap: bool = False
    """Whether the expert all-to-all runs behind the shared experts."""
    batch_overlap: bool = False
    """1f1b, interleaved, and no stages: whether the forward of one micro-batch and the backward of another are computed together,
    layer by layer, so that the expert all-to-all of each runs behind the other (Megatron's overlap_moe_expert_parallel_comm)."""
    expert_copies: str = "receivers"
    """How often a token is sent: once for every expert chosen (receivers), or once for every node that holds some of them, which
    shares it out over its own links and sums what comes back (nodes: DeepEP, HybridEP)."""
    context_overlap: bool = False
    """Whether keys and values gathered for context parallelism run behind the attention (by groups of heads)."""
    pipeline_overlap: bool = False
    """Whether stage-to-stage sends run behind compute."""
    collective_overhead: Seconds = 0.0
    """Seconds of the host for every tensor-parallel collective and rank of its group, in a job whose pipeline stages lie on
    several nodes. Seen in one stack (nanotron): its cause is not known."""
    launches_forward: Count = 20.0
    """Kernels per layer in the forward pass; the backward launches twice as many."""
    launches_backward: Count = 40.0
    dispatch_wait: Seconds = 0.0
    """Dropless experts: how long the device stands still while the host reads how many tokens each expert was sent and sizes what
    comes next; once per layer with routed experts, micro-batch and direction. 0 where capacities are fixed, counts stay on the
    device, or whole iterations are captured as graphs."""
    step_graphs: bool = False
    """Whether whole iterations are captured as CUDA graphs: the host launches nothing and nobody waits for it."""
    # fitted, at most these, each bounded (data/stacks.csv says on what and when)
    gemm_factor: Ratio = 0.98
    traffic_factor: Ratio = 1.25
    launch_overhead: Seconds = 25e-6
    nic_factor: Ratio = 0.80
    contention: Fraction = 0.40
    """Seconds of compute lost per second of communication hidden under it."""
    # defaults that are seldom fitted
    chunk_loss: Fraction = 0.40
    """Seconds lost per second of a tensor-parallel collective that passes in chunks behind the products it belongs to: smaller
    products, and processors that copy. Of 0.25, 0.40 and 0.55 the one that fits three stacks with such rows best."""
    attention_factor: Ratio = 0.92
    scale_up_factor: Ratio = 1.0
    step_overhead: Seconds = 5e-3
    jitter: Fraction = 0.0
    """Standard deviation of a rank's compute in a step over its mean: all wait for the slowest. 0: the fitted numbers hold what
    there was of it where they were fitted (slowest of eight over fastest of one node: 5 % and more, which is 0.017 or so)."""
    # memory
    whole_bytes: Bytes = 6.0
    """Bytes per token and hidden element that tensor parallelism leaves whole beside one layer: by default a gathered input, a
    gathered gradient and a product before its scatter."""
    cut_bytes: Bytes = 0.0
    """The same that it divides: what its collectives' code keeps beside the activations of a layer."""
    buffer_share: Ratio = 0.0
    """Buffers of reductions and gathers over the bytes of the parameters held."""
    context: Bytes = 1.5e9
    """CUDA context, communicator buffers and what else lies outside the allocator."""
    fragmentation: Fraction = 0.06
    """Reserved over allocated, minus one."""
    faster: Ratio | None = None
    """Of a stack that was calibrated on its user's runs: measured over predicted step time, the lower end of 90 % of future runs like
    them; None = none was."""
    slower: Ratio | None = None
    """The upper end."""
    rare: tuple[str, ...] = ()
    """What those runs had that the usual measured ones have not (routed experts, context parallelism)."""
    fitted_on: str = ""
    fitted_date: str = ""
    source: str = ""

    @property
    def launch_time(self) -> Seconds:
        """Seconds of the host for one kernel."""
        return 0.0 * self.launch_overhead if self.step_graphs else self.launch_overhead

    @property
    def host_wait(self) -> Seconds:
        """Seconds that dropless experts wait for the host."""
        return 0.0 if self.step_graphs else self.dispatch_wait
