"""Layer scope: one piece of a block for one micro-batch. Kernels in a row, serial collectives, the host's pace over both."""

from __future__ import annotations

from shardmeter.core.formula import under
from shardmeter.core.record import record
from shardmeter.core.units import Number, Seconds
from shardmeter.engine import add
from shardmeter.engine.demand import BlockWork
from shardmeter.engine.price import NOTHING, Charge, Prices
from shardmeter.physics import memory_bound
from shardmeter.specs.demands import FORWARD, INPUT_GRAD, WEIGHT_GRAD, Transfer
from shardmeter.specs.stack import Stack

LABELS = {"gemm": "matrix products", "attention": "core attention", "traffic": "memory-bound kernels"}
DIRECTIONS = (FORWARD, INPUT_GRAD, WEIGHT_GRAD)
Ledger = dict[str, Number]


@record
class Piece:
    """One piece of a block: exposed seconds by phase and label, their sums, and the transfers that may hide behind them."""

    ledgers: dict[str, Ledger]
    times: dict[str, Seconds]
    serial: dict[str, Charge]
    """What the serial collectives of each phase occupy of the channels."""
    gather: Charge
    gather_again: Charge
    scatter: Charge
    replicate: Charge

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
        """What the serial collectives of both gradients occupy."""
        return self.serial[INPUT_GRAD].plus(self.serial[WEIGHT_GRAD])


def piece(work: BlockWork, price: Prices, stack: Stack) -> Piece:
    """Price one piece and fold it: device seconds by phase, serial collectives, then the launch floor over each direction."""
    ledgers: dict[str, Ledger] = {phase: {} for phase in DIRECTIONS}
    for op, portion in work.ops:
        label = "recompute" if op.replay else LABELS[op.kind]
        with under(label):
            add.merged(ledgers[op.phase], {label: price.compute(op)}, portion)
    serial = dict.fromkeys(DIRECTIONS, NOTHING)
    for transfer, portion in work.serial:
        with under("tensor parallel"):
            charge = price.transfer(transfer)
        add.merged(ledgers[transfer.phase], {"tensor parallel": charge.seconds}, portion)
        serial[transfer.phase] = serial[transfer.phase].plus(charge, portion)
    times = {phase: add.folded(ledgers[phase].values()) for phase in DIRECTIONS}
    _floor(ledgers, times, (FORWARD,), work.launches_forward, stack)
    _floor(ledgers, times, (INPUT_GRAD, WEIGHT_GRAD), work.launches_backward, stack)
    with under("parameter gather"):
        gathers = [price.transfer(t) for t in work.sharded if t.collective == "all_gather"]
    return Piece(
        ledgers=ledgers,
        times=times,
        serial=serial,
        gather=gathers[0] if gathers else NOTHING,
        gather_again=gathers[1] if len(gathers) > 1 else NOTHING,
        scatter=_priced(work.sharded, "reduce_scatter", price),
        replicate=_priced(work.sharded, "all_reduce", price),
    )


def _priced(transfers: tuple[Transfer, ...], collective: str, price: Prices) -> Charge:
    found = [t for t in transfers if t.collective == collective]
    with under("gradient reduction"):
        return price.transfer(found[0]) if found else NOTHING


def _floor(
    ledgers: dict[str, Ledger], times: dict[str, Seconds], phases: tuple[str, ...], launches: Number, stack: Stack
) -> None:
    """Raise a direction to the host's pace; the excess becomes a term of its first phase."""
    device = add.folded(times[phase] for phase in phases)
    with under("launch overhead"):
        paced = _paced(device, launches, stack)
    ledgers[phases[0]]["launch overhead"] = paced - device
    times[phases[0]] = times[phases[0]] + (paced - device)


def _paced(device: Seconds, launches: Number, stack: Stack) -> Seconds:
    host = memory_bound.host_time(launches, stack.launch_overhead)
    paced: Seconds = memory_bound.launch_floor(device, host)
    return paced
