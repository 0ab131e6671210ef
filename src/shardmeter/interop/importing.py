"""A file of a trainer's settings as a scenario: what it says, what the shared options fill in, and what is missing still."""

from __future__ import annotations

from collections.abc import Mapping
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

from shardmeter.core.errors import BadScenario, UnknownName
from shardmeter.core.files import at_home, read_text
from shardmeter.core.record import record
from shardmeter.interop.configs import format_named, recognised, version_of
from shardmeter.interop.configs.record import Imported, Setting
from shardmeter.scenario import opened
from shardmeter.scenario.choices import left_open
from shardmeter.scenario.override import Overrides
from shardmeter.scenario.resolve import resolve
from shardmeter.specs import Scenario

if TYPE_CHECKING:
    from shardmeter.scenario.parts import Rows

LARGEST_FILE = 1_000_000
"""Bytes of the largest file that is read as settings."""


@record
class Import:
    """A file of settings, read; and the scenario that it is, once the options have filled in what it does not tell."""

    source: str
    imported: Imported
    document: Mapping[str, Any]
    """The scenario as YAML would say it, options and overrides applied."""
    scenario: Scenario | None
    """None where something is missing still, or wrong."""
    missing: tuple[str, ...] = ()
    """What, and the way out, one sentence each."""

    @property
    def warnings(self) -> tuple[str, ...]:
        """What a person should not overlook."""
        read = self.imported
        version = f" {read.version}" if read.version else ""
        unknown = (f"{one.key}: {read.format}{version} has no such setting; {one.means}" for one in read.unknown)
        return (*unknown, *(self.scenario.warnings if self.scenario is not None else ()))

    def to_dict(self) -> dict[str, Any]:
        """The JSON: the settings by what became of them, the scenario, what is missing."""
        read = self.imported
        return {
            "source": self.source,
            "format": read.format,
            "format_version": read.version,
            "complete": self.scenario is not None,
            "scenario": dict(self.document),
            "missing": list(self.missing),
            "understood": [_said(one) for one in read.understood],
            "assumed": list(read.assumed),
            "ignored": [_said(one) for one in read.ignored],
            "unknown": [_said(one) for one in read.unknown],
            "assumptions": [*read.assumed, *(self.scenario.assumptions if self.scenario is not None else ())],
            "warnings": list(self.warnings),
        }

    def __repr__(self) -> str:
        read = self.imported
        counts = f"{len(read.understood)} understood, {len(read.ignored)} ignored, {len(read.unknown)} unknown"
        return f"<Import of {self.source}: {read.format}, {counts}, {len(self.missing)} missing>"

    def __str__(self) -> str:
        from shardmeter import page

        return page(self)


def _said(setting: Setting) -> dict[str, str]:
    return {"key": setting.key, "value": setting.value, "means": setting.means}


def import_config(
    file: str | PathLike[str],
    format: str | None = None,  # noqa: A002  (the word of the command's --from, which is none of Python's names)
    *,
    version: str = "",
    overrides: Overrides = (),
    catalog: Rows | str | PathLike[str] | None = None,
    **options: Any,
) -> Import:
    """The settings of a trainer as a scenario. `options` (model, gpus, stack, …) fill in what the file does not tell, and win over it.

    `shardmeter.import_config("train.toml", gpus="64xH100-SXM5-80GB").scenario`. A text with a line break, or words after a command, is
    the settings themselves. Raises BadScenario for what cannot be read at all, UnknownName for a format that is none."""
    text, name = source_of(file)
    module = recognised(text, name) if format is None else format_named(format, "read")
    imported: Imported = module.read(text, name, version_of(module, version) if version else "")
    return completed(name, imported, overrides=overrides, catalog=catalog, options=options)


def completed(
    source: str, imported: Imported, *, overrides: Overrides, catalog: Rows | str | PathLike[str] | None, options: Mapping[str, Any]
) -> Import:
    """What was read with what the options fill in, as a scenario; or what it lacks for one."""
    document, rows = opened(dict(imported.document), overrides=overrides, catalog=catalog, options=dict(options))
    plain = document.data.copy()
    missing: tuple[str, ...] = ()
    try:
        scenario = resolve(document, rows, left_open(document, planning=False))
    except BadScenario as error:
        scenario, missing = None, tuple(str(one) for one in error.violations) or (error.message,)
    except UnknownName as error:
        scenario, missing = None, (error.message,)
    return Import(source=source, imported=imported, document=plain, scenario=scenario, missing=missing)


def source_of(file: str | PathLike[str]) -> tuple[str, str]:
    """The text of a file of settings and its name, or a text that is given itself and what it is called. Raises BadScenario."""
    if isinstance(file, str) and ("\n" in file or " --" in file):
        return file, "settings"
    path = at_home(Path(file))
    return read_text(path, "a file of settings", LARGEST_FILE, BadScenario, SUFFIXES), str(file)


SUFFIXES = (".toml", ".yaml", ".yml", ".json", ".sh", ".txt", ".py")
