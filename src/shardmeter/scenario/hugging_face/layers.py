"""Which layer is what: lists and rules of config.json as letters, one a layer (`Model.mixers`, `Model.mlps`)."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from shardmeter.core.errors import shown
from shardmeter.scenario.hugging_face.config import MOST_LAYERS, Config, known

Fields = dict[str, Any]
Fact = Callable[[Config, Fields], Any]
"""One field of a model, from the config and the fields before it."""
Part = Callable[[Config, Fields], Fields]
"""Several fields at once."""
MIXERS = {
    "full_attention": "f", "attention": "f", "global": "f", "sliding_attention": "w", "local": "w",
    "chunked_attention": "c", "mamba": "m", "mamba2": "m",
}  # fmt: skip
"""The library's words for what mixes the tokens of a layer."""


def layer_count(found: Fields) -> int:
    """Layers, where they are read; 1 where that is a violation already."""
    layers = found.get("layers", 1)
    return int(layers) if known(layers) and layers <= MOST_LAYERS else 1


def repeated(letters: str) -> str:
    """The shortest piece that, repeated, gives the letters; empty where all are what is usual anyway is the caller's business."""
    return next(
        letters[:size] for size in range(1, len(letters) + 1) if (letters[:size] * len(letters))[: len(letters)] == letters
    )  # fmt: skip


def mixers(rule: Callable[[Config, int], str] | None = None, window: str = "sliding_window", linear: str = "d") -> Part:
    """Fields `mixers` and `window`: from `layer_types` where the file has it, else by a rule of (config, place) → letter.
    `linear` is the letter of what the library calls linear attention in that model: a delta rule, or Mamba-2."""

    def read(c: Config, found: Fields) -> Fields:
        count = layer_count(found)
        listed = c.items("layer_types") if any(c.data.get(name) for name in c.names("layer_types")) else None
        if listed is not None:
            letters = _letters(c, listed, linear)
            if len(letters) != count:
                c.refuse("layer_types", f"{len(letters)} layers listed, but num_hidden_layers is {count}")
        else:
            letters = "".join(rule(c, place) for place in range(count)) if rule else "f" * count
        if not letters or set(letters) == {"f"}:
            return {}
        return {"mixers": repeated(letters), **_windows(c, letters, window)}

    return read


def _windows(c: Config, letters: str, window: str) -> Fields:
    if "w" in letters:
        return {"window": c.count(window)}
    return {"window": c.count("attention_chunk_size")} if "c" in letters else {}


def _letters(c: Config, listed: list[Any], linear: str) -> str:
    """One letter a layer; words that are none are noted once, all of them."""
    known = {**MIXERS, "linear_attention": linear}
    bad = list(dict.fromkeys(shown(word) for word in listed if not isinstance(word, str) or word not in known))
    if bad:
        c.refuse("layer_types", f"layers of kind {', '.join(bad[:4])} are not modelled", f"kinds: {', '.join(known)}")
    return "".join(known.get(word, "f") if isinstance(word, str) else "f" for word in listed)


def everywhere(c: Config, place: int) -> str:  # noqa: ARG001
    """A window in every layer, where there is one (Mistral)."""
    return "w" if c.raw("sliding_window", None) else "f"


def above(c: Config, place: int) -> str:
    """A window in the layers above the first `max_window_layers`, where `use_sliding_window` says so (Qwen2)."""
    if not c.flag("use_sliding_window") or not c.raw("sliding_window", None):
        return "f"
    first = c.number("max_window_layers", 0.0)
    return "w" if not place < first else "f"


def every(period: str, usual: int) -> Callable[[Config, int], str]:
    """Full attention in every n-th layer, a window in the others, n given by the key `period`."""

    def letter(c: Config, place: int) -> str:
        given = c.raw(period, usual)
        if isinstance(given, str) and given:  # a pattern of letters: L a window, G full
            return "w" if given[place % len(given)].upper() == "L" else "f"
        return "f" if (place + 1) % every_nth(c, period, usual) == 0 else "w"

    return letter


def alternate(c: Config, place: int) -> str:  # noqa: ARG001
    """A window in every other layer, from the first (Gemma 2, GPT-OSS)."""
    return "f" if place % 2 else "w"


def whole(c: Config, key: str, usual: int) -> int:
    """A whole number that places layers; what is none is noted."""
    value = c.raw(key, usual)
    if value is None:
        return usual
    number = c.whole(key, value, least=0.0 if usual == 0 else -1.0)
    return int(number) if known(number) else usual


def every_nth(c: Config, key: str, usual: int) -> int:
    """A step from layer to layer: 1 or more; what is none is noted."""
    value = c.raw(key, usual)
    if value is None:
        return usual
    number = c.whole(key, value, rule="a step from one such layer to the next")
    return int(number) if known(number) else usual


def places(c: Config, key: str, count: int) -> set[int]:
    """Layers that a list names by their number, from 0; of those beyond the `count` that there are, a warning tells."""
    found = c.items(key) or []
    if any(isinstance(item, bool) or not isinstance(item, int) for item in found):
        c.refuse(key, "holds what is no number of a layer")
        return set()
    beyond = [shown(place) for place in dict.fromkeys(found) if not 0 <= place < count]
    says = f"{c.label(key)} names layers that there are not ({', '.join(beyond[:4])}; the last is {count - 1}): they change nothing"
    if beyond and says not in c.report.warnings:
        c.report.warnings.append(says)
    return set(found)


def mlps(dense: Iterable[int], count: int) -> Fields:
    """Fields that place the dense layers of a model with experts: `dense_first` where they stand at the start, else `mlps`."""
    places = {place for place in dense if 0 <= place < count}
    if places == set(range(len(places))):
        return {"dense_first": len(places)} if places else {}
    return {"mlps": repeated("".join("d" if place in places else "e" for place in range(count)))}
