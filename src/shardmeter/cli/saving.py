"""`--save FILE`: a scenario that was found, as a file that `predict` reads."""

from __future__ import annotations

import io
import json
from collections.abc import Mapping
from typing import Any

from shardmeter.cli.output import say
from shardmeter.cli.pictures import put, refuse_place
from shardmeter.core.errors import BadScenario

YAML, JSON = (".yaml", ".yml"), ".json"


def savable(file: str | None) -> bool:
    """Whether a file is asked for; to be called before any work. Raises BadScenario for a file that cannot be a scenario,
    ShardMeterError where none can be."""
    if file is None:
        return False
    if not file.lower().endswith((*YAML, JSON)):
        raise BadScenario(f"--save {file!r}: a scenario is a .yaml or a .json")
    refuse_place(file)
    return True


def save(scenario: Mapping[str, Any] | None, file: str) -> None:
    """Write a scenario and say where. Raises ShardMeterError where no file can be there, UnwritableError where it takes nothing."""
    if scenario is None:
        say(f"{file}: not written, no plan was found")
        return
    put(file, (json.dumps(scenario, indent=2) + "\n" if file.lower().endswith(JSON) else _yaml(scenario)).encode())
    say(f"saved: {file}")


def _yaml(scenario: Mapping[str, Any]) -> str:
    import ruamel.yaml

    writer, text = ruamel.yaml.YAML(typ="safe"), io.StringIO()
    writer.default_flow_style, writer.sort_base_mapping_type_on_output = None, False  # type: ignore[assignment]
    writer.width, writer.allow_unicode = 120, True
    writer.dump(json.loads(json.dumps(scenario)), text)
    return text.getvalue()
