"""A scenario written as nanotron's YAML."""

from __future__ import annotations

from typing import Any

from shardmeter.core.sums import plain_sum
from shardmeter.interop.configs._saying import Saying, harmless
from shardmeter.interop.configs._writing import leave_idle, tree, yaml
from shardmeter.interop.configs.nanotron_words import DTYPES, ENGINES, RECIPE
from shardmeter.specs import Model, Plan, Scenario
from shardmeter.specs.plan import AXES

FILE = "nanotron.yaml"
_PLAIN = {
    "norm": "rms", "positions": "rope", "mlp": "gated", "qk_norm": "none", "norms_per_layer": 2.0, "output_bias": False,
    "mlp_bias": False, "embedding_norm": False, "kv_lora_rank": 0.0, "dense_first": 0, "mlps": "", "mtp": 0, "sinks": False,
    "shared_gate": False, "attention_gate": False, "moe_latent": 0.0,
}  # fmt: skip
"""What a Llama or a Qwen 2 of nanotron is in any case."""


def write_settings(scenario: Scenario, out: Saying) -> None:
    """Say the model, the plan and the run; what would be another run goes to the reasons."""
    _model(scenario.assembled or scenario.model, scenario.plan, out)
    _plan(scenario.plan, scenario, out)
    _numbers(scenario.plan, out)
    run, plan = scenario.run, scenario.plan
    out.say("tokens.micro_batch_size", plan.micro_batch, "plan.micro_batch")
    passes = float(run.global_batch / (plan.dp * plan.micro_batch))
    out.say("tokens.batch_accumulation_per_replica", passes, "run.global_batch / (dp · micro_batch)")
    out.say("tokens.sequence_length", run.seq_len, "run.seq_len")
    steps = run.steps
    if steps is None and run.tokens is not None:
        steps = float(round(float(run.tokens / (run.global_batch * run.seq_len))))
        out.leave("run.tokens", f"{steps:,.0f} steps of whole batches")
        out.leave("run.steps", f"{steps:,.0f}, by the tokens")
    elif steps is None:
        steps = 1000.0
        out.leave("run.steps", "none is said; 1,000 is a placeholder")
    out.say("tokens.train_steps", steps, "run.steps")
    for field, value in {"phases": run.phases, "reference": run.reference}.items():
        if value:
            out.refuse(f"run.{field}", "nanotron has no setting for it", "leave it out")


def _model(model: Model, plan: Plan, out: Saying) -> None:
    at = "model.model_config."
    for field, value in {"family": "decoder", **_PLAIN}.items():
        if getattr(model, field) != value:
            out.refuse(f"model.{field}", f"{getattr(model, field)}: nanotron's Llama and Qwen 2 have {value or 'none'}")
    if set(model.mixers) - {"w"}:
        out.refuse("model.mixers", f"{model.mixers[:40]}: all layers are of one kind")
    elif model.mixers:
        out.say(f"{at}sliding_window_size", model.window, "model.window")
    if model.head_dim * model.heads != model.hidden:
        out.refuse("model.head_dim", f"{model.head_dim:g}, where hidden / heads = {model.hidden / model.heads:g}")
    if model.kv_heads < plan.tp:
        out.refuse(
            "plan.tp",
            f"tp = {plan.tp:g} and {model.kv_heads:g} key heads: each rank has one at least",
            f"tp ≤ {model.kv_heads:g}",
        )
    for field, key in RECIPE.items():
        out.say(at + key, max(getattr(model, field), 1.0), f"model.{field}")
    out.say(f"{at}tie_word_embeddings", model.tied, "model.tied")
    out.say(f"{at}attention_bias", model.attention_bias, "model.attention_bias")
    if model.experts:
        out.say(f"{at}moe_config.num_experts", model.experts, "model.experts")
        out.say(f"{at}moe_config.top_k", model.top_k, "model.top_k")
        out.say(f"{at}moe_config.moe_intermediate_size", model.moe_ffn, "model.moe_ffn")
        if model.shared_ffn:
            out.say(f"{at}moe_config.enable_shared_expert", True, "model.shared_ffn")
            out.say(f"{at}moe_config.shared_expert_intermediate_size", model.shared_ffn, "model.shared_ffn")


def _plan(plan: Plan, scenario: Scenario, out: Saying) -> None:
    at = "parallelism."
    for key, field in {"dp": "dp", "pp": "pp", "tp": "tp", "context_parallel_size": "cp"}.items():
        out.say(at + key, getattr(plan, field), f"plan.{field}")
    if plan.dp_replicate > 1:
        out.leave("plan.dp_replicate", "only the product with dp_shard counts")
        out.leave("plan.dp_shard", "only the product with dp_replicate counts")
    if plan.ep > 1:
        out.refuse("plan.ep", f"{plan.ep:g}: nanotron lays experts out only over all ranks alike", "ep: 1")
    if plan.etp > 1 and scenario.model.experts:
        out.refuse("plan.etp", f"{plan.etp:g}: nanotron cuts no expert by tp", "etp: 1")
    elif plan.etp > 1:
        out.leave("plan.etp", "the model has no experts")
    if plan.pp > 1 and plan.schedule not in ENGINES.values():
        out.refuse("plan.schedule", f"{plan.schedule} is neither 1f1b nor gpipe (afab)", "schedule: 1f1b")
    else:
        out.say(f"{at}pp_engine", "afab" if plan.schedule == "gpipe" else "1f1b", f"plan.schedule = {plan.schedule}")
    out.say(f"{at}tp_mode", "REDUCE_SCATTER" if plan.sequence_parallel else "ALL_REDUCE", "plan.sequence_parallel")
    out.say(f"{at}tp_linear_async_communication", plan.async_tp, "plan.async_tp")
    out.say(f"{at}recompute_layer", plan.recompute == "full", f"plan.recompute = {plan.recompute}")
    if plan.recompute not in ("none", "full"):
        out.refuse("plan.recompute", f"{plan.recompute}: every layer runs again, or none", "recompute: full or none")
    _sharding(plan, out)
    _context(plan, out)
    _beyond(plan, scenario, out)
    leave_idle(out, plan)


def _sharding(plan: Plan, out: Saying) -> None:
    if plan.sharding not in ("none", "ddp", "zero1") or (plan.sharding == "zero1" and plan.dp_replicate > 1):
        out.refuse(
            "plan.sharding",
            f"{plan.sharding}: nanotron has ddp (zero_stage 0) and zero1 over all replicas",
            "sharding: zero1",
        )
    out.say("optimizer.zero_stage", int(plan.sharding == "zero1"), f"plan.sharding = {plan.sharding}")
    if plan.sharding == "none":
        out.leave("plan.sharding", "none is what one replica has with zero_stage 0, read again as ddp")


def _context(plan: Plan, out: Saying) -> None:
    if plan.cp > 1 and plan.cp_kind == "ulysses":
        out.refuse("plan.cp_kind", "ulysses: nanotron has rings and gathers", "cp_kind: ring")
    elif plan.cp > 1:
        gathered = plan.cp_kind == "all-gather"
        out.say(
            "model.model_config._attn_implementation",
            "llama3_ring_attention" if gathered else "ring",
            f"plan.cp_kind = {plan.cp_kind}",
        )
        if gathered:
            out.say("model.model_config.ring_attn_heads_k_stride", 1, "heads gathered at a time")


def _beyond(plan: Plan, scenario: Scenario, out: Saying) -> None:
    """What a plan may hold that no setting says."""
    if plan.rank_order != AXES:
        out.refuse("plan.rank_order", f"{', '.join(plan.rank_order)}: ranks lie in the order {', '.join(AXES)}")
    if plan.offload:
        out.refuse("plan.offload", f"{', '.join(plan.offload)}: everything stays on the device", "offload: none")
    if plan.trainable != "all":
        out.refuse(
            "plan.trainable", f"{plan.trainable or 'without a backward'}: every parameter is trained", "trainable: all"
        )
    if len(scenario.fleet.islands) > 1 or plan.sync.method != "every_step":
        out.refuse(
            "fleet.islands",
            f"{len(scenario.fleet.islands)} islands by {plan.sync.method}: nanotron is one job",
            "one island",
        )


def _numbers(plan: Plan, out: Saying) -> None:
    dtypes = {ours: theirs for theirs, ours in DTYPES.items()}
    if plan.precision in dtypes:
        out.say("model.dtype", dtypes[plan.precision], "plan.precision")
    else:
        out.refuse("plan.precision", f"{plan.precision} is none of {', '.join(dtypes)}", "precision: bf16")
    if plan.gather_dtype != plan.precision:
        out.leave("plan.gather_dtype", f"parameters are gathered as they are held, in {plan.precision}")
    summed = plan.master_dtype == "fp32"
    out.say("optimizer.accumulate_grad_in_fp32", summed, "plan.master_dtype, plan.reduce_dtype")
    held = "fp32" if summed else plan.precision
    for field in ("reduce_dtype", "master_dtype"):
        if getattr(plan, field) != held:
            out.leave(f"plan.{field}", f"gradients and master parameters are {held} both")
    if plan.optimizer not in ("adamw", "sgd"):
        out.refuse("plan.optimizer", f"{plan.optimizer} is neither adamw nor sgd", "optimizer: adamw")
    factory = "optimizer.optimizer_factory."
    out.say(f"{factory}name", "adamW" if plan.optimizer == "adamw" else plan.optimizer, "plan.optimizer")
    if plan.optimizer == "adamw":
        for key, value in {
            "adam_beta1": 0.9,
            "adam_beta2": 0.95,
            "adam_eps": "1.0e-8",
            "torch_adam_is_fused": True,
        }.items():
            out.say(factory + key, value, "a usual value")


def yaml_of(out: Saying, scenario: Scenario) -> str:
    """The settings as YAML, with what nanotron asks for besides."""
    gpus = plain_sum(float(island.gpus) for island in scenario.fleet.islands)
    asked: dict[str, Any] = {
        "general": {"project": "shardmeter", "run": "plan"},
        "model": {"model_config": {"is_qwen2_config": True}, "init_method": {"std": "0.02"}},
        "optimizer": {
            "weight_decay": "0.1",
            "clip_grad": "1.0",
            "learning_rate_scheduler": {
                "learning_rate": "3.0e-4", "lr_warmup_steps": "100", "lr_warmup_style": "linear", "lr_decay_style": "cosine",
                "min_decay_lr": "3.0e-5",
            },
        },
    }  # fmt: skip
    head = f"# {harmless(scenario.model.name)} by nanotron on {gpus:g} GPUs, written by ShardMeter.\n# Data and learning rate are placeholders.\n"
    stages = "data_stages:\n- name: stage 1\n  start_training_step: 1\n  data: {dataset: null, seed: 42, num_loading_workers: 1}\n"
    return head + yaml(tree(out, asked)) + stages
