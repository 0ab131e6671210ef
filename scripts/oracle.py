"""Count parameters and FLOPs of every catalog model with torch on the meta device: `make oracle`.

Independent of the package on purpose: it reads `models.csv` with the csv module, builds each network from plain torch layers
(`oracle_network.py`) and lets torch count. Where transformers is importable, the published class of the architecture is built and counted too.
Neither torch nor transformers is a dependency: run this with any Python that has them.
Writes `tests/oracle/parameters.csv` and `tests/oracle/flops.csv`.
"""

from __future__ import annotations

import csv
import datetime as dt
import importlib
import importlib.util
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
MODELS = ROOT / "src" / "shardmeter" / "data" / "models.csv"
TABLES = ROOT / "tests" / "oracle"
FLOP_MODELS = (
    ("gpt2", 1024),
    ("gpt3-13b", 2048),
    ("llama-3.1-8b", 2048),
    ("llama-3.1-8b", 8192),
    ("qwen3-4b", 4096),
    ("gemma-2b", 4096),
    ("falcon-7b", 2048),
    ("phi-2", 2048),
    ("bloom-7b1", 2048),
    ("mpt-7b", 2048),
    ("olmo-2-7b", 4096),
    ("mixtral-8x7b", 4096),
    ("qwen1.5-moe-a2.7b", 3840),
    ("glm-4.5-air", 4096),
    ("gemma-2-9b", 4096),
    ("gpt-oss-20b", 128),
    ("deepseek-v2-lite", 4096),
    ("deepseek-v3", 4096),
    ("llama-4-maverick", 4096),
    ("qwen3-next-80b-a3b", 4096),
    ("jamba-v0.1", 4096),
    ("nemotron-h-8b", 8192),
    ("nemotron-3-nano-30b-a3b", 4096),
    ("nemotron-3-super-120b-a12b", 4096),
    ("bert-large", 512),
    ("roberta-base", 128),
    ("vit-base-patch16-224", 197),
    ("deit3-large-patch16-384", 577),
    ("clip-vit-b-32", 77),
    ("clip-vit-g-14", 77),
    ("siglip-b-16", 64),
    ("t5-base", 512),
    ("t5-v1.1-xl", 512),
    ("bart-large", 1024),
    ("dit-xl-2", 256),
    ("llava-1.5-7b", 2048),
    ("qwen2-vl-7b", 4096),
    ("paligemma-3b-224", 512),
    ("soma-lstm-32", 128),
    ("soma-lstm-588", 64),
)
"""(model, sequence length) of the FLOP table: one of each kind of block. No sequence is longer than a window: torch does not look
at masks."""

Row = dict[str, str]


def read_models() -> list[Row]:
    """The rows of the shipped model table, as text."""
    with MODELS.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def network(row: Row, rows: dict[str, Row]) -> Any:
    """The network of a row as a torch module on the meta device: no weights in memory. `rows` has its image tower."""
    import torch

    with torch.device("meta"):
        return importlib.import_module("oracle_parts").network(row, rows)


def count(network: Any) -> int:
    """Parameters of a module, each tensor once."""
    return sum(parameter.numel() for parameter in network.parameters())


def forward_flops(row: Row, rows: dict[str, Row], seq: int) -> int:
    """FLOPs that torch counts in one forward pass over one sample of `seq` tokens of text: matrix products only, a multiply-add
    is two."""
    import torch
    from torch.utils.flop_counter import FlopCounterMode

    with torch.device("meta"):
        sample = importlib.import_module("oracle_parts").example(row, rows, seq)
    with FlopCounterMode(display=False) as counter:
        network(row, rows)(*sample)
    return int(counter.get_total_flops())


def published_class(row: Row) -> tuple[str, dict[str, Any]]:
    """The transformers class of a row's architecture, and the configuration that its numbers mean there."""
    n = {key: int(row[key]) for key in ("layers", "hidden", "ffn", "heads", "kv_heads", "head_dim", "vocab", "context")}
    tied = row["tied"] == "yes"
    usual = {
        "num_hidden_layers": n["layers"], "hidden_size": n["hidden"], "intermediate_size": n["ffn"],
        "num_attention_heads": n["heads"], "num_key_value_heads": n["kv_heads"], "head_dim": n["head_dim"],
        "vocab_size": n["vocab"], "max_position_embeddings": n["context"], "tie_word_embeddings": tied,
        "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2,
    }  # fmt: skip
    short = {"n_layer": n["layers"], "n_head": n["heads"], "vocab_size": n["vocab"], "tie_word_embeddings": tied}
    family = next(prefix for prefix in _CLASSES if row["name"].startswith(prefix))
    name = _CLASSES[family]
    extra: dict[str, Any] = {
        "GPT2": short | {"n_embd": n["hidden"], "n_positions": n["context"], "n_inner": n["ffn"]},
        "GPTJ": short | {"n_embd": n["hidden"], "n_positions": n["context"], "n_inner": n["ffn"], "rotary_dim": 64},
        "Bloom": short | {"hidden_size": n["hidden"]},
        "Mpt": {"d_model": n["hidden"], "n_heads": n["heads"], "n_layers": n["layers"], "vocab_size": n["vocab"],
                "expansion_ratio": n["ffn"] // n["hidden"], "max_seq_len": n["context"], "tie_word_embeddings": tied},
        "OPT": {"hidden_size": n["hidden"], "ffn_dim": n["ffn"], "num_hidden_layers": n["layers"],
                "num_attention_heads": n["heads"], "vocab_size": n["vocab"], "word_embed_proj_dim": n["hidden"],
                "max_position_embeddings": n["context"] - 2, "tie_word_embeddings": tied},
        "Falcon": usual | {"num_kv_heads": n["kv_heads"], "multi_query": n["kv_heads"] == 1, "parallel_attn": True,
                           "new_decoder_architecture": n["kv_heads"] != 1, "bias": False, "alibi": False,
                           "ffn_hidden_size": n["ffn"]},
        "Qwen3": usual | {"attention_bias": False},
    }.get(name, usual)  # fmt: skip
    if row["experts"]:
        extra = usual | routed(row)
    extra = extra | latent(row) | recurrent(row, name)
    if name == "Llama4Text":
        each = {"intermediate_size": int(row["moe_ffn"]), "intermediate_size_mlp": n["ffn"]}
        extra = extra | each | {"interleave_moe_layer_step": len(row["mlps"] or "e")}
    if row["window"] and row["mixers"] != "c":
        extra = extra | {"sliding_window": int(row["window"])}
    if name == "Falcon":
        extra = {key: value for key, value in extra.items() if key not in {"head_dim", "num_key_value_heads"}}
    return name, extra


def routed(row: Row) -> dict[str, Any]:
    """What the classes with routed experts call the numbers of a row; each takes those that it knows."""
    experts, top_k, width = int(row["experts"]), int(row["top_k"]), int(row["moe_ffn"])
    shared, dense = int(row["shared_ffn"] or 0), int(row["dense_first"] or 0)
    bias = row["attention_bias"] == "yes"
    return {
        "num_experts": experts, "num_local_experts": experts, "n_routed_experts": experts,
        "num_experts_per_tok": top_k, "moe_intermediate_size": width,
        "shared_expert_intermediate_size": shared, "n_shared_experts": shared // width,
        "first_k_dense_replace": dense,
        "attention_bias": bias, "qkv_bias": bias,
        "use_qk_norm": row["qk_norm"] == "head", "lm_head_bias": row["head_bias"] == "yes",
    }  # fmt: skip


def latent(row: Row) -> dict[str, Any]:
    """What the classes with latent attention call its numbers."""
    if not row["kv_lora_rank"]:
        return {}
    turned = int(row["qk_rope_head_dim"])
    return {
        "q_lora_rank": int(row["q_lora_rank"]) if row["q_lora_rank"] else None, "kv_lora_rank": int(row["kv_lora_rank"]),
        "qk_rope_head_dim": turned, "qk_nope_head_dim": int(row["head_dim"]) - turned, "head_dim": turned,
        "v_head_dim": int(row["v_head_dim"]), "n_group": 1, "topk_group": 1,
    }  # fmt: skip


def recurrent(row: Row, name: str) -> dict[str, Any]:
    """What the classes with recurrent layers call their numbers, and how they say which layer is of which kind."""
    words = {"f": "full_attention", "w": "sliding_attention", "c": "chunked_attention", "d": "linear_attention"}
    mixers = row["mixers"]
    if not mixers or mixers == "w":
        return {}
    layers = int(row["layers"])
    if name == "Jamba":
        return {
            "attn_layer_period": len(mixers), "attn_layer_offset": mixers.index("f"), "expert_layer_period": len(row["mlps"]),
            "expert_layer_offset": row["mlps"].index("e"), "mamba_d_state": int(row["state_dim"]),
            "mamba_d_conv": int(row["conv_width"]), "mamba_dt_rank": int(row["step_rank"]),
        }  # fmt: skip
    if name != "NemotronH":
        types = {"layer_types": [words[mixers[place % len(mixers)]] for place in range(layers)]}
        if "d" not in mixers:
            return types
        return types | {
            "linear_num_key_heads": int(row["state_groups"]), "linear_num_value_heads": int(row["state_heads"]),
            "linear_key_head_dim": int(row["state_dim"]), "linear_value_head_dim": int(row["state_head_dim"]),
            "linear_conv_kernel_dim": int(row["conv_width"]),
        }  # fmt: skip
    parts = {"m-": "linear_attention", "f-": "full_attention", "-d": "mlp", "-e": "moe"}
    return {
        "layers_block_type": [parts[mixer + mlp] for mixer, mlp in zip(mixers, row["mlps"], strict=True)],
        "ssm_state_size": int(row["state_dim"]), "mamba_num_heads": int(row["state_heads"]),
        "mamba_head_dim": int(row["state_head_dim"]), "n_groups": int(row["state_groups"]),
        "conv_kernel": int(row["conv_width"]),
        "moe_latent_size": int(row["moe_latent"]) if row["moe_latent"] else None,
        "moe_shared_expert_intermediate_size": int(row["shared_ffn"] or 0),
    }  # fmt: skip


_CLASSES = {
    "mpt-7b-alibi": "Mpt", "mpt-30b-alibi": "Mpt", "mpt": "GPT2", "gpt2": "GPT2", "gpt3": "GPT2", "megatron": "GPT2",
    "gpt-neox": "GPTNeoX", "pythia": "GPTNeoX", "gpt-j": "GPTJ", "opt": "OPT", "bloom": "Bloom", "falcon": "Falcon",
    "mixtral": "Mixtral", "qwen3-30b-a3b": "Qwen3Moe", "qwen3-235b-a22b": "Qwen3Moe", "qwen1.5-moe": "Qwen2Moe",
    "olmoe": "Olmoe", "phi-3.5-moe": "Phimoe", "glm-4.5": "Glm4Moe",
    "gemma-2-": "Gemma2", "gemma-3-": "Gemma3Text", "gpt-oss": "GptOss", "deepseek-v2": "DeepseekV2", "deepseek-v3": "DeepseekV3",
    "kimi": "DeepseekV3", "moonlight": "DeepseekV3", "llama-4": "Llama4Text", "qwen3-next": "Qwen3Next",
    "qwen3.5-35b": "Qwen3_5MoeText", "qwen3.5-27b": "Qwen3_5Text", "qwen3-coder": "Qwen3Moe", "minimax-m2": "MiniMaxM2",
    "jamba": "Jamba", "nemotron-h": "NemotronH", "nemotron-nano": "NemotronH", "nemotron-3-": "NemotronH", "olmo-3": "Olmo3",
    "ministral-3": "Ministral3", "phi-3-": "Phi3", "phi-3.5-mini": "Phi3",
    "phi-1.5": "Phi", "phi-2": "Phi", "phi-4": "Phi3", "gemma": "Gemma", "qwen3": "Qwen3", "qwen": "Qwen2",
    "mistral": "Mistral", "nemotron": "Nemotron", "minitron": "Nemotron", "olmo-2": "Olmo2", "stablelm": "StableLm",
    "command-r": "Cohere", "smollm3": "SmolLM3", "": "Llama",
}  # fmt: skip
"""Prefix of a model's name → class of transformers; the first that fits. Everything else is a Llama."""


def published_count(row: Row, rows: dict[str, Row]) -> tuple[str, int] | None:
    """(class, parameters) of the published class of a row; None where no package here has one."""
    import torch

    if row["family"] != "decoder":
        with torch.device("meta"):
            found = importlib.import_module("oracle_classes").published(row, rows)
        return None if found is None else (found[0], count(_tied(found[1])))
    transformers = importlib.import_module("transformers")
    name, settings = published_class(row)
    config = getattr(transformers, f"{name}Config")(**settings)
    with torch.device("meta"):
        suffix = "LMHeadModel" if name == "GPT2" else "ForCausalLM"
        network = getattr(transformers, f"{name.removesuffix('Text') if name != 'Gemma3Text' else 'Gemma3'}{suffix}")(
            config
        )
    return name, count(_tied(network))


def _tied(network: Any) -> Any:
    """A network whose shared matrices are one tensor."""
    if hasattr(network, "tie_weights"):
        network.tie_weights()
    return network


def write(path: Path, rows: list[dict[str, Any]]) -> None:
    """Write one table."""
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
    print(f"{path.relative_to(ROOT)}: {len(rows)} rows")


def main() -> int:
    """Write both tables."""
    if importlib.util.find_spec("torch") is None:
        print(
            "torch is not importable here; run this with a Python that has it (a CPU build is enough)", file=sys.stderr
        )
        return 2
    import torch

    has_transformers = importlib.util.find_spec("transformers") is not None
    versions = f"torch {torch.__version__.partition('+')[0]}"
    if has_transformers:
        versions += f", transformers {importlib.import_module('transformers').__version__}"
    today = dt.datetime.now(tz=dt.UTC).date().isoformat()
    models = read_models()
    counted = []
    by_name = {row["name"]: row for row in models}
    for row in models:
        own, body = count(network(row, by_name)), count(network(row | {"mtp": ""}, by_name))
        title, published = (published_count(row, by_name) if has_transformers else None) or ("", "")
        if published and published != body:
            print(f"{row['name']}: {body} here, {published} in {title}", file=sys.stderr)
        counted.append({
            "model": row["name"], "parameters": own, "body": body, "published_class": title,
            "published_class_parameters": published, "source": "torch meta device", "versions": versions,
            "date": today,
        })  # fmt: skip
    write(TABLES / "parameters.csv", counted)
    flops = [
        {"model": name, "seq": seq, "forward_flops": forward_flops(by_name[name], by_name, seq), "source": "FlopCounterMode",
         "versions": f"torch {torch.__version__.partition('+')[0]}", "date": today}
        for name, seq in FLOP_MODELS
    ]  # fmt: skip
    write(TABLES / "flops.csv", flops)
    return 0


if __name__ == "__main__":
    sys.exit(main())
