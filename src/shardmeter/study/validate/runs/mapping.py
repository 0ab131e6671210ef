"""One row about a whole run, as text, to the scenarios that predict it. Only columns that were known before the run are read here.

Not read: hours, days, rates, utilisation, energy, costs. `account` compares, and leaves out what does not count.
"""

from __future__ import annotations

import math
import re

from shardmeter import families
from shardmeter.core.errors import BadScenario, UnknownName
from shardmeter.core.record import changed, record
from shardmeter.core.sums import plain_sum
from shardmeter.scenario.catalog import Catalog
from shardmeter.scenario.islands import build_island
from shardmeter.specs.accelerator import Accelerator
from shardmeter.specs.fleet import Fleet, Island
from shardmeter.specs.model import Model
from shardmeter.specs.plan import Plan
from shardmeter.specs.run import Run
from shardmeter.specs.scenario import Scenario
from shardmeter.specs.stack import Stack
from shardmeter.strategies.precision import recipe
from shardmeter.study.practice import FIXED
from shardmeter.study.validate.accelerator import guessed, read_accelerator
from shardmeter.study.validate.resolve import CUT_WITH_EDGES
from shardmeter.study.validate.rows import NotModelled, Row, Unclear
from shardmeter.study.validate.runs import cells
from shardmeter.study.validate.runs.architecture import read_model
from shardmeter.study.validate.runs.layout import Machine, candidates, read_published
from shardmeter.study.validate.runs.software import FACTS, known_framework, read_software
from shardmeter.study.validate.runs.words import Kind, kind_of, tokens_of_hours
from shardmeter.study.validate.stack import choose_stack

UNDATED = 2024.0
"""When a run without a date is taken to be."""
SEQUENCES: tuple[tuple[float, float], ...] = ((2023.4, 2048.0), (2100.0, 4096.0))
"""(until, tokens of a sequence) where a row is silent."""
BATCHES: tuple[tuple[float, float], ...] = ((1e9, 0.5e6), (4e9, 1e6), (20e9, 2e6), (math.inf, 3.2e6))
"""(parameters up to which, tokens of a step) where a row is silent and before 2023: GPT-3's table; 4M from then on (Llama)."""
BATCH_FROM, LATER_BATCH = 2023.0, 4e6
PAIRS = 32_768.0
"""Pairs of a step of two towers, where a row is silent: CLIP's."""
EACH = 8192.0
"""Tokens of a step that an accelerator gets, where the number of accelerators is not stated."""
FEWEST, MOST = 8.0, 2048.0
BOTH_DIES = re.compile(r"mi250")
"""Accelerators whose hours are billed by module, of two devices each."""


@record
class Leg:
    """A part of a run: its share of the data, and the plans of which the fastest that fits ran it."""

    share: float
    options: tuple[Scenario, ...]


@record
class Reading:
    """A row that can be predicted."""

    kind: Kind
    model: Model
    accelerator: str
    gpus: float
    given: bool
    """Whether the row states the number of accelerators."""
    devices: float
    """Devices of the catalog in one accelerator of the row."""
    peak: float
    """FLOP/s of one such accelerator in the run's format."""
    tokens: float
    """Tokens, or samples for models whose samples are of one size."""
    when: float
    legs: tuple[Leg, ...]
    stack: str
    stand_in: str
    assumptions: tuple[str, ...]


def read(row: Row, catalog: Catalog) -> Reading:
    """The reading of a row. Raises NotModelled, Unclear."""
    said: list[str] = []
    kind = kind_of(row.text("kind"), row.text("model"))
    when = cells.year(row)
    if when is None:
        when = UNDATED
        said.append("date not stated: 2024")
    parts = cells.parts(row)
    seq = max((part.seq_len for part in parts), default=0.0) or _usual_sequence(when, said)
    model, how = read_model(row, catalog, seq, when, others=kind.name != "pretrain")
    if how and kind.named and "not known" in how:
        raise NotModelled(f"{kind.name}: the catalog has no such model, and its size does not say what is computed")
    said += [how] if how else []
    device, count, given, modules = _devices(row, catalog, model, when, said)
    tokens = _amount(row, model, parts)
    software, usual = read_software(_framework(row), when, device.name, count if given else None, model.family)
    said += [usual] if usual else []
    stack, stand_in = choose_stack(software, {name: catalog.stack(name) for name in catalog.names("stacks")})
    stack = changed(stack, **FACTS.get(software.id, {}))
    said += [f"stack {software.id} has no row yet: {stand_in} stands in"] if stand_in else []
    formats = recipe(_precision(row.text("precision"), device))
    machine = Machine(
        gpus=count, node=min(float(device.node_size or 8.0), count), memory=float(device.memory), lineage=software.lineage,
        when=when, stack=software.id,
    )  # fmt: skip
    legs = _legs(row, _lengths(model, parts, seq), model, machine, _island(device, count, catalog), stack, said)
    return Reading(
        kind=kind, model=model, accelerator=device.name, gpus=count, given=given, devices=modules,
        peak=modules * float(device.peak.get(formats.linear or formats.base, math.nan)), tokens=tokens, when=when, legs=legs,
        stack=software.id, stand_in=stand_in, assumptions=tuple(dict.fromkeys(said)),
    )  # fmt: skip


def _lengths(model: Model, parts: tuple[cells.Part, ...], seq: float) -> tuple[cells.Part, ...]:
    """The parts of a run with the sequences that the engine asks for: of images the patches, of two towers the text's."""
    own = model.context if model.family == "dual_encoder" else families.given_sequence(families.sized(model, seq))
    return parts if parts and own is None else (cells.Part(share=1.0, seq_len=float(own or seq)),)


def _legs(
    row: Row, lengths: tuple[cells.Part, ...], model: Model, machine: Machine, island: Island, stack: Stack, said: list[str]
) -> tuple[Leg, ...]:  # fmt: skip
    """Every part of the run with the plans that it may have had."""
    precision = _precision(row.text("precision"), island.accelerator)
    base = Plan(
        precision=precision,
        gather_dtype=recipe(precision).base if stack.gather_dtype in ("bf16", "fp16") else stack.gather_dtype,
        reduce_dtype=stack.reduce_dtype, optimizer="muon" if "muon" in row.text("framework").lower() else "adamw",
    )  # fmt: skip
    size, fleet = float(families.parameters(model)), Fleet(islands=(island,))
    published = read_published(row.text("parallel_layout"), row.text("framework"), row.text("notes"))
    legs = []
    for part in lengths:
        wanted = _batch(row, model, part.seq_len, size, machine.when, said)
        options = tuple(
            Scenario(
                name=cells.run_id(row), model=model, stack=_cut(stack, model, plan, machine), fleet=fleet,
                plan=changed(plan, async_tp=bool(stack.async_tp) and plan.sequence_parallel),
                run=Run(seq_len=part.seq_len, global_batch=batch),
            )
            for plan, batch in candidates(base, model, size, machine, published, wanted)
        )  # fmt: skip
        legs.append(Leg(share=part.share, options=options))
    return tuple(legs)


def _framework(row: Row) -> str:
    """The framework that a row states, or that its model's or its maker's name is."""
    return row.text("framework") or known_framework(f"{row.text('org')} {row.text('model')}")


def _cut(stack: Stack, model: Model, plan: Plan, machine: Machine) -> Stack:
    """Embedding and head count as a layer each where only then the stages of the Megatron lineage come out even."""
    stages = plan.pp * plan.virtual_stages
    uneven = model.layers % stages and not (model.layers + 2) % stages
    return changed(stack, stage_cut="edges") if uneven and machine.lineage in CUT_WITH_EDGES else stack


def _usual_sequence(when: float, said: list[str]) -> float:
    usual = next(seq for until, seq in SEQUENCES if when < until)
    said.append(f"seq_len not stated: {usual:g}")
    return usual


def _devices(
    row: Row, catalog: Catalog, model: Model, when: float, said: list[str]
) -> tuple[Accelerator, float, bool, float]:
    """(device, devices, whether their number is stated, devices of one accelerator of the row)."""
    text = row.text("accelerator")
    if re.search(r"equivalent|normali[sz]ed", text.lower()):
        raise Unclear(f"the hours are converted to another accelerator: {text}")
    if re.search(r"\s[/+&]\s|\band\b", text):
        raise NotModelled(f"several kinds of accelerators: {text}")
    reading = read_accelerator(text)
    try:
        device = catalog.accelerator(reading.name)
    except UnknownName:
        raise NotModelled(f"the catalog has no accelerator {reading.name}") from None
    if form := guessed(text, reading.name):
        said.append(form)
    modules = 2.0 if BOTH_DIES.search(text.lower()) and "gcd" not in text.lower() else 1.0
    if modules > 1.0:
        said.append("hours of modules, of two devices each")
    stated = cells.count(row, "n_accel")
    if stated is not None and stated > cells.LONGEST:
        raise Unclear(f"{stated:g} accelerators are beyond reason")
    if stated is not None:
        return device, stated * modules, True, modules
    size = float(families.parameters(model))
    tokens = cells.batch(row)
    step = tokens[0] if tokens and tokens[1] == "tokens" else _usual_batch(size, when)
    count = 2.0 ** round(math.log2(min(MOST, max(FEWEST, step / EACH))))
    said.append(f"n_accel not stated: {count:g}")
    return device, count, False, modules


def _usual_batch(size: float, when: float) -> float:
    if when >= BATCH_FROM and size >= BATCHES[0][0]:
        return LATER_BATCH
    return next(tokens for most, tokens in BATCHES if size <= most)


def _batch(row: Row, model: Model, seq: float, size: float, when: float, said: list[str]) -> float:
    """Sequences (samples) of a step."""
    stated = cells.batch(row)
    if stated is None:
        if model.family in ("dual_encoder", "vision"):
            said.append(f"global_batch not stated: {PAIRS:g} samples")
            return PAIRS
        tokens = _usual_batch(size, when)
        said.append(f"global_batch not stated: {tokens / 1e6:g}M tokens")
        return max(1.0, tokens / seq)
    return stated[0] if stated[1] == "sequences" else max(1.0, stated[0] / seq)


def _amount(row: Row, model: Model, parts: tuple[cells.Part, ...]) -> float:
    """Tokens of the run; of models whose samples are all of one size, samples. Raises Unclear, NotModelled."""
    amount, unit = cells.samples_or_tokens(row)
    part = tokens_of_hours(row.text("accel_hours_kind"))
    if part is not None and unit == "tokens":
        return part
    if model.family in FIXED:
        if unit == "tokens":
            raise NotModelled("a model of images whose data is stated in tokens")
        return amount
    if unit == "tokens":
        return amount
    if model.family == "multimodal" or cells.amount(row, "data_seen") is not None:
        raise NotModelled("the lengths of its samples are not stated")
    if not parts:
        raise Unclear("the length of a sequence is not stated")
    return amount * parts_mean(parts)


def parts_mean(parts: tuple[cells.Part, ...]) -> float:
    """Mean length of sequences whose parts are shares of the steps."""
    return plain_sum(part.share * part.seq_len for part in parts)


def _precision(text: str, device: Accelerator) -> str:
    """The recipe of a run: what the row says, else 16 bits in the format that the device has."""
    plain = text.lower()
    half = "bf16" if "bf16" in device.peak else "fp16"
    if re.search(r"fp8|float8", plain):
        if "fp8" not in device.peak:
            raise NotModelled(f"{device.name} has no known fp8 peak")
        return "fp8"
    if re.search(r"fp32|float32|tf32", plain) and not re.search(r"bf16|fp16", plain):
        raise NotModelled("training in fp32 is not modelled yet")
    if re.search(r"^fp16|float16|\bamp\b", plain) and "fp16" in device.peak:
        return "fp16"
    if half not in device.peak:
        raise NotModelled(f"{device.name} has no known 16-bit peak")
    return half


def _island(device: Accelerator, count: float, catalog: Catalog) -> Island:
    """All accelerators, in whole nodes; a number that makes none is taken in the largest node that divides it."""
    usual = float(device.node_size or 8.0)
    node = min(usual, count)
    while count % node:
        node -= 1.0
    fabric = catalog.fabric(device.fabric) if device.fabric else None
    try:
        return build_island(accelerator=device, nodes=count / node, gpus_per_node=node, fabric=fabric)
    except BadScenario as error:
        raise NotModelled(f"the island cannot be expressed: {error.violations[0].says}") from None
