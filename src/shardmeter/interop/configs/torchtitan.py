"""torchtitan: TOML before 0.3, since then a Python function that returns a configuration, and flags."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from shardmeter import __version__
from shardmeter.core.record import changed
from shardmeter.interop.configs import _torchtitan_python as python
from shardmeter.interop.configs import _torchtitan_toml as toml
from shardmeter.interop.configs._saying import Saying, harmless
from shardmeter.interop.configs._torchtitan_models import NEW, OLD
from shardmeter.interop.configs._torchtitan_plan import said_of
from shardmeter.interop.configs._torchtitan_read import imported
from shardmeter.interop.configs._torchtitan_text import module_text
from shardmeter.interop.configs.record import Exported, Imported, Setting, Written
from shardmeter.specs import Scenario

NAME = "torchtitan"
TITLE = "torchtitan: a Python configuration (0.3), TOML (0.2)"
VERSIONS = (NEW, OLD)
MODULE = "torchtitan_plan"
"""The Python file of an export, which must not be called as the package is."""


def recognises(text: str, name: str) -> bool:
    """A TOML file with sections of its own, a function that returns a Trainer.Config, or its flags."""
    if re.search(r"^\s*\[(training|parallelism|activation_checkpoint|fault_tolerance)\]", text, re.MULTILINE):
        return not name.endswith((".py", ".json"))
    if re.search(r"Trainer\.Config\b|from torchtitan\b", text) and re.search(r"^def \w+\(", text, re.MULTILINE):
        return True
    both = all(re.search(rf"(^|\s)--{word}[ =]\S", text) for word in ("module", "config"))
    return both or re.search(r"torchtitan[./]train|run_train\.sh", text) is not None


def read(text: str, name: str, version: str = "") -> Imported:
    """The settings as a scenario. Raises BadScenario for a text that is none of the three."""
    kind = _kind(text, name, version)
    if kind == "toml":
        return imported(toml.flat(text, name), version or OLD)
    found = python.function(text, name) if kind == "python" else python.flags(text, name)
    base = python.base_of(found)
    made = imported({**(base or {}), **found.settings}, version or NEW)
    if not found.base:
        return made
    shown = Setting(key="--module --config", value=found.base, means="the function that its settings begin with")
    if base is not None:
        return changed(made, understood=(shown, *made.understood))
    why = "none of torchtitan 0.3.0's functions: import its Python file, or say what it sets"
    return changed(made, ignored=(changed(shown, means=why), *made.ignored))


def settings(text: str, version: str = "") -> dict[str, object]:
    """The keys of a file with their sections."""
    kind = _kind(text, "settings", version)
    if kind == "toml":
        return toml.flat(text, "settings")
    found = python.function(text, "settings") if kind == "python" else python.flags(text, "settings")
    return {**(python.base_of(found) or {}), **found.settings}


def _kind(text: str, name: str, version: str) -> str:
    if version == OLD or (
        not version and re.search(r"^\s*\[\w+(\.\w+)*\]\s*(#.*)?$", text, re.MULTILINE) and not name.endswith(".py")
    ):
        return "toml"
    return "python" if re.search(r"^\s*(def |from |import )", text, re.MULTILINE) else "flags"


def write(scenario: Scenario, version: str = "") -> Exported:
    """The files of a scenario of one process group. Raises Inexpressible."""
    version = version or NEW
    _of_one_group(scenario, version)
    saying = said_of(scenario, scenario.plan, version)
    saying.stop()
    return written(NAME, saying, scenario, version)


def _of_one_group(scenario: Scenario, version: str) -> None:
    """Raises Inexpressible where islands train apart."""
    if scenario.plans:
        several = Saying(f"torchtitan {version}")
        says = f"{len(scenario.plans)} islands, which torchtitan alone joins to one process group"
        several.refuse(
            "fleet", says, "--to torchft runs an island as a replica group: diloco, streaming_diloco, local_sgd"
        )
        several.stop()


def written(name: str, saying: Saying, scenario: Scenario, version: str, more: str = "") -> Exported:
    """What was said as files, and the command that starts them, with `more` arguments."""
    head = f"{harmless(scenario.model.name)}, written by ShardMeter {__version__} for {name if name == NAME else 'torchtitan with ' + name} {version}"
    if version == OLD:
        values: Mapping[str, Any] = {**saying.values, "optimizer.name": "AdamW", "training.dataset": "c4"}
        file = Written(name=f"{name}.toml", text=toml.text(toml.comment((head,)), values))
        launch = f"torchrun -m torchtitan.train --job.config_file {file.name}{more}"
        where = file.name
    else:
        file = Written(name=f"{MODULE}.py", text=module_text(head, saying.values, torchft=name != NAME))
        launch = f"torchrun -m torchtitan.train --module {MODULE} --config plan{more}"
        where = f"{MODULE}.py, which has to lie where the command runs"
    notes = (
        f"{where}: set the data set, the learning rate and its schedule, logging and checkpoints; lengths and degrees are the plan's",
        "the folder of the tokenizer is downloaded first: scripts/download_hf_assets.py of torchtitan",
    )
    return Exported(
        format=name, version=version, files=(file,), launch=launch, said=saying.settings(), unsaid=tuple(saying.unsaid),
        notes=(*notes, *saying.notes),
    )  # fmt: skip
