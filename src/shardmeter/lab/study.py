"""A study file to a `Study`: YAML, JSON or TOML, every violation at once, words of synchronisation checked as scenarios check them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from shardmeter.core.errors import BadQuantity, BadScenario, ShardMeterError, UnknownName, Violation, nearest, shown
from shardmeter.core.quantity import quantity
from shardmeter.core.record import changed
from shardmeter.lab import scenarios
from shardmeter.lab.form import WORKER, ExperimentForm, FaultForm, LineForm, LinkForm, ModelForm, StudyForm
from shardmeter.lab.records import Experiment, Fault, Line, Shape, Site, Study
from shardmeter.scenario.read import Document, read_file
from shardmeter.scenario.read import read as read_document
from shardmeter.scenario.schema import validate
from shardmeter.scenario.values import meant
from shardmeter.specs.plan import Sync
from shardmeter.specs.wan import PACKETS

BUNDLED = Path(__file__).parent / "studies"
"""Studies that ship with the package."""
LEAST = "has at least `name:` and `experiments:`"
SMALLEST_PACKET, LARGEST_PACKET = PACKETS
NOMINAL, NOMINAL_STACK = "H100-SXM5-80GB", "titan-eager"
"""Rows with which a scenario is read to check its words, before any is calibrated."""


def bundled() -> tuple[str, ...]:
    """Words for the studies that ship."""
    return tuple(sorted(path.stem for path in BUNDLED.glob("*.yaml")))


def read(source: object) -> Study:
    """The study of a file, a text, a mapping, or of the word of one that ships. Raises BadScenario with all that is wrong."""
    return study_of(opened(source))


def opened(source: object) -> Document:
    """The document of a study. Raises BadScenario for what cannot be read."""
    if isinstance(source, str) and source in bundled():
        source = BUNDLED / f"{source}.yaml"
    if isinstance(source, Path) or (isinstance(source, str) and "\n" not in source and ": " not in source):
        path = Path(source)
        if isinstance(source, str) and not path.exists() and not path.suffix:
            close = meant(nearest(source, bundled()))
            raise BadScenario(
                f"{shown(source)} is no file, and no study that ships: {', '.join(bundled())}"
                + (f"; {close}" if close else "")
            )
        return read_file(path, "a study", LEAST)
    return read_document(source, what="study")


def study_of(document: Document) -> Study:
    """The study that a document describes. Raises BadScenario with every violation."""
    form, bad = validate(StudyForm, document)
    if form is None:
        raise BadScenario(_title(document), bad)
    reading = _Reading(document)
    models = {name: reading.model(one, name, ("models", name)) for name, one in (form.models or {}).items()}
    lines = {name: reading.line(one, ("lines", name)) for name, one in (form.lines or {}).items()}
    made: list[Experiment] = []
    for at, one in enumerate(form.experiments or ()):
        experiment = reading.experiment(one, at, models, lines)
        if experiment is not None:
            made.append(reading.settled(experiment, at))
    if not form.experiments:
        reading.refuse(
            ("experiments",), "no experiment", "a list of {name: …, method: …, islands: 2, line: …, model: …}"
        )
    if form.name is None:
        reading.refuse(("name",), "no name", "as in name: mine", "results go to lab-NAME")
    reading.same_names([one.name for one in form.experiments or ()])
    text = reading.text(form.text)
    if reading.bad:
        raise BadScenario(_title(document), reading.bad)
    usual = Study(name="", experiments=())
    return Study(
        name=str(form.name), experiments=tuple(made), seed=int(form.seed or 0), text=text,
        alone_seconds=form.alone_seconds or usual.alone_seconds,
    )  # fmt: skip


def _title(document: Document) -> str:
    return f"{document.name}: the study cannot be run"


class _Reading:
    """A document under examination: what is wrong with it gathers in `bad`."""

    def __init__(self, document: Document) -> None:
        self.document, self.bad = document, list[Violation]()

    def refuse(self, path: tuple[str | int, ...], says: str, way_out: str = "", rule: str = "") -> None:
        """Note a violation."""
        field = ".".join(map(str, path))
        self.bad.append(Violation(field=field, says=says, way_out=way_out, rule=rule, where=self.document.where(path)))

    def needed(self, form: Any, names: Iterable[str], path: tuple[str | int, ...]) -> bool:
        """Whether all of some fields are said; those that are not are noted."""
        missing = [name for name in names if getattr(form, name) is None]
        for name in missing:
            self.refuse((*path, name), "is not said", f"say {name}: …")
        return not missing

    def same_names(self, names: list[str | None]) -> None:
        """Note experiments of one name: folders that would be one."""
        first: dict[str, int] = {}
        for at, name in enumerate(names):
            if name is None:
                continue
            if name.lower() in first:
                says = f"{shown(name)} is the name of experiments.{first[name.lower()]} too"
                self.refuse(("experiments", at, "name"), says, f"as in {name}-{at + 1}", "each has a folder of its own")
            first.setdefault(name.lower(), at)

    def text(self, name: str | None) -> str:
        """The file that is trained on, whole; "" for what ships."""
        if name is None:
            return ""
        path = self.document.folder / name
        if not path.is_file():
            self.refuse(("text",), f"{shown(name)} is no file", "leave it out to train on Python's own documentation")
        return str(path.absolute())

    def model(self, form: ModelForm, name: str, path: tuple[str | int, ...]) -> Shape | None:
        """A model, or None after noting what it lacks."""
        if not self.needed(form, ("layers", "hidden"), path):
            return None
        usual = Shape(name=name, layers=1, hidden=1)
        heads = usual.heads if form.heads is None else int(form.heads)
        made = Shape(
            name=name, layers=int(form.layers or 1), hidden=int(form.hidden or 1), heads=heads,
            seq_len=usual.seq_len if form.seq_len is None else int(form.seq_len), kind=form.kind or usual.kind,
        )  # fmt: skip
        if made.kind == "decoder" and made.hidden % made.heads:
            says = f"hidden = {made.hidden} is no multiple of heads = {made.heads}"
            self.refuse(
                (*path, "heads"), says, f"heads: {next(n for n in range(made.heads, 0, -1) if made.hidden % n == 0)}"
            )
        return made

    def line(self, form: LineForm, path: tuple[str | int, ...], base: Line | None = None) -> Line | None:
        """A line, its silent numbers those of `base`, or None after noting what it lacks."""
        if base is None and not self.needed(form, ("bandwidth", "rtt"), path):
            return None
        said = {name: getattr(form, name) for name in LineForm.model_fields if getattr(form, name) is not None}
        made = changed(base, **said) if base is not None else Line(**said)
        if made.mtu < SMALLEST_PACKET or made.mtu > LARGEST_PACKET:
            self.refuse(
                (*path, "mtu"),
                f"{made.mtu:g} B is no size of a packet",
                f"{SMALLEST_PACKET:g} B to {LARGEST_PACKET:g} B",
            )
        elif made.queue < made.mtu:
            says = f"a queue of {made.queue:g} B holds no packet of {made.mtu:g} B"
            self.refuse((*path, "queue"), says, f"queue: {2 * made.mtu:g} B, or mtu: 1500 B")
        return made

    def found(self, name: str, known: Mapping[str, Any], kind: str, path: tuple[str | int, ...]) -> Any:
        """What a name of the study stands for; None after noting that it stands for nothing."""
        if name not in known:
            self.refuse(path, f"unknown {kind} {shown(name)}", meant(nearest(name, known)) or f"say it under {kind}s:")
        return known.get(name)

    def experiment(
        self, form: ExperimentForm, at: int, models: Mapping[str, Shape | None], lines: Mapping[str, Line | None]
    ) -> Experiment | None:
        """An experiment as it stands, or None after noting what is wrong."""
        path = ("experiments", at)
        if not self.needed(form, ("name", "method", "islands", "line", "model"), path):
            return None
        self._method(str(form.method), path)
        sites = self._sites(form, path)
        line = (
            self.found(form.line, lines, "line", (*path, "line"))
            if isinstance(form.line, str)
            else self.line(form.line or LineForm(), (*path, "line"))
        )
        model = (
            self.found(form.model, models, "model", (*path, "model"))
            if isinstance(form.model, str)
            else self.model(form.model or ModelForm(), "inline", (*path, "model"))
        )
        names = [site.name for site in sites]
        pairs = [
            self._link(one, (*path, "lines", place), names, lines, line) for place, one in enumerate(form.lines or ())
        ]
        fault = None if form.fault is None else self._fault(form.fault, (*path, "fault"), names, form)
        if not sites or line is None or model is None or None in pairs or str(form.method) not in scenarios.WAYS:
            return None
        made = Experiment(
            name=str(form.name), method=str(form.method), sites=sites, line=line, model=model, fault=fault,
            lines=tuple(pair for pair in pairs if pair is not None), settings=self._settings(form, path),
        )  # fmt: skip
        numbers: dict[str, Any] = {name: getattr(form, name) for name in ("batch", "micro_batches", "rounds")}
        numbers = {name: int(value) for name, value in numbers.items() if value is not None}
        if form.learning_rate is not None:
            numbers["learning_rate"] = form.learning_rate
        made = changed(made, **numbers)
        self._shape(made, path)
        return made

    def _method(self, method: str, path: tuple[str | int, ...]) -> None:
        try:
            scenarios.way(method)
        except UnknownName as error:
            self.refuse(
                (*path, "method"),
                f"unknown method {shown(method)}",
                meant(error.nearest),
                f"one of {', '.join(scenarios.WAYS)}",
            )

    def _sites(self, form: ExperimentForm, path: tuple[str | int, ...]) -> tuple[Site, ...]:
        usual = int(form.workers or 1)
        made = []
        for at, one in enumerate(form.islands or ()):
            if one.name is None:
                self.refuse((*path, "islands", at, "name"), "is not said", "as in {name: a}")
            workers = usual if one.workers is None else int(one.workers)
            made.append(
                Site(name=one.name or "", workers=workers, pace=one.pace if one.pace is not None else form.pace)
            )
        names = [site.name for site in made]
        for name in dict.fromkeys(name for name in names if name and names.count(name) > 1):
            self.refuse(
                (*path, "islands"), f"{shown(name)} is the name of {names.count(name)} islands", "a name for each"
            )
        if len(made) < 2:
            self.refuse((*path, "islands"), f"{len(made)} island: nothing crosses", "2 or more")
        if len({site.workers for site in made}) > 1:
            counts = ", ".join(f"{site.name} {site.workers}" for site in made)
            self.refuse(
                (*path, "islands"), f"islands of unlike numbers of workers ({counts})", "the same number for each"
            )
        return tuple(made)

    def _link(
        self,
        form: LinkForm,
        path: tuple[str | int, ...],
        names: list[str],
        lines: Mapping[str, Line | None],
        usual: Line | None,
    ) -> tuple[tuple[str, str], Line] | None:
        if not self.needed(form, ("between",), path) or form.between is None:
            return None
        self._known(form.between, (*path, "between"), names)
        base = usual if form.line is None else self.found(form.line, lines, "line", (*path, "line"))
        line = None if base is None else self.line(form, path, base)
        return None if line is None else (form.between, line)

    def _known(self, islands: Iterable[str], path: tuple[str | int, ...], names: list[str]) -> None:
        for name in islands:
            if name not in names:
                self.refuse(path, f"unknown island {shown(name)}", meant(nearest(name, names)))

    def _fault(
        self, form: FaultForm, path: tuple[str | int, ...], names: list[str], asked: ExperimentForm
    ) -> Fault | None:
        if not self.needed(form, ("kill", "after_round"), path):
            return None
        if (form.island is None) == (form.between is None):
            self.refuse(
                path, "one of island and between belongs here", "as in {kill: worker, island: b, after_round: 1}"
            )
            return None
        among = form.between or (str(form.island),)
        self._known(among, path, names)
        if form.kill == WORKER and form.between is not None:
            self.refuse((*path, "between"), "a worker is of one island", f"island: {form.between[0]}")
        if len(set(among)) < len(among):
            self.refuse(
                (*path, "between"), f"no line joins {among[0]} with itself", "two islands, or island: for all its lines"
            )
        rounds = (
            asked.rounds
            or Experiment(
                name="", method="", sites=(), line=scenarios.UNSHAPED, model=Shape(name="", layers=1, hidden=1)
            ).rounds
        )
        whole = rounds * (_steps(asked) if scenarios.WAYS.get(str(asked.method), scenarios.Way(sync="")).by_step else 1)
        if form.after_round is not None and form.after_round >= whole:
            self.refuse(
                (*path, "after_round"),
                f"after {form.after_round:g} of {whole:g} rounds nothing is left to break",
                f"{whole - 1:g} or less",
            )
        return Fault(kind=str(form.kill), between=tuple(among), after_round=int(form.after_round or 1))

    def _settings(self, form: ExperimentForm, path: tuple[str | int, ...]) -> tuple[tuple[str, Any], ...]:
        own = scenarios.WAYS[str(form.method)].own
        if form.sync and not scenarios.WAYS[str(form.method)].sync:
            self.refuse(
                (*path, "sync"), f"{form.method} reads no words of plan.sync", f"settings: {{{', '.join(own)}}}"
            )
        made = dict(form.sync or {})
        made.pop("method", None)
        if "method" in (form.sync or {}):
            self.refuse((*path, "sync", "method"), "the method is said once, of the experiment", "leave it out")
        for word in set(made) & set(own):
            self.refuse((*path, "sync", word), "is a word of the lab's own", f"settings: {{{word}: …}}")
        for word, value in (form.settings or {}).items():
            place = (*path, "settings", word)
            if word not in own:
                self.refuse(
                    place, "unknown key", meant(nearest(word, own)), f"{form.method} reads {', '.join(own) or 'none'}"
                )
                continue
            try:
                made[word] = WORDS[word](value)
            except (BadQuantity, BadScenario) as error:
                self.refuse(place, error.message)
        return tuple(made.items())

    def _shape(self, made: Experiment, path: tuple[str | int, ...]) -> None:
        """Rules between a method, its model and its islands."""
        several, own = any(site.workers > 1 for site in made.sites), scenarios.way(made.method)
        if several and not own.several:
            joined = ", ".join(name for name, one in scenarios.WAYS.items() if one.several)
            self.refuse(
                (*path, "workers"), f"{made.method} has one worker an island", "workers: 1", f"several with {joined}"
            )
        elif several and "inner" in own.own and made.said.get("inner", "none") == "none":
            says = "several workers of an island share one replica, and nothing says how"
            self.refuse((*path, "settings", "inner"), says, "inner: ddp, or inner: fsdp2")
        if made.method == "pipeline" and made.model.layers < len(made.sites):
            says = f"{len(made.sites)} islands, but {made.model.layers} layers: a stage is whole layers"
            self.refuse((*path, "model"), says, f"{len(made.sites)} layers or more")
        if (made.method == "soma") != (made.model.kind == "lstm"):
            wanted = "lstm" if made.method == "soma" else "decoder"
            self.refuse(
                (*path, "model"),
                f"{made.method} trains a model of kind {wanted}, not {made.model.kind}",
                f"kind: {wanted}",
            )
        if made.method == "all_reduce" and not made.said.get("sizes"):
            self.refuse((*path, "settings", "sizes"), "is not said", "as in sizes: [4 B, 1 MB, 16 MB]")
        if made.fault is not None and made.method == "all_reduce":
            self.refuse((*path, "fault"), "a probe trains nothing that could go on", "another method")

    def settled(self, made: Experiment, at: int) -> Experiment:
        """With every word of its synchronisation as the scenario reads it, after noting what it refuses."""
        if not scenarios.way(made.method).sync:
            return made
        try:
            said = synchronised(made)
        except ShardMeterError as error:
            self._retold(error, made, at)
            return made
        self._done(made, said, at)
        fields = _fields(said.method)
        settled = [(name, getattr(said, name)) for name in fields if name not in UNSAID or getattr(said, name)]
        own = [(word, value) for word, value in made.settings if word in scenarios.way(made.method).own]
        return changed(made, settings=(*settled, *own))

    def _done(self, made: Experiment, said: Sync, at: int) -> None:
        """Note what a scenario may say of the method and the lab does not do: it would be predicted, and something else be run."""
        own = scenarios.way(made.method).own
        known = {*scenarios.DONE, *own}
        usual = synchronised(
            changed(made, settings=tuple((word, value) for word, value in made.settings if word in known))
        )
        for word in _fields(said.method):
            asked = getattr(said, word)
            if word not in scenarios.DONE and asked != getattr(usual, word):
                says, rule = (
                    f"the lab has one way to do it: {getattr(usual, word)}",
                    f"it does {', '.join(scenarios.DONE)} as they are said",
                )
                self.refuse(("experiments", at, "sync", word), says, "leave it out", rule)
        formats = scenarios.way(made.method).bits
        if formats and float(said.bits) not in formats:
            able = ", ".join(f"{one:g}" for one in formats)
            self.refuse(
                ("experiments", at, "sync", "bits"),
                f"{made.method} sends no values of {float(said.bits):g} bits",
                f"one of {able}",
            )

    def _retold(self, error: ShardMeterError, made: Experiment, at: int) -> None:
        """A scenario's complaints, at the places of the experiment that it was made of; not those of names that are said already."""
        told = len({site.name for site in made.sites}) < len(made.sites)
        found = error.violations or (Violation(field="", says=error.message),)
        for one in found:
            if told and one.field.startswith("fleet.islands"):
                continue
            steps: tuple[str | int, ...] = tuple(one.field.split(".")) if one.field else ()
            inside = steps[1:] if steps[:2] == ("plan", "sync") else ("model",) if steps[:1] == ("model",) else ()
            rule = one.rule or ("" if inside else f"of the scenario's {one.field}" if one.field else "")
            self.refuse(("experiments", at, *inside), one.says, one.way_out, rule)


def synchronised(made: Experiment) -> Sync:
    """The synchronisation of an experiment as its scenario reads it. Raises ShardMeterError for one that it refuses."""
    from shardmeter.scenario import load

    return load(scenarios.scenario(made, [NOMINAL] * len(made.sites), NOMINAL_STACK)).plan.sync


def _fields(method: str) -> tuple[str, ...]:
    from shardmeter.sync import method as engine_method

    return tuple(engine_method(method).FIELDS)


def _steps(form: ExperimentForm) -> float:
    try:
        return float(_count((form.settings or {}).get("steps", scenarios.STEPS)))
    except (BadQuantity, BadScenario):  # told where settings are read
        return float(scenarios.STEPS)


def _count(value: Any) -> int:
    number = quantity(value, "count")
    if number < 1.0 or number != round(number):
        raise BadScenario(f"{shown(value, 40)} is no whole number of 1 or more")
    return int(number)


def _sizes(value: Any) -> tuple[int, ...]:
    if not isinstance(value, list) or not value:
        raise BadScenario(f"{shown(value, 40)} is no list of sizes, as in [4 B, 1 MB]")
    sizes = tuple(int(quantity(one, "size")) for one in value)
    if any(size % WIDTH for size in sizes):
        raise BadScenario(
            f"{shown(next(size for size in sizes if size % WIDTH))} bytes are no whole values of {WIDTH} bytes"
        )
    return tuple(dict.fromkeys(sizes))


def _seconds(value: Any) -> float:
    return quantity(value, "time")


def _rate(value: Any) -> float:
    number = quantity(value, "count")
    if number > MOST_RATE:
        raise BadScenario(f"{number:g} is too large; at most {MOST_RATE:g}")
    return number


def _word(*words: str) -> Callable[[Any], str]:
    def check(value: Any) -> str:
        if value not in words:
            raise BadScenario(f"{shown(value, 40)} is none of {', '.join(words)}")
        return str(value)

    return check


def _switch(value: Any) -> bool:
    if not isinstance(value, bool):
        raise BadScenario(f"wanted true or false, got {shown(value, 40)}")
    return value


WIDTH = 4
"""Bytes of a value of a probe."""
MOST_RATE = 10.0
UNSAID = ("experts", "rank")
"""Words of `plan.sync` whose 0 means that nobody says them."""
WORDS: Mapping[str, Callable[[Any], Any]] = {
    "sizes": _sizes, "pause": _seconds, "steps": _count, "reference": _switch, "schedule": _word("gpipe", "1f1b"),
    "inner": _word("none", "ddp", "fsdp2"), "bucket": lambda value: quantity(value, "size"), "outer_rate": _rate, "outer_momentum": _rate, "pull": _rate,
    "probe": _rate, "samples": _count, "top_k": _count,
}  # fmt: skip
"""How the lab's own words are read."""
