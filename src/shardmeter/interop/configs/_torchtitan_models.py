"""Models of torchtitan by the catalog's names: module and flavor, and the versions that have them."""

from __future__ import annotations

from shardmeter.core.record import record

OLD, NEW = "0.2.2", "0.3.0"
"""The last version that reads TOML, and the one whose settings are Python."""
BOTH = (NEW, OLD)


@record
class Flavor:
    """One model of torchtitan's registries."""

    model: str
    """Its name in our catalog."""
    module: str
    flavor: str
    versions: tuple[str, ...] = BOTH
    assets: str = ""
    """The Hugging Face repository whose tokenizer it takes."""


def _flavors(module: str, rows: dict[str, tuple[str, str]], versions: tuple[str, ...] = BOTH) -> tuple[Flavor, ...]:
    return tuple(
        Flavor(model=model, module=module, flavor=flavor, versions=versions, assets=assets)
        for model, (flavor, assets) in rows.items()
    )


FLAVORS = (
    *_flavors("llama3", {
        "llama-3.1-8b": ("8B", "Llama-3.1-8B"), "llama-3.1-70b": ("70B", "Llama-3.1-70B"),
        "llama-3.1-405b": ("405B", "Llama-3.1-405B"),
        "llama-3-8b": ("8B", "Meta-Llama-3-8B"), "llama-3-70b": ("70B", "Meta-Llama-3-70B"),
    }),
    *_flavors("llama3", {"llama-3.2-1b": ("1B", "Llama-3.2-1B"), "llama-3.2-3b": ("3B", "Llama-3.2-3B")}, (NEW,)),
    *_flavors("qwen3", {
        "qwen3-0.6b": ("0.6B", "Qwen3-0.6B"), "qwen3-1.7b": ("1.7B", "Qwen3-1.7B"), "qwen3-4b": ("4B", "Qwen3-4B"),
        "qwen3-8b": ("8B", "Qwen3-8B"), "qwen3-14b": ("14B", "Qwen3-14B"), "qwen3-32b": ("32B", "Qwen3-32B"),
        "qwen3-30b-a3b": ("30B-A3B", "Qwen3-30B-A3B"), "qwen3-235b-a22b": ("235B-A22B", "Qwen3-235B-A22B"),
    }),
    *_flavors("deepseek_v3", {
        "deepseek-v3": ("671B", "DeepSeek-V3-Base"), "deepseek-v2": ("236B", "DeepSeek-V2"),
        "deepseek-v2-lite": ("16B", "deepseek-moe-16b-base"),
    }),
    *_flavors("gpt_oss", {"gpt-oss-20b": ("20b", "gpt-oss-20b"), "gpt-oss-120b": ("120b", "gpt-oss-120b")}),
    *_flavors("llama4", {
        "llama-4-scout": ("17bx16e", "Llama-4-Scout-17B-16E"), "llama-4-maverick": ("17bx128e", "Llama-4-Maverick-17B-128E"),
    }, (OLD,)),
)  # fmt: skip
"""Of two catalog names with one flavor the first is what the flavor is read as."""
SUFFIXES = ("_flex", "_varlen", "_irope", "_flex_attn", "_varlen_attn")
"""Of a flavor: another kernel of attention for the same model."""
TWINS = {"llama3_ft": "llama3", "torchft.llama3": "llama3"}
"""Modules that have the flavors of another one."""


def flavor_of(model: str, version: str) -> Flavor | None:
    """The flavor of a catalog name in a version; None where there is none."""
    return next((one for one in FLAVORS if one.model == model and version in one.versions), None)


def model_of(module: str, flavor: str) -> str | None:
    """The catalog name of a flavor; None where there is none."""
    for suffix in SUFFIXES:
        flavor = flavor.removesuffix(suffix)
    module = TWINS.get(module, module)
    return next((one.model for one in FLAVORS if one.module == module and one.flavor == flavor), None)


def models(version: str) -> tuple[str, ...]:
    """The catalog names that a version has."""
    return tuple(one.model for one in FLAVORS if version in one.versions)
