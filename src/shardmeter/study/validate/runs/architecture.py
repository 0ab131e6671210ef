"""The model of a run: by its name where the catalog has it at the stated size, else a nominal one of that size.

**Names**: the whole name, then ever shorter beginnings of it, without brackets, blanks and dashes, against the catalog's names
and aliases; then the patterns of `data/architectures.csv`; then rows whose name begins with the same word. A row counts only
where its parameters are the stated ones within a quarter (`SAME`): `RoBERTa` of 355M is roberta-large.

**Nominal decoder**: width = 128 · layers (64 and 80 for small ones: the shapes of GPT-3's table), so that 12 · layers · width² and
the embedding make the stated parameters. From 2024 on 8 KV heads. A mixture has 64
routed experts (or as many as the row says), so many of them a token that the stated active parameters come out, attention and
shared parts taking two fifths of those.

Leaves out: what is odd about an architecture (parallel blocks, windows, layers of unlike width).
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from functools import lru_cache

from shardmeter import families
from shardmeter.core.record import changed
from shardmeter.scenario.catalog import Catalog
from shardmeter.specs.model import Model
from shardmeter.study.validate.architecture import known
from shardmeter.study.validate.rows import NotModelled, Row, Unclear
from shardmeter.study.validate.runs import cells

SAME = 1.25
"""Factor within which parameters are those of the named model; of any other of its family they must agree within `KIN`."""
KIN = 1.03
VOCAB, SMALL_VOCAB = 65_536.0, 50_304.0
TIED_BELOW = 2e9
"""Parameters up to which head and embedding are one matrix, of the smaller vocabulary."""
ASPECTS: tuple[tuple[float, float], ...] = ((1e9, 64.0), (4e9, 80.0), (math.inf, 128.0))
"""(parameters up to which, width over layers)."""
GROUPED_FROM = 2024.0
KV_HEADS = 8.0
EXPERTS = 64.0
"""Routed experts of a nominal mixture."""
ROUTED = 0.6
"""Share of the active parameters that are experts."""
LEAST, MOST = 1e6, 1e14
"""Parameters of a model that a nominal one is made for."""
BRACKETS = re.compile(r"[(\[{].*?[)\]}]")
OWNER = re.compile(r"^[\w.-]+/(?=[A-Za-z])")
SIZE = re.compile(r"(?<![\w.])([0-9]+(?:\.[0-9]+)?)\s*([mbt])(?![\w.])", re.IGNORECASE)
TOP_K = re.compile(r"([0-9]+)\s*(?:routed\s*)?(?:experts)?,?\s*(?:routed\s*)?top-?\s*([0-9]+)")
LAST_EPOCH = re.compile(r"(?<=/14)@336(px)?\b")
"""A resolution in a name that only the last epoch had: CLIP's largest model was trained at 224 (Radford 2021 §2.5)."""
NANOCHAT = re.compile(r"\bnanochat\b.*\bd([0-9]+)\b")
"""A model whose name says its depth: width 64 a layer, heads of 128, MLP four times as wide, 32,768 words."""
TEXT_FAMILIES = ("decoder",)


def read_model(row: Row, catalog: Catalog, seq_len: float, when: float, others: bool) -> tuple[Model, str]:
    """(model, what was taken for granted of it; empty for one of the catalog). `others`: whether models that are no decoders
    may be meant by the name. Raises Unclear, NotModelled."""
    name = LAST_EPOCH.sub("", row.text("model"))
    total, active = _sizes(row)
    found = named(name, catalog, (total, active), others)
    if found is None:
        found = _deep(name)
    if found is not None:
        stands = "" if _is(found, name, catalog) else f"{name} is read as {found.name}, of the same family and size"
        return _longer(found, seq_len), stands
    if total is None:
        raise Unclear("the model's size is not stated" if name else "the model is not stated")
    if not LEAST <= total <= MOST:
        raise Unclear(f"a model of {total:g} parameters is beyond reason")
    if active is not None and active < total / SAME:
        model = nominal_mixture(name, total, active, seq_len, when, _experts(row))
        return (
            model,
            f"the architecture is not known: {_says(model)}, {float(model.top_k):g} of {float(model.experts):g} experts",
        )
    model = nominal(name, total, seq_len, when)
    return model, f"the architecture is not known: {_says(model)}"


def _says(model: Model) -> str:
    return f"a nominal decoder of its size, {model.layers} layers of {float(model.hidden):g}"


def _sizes(row: Row) -> tuple[float | None, float | None]:
    """(all parameters, active ones), from the columns, else from the name. Raises Damaged, Unclear."""
    total, active = cells.amount(row, "params_total"), cells.amount(row, "params_active")
    if total is None:
        said = SIZE.findall(row.text("model"))
        total = float(said[0][0]) * {"m": 1e6, "b": 1e9, "t": 1e12}[said[0][1].lower()] if said else None
    total = active if total is None else total
    if total is not None and active is not None and active > total:
        raise Unclear(f"params_active {active:g} is more than params_total {total:g}")
    return total, active


def key(name: str) -> str:
    """A name without what people write differently."""
    return re.sub(r"[\s_\-/@]+", "", name.casefold())


@lru_cache(maxsize=8)
def _index(catalog: Catalog) -> dict[str, str]:
    """Names and aliases of the catalog's models, without an owner's name."""
    found: dict[str, str] = {}
    for name in catalog.names("models"):
        for text in (name, *catalog.aliases("models", name)):
            found.setdefault(key(text.rpartition("/")[2]) if not text.startswith("vit") else key(text), name)
    return found


def _words(name: str) -> list[str]:
    return [word for word in re.split(r"[\s_]+|-(?=\S)", _plain(name)) if word]


def _plain(name: str) -> str:
    """A name without what stands in brackets and without its owner's (`owner/model`)."""
    return OWNER.sub("", BRACKETS.sub(" ", name).strip())


def _beginnings(name: str, index: Mapping[str, str]) -> list[str]:
    """The catalog's models that a name or a beginning of it is, the longest first."""
    words = _words(name)
    found = (index.get(key(" ".join(words[:count]))) for count in range(len(words), 0, -1))
    return [one for one in found if one]


def named(name: str, catalog: Catalog, sizes: tuple[float | None, float | None], others: bool) -> Model | None:
    """The catalog's model of that name and those (all, active) parameters; None where it has none."""
    index = _index(catalog)
    candidates = [(one, SAME) for one in _beginnings(name, index)]
    line = known(_plain(name), "")
    if line is not None:
        candidates += [(one, SAME) for one in (line["model"], line["base"]) if one and one != "*"]
    first = key(_words(name)[0]) if _words(name) else ""
    if sizes[0] is not None and len(first) > 2:
        candidates += [(full, KIN) for text, full in index.items() if text.startswith(first)]
    for candidate, factor in candidates:
        model = catalog.model(candidate) if catalog.knows("models", candidate) else None
        if model is not None and (others or model.family in TEXT_FAMILIES) and _same(model, sizes, factor):
            return model
    return None


def _is(model: Model, name: str, catalog: Catalog) -> bool:
    line = known(_plain(name), "")
    own = _beginnings(name, _index(catalog)) + ([line["model"], line["base"]] if line is not None else [])
    return model.name in own or model.name == name


def _same(model: Model, sizes: tuple[float | None, float | None], factor: float) -> bool:
    """Whether all parameters and, of a mixture, the active ones agree."""
    total, active = sizes
    counts = [(float(families.parameters(model)), total)]
    if model.experts and active is not None:
        counts.append((float(families.active_parameters(model)), active))
    return all(stated is None or 1.0 / factor <= count / stated <= factor for count, stated in counts)


def _longer(model: Model, seq_len: float) -> Model:
    """Learned positions have rows for every position of the run."""
    if model.family in ("decoder", "encoder") and model.positions == "learned" and model.context < seq_len:
        return changed(model, context=seq_len, parameters=None)
    return model


def _deep(name: str) -> Model | None:
    """A model whose name says its depth and by that everything."""
    found = NANOCHAT.search(name.lower())
    if found is None:
        return None
    layers = int(found[1])
    if not 1 <= layers <= 200:
        raise Unclear(f"a depth of {layers} is beyond reason")
    width = 64.0 * layers
    heads = max(1.0, round(width / 128.0))
    return Model(
        name=name, layers=layers, hidden=width, ffn=4.0 * width, heads=heads, kv_heads=heads, head_dim=width / heads,
        vocab=32_768.0, context=2048.0, mlp="plain", qk_norm="head",
    )  # fmt: skip


def nominal(name: str, total: float, seq_len: float, when: float) -> Model:
    """A decoder of `total` parameters in the usual shape; the width of its MLP makes the count come out."""
    tied = total <= TIED_BELOW
    vocab = SMALL_VOCAB if tied else VOCAB
    aspect = next(aspect for most, aspect in ASPECTS if total <= most)
    width = _width(total, aspect)
    words = vocab * width * (1.0 if tied else 2.0)
    if words > total / 2.0:
        width = max(128.0, 128.0 * math.floor(total / 2.0 / vocab / 128.0))
        words = vocab * width
    layers = max(1, round((total - words) / (12.0 * width**2)))
    heads = width / 128.0
    grouped = when >= GROUPED_FROM and heads % KV_HEADS == 0.0
    kv_heads = KV_HEADS if grouped else heads
    attention = 2.0 * width**2 + 2.0 * width * kv_heads * 128.0
    ffn = max(128.0, 16.0 * round(((total - words) / layers - attention) / (3.0 * width) / 16.0))
    return Model(
        name=name or "nominal", layers=layers, hidden=width, ffn=ffn, heads=heads, kv_heads=kv_heads, head_dim=128.0,
        vocab=vocab, context=seq_len, tied=tied,
    )  # fmt: skip


def _width(total: float, aspect: float) -> float:
    """The width of a decoder with `aspect` times as many channels as layers: a multiple of 1024 (128 below 2048), so that eight
    ranks share its heads."""
    exact = math.cbrt(total * aspect / 12.0)
    step = 1024.0 if exact > 2048.0 else 128.0
    return max(128.0, step * round(exact / step))


def nominal_mixture(
    name: str, total: float, active: float, seq_len: float, when: float, stated: tuple[float | None, float | None]
) -> Model:
    """A decoder with routed experts of `total` parameters, `active` of them a token."""
    dense = nominal(name, max(active, LEAST), seq_len, when)
    experts = stated[0] or EXPERTS
    top_k = stated[1] or max(1.0, round(ROUTED * active * experts / (total - active + ROUTED * active)))
    if not 1.0 <= top_k < experts:
        raise NotModelled(f"{top_k:g} of {experts:g} experts make no mixture")
    each = (total - active) / (experts - top_k)
    column = dense.layers * 3.0 * float(dense.hidden)
    moe_ffn = max(1.0, 16.0 * round(each / column / 16.0))
    rest = active - float(families.parameters(changed(dense, ffn=1.0))) - top_k * each
    shared = max(0.0, 16.0 * math.floor(rest / column / 16.0))
    return changed(dense, experts=experts, top_k=top_k, moe_ffn=moe_ffn, shared_ffn=shared)


def _experts(row: Row) -> tuple[float | None, float | None]:
    """(routed experts, experts a token), where the row says both, as in `64 experts top-8`; of `16 experts top-4`."""
    count = TOP_K.search(f"{row.text('arch_notes')} {row.text('model')}".lower())
    if count is None or not 1 <= int(count[2]) < int(count[1]) <= 4096:
        return None, None
    return float(count[1]), float(count[2])
