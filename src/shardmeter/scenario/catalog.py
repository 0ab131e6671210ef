"""The catalog: rows of accelerators, fabrics, instances, models and stacks, of regions and what joins them, found by name.

Shipped rows lie in `shardmeter.data`; a directory of the user's (`--catalog DIR`) with files of the same names and columns
adds rows and replaces shipped ones of the same name. Tables are read when first asked for, so a prediction pays only
for the rows it names. Adding a GPU is one row; adding a model is one row, or one file in `models/`.
"""

from __future__ import annotations

import difflib
import functools
import os
import pkgutil
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from shardmeter import families
from shardmeter.core.errors import (
    BadData,
    BadQuantity,
    BadScenario,
    UnknownName,
    Violation,
    kind_of,
    nearest,
    printable,
)
from shardmeter.core.files import file_name, read_text
from shardmeter.core.quantity import price
from shardmeter.scenario.bounds import model_faults
from shardmeter.scenario.rows import Row, cell, native_row, read_fields, read_rows
from shardmeter.scenario.tables import DTYPES, KINDS, LAYOUTS, Citation, singular
from shardmeter.specs import (
    Accelerator,
    CriticalBatch,
    Egress,
    Fabric,
    Failures,
    Grid,
    Instance,
    Line,
    LossLaw,
    Model,
    Pair,
    Region,
    Stack,
    Storage,
)

DEFAULT_MATMUL_SHARE = 0.80
"""Share of the peak that matrix products sustain where no micro-benchmark is known (H100's, marked in the row)."""
_SHARE_OF = {"fp32": "bf16", "tf32": "bf16", "fp16": "bf16", "bf16": "fp16", "fp8": "bf16", "fp4": "fp8"}
"""Where the matmul share of a dtype comes from if its own column is blank."""
_OTHER_ARCH = "default"
_FILES = frozenset(f"{kind}.csv" for kind in LAYOUTS)
LARGEST_FILE = 64_000_000
"""Bytes of the largest catalog file."""


class _Table:
    """The rows of one kind, by name; a name or alias in any case finds its row."""

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self.rows: dict[str, Row] = {}
        self.index: dict[str, str] = {}
        self.records: dict[str, Any] = {}
        self._spelled: dict[str, str] = {}
        """Names by their lower-case spelling."""
        self._texts: dict[str, list[str]] = {}
        """What finds a row: its name and aliases, lower case."""

    def copy(self) -> _Table:
        other = _Table(self.kind)
        other.rows, other.index, other.records = dict(self.rows), dict(self.index), dict(self.records)
        other._spelled, other._texts = dict(self._spelled), dict(self._texts)
        return other

    def put(self, row: Row) -> None:
        """Add a row, or replace the one of that name; its name and aliases win over older ones."""
        name = printable(" ".join(row.values[column] for column in LAYOUTS[self.kind].key))
        old = self._spelled.get(name.lower())
        if old is not None:
            for text in self._texts.pop(old):
                if self.index.get(text) == old:
                    del self.index[text]
            self.records.pop(old, None)
            if old != name:
                self.rows = {name if known == old else known: at for known, at in self.rows.items()}
        self.rows[name] = row
        self._spelled[name.lower()] = name
        texts = [text.lower() for text in (*row.aliases(), name)]
        self._texts[name] = texts
        for text in texts:
            self.index[text] = name


class Catalog:
    """All rows that can be named: the shipped ones, and those of the given directories on top, later ones winning."""

    def __init__(self, directories: Sequence[Path] = ()) -> None:
        self._own: dict[str, list[Row]] = {}
        self._tables: dict[str, _Table] = {}
        bad: list[Violation] = []
        for directory in directories:
            bad += self._collect(directory)
        if bad:
            raise BadData("the catalog cannot be read", bad)
        bad = [violation for kind in self._own for violation in self._check(kind)]
        if bad:
            raise BadData("the catalog cannot be read", bad)

    def accelerator(self, name: str) -> Accelerator:
        """The accelerator of that name or alias, in any case. Raises UnknownName."""
        return self._find("accelerators", name)  # type: ignore[no-any-return]

    def fabric(self, name: str) -> Fabric:
        """The fabric of that name or alias, in any case. Raises UnknownName."""
        return self._find("fabrics", name)  # type: ignore[no-any-return]

    def instance(self, name: str) -> Instance:
        """The cloud instance of that name or alias, in any case. Raises UnknownName."""
        return self._find("instances", name)  # type: ignore[no-any-return]

    def model(self, name: str) -> Model:
        """The model of that name or alias, in any case. Raises UnknownName."""
        return self._find("models", name)  # type: ignore[no-any-return]

    def stack(self, name: str) -> Stack:
        """The software stack of that name or alias, in any case. Raises UnknownName."""
        return self._find("stacks", name)  # type: ignore[no-any-return]

    def region(self, name: str) -> Region:
        """The cloud region of that name (provider:region) or alias, in any case. Raises UnknownName."""
        return self._find("regions", name)  # type: ignore[no-any-return]

    def link(self, name: str) -> Line:
        """The kind of line of that name or alias, in any case. Raises UnknownName."""
        return self._find("links", name)  # type: ignore[no-any-return]

    def pair(self, name: str) -> Pair:
        """What was measured between two regions (region/region, in the order of the row). Raises UnknownName."""
        return self._find("pairs", name)  # type: ignore[no-any-return]

    def egress(self, name: str) -> Egress:
        """A price of traffic by provider/continent/reach. Raises UnknownName."""
        return self._find("egress", name)  # type: ignore[no-any-return]

    def grid(self, name: str) -> Grid:
        """The electricity of a region (provider:region), or of a provider's halls. Raises UnknownName."""
        return self._find("grids", name)  # type: ignore[no-any-return]

    def storage(self, name: str) -> Storage:
        """What a provider charges for bytes kept. Raises UnknownName."""
        return self._find("storage", name)  # type: ignore[no-any-return]

    def law(self, name: str) -> LossLaw:
        """The law of loss of that name or alias, in any case. Raises UnknownName."""
        return self._find("laws", name)  # type: ignore[no-any-return]

    def critical_batch(self, name: str) -> CriticalBatch:
        """The law of the critical batch of that name or alias, in any case. Raises UnknownName."""
        return self._find("critical_batches", name)  # type: ignore[no-any-return]

    def failures(self, name: str) -> Failures:
        """How often something fails, by name or alias, in any case. Raises UnknownName."""
        return self._find("failures", name)  # type: ignore[no-any-return]

    def citation(self, key: str) -> Citation:
        """What a citation key stands for. Raises UnknownName."""
        return self._find("citations", key)  # type: ignore[no-any-return]

    def knows(self, kind: str, name: str) -> bool:
        """Whether a kind (see `KINDS`) has a row of that name or alias; looked up at no price where it has none."""
        return name.strip().lower() in self._table(kind).index

    def names(self, kind: str) -> tuple[str, ...]:
        """The names of all rows of a kind (see `KINDS`), in file order, without aliases."""
        return tuple(self._table(kind).rows)

    def rows(self, kind: str) -> tuple[dict[str, str], ...]:
        """All rows of a kind as written: text by column."""
        return tuple(dict(row.values) for row in self._table(kind).rows.values())

    def aliases(self, kind: str, name: str) -> tuple[str, ...]:
        """Other names of the row that a name finds. Raises UnknownName."""
        return self._table(kind).rows[self._resolve(kind, name)].aliases()

    def where(self, kind: str, name: str) -> str:
        """`file:line` of the row that a name finds. Raises UnknownName."""
        return self._table(kind).rows[self._resolve(kind, name)].where

    def _table(self, kind: str) -> _Table:
        if kind not in self._tables:
            if kind not in LAYOUTS:
                raise UnknownName("table", kind, LAYOUTS)
            table = _shipped(kind)
            if kind in self._own or (kind == "accelerators" and "attention" in self._own):
                table = table.copy()
                if kind == "accelerators":
                    table.records.clear()
                for row in self._own.get(kind, ()):
                    table.put(row)
            self._tables[kind] = table
        return self._tables[kind]

    def _resolve(self, kind: str, name: str) -> str:
        table = self._table(kind)
        found = table.index.get(name.strip().lower())
        if found is None:
            close = dict.fromkeys(table.index[text] for text in nearest(name, table.index, 9))
            refused = families.unbuilt(name) if kind == "models" else ""
            because = f"by its name: {refused}" if refused else ""
            raise UnknownName(singular(kind), name, close, because, ranked=True)
        return found

    def _find(self, kind: str, name: str) -> Any:
        found = self._resolve(kind, name)
        table = self._tables[kind]
        if found not in table.records:
            built, bad = self._build(kind, table.rows[found])
            if bad:
                raise BadData(f"the row of {found!r} in the catalog cannot be read", bad)
            table.records[found] = built
        return table.records[found]

    def _build(self, kind: str, row: Row) -> tuple[Any, list[Violation]]:
        layout = LAYOUTS[kind]
        build = {
            "accelerators": self._accelerator_fields, "instances": _instance_fields, "models": self._model_fields,
        }.get(kind)  # fmt: skip
        given, bad = build(row) if build else ({}, [])
        found, more = read_fields(layout.record, row, given, layout.choices)
        bad += more
        if kind == "models":
            bad += _model_complaints(row, found)
        return (None if bad else layout.record(**found)), bad

    def _accelerator_fields(self, row: Row) -> tuple[dict[str, Any], list[Violation]]:
        """`peak`, `matmul_share` and `attention_share` from their columns and from the attention table."""
        peak, bad = _by_dtype(row, "peak_", "FlopPerS")
        share, more = _by_dtype(row, "matmul_share_", "Ratio")
        bad += more
        if not any(row.values.get(f"peak_{dtype}") for dtype in DTYPES):
            bad.append(row.complaint("peak_bf16", "no peak is given", "fill at least one of the peak_ columns"))
        if row.values.get("dense", "yes").lower() not in ("", "yes"):
            bad.append(row.complaint("dense", "peaks must be dense", "halve the peaks of 2:4 sparsity and write yes"))
        shares = {dtype: _share(share, dtype) for dtype in peak}
        return {
            "peak": peak,
            "matmul_share": shares,
            "attention_share": self._attention(row.values.get("arch", "")),
        }, bad

    def _model_fields(self, row: Row) -> tuple[dict[str, Any], list[Violation]]:
        """The image tower that a model names: another row."""
        name = row.values.get("vision")
        if not name:
            return {"vision": None}, []
        try:
            if self._resolve("models", name) == row.values["name"]:
                return {"vision": None}, [row.complaint("vision", "names the row itself", "name an image tower")]
            return {"vision": self._find("models", name)}, []
        except UnknownName as error:
            return {"vision": None}, [row.complaint("vision", error.message)]

    def _attention(self, arch: str) -> dict[str, tuple[float, float]]:
        """Shares by kernel: those of the architecture, and for kernels it has no row for, those of any other one."""
        found: dict[str, tuple[float, float]] = {}
        for wanted in (_OTHER_ARCH, arch.lower()):
            for name, row in self._table("attention").rows.items():
                if row.values["arch"].lower() == wanted:
                    one = self._find("attention", name)
                    found[one.kernel] = (one.forward, one.backward)
        return found

    def _collect(self, directory: Path) -> list[Violation]:
        """Read the files of one directory of the user's into `_own`."""
        try:
            return self._collected(directory)
        except OSError as error:
            says = f"cannot be read ({error.strerror or 'no reason is given'})"
        except ValueError:
            says = "no folder can have this name"
        return [Violation(field="", says=says, where=file_name(directory))]

    def _collected(self, directory: Path) -> list[Violation]:
        if not directory.is_dir():
            says = "is no directory" if directory.exists() else "no such directory"
            return [Violation(field="", says=says, where=file_name(directory))]
        inside = sorted(entry.name for entry in directory.iterdir())
        bad = [_misspelt(name, directory) for name in inside if _is_misspelt(name)]
        seen = bool(bad)
        for kind in LAYOUTS:
            rows: list[Row] = []
            if f"{kind}.csv" in inside:
                seen = True
                rows, more = _read_csv(kind, directory / f"{kind}.csv")
                bad += more
            if kind == "models":
                for file in _model_files(directory):
                    seen = True
                    row, more = _read_model(file)
                    bad += more
                    rows += [row] if row is not None else []
            bad += _repeated(kind, rows)
            if rows:
                self._own.setdefault(kind, []).extend(rows)
        if not seen:
            expected = ", ".join(f"{kind}.csv" for kind in KINDS)
            holds = f"; it holds {', '.join(map(file_name, inside[:3]))}" if inside else ""
            bad.append(Violation(field="", says=f"holds no catalog file{holds}",
                                 way_out=f"expected any of {expected}, models/*.yaml", where=file_name(directory)))  # fmt: skip
        return bad

    def _check(self, kind: str) -> Iterator[Violation]:
        """Build every row of the user's once, so that a bad one is refused when the catalog is opened."""
        for row in self._own[kind]:
            try:
                _, bad = self._build(kind, row)
            except BadData as error:
                bad = list(error.violations)
            yield from bad
            targets = {"accelerators": ("fabric",), "instances": ("accelerator", "fabric")}.get(kind, ())
            for column in targets:
                if row.values.get(column):
                    try:
                        self._resolve(f"{column}s", row.values[column])
                    except UnknownName as error:
                        yield row.complaint(column, error.message)


def load_catalog(directories: Sequence[Path] = ()) -> Catalog:
    """The catalog of the shipped rows and of the rows in `directories`, later directories winning.

    Shipped tables are read once per process, each when first asked for; directories are read and checked here.
    Raises BadData, with every complaint, for a directory that holds a row that cannot be read.
    """
    return Catalog(tuple(Path(directory) for directory in directories)) if directories else _shipped_catalog()


def catalog_of(given: object) -> Catalog:
    """The catalog that a caller means: one, a folder of rows, several folders, or None for the shipped one.

    Raises TypeError for anything else, and what `load_catalog` raises."""
    if given is None:
        return load_catalog()
    if isinstance(given, Catalog):
        return given
    folders = [given] if isinstance(given, str | os.PathLike) else given
    if not isinstance(folders, list | tuple) or not all(isinstance(one, str | os.PathLike) for one in folders):
        raise TypeError(f"catalog: {kind_of(given)}, where a catalog, a folder or a list of folders belongs")
    return load_catalog(tuple(Path(folder) for folder in folders))


@functools.cache
def _shipped_catalog() -> Catalog:
    return Catalog()


@functools.cache
def _shipped(kind: str) -> _Table:
    layout = LAYOUTS[kind]
    file = f"data/{layout.folder}{kind}.csv"
    text = pkgutil.get_data("shardmeter", file)
    rows, bad = read_rows((text or b"").decode(), file, layout.columns, layout.key)
    if bad:
        raise BadData("a shipped table cannot be read", bad)
    table = _Table(kind)
    for row in rows:
        table.put(row)
    return table


def _read_csv(kind: str, path: Path) -> tuple[list[Row], list[Violation]]:
    layout = LAYOUTS[kind]
    try:
        text = read_text(path, "a catalog file", LARGEST_FILE, BadData)
    except BadData as error:
        return [], [Violation(field="", says=error.message)]
    return read_rows(text, str(path), layout.columns, layout.key)


def _is_misspelt(name: str) -> bool:
    """Whether a file of a catalog's folder nearly has the name of a table, or of the folder of models."""
    stem, dot, suffix = name.lower().rpartition(".")
    known = [*LAYOUTS, *(kind.removesuffix("s") for kind in LAYOUTS)]
    if name in _FILES or not (dot and suffix in ("csv", "tsv", "txt", "yaml", "yml", "json")):
        return False
    return bool(difflib.get_close_matches(stem, known, 1, 0.8))


def _misspelt(name: str, directory: Path) -> Violation:
    stem = name.lower().rpartition(".")[0]
    close = nearest(stem, LAYOUTS, 1)[0]
    way_out = f"did you mean {close}.csv?"
    return Violation(field="", says="is no file of a catalog", way_out=way_out, where=file_name(directory / name))


def _model_files(directory: Path) -> list[Path]:
    return sorted(path for path in (directory / "models").glob("*") if path.suffix in (".yaml", ".yml", ".json"))


def _read_model(path: Path) -> tuple[Row | None, list[Violation]]:
    """A model file: the fields of `specs.Model`; left out, `name` is the name of the file."""
    from shardmeter.scenario.read import read_file

    try:
        document = read_file(path)
    except BadScenario as error:
        return None, list(error.violations) or [Violation(field="", says=error.message)]
    row, bad = native_row(document.data, str(path), LAYOUTS["models"].columns, lambda name: document.where((name,)))
    return (None if bad else Row({"name": path.stem} | dict(row.values), row.file, row.line)), bad


def _repeated(kind: str, rows: Sequence[Row]) -> list[Violation]:
    """Names and aliases that two rows of one directory claim."""
    owner: dict[str, Row] = {}
    bad = []
    for row in rows:
        name = " ".join(row.values[column] for column in LAYOUTS[kind].key)
        for text in dict.fromkeys(text.lower() for text in (name, *row.aliases())):
            if text in owner:
                bad.append(row.complaint("name", f"{text!r} is also the name or an alias of {owner[text].where}"))
            owner.setdefault(text, row)
    return bad


def _instance_fields(row: Row) -> tuple[dict[str, Any], list[Violation]]:
    """`price` and `spot` per instance: a price per GPU is multiplied by the number of accelerators."""
    given: dict[str, Any] = {}
    bad: list[Violation] = []
    for column in ("price", "spot"):
        given[column] = None
        if row.values.get(column):
            try:
                rate, basis = price(row.values[column])
                given[column] = rate * (cell(row, "accelerators", "Count") if basis == "gpu" else 1.0)
            except BadQuantity as error:
                bad.append(row.complaint(column, error.message))
            except KeyError:
                bad.append(row.complaint("accelerators", "is missing", "a price per GPU needs it"))
    bad += [
        row.complaint(column, "is missing", "every row of this table needs it")
        for column in ("accelerator", "provider")
        if not row.values.get(column)
    ]
    return given, bad


def _by_dtype(row: Row, prefix: str, type_name: str) -> tuple[dict[str, float], list[Violation]]:
    found: dict[str, float] = {}
    bad: list[Violation] = []
    for dtype in DTYPES:
        if row.values.get(prefix + dtype):
            try:
                found[dtype] = cell(row, prefix + dtype, type_name)
            except BadQuantity as error:
                bad.append(row.complaint(prefix + dtype, error.message))
    return found, bad


def _share(given: Mapping[str, float], dtype: str) -> float:
    """The matmul share of a dtype: its own column, else that of the dtype it follows, else the default."""
    if dtype in given:
        return given[dtype]
    follows = _SHARE_OF[dtype]
    if follows in given:
        return given[follows]
    return given.get("bf16", DEFAULT_MATMUL_SHARE)


def _model_complaints(row: Row, found: Mapping[str, Any]) -> list[Violation]:
    """What no model can be: heads that do not divide, a family that is not built, experts that do not add up."""
    rules = model_faults(found)
    return [row.complaint(field, says, way_out) for field, says, way_out in rules if says]
