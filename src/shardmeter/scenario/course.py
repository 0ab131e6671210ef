"""What a scenario asks of the whole run: its law of loss, a target, the critical batch, phases of batch and sequence length."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from shardmeter.core.errors import Violation
from shardmeter.core.quantity import show
from shardmeter.core.record import changed
from shardmeter.core.sums import plain_sum
from shardmeter.engine import split
from shardmeter.engine.cells import cells_of
from shardmeter.engine.constraints import CONSTRAINTS, violations, violations_of_island
from shardmeter.engine.sharing import units_of, unshared
from shardmeter.scenario.laws import fitted
from shardmeter.scenario.layout import LOOKS_AT, NO_MODEL, Parts, whole_batch
from shardmeter.scenario.parts import Findings, lookup
from shardmeter.scenario.schema import PhaseInput, RunInput
from shardmeter.specs import CriticalBatch, Island, LossLaw, Phase, Plan, Run

DEFAULT_LAW, DEFAULT_BATCH = "besiroglu-2024", "zhang-2024"
"""Of a target, where nobody says which."""
LAW, TARGET, BATCH, PHASES = ("run", "law"), ("run", "target_loss"), ("run", "critical_batch"), ("run", "phases")
OF_LENGTHS = frozenset(name for name, paths in LOOKS_AT.items() if any(path[:1] == ("run",) for path in paths))
"""Structural rules that look at batch and sequence."""
SAME = 1e-9
"""Share by which the tokens of the phases may miss those of the run."""


def with_phases(asked: RunInput) -> RunInput:
    """The run with what its phases say of it: their tokens together and, where it has none of its own, the last one's batch."""
    if not asked.phases or any(one.tokens is None for one in asked.phases):
        return asked
    last = asked.phases[-1]
    more: dict[str, object] = {}
    if asked.tokens is None and asked.steps is None:
        more["tokens"] = (plain_sum(one.tokens[0] for one in asked.phases if one.tokens), "tokens")
    for name in ("global_batch", "seq_len"):
        if getattr(asked, name) is None and getattr(last, name) is not None:
            more[name] = getattr(last, name)
    return asked.model_copy(update=more)


def resolve_course(
    parts: Parts, islands: Sequence[Island], plan: Plan, plans: Sequence[Plan], run: Run, *, planned: bool
) -> Run:
    """The run with its law, target, critical batch and phases, after noting what is wrong with them. Of plans that are to be chosen
    (`planned`) the phases come with the choices: `open_phases`."""
    asked, found = parts.run, parts.found
    law = _law(asked, parts)
    critical = _critical(asked, parts)

    def phase(at: int, one: PhaseInput) -> Phase:
        return _phase(at, one, islands, plan, plans, parts, run)

    phases = () if planned else _phases(parts, run, phase)
    if asked.target_loss is not None:
        said = [name for name in ("tokens", "steps", "phases") if getattr(asked, name)]
        if said:
            found.refuse(TARGET, f"{' and '.join(said)} say the length of the run too", "keep one of them")
        if law is not None and not law.b:
            says = f"law {law.name} says nothing of tokens apart from parameters"
            found.refuse(LAW, says, f"{DEFAULT_LAW}, or the run's tokens in place of a target")
    return changed(
        run,
        target_loss=asked.target_loss,
        law=law,
        other_laws=() if law is None or asked.target_loss is None else _others(law, parts),
        critical_batch=critical,
        loss_guesses=bool(asked.loss_guesses),
        phases=phases,
    )


def _law(asked: RunInput, parts: Parts) -> LossLaw | None:
    """The law that is named, fitted to a file, or taken for a target or a critical batch."""
    found, name = parts.found, asked.law
    if name is None:
        if asked.target_loss is None and asked.critical_batch in (None, "none"):
            return None
        found.assumptions.append(
            f"run.law {DEFAULT_LAW} (none named): its constants belong to its data and tokenizer, so fit your own (run.law: FILE.csv)"
        )
        name = DEFAULT_LAW
    if name.lower().endswith(".csv"):
        return fitted(name, parts.rows, LAW, found)
    law: LossLaw | None = lookup(LossLaw, name, parts.rows, LAW, found)
    return law


def _others(law: LossLaw, parts: Parts) -> tuple[LossLaw, ...]:
    """The laws of the catalog beside the one that is asked which tell the tokens of a loss."""
    rows = (parts.rows.law(name) for name in parts.rows.names("laws"))
    return tuple(row for row in rows if row.b and row.name != law.name and row.unit == law.unit)


def _critical(asked: RunInput, parts: Parts) -> CriticalBatch | None:
    """The law of the critical batch; of a target, a default."""
    name, found = asked.critical_batch, parts.found
    if name == "none" or (name is None and asked.target_loss is None):
        return None
    if name is None:
        found.assumptions.append(
            f"run.critical_batch {DEFAULT_BATCH} (none named; none leaves out what a large batch costs)"
        )
    law: CriticalBatch | None = lookup(CriticalBatch, name or DEFAULT_BATCH, parts.rows, BATCH, found)
    return law


def open_phases(parts: Parts, run: Run, batch: tuple[float, str], gpus: float) -> tuple[Phase, ...]:
    """The phases of a run whose plan is to be chosen: batches in tokens are moved to numbers that divide well among the GPUs, as that of
    the run is (`batch`: its amount and unit)."""

    def phase(_: int, one: PhaseInput) -> Phase:
        seq_len = float(one.seq_len or run.seq_len)
        amount, word = one.global_batch or batch
        made = amount if word == "sequences" else split.in_sequences(amount, seq_len, gpus)
        return Phase(tokens=one.tokens[0] if one.tokens else 0.0, seq_len=seq_len, global_batch=made)

    return _phases(parts, run, phase)


def _phases(parts: Parts, run: Run, made_of: Callable[[int, PhaseInput], Phase]) -> tuple[Phase, ...]:
    """The phases with their lengths, after noting every rule that one of them breaks."""
    asked, found = parts.run, parts.found
    if asked.phases is None:
        return ()
    if not asked.phases:
        found.refuse(PHASES, "has no phases", "leave it out, or say [{tokens: 100B, global_batch: 4M tokens}, …]")
        return ()
    if asked.steps is not None:
        found.refuse(("run", "steps"), "phases say the length of the run too", "keep one of the two")
    lacking = [at for at, one in enumerate(asked.phases) if one.tokens is None]
    for at in lacking:
        found.refuse((*PHASES, at, "tokens"), "is missing", "every phase says its tokens")
    made = [made_of(at, one) for at, one in enumerate(asked.phases)]
    total = plain_sum(float(one.tokens) for one in made)
    if not lacking and run.tokens is not None and abs(total - float(run.tokens)) > SAME * total:
        says = f"the phases add to {total:g} tokens, and run.tokens is {float(run.tokens):g}"
        found.refuse(PHASES, says, "make them equal, or leave run.tokens out")
    return tuple(made)


def _phase(
    at: int, asked: PhaseInput, islands: Sequence[Island], plan: Plan, plans: Sequence[Plan], parts: Parts, run: Run
) -> Phase:
    """One phase; what it leaves out is the run's."""
    seq_len = float(asked.seq_len or run.seq_len)
    units = units_of(islands, cells_of(plan, islands), plans) if plans else ()
    batch = float(run.global_batch)
    if asked.global_batch is not None:
        batch = _sequences(asked.global_batch, seq_len, plan, units, (*PHASES, at, "global_batch"), parts.found)
    laid = changed(run, seq_len=seq_len, global_batch=batch)
    if not parts.found.touched(("model",), ("stack",), ("plan",), ("run",)):
        for one in _broken(laid, islands, plan, plans, parts):
            field = one.field.rpartition(".")[2] if one.field.startswith("run.") else ""
            path = (*PHASES, at, *((field,) if field else ()))
            parts.found.refuse(path, one.says, one.way_out, one.rule)
    return Phase(tokens=asked.tokens[0] if asked.tokens else 0.0, seq_len=seq_len, global_batch=batch)


def _sequences(
    given: tuple[float, str], seq_len: float, plan: Plan, units: Sequence[split.Units], path: tuple[str | int, ...],
    found: Findings,
) -> float:  # fmt: skip
    """Sequences of a batch; of tokens, the nearest number that whole micro-batches make up."""
    amount, word = given
    if word == "sequences":
        return amount
    if units:
        made = min(split.nearest(amount / seq_len, units, plan.sync.split), key=lambda one: abs(one - amount / seq_len))
    else:
        made = float(whole_batch(amount, seq_len, float(plan.dp * plan.micro_batch)))
    if made != amount / seq_len:
        found.assumptions.append(
            f"{'.'.join(map(str, path))} = {made:g} sequences: {show(amount, 'tokens')} are {amount / seq_len:.1f} of {seq_len:g}, "
            f"rounded to whole micro-batches"
        )
    return made


def _broken(run: Run, islands: Sequence[Island], plan: Plan, plans: Sequence[Plan], parts: Parts) -> list[Violation]:
    """The rules about batch and sequence that a run breaks."""
    if parts.model is None or parts.model is NO_MODEL or parts.stack is None:
        return []
    skip = {one.name for one in CONSTRAINTS if one.name not in OF_LENGTHS} | parts.found.document.begins
    if not plans:
        return violations(parts.model, islands[0], plan, run, parts.stack, skip=skip)
    bad = unshared(islands, plans[0], plans, float(run.global_batch))
    found = [] if bad is None else [bad]
    for island, own in zip(islands, plans, strict=True):
        found += [
            one
            for one in violations_of_island(parts.model, island, own, run, parts.stack, skip=skip)
            if one not in found
        ]
    return found
