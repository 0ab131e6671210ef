"""Formats of settings, one file each, found by this package. A file has

* `NAME`: the word of `--to` and `--from`; `TITLE`: what it is, one line; `VERSIONS`: those it knows, the usual one first;
* `recognises(text, name) -> bool`: whether a file of that text and name is one of these (reading formats only);
* `read(text, name, version="") -> Imported` and `settings(text, version="") -> dict[str, object]` (reading formats only): the same
  text as a scenario, and as a flat mapping of its keys, for comparisons;
* `write(scenario, version="") -> Exported` (writing formats only). Raises `Inexpressible` with every reason at once where a run of that
  format would be another run than the scenario; what is merely not said in it goes to `unsaid`, each sentence beginning with the field
  that it is about (`plan.master_dtype: …`);
* `launch(scenario, trainer, version="") -> Exported` (launchers only): the files that start what another format has exported.

Law: `read(write(s).files[0].text)` is the plan and run of `s`, but for the fields that `unsaid` names.
"""

from __future__ import annotations

from types import ModuleType

from shardmeter.core.errors import BadScenario, UnknownName, Violation
from shardmeter.interop.found import found_in


def formats() -> dict[str, ModuleType]:
    """Every format by its name."""
    return found_in(__name__, __path__, "NAME")


def format_named(name: str, *doing: str) -> ModuleType:
    """The format of that name that can do one of these (`read`, `write`, `launch`). Raises UnknownName with the nearest ones."""
    able = {key: module for key, module in formats().items() if any(hasattr(module, one) for one in doing)}
    if name not in able:
        raise UnknownName("format", name, able)
    return able[name]


def recognised(text: str, name: str) -> ModuleType:
    """The format of a file. Raises BadScenario where none, or more than one, takes it for one of its own."""
    readers = {key: module for key, module in formats().items() if hasattr(module, "recognises")}
    found = [key for key, module in readers.items() if module.recognises(text, name)]
    if len(found) == 1:
        return readers[found[0]]
    says = (
        f"it could be {' or '.join(found)}" if found else "it looks like the settings of no trainer that is known here"
    )
    way_out = f"say which with --from: {', '.join(found or readers)}"
    if "busbw" in text:
        says, way_out = "it is the output of nccl-tests", "links are calibrated with it: calibrate run.yaml --nccl FILE"
    raise BadScenario(f"{name}: no format was recognised", [Violation(field="", says=says, way_out=way_out)])


def version_of(module: ModuleType, version: str) -> str:
    """The version of a format that is asked for, the usual one where none is. Raises UnknownName."""
    if version and version not in module.VERSIONS:
        raise UnknownName(f"version of {module.NAME}", version, module.VERSIONS)
    return version or str(module.VERSIONS[0])
