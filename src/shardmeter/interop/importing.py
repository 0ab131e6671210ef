"""A file of a trainer's settings as a scenario: what it says, what the shared options fill in, and what is missing still."""

from __future__ import annotations

from collections.abc import Mapping
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

from shardmeter.core.errors import BadScenario, UnknownName
from shardmeter.core.files import at_home, read_text
from shardmeter.core.record import record
from shardmeter.interop import logs
from shardmeter.interop.configs import format_named, formats, recognised, version_of
from shardmeter.interop.configs.record import Imported, Setting
from shardmeter.interop.logs.record import LogAccount
from shardmeter.interop.logs.scenario import imported as of_log
from shardmeter.interop.logs.scenario import known
from shardmeter.scenario import opened
from shardmeter.scenario.choices import left_open
from shardmeter.scenario.override import Overrides
from shardmeter.scenario.resolve import resolve
from shardmeter.scenario.tariffs import NO_PRICE
from shardmeter.specs import Scenario

if TYPE_CHECKING:
    from shardmeter.scenario.parts import Rows
    from shardmeter.scenario.read import Document

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
    log: LogAccount | None = None
    """What the file says of how fast the run was, where it is what the run has printed."""

    @property
    def warnings(self) -> tuple[str, ...]:
        """What a person should not overlook."""
        read = self.imported
        version = f" {read.version}" if read.version else ""
        unknown = (f"{one.key}: {read.format}{version} has no such setting; {one.means}" for one in read.unknown)
        log = self.log.warnings if self.log is not None else ()
        resolved = self.scenario.warnings if self.scenario is not None else ()
        return (*unknown, *log, *(one for one in resolved if one != NO_PRICE))

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
            "log": None if self.log is None else self.log.to_dict(),
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
    """The settings of a trainer, or the log of a run, as a scenario. `options` (model, gpus, stack, …) fill in what the file does not tell, and win over it.

    `shardmeter.import_config("train.toml", gpus="64xH100-SXM5-80GB").scenario`. A text with a line break, or words after a command, is
    the settings themselves. Raises BadScenario for what cannot be read at all and for options that are wrong, UnknownName for a format
    that is none and for a name that an option has; what the file itself lacks, or has that we refuse, is `missing`."""
    imported, name, log = _read(file, format, version)
    given = dict(imported.document)
    said = (*map(str, options.values()), *(overrides.values() if isinstance(overrides, Mapping) else overrides))

    def completed() -> tuple[dict[str, Any], Scenario | None, tuple[str, ...]]:
        document, rows = opened(given, overrides=overrides, catalog=catalog, options=options)
        return _resolved(document, rows, tuple(map(str, said)))

    plain, scenario, missing = completed()
    run = plain.get("run")
    if scenario is not None and imported.micro_batch_left and "micro_batch" not in plain.get("plan", {}):
        share = float(scenario.run.global_batch / (scenario.plan.dp * imported.accumulated))
        given["plan"] = {**given.get("plan", {}), "micro_batch": max(1, int(share))}
        plain, scenario, missing = completed()
    if scenario is not None and imported.accumulated > 1 and not (isinstance(run, dict) and "global_batch" in run):
        batch = imported.accumulated * float(scenario.plan.micro_batch * scenario.plan.dp)
        given["run"] = {**given.get("run", {}), "global_batch": round(batch)}
        plain, scenario, missing = completed()
    if log is not None and log.step_time is None and scenario is not None:
        # a rate alone, with what the options say of the run
        log = logs.read(_log_source(file), format, known=known(scenario))
    return Import(source=name, imported=imported, document=plain, scenario=scenario, missing=missing, log=log)


def _resolved(
    document: Document, rows: Rows, said: tuple[str, ...]
) -> tuple[dict[str, Any], Scenario | None, tuple[str, ...]]:
    """What the document says, and the scenario, or None and what is missing still, or refused. Raises what is wrong with options and
    overrides, whose texts are `said`."""
    plain = document.data.copy()
    try:
        return plain, resolve(document, rows, left_open(document, planning=False)), ()
    except BadScenario as error:
        if any(one.where.startswith("--") for one in error.violations):
            raise
        return plain, None, tuple(str(one) for one in error.violations) or (error.message,)
    except UnknownName as error:
        if any(error.name in text for text in said):
            raise
        return plain, None, (error.message,)


def _read(file: str | PathLike[str], format_: str | None, version: str) -> tuple[Imported, str, LogAccount | None]:
    """What a file says of a scenario, its name, and the account of it where it is a log."""
    if _is_log(file, format_):
        account = logs.read(_log_source(file), format_)
        return of_log(account), "log" if is_text(file) else str(file), account
    text_, name = source_of(file)
    module = recognised(text_, name) if format_ is None else format_named(format_, "read")
    made: Imported = module.read(text_, name, version_of(module, version) if version else "")
    return made, name, None


def _is_log(file: str | PathLike[str], format_: str | None) -> bool:
    """Whether a file is the log of a run. A trainer's name is the word for its settings and for its log: there what the file prints decides."""
    trainer = format_ is not None and hasattr(formats().get(format_), "read")
    return logs.is_log(_log_source(file), None if trainer else format_)


def _log_source(file: str | PathLike[str]) -> str | Path:
    """A text as it is, anything else as the path of a file."""
    return file if isinstance(file, str) and is_text(file) else Path(file)


def is_text(file: str | PathLike[str]) -> bool:
    """Whether it is settings themselves, not the name of a file."""
    return isinstance(file, str) and ("\n" in file or " --" in file)


def source_of(file: str | PathLike[str]) -> tuple[str, str]:
    """The text of a file of settings and its name, or a text that is given itself and what it is called. Raises BadScenario."""
    if is_text(file):
        return str(file), "settings"
    path = at_home(Path(file))
    return read_text(path, "a file of settings", LARGEST_FILE, BadScenario, SUFFIXES), str(file)


SUFFIXES = (".toml", ".yaml", ".yml", ".json", ".sh", ".txt", ".py")
