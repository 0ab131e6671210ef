"""`--save FILE`, `-o FILE`: a scenario that was found, as a file that `predict` reads."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from shardmeter.cli.options import opened
from shardmeter.cli.output import say
from shardmeter.cli.pictures import refuse_place
from shardmeter.core.errors import BadScenario
from shardmeter.core.files import put_file

YAML, JSON = (".yaml", ".yml"), ".json"


def savable(file: str | None, option: str = "--save") -> bool:
    """Whether a file is asked for; to be called before any work. Raises BadScenario for a file that cannot be a scenario,
    ShardMeterError where none can be."""
    if file is None:
        return False
    if not file.lower().endswith((*YAML, JSON)):
        raise BadScenario(f"{option} {file!r}: a scenario is a .yaml or a .json")
    refuse_place(file)
    return True


def save_plan(found: Mapping[str, Any] | None, asked: dict[str, Any]) -> None:
    """Write the scenario of the best plan of a question where it asks for that, names of files made absolute. Raises as `save`."""
    file = asked["save"]
    if file is None:
        return
    from shardmeter.scenario.named import rooted

    document, rows = opened(asked)
    save(None if found is None else rooted(found, document.folder.absolute(), rows), file)


def save(scenario: Mapping[str, Any] | None, file: str) -> None:
    """Write a scenario and say where. Raises ShardMeterError where no file can be there, Unavailable where it takes nothing."""
    if scenario is None:
        say(f"{file}: not written, no plan was found")
        return
    from shardmeter.render import yaml_text

    is_json = file.lower().endswith(JSON)
    put_file(file, json.dumps(scenario, indent=2) + "\n" if is_json else yaml_text.text(scenario))
    say(f"saved: {file}")
