"""Layer scope: one piece of a block for one micro-batch. Kernels in a row, serial collectives, the host's pace over both."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from shardmeter.core.formula import under, within
from shardmeter.core.record import changed, record
from shardmeter.core.units import Number, Seconds
from shardmeter.engine import add, hide
from shardmeter.engine.demand import BlockWork
from shardmeter.engine.price import NOTHING, Charge, Prices
from shardmeter.physics import memory_bound
from shardmeter.specs.demands import FORWARD, INPUT_GRAD, WEIGHT_GRAD, Transfer
from shardmeter.specs.stack import Stack

LABELS = {"gemm": "matrix products", "attention": "core attention", "traffic": "memory-bound kernels"}
TERMS = {"expert": "expert all-to-all", "context": "context parallel", "tensor": "tensor parallel",
         "contrastive": "contrastive gather"}  # fmt: skip
"""Ledger term of a collective, by the first word of its label."""
DIRECTIONS = (FORWARD, INPUT_GRAD, WEIGHT_GRAD)
Ledger = dict[str, Number]
Charges = dict[str, Charge]
EXCHANGE = TERMS["expert"]
HOST = "host offload"
"""Label of copies between device and host, and of what the host computes."""


@record
class Copies:
    """Seconds of one layer's copies between device and host: each direction is a channel of its own."""

    down: Seconds = 0.0
    """What its forward keeps, to the host."""
    parameters: Seconds = 0.0
    """Its shard of the parameters, from the host: before its forward and before its backward."""
    up: Seconds = 0.0
    """What its forward has kept, from the host again, before its backward."""

    @property
    def forward(self) -> Seconds:
        """What a forward in the middle of a train must wait for at least: the longer direction, the other runs beside it."""
        return add.larger(self.down, self.parameters)

    @property
    def backward(self) -> Seconds:
        """The same of a backward."""
        return self.parameters + self.up


@record
class Carried:
    """Collectives of one phase that an outer scope may hide: what they occupy, what of the phase's seconds is theirs as long as
    nothing outside hides them, and what they cost it by contention."""

    charge: Charge = NOTHING
    shown: Seconds = 0.0
    slowed: Seconds = 0.0

    def plus(self, other: Carried) -> Carried:
        """Both."""
        return Carried(
            charge=self.charge.plus(other.charge), shown=self.shown + other.shown, slowed=self.slowed + other.slowed
        )


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
    collectives: dict[str, Charges]
    """What the piece's own collectives occupy of the channels, by phase and ledger term, in line or behind its compute."""
    serial: dict[str, Charge]
    """The same, by phase: parameters and gradients share the channels with them."""
    host: dict[str, Seconds]
    """The host's own seconds for the launches of a direction, by its first phase."""
    carried: dict[str, Carried]
    """The exchange of tokens with experts, by phase: where a schedule joins two micro-batches, each runs behind the other."""
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

    @property
    def serial_backward(self) -> Charge:
        """What the piece's own collectives of both gradients occupy."""
        return self.serial[INPUT_GRAD].plus(self.serial[WEIGHT_GRAD])

    @property
    def reduce(self) -> Charge:
        """Its gradients' scatter and, after it, their sum over replicas."""
        return self.scatter.plus(self.replicate)


def piece(work: BlockWork, price: Prices, stack: Stack) -> Piece:
    """Price one piece and fold it: device seconds by phase, serial collectives, then the launch floor over each direction."""
    with within(work.block.name):
        return _folded(work, price, stack)


def _folded(work: BlockWork, price: Prices, stack: Stack) -> Piece:
    ledgers: dict[str, Ledger] = {phase: {} for phase in DIRECTIONS}
    windows: dict[tuple[str, str, bool], list[tuple[Seconds, Number]]] = {}
    products: Ledger = {}
    for op, portion in work.ops:
        label = "recompute" if op.replay else LABELS[op.kind]
        with under(label, portion=portion):
            seconds = price.compute(op)
        windows.setdefault((op.label, op.phase, op.replay), []).append((seconds, portion))
        add.merged(ledgers[op.phase], {label: seconds}, portion)
        if op.kind == "gemm" and not op.replay:
            add.merged(products, {op.phase + op.split: seconds}, portion)
    collectives: dict[str, Charges] = {phase: {} for phase in DIRECTIONS}
    hidden: Ledger = {}
    carried: dict[str, Carried] = {}
    for transfer, portion in work.serial:
        term = TERMS[transfer.label.partition(" ")[0]]
        with under(term, portion=portion):
            charge = price.transfer(transfer)
        shown, behind = _in_chunks(transfer, charge.seconds, products)
        add.merged(ledgers[transfer.phase], {term: shown}, portion)
        if transfer.hides_under:
            add.merged(hidden, {term: behind}, portion)
            add.merged(ledgers[transfer.phase], {"contention": stack.chunk_loss * behind}, portion)
        _occupied(collectives[transfer.phase], transfer, charge, portion)
        _carried(carried, transfer, charge, {term: shown}, portion)
    for transfer, portion, replay in work.behind:
        window = _mean(windows[transfer.hides_under, transfer.phase, replay])
        exposed, covered, charge = _behind(transfer, window, portion, price, stack)
        add.merged(ledgers[transfer.phase], exposed, portion)
        add.merged(hidden, covered, portion)
        _occupied(collectives[transfer.phase], transfer, charge, portion)
        _carried(carried, transfer, charge, exposed, portion)
    times = {phase: add.folded(ledgers[phase].values()) for phase in DIRECTIONS}
    host = {
        FORWARD: _floor(ledgers, times, (FORWARD,), work, price),
        INPUT_GRAD: _floor(ledgers, times, (INPUT_GRAD, WEIGHT_GRAD), work, price),
    }
    _wait(ledgers, times, work, stack)
    with under("parameter gather"):
        gather = _priced(work.sharded, "all_gather", FORWARD, price)
        again = _priced(work.sharded, "all_gather", INPUT_GRAD, price)
    with under("gradient reduction"):
        scatter = _priced(work.sharded, "reduce_scatter", INPUT_GRAD, price)
        replicate = _priced(work.sharded, "all_reduce", INPUT_GRAD, price)
    return Piece(
        ledgers=ledgers, hidden=hidden, times=times, gather=gather, gather_again=again, scatter=scatter,
        replicate=replicate, collectives=collectives,
        serial={phase: _together(charges.values()) for phase, charges in collectives.items()}, host=host, carried=carried,
    )  # fmt: skip


def _mean(parts: Sequence[tuple[Seconds, Number]]) -> Seconds:
    """Seconds of a compute that is done in one way in a portion of the pieces and in another in the rest."""
    if len(parts) == 1:
        return parts[0][0]
    return add.folded(portion * seconds for seconds, portion in parts) / add.folded(portion for _, portion in parts)


def _occupied(charges: Charges, transfer: Transfer, charge: Charge, portion: Number) -> None:
    """Add what a collective occupies, in place, to its term."""
    term = TERMS[transfer.label.partition(" ")[0]]
    charges[term] = charges.get(term, NOTHING).plus(charge, portion)


def _carried(carried: dict[str, Carried], transfer: Transfer, charge: Charge, exposed: Ledger, portion: Number) -> None:
    """Add an exchange with experts, in place, to what an outer scope may hide."""
    term = TERMS[transfer.label.partition(" ")[0]]
    if term != EXCHANGE:
        return
    slowed = portion * exposed.get("contention", 0.0)
    one = Carried(charge=charge.times(portion), shown=portion * exposed[term], slowed=slowed)
    carried[transfer.phase] = carried.get(transfer.phase, Carried()).plus(one)


def _together(charges: Iterable[Charge]) -> Charge:
    """One after the other."""
    total = NOTHING
    for charge in charges:
        total = total.plus(charge)
    return total


def _in_chunks(transfer: Transfer, seconds: Seconds, products: Ledger) -> tuple[Seconds, Seconds]:
    """(exposed, hidden) seconds of a serial transfer: all of it, or, where it passes in chunks behind the products cut along
    the axis it names, one chunk and what does not fit behind them."""
    if not transfer.hides_under:
        return seconds, 0.0
    chunk = seconds / transfer.chunks
    shown = chunk + hide.late(seconds - chunk, products.get(transfer.phase + transfer.hides_under, 0.0))
    return shown, seconds - shown


def _behind(
    transfer: Transfer, window: Seconds, portion: Number, price: Prices, stack: Stack
) -> tuple[Ledger, Ledger, Charge]:
    """(exposed, hidden) seconds of messages of which each may run behind its share of a named compute, one after another, and
    what they occupy.

    What is hidden slows that compute. Source: the rule of `hide`, each message released when its share begins."""
    term = TERMS[transfer.label.partition(" ")[0]]
    with under(term, portion=portion):
        charge = price.transfer(changed(transfer, messages=1.0))
    each = charge.seconds
    shown = hide.late(each, transfer.window * window)
    slowed = hide.slowed(stack.contention, each - shown, shown)
    times = transfer.messages
    exposed = {term: times * shown, "contention": times * slowed}
    return exposed, {term: times * (each - shown)}, charge.times(times)


def _priced(transfers: tuple[Transfer, ...], collective: str, phase: str, price: Prices) -> Charge:
    """What the collectives of one kind and phase take together, one after another: those of experts after the others."""
    return _together(price.transfer(t) for t in transfers if t.collective == collective and t.phase == phase)


def _floor(
    ledgers: dict[str, Ledger], times: dict[str, Seconds], phases: tuple[str, ...], work: BlockWork, price: Prices
) -> Seconds:
    """Raise a direction to the host's pace; the excess becomes a term of its first phase. The host's own seconds."""
    if not any(ledgers[phase] for phase in phases):  # frozen: there is no such direction
        return 0.0
    launches = work.launches_forward if FORWARD in phases else work.launches_backward
    tensor = [t.messages * portion for t, portion in work.serial if t.phase in phases and t.label.startswith("tensor")]
    device = add.folded(times[phase] for phase in phases)
    with under("launch overhead"):
        host: Seconds = memory_bound.host_time(launches, price.stack.launch_time) + price.waits(add.folded(tensor))
        pace = memory_bound.launch_floor if price.island.accelerator.host_ahead else memory_bound.launches_in_line
        paced = pace(device, host)
    ledgers[phases[0]]["launch overhead"] = paced - device
    times[phases[0]] = times[phases[0]] + (paced - device)
    return host


def _wait(ledgers: dict[str, Ledger], times: dict[str, Seconds], work: BlockWork, stack: Stack) -> None:
    """Add what the device waits for the host between router and experts to each direction."""
    wait = stack.host_wait
    if isinstance(wait, float) and wait == 0.0:
        return
    for phase, count in ((FORWARD, work.waits[0]), (INPUT_GRAD, work.waits[1])):
        if not (isinstance(count, float) and count == 0.0) and ledgers[phase]:
            seconds = count * wait
            ledgers[phase]["dispatch wait"] = seconds
            times[phase] = times[phase] + seconds
