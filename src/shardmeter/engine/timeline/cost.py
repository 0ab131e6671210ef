"""What one unit of a timeline costs: the closed form's ledgers of a piece, told apart into computes, collectives and the host's
pace; and the units that a chunk is made of."""

from __future__ import annotations

from collections.abc import Mapping

from shardmeter.core.record import record
from shardmeter.core.sums import plain_sum
from shardmeter.engine.demand import Work
from shardmeter.engine.layer import EXCHANGE, Carried, Charges, Piece
from shardmeter.engine.micro_batch import chunks
from shardmeter.engine.price import NOTHING, Charge, Prices
from shardmeter.schedules import Slot, traits
from shardmeter.specs.demands import FORWARD, INPUT_GRAD, WEIGHT_GRAD
from shardmeter.specs.plan import Plan
from shardmeter.specs.stack import Stack
from shardmeter.strategies.pipeline import Stage

PHASES = {
    "forward": (FORWARD,),
    "backward": (INPUT_GRAD, WEIGHT_GRAD),
    "input_grad": (INPUT_GRAD,),
    "weight_grad": (WEIGHT_GRAD,),
}
COMPUTE = ("matrix products", "core attention", "memory-bound kernels", "dispatch wait", "contention")
BINDS = 0.01
"""Share of a unit's time above which the host's pace is drawn on a stream of its own; below, it is part of the compute."""


@record
class Case:
    """The demands and prices of one step: those of the closed form, nothing of its own."""

    work: Work
    pieces: Mapping[str, Piece]
    price: Prices
    plan: Plan
    stack: Stack
    slots: tuple[Slot, ...] = ()
    """What the closed form gives to the schedule: runs of equal stages."""


@record
class Cost:
    """What one unit takes in one kind of turn."""

    again: Mapping[str, float]
    """Seconds by term of what runs again first."""
    terms: Mapping[str, float]
    """Seconds by term of its compute."""
    serial: Charges
    """What its collectives in line occupy, by term."""
    behind: Charges
    """What collectives behind its own compute occupy, by term."""
    exchange: Charge
    """What its exchange of tokens with experts occupies, where another micro-batch computes beside it."""
    host: float
    """Seconds of the host's stream, where its pace binds."""
    paced: float
    """The host's excess over the device."""


def cost(piece: Piece, kind: str, pace: float, *, joined: bool = False) -> Cost:
    """A piece's ledgers over the phases of a turn, told apart into what computes, what is moved and what the host adds.

    `joined`: the exchange with experts is a task of its own, and the host's pace is drawn whenever it has one."""
    terms: dict[str, float] = {}
    moved: dict[str, Charge] = {}
    carried = Carried()
    for phase in PHASES[kind]:
        for term, seconds in piece.ledgers[phase].items():
            terms[term] = terms.get(term, 0.0) + float(seconds)
        for term, charge in piece.collectives[phase].items():
            moved[term] = moved.get(term, NOTHING).plus(charge)
        carried = carried.plus(piece.carried.get(phase, Carried()))
    if joined and EXCHANGE in moved:
        del moved[EXCHANGE], terms[EXCHANGE]
        terms["contention"] = terms.get("contention", 0.0) - float(carried.slowed)
    total, paced = plain_sum(terms.values()), terms.pop("launch overhead", 0.0)
    host = total
    if joined:
        host = float(piece.host[PHASES[kind][0]])
        paced = max(host - (total - paced), 0.0)
    compute = {term: pace * seconds for term, seconds in terms.items() if term in COMPUTE and seconds}
    again = {term: pace * seconds for term, seconds in terms.items() if term == "recompute" and seconds}
    shown = {term: terms[term] / float(charge.seconds) for term, charge in moved.items() if float(charge.seconds)}
    binds = joined or paced > BINDS * total
    if not binds and paced:
        compute["launch overhead"] = paced
    return Cost(
        again=again,
        terms=compute,
        serial={term: moved[term].times(share) for term, share in shown.items()},
        behind={term: moved[term].times(1.0 - share) for term, share in shown.items() if share < 1.0 - 1e-9},
        exchange=carried.charge if joined else NOTHING,
        host=host if binds else 0.0,
        paced=paced if binds else 0.0,
    )


def units(stage: Stage, position: int, case: Case) -> tuple[tuple[tuple[str, str], ...], ...]:
    """(block, label) of every unit of every chunk, in forward order; layers are numbered from 0 over the model."""
    plan, line = case.plan, [case.work.stages[kind] for kind, _, count in case.work.runs for _ in range(count)]
    counts = [[plain_sum(count for _, count in row) for row in chunks(one, plan)] for one in line]
    vee = plan.pp > 1 and traits(plan.schedule).route == "vee"
    found = []
    for chunk, row in enumerate(chunks(stage, plan)):
        earlier = range(position + 1, plan.pp) if vee and chunk % 2 else range(position)
        before = plain_sum(plain_sum(each[:chunk]) for each in counts) + plain_sum(counts[i][chunk] for i in earlier)
        names = [name for name, count in row for _ in range(count)]
        units = [(name, f"layer {before + k}") for k, name in enumerate(names)]
        if stage.embedding and chunk == 0:
            units.insert(0, ("embedding", "embedding"))
        if stage.head and chunk == len(counts[0]) - 1:
            units.append(("head", "head"))
        found.append(tuple(units))
    return tuple(found)
