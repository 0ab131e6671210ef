"""One row of a file of runs, as text, to what it means: the `Reading`. No catalog but the shipped
models is asked here; `resolve` asks the others.

Every row gets exactly one verdict: *excluded* (it does not count: it says too little, contradicts itself, or is known to be
wrong), *skipped* (it is clear, but this version cannot express it) or a reading. Only columns decide.
"""

from __future__ import annotations

import functools
import math
import re
from collections.abc import Callable, Sequence

from shardmeter.core.record import changed, record
from shardmeter.specs.model import Model
from shardmeter.specs.plan import Plan
from shardmeter.specs.run import Run
from shardmeter.study.validate.accelerator import AcceleratorReading, guessed, read_accelerator
from shardmeter.study.validate.architecture import own_sequence, read_model
from shardmeter.study.validate.damage import READERS
from shardmeter.study.validate.exclusions import excluded
from shardmeter.study.validate.fabric import FabricReading, read_fabric
from shardmeter.study.validate.link import LinkReading, read_link
from shardmeter.study.validate.measured import Measured, read_measured
from shardmeter.study.validate.offload import read_offload
from shardmeter.study.validate.precision import PrecisionReading, read_precision
from shardmeter.study.validate.recompute import read_recompute, read_selective
from shardmeter.study.validate.regimes import NORMAL, SLOW, SweepRun, in_sweep, regimes
from shardmeter.study.validate.rows import NotModelled, Row, Unclear
from shardmeter.study.validate.schedule import check_notes, read_async_tp, read_optimizer, read_schedule
from shardmeter.study.validate.sharding import ShardingReading, read_sharding
from shardmeter.study.validate.stack import StackReading, read_stack
from shardmeter.study.validate.task import (
    PRETRAIN,
    check_family,
    check_task,
    has_reference,
    read_document,
    read_task,
    read_trainable,
)

NODE = {"GB200 (per GPU, NVL72)": 4.0, "GB300 (per GPU, NVL72)": 4.0, "TPU v5e": 8.0, "TPU v5p": 4.0, "TPU v4": 4.0}
"""Accelerators that one operating system sees, where rows leave it out and it is not 8."""
WITHOUT_SEQUENCE_PARALLEL = frozenset({"mlm-2021", "mds-2022", "aa-2023", "mlm-2023", "misc-small", "sailor-2025"})
"""Stacks that shard nothing over the tensor axis outside its blocks unless the row says so."""


@record
class Reading:
    """What a row says, in canonical words and SI numbers."""

    model: Model
    plan: Plan
    run: Run
    stack: StackReading
    accelerator: AcceleratorReading
    fabric: FabricReading
    link: LinkReading
    gpus: float
    gpus_per_node: float
    gather_dtype: str = ""
    reduce_dtype: str = ""
    """Stated by the row; empty = the stack's."""
    assumptions: tuple[str, ...] = ()


@record
class Verdict:
    """One row with what became of it. Exactly one of `skip`, `exclude` and `reading` is set."""

    id: str
    line: int
    source_key: str
    stack: str = ""
    task: str = ""
    regime: str = NORMAL
    measured: Measured = Measured()
    reading: Reading | None = None
    skip: str = ""
    exclude: str = ""


@record
class Layout:
    """The degrees of a row, whole numbers whose product is its accelerators."""

    gpus: float
    tp: float
    pp: float
    cp: float
    dp: float


def read_rows(rows: Sequence[Row]) -> tuple[Verdict, ...]:
    """The verdict on every row, in order. The regimes of a sweep need all of its rows, so rows are read together."""
    verdicts = tuple(read_row(row) for row in rows)
    labels = regimes(run for verdict in verdicts for run in _sweep_run(verdict))
    slow = "slow mode of this sweep: an additive delay against measured neighbours"
    return tuple(
        changed(verdict, regime=label, exclude=slow, reading=None) if label == SLOW else changed(verdict, regime=label)
        for verdict in verdicts
        for label in (labels.get(str(verdict.line), NORMAL) if verdict.reading else NORMAL,)
    )


def read_row(row: Row) -> Verdict:
    """The verdict on one row by itself."""
    source = row.text("source_key") or row.text("source_title") or row.text("file") or "file"
    verdict = Verdict(id=row.id, line=row.line, source_key=source)
    why = excluded(verdict.id, source)
    if why:
        return changed(verdict, exclude=why)
    try:
        stack = stack_of(row)
        task = read_task(row.text("task"))
        verdict = changed(verdict, stack=stack.id, task=task)
        _check_complete(row)
        reading = _read(row, stack, task)
        run, gpus = reading.run, reading.gpus
        found = read_measured(row, reading.model, float(run.seq_len), float(run.global_batch), gpus)
    except NotModelled as limit:
        return changed(verdict, skip=str(limit))
    except Unclear as fault:
        return changed(verdict, exclude="; ".join(_faults(row, str(fault))))
    return changed(verdict, measured=found, reading=reading)


def stack_of(row: Row) -> StackReading:
    """The stack that a row names, or that its words and its accelerator show."""
    text, year, notes = row.text("framework"), row.number("year"), row.text("kernel_notes")
    return read_stack(text, year, notes, row.text("accelerator"), experts=bool(row.number("n_experts")))


def _faults(row: Row, first: str) -> list[str]:
    """Everything that a row says too little of or says wrongly, the fault that was found first in front."""
    seq_len = 1.0
    checks: tuple[Callable[[], object], ...] = (
        lambda: stack_of(row),
        lambda: read_accelerator_text(row),
        lambda: read_layout(row),
        lambda: _check_stated(row),
        lambda: _check_timed(row),
        lambda: read_precision(row.text("precision"), stack_of(row).id),
        lambda: read_model(row, "", seq_len),
        *(functools.partial(read, row, column) for column, read in READERS.items()),
    )
    found = [first]
    for check in checks:
        try:
            check()
        except Unclear as fault:
            found.append(str(fault))
        except NotModelled:
            continue
    return list(dict.fromkeys(found))


def _check_complete(row: Row) -> None:
    """What is the row's own fault comes before what this version cannot express."""
    read_accelerator_text(row)
    layout = read_layout(row)
    _check_stated(row)
    ep = row.count("ep") or 1.0
    ranks = layout.tp * layout.cp * layout.dp
    if ranks % ep:
        raise Unclear(f"ep {ep:g} does not divide tp·cp·dp = {ranks:g}")
    _check_timed(row)


def _check_stated(row: Row) -> None:
    missing = [
        title
        for column, title in (("seq_len", "sequence length"), ("micro_batch", "micro-batch"), ("global_batch", "batch"))
        if row.count(column) is None
        and not (column == "micro_batch" and _one_by_default(row))
        and not (column == "seq_len" and own_sequence(row) is not None)
    ]
    if missing:
        raise Unclear(f"not stated: {', '.join(missing)}")


def _check_timed(row: Row) -> None:
    timed = any(
        row.text(c) for c in ("step_time_s", "tokens_per_s_per_gpu", "samples_per_s_per_gpu", "peak_memory_gib")
    )
    if not timed and not row.text("status") and "maxtext" not in row.text("framework").lower():
        raise Unclear("no step time, rate or memory is stated")


def _one_by_default(row: Row) -> bool:
    """The trainer torchtitan cuts a pipeline's batch into micro-batches of one sequence unless told otherwise."""
    return (row.count("pp") or row.count("parallel_pp") or 1.0) > 1.0 and "titan" in row.text("framework").lower()


def read_accelerator_text(row: Row) -> AcceleratorReading | None:
    """The accelerator, where it is clear; a clear one that cannot be expressed is judged later."""
    try:
        return read_accelerator(row.text("accelerator"))
    except NotModelled:
        return None


def read_layout(row: Row) -> Layout:
    """Accelerators and degrees. A missing degree is 1 where the stated ones make up all accelerators; a missing dp is what
    they leave, unless pp or tp is missing too: then only a purely data-parallel sharding says enough.
    """
    gpus = row.count("n_accelerators")
    stated = {
        "tp": row.count("parallel_tp") or row.count("tp"),
        "pp": row.count("pp") or row.count("parallel_pp"),
        "cp": row.count("cp"),
        "dp": row.count("dp"),
    }
    if gpus is None:
        raise Unclear("the number of accelerators is not stated")
    product = math.prod(value for value in stated.values() if value)
    missing = [axis for axis, value in stated.items() if not value]
    rest = gpus / product if gpus % product == 0.0 else 0.0
    data_parallel = bool(re.search(r"fsdp|ddp|zero", row.text("sharding").lower()))
    if product == gpus:
        stated |= dict.fromkeys(missing, 1.0)
    elif rest and "dp" in missing and (set(missing) <= {"cp", "dp"} or (len(missing) == len(stated) and data_parallel)):
        stated |= dict.fromkeys(missing, 1.0) | {"dp": rest}
    elif set(missing) - {"cp"}:
        raise Unclear(f"the layout is not stated: {', '.join(missing)}")
    layout = Layout(gpus=gpus, **{axis: value or 1.0 for axis, value in stated.items()})
    product = layout.tp * layout.pp * layout.cp * layout.dp
    if product != gpus:
        raise Unclear(f"tp·pp·cp·dp = {product:g}, accelerators = {gpus:g}")
    return layout


def _read(row: Row, stack: StackReading, task: str) -> Reading:
    """The reading of a row that is complete. Raises NotModelled for what cannot be expressed."""
    check_task(task)
    check_family(row.text("model"))
    accelerator = read_accelerator(row.text("accelerator"))
    notes = row.text("kernel_notes")
    precision = read_precision(row.text("precision"), stack.id, notes)
    check_notes(notes)
    layout = read_layout(row)
    seq_len, batch, micro = (row.count(column) or 1.0 for column in ("seq_len", "global_batch", "micro_batch"))
    seq_len = own_sequence(row) or seq_len
    if batch % (layout.dp * micro):
        raise Unclear(f"the batch {batch:g} is no multiple of dp·micro-batch = {layout.dp * micro:g}")
    model = read_model(row, stack.id, seq_len)
    node = min(row.count("accelerators_per_node") or NODE.get(accelerator.name, 8.0), layout.gpus)
    sharding = read_sharding(row.text("sharding"), layout.dp, stack.id, node / layout.tp)
    away = read_offload(row.text("sharding"), notes, float(model.layers))
    plan = changed(
        _with_experts(_plan(row, layout, sharding, precision, stack, micro, notes), row, model, stack),
        trainable=read_trainable(task, row.text("model"), stack.lineage), offload=away.kinds, offload_layers=away.layers,
    )  # fmt: skip
    again = read_recompute(row.text("recompute"), float(model.layers) / (plan.pp * plan.virtual_stages))
    plan = changed(plan, recompute=again)
    if plan.pp * plan.virtual_stages > model.layers + 2:
        raise Unclear(f"{plan.pp * plan.virtual_stages} stages are more than the model's {model.layers} layers")
    beside = has_reference(row.text("task"))
    if beside and plan.pp > 1:
        raise NotModelled("a reference model beside pipeline stages is not modelled yet")
    packed = None if beside else read_document(task, stack.lineage)
    return Reading(
        model=model,
        plan=plan,
        run=Run(seq_len=seq_len, global_batch=batch, document_len=packed, reference=model if beside else None),
        stack=changed(stack, selective=read_selective(row.text("recompute"))),
        accelerator=accelerator,
        fabric=read_fabric(row.text("inter_node_link")),
        link=read_link(row.text("intra_node_link")),
        gpus=layout.gpus,
        gpus_per_node=node,
        gather_dtype=precision.gather,
        reduce_dtype=precision.reduce,
        assumptions=(
            *(f"{column} is not stated" for column in _silent(row, layout)),
            *(
                ("the reference is a frozen copy of the model; the batch counts sequences, two a pair",)
                if beside
                else ()
            ),
            *(said for said in (guessed(row.text("accelerator"), accelerator.name),) if said),
        ),
    )


def _plan(
    row: Row, layout: Layout, sharding: ShardingReading, precision: PrecisionReading, stack: StackReading,
    micro: float, notes: str,
) -> Plan:  # fmt: skip
    """Degrees, sharding, schedule and recipe as a plan; dtypes that the row leaves out are filled by `resolve`."""
    schedule, chunks = read_schedule(notes, layout.pp, row.count("virtual_pp"))
    parallel = _sequence_parallel(row.text("sequence_parallel"), layout.tp, stack.id)
    return Plan(
        tp=layout.tp,
        pp=int(layout.pp),
        cp=layout.cp,
        dp_shard=sharding.shard,
        dp_replicate=sharding.replicate,
        sharding=sharding.kind,
        reshard=sharding.reshard,
        micro_batch=micro,
        schedule=schedule,
        virtual_stages=chunks,
        precision=precision.compute,
        master_dtype=precision.master,
        sequence_parallel=parallel,
        async_tp=parallel and read_async_tp(notes),
        optimizer=read_optimizer(notes, stack.id),
    )


def _with_experts(plan: Plan, row: Row, model: Model, stack: StackReading) -> Plan:
    """The plan with its expert mesh: experts lie over the data-parallel ranks too, so that ddp's replicas are named shards."""
    if not model.experts:
        if (row.count("ep") or 1.0) > 1.0:
            raise Unclear("ep is above 1, but the model has no experts")
        return plan
    ep = row.count("ep")
    if ep is None and stack.lineage == "megatron":
        raise Unclear("the layout is not stated: ep")
    if plan.sharding == "ddp":
        plan = changed(plan, dp_shard=plan.dp, dp_replicate=1.0)
    return changed(plan, ep=ep or 1.0, etp=1.0 if plan.sequence_parallel else plan.tp)


def _sequence_parallel(text: str, tp: float, stack: str) -> bool:
    """Whether activations outside the tensor blocks are sharded over tp too."""
    plain = text.lower()
    if tp <= 1.0 or plain.startswith(("no", "false", "off")):
        return False
    if plain.startswith(("yes", "true", "on")):
        return True
    return stack not in WITHOUT_SEQUENCE_PARALLEL


def _silent(row: Row, layout: Layout) -> tuple[str, ...]:
    """Columns that matter and that the row leaves empty."""
    wanted = ["sharding", "recompute", "precision", "micro_batch"]
    wanted += ["sequence_parallel"] if layout.tp > 1.0 else []
    wanted += ["inter_node_link"] if layout.gpus > 8.0 else []
    return tuple(column for column in wanted if not row.text(column))


def _sweep_run(verdict: Verdict) -> tuple[SweepRun, ...]:
    """The run as the regime rule sees it, if it belongs to the sweep."""
    reading, step = verdict.reading, verdict.measured.step_time
    if reading is None or step is None or not in_sweep(verdict.source_key):
        return ()
    plan = reading.plan
    return (
        SweepRun(
            id=str(verdict.line), model=reading.model.name, layers=float(reading.model.layers), tp=float(plan.tp),
            pp=float(plan.pp), dp=float(plan.dp), micro_batch=float(plan.micro_batch),
            global_batch=float(reading.run.global_batch), nodes=reading.gpus / reading.gpus_per_node, step_time=step,
        ),
    )  # fmt: skip


__all__ = ["PRETRAIN", "Layout", "Reading", "Verdict", "read_layout", "read_row", "read_rows"]
