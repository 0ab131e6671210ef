"""The model of a row: its own numbers first, then public facts that rows leave out (`data/architectures.csv`).

The file's first line whose pattern is found in the model's name, and whose stack (if it names one) is the row's, decides.
A line that names a row of the catalog takes all numbers from there (`*`: the row of the model's own name), but for the sizes of a
text model that the line or the row states. A name that no line knows, with all its sizes in the row, is read as GPT where the
MLP is four times as wide as the model, else as Llama: two or three MLP matrices give nearly the same count at these widths. A line with a `base` stands for that row of
the catalog too, at the length of the run: latent attention, windows, recurrences have no columns in a row.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Mapping
from functools import cache, lru_cache
from typing import Any

from shardmeter import data
from shardmeter.core.errors import UnknownName
from shardmeter.core.record import changed
from shardmeter.families import given_sequence
from shardmeter.scenario.catalog import load_catalog
from shardmeter.specs.model import Model
from shardmeter.study.validate.rows import MOST_OF, Row, Unclear
from shardmeter.study.validate.task import MIXTURE

SIZES = {
    "layers": "n_layers", "hidden": "hidden", "ffn": "ffn_hidden", "heads": "n_heads", "kv_heads": "n_kv_heads",
    "head_dim": "head_dim", "vocab": "vocab",
}  # fmt: skip
EXPERTS = {"experts": "n_experts", "top_k": "top_k", "moe_ffn": "moe_ffn_hidden"}
"""The same of routed experts; a model without them needs none."""
"""Fields of `Model` and the columns that hold them."""

GPT: Mapping[str, str] = {
    "mlp": "plain", "norm": "layer", "positions": "learned", "attention_bias": "yes", "output_bias": "yes",
    "mlp_bias": "yes", "tied": "yes",
}  # fmt: skip
LLAMA: Mapping[str, str] = {"mlp": "gated", "norm": "rms", "positions": "rope"}
CUT = re.compile(r"(\d+)[ -]?layers")


@cache
def facts() -> tuple[Mapping[str, str], ...]:
    """The lines of `data/architectures.csv`."""
    with data.open_text("architectures.csv") as file:
        return tuple(csv.DictReader(file))


@lru_cache(maxsize=4096)
def known(name: str, stack: str) -> Mapping[str, str] | None:
    """The first line that knows the model's name on this stack, or None."""
    plain = re.sub(r"[\s_]+", "-", name.lower().strip())
    for line in facts():
        if line["stack"] in ("", stack) and re.search(line["pattern"], plain):
            return line
    return None


def catalogued(row: Row, stack: str) -> Model | None:
    """The catalog's model that a line names for the model of a row, or None. Raises Unclear for a name that tells of a family
    whose sizes are more than a row can state."""
    name = row.text("model")
    line = known(name, stack)
    if line is None or not line["model"]:
        if OTHER.search(name.lower()):
            raise Unclear(f"the architecture is not known: {name}")
        return None
    title = re.sub(r"[\s_]+", "-", name.lower().strip()) if line["model"] == "*" else line["model"]
    try:
        model = load_catalog().model(title)
    except UnknownName:
        raise Unclear(f"the architecture is not known: {name}") from None
    return model if model.family not in TEXT else _resized(model, row, line)


TEXT = ("encoder", "encoder_decoder")
"""Families of which a row states the sizes that it means; those of images are named by their patches."""
OTHER = re.compile(r"\bvit|deit|clip|bert\b|\bt5\b|t5-|\bbart\b|\bdit\b|siglip|llava|-vl\b")


def _resized(model: Model, row: Row, line: Mapping[str, str]) -> Model:
    """A text model with the sizes that a row or its line states."""
    sizes = {
        field: row.count(column) or (float(line[field]) if line[field] else None) for field, column in SIZES.items()
    }
    given = {field: value for field, value in sizes.items() if value}
    if "hidden" in given and "heads" in given:
        given = {
            "head_dim": given["hidden"] / given["heads"],
            "kv_heads": given["heads"],
            "ffn": 4.0 * given["hidden"],
        } | given
    if "layers" in given:
        given["layers"] = int(given["layers"])
    return changed(model, **given, parameters=None) if given else model


def own_sequence(row: Row) -> float | None:
    """The sequence that the model of a row gives, whatever the row says: of images the patches, of two towers the text's; None
    for any other model."""
    try:
        model = catalogued(row, "")
    except Unclear:
        return None
    if model is None or model.family in TEXT:
        return None
    own = given_sequence(model)
    if own is None and model.family == "dual_encoder":
        own = model.context
    return None if own is None else float(own)


def read_model(row: Row, stack: str, seq_len: float) -> Model:
    """The model of a row. Raises Unclear where a size is neither in the row nor public."""
    named = catalogued(row, stack)
    if named is not None:
        longer = named.family == "encoder" and named.context < seq_len
        return changed(named, context=seq_len, parameters=None) if longer else named
    line = known(row.text("model"), stack)
    return _shipped(row, line, seq_len) if line is not None and line["base"] else _stated(row, line, seq_len)


def _stated(row: Row, line: Mapping[str, str] | None, seq_len: float) -> Model:
    """A decoder of the sizes that a row or its line states, in the shape that the line or the MLP's width tells."""
    name = row.text("model")
    sizes = {field: row.count(column) for field, column in SIZES.items()}
    if line is not None:
        sizes = {field: value or (float(line[field]) if line[field] else None) for field, value in sizes.items()}
        cut = CUT.search(name.lower())
        if cut and not row.text("n_layers"):
            sizes["layers"] = float(cut.group(1))
    if sizes["hidden"] and sizes["heads"]:
        sizes["head_dim"] = sizes["head_dim"] or sizes["hidden"] / sizes["heads"]
        sizes["kv_heads"] = sizes["kv_heads"] or sizes["heads"]
    shape = line or (GPT if sizes["ffn"] in (None, 4.0 * (sizes["hidden"] or 0.0)) else LLAMA)
    if shape.get("mlp") == "plain" and sizes["hidden"]:
        sizes["ffn"] = sizes["ffn"] or 4.0 * sizes["hidden"]
    experts = read_experts(row, line)
    if experts and not sizes["ffn"]:
        sizes["ffn"] = experts["moe_ffn"]
    missing = [SIZES[field] for field, value in sizes.items() if not value]
    if missing:
        raise Unclear(f"the model's size is not stated: {', '.join(missing)}")
    model = _model(name, {field: value or 0.0 for field, value in sizes.items()}, shape, seq_len)
    if not experts:
        return model
    return changed(
        model, **experts, shared_ffn=float(shape.get("shared_ffn") or 0.0),
        shared_gate=shape.get("shared_gate") == "yes", dense_first=int(shape.get("dense_first") or 0),
    )  # fmt: skip


BASED = {
    "layers": "n_layers",
    "hidden": "hidden",
    "heads": "n_heads",
    "vocab": "vocab",
    "experts": "n_experts",
    "top_k": "top_k",
}
"""Numbers of a shipped row that a measured one may state otherwise; widths mean too many things in such models."""


def _shipped(row: Row, line: Mapping[str, str], seq_len: float) -> Model:
    """The shipped row that a line stands for, with the numbers that the measured row states (a model cut to fewer layers)."""
    name = row.text("model")
    base = load_catalog().model(line["base"])
    cut = CUT.search(name.lower())
    own: dict[str, Any] = {field: row.count(column) for field, column in BASED.items()}
    own["layers"] = own["layers"] or (float(cut.group(1)) if cut else None)
    stated = {field: value for field, value in own.items() if value}
    if stated.get("layers", 1.0) > MOST_OF["n_layers"]:
        raise Unclear(f"n_layers is beyond reason: {stated['layers']:g}")
    model = changed(base, **stated, name=name, context=seq_len, parameters=None)
    layers = int(model.layers)
    return changed(
        model, layers=layers, dense_first=min(int(model.dense_first), max(layers - 1, 0)),
        mtp=int(line["mtp"] or model.mtp),
    )  # fmt: skip


def read_experts(row: Row, line: Mapping[str, str] | None) -> dict[str, float]:
    """Routed experts, how many a token is sent to, and their width; empty for a model without. Raises Unclear where a model
    with experts does not say all three."""
    name = row.text("model")
    found = {field: row.count(column) for field, column in EXPERTS.items()}
    if line is not None:
        found = {field: value or (float(line[field]) if line[field] else None) for field, value in found.items()}
    if (found["experts"] or 1.0) <= 1.0 and not MIXTURE.search(name.lower()):
        return {}
    if found["experts"] and not found["moe_ffn"]:
        found["moe_ffn"] = row.count("ffn_hidden")
    missing = [EXPERTS[field] for field, value in found.items() if not value]
    if missing:
        raise Unclear(f"the experts are not stated: {', '.join(missing)}")
    return {field: value or 0.0 for field, value in found.items()}


def _model(name: str, sizes: Mapping[str, float], shape: Mapping[str, str], seq_len: float) -> Model:
    """Sizes and shape as one record; learned positions have a row for every position of the run."""
    if sizes["heads"] % sizes["kv_heads"]:
        raise Unclear(f"{sizes['kv_heads']:g} KV heads do not divide {sizes['heads']:g} heads")
    return Model(
        name=name,
        family="decoder",
        layers=int(sizes["layers"]),
        hidden=sizes["hidden"],
        ffn=sizes["ffn"],
        heads=sizes["heads"],
        kv_heads=sizes["kv_heads"],
        head_dim=sizes["head_dim"],
        vocab=sizes["vocab"],
        context=seq_len,
        mlp=shape["mlp"],
        norm=shape["norm"],
        positions=shape["positions"],
        attention_bias=shape.get("attention_bias") == "yes",
        output_bias=shape.get("output_bias") == "yes",
        mlp_bias=shape.get("mlp_bias") == "yes",
        embedding_norm=shape.get("embedding_norm") == "yes",
        qk_norm=shape.get("qk_norm") or "none",
        norms_per_layer=float(shape.get("norms_per_layer") or 2.0),
        tied=shape.get("tied") == "yes",
        head_bias=shape.get("head_bias") == "yes",
    )
