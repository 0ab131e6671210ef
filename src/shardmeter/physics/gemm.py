"""Matrix products: a smooth, cheap roofline.

Legend: the product is (m × k) · (k × n), done `repeats` times. On measured training runs sharper tile and wave curves
buy nothing once a byte bound and a launch floor exist, so the shape terms are smooth and cost two operations each.
"""

from __future__ import annotations

import numpy as np

from shardmeter.core.formula import formula
from shardmeter.core.units import Bytes, BytesPerS, Count, Flop, FlopPerS, Ratio, Seconds, Watts

TILE = 256.0 * 128.0
"""Output elements of one thread-block tile of current libraries."""
DEPTH_FILL = 0.837
"""Depth that costs as much as filling and draining one tile's pipeline, per (FLOP/s × bytes per element) / (B/s): 256 on an
A100 in 16 bits (312 T, 2.04 TB/s), which gives 494 on a Hopper part; its 8-bit shape sweep was fitted by 512."""
WAVE_LOSS = 0.35
"""Share of one wave that quantisation costs on average."""
BEST_SHAPE_MARGIN = 1.08
"""Asymptotic rate over the rate of the best measured shape, whose own depth and waves are finite."""


SCALED: dict[tuple[str, str], float] = {("row", "Hopper"): 0.72}
"""Rate of narrow products whose scales cover less than a tensor, over that of one scale a tensor, by (scaling, architecture).
Measured training pairs on H100; DeepGEMM reaches the rate of one scale a tensor with 128 × 128 blocks. Others: 1."""


@formula(cite="williams2009")
def gemm_traffic(m: Count, n: Count, k: Count, repeats: Count, width: Bytes, result: Bytes) -> Bytes:
    """Bytes through device memory if every operand of `width` is read once and the result, of `result`, written once.

    Leaves out: re-reads when an operand does not fit the cache; cache hits on freshly written operands."""
    return (width * (m * k + k * n) + result * (m * n)) * repeats


@formula(cite="mamf")
def depth_fill(rate: FlopPerS, width: Bytes, bandwidth: BytesPerS, per_balance: Ratio, flop: Flop) -> Count:
    """Depth whose arithmetic takes as long as the start of a tile, which waits for memory: faster arithmetic needs more depth.

    Leaves out: cache latency apart from bandwidth, deeper software pipelines of newer libraries."""
    return per_balance * rate * width / (bandwidth * flop)


@formula(cite="osama2023")
def gemm_fill(m: Count, n: Count, k: Count, repeats: Count, processors: Count, depth: Count) -> Ratio:
    """Factor ≥ 1 on the time of a product whose depth is short or whose tiles fill few waves.

    With a = depth/k and b = 0.35 · processors · tile/(m · n · repeats): (1 + a)(1 + b). Where tiles are scarcer than depth
    (b > a: a weight gradient sums over all tokens into a small matrix), libraries cut the depth into s parts, each a tile of its
    own: (1 + s·a)(1 + b/s), least at s = √(b/a), where it is (1 + √(ab))². Leaves out: the saw-tooth of single waves, smaller
    tiles for small shapes, the sum of the parts, alignment."""
    short = depth / k
    idle = WAVE_LOSS * TILE * processors / (m * n * repeats)
    parts = np.sqrt(np.maximum(idle / short, 1.0))
    return (1.0 + short * parts) * (1.0 + idle / parts)


@formula(cite="mamf")
def matmul_rate(peak: FlopPerS, share: Ratio, factor: Ratio, power_limit: Watts, power: Watts) -> FlopPerS:
    """Sustained rate of large products: dense peak × measured best share × margin × the stack's factor, at most the peak (or what
    the best measured shape reached, on parts that clock above their listed boost).

    A power cap costs the square root of its ratio: between a voltage-bound clock (cube root) and a frequency-bound one
    (linear). Leaves out: temperature, input data (random data switches more bits than zeros)."""
    reached = np.minimum(share * BEST_SHAPE_MARGIN * factor, np.maximum(share, 1.0))
    return peak * reached * np.sqrt(np.minimum(power_limit / power, 1.0))


@formula(cite="williams2009")
def gemm_time(
    flops: Flop, traffic: Bytes, fill: Ratio, rate: FlopPerS, bandwidth: BytesPerS, start: Seconds
) -> Seconds:
    """Roofline of one product: the longer of arithmetic and memory, plus the start of the kernel on the device.

    Leaves out: overlap of a product's tail with the next kernel."""
    return np.maximum(flops * fill / rate, traffic / bandwidth) + start
