"""The shape of a scenario: pydantic models, all errors at once with file, line and "did you mean", and the JSON Schema."""

from __future__ import annotations

import copy
import functools
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias, TypeVar, get_args

from pydantic import (
    AliasChoices,
    BaseModel,
    BeforeValidator,
    Discriminator,
    GetCoreSchemaHandler,
    GetJsonSchemaHandler,
    Tag,
    TypeAdapter,
    ValidationError,
)
from pydantic_core import core_schema

from shardmeter.core.errors import Violation, cut, nearest, shown
from shardmeter.scenario.between import Share, Streams, SyncInput, Use, WanInput
from shardmeter.scenario.grammar import parse_plan
from shardmeter.scenario.inline import inline
from shardmeter.scenario.interruptions import CheckpointInput, EvaluationInput
from shardmeter.scenario.money import Carbon, DatasetInput, Hall, OwnedInput, Reserved, StorageInput
from shardmeter.scenario.read import Document
from shardmeter.scenario.values import (
    Ahead,
    AutoWhole,
    Batch,
    Copies,
    Deadline,
    Degree,
    Duration,
    Gpus,
    Input,
    Loss,
    Money,
    Name,
    Nodes,
    Objectives,
    Offload,
    OverSubscription,
    PerNode,
    Placement,
    Price,
    Recompute,
    SeqLen,
    Sequences,
    Skew,
    Stages,
    Steps,
    Tokens,
    Trainable,
    meant,
    plan_line,
    said,
)
from shardmeter.scenario.yaml_reader import Path
from shardmeter.specs import Accelerator, Fabric, Failures, Model, Stack
from shardmeter.specs.plan import SHARDINGS
from shardmeter.specs.wan import BALANCES
from shardmeter.strategies.optimizer import OPTIMIZERS
from shardmeter.strategies.precision import RECIPES as _RECIPES

M = TypeVar("M", bound=BaseModel)
_NAME, _INLINE = "‹name›", "‹inline›"
RECIPES = tuple(_RECIPES)
"""Words of `precision`."""
_FLOATS = ("bf16", "fp16", "fp32")
_LATER = ("fp8", "mxfp8", "fp4", "nvfp4", "mxfp4", "int8", "int4")


def _tag(value: Any) -> str:
    return _NAME if isinstance(value, str) else _INLINE


class _Named:
    """A catalog name (or a file) in text, or an inline mapping of the record's fields.

    The mapping's own model is made when the first one is read, or when the JSON Schema is asked for: most scenarios have names, and
    the command starts without it."""

    def __init__(self, record: type[Any]) -> None:
        self.record = record

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> core_schema.CoreSchema:
        """Text, or whatever the record's model makes of the rest."""
        mapping = core_schema.no_info_plain_validator_function(lambda value: inline(self.record).model_validate(value))
        choices: dict[Any, Any] = {_NAME: core_schema.str_schema(), _INLINE: mapping}
        return core_schema.tagged_union_schema(choices, _tag)

    def __get_pydantic_json_schema__(
        self, schema: core_schema.CoreSchema, handler: GetJsonSchemaHandler
    ) -> dict[str, Any]:
        """Both ways, the model's fields and all."""
        mapping: Any = inline(self.record)
        either: Any = Annotated[str, Tag(_NAME)] | Annotated[mapping, Tag(_INLINE)]
        return handler(TypeAdapter(Annotated[either, Discriminator(_tag)]).core_schema)


if TYPE_CHECKING:
    NamedModel: TypeAlias = str | BaseModel
    NamedStack: TypeAlias = str | BaseModel
    NamedAccelerator: TypeAlias = str | BaseModel
    NamedFabric: TypeAlias = str | BaseModel
    NamedFailures: TypeAlias = str | BaseModel
else:
    NamedModel, NamedStack, NamedAccelerator, NamedFabric, NamedFailures = (
        Annotated[Any, _Named(record)] for record in (Model, Stack, Accelerator, Fabric, Failures)
    )


class PlanInput(Input):
    """How the model is laid over the GPUs of an island: tp·pp·cp·dp_shard·dp_replicate = its GPUs."""

    tp: Degree | None = said("Tensor-parallel degree.")
    pp: Stages | None = said("Pipeline stages.")
    cp: Degree | None = said("Context-parallel degree.")
    ep: Degree | None = said("Expert-parallel degree; etp·ep divides tp·cp·dp_shard and is no factor of the GPUs.")
    etp: Degree | None = said("Tensor-parallel degree of experts: 1 or tp.")
    expert_skew: Skew | None = said("Tokens of the busiest expert rank over the mean; 1 = balanced.")
    dp_shard: AutoWhole | None = said("Replicas that shard parameters between them; auto = what is left.")
    dp_replicate: Degree | None = said("Groups of such replicas; with fsdp, more than 1 is HSDP.")
    sharding: str | None = said("What the data-parallel ranks shard.", words=(*SHARDINGS, "hsdp"))
    reshard: bool | None = said("fsdp: free gathered parameters after the forward pass.")
    micro_batch: Sequences | None = said("Sequences of one replica in one pass.")
    schedule: str | None = said(
        "Pipeline schedule.",
        words=("gpipe", "1f1b", "interleaved", "interleaved-bf", "zb-h1", "zb-h2", "zb-2p", "zb-v", "dualpipe"),
    )
    virtual_stages: Stages | None = said("Chunks of layers per pipeline stage (interleaved, zb-v).")
    ahead: Ahead | None = said(
        "Micro-batches more in flight for every boundary between islands, to fill its round trip."
    )
    stagger: bool | None = said("Pipelines side by side send over the line between islands in turn, not all at once.")
    recompute: Recompute | None = said(
        "Activation recomputation: none, selective, full, every-K, N-of-M, or a list of operations."
    )
    precision: str | None = said(
        "Recipe of the linear layers' products; fp8 = one scale a tensor.",
        words=RECIPES,
        planned=("mxfp4", "int8", "int4"),
    )
    gather_dtype: str | None = said(
        "Format in which parameters are gathered.", words=(*_FLOATS, "fp8"), planned=_LATER[1:]
    )
    reduce_dtype: str | None = said("Format in which gradients are reduced.", words=_FLOATS, planned=_LATER)
    optimizer: str | None = said("Optimizer.", words=tuple(OPTIMIZERS))
    master_dtype: str | None = said("Format of the master parameters.", words=_FLOATS, planned=_LATER)
    sequence_parallel: bool | None = said("Cut activations between matrix products over tp.")
    cp_kind: str | None = said("Context parallelism.", words=("ring", "all-gather", "ulysses"))
    async_tp: bool | None = said("Pass tensor-parallel gathers and scatters in chunks behind their products.")
    offload: Offload | None = said("Kept on the host: a list of optimizer, parameters, activations; or none.")
    offload_layers: Degree | None = said("Layers whose activations go to the host; left out: all.")
    trainable: Trainable | None = said(
        "What is trained: all, lora(r=16), or blocks: embedding, layer, head, layer:24-31. Of a method without a backward: "
        "what is perturbed, in blocks."
    )
    rank_order: tuple[str, ...] | None = said("Mesh axes, innermost first.")
    placement: Placement | None = said(
        "Axes that cross islands: {pp: [oregon, iowa]}, {pp: [[a, b], [c, d]]}, or {pp: auto} for a planner."
    )
    sync: SyncInput | None = said("Synchronisation across islands.")


Planned: TypeAlias = Annotated[PlanInput, BeforeValidator(plan_line)]


class TierUnit(Input):
    """A level above the node: units of `nodes` nodes; traffic that leaves one has its uplink's share of the fabric."""

    name: Name | None = said("What a unit is called: rail, pod, building.")
    nodes: Nodes | None = said("Nodes in one unit.")
    oversubscription: OverSubscription | None = said("Rate inside the unit over the rate out of it; 1 = none.")
    latency: Duration | None = said("Start of an all-reduce between units, per doubling; the fabric's if left out.")
    balance: str | None = said("How flows find the unit's uplinks, one for an adapter's rate each.", words=BALANCES)
    flows: Streams | None = said("Flows (queue pairs) that a hash sees of one adapter.")
    slowest: Share | None = said("Weight of the most loaded uplink beside the mean: 1 = all wait for it.")


class IslandInput(Input):
    """Accelerators of one kind under one scheduler."""

    name: Name | None = said("Name used in overrides and answers.")
    accelerator: NamedAccelerator | None = said("Catalog name, or {base: name, field: value}.")
    instance: str | None = said("Cloud instance: fills accelerator, node size, fabric and price.")
    gpus: Gpus | None = said("Short form of accelerator, nodes and gpus_per_node.")
    nodes: Nodes | None = said("Nodes.")
    gpus_per_node: PerNode | None = said("Accelerators per node; the usual node size if left out.")
    count: Copies | None = said("Islands like this one: NAME-1, NAME-2, …")
    fabric: NamedFabric | None = said("Scale-out network; the accelerator's usual one if left out.")
    nics: PerNode | None = said("Network adapters per node, where not one per accelerator.")
    price: Price | None = said("$/gpu/h or $/node/h.")
    spot: bool | None = said("Take the spot price of the instance, or of the file of prices.")
    preemption: NamedFailures | None = said(
        "How its capacity is taken away and comes back: a catalog name (shardmeter catalog failures), or {mtbf: 3 h, wait: 1 h, notice: 2 min}."
    )
    reserved: Reserved | None = said("A discount off the price on demand, as in 40%, or the price itself.")
    owned: OwnedInput | None = said("Nobody is paid rent: electricity, and what is lost in value.")
    pue: Hall | None = said("Energy of the hall over that of its machines; the provider's if left out.")
    carbon: Carbon | None = said("Of the grid, as in 380 g/kWh; the region's if left out.")
    region: Name | None = said("Region, as provider:region.")
    tiers: tuple[TierUnit, ...] | None = said("Levels above the node, innermost first.")
    plan: Planned | None = said("Overrides of the plan for this island.")


class FleetInput(Input):
    """Where the run happens."""

    islands: tuple[IslandInput, ...] | None = said("The islands.")
    wan: WanInput | None = said("Links between islands.")
    prices: Name | None = said("A file of prices that win over the catalog's: ours, SkyPilot's vms.csv, or gpuhunt's.")
    use: Use | None = said("Which islands take part: their names, or all; for the planner also any, or how many.")


class PhaseInput(Input):
    """A part of the run with a batch and a sequence length of its own."""

    tokens: Tokens | None = said("Length of the phase in tokens; of all phases together, that of the run.")
    global_batch: Batch | None = said("Sequences per optimizer step, or '8M tokens'; the run's if left out.")
    seq_len: SeqLen | None = said("Tokens per sequence; the run's if left out.")


class RunInput(Input):
    """What is asked of the run."""

    seq_len: SeqLen | None = said("Tokens per sequence.")
    document_len: SeqLen | None = said(
        "Mean tokens of the documents packed into a sequence; attention stays inside one."
    )
    global_batch: Batch | None = said("Sequences per optimizer step, or '8M tokens'.")
    tokens: Tokens | None = said("Length of the run in tokens.")
    steps: Steps | None = said("Length of the run in optimizer steps.")
    reference: NamedModel | None = said(
        "A frozen model that runs forward over every micro-batch beside the trained one (DPO's reference, a teacher, a KL anchor): "
        "same = the trained model's own numbers, a catalog name, a file, or inline fields."
    )
    target_loss: Loss | None = said("Loss to reach, in the unit of the law, in place of tokens and steps.")
    law: Name | None = said(
        "Law of the loss: a catalog name (shardmeter catalog laws), or FILE.csv with columns parameters, tokens, loss, to fit one."
    )
    critical_batch: Name | None = said(
        "Law of the batch beyond which tokens are lost (shardmeter catalog critical_batches), or none; with target_loss zhang-2024."
    )
    loss_guesses: bool | None = said(
        "Count what is only guessed of the loss: delays, block-local training, compression."
    )
    phases: tuple[PhaseInput, ...] | None = said("Ramps of batch and sequence length, one after the other.")
    failures: NamedFailures | None = said(
        "How often something fails: a catalog name (shardmeter catalog failures), {mtbf: 50000 h, per: gpu}, or none."
    )
    checkpoint: CheckpointInput | None = said("When the state of the run is written, and how fast.")
    evaluation: EvaluationInput | None = said("Pauses for evaluation.")
    storage: StorageInput | None = said("Checkpoints that are kept, and at what price.")
    dataset: DatasetInput | None = said("The tokens: kept beside every island, and brought there once.")
    deadline: Deadline | None = said(
        "Longest run that is good enough, as in 30 d: predict answers yes or no, plan keeps it."
    )
    budget: Money | None = said("Most that the run may cost, as in $2M: predict answers yes or no, plan keeps it.")
    objective: Objectives | None = said(
        "What the planner looks for: time, cost, throughput, energy, or a list of them."
    )


class ScenarioInput(Input):
    """A ShardMeter scenario: a model, software, accelerators, a plan and a run."""

    name: Name | None = said("Name of the scenario.")
    model: NamedModel | None = said("Catalog name, file, or inline fields.")
    stack: NamedStack | None = said("Catalog name, file, or {base: name, field: value}.")
    gpus: Gpus | None = said("Short form of a fleet of one island: 64xH100-SXM5-80GB.")
    fleet: FleetInput | None = said("Islands and what joins them.")
    plan: Planned | None = said("A mapping, or one line: fsdp,tp=8.")
    run: RunInput | None = said("Sequence length, batch, length of the run.")


@functools.cache
def json_schema() -> dict[str, Any]:
    """The JSON Schema of a scenario file, for editors."""
    schema = ScenarioInput.model_json_schema(by_alias=False)
    for owner in (schema, schema["$defs"]["IslandInput"]):
        plan = owner["properties"]["plan"]
        line = {"type": "string", "description": "NAME[,key=value…]", "examples": ["fsdp,tp=8,recompute=full"]}
        plan["anyOf"] = [*plan.get("anyOf", []), line]
    link = schema["$defs"]["LinkInput"]["properties"]
    link["from"] = link.pop("sender")  # no name for a field in Python
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **schema}


def validate(shape: type[M], document: Document, prefix: Path = ()) -> tuple[M | None, list[Violation]]:
    """The document as `shape`, or every violation found in it. `prefix` is where it hangs in the scenario."""
    return validate_data(shape, document.data, document, prefix)


def validate_data(shape: type[M], data: Any, document: Document, prefix: Path = ()) -> tuple[M | None, list[Violation]]:
    """As `validate`, for one part of a document that lies at `prefix`."""
    try:
        return shape.model_validate(data), []
    except ValidationError as error:
        return None, [_violation(shape, found, document, prefix) for found in error.errors(include_url=False)]


def what_is_left(shape: type[M], data: dict[str, Any]) -> tuple[M | None, list[Path]]:
    """The document without what is wrong with it, and the places taken out (or meant by an unknown key); None if nothing is
    left that can be read."""
    rest = copy.deepcopy(data)
    gone: list[Path] = []
    for _ in range(MOST_ROUNDS):
        try:
            return shape.model_validate(rest), gone
        except ValidationError as error:
            for found in error.errors(include_url=False):
                place = _place(found)
                if found["type"] == "extra_forbidden":
                    gone += [(*place[:-1], name) for name in nearest(str(place[-1]), _fields(shape, place[:-1]), 1)]
                gone.append(_taken_out(rest, place))
    return None, gone


MOST_ROUNDS = 5
"""Times that a document is read again without what was wrong with it."""


def _taken_out(rest: dict[str, Any], place: Path) -> Path:
    """Remove a place, or the innermost part around it that is there; a plan line becomes its mapping on the way."""
    inner: Any = rest
    for depth, step in enumerate(place):
        last = depth == len(place) - 1
        is_there = (isinstance(inner, dict) and step in inner) or (
            isinstance(inner, list) and isinstance(step, int) and step < len(inner)
        )
        if not is_there:
            return _taken_out(rest, place[:depth]) if depth else ()
        if last:
            if isinstance(inner, list):
                return _taken_out(rest, place[:depth])
            del inner[step]
            return place
        if step == "plan" and isinstance(inner[step], str):
            inner[step] = parse_plan(inner[step])
        inner = inner[step]
    return ()


def _place(error: Any) -> Path:
    """Where an error lies, without the steps that only pydantic knows."""
    kind, steps = error["type"], error["loc"]
    last = (
        steps[-1:] if kind == "extra_forbidden" else tuple(s for s in steps[-1:] if s not in (_NAME, _INLINE, "[key]"))
    )
    return (*(step for step in steps[:-1] if step not in (_NAME, _INLINE)), *last)


_WANTED = {
    "string_type": "text", "list_type": "a list", "tuple_type": "a list", "dict_type": "a mapping",
    "model_type": "a mapping", "model_attributes_type": "a mapping", "bool_type": "true or false",
    "bool_parsing": "true or false", "missing": "a value", "string_unicode": "text of plain characters",
}  # fmt: skip


def _violation(shape: type[BaseModel], error: Any, document: Document, prefix: Path) -> Violation:
    kind, value, loc = error["type"], error.get("input"), _place(error)
    path = (*prefix, *loc)
    field, where = cut(".".join(cut(str(step)) for step in path), 200), document.where(path)
    if kind == "extra_forbidden":
        own = _spelt(shape, loc)
        if own:
            return Violation(
                field=field, says=f"is {own}, which is said too", way_out="keep one of the two", where=where
            )
        way_out = _of_short_form(shape, loc, document) or _meant_key(shape, loc)
        return Violation(field=field, says="unknown key", way_out=way_out, where=where)
    context = error.get("ctx") or {}
    if "says" in context:
        parts = {name: str(context.get(name, "")) for name in ("says", "rule", "way_out")}
        return Violation(field=field, where=where, **parts)
    wanted = _WANTED.get(kind)
    if kind == "model_type" and error["loc"][-1:] == (_INLINE,):
        wanted = "a name or a mapping"
    if kind in ("too_long", "too_short"):
        wanted = f"a list of {context.get('max_length', context.get('min_length'))} values"
    says = f"wanted {wanted}, got {shown(value, 40)}" if wanted else f"{shown(value, 40)} does not belong here"
    return Violation(field=field, says=says, way_out=_of_islands(path, value), where=where)


def _of_islands(path: Path, value: Any) -> str:
    """How islands are written, for what stands in the place of their list or of one of them."""
    if path == ISLAND:
        return "as in [{gpus: 64xH100-SXM5-80GB}, {gpus: 32xA100-SXM4-80GB}]" + (
            "; a scenario file is named as SCENARIO" if isinstance(value, str) else ""
        )
    if path[:-1] == ISLAND and isinstance(value, str):
        return f"write {{gpus: {cut(value, 40)}}}"
    return ""


ISLAND: Path = ("fleet", "islands")


def _meant_key(shape: type[BaseModel], loc: Path) -> str:
    """What an unknown key was meant to be: a key of that name elsewhere first, then the nearest here."""
    name = str(loc[-1])
    known = _fields(shape, loc[:-1])
    elsewhere = SHORTCUTS.get(name) if len(loc) == 1 and shape is ScenarioInput else None
    close = nearest(name, known)
    return meant(tuple(dict.fromkeys((*([elsewhere] if elsewhere else []), *close)))[:3])


def _of_short_form(shape: type[BaseModel], loc: Path, document: Document) -> str:
    """How an island says what was written beside `gpus`, the short form of one that has that alone. "" where nothing was."""
    data, name = document.data, str(loc[-1])
    short = data.get("gpus") if shape is ScenarioInput and len(loc) == 1 and isinstance(data, dict) else None
    if not isinstance(short, str) or "fleet" in data or name not in IslandInput.model_fields:
        return ""
    return f"an island says it: in place of gpus, fleet: {{islands: [{{gpus: {cut(short, 40)}, {name}: {shown(data[name], 40).strip(chr(39))}}}]}}"


def _spelt(shape: type[BaseModel], loc: Path) -> str:
    """The field of which a key is another spelling: what is left over where both are said. "" where there is none."""
    for model in _inside(shape, loc[:-1]):
        for name, field in model.model_fields.items():
            choices = field.validation_alias
            if isinstance(choices, AliasChoices) and loc[-1] in choices.choices:
                return name
    return ""


def _shortcuts() -> dict[str, str]:
    """Keys of the parts that may be taken for keys of the scenario, with the path that they have."""
    parts: tuple[tuple[str, type[BaseModel]], ...] = (
        ("fleet.islands.0", IslandInput), ("fleet", FleetInput), ("run", RunInput), ("plan", PlanInput),
    )  # fmt: skip
    found = {name: f"{part}.{name}" for part, model in parts for name in model.model_fields}
    return {**found, "seq": "run.seq_len", "batch": "run.global_batch", "accelerator": "gpus"}


SHORTCUTS = _shortcuts()


def _fields(shape: Any, loc: Path) -> tuple[str, ...]:
    """Names of the fields at a place of a model."""
    return tuple(field.alias or name for model in _inside(shape, loc) for name, field in model.model_fields.items())


def _inside(shape: Any, loc: Path) -> list[type[BaseModel]]:
    """The models at a place of a model."""
    models, keyed = _models(shape), False
    for step in loc:
        inner = [model.model_fields[step] for model in models if isinstance(step, str) and step in model.model_fields]
        if isinstance(step, str) and not inner and not keyed:
            return []
        keyed = any("dict[" in str(field.annotation) for field in inner)
        models = [model for field in inner for model in _models(field.annotation)] if inner else models
    return models


def _models(annotation: Any) -> list[type[BaseModel]]:
    """The pydantic models inside an annotation; of a part that may be a catalog name, that of its inline fields."""
    if isinstance(annotation, _Named):
        return [inline(annotation.record)]
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return [annotation]
    return [model for inner in get_args(annotation) for model in _models(inner)]
