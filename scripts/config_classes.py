"""Writes `data/config_classes.json`: what the configuration classes of transformers call their keys, and what they take for a key
left out. Needs transformers and diffusers; keys that change no size (`hugging_face.keys`) are left out."""

from __future__ import annotations

import dataclasses
import datetime as dt
import json
from pathlib import Path
from typing import Any

import transformers
from transformers.models.auto.configuration_auto import CONFIG_MAPPING

from shardmeter.scenario.hugging_face import keys
from shardmeter.scenario.hugging_face.types import library_types

TARGET = Path(__file__).parents[1] / "src/shardmeter/data/config_classes.json"
PLAIN = (int, float, str, bool, type(None))


def class_row(kind: str) -> dict[str, Any] | None:
    """Defaults, aliases and nested classes of one model type; None where the library has none."""
    try:
        found = CONFIG_MAPPING[kind]
    except KeyError:
        return None
    defaults: dict[str, Any] = {}
    for field in dataclasses.fields(found):
        value = field.default if field.default is not dataclasses.MISSING else None
        if field.default_factory is not dataclasses.MISSING:
            value = field.default_factory()
        value = list(value) if isinstance(value, tuple) else value
        plain = isinstance(value, PLAIN) or (isinstance(value, list) and len(value) < 65)
        if plain and keys.group(field.name) in ("", *keys.KEPT):
            defaults[field.name] = value
    aliases = {
        usual: own
        for usual, own in getattr(found, "attribute_map", {}).items()
        if keys.group(usual) in ("", *keys.KEPT)
    }
    inside = {
        key: nested.model_type for key, nested in getattr(found, "sub_configs", {}).items() if getattr(nested, "model_type", "")
    }  # fmt: skip
    row = {"defaults": defaults, "aliases": aliases, "inside": inside}
    return {name: value for name, value in row.items() if value}


def main() -> None:
    """Write the table."""
    wanted = library_types()
    types, waiting = {}, list(wanted)
    while waiting:
        kind = waiting.pop()
        row = None if kind in types else class_row(kind)
        if row is not None:
            types[kind] = row
            waiting += row.get("inside", {}).values()
    table = {
        "source": f"configuration classes of transformers {transformers.__version__}",
        "retrieved": str(dt.datetime.now(dt.UTC).date()),
        "others": sorted(set(CONFIG_MAPPING) - set(types)),
    }  # fmt: skip
    lines = ",\n".join(
        f"  {json.dumps(kind)}: {json.dumps(types[kind], separators=(',', ':'))}" for kind in sorted(types)
    )
    head = json.dumps(table, separators=(",", ":"))[:-1]
    TARGET.write_text(f'{head},\n"types": {{\n{lines}\n}}}}\n', encoding="utf-8")
    print(f"{len(types)} classes, {TARGET.stat().st_size} bytes")


if __name__ == "__main__":
    main()
