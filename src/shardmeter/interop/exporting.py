"""A scenario as the settings of a trainer: its files, those of a launcher, and how they differ from a file that is there already."""

from __future__ import annotations

from os import PathLike
from types import ModuleType
from typing import Any

from shardmeter.core.errors import BadScenario, Violation
from shardmeter.core.record import changed, record
from shardmeter.interop.configs import format_named, formats, version_of
from shardmeter.interop.configs._saying import value_text
from shardmeter.interop.configs.record import Exported
from shardmeter.interop.importing import source_of
from shardmeter.scenario.tariffs import NO_PRICE
from shardmeter.specs import Scenario


@record
class Departure:
    """One setting that an export and an original say differently; None: not said there."""

    key: str
    original: str | None
    ours: str | None
    counts: bool = True
    """Whether a figure here depends on it: what its reader understands, or does not know at all."""


@record
class Export:
    """A scenario as files of a trainer and, where asked for, of a launcher."""

    scenario: Scenario
    exported: Exported
    launcher: str = ""
    """The format that starts it; empty where none was asked for."""
    against: str = ""
    """The original that it was compared with; empty where there was none."""
    departures: tuple[Departure, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """The JSON: files with their texts, settings, what is unsaid, departures from an original."""
        made = self.exported
        return {
            "format": made.format,
            "format_version": made.version,
            "launcher": self.launcher or None,
            "expressible": True,
            "reasons": [],
            "files": [{"name": one.name, "text": one.text, "executable": one.executable} for one in made.files],
            "launch": made.launch or None,
            "settings": [{"key": one.key, "value": one.value, "means": one.means} for one in made.said],
            "unsaid": list(made.unsaid),
            "notes": list(made.notes),
            "against": self.against or None,
            "departures": [
                {"key": one.key, "original": one.original, "ours": one.ours, "counts": one.counts}
                for one in self.departures
            ],
            "assumptions": list(self.scenario.assumptions),
            "warnings": [one for one in self.scenario.warnings if one != NO_PRICE],
        }

    def __repr__(self) -> str:
        made = self.exported
        files = ", ".join(one.name for one in made.files)
        return (
            f"<Export to {made.format} {made.version}: {files}; {len(made.said)} settings, {len(made.unsaid)} unsaid>"
        )

    def __str__(self) -> str:
        from shardmeter import page

        return page(self)


def export_of(
    scenario: Scenario,
    to: str,
    *,
    version: str = "",
    trainer: str | None = None,
    against: str | PathLike[str] | None = None,
) -> Export:
    """The files of a scenario in the format `to`; of a launcher those of the `trainer` too, whose version it is if it has that one. Raises Inexpressible with every reason,
    UnknownName for what is no format, BadScenario."""
    module = format_named(to, "write", "launch")
    if hasattr(module, "write"):
        _no_trainer(to, trainer)
        made: Exported = module.write(scenario, version_of(module, version))
        found = Export(scenario=scenario, exported=made)
    else:
        inner = format_named(_trainer(to, trainer), "write")
        theirs = version if version in inner.VERSIONS else ""
        made = inner.write(scenario, version_of(inner, theirs))
        outer: Exported = module.launch(scenario, made, version_of(module, "" if theirs else version))
        found = Export(scenario=scenario, exported=_together(outer, made), launcher=to)
        module = inner
    if against is None:
        return found
    text, name = source_of(against)
    return changed(found, against=name, departures=departures(format_named(module.NAME, "read"), text, made))


def _together(launcher: Exported, trainer: Exported) -> Exported:
    """What a trainer exports, with the files of its launcher before its own."""
    return changed(
        trainer,
        files=(*launcher.files, *trainer.files),
        launch=launcher.launch,
        said=(*launcher.said, *trainer.said),
        unsaid=tuple(dict.fromkeys((*launcher.unsaid, *trainer.unsaid))),
        notes=tuple(dict.fromkeys((*launcher.notes, *trainer.notes))),
    )


def _trainer(to: str, trainer: str | None) -> str:
    """The trainer that a launcher starts. Raises BadScenario where none is named."""
    if trainer is not None:
        return trainer
    writers = [name for name, module in formats().items() if hasattr(module, "write")]
    way_out = f"say which with --trainer: {', '.join(writers)}"
    raise BadScenario(f"{to} starts a trainer", [Violation(field="", says="none is named", way_out=way_out)])


def _no_trainer(to: str, trainer: str | None) -> None:
    if trainer is None:
        return
    launchers = [name for name, module in formats().items() if hasattr(module, "launch")]
    way_out = f"leave --trainer out, or name a launcher: {', '.join(launchers)}"
    raise BadScenario(f"{to} is a trainer itself", [Violation(field="", says=f"--trainer {trainer}", way_out=way_out)])


def departures(module: ModuleType, original: str, made: Exported) -> tuple[Departure, ...]:
    """What an original file of a format says otherwise than the first file of an export, in the order of the export. Raises BadScenario."""
    file = made.files[0]
    ours, theirs = (
        {key: _text(value) for key, value in module.settings(text, version).items()}
        for text, version in ((file.text, made.version), (original, ""))
    )
    idle = _ignored(module, file.text, made.version) | _ignored(module, original, "")
    return tuple(
        Departure(key=key, original=theirs.get(key), ours=ours.get(key), counts=key not in idle)
        for key in dict.fromkeys((*ours, *theirs))
        if not _same(theirs.get(key), ours.get(key))
    )


def _ignored(module: ModuleType, text: str, version: str) -> set[str]:
    """The settings of a file on which no figure depends; none where its reader refuses the file."""
    try:
        return {one.key for one in module.read(text, "settings", version).ignored}
    except BadScenario:
        return set()


def _text(value: object) -> str:
    """A value of a file of settings as an export writes it; floats with all their digits."""
    return repr(value) if isinstance(value, float) else value_text(value)


def _same(one: str | None, other: str | None) -> bool:
    """Whether two texts say the same value: the same text, or the same number."""
    if one is None or other is None:
        return one is other
    try:
        return float(one) == float(other)
    except ValueError:
        return one.strip("\"'").lower() == other.strip("\"'").lower()


def export(
    scenario: Any = None,
    to: str = "",
    *,
    version: str = "",
    trainer: str | None = None,
    against: str | PathLike[str] | None = None,
    overrides: Any = (),
    catalog: Any = None,
    **options: Any,
) -> Export:
    """A scenario as the settings of a trainer, or of a launcher that starts a `trainer`; the rest is as in `predict`.

    `shardmeter.export("run.yaml", "torchtitan").exported.files[0].text`. `against` is a file of the same trainer: what is said differently
    there is in `departures`. Raises Inexpressible (a BadScenario) with every reason where that trainer cannot run the plan, UnknownName."""
    from shardmeter.study.api import resolved

    return export_of(
        resolved(scenario, overrides, catalog, options), to, version=version, trainer=trainer, against=against
    )
