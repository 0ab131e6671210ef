"""Tables of nccl-tests as its programs print them, of any age since 2017, and of what prints alike (rccl-tests): lines to tables.

What a launcher writes before a line (`[1,0]<stdout>:`, `0:`, `node-a:`) separates the tables of processes that print at once.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

LONGEST_LINE = 2000
"""Characters of a line that are looked at; a row of a table has at most 200."""
MOST_TABLES = 1000
ANSI = re.compile(r"\x1b\[[0-9;?]*[ -/]*[@-~]")
TYPES = (
    "int8|char|uint8|int32|int|uint32|int64|uint64|half|float|double|bfloat16|fp16|bf16|fp32|fp64"
    "|fp8_e4m3|fp8_e5m2|f8e4m3|f8e5m2"
)
ROW = re.compile(rf"(?<!\S)(\d{{1,15}})\s{{1,40}}(\d{{1,15}})\s{{1,40}}({TYPES})(?!\S)(.*)", re.ASCII)
CONFIG = re.compile(
    r"nThread\s+(\d+)\s+nGpus\s+(\d+)\s+minBytes\s+(\d+)\s+maxBytes\s+(\d+)\s+step:\s+(\d+)\((\w+)\)(.*)", re.ASCII
)
RANK = re.compile(
    r"Rank\s+(\d+)(?:\s+Group\s+(\d+))?(?:\s+Pid\s+\d+)?\s+on\s+(\S+)\s+device\s+\d+\s+\[[^\]]*\]\s*(.*)", re.ASCII
)
STARTING = re.compile(r"Collective test starting:\s+(\S+)")
VERSION = re.compile(r"nccl-tests version (\S+).*?nccl-library=(\d+)|rccl-tests: Version (\S+)|NCCL version ([\d.]+)")
AVERAGE = re.compile(r"Avg bus bandwidth\s*:\s*([\d.eE+-]+)")
BOUNDS = re.compile(r"Out of bounds values\s*:\s*(\d+)")
PROGRAM = re.compile(r"\b([a-z_]+?)_perf(?:_mpi)?\b")
SETTING = re.compile(
    r"\b(NCCL_(?:ALGO|PROTO|NVLS_ENABLE|TESTS_SPLIT))(?:=| set by environment to )[\"']?([\w,^.:&|%/ ]{1,40}?)[\"'.]*(?=\s|$)"
)
FIGURES = ("time", "algbw", "busbw")


@dataclass(slots=True)
class Device:
    """A line of the list of devices."""

    rank: int
    group: int
    host: str
    name: str


@dataclass(slots=True)
class Figures:
    """What one row says of one way to place the buffers; seconds and B/s. None where it is not there or no number."""

    seconds: float | None
    algorithm_rate: float | None
    bus_rate: float | None
    wrong: float | None
    in_place: bool


@dataclass(slots=True)
class Line:
    """One row of a table."""

    number: int
    size: float
    operation: str
    root: str
    figures: list[Figures]


@dataclass(slots=True)
class Table:
    """One run of one program, as far as it was printed."""

    number: int
    """Line where it begins."""
    word: str = "line"
    """What `number` counts."""
    tag: str = ""
    program: str = ""
    version: str = ""
    threads: int = 1
    gpus: int = 1
    sizes: tuple[int, int, int, bool] | None = None
    """Least and most bytes, the step, and whether it is a factor."""
    options: dict[str, str] = field(default_factory=dict)
    settings: dict[str, str] = field(default_factory=dict)
    devices: list[Device] = field(default_factory=list)
    per_process: bool = False
    """Whether `devices` has only the first of every process."""
    columns: tuple[str, ...] = ()
    unit: float = 1e-6
    rows: list[Line] = field(default_factory=list)
    cut: list[int] = field(default_factory=list)
    """Lines of rows that end too early, or have something else inside."""
    average: float | None = None
    wrong: int = 0
    ended: bool = False


def tables(text: str) -> list[Table]:
    """Every table of a text, in the order in which they begin; those without a row are left out."""
    found: list[Table] = []
    open_: dict[str, Table] = {}
    around: dict[str, str] = {}
    program = ""
    for number, raw in enumerate(text.splitlines(), 1):
        line = ANSI.sub("", raw[:LONGEST_LINE])
        said = PROGRAM.search(line)
        if said and "Collective test" not in line:
            program, around = said[1], {}
        around |= {name: value.strip() for name, value in SETTING.findall(line)}
        if not _telling(line):
            continue
        tag = _tag(line)
        table = open_.get(tag)
        if table is None or _begins(line, table):
            if len(found) >= MOST_TABLES:
                break
            table = Table(number=number, tag=tag, program=program, version=table.version if table else "")
            open_[tag] = table
            found.append(table)
        _take(line, number, table)
        if not table.ended:
            table.settings = around
    return [table for table in found if table.rows or table.cut]


_WORDS = (
    "nThread",
    "Rank ",
    "version",
    "Version",
    "Collective test",
    "algbw",
    "Avg bus",
    "Out of bounds",
    "_perf",
    "(us)",
)


def _telling(line: str) -> bool:
    return any(word in line for word in _WORDS) or ROW.search(line) is not None


def _tag(line: str) -> str:
    """What a launcher wrote before the line: a rank, a host. Timestamps and blanks are none."""
    row = ROW.search(line)
    end = row.start() if row else line.find("#")
    head = line[: max(end, 0)].strip()
    return (
        ""
        if len(head) > 40 or re.fullmatch(r"[\d\sT:.,Z+-]{11,}", head)
        else head.removesuffix(":").replace("stderr", "stdout")
    )


def _begins(line: str, table: Table) -> bool:
    """Whether a line is the first of another table."""
    if STARTING.search(line):
        return bool(table.program and table.sizes) or bool(table.rows)
    if "nThread" in line:
        return table.sizes is not None or bool(table.rows)
    return bool(table.rows) and ("nccl-tests version" in line or ("algbw" in line and table.ended))


def _take(line: str, number: int, table: Table) -> None:
    """What one line adds to a table."""
    row = ROW.search(line)
    if row:
        _row(row, number, table)
    elif config := CONFIG.search(line):
        threads, gpus, least, most, step = (int(one[:12]) for one in config.groups()[:5])
        table.threads, table.gpus = threads, gpus
        table.sizes = (least, most, step, config[6] == "factor")
        table.options = {
            name.strip(): value for name, value in re.findall(r"([a-z][a-z ]{1,20}):\s*(\d{1,9})", config[7])
        }
    elif rank := RANK.search(line):
        table.devices.append(Device(int(rank[1][:9]), int((rank[2] or "0")[:9]), rank[3], rank[4].strip()))
    elif starting := STARTING.search(line):
        table.program = starting[1].removesuffix("_mpi").removesuffix("_perf")
    elif "algbw" in line:
        _header(line, table)
    elif "(us)" in line:
        table.unit = 1e-6
    elif average := AVERAGE.search(line):
        table.average, table.ended = _number(average[1]), True
    elif bounds := BOUNDS.search(line):
        table.wrong, table.ended = int(bounds[1][:9]), True
    elif version := VERSION.search(line):
        table.version = _version(version, table.version)


def _version(found: re.Match[str], before: str) -> str:
    tests, library, rccl, nccl = found.groups()
    if tests:
        code = int(library[:9])
        return f"nccl-tests {tests}, NCCL {code // 10000}.{code // 100 % 100}.{code % 100}"
    said = f"rccl-tests {rccl}" if rccl else f"NCCL {nccl}"
    return said if said in before or not before else f"{before}, {said}" if len(before) < 60 else before


def _header(line: str, table: Table) -> None:
    """The names of the columns, from the first after the type; `bytes` instead of `size` is of 2017, whose times are in ms."""
    text = line[max(line.find("#"), 0) :].replace("#wrong", "wrong").replace("#", " ")
    names = re.sub(r"\([^)]*\)", "", text).split()
    if "type" not in names:
        return
    table.columns = tuple(names[names.index("type") + 1 :])
    table.unit = 1e-3 if names[0] == "bytes" else 1e-6
    if "cputime" in names:
        table.options["cputime"] = "1"


def _row(row: re.Match[str], number: int, table: Table) -> None:
    cells = row[4].split()
    columns = table.columns or _columns(cells)
    columns = tuple("time" if name == "cputime" else name for name in columns)
    figures = list(_figures(columns, cells, table.unit))
    if not figures:
        table.cut.append(number)
        return
    named = dict(zip(columns, cells, strict=False))
    operation = named.get("redop", named.get("op", ""))
    table.rows.append(Line(number, float(row[1]), operation, named.get("root", ""), figures))


def _columns(cells: list[str]) -> tuple[str, ...]:
    """Names for the cells of a row whose header was not printed or lost."""
    words = 0
    while words < len(cells) and words < 2 and (not _is_number(cells[words]) or re.fullmatch(r"-?\d+", cells[words])):
        words += 1
    one = (*FIGURES, "wrong")
    return (*("redop", "root")[:words], *one, *one)


def _figures(columns: tuple[str, ...], cells: list[str], unit: float) -> Iterator[Figures]:
    """Out of place, then in place, each only where all three figures stand there and are numbers or N/A."""
    begins = [at for at, name in enumerate(columns) if name == "time"]
    for at in begins:
        three = cells[at : at + 3]
        if len(three) < 3 or not all(_is_number(cell) or cell in ("N/A", "-") for cell in three):
            return
        seconds, algorithm, bus = map(_number, three)
        wrong = cells[at + 3] if at + 3 < len(cells) else ""
        yield Figures(
            seconds=None if seconds is None else seconds * unit,
            algorithm_rate=None if algorithm is None else algorithm * 1e9,
            bus_rate=None if bus is None else bus * 1e9,
            wrong=_number(wrong),
            in_place=at != begins[0],
        )


def _is_number(text: str) -> bool:
    return _number(text) is not None or text.lstrip("+-").lower() in ("nan", "inf")


def _number(text: str) -> float | None:
    """A plain number; None for what is none, and for NaN and infinity."""
    if not re.fullmatch(r"[+-]?\d{1,20}(?:\.\d{0,20})?(?:[eE][+-]?\d{1,3})?", text, re.ASCII):
        return None
    value = float(text)
    return value if abs(value) < 1e300 else None
