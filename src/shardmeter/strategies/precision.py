"""Precision recipes: what is multiplied, cast, gathered and kept in which number format (Micikevicius 2022; Noune 2022).

A recipe changes the linear layers of the blocks alone: core attention, the head, norms and residuals stay in 16 bits, as in
Transformer Engine, torchao float8 and DeepSeek-V3 §3.3. What it adds is memory traffic: operands are read in 16 bits and
written in few, once along rows and once along columns, because the two products that use them sum over different axes.
fp32 and tf32 hold and move everything in 4 bytes, and multiply at the rate of that format.
Leaves out: amax reductions over ranks, scale bookkeeping of delayed scaling, layers that a trainer picks by hand; in 4 bytes, that
fused attention kernels have no such format, and that casts around norms are no longer there.
"""

from __future__ import annotations

from shardmeter.core.errors import UnknownName
from shardmeter.core.record import changed, record
from shardmeter.core.units import Bytes, Count, Fraction, Ratio
from shardmeter.families.operations import Block, is_layer
from shardmeter.specs.demands import FORWARD, INPUT_GRAD, WEIGHT_GRAD, Compute, Transfer
from shardmeter.specs.plan import Plan

WIDTH: dict[str, float] = {"fp32": 4.0, "tf32": 4.0, "bf16": 2.0, "fp16": 2.0, "fp8": 1.0, "fp4": 0.5}
"""Bytes of one element of a number format."""
WIDE = ("router", "logits", "adapter", "state products", "recurrence")
"""Products that stay in 16 bits wherever they stand."""


@record
class Recipe:
    """One way to train in few bits: formats, and bytes through memory of its casts."""

    base: str = "bf16"
    """Format of everything but the linear layers of the blocks."""
    linear: str = ""
    """Format in which linear layers multiply; empty = `base`."""
    scaling: str = ""
    """What one scale covers: tensor, row, block, mx (32 elements, in hardware). The price of a product may depend on it."""
    cast: Bytes = 0.0
    """Per element of every linear input and output gradient: 16 bits read, the narrow copies written."""
    weight_cast: Bytes = 0.0
    """Per parameter, once per use: as for inputs."""
    saved: Bytes = 2.0
    """Per element of a linear's input kept for its backward pass."""
    wide_share: Fraction = 0.0
    """Share of the blocks' layers that the recipe leaves in `base`."""
    weight_grad: str = ""
    """Format of the weight gradient's product; empty = `linear`."""
    gathers_inputs: bool = False
    """Tensor parallelism: whether inputs are cast before they are gathered, so that fewer bytes travel."""
    needs: tuple[str, ...] = ()
    """Formats whose units a device must have."""

    @property
    def width(self) -> Bytes:
        """Bytes of an activation between layers."""
        return WIDTH[self.base]

    @property
    def held(self) -> str:
        """Format in which what lies in memory is held: rounding inside the units is not seen there."""
        return "fp32" if self.base == "tf32" else self.base

    @property
    def wider(self) -> Ratio:
        """Bytes of an activation over the 2 that families count with."""
        return self.width / 2.0


RECIPES: dict[str, Recipe] = {
    "bf16": Recipe(needs=("bf16",)),
    "fp16": Recipe(base="fp16", needs=("fp16",)),
    "fp32": Recipe(base="fp32", saved=4.0, needs=("fp32",)),
    # fp32 in memory, rounded inside the units (PyTorch: allow_tf32)
    "tf32": Recipe(base="tf32", saved=4.0, needs=("tf32",)),
    # one scale a tensor, from this step's largest element: torchao "tensorwise", Transformer Engine "current scaling"
    "fp8": Recipe(linear="fp8", scaling="tensor", cast=4.0, weight_cast=4.0, gathers_inputs=True, needs=("fp8",)),
    # one scale a tensor, from the history of largest elements (Micikevicius 2022 §4; Transformer Engine's first default)
    "fp8-delayed": Recipe(
        linear="fp8", scaling="tensor", cast=4.0, weight_cast=4.0, saved=1.0, gathers_inputs=True, needs=("fp8",)
    ),
    # one scale a row of one operand and a column of the other: both orientations are scaled and cast apart
    "fp8-rowwise": Recipe(linear="fp8", scaling="row", cast=8.0, weight_cast=8.0, needs=("fp8",)),
    # the same, the weight gradient multiplied in 16 bits (torchao rowwise_with_gw_hp): its operands need no second cast
    "fp8-rowwise-hp": Recipe(
        linear="fp8", scaling="row", cast=4.0, weight_cast=8.0, weight_grad="bf16", needs=("fp8",)
    ),
    # 1×128 activations and 128×128 weights (DeepSeek-V3 §3.3): kept in 8 bits, read again to be scaled along the other axis
    "fp8-block": Recipe(
        linear="fp8", scaling="block", cast=5.0, weight_cast=4.0, saved=1.0, gathers_inputs=True, needs=("fp8",)
    ),
    # 32 elements a scale, scaled by the units themselves: devices with fp4 units have them (Rouhani 2023)
    "mxfp8": Recipe(
        linear="fp8", scaling="mx", cast=4.06, weight_cast=4.06, saved=1.03, gathers_inputs=True, needs=("fp8", "fp4")
    ),
    # 16 elements a scale and one scale a tensor: two passes; the last four layers stay in 16 bits (recipes of Megatron-Bridge):
    # taken as those of a model of 80, more than in a larger model and less than in a smaller one
    "nvfp4": Recipe(
        linear="fp4", scaling="mx", cast=5.1, weight_cast=5.1, saved=0.56, wide_share=0.05, needs=("fp4",)
    ),
}  # fmt: skip
"""Recipes by the word of `Plan.precision`. Casts: 4 bytes per element is what single-cluster rows bear out for one scale a
tensor, twice that for one scale a row; the others are counted by the same reads and writes."""
RECIPES["fp4"] = RECIPES["nvfp4"]


def names() -> tuple[str, ...]:
    """The words of `Plan.precision`."""
    return tuple(RECIPES)


def recipe(precision: str) -> Recipe:
    """The recipe of a word. Raises UnknownName."""
    if precision not in RECIPES:
        raise UnknownName("precision", precision, names())
    return RECIPES[precision]


def applied(op: Compute, plan: Plan, block: str) -> tuple[tuple[Compute, Fraction], ...]:
    """An operation under the recipe: products of linear layers in its format, those of `wide_share` layers in the base; traffic in
    bytes of its activations."""
    chosen = recipe(plan.precision)
    if op.kind == "traffic" and op.label != "loss" and chosen.wider != 1.0:  # most of a loss is in fp32 anyway
        return ((changed(op, traffic=op.traffic * chosen.wider), 1.0),)
    if not chosen.linear or op.kind != "gemm" or not is_layer(block) or op.label in WIDE:
        return ((op, 1.0),)
    narrow = chosen.weight_grad or chosen.linear if op.phase == WEIGHT_GRAD else chosen.linear
    if narrow == chosen.base:
        return ((op, 1.0),)
    cast = changed(op, dtype=narrow, scaling=chosen.scaling)
    if chosen.wide_share == 0.0:
        return ((cast, 1.0),)
    return (cast, 1.0 - chosen.wide_share), (op, chosen.wide_share)


def casts(ops: tuple[Compute, ...], plan: Plan, block: str) -> tuple[Compute, ...]:
    """Traffic of casting every linear's input (forward) and output gradient (backward), before any sharding.

    A column-parallel layer's input is whole on every rank unless sequence parallelism cuts it before the cast; a row-parallel
    layer's input is cut by heads. Outputs mirror that."""
    chosen = recipe(plan.precision)
    if chosen.cast == 0.0 or not is_layer(block):
        return ()
    per_element = chosen.cast * (1.0 - chosen.wide_share)
    found = []
    for op in ops:
        if op.kind == "gemm" and op.phase in (FORWARD, INPUT_GRAD) and op.label not in WIDE:
            # the depth is cut where the operand itself lies in parts, one a rank
            whole = "sequence" if chosen.gathers_inputs and op.phase == FORWARD else "none"
            split = "heads" if op.split == "k" else "none" if op.split == "none" else whole
            if op.split.startswith(
                "expert "
            ):  # the expert mesh divides it: inside an expert along the depth, or by rows
                split = "expert inner" if op.split.endswith("k") else "expert rows"
            traffic = op.m * op.k * op.repeats * per_element
            found.append(Compute(label="casts", kind="traffic", phase=op.phase, split=split, traffic=traffic))
    return tuple(found)


def weight_casts(matrices: Count, plan: Plan, block: str) -> Bytes:
    """Bytes through memory of casting one rank's `matrices` parameters of a block once."""
    chosen = recipe(plan.precision)
    return matrices * chosen.weight_cast * (1.0 - chosen.wide_share) if is_layer(block) else 0.0 * matrices


def gather_width(plan: Plan, block: str) -> Bytes:
    """Bytes per parameter in a gather: what is not multiplied in 8 bits is not gathered in 8 bits either."""
    narrow = plan.gather_dtype in ("fp8", "fp4") and not is_layer(block)
    return recipe(plan.precision).width if narrow else WIDTH[plan.gather_dtype]


def narrowed(transfers: tuple[Transfer, ...], plan: Plan, block: Block) -> tuple[Transfer, ...]:
    """Tensor-parallel transfers under the recipe: what is cast before it is gathered travels in few bits.

    Only the gathers of the forward pass: gradients are gathered in 16 bits."""
    chosen = recipe(plan.precision)
    if not chosen.gathers_inputs or not is_layer(block.name):
        return transfers
    share = WIDTH[chosen.linear] / chosen.width
    return tuple(
        changed(t, size=t.size * share) if t.collective == "all_gather" and t.phase == FORWARD else t for t in transfers
    )


def kept(plan: Plan, outside: Bytes, inside: Bytes, linear: tuple[Count, Count]) -> tuple[Bytes, Bytes]:
    """Saved bytes of a layer per token, (outside, inside) the tensor-parallel region, with linear inputs in the recipe's width.

    `linear`: elements of linear inputs per token, outside and inside. Leaves out: inputs that a frozen linear need not keep,
    routed experts."""
    chosen = recipe(plan.precision)
    outside, inside = outside * chosen.wider, inside * chosen.wider
    less = (chosen.width - chosen.saved) * (1.0 - chosen.wide_share)
    if less == 0.0:
        return outside, inside
    return outside - less * linear[0], inside - less * linear[1]
