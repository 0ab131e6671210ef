"""Experts of a config.json: how many, how wide, which layers have them. One function for each way the library writes it."""

from __future__ import annotations

from shardmeter.scenario.hugging_face.config import Config
from shardmeter.scenario.hugging_face.layers import Fields, Part, every_nth, layer_count, mlps, places, whole


def routed(width: str = "intermediate_size", *, shared: str = "", each: str = "", gate: bool = False) -> Part:
    """Routed experts of the width that the key `width` says; shared ones of the width `shared`, or `each` of them as wide as a
    routed one. No experts in the file: a dense model."""

    def read(c: Config, found: Fields) -> Fields:  # noqa: ARG001
        count = c.several(("num_local_experts",), 0.0, least=0.0)
        if count == 0.0:
            return {}
        made: Fields = {"experts": count, "top_k": c.count("num_experts_per_tok"), "moe_ffn": c.count(width)}
        if made["top_k"] > count:
            says = f"{made['top_k']:g} experts for a token, but there are {count:g}"
            c.refuse("num_experts_per_tok", says, f"{count:g} or fewer")
        if shared:
            made["shared_ffn"] = c.count(shared, 0.0, least=0.0)
        elif each:
            made["shared_ffn"] = c.count(each, 0.0, least=0.0) * made["moe_ffn"]
        if gate and made.get("shared_ffn"):
            made["shared_gate"] = True
        return made

    return read


def first(key: str = "first_k_dense_replace", step: str = "moe_layer_freq") -> Part:
    """The first layers dense, then experts in all, or in every n-th counted from the start (DeepSeek); or one flag a layer."""

    def read(c: Config, found: Fields) -> Fields:
        if not found.get("experts"):
            return {}
        count, flags = layer_count(found), c.data.get(step)
        if isinstance(flags, list):
            c.asked.add(step)
            c.report.understood[c.label(step)] = flags
            if len(flags) != count or not all(flag in (0, 1) for flag in flags):
                c.refuse(step, f"a list of {len(flags)}, where {count} flags of 0 or 1 belong, one a layer")
            return mlps((place for place, flag in enumerate(flags) if not flag), count)
        until, each = whole(c, key, 0), every_nth(c, step, 1)
        return mlps((place for place in range(count) if place < until or place % each), count)

    return read


def sparse(c: Config, found: Fields) -> Fields:
    """Experts in every `decoder_sparse_step`-th layer but those of `mlp_only_layers` (Qwen)."""
    if not found.get("experts"):
        return {}
    count = layer_count(found)
    each, dense = every_nth(c, "decoder_sparse_step", 1), places(c, "mlp_only_layers", count)
    return mlps((place for place in range(count) if place in dense or (place + 1) % each), count)


def interleaved(c: Config, found: Fields) -> Fields:
    """Experts in every `interleave_moe_layer_step`-th layer or those of `moe_layers`, one shared as wide as a routed one, dense
    layers of a width of their own (Llama 4)."""
    count, step = layer_count(found), whole(c, "interleave_moe_layer_step", 1)
    given = places(c, "moe_layers", count) if c.data.get("moe_layers") else None
    chosen = given if given is not None else set(range(step - 1, count, step)) if step > 0 else set()
    if not chosen:
        return {"ffn": c.count("intermediate_size_mlp")}
    width = c.count("intermediate_size")
    return {
        "experts": c.count("num_local_experts"), "top_k": c.count("num_experts_per_tok"), "moe_ffn": width,
        "shared_ffn": width, "ffn": c.count("intermediate_size_mlp"), **mlps(set(range(count)) - chosen, count),
    }  # fmt: skip


def between(c: Config, found: Fields) -> Fields:
    """Experts from `moe_layer_start_index` to `moe_layer_end_index` in every `moe_layer_interval`-th layer (ERNIE 4.5)."""
    if not found.get("experts"):
        return {}
    count = layer_count(found)
    start, each = whole(c, "moe_layer_start_index", 0), every_nth(c, "moe_layer_interval", 1)
    end = whole(c, "moe_layer_end_index", -1)
    last = count - 1 if end < 0 else end
    return mlps((at for at in range(count) if not (start <= at <= last and (at + 1) % each == 0)), count)


def periodic(c: Config, found: Fields) -> Fields:
    """Experts in every `expert_layer_period`-th layer from `expert_layer_offset` (Jamba)."""
    count, one = layer_count(found), c.count("num_local_experts")
    if one <= 1.0:  # one expert is a dense layer
        return {}
    period, offset = every_nth(c, "expert_layer_period", 2), whole(c, "expert_layer_offset", 1)
    return {
        "experts": one, "top_k": c.count("num_experts_per_tok"), "moe_ffn": c.count("intermediate_size"),
        **mlps((place for place in range(count) if (place - offset) % period), count),
    }  # fmt: skip
