"""Tables of nccl-tests as its programs print them, of any age since 2017, and of what prints alike (rccl-tests): lines to tables.

What a launcher writes before a line (`[1,0]<stdout>:`, `0:`, `node-a:`) separates the tables of processes that print at once.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache

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
TELLING = re.compile(
    rf"nThread|Rank |[vV]ersion|Collective test|algbw|Avg bus|Out of bounds|_perf|\(us\)|NCCL_[APNT]|\d\s+(?:{TYPES})\s",
    re.ASCII,
)
"""What every line has that says anything; most lines of a log with NCCL_DEBUG=INFO have none of it."""
FIGURES = ("time", "algbw", "busbw")
NOTHING = ("n/a", "-", "nan", "-nan", "inf", "-inf")


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
    plain = ANSI.sub("", text) if "\x1b" in text else text
    for number, raw in enumerate(plain.splitlines(), 1):
        if TELLING.search(raw, 0, LONGEST_LINE) is None:
            continue
        line = raw[:LONGEST_LINE]
        row = ROW.search(line)
        if row is None:
            said = PROGRAM.search(line)
            if said and "Collective test" not in line:
                program, around = said[1], {}
            around |= {name: value.strip() for name, value in SETTING.findall(line)}
        tag = _tag(line, row)
        table = open_.get(tag)
        if table is None or (row is None and _begins(line, table)):
            if len(found) >= MOST_TABLES:
                break
            table = Table(number=number, tag=tag, program=program, version=table.version if table else "")
            open_[tag] = table
            found.append(table)
        if row is not None:
            _row(row, number, table)
        else:
            _take(line, table)
        if not table.ended:
            table.settings = around
    return [table for table in found if table.rows or table.cut]


def _tag(line: str, row: re.Match[str] | None) -> str:
    """What a launcher wrote before the line: a rank, a host. Timestamps and blanks are none."""
    end = row.start() if row else line.find("#")
    head = line[: max(end, 0)].strip()
    if not head:
        return ""
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


def _take(line: str, table: Table) -> None:
    """What a line that is no row adds to a table."""
    if config := CONFIG.search(line):
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
        table.average, table.ended = number_of(average[1]), True
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
    table.columns = tuple("time" if name == "cputime" else name for name in names[names.index("type") + 1 :])
    table.unit = 1e-3 if names[0] == "bytes" else 1e-6
    if "cputime" in names:
        table.options["cputime"] = "1"


def _row(row: re.Match[str], number: int, table: Table) -> None:
    cells = row[4].split()
    operation, root, times = _places(table.columns or _columns(cells))
    figures = list(_figures(times, cells, table.unit))
    if not figures:
        table.cut.append(number)
        return
    said = (cells[operation] if operation >= 0 else "", cells[root] if root >= 0 else "")
    table.rows.append(Line(number, float(row[1]), *said, figures))


@cache
def _places(columns: tuple[str, ...]) -> tuple[int, int, tuple[int, ...]]:
    """Where the operation, the root (-1: nowhere) and the times stand."""
    operation = next((at for at, name in enumerate(columns) if name in ("redop", "op")), -1)
    root = columns.index("root") if "root" in columns else -1
    return operation, root, tuple(at for at, name in enumerate(columns) if name == "time")


def _columns(cells: list[str]) -> tuple[str, ...]:
    """Names for the cells of a row whose header was not printed or lost."""
    words = 0
    while (
        words < len(cells) and words < 2 and (number_of(cells[words]) is None or re.fullmatch(r"-?\d+", cells[words]))
    ):
        words += 1
    one = (*FIGURES, "wrong")
    return (*("redop", "root")[:words], *one, *one)


def _figures(times: tuple[int, ...], cells: list[str], unit: float) -> Iterator[Figures]:
    """Out of place, then in place, each only where all three figures stand there and are numbers, or no numbers as programs write them."""
    for at in times:
        three = cells[at : at + 3]
        values = [number_of(cell) for cell in three]
        if len(three) < 3 or (None in values and not all(map(_is_nothing, three, values))):
            return
        seconds, algorithm, bus = values
        yield Figures(
            None if seconds is None else seconds * unit,
            None if algorithm is None else algorithm * 1e9,
            None if bus is None else bus * 1e9,
            number_of(cells[at + 3]) if at + 3 < len(cells) else None,
            at != times[0],
        )


def _is_nothing(cell: str, value: float | None) -> bool:
    """Whether a cell is a number, or none as programs write it."""
    return value is not None or cell.lower() in NOTHING


def number_of(text: str) -> float | None:
    """A plain number; None for what is none, and for NaN and infinity."""
    try:
        value = float(text)
    except ValueError:
        return None
    return value if -1e300 < value < 1e300 and "_" not in text else None
