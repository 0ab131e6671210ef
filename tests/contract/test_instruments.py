"""What benchmarks, monitors and schedulers print: every age is read, what contradicts itself is told, nothing raises."""

from __future__ import annotations

import json
import random

import pytest

from shardmeter.core.errors import BadData, UnknownName
from shardmeter.interop.logs import gloo, instruments, nccl_tests, nvidia_smi, sacct
from shardmeter.scenario.catalog import load_catalog
from shardmeter.study.calibrate.power import calibrate_power

SIZES = (1 << 20, 1 << 24, 1 << 28)
RATE = 200e9


def micros(size: int, ranks: int = 16) -> float:
    """A time with a start and a rate, in microseconds."""
    return 50.0 + 1e6 * 2 * (ranks - 1) / ranks * size / RATE


def cells(size: int, share: float) -> tuple[str, str, str]:
    """Time, algbw, busbw as nccl-tests prints them."""
    time = float(f"{micros(size):.2f}")
    rate = size / time / 1e3
    return f"{time:.2f}", f"{rate:.2f}", f"{rate * share:.2f}"


def devices(hosts: int = 2, each: int = 8, group: bool = True) -> list[str]:
    return [
        f"#  Rank {rank:2d} {'Group  0 ' if group else ''}Pid {900 + rank:6d} on node-{rank // each} device {rank % each:2d} [0000:18:00] NVIDIA H100 80GB HBM3"
        for rank in range(hosts * each)
    ]


CONFIG = "nThread 1 nGpus 1 minBytes 1048576 maxBytes 268435456 step: 16(factor) warmup iters: 5 iters: 20 agg iters: 1 validation: 1 graph: 0"
COLUMNS = "#       size         count      type   redop    root     time   algbw   busbw  #wrong     time   algbw   busbw  #wrong"
ENDS = ["# Out of bounds values : 0 OK", "# Avg bus bandwidth    : {average:.3f} "]


def table(program: str = "all_reduce", share: float = 30 / 16, redop: str = "sum") -> list[str]:
    """As version 2.19 prints it."""
    rows = [
        f"{size:12d}  {size // 4:12d}     float  {redop:>6}      -1  {'  '.join(cells(size, share))}       0  {'  '.join(cells(size, share))}       0"
        for size in SIZES
    ]
    average = sum(float(cells(size, share)[2]) for size in SIZES) / len(SIZES)
    head = [
        f"# Collective test starting: {program}_perf",
        f"# {CONFIG}",
        "#",
        "# Using devices",
        *devices(),
        "#",
        COLUMNS,
    ]
    return [
        *head,
        *rows,
        *(line.format(average=average) for line in ENDS),
        f"# Collective test concluded: {program}_perf",
    ]


def old(age: str) -> str:
    """The same table as older programs print it: 2017 (milliseconds), 2021 (error), 2023 (no name of the program)."""
    rows = []
    for size in SIZES:
        time, algorithm, bus = cells(size, 30 / 16)
        if age == "2017":
            time = f"{float(time) / 1e3:.3f}"
        root, last = ("      -1", "     0") if age == "2023" else ("", "  4e-07")
        one = f"  {time:>7}  {algorithm:>6}  {bus:>6}{last}"
        rows.append(f"{size:12d}  {size // 4:12d}     float     sum{root}{one}{one}")
    if age == "2017":
        head = [
            "#       bytes             N    type      op     time  algbw  busbw      res     time  algbw  busbw      res"
        ]
        return "\n".join([*devices(group=False), *head, *rows])
    columns = COLUMNS if age == "2023" else COLUMNS.replace("    root", "").replace("#wrong", " error")
    return "\n".join([f"# {CONFIG}", *devices(group=False), columns, *rows, "# Out of bounds values : 0 OK"])


def as_json() -> str:
    """As `-J` writes it: of eight accelerators a process, the first alone is listed."""
    results = [
        {"size": size, "count": size // 4, "type": "float", "redop": "sum", "root": "    -1",
         "out_of_place": {"time": micros(size), "alg_bw": size / micros(size) / 1e3, "bus_bw": size / micros(size) / 1e3 * 30 / 16, "nwrong": 0.0},
         "in_place": None, "actual_iterations": 20, "experiment_name": ""}
        for size in SIZES
    ]  # fmt: skip
    listed = [
        {"rank": 8 * at, "group": 0, "pid": 1, "hostname": f"node-{at}", "device": 0, "device_info": "NVIDIA H100"}
        for at in range(2)
    ]
    config = {
        "nthreads": 1,
        "ngpus": 8,
        "minimum_bytes": SIZES[0],
        "maximum_bytes": SIZES[-1],
        "step_factor": 16,
        "aggregated_iterations": 1,
    }
    env = ["SECRET_TOKEN=do-not-keep", "NCCL_ALGO=Ring"]
    whole = {"version": 3, "args": ["./build/all_reduce_perf"], "env": env, "nccl_version": 22707,
             "config": {**config, "devices": listed}, "results": results, "end_time": "2026-01-02 03:04:05"}  # fmt: skip
    return json.dumps(whole, separators=(",", ":"))


@pytest.mark.parametrize(
    "text",
    ["\n".join(table()), old("2017"), old("2021"), old("2023"), as_json()],
    ids=["2.19", "2017", "2021", "2023", "json"],
)
def test_a_table_of_any_age_says_the_same(text: str) -> None:
    assert instruments.recognised(text) is nccl_tests
    account = instruments.read(f"{text}\n")
    (one,) = account.benchmarks
    assert (one.collective, one.ranks, one.hosts, one.per_host) == ("all_reduce", 16.0, 2.0, 8.0)
    assert one.device.startswith("NVIDIA H100")
    assert not account.dropped
    for timing in one.timings:
        assert timing.seconds == pytest.approx(micros(int(timing.size)) / 1e6, rel=0.01)
    assert {timing.size for timing in one.timings} == set(map(float, SIZES))


def test_secrets_of_the_environment_are_not_kept() -> None:
    account = nccl_tests.read(as_json())
    assert "SECRET" not in repr(account)
    assert account.benchmarks[0].settings == (("NCCL_ALGO", "Ring"),)


def test_tables_of_ranks_that_print_at_once_are_kept_apart_and_colours_are_not_read() -> None:
    two = (table(), table("all_gather", 15 / 16, "none"))
    mixed = [
        f"{tag}{line}\x1b[0m"
        for pair in zip(*two, strict=True)
        for tag, line in zip(("[1,0]<stdout>:", "[1,8]<stdout>:"), pair, strict=True)
    ]
    found = nccl_tests.read("\n".join(mixed))
    assert [(one.collective, one.ranks, len(one.timings)) for one in found.benchmarks] == [
        ("all_reduce", 16.0, 6),
        ("all_gather", 16.0, 6),
    ]
    assert found.warnings == ()


def test_a_table_that_ends_too_early_says_so() -> None:
    whole = table()
    broken = "\n".join(whole[:-4])[:-16]
    account = nccl_tests.read(broken)
    assert [timing.size for timing in account.benchmarks[0].timings] == [SIZES[0], SIZES[0], SIZES[1]]
    assert any("does not end: 1 of its sizes are not there" in text for text in account.warnings)
    cut = as_json()[:-220]
    assert [timing.size for timing in nccl_tests.read(cut).benchmarks[0].timings] == [SIZES[0], SIZES[1]]


def test_what_contradicts_itself_is_told_and_not_used() -> None:
    lines = table()
    at = next(place for place, line in enumerate(lines) if line.lstrip().startswith(str(SIZES[1])))
    time = cells(SIZES[1], 1.0)[0]
    lines[at] = lines[at].replace(time, "9.99", 1)
    account = nccl_tests.read("\n".join(lines))
    assert [(one.reason, one.count) for one in account.dropped] == [
        ("time and algbw of the row do not belong together", 1)
    ]
    fewer = [line for place, line in enumerate(table()) if place != at]
    assert any("rows are missing or were changed" in text for text in nccl_tests.read("\n".join(fewer)).warnings)
    listed = [line for line in table() if "Rank" not in line or "Rank  0" in line]
    account = nccl_tests.read("\n".join(listed))
    assert account.benchmarks[0].ranks == 16.0
    assert account.benchmarks[0].per_host is None
    assert any("1 ranks are listed, its rates are those of 16" in text for text in account.warnings)
    wrong = "\n".join(table()).replace("       0  ", "      12  ", 1)
    assert nccl_tests.read(wrong).dropped[0].reason == "wrong results (#wrong)"


def test_gloo_is_read_by_its_medians() -> None:
    text = """
                     ALLREDUCE_RING_CHUNKED
Device:      tcp, pci=0000:00:00.0, iface=eth0, speed=10000, addr=[10.0.0.1]
Options:     processes=4, inputs=1, threads=1, verify=true
   size (B)   elements   min (us)   p50 (us)   p99 (us)   max (us)    bandwidth (GB/s)   iterations
       4000       1000         80        100        200        300               0.037         1000
    4000000    1000000       9000      10000      20000      30000               0.373          100
"""
    account = instruments.read(text)
    (one,) = account.benchmarks
    assert account.format == gloo.NAME
    assert (one.collective, one.ranks, one.hosts) == ("all_reduce", 4.0, 4.0)
    assert [timing.seconds for timing in one.timings] == pytest.approx([1e-4, 1e-2])


def test_draws_are_those_of_the_seconds_between_samples() -> None:
    query = "timestamp, index, power.draw [W], utilization.gpu [%], memory.used [MiB], power.limit [W]\n" + "\n".join(
        f"2026/01/02 03:{minute:02d}:{second:02d}.000, {gpu}, {'[N/A]' if second == 30 and gpu else f'{600 if second else 100}.00 W'}, "
        f"{100 if second else 0} %, 1024 MiB, 600.00 W"
        for minute, second in ((4, 0), (4, 10), (4, 20), (4, 30), (50, 10)) for gpu in (0, 1)
    )  # fmt: skip
    account = instruments.read(query)
    first, second = account.draws
    assert account.format == nvidia_smi.NAME
    assert (first.samples, second.samples, first.computing, first.memory) == (5, 4, 600.0, 2.0**30)
    assert first.energy == pytest.approx(10 * 100 + 4 * 10 * 600), "46 minutes without samples are not counted"
    assert {one.reason for one in account.dropped} == {"no watts there", "gaps between samples, or clocks that go back"}
    fit = calibrate_power(account.draws, load_catalog().accelerator("H100-SXM5-80GB"))
    assert (fit.computing, fit.limit) == (pytest.approx(600 / 700), 600.0)
    dmon = "# gpu    pwr  gtemp     sm\n# Idx      W      C      %\n    0    652     61     99\n    0      -     61     99\n"
    account = instruments.read(dmon)
    assert (account.samples, account.draws[0].mean, account.dropped[0].count) == (1, 652.0, 1)


def test_steps_of_jobs_are_not_counted_again() -> None:
    text = """JobID|Elapsed|AllocTRES|State|Start
12|1-01:00:00|billing=9,gres/gpu:h100=64,gres/gpu=64,node=8|COMPLETED|a
12.batch|1-01:00:00|gres/gpu=8,node=1|COMPLETED|a
12.0|1-00:59:00|gres/gpu=64,node=8|COMPLETED|a
13_4|00:30:00|gres/gpu:h100=16,node=2|CANCELLED by 7|b
14|00:30:00|cpu=4,node=1|COMPLETED|c
"""
    account = instruments.read(text)
    assert account.format == sacct.NAME
    assert [(job.id, job.gpus, job.state) for job in account.jobs] == [
        ("12", 64.0, "COMPLETED"),
        ("13_4", 16.0, "CANCELLED"),
    ]
    assert account.gpu_seconds / 3600 == 64 * 25 + 8
    assert "1 of 2 jobs did not end by themselves" in account.warnings[0]
    columns = "JobID      Elapsed      AllocTRES            State\n---------- ------------ -------------------- ----------\n12         2-00:00:00   gres/gpu=8,node=1    TIMEOUT\n"
    assert instruments.read(columns).gpu_seconds == 8 * 48 * 3600


def test_a_file_that_nothing_recognises_names_what_would_be() -> None:
    with pytest.raises(BadData, match="nccl-tests or rccl-tests"):
        instruments.read("hello\nworld\n")
    with pytest.raises(UnknownName, match="nccl-tests"):
        instruments.read("hello\nworld\n", "nccl")


def test_no_text_makes_a_reader_raise() -> None:
    """Lines and characters of real outputs, shuffled, cut and repeated; the same every time."""
    chance = random.Random(11)
    pool = [
        "\n".join(table()),
        old("2017"),
        old("2023"),
        as_json(),
        "# gpu pwr sm\n 0 1e9 nan\n",
        "JobID|Elapsed|AllocTRES\n1|9-99:99:99|gres/gpu=x\n",
    ]
    for _ in range(120):
        text = chance.choice(pool)
        first, last = sorted(chance.randrange(len(text) + 1) for _ in range(2))
        damaged = (
            text[:first]
            + "".join(chance.choice('0123456789.e-N/A#|,\t\n {}[]"') for _ in range(chance.randrange(8)))
            + text[last:]
        )
        for module in instruments.FORMATS.values():
            module.recognises(damaged)
            module.read(damaged, "log")
