"""A frozen model beside the trained one: a teacher (Hinton 2015 §2), the reference of a preference loss (Rafailov 2023 §4), an
anchor of a divergence. It runs forward over every micro-batch, on the ranks of the trained model and laid over them as that
one is: a model of which nothing is trained, by the demands, prices and windows of any other.
"""

from __future__ import annotations

from shardmeter.core.formula import under, within
from shardmeter.core.record import changed, record
from shardmeter.core.units import Seconds
from shardmeter.engine import add, demand, host, memory
from shardmeter.engine.demand import Work
from shardmeter.engine.jitter import stragglers
from shardmeter.engine.layer import Piece, piece
from shardmeter.engine.micro_batch import micro_batch
from shardmeter.engine.price import Prices
from shardmeter.families import given_sequence, sized
from shardmeter.families.operations import is_layer
from shardmeter.specs.estimate import MemoryTerm
from shardmeter.specs.model import Model
from shardmeter.specs.plan import Plan
from shardmeter.specs.run import Run
from shardmeter.specs.stack import Stack
from shardmeter.strategies import adapters, precision
from shardmeter.strategies.precision import WIDTH

LABEL = "reference model"
"""Its term of the ledger, and of memory."""


@record
class Reference:
    """What a reference model takes of one step and of one rank's memory."""

    exposed: Seconds
    """Its forward passes, with the gathers that show."""
    hidden: Seconds
    busy: Seconds
    """What of `exposed` the device computes."""
    late: Seconds
    """What the step waits longer for its slowest ranks."""
    memory: MemoryTerm


def reference(run: Run, price: Prices, plan: Plan, stack: Stack) -> Reference | None:
    """The reference model of a run, priced; None where it has none. `price` is that of the trained model's plan.

    Leaves out: hiding its first gather behind the trained model (and the other way round), what it shares with the trained model
    (adapters switched off instead of a second copy), answers that were computed before the run, comparing two models'
    logits beyond each model's own loss. Raises UnknownName for a family that is not built."""
    if run.reference is None:
        return None
    own, asked = frozen(plan), seen(run.reference, run)
    model = sized(run.reference, asked.seq_len)
    work = demand.collect(model, own, asked, stack)
    with under(LABEL, whole=True):
        one = micro_batch(work.stages[0], _pieces(model, work, price, own, stack), own, stack, work.micro_batches)
        late = stragglers(work, [one], 0.0, own, stack)
    busy = add.folded(one.exposed.get(label, 0.0) for label in add.BUSY)
    return Reference(
        exposed=work.micro_batches * one.slot.forward,
        hidden=work.micro_batches * add.folded(one.hidden.values()),
        busy=work.micro_batches * busy,
        late=late,
        memory=_resident(model, work, own, stack),
    )


def reference_pieces(run: Run, plan: Plan, stack: Stack) -> dict[str, float]:
    """How many pieces of every block the reference model has on a rank; none where there is no such model."""
    if run.reference is None:
        return {}
    work = demand.collect(run.reference, frozen(plan), seen(run.reference, run), stack)
    return {name: float(count) for name, count in demand.contents(work.stages[0])}


def frozen(plan: Plan) -> Plan:
    """The plan of a model that is laid out like the trained one and runs forward only: 16 bits are held and gathered (fewer where
    the plan gathers fewer), on the host where parameters are, and freed after every layer: no backward waits for them."""
    base = precision.recipe(plan.precision).base
    gathered = plan.gather_dtype if WIDTH[plan.gather_dtype] <= WIDTH[base] else base
    away = tuple(kind for kind in plan.offload if kind == "parameters")
    return changed(
        plan, trainable=adapters.NOTHING, probes=None, recompute="none", reshard=True, gather_dtype=gathered, offload=away, pp=1,
        virtual_stages=1, schedule="1f1b",
    )  # fmt: skip


def seen(model: Model, run: Run) -> Run:
    """The run as a reference model sees it: the same samples, cut into its own patches where images give the sequence."""
    own = given_sequence(model)
    return changed(run, reference=None, seq_len=run.seq_len if own is None else own)


def _pieces(model: Model, work: Work, price: Prices, plan: Plan, stack: Stack) -> dict[str, Piece]:
    """One piece of every block; what lies on the host comes up once, for the forward."""
    pieces = {name: piece(block, price, stack) for name, block in work.blocks.items()}
    for name in filter(is_layer, work.blocks if plan.offload else ()):
        with within(name):
            copied = host.copies(model, work, price, plan, stack, name)
        pieces[name] = changed(pieces[name], copies=changed(copied, down=0.0, up=0.0))
    return pieces


def resident(run: Run, plan: Plan, stack: Stack) -> MemoryTerm | None:
    """The memory of `reference` alone; None where a run has none. Raises UnknownName for a family that is not built."""
    if run.reference is None:
        return None
    own, asked = frozen(plan), seen(run.reference, run)
    model = sized(run.reference, asked.seq_len)
    return _resident(model, demand.collect(model, own, asked, stack), own, stack)


def _resident(model: Model, work: Work, plan: Plan, stack: Stack) -> MemoryTerm:
    """Parameters, gathered units, and the larger of one layer and the logits. It runs while the trained model keeps what its
    backward needs: all of it is added. Leaves out: what of a layer is freed as it computes."""
    terms = memory.of_stage(model, work, work.stages[0], plan, stack)
    return MemoryTerm(label=LABEL, size=add.memory_total(terms), exactness="modelled")
