"""Files of a checkpoint: which one is the configuration, and what the others are."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from shardmeter.core.errors import BadScenario, shown
from shardmeter.core.files import at_home, file_name, refuse_closed

CONFIG = "config.json"
LEAST = 'has at least `"model_type"` and the sizes of its model, as in {"model_type": "llama", "hidden_size": 4096, …}'
WEIGHTS = (".safetensors", ".bin", ".gguf", ".pt", ".pth", ".ckpt", ".h5", ".msgpack", ".onnx")
TELLING = frozenset({CONFIG, "adapter_config.json", "params.json", "model_index.json", "snapshots"})
"""Files that only a checkpoint's folder has."""
SHAPES = ("hidden_size", "num_hidden_layers", "n_embd", "n_layer", "n_layers", "d_model", "num_attention_heads")
"""Keys that only a configuration has, whether or not it names its model type."""
NAME_IT = "name the config.json beside it"
PROCESSORS = {"image_processor_type", "feature_extractor_type", "processor_class"}
GENERATION = {"_from_model_config", "temperature", "top_p", "do_sample"}


def is_config(data: Mapping[str, Any]) -> bool:
    """Whether a mapping is a configuration of the library, or another file of a checkpoint."""
    return (
        bool({"model_type", "architectures", "_class_name"} & set(data))
        or bool(set(SHAPES) & set(data))
        or bool(other(data))
    )


OTHERS: tuple[tuple[Callable[[set[str]], bool], str], ...] = (
    (lambda keys: {"quantization", "producer"} <= keys, f"the configuration of a quantisation; {NAME_IT}"),
    (lambda keys: "weight_map" in keys, f"the index of the weights' files; {NAME_IT}"),
    (lambda keys: "tokenizer_class" in keys and not {"hidden_size", "model_type"} & keys, f"the configuration of a tokenizer; {NAME_IT}"),
    (lambda keys: "model" in keys and bool({"pre_tokenizer", "added_tokens"} & keys), f"a tokenizer; {NAME_IT}"),
    (lambda keys: bool(PROCESSORS & keys) and "model_type" not in keys, f"the configuration of a preprocessor; {NAME_IT}"),
    (lambda keys: bool(GENERATION & keys) and not {"model_type", *SHAPES} & keys, f"the configuration of generation; {NAME_IT}"),
    (lambda keys: {"dim", "n_layers", "n_heads"} <= keys and "model_type" not in keys,
     f"the parameters of a release in its maker's own form; {NAME_IT}, or convert it"),
    (lambda keys: "pretrained_cfg" in keys or {"architecture", "num_classes"} <= keys,
     "the configuration of a model of timm, which names an architecture without its sizes"),
    (lambda keys: bool({"log_history", "zero_optimization", "distributed_type"} & keys),
     f"the configuration or log of a trainer; {NAME_IT}"),
)  # fmt: skip
"""(test of a file's keys, what the file is): files of a checkpoint that describe no model."""


def other(data: Mapping[str, Any]) -> str:
    """What a JSON of a checkpoint is that is no configuration of a model; empty for one that may be."""
    if "peft_type" in data or "base_model_name_or_path" in data:
        base, rank = data.get("base_model_name_or_path"), data.get("r")
        where = f": its base is {shown(base)}" if isinstance(base, str) and base else ""
        lora = f", with trainable: lora(r={rank})" if isinstance(rank, int) and not isinstance(rank, bool) else ""
        return f"the configuration of a LoRA adapter, which has no sizes of its own{where}; name the base's config.json{lora}"
    keys = set(data)
    return next((what for test, what in OTHERS if test(keys)), "")


def named_like_a_path(text: str) -> bool:
    """Whether a text can only be a path: it begins with a dot, a slash or a tilde."""
    return text in (".", "..") or text.startswith(("./", "../", "/", "~", ".\\", "..\\"))


def is_checkpoint(folder: Path) -> bool:
    """Whether a folder holds a checkpoint, or a part of one. Raises OSError."""
    inside = [entry.name for entry in folder.iterdir()]
    return bool(TELLING & set(inside)) or any(name.lower().endswith(WEIGHTS) for name in inside)


def configuration(path: Path) -> Path:
    """The configuration that a folder holds, or the file itself. Raises BadScenario for what holds or is none."""
    refuse_closed(path, BadScenario)
    name = file_name(path)
    path = at_home(path)
    try:
        folder = path.is_dir()
        inside = sorted(entry.name for entry in path.iterdir()) if folder else []
    except OSError as error:
        raise BadScenario(f"{name}: cannot be read ({error.strerror or 'no reason is given'})") from None
    except ValueError:
        raise BadScenario(f"{name}: no file can have this name") from None
    if not folder:
        if path.suffix.lower() in WEIGHTS:
            raise BadScenario(f"{name}: holds weights, which are not read; {NAME_IT}")
        if not path.exists():
            row = (
                ""
                if path.suffix == ".json" or len(path.parts) > 1
                else f" (of the catalog: `shardmeter catalog models {name}`)"
            )
            raise BadScenario(f"{name}: no such file or folder{row}")
        return path
    if CONFIG in inside:
        return path / CONFIG
    if "transformer" in inside and (path / "transformer" / CONFIG).is_file():
        return path / "transformer" / CONFIG
    if "snapshots" in inside:
        return _snapshot(path, name)
    raise BadScenario(f"{name}: a folder without {CONFIG}; {_holds(inside)}")


def _snapshot(path: Path, name: str) -> Path:
    """The configuration of the only snapshot in a folder of the library's cache."""
    found = sorted(path.glob(f"snapshots/*/{CONFIG}"))
    if len(found) == 1:
        return found[0]
    says = f"{len(found)} snapshots with a {CONFIG}" if found else f"no snapshot with a {CONFIG}"
    raise BadScenario(f"{name}: a cache with {says}; name the folder of one, as in {name}/snapshots/…")


def _holds(inside: list[str]) -> str:
    if "adapter_config.json" in inside:
        return "it holds a LoRA adapter (adapter_config.json): name the folder of its base model"
    if "params.json" in inside:
        return "it holds params.json, the maker's own form: convert it, or write its numbers as a model"
    return f"it holds {', '.join(map(file_name, inside[:4]))}" if inside else "it is empty"


def model_name(data: Mapping[str, Any], path: Path) -> str:
    """What a model is called: as the file says, else by its folder, else by its own name."""
    said = data.get("_name_or_path") or data.get("name_or_path")
    if isinstance(said, str) and said.strip(" ./"):
        return said.rstrip("/").rpartition("/")[2][:100] or said[:100]
    if path.name != CONFIG:
        return path.stem
    folder = path.parent if path.parent.name not in ("", ".") else path.parent.absolute()
    if folder.parent.name == "snapshots":  # the library's cache: models--maker--name/snapshots/hash
        return folder.parent.parent.name.rpartition("--")[2] or folder.name
    return folder.name or path.stem
