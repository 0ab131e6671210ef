"""The numbers fitted to the decentralised-pipeline runs (64 V100, TCP): all of them, with bounds and what they were fitted on."""

from __future__ import annotations

from shardmeter.core.record import record

FITTED_ON = (
    "DTFM cases 1-4 of 2022 and the six throttled Megatron rows of 2022-04-27, by scripts/fit_geo.py, 2026-11-29"
)


@record
class Fitted:
    """Eight numbers for all systems and networks of those runs: seconds, bits per second and ratios."""

    layer: float
    """Forward, recompute and backward of one layer (d 2048) and sequence (2048) on a V100, fp16, PyTorch's own kernels."""
    layer_fused: float
    """The same with Megatron's fused kernels."""
    wire: float
    """Bytes on the wire over bytes of the tensor: headers, and what TCP does not reach of a link."""
    handling: float
    """What a stage does for one micro-batch and direction to receive and send 8.4 MB over sockets, beside its compute; in
    proportion to bytes."""
    unhidden: float
    """Part of a transfer that an asynchronous stage does not hide: one communicator does one thing at a time."""
    answer: float
    """How long a message that a stage waits for is under way beside wire and propagation (1F1B over idle TCP connections)."""
    adapter: float
    """Bits per second that a 25 Gbit/s adapter gives to eight GPUs over TCP."""
    gathers: float
    """ZeRO-3: trips around the ring for every layer that is gathered anew."""


BOUNDS = {
    "layer": (14e-3, 24e-3), "layer_fused": (13e-3, 20e-3), "wire": (1.0, 1.4), "handling": (0.0, 30e-3), "unhidden": (0.0, 1.0),
    "answer": (0.0, 80e-3), "adapter": (10e9, 25e9), "gathers": (1.0, 8.0),
}  # fmt: skip
"""What is physically possible; the fit stays inside."""

FITTED = Fitted(
    layer=18.36e-3, layer_fused=13.0e-3, wire=1.257, handling=8.82e-3, unhidden=0.233, answer=32.9e-3, adapter=14.46e9,
    gathers=2.28,
)  # fmt: skip
"""`layer_fused` stands at its bound: a lower one would be beyond the kernels, what it hides is not found."""

RATES = {("fp16", 768): 6.44e-3, ("fp32", 768): 18.2e-3, ("fp32", 2048): 76.8e-3}
"""As `layer`, for other precisions and widths: read off the 10 Gbit/s row of one pipeline (TCP-240, -355, -360), not fitted
to any throttled row."""
NIC = 9.75e9
"""What a 10 Gbit/s adapter gives to one NCCL transfer (measured apart, tc-free point-to-point runs)."""
TENSOR = 16e9
"""Bytes per second of a tensor-parallel all-reduce between V100s of a box, launches included (read off Megatron-T8, case 1)."""
