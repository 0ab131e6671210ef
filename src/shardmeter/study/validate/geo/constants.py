"""The numbers fitted to the decentralised-pipeline runs (64 V100, TCP): all of them, with bounds and what they were fitted on."""

from __future__ import annotations

from collections.abc import Mapping

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
    spread: float
    """How unequally fast pipelines are over equal links: standard deviation of the time that a transfer occupies its wire, over its
    mean. An iteration ends with the slowest pipeline."""
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
    "layer": (14e-3, 24e-3), "layer_fused": (13e-3, 20e-3), "spread": (0.0, 0.3), "handling": (0.0, 30e-3), "unhidden": (0.0, 1.0),
    "answer": (0.0, 80e-3), "adapter": (10e9, 25e9), "gathers": (1.0, 8.0),
}  # fmt: skip
"""What is physically possible; the fit stays inside."""

FITTED = Fitted(
    layer=18.57e-3, layer_fused=13.0e-3, spread=0.133, handling=8.70e-3, unhidden=0.2125, answer=32.8e-3, adapter=13.82e9,
    gathers=2.70,
)  # fmt: skip
"""`layer_fused` stands at its bound: a lower one would be beyond the kernels, what it hides is not found."""

LEFT_OUT: Mapping[str, Fitted] = {
    "case1": Fitted(
        layer=0.01899, layer_fused=0.01305, spread=0.1253, handling=0.00836, unhidden=0.2061, answer=0.03297, adapter=13820000000.0, gathers=2.69,
    ),
    "case2": Fitted(
        layer=0.01766, layer_fused=0.013, spread=0.1382, handling=0.01332, unhidden=0.16, answer=0.03238, adapter=13480000000.0, gathers=2.709,
    ),
    "case3": Fitted(
        layer=0.01859, layer_fused=0.013, spread=0.1304, handling=0.007021, unhidden=0.2852, answer=0.03579, adapter=14080000000.0, gathers=2.739,
    ),
    "case4": Fitted(
        layer=0.01846, layer_fused=0.013, spread=0.1581, handling=0.009507, unhidden=0.1469, answer=0.02929, adapter=13690000000.0, gathers=2.406,
    ),
}  # fmt: skip
"""The same numbers fitted without the rows of a case."""
RATES = {("fp16", 768): 6.44e-3, ("fp32", 768): 18.2e-3, ("fp32", 2048): 76.8e-3}
"""As `layer`, for other precisions and widths: read off the 10 Gbit/s row of one pipeline (TCP-240, -355, -360), not fitted
to any throttled row."""
NIC = 9.75e9
"""What a 10 Gbit/s adapter gives to one NCCL transfer (measured apart, tc-free point-to-point runs)."""
TENSOR = 16e9
"""Bytes per second of a tensor-parallel all-reduce between V100s of a box, launches included (read off Megatron-T8, case 1)."""
