"""One kind of accelerator: a row of `data/accelerators.csv`, never subclassed."""

from __future__ import annotations

from collections.abc import Mapping

from shardmeter.core.record import record
from shardmeter.core.units import Bytes, BytesPerS, Count, FlopPerS, Fraction, Ratio, Seconds, Watts


@record
class Accelerator:
    """A device as a framework sees it (one GPU, one GCD, one chip). Peaks are dense; links are per direction."""

    name: str
    vendor: str = ""
    arch: str = ""
    memory: Bytes
    """Device total that the driver reports (the label in GiB unless measured otherwise)."""
    memory_bandwidth: BytesPerS
    memory_share: Fraction = 0.80
    """Share of `memory_bandwidth` that streaming kernels sustain."""
    peak: Mapping[str, FlopPerS]
    """Dense peak by dtype: fp32, tf32, fp16, bf16, fp8, fp4. A missing dtype is not supported or not known."""
    matmul_share: Mapping[str, Ratio]
    """Share of the dense peak that the best matrix shapes sustain, by dtype (micro-benchmarks, never training runs)."""
    attention_share: Mapping[str, tuple[float, float]]
    """Share of the dense peak of long-sequence attention, (forward, backward), by kernel: fa1, fa2, fa3, cudnn."""
    attention_half: Count = 500.0
    """Sequence length at which fused attention reaches half of its long-sequence rate."""
    processors: Count = 0.0
    """Streaming multiprocessors or compute units; 0 if the notion does not apply."""
    host_ahead: bool = True
    """Whether the host issues kernels ahead of the device, so that the shorter of both is hidden; a CPU is its own host: both add."""
    power: Watts | None = None
    power_limit: Watts | None = None
    """A cap below `power`, if the operator set one."""
    scale_up: str = ""
    scale_up_bandwidth: BytesPerS
    """Wire rate out of one accelerator into its scale-up domain, one direction."""
    scale_up_share: Fraction = 0.80
    """Plateau share of the wire rate that collectives reach inside the domain."""
    scale_up_reduce_share: Ratio | None = None
    """The same for an all-reduce that the switch itself sums (NVLS), where the domain has such a switch."""
    scale_up_latency: Seconds = 45e-6
    """Start of an all-reduce inside the domain."""
    scale_up_step: Seconds = 1.9e-6
    """One step of a ring inside the domain."""
    pair_bandwidth: BytesPerS | None = None
    """Rate of one pair, where the domain is a mesh and not a switch, or of one link of a torus; None = any pair gets
    `scale_up_bandwidth`."""
    exchange_bandwidth: BytesPerS | None = None
    """What each accelerator reaches in an all-to-all of more than half a node, where the halves hang on two sockets (PCIe)."""
    torus_axes: int = 0
    """Axes of the torus that the domain is, where it is one: 2 or 3."""
    torus_closes: Count = 4.0
    """Length from which an axis of the torus has the link from its last to its first (three axes: if all are that long)."""
    scale_up_domain: Count
    """Accelerators in one scale-up domain (GB200: 72, although an OS node holds 4)."""
    node_size: Count
    """Accelerators that one operating system usually sees."""
    host_link: BytesPerS | None = None
    """PCIe or C2C, one direction."""
    host_memory_bandwidth: BytesPerS | None = None
    """What the host's memory gives each accelerator, for states that live there; None = not known, and then not guessed."""
    fabric: str = ""
    """Default scale-out fabric (a row of `data/fabrics.csv`)."""
    source: str = ""
    retrieved: str = ""

    @property
    def peak_counted(self) -> FlopPerS:
        """The peak that utilisation is counted against: that of 16-bit products or, of a device without them, of fp32, or of what it has."""
        return next(self.peak[one] for one in ("bf16", "fp16", "fp32", *self.peak) if one in self.peak)
