"""`shardmeter measure`: micro-benchmarks of this machine's processor or GPU, as rows that predictions are made with."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import click

from shardmeter.cli.options import catalog_option, format_option
from shardmeter.cli.output import say, warn, write
from shardmeter.cli.pictures import draw, drawable, plot_option, refuse_place
from shardmeter.cli.progress import counter
from shardmeter.core.files import put_file

EPILOG = """Examples:

\b
  shardmeter measure -o here.json --profile mine
  shardmeter measure --device cuda --like H100-SXM5-80GB --quick -o gpu.json
  shardmeter measure --threads 4 --ranks 2 --budget 300 -o two.json
  shardmeter measure --from here.json --name laptop --profile mine
  shardmeter predict --catalog mine --gpus 1xlaptop --stack torch-laptop --model gpt2 --plan none,precision=fp32

Times products by shape and number format, copies, attention, pointwise kernels, launches and (with --ranks) collectives by size over
processes of its own, in rounds, so that what else the machine does falls on all alike. Needs PyTorch: pip install
'shardmeter[measure]'. The rows hold nothing but what was timed: no training run goes in."""


@click.command(epilog=EPILOG, short_help="How fast is this machine, as rows to predict with?")
@click.option(
    "--device", type=click.Choice(("cpu", "cuda")), default="cpu", show_default=True, help="What is measured."
)
@click.option("--quick", is_flag=True, help="Fewer sizes, a shorter time.")
@click.option(
    "--budget",
    type=click.FloatRange(1.0, 86400.0),
    metavar="SECONDS",
    help="Time to spend; left out, 90 (--quick: 20).",
)
@click.option(
    "--threads", type=click.IntRange(1, 4096), metavar="N", help="Threads of a CPU; left out, PyTorch's own number."
)
@click.option(
    "--clock", type=click.Choice(("wall", "cpu")), default="wall", show_default=True,
    help="cpu: seconds of the process itself, on a machine that others use too (one thread).",
)  # fmt: skip
@click.option("--ranks", type=click.IntRange(1, 1024), default=1, show_default=True, metavar="N",
              help="Beyond 1: collectives by size over so many processes too.")  # fmt: skip
@click.option("--name", default="", metavar="NAME", help="Of the rows; left out, what the device calls itself.")
@click.option(
    "--like", metavar="NAME", help="A catalog row of the same part: its peaks, power and links, which are not measured."
)
@click.option("--from", "source", metavar="FILE", help="Make the rows of a file that -o wrote, and time nothing.")
@click.option("-o", "--out", metavar="FILE", help="Write all timings, as JSON.")
@click.option("--profile", metavar="DIR", help="Put the rows into a folder for --catalog; rows of other names stay.")
@catalog_option
@format_option
@plot_option("Draw the timings against what the rows say, and the rate of products.")
def measure(output: str, out: str | None, profile: str | None, plot: str | None, **asked: Any) -> int:
    """Time this machine's kernels and make catalog rows of them."""
    drawn = drawable(plot)
    if out is not None:
        refuse_place(out)
    if profile is not None:
        from shardmeter.study.calibrate.profile import refuse_place as refuse_folder

        refuse_folder(Path(profile))
    answer = _answer(**asked)
    from shardmeter.render import measuring

    if out is not None:
        put_file(out, json.dumps(answer.measured.to_dict(), indent=1) + "\n")
        say(f"wrote {out}")
    if profile is not None:
        answer.write(Path(profile))
        row = answer.rows.accelerator.name
        say(
            f"{profile}: holds accelerator {row} and stack torch-{row}; "
            f"predict with --catalog {profile} --gpus 1x{row} --stack torch-{row}"
        )
    elif out is None:
        say("not written: -o FILE keeps the timings, --profile DIR makes rows of them, for --catalog DIR")
    data = answer.to_dict()
    if drawn and plot is not None:
        draw(measuring.figures(data), plot)
    warn(data["warnings"])
    write(measuring.document(data, measuring.title(answer)), output)
    return 0


def _answer(
    source: str | None, device: str, name: str, like: str | None, catalogs: tuple[str, ...], clock: str, budget: float | None,
    threads: int | None, ranks: int, quick: bool,
) -> Any:  # fmt: skip
    from shardmeter.scenario.catalog import load_catalog
    from shardmeter.study import measure as study

    if budget is not None and not math.isfinite(budget):
        raise click.BadParameter(f"{budget} is no time", param_hint="--budget")
    part = None if like is None else load_catalog(tuple(map(Path, catalogs))).accelerator(like)
    if source is not None:
        return study.of(study.read(Path(source)), name, part)
    with counter("timing") as report:
        return study.measure(
            device,
            quick=quick,
            budget=budget,
            threads=threads,
            clock=clock,
            ranks=ranks,
            name=name,
            like=part,
            report=report,
        )
