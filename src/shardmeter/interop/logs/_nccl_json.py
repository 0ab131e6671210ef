"""The file of `nccl-tests -J` (versions 1 to 3 of its layout) as a table; what a run that broke off has written counts too."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

from shardmeter.interop.logs._nccl_table import Device, Figures, Line, Table

SETTINGS = ("NCCL_ALGO", "NCCL_PROTO", "NCCL_NVLS_ENABLE", "NCCL_TESTS_SPLIT")
"""Of the environment, which holds much that is nobody's business, only these are looked at."""
PLACES = (("out_of_place", False), ("in_place", True))


def is_json(text: str) -> bool:
    """Whether a text is such a file, whole or its beginning."""
    head = text[:100_000].lstrip()
    return head.startswith("{") and '"nccl_version"' in head and ('"config"' in head or '"results"' in head)


def table_of(text: str) -> Table:
    """The table of such a file."""
    try:
        said = json.loads(text)
        whole = True
    except (ValueError, RecursionError):
        said, whole = _salvaged(text), False
    said = said if isinstance(said, Mapping) else {}
    config, table = _mapping(said.get("config")), Table(number=1, word="result", per_process=True)
    table.threads, table.gpus = _whole(config.get("nthreads")), _whole(config.get("ngpus"))
    if "minimum_bytes" in config:
        factor = "step_factor" in config
        step = config.get("step_factor" if factor else "step_bytes")
        table.sizes = (_whole(config["minimum_bytes"]), _whole(config.get("maximum_bytes")), _whole(step), factor)
    table.options = {"agg iters": str(_whole(config.get("aggregated_iterations")))}
    table.devices = [
        Device(_whole(one.get("rank"), 0), _whole(one.get("group"), 0), str(one.get("hostname", ""))[:100], str(one.get("device_info", ""))[:100])
        for one in map(_mapping, _list(config.get("devices")))
    ]  # fmt: skip
    table.per_process = not _lists_all(table)
    arguments = [str(one) for one in _list(said.get("args"))]
    program = re.search(r"([a-z_]+?)_perf(?:_mpi)?$", arguments[0]) if arguments else None
    table.program = program[1] if program else ""
    table.settings = dict(_settings(_list(said.get("env"))))
    table.version = _version(said.get("nccl_version"))
    average = _mapping(said.get("average_bus_bandwidth")).get("bandwidth")
    table.average = average if isinstance(average, float) else None
    table.wrong = _whole(_mapping(said.get("out_of_bounds")).get("count"), 0)
    table.ended = whole and "end_time" in said
    for number, result in enumerate(map(_mapping, _list(said.get("results"))), 1):
        _row(number, result, table)
    return table


def _row(number: int, result: Mapping[str, Any], table: Table) -> None:
    size = _number(result.get("size"))
    figures = []
    for key, in_place in PLACES:
        one = _mapping(result.get(key))
        if "cpu_time" in one:
            table.options["cputime"] = "1"
        seconds, algorithm, bus = (_number(one.get(name)) for name in ("time", "alg_bw", "bus_bw"))
        if one:
            figures.append(Figures(
                seconds=None if seconds is None else seconds * 1e-6, algorithm_rate=None if algorithm is None else algorithm * 1e9,
                bus_rate=None if bus is None else bus * 1e9, wrong=_number(one.get("nwrong")), in_place=in_place,
            ))  # fmt: skip
    if size is None or not figures:
        table.cut.append(number)
        return
    table.rows.append(Line(number, size, str(result.get("redop", "")), str(result.get("root", "")).strip(), figures))


def _lists_all(table: Table) -> bool:
    """Whether the devices are those of every rank. Up to version 3 the file has the first of each process only."""
    ranks = [one.rank for one in table.devices]
    return table.threads * table.gpus == 1 or (len(ranks) > 1 and ranks == list(range(len(ranks))))


def _salvaged(text: str) -> dict[str, Any]:
    """What of a file that ends in the middle stands there whole."""
    decoder, found = json.JSONDecoder(), dict[str, Any]()
    for key in ("args", "env", "nccl_version", "config"):
        at = text.find(f'"{key}":')
        try:
            found[key] = decoder.raw_decode(text, at + len(key) + 3)[0] if at >= 0 else None
        except (ValueError, RecursionError):
            continue
    found["results"] = []
    at = text.find('{"size":')
    while at >= 0:
        try:
            result, end = decoder.raw_decode(text, at)
            found["results"].append(result)
        except (ValueError, RecursionError):
            end = at + 1
        at = text.find('{"size":', end)
    return found


def _settings(environment: list[Any]) -> Iterator[tuple[str, str]]:
    for one in environment:
        name, _, value = str(one).partition("=")
        if name in SETTINGS:
            yield name, value[:40]


def _version(code: object) -> str:
    if not isinstance(code, int) or isinstance(code, bool) or not 0 < code < 10**7:
        return "nccl-tests -J"
    return f"nccl-tests -J, NCCL {code // 10000}.{code // 100 % 100}.{code % 100}"


def _mapping(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _list(value: object) -> list[Any]:
    return value if isinstance(value, list) else []


def _whole(value: object, least: int = 1) -> int:
    good = isinstance(value, int) and not isinstance(value, bool) and least <= value < 10**15
    return int(value) if good else least  # type: ignore[call-overload]


def _number(value: object) -> float | None:
    good = isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < 1e300
    return float(value) if good else None  # type: ignore[arg-type]
