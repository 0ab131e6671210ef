"""torchft inside torchtitan: every island is a replica group that trains alone and meets the others now and then."""

from __future__ import annotations

from shardmeter.core.record import changed
from shardmeter.interop.configs import torchtitan
from shardmeter.interop.configs._saying import Saying, count
from shardmeter.interop.configs._torchtitan_models import NEW, OLD
from shardmeter.interop.configs._torchtitan_plan import said_of
from shardmeter.interop.configs.record import Exported, Imported
from shardmeter.specs import Scenario, Sync
from shardmeter.sync import defaults

NAME = "torchft"
TITLE = "torchft in torchtitan: DiLoCo, Streaming DiLoCo, local SGD and every step over islands"
VERSIONS = (NEW, OLD)
"""Of torchtitan, whose settings they are."""
METHODS = {"diloco": "diloco", "streaming_diloco": "diloco", "local_sgd": "local_sgd", "every_step": ""}
"""Methods of ours → `semi_sync_method`."""
settings = torchtitan.settings
FT = "fault_tolerance."


def read(text: str, name: str, version: str = "") -> Imported:
    """As torchtitan's, which has the same settings."""
    return changed(torchtitan.read(text, name, version), format=NAME)


def write(scenario: Scenario, version: str = "") -> Exported:
    """The files of one island; all islands have the same. Raises Inexpressible."""
    version = version or NEW
    _of_islands(scenario)
    plan = scenario.plans[0]
    saying = said_of(scenario, plan, version, groups=len(scenario.plans))
    saying.format = f"torchft with torchtitan {version}"
    _model(saying, version)
    _alike(saying, scenario)
    _groups(saying, scenario)
    _method(saying, scenario.plan.sync)
    saying.stop()
    saying.notes += [
        "torchft_lighthouse runs where all islands reach it: TORCHFT_LIGHTHOUSE=http://HOST:29510 in the environment of each of them",
        f"{FT}process_group_timeout_ms and comm.train_timeout_seconds have to be longer than a message between islands takes",
    ]
    more = " --fault_tolerance.replica_id $ISLAND"
    return torchtitan.written(NAME, saying, scenario, version, more)


def _of_islands(scenario: Scenario) -> None:
    """Raises Inexpressible where there is nothing to join."""
    if not scenario.plans:
        alone = Saying("torchft")
        alone.refuse("fleet", "one island has no other to meet", "--to torchtitan")
        alone.stop()


def _model(saying: Saying, version: str) -> None:
    """The model in the registry of torchft, which has Llama 3 only."""
    key = "model.name" if version == OLD else "model_spec"
    named = str(saying.values.get(key, "llama3")).partition(" ")[0]
    if named != "llama3":
        saying.refuse("model", f"{named}: fragments are made of Llama 3 only", "a fragment_fn of its own, by hand")
    if "converters" in saying.values:
        saying.refuse("plan.precision", "torchft's registry takes no converters", "say precision=bf16, or --for 0.2.2")
    if version == OLD:
        saying.say("model.name", "llama3_ft", saying.means.get("model.name", "model"))
        saying.say("job.custom_config_module", "torchtitan.components.ft.config", "settings of Streaming DiLoCo")


def _alike(saying: Saying, scenario: Scenario) -> None:
    """Islands of torchft have one plan, one batch each, and no axis between them."""
    first = scenario.plans[0]
    names = [island.name for island in scenario.fleet.islands]
    other = [name for name, plan in zip(names, scenario.plans, strict=True) if plan != first]
    if other:
        saying.refuse(
            "plan", f"{', '.join(other[:5])} is laid out otherwise than {names[0]}", "one plan for all islands"
        )
    if scenario.plan.placement:
        axes = ", ".join(axis for axis, _ in scenario.plan.placement)
        saying.refuse("plan.placement", f"{axes} crosses islands; torchft joins replicas", "leave it out")
    kinds = {island.accelerator.name for island in scenario.fleet.islands}
    if len(kinds) > 1 and scenario.plan.sync.split == "speed":
        saying.refuse(
            "plan.sync.split", f"speed over {', '.join(sorted(kinds))}: batches are alike", "say split: equal"
        )
    if first.dp_replicate > 1:
        says = f"dp_replicate = {count(first.dp_replicate)}: inside a replica group there is one replica"
        saying.refuse("plan.dp_replicate", says, "say dp_replicate=1")
    if first.sharding != "fsdp":
        saying.refuse("plan.sharding", f"{first.sharding}: inside a replica group parameters are sharded", "say fsdp")


def _groups(saying: Saying, scenario: Scenario) -> None:
    islands = len(scenario.plans)
    saying.say(f"{FT}enable", True, "several islands")
    saying.say(f"{FT}process_group", "nccl", "what quantized messages need")
    saying.say(f"{FT}group_size", islands, f"{islands} islands")
    saying.say(f"{FT}min_replica_size", islands, "all islands take part in every round")


def _method(saying: Saying, sync: Sync) -> None:
    """Way of synchronisation, its period, fragments and bits."""
    if sync.method not in METHODS:
        says = f"{sync.method}: torchft has no such method"
        saying.refuse("plan.sync.method", says, f"it has {', '.join(METHODS)}")
        return
    method = METHODS[sync.method]
    if method:
        saying.say(f"{FT}semi_sync_method", method, f"plan.sync.method = {sync.method}")
        saying.say(f"{FT}sync_steps", count(sync.sync_every), f"plan.sync.sync_every = {count(sync.sync_every)}")
    if sync.method == "streaming_diloco":
        _fragments(saying, sync)
    if method == "diloco":
        quantized = sync.bits == 8
        saying.say(f"{FT}should_quantize", quantized, f"plan.sync.bits = {count(sync.bits)}")
    sent = 32 if method else 16
    if sync.bits != sent and not (method == "diloco" and sync.bits == 8):
        less = " unless it quantizes to 8" if method == "diloco" else ""
        saying.leave("plan.sync.bits", f"{count(sync.bits)} were predicted; torchft sends {sent}{less}")
    usual = defaults(sync.method)
    for field in ("lead", "outer_state", "topology", "hierarchical", "release"):
        if getattr(sync, field) != getattr(usual, field):
            saying.leave(f"plan.sync.{field}", f"{getattr(sync, field)} is no setting of torchft")


def _fragments(saying: Saying, sync: Sync) -> None:
    """Fragments, each in a round of its own, the delay inside it, and how it is mixed in."""
    every, parts, delay = count(sync.sync_every), sync.num_fragments, count(sync.fragment_sync_delay)
    if every % parts:
        says = f"sync_every = {every} is no multiple of num_fragments = {parts}"
        saying.refuse("plan.sync.sync_every", says, f"say {max(1, round(every / parts)) * parts}")
    elif delay >= every // parts:
        says = f"fragment_sync_delay = {delay} is not below sync_every/num_fragments = {every // parts}"
        saying.refuse("plan.sync.fragment_sync_delay", says, f"at most {every // parts - 1}")
    saying.say(f"{FT}num_fragments", parts, f"plan.sync.num_fragments = {parts}")
    saying.say(f"{FT}fragment_sync_delay", delay, f"plan.sync.fragment_sync_delay = {delay}")
    alpha = float(sync.fragment_update_alpha)
    saying.say(f"{FT}fragment_update_alpha", alpha, f"plan.sync.fragment_update_alpha = {alpha:g}")
