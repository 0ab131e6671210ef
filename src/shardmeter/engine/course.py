"""Run scope: rounds folded into a run that is interrupted, as seconds by what they go to.

What runs together stops together: one island, or several that exchange gradients in every step. From checkpoint to checkpoint it
either gets through, or fails and begins that stretch anew, or is warned in time and keeps what it did. Islands that meet once a round go
on without the one that fails: it loses what it did since the last round, and its part of the tokens until it is back.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Sequence

import numpy as np

from shardmeter.core.record import record
from shardmeter.core.units import BytesPerS, Count, Fraction, Number, PerSecond, Ratio, Seconds
from shardmeter.engine import add
from shardmeter.engine.fleet import Part, Whole
from shardmeter.physics import failures, money
from shardmeter.specs import Checkpoint, Evaluation, Failures, Island, Run
from shardmeter.specs.course import AUTO, STEPS

BANDWIDTH_EACH: BytesPerS = 122e6
"""What an accelerator writes to a store where nothing is said: the 2 TB/s that Llama 3's store sustains (arXiv 2407.21783) over its
16,384."""
DETECT: Seconds = 300.0
"""Until a failure is found: MegaScale (arXiv 2402.15627) takes less than 10 min on average, diagnosis and all."""
START: Seconds = 300.0
"""From a machine that works to the first step, without reading the checkpoint: what Kokolis 2024 (arXiv 2410.21680) assumes."""
LEAST_RATE: PerSecond = 1e-300
"""In place of none, where it divides."""


@record
class Strikes:
    """What interrupts all that runs together."""

    losing: PerSecond = 0.0
    """Failures, and preemptions without notice enough: the work since the last checkpoint is lost."""
    announced: PerSecond = 0.0
    """Preemptions whose notice is as long as a checkpoint takes."""
    restart: Seconds = 0.0
    """After any of them: found, started, read; the mean."""
    wait: Seconds = 0.0
    """Before that, until there are machines again for all; the mean."""

    @property
    def rate(self) -> PerSecond:
        """All of them a second."""
        return self.losing + self.announced


@record
class Writing:
    """Checkpoints of a run."""

    interval: Seconds
    """Of training between two; the whole run where none is written."""
    write: Seconds = 0.0
    """One, from its first byte to its last."""
    shown: Seconds = 0.0
    """What training waits for it."""

    @property
    def behind(self) -> Seconds:
        """What is written while training goes on: so much more is lost with a failure."""
        return self.write - self.shown


@record
class Course:
    """Seconds of a run; together they are its wall clock."""

    productive: Seconds
    evaluation: Seconds = 0.0
    checkpoints: Seconds = 0.0
    lost: Seconds = 0.0
    """Work that is done again or, of an island that others go on without, that nobody gets to see."""
    restarts: Seconds = 0.0
    waits: Seconds = 0.0
    """For capacity that was taken away."""
    joins: Seconds = 0.0
    """Of islands that are back: until the next round begins."""
    strikes: Count = 0.0
    """Interruptions to expect, those of restarts too."""
    rate: PerSecond = 0.0
    """Of them, a second."""
    writing: Writing | None = None

    @property
    def seconds(self) -> Seconds:
        """The wall clock."""
        return add.folded(seconds for _, seconds in self.terms)

    @property
    def goodput(self) -> Fraction:
        """Productive over all seconds."""
        return self.productive / self.seconds

    @property
    def working(self) -> Fraction:
        """Share of the seconds in which models compute: in steps, those that are lost too, and while they are evaluated."""
        return (self.productive + self.lost + self.evaluation) / self.seconds

    @property
    def idle(self) -> Fraction:
        """Share of the seconds in which nothing runs, for want of a machine."""
        return self.waits / self.seconds

    @property
    def terms(self) -> tuple[tuple[str, Seconds], ...]:
        """The seconds by name, in a fixed order."""
        return (
            ("productive", self.productive), ("evaluation", self.evaluation), ("checkpoints", self.checkpoints),
            ("lost work", self.lost), ("restarts", self.restarts), ("waits for capacity", self.waits),
            ("waits for the next round", self.joins),
        )  # fmt: skip


@record
class Member:
    """An island, or what runs as one, that others go on without."""

    weight: Fraction
    """Its share of the tokens."""
    strikes: Strikes


def is_apart(whole: Whole) -> bool:
    """Whether islands train models of their own."""
    return whole.round is not None and whole.round.alone


def is_elastic(whole: Whole) -> bool:
    """Whether islands go on when one of them fails: they meet once in several steps, or nobody waits."""
    if whole.round is None or is_apart(whole) or len({part.cell for part in whole.parts}) == 1:
        return False
    return whole.round.pace != "barrier" or bool(np.any(np.greater(whole.round.steps, 1.0)))


def is_interrupted(whole: Whole) -> bool:
    """Whether anything is said of failures, preemption, checkpoints or evaluation."""
    run = whole.parts[0].run
    said = (run.checkpoint, run.failures, run.evaluation, *(part.island.preemption for part in whole.parts))
    return any(one is not None for one in said)


def step_times(whole: Whole) -> list[Seconds]:
    """Seconds that a step needs each island for: its own where models are trained apart, else those of all."""
    common = whole.estimate.step_time
    return [part.estimate.step_time if is_apart(whole) else common for part in whole.parts]


def courses(whole: Whole, steps: Count) -> tuple[Course, ...]:
    """The run of so many steps as each island has it, in their order. Numbers may be arrays.

    Leaves out: what moves while it is interrupted (prices, who has capacity), work that is lost at the very end, stragglers beyond the
    step's own (they stand in its ledger)."""
    own = step_times(whole)
    if not is_interrupted(whole):
        return tuple(Course(productive=money.run_time(steps, step)) for step in own)
    if is_apart(whole):
        return tuple(_together((part,), steps, step) for part, step in zip(whole.parts, own, strict=True))
    found = _elastic(whole, steps, own[0]) if is_elastic(whole) else _together(whole.parts, steps, own[0])
    return (found,) * len(whole.parts)


def _together(parts: Sequence[Part], steps: Count, step: Seconds) -> Course:
    """What runs, and stops, as one."""
    run = parts[0].run
    work = money.run_time(steps, step)
    write = write_time(run.checkpoint, parts)
    strikes = strikes_of(run, [part.island for part in parts], write)
    writing = writing_of(run.checkpoint, write, step, work, strikes.losing)
    return fold(work, evaluation_time(run.evaluation, steps, work), writing, strikes)


def _elastic(whole: Whole, steps: Count, step: Seconds) -> Course:
    """What goes on without an island that fails. A joiner takes the state from the others: checkpoints are written where that is said."""
    run, folded = whole.parts[0].run, whole.folded
    if folded is None or whole.pace is None or whole.round is None:  # pragma: no cover  (several islands have a round)
        raise AssertionError
    work = money.run_time(steps, step)
    tokens = np.asarray(folded.counted * folded.steps * whole.pace.tokens)
    cells = [[part for part in whole.parts if part.cell == at] for at in range(tokens.shape[-1])]
    members = []
    for at, cell in enumerate(cells):
        strikes = strikes_of(run, [part.island for part in cell], write_time(run.checkpoint, cell))
        members.append(Member(weight=tokens[..., at] / np.sum(tokens, axis=-1), strikes=strikes))
    said = run.checkpoint if run.checkpoint is not None and run.checkpoint.unit != AUTO else None
    write = _largest([write_time(said, cell) for cell in cells])
    writing = writing_of(said, write, step, work, 0.0)
    pause = evaluation_time(run.evaluation, steps, work)
    return fold_elastic(work, pause, writing, members, folded.seconds, joins=whole.round.pace == "barrier")


def write_time(checkpoint: Checkpoint | None, parts: Sequence[Part]) -> Seconds:
    """One checkpoint: at what is said, or at what the accelerators of the largest island, or of all that hold the model together, reach."""
    if checkpoint is None:
        return 0.0
    cells: dict[int, list[Number]] = {}
    for part in parts:
        cells.setdefault(part.cell, []).append(part.island.gpus)
    gpus = _largest([add.folded(one) for one in cells.values()])
    bandwidth = gpus * BANDWIDTH_EACH if checkpoint.bandwidth is None else checkpoint.bandwidth
    return failures.write_time(checkpoint.size, bandwidth)


def writing_of(
    checkpoint: Checkpoint | None, write: Seconds, step: Seconds, work: Seconds, losing: PerSecond
) -> Writing:
    """How often checkpoints are written: what is said, or Daly's interval; at least a step, and what is still being written."""
    if checkpoint is None:
        return Writing(interval=work)
    shown = write if checkpoint.blocking else 0.0
    if checkpoint.unit == AUTO:
        asked = failures.daly_interval(shown, 1.0 / np.maximum(losing, LEAST_RATE))
    else:
        asked = checkpoint.every * (step if checkpoint.unit == STEPS else 1.0)
    interval = np.minimum(np.maximum(np.maximum(asked, step), write - shown), work)
    return Writing(interval=interval, write=write, shown=shown)


def evaluation_time(evaluation: Evaluation | None, steps: Count, work: Seconds) -> Seconds:
    """All pauses for evaluation, in proportion: a run of one and a half distances has one and a half pauses."""
    if evaluation is None:
        return 0.0
    often = steps / evaluation.every if evaluation.unit == STEPS else work / evaluation.every
    return often * evaluation.lasts


def strikes_of(run: Run, islands: Sequence[Island], write: Seconds) -> Strikes:
    """What strikes islands that stop together: their rates add. While they wait for a machine others are taken away, so that waits
    overlap and grow together: all machines are there for a share of the time that is the product of their own."""
    losing: list[PerSecond] = []
    announced: list[PerSecond] = []
    restarts: list[Ratio] = []
    complete: list[Fraction] = []
    for island in islands:
        for cause in (run.failures, island.preemption):
            if cause is None:
                continue
            rate = failures.failure_rate(units(island, cause.per), cause.mtbf)
            warned = np.greater(cause.notice, 0.0) & np.greater_equal(cause.notice, write)
            losing.append(np.where(warned, 0.0, rate))
            announced.append(np.where(warned, rate, 0.0))
            restarts.append(rate * restart_time(cause, write))
            complete.append(failures.complete_share(units(island, cause.per), cause.mtbf, cause.wait))
    every = np.maximum(add.folded([*losing, *announced]), LEAST_RATE)
    return Strikes(
        losing=add.folded(losing),
        announced=add.folded(announced),
        restart=add.folded(restarts) / every,
        wait=(1.0 / np.maximum(functools.reduce(operator.mul, complete, 1.0), LEAST_RATE) - 1.0) / every,
    )


def units(island: Island, per: str) -> Count:
    """How many of what an MTBF is said of an island has."""
    return {"gpu": island.gpus, "node": island.nodes}.get(per, 1.0)


def restart_time(cause: Failures, write: Seconds) -> Seconds:
    """Found, started and read; a checkpoint is read as fast as it is written. What is announced need not be found."""
    announced = np.where(np.greater(cause.notice, 0.0), 0.0, DETECT)
    detect = announced if cause.detect is None else cause.detect
    return detect + (START + write if cause.restart is None else cause.restart)


def fold(work: Seconds, pause: Seconds, writing: Writing, strikes: Strikes) -> Course:
    """A run of so much productive `work` and `pause`, stopped as a whole: the mean of all courses it can take.

    From a checkpoint on, time up ends with the next checkpoint, with a failure (what was done is lost) or with a preemption that was
    announced (it is kept, and written). Without preemptions this is Daly's `interrupted_time` exactly. Leaves out: the last interval
    being shorter, that a notice runs out while a restart is under way."""
    all_ = work + pause
    stretch = writing.interval * all_ / work
    rate = strikes.rate
    up, done = failures.time_up(stretch, rate), failures.survival(stretch + writing.shown, rate)
    segment = failures.time_up(stretch + writing.shown, rate)
    broken = np.maximum(up - stretch * done, 0.0)
    kept = strikes.announced / np.maximum(rate, LEAST_RATE)
    gained = stretch * done + kept * broken
    often = all_ / gained  # that a stretch is begun
    losing, announced = often * strikes.losing * segment, often * strikes.announced * segment
    struck = losing + announced
    through = failures.time_through(strikes.restart, rate)
    again = failures.time_through(strikes.restart + writing.behind, rate) - through
    return Course(
        productive=work,
        evaluation=pause,
        checkpoints=often * (segment - up) + announced * writing.write,
        lost=often * np.where(np.greater(rate, 0.0), (1.0 - kept) * broken, 0.0) + losing * again,
        restarts=struck * through,
        waits=struck * strikes.wait / failures.survival(strikes.restart, rate),
        strikes=struck / failures.survival(strikes.restart, rate),
        rate=rate,
        writing=writing,
    )


def fold_elastic(
    work: Seconds, pause: Seconds, writing: Writing, members: Sequence[Member], round_: Seconds, *, joins: bool
) -> Course:
    """A run whose islands go on without the one that fails; the tokens that it misses take longer to train on.

    `round_` is the time from one exchange to the next, `joins` whether who is back waits for the next round. All causes lose work, with or
    without notice. Leaves out: all islands away at once (their common state is then read from a checkpoint), what fewer islands in a
    round do to the loss, that rounds are shorter without the slowest."""
    written = writing.shown * work / writing.interval
    all_ = work + pause + written
    rows = [_absence(one, round_, joins=joins) for one in members]
    present = add.folded(one.weight / (1.0 + missing) for one, (missing, *_) in zip(members, rows, strict=True))
    wall = all_ / present
    counts = [wall / (1.0 + missing) for missing, *_ in rows]
    lost, restarts, waits, waited = (
        add.folded(one.weight * own * row[at] for one, own, row in zip(members, counts, rows, strict=True))
        for at in range(1, 5)
    )
    return Course(
        productive=work,
        evaluation=pause,
        checkpoints=written,
        lost=lost,
        restarts=restarts,
        waits=waits,
        joins=waited,
        strikes=add.folded(own * row[5] for own, row in zip(counts, rows, strict=True)),
        rate=add.folded(one.strikes.rate for one in members),
        writing=writing,
    )


def _absence(one: Member, round_: Seconds, *, joins: bool) -> tuple[Ratio, ...]:
    """For each second of an island that counts: what it misses; of that lost work, restarts, waits for capacity, waits for the next
    round; and how often it is interrupted, while it restarts too."""
    rate = one.strikes.rate
    restart = failures.time_through(one.strikes.restart, rate)
    wait = one.strikes.wait / failures.survival(one.strikes.restart, rate)
    through = failures.time_through(round_, rate) / round_
    often = rate / failures.survival(round_, rate) if joins else rate * through  # it fails while it waits to join, too
    missing = (failures.absent_rounds if joins else failures.absent_time)(round_, rate, restart + wait)
    lost = through - 1.0  # a round is tried until it gets through
    waited = missing - lost - often * (restart + wait) if joins else 0.0 * missing
    return missing, lost, often * restart, often * wait, waited, often / failures.survival(one.strikes.restart, rate)


def _largest(values: Sequence[Number]) -> Number:
    return functools.reduce(np.maximum, values)
