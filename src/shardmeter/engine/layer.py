"""Layer scope: one piece of a block for one micro-batch. Kernels in a row, serial collectives, the host's pace over both."""

from __future__ import annotations

from shardmeter.core.formula import under
from shardmeter.core.record import changed, record
from shardmeter.core.units import Number, Seconds
from shardmeter.engine import add, hide
from shardmeter.engine.demand import BlockWork
from shardmeter.engine.hide import Fold
from shardmeter.engine.price import NOTHING, Charge, Prices
from shardmeter.physics import memory_bound
from shardmeter.specs.demands import FORWARD, INPUT_GRAD, WEIGHT_GRAD, Transfer
from shardmeter.specs.stack import Stack

LABELS = {"gemm": "matrix products", "attention": "core attention", "traffic": "memory-bound kernels"}
TERMS = {"expert": "expert all-to-all", "context": "context parallel", "tensor": "tensor parallel"}
"""Ledger term of a collective, by the first word of its label."""
DIRECTIONS = (FORWARD, INPUT_GRAD, WEIGHT_GRAD)
Ledger = dict[str, Number]
HOST = "host offload"
"""Label of copies between device and host, and of what the host computes."""


@record
class Copies:
    """Seconds of one layer's copies in its forward and its backward: the longer direction, the other runs beside it."""

    forward: Seconds = 0.0
    backward: Seconds = 0.0


@record
class Piece:
    """One piece of a block: exposed seconds by phase and label, their sums, and the transfers that may hide behind them."""

    ledgers: dict[str, Ledger]
    hidden: Ledger
    """Seconds that run behind named computes of the piece itself, by label."""
    times: dict[str, Seconds]
    gather: Charge
    gather_again: Charge
    scatter: Charge
    replicate: Charge
    own: dict[str, Charge]
    """What collectives of experts and of context parallelism occupy by phase: parameters and gradients share the channels.

    Leaves out: those of tensor parallelism, which seldom leave the scale-up domain."""
    copies: Copies = Copies()
    """Copies between device and host that run behind the piece."""

    @property
    def forward(self) -> Seconds:
        """Seconds of the forward pass."""
        return self.times[FORWARD]

    @property
    def backward(self) -> Seconds:
        """Seconds of both gradients."""
        return self.times[INPUT_GRAD] + self.times[WEIGHT_GRAD]

    def forward_fold(self) -> Fold:
        """A train of such pieces going forward: the first gather shows, the others run one piece ahead."""
        return _fold(self.forward, self.gather.seconds, 0.0, (self.gather, self.own[FORWARD]))

    def backward_fold(self, window: Seconds) -> Fold:
        """A train going backward: the first gather hides behind `window` (the head), the last reduction shows."""
        moved = (self.gather_again, self.scatter, self.replicate, self.own[INPUT_GRAD])
        end = self.scatter.seconds + self.replicate.seconds
        return _fold(self.backward, hide.late(self.gather_again.seconds, window), end, moved)


def _fold(period: Seconds, prologue: Seconds, epilogue: Seconds, moved: tuple[Charge, ...]) -> Fold:
    scale_up: Seconds = 0.0
    fabric: Seconds = 0.0
    for charge in moved:
        scale_up = scale_up + charge.scale_up
        fabric = fabric + charge.fabric
    steady = period + hide.train_stall(period, (scale_up, fabric))
    idle = {"scale_up": steady - scale_up, "fabric": steady - fabric, "compute": steady - period}
    return Fold(prologue=prologue, steady=steady, epilogue=epilogue, idle=idle)


def piece(work: BlockWork, price: Prices, stack: Stack) -> Piece:
    """Price one piece and fold it: device seconds by phase, serial collectives, then the launch floor over each direction."""
    ledgers: dict[str, Ledger] = {phase: {} for phase in DIRECTIONS}
    windows: dict[tuple[str, str, bool], Seconds] = {}
    products: Ledger = {}
    for op, portion in work.ops:
        label = "recompute" if op.replay else LABELS[op.kind]
        with under(label):
            seconds = price.compute(op)
        windows[op.label, op.phase, op.replay] = seconds
        add.merged(ledgers[op.phase], {label: seconds}, portion)
        if op.kind == "gemm" and not op.replay:
            add.merged(products, {op.phase + op.split: seconds}, portion)
    own = dict.fromkeys(DIRECTIONS, NOTHING)
    hidden: Ledger = {}
    for transfer, portion in work.serial:
        term = TERMS[transfer.label.partition(" ")[0]]
        with under(term):
            charge = price.transfer(transfer)
        shown, behind = _in_chunks(transfer, charge.seconds, products)
        add.merged(ledgers[transfer.phase], {term: shown}, portion)
        if transfer.hides_under:
            add.merged(hidden, {term: behind}, portion)
            add.merged(ledgers[transfer.phase], {"contention": stack.contention * behind}, portion)
        if term != "tensor parallel":
            own[transfer.phase] = own[transfer.phase].plus(charge.times(portion))
    for transfer, portion, replay in work.behind:
        window = windows[transfer.hides_under, transfer.phase, replay]
        exposed, covered, charge = _behind(transfer, window, price, stack)
        add.merged(ledgers[transfer.phase], exposed, portion)
        add.merged(hidden, covered, portion)
        own[transfer.phase] = own[transfer.phase].plus(charge.times(portion))
    times = {phase: add.folded(ledgers[phase].values()) for phase in DIRECTIONS}
    _floor(ledgers, times, (FORWARD,), work.launches_forward, stack)
    _floor(ledgers, times, (INPUT_GRAD, WEIGHT_GRAD), work.launches_backward, stack)
    with under("parameter gather"):
        gather = _priced(work.sharded, "all_gather", FORWARD, price)
        again = _priced(work.sharded, "all_gather", INPUT_GRAD, price)
    with under("gradient reduction"):
        scatter = _priced(work.sharded, "reduce_scatter", INPUT_GRAD, price)
        replicate = _priced(work.sharded, "all_reduce", INPUT_GRAD, price)
    return Piece(
        ledgers=ledgers, hidden=hidden, times=times, gather=gather, gather_again=again, scatter=scatter,
        replicate=replicate, own=own,
    )  # fmt: skip


def _in_chunks(transfer: Transfer, seconds: Seconds, products: Ledger) -> tuple[Seconds, Seconds]:
    """(exposed, hidden) seconds of a serial transfer: all of it, or, where it passes in chunks behind the products cut along
    the axis it names, one chunk and what does not fit behind them."""
    if not transfer.hides_under:
        return seconds, 0.0
    chunk = seconds / transfer.chunks
    shown = chunk + hide.late(seconds - chunk, products.get(transfer.phase + transfer.hides_under, 0.0))
    return shown, seconds - shown


def _behind(transfer: Transfer, window: Seconds, price: Prices, stack: Stack) -> tuple[Ledger, Ledger, Charge]:
    """(exposed, hidden) seconds of messages of which each may run behind its share of a named compute, one after another, and
    what they occupy.

    What is hidden slows that compute. Source: the rule of `hide`, each message released when its share begins."""
    term = TERMS[transfer.label.partition(" ")[0]]
    with under(term):
        charge = price.transfer(changed(transfer, messages=1.0))
    each = charge.seconds
    shown = hide.late(each, transfer.window * window)
    slowed = hide.slowed(stack.contention, each - shown, shown)
    times = transfer.messages
    exposed = {term: times * shown, "contention": times * slowed}
    return exposed, {term: times * (each - shown)}, charge.times(times)


def _priced(transfers: tuple[Transfer, ...], collective: str, phase: str, price: Prices) -> Charge:
    """What the collectives of one kind and phase take together, one after another: those of experts after the others."""
    found = [price.transfer(t) for t in transfers if t.collective == collective and t.phase == phase]
    total = found[0] if found else NOTHING
    for one in found[1:]:
        total = total.plus(one)
    return total


def _floor(
    ledgers: dict[str, Ledger], times: dict[str, Seconds], phases: tuple[str, ...], launches: Number, stack: Stack
) -> None:
    """Raise a direction to the host's pace; the excess becomes a term of its first phase."""
    if not any(ledgers[phase] for phase in phases):  # frozen: there is no such direction
        return
    device = add.folded(times[phase] for phase in phases)
    with under("launch overhead"):
        paced = _paced(device, launches, stack)
    ledgers[phases[0]]["launch overhead"] = paced - device
    times[phases[0]] = times[phases[0]] + (paced - device)


def _paced(device: Seconds, launches: Number, stack: Stack) -> Seconds:
    host = memory_bound.host_time(launches, stack.launch_overhead)
    paced: Seconds = memory_bound.launch_floor(device, host)
    return paced
