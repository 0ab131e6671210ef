"""Writes docs/gallery.md and its pictures (docs/figures/gallery): what commands draw, each picture beside its command. `--check` only compares the
page, and tells pictures that are missing or on no page: drawing all of them takes a minute or two."""

from __future__ import annotations

import shlex
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from pages import kept

ROOT = Path(__file__).parent.parent
PAGE = ROOT / "docs" / "gallery.md"
FIGURES = ROOT / "docs" / "figures" / "gallery"
CHECKED = "--check" in sys.argv[1:]


@dataclass(frozen=True, slots=True)
class Drawn:
    """Pictures of one command."""

    name: str
    says: str
    command: str
    """As behind `shardmeter`; `{file}` is the picture."""
    page: str
    slugs: tuple[str, ...] = ("",)
    """Which of the pictures are shown, where it draws several."""

    def files(self) -> tuple[str, ...]:
        """Names of the pictures that are shown."""
        return tuple(f"{self.name}{slug and '-'}{slug}.svg" for slug in self.slugs)


GALLERY = (
    Drawn(
        "gpus", "What more GPUs buy", "returns examples/llama-8b-64xh100.yaml --axis gpus --plot {file}", "returns.md", ("rate", "cost"),
    ),
    Drawn("islands", "What one more home buys", "returns examples/home-workers.yaml --axis islands --plot {file}", "returns.md", ("rate",)),
    Drawn(
        "regimes", "What rules a round over three continents, by the length of rounds and the width of lines",
        "transitions examples/intellect-1.yaml --x H --y bandwidth --plot {file}", "transitions.md", ("regimes",),
    ),
    Drawn(
        "regime", "What rules a step, by the bandwidth of its fabric", "transitions examples/llama-8b-64xh100.yaml --plot {file}", "transitions.md",
        ("along-fabric-bandwidth",),
    ),
    Drawn("tradeoffs", "Throughput against loss, for rounds of 10 to 1,000 steps",
        "tradeoffs examples/intellect-1.yaml --over plan.sync.sync_every=10,30,100,300,1000 --plot {file}", "tradeoffs.md"),
    Drawn("sensitivity", "Which numbers the dollars hang on", "sensitivity examples/llama-8b-64xh100.yaml --of run.cost_usd --plot {file}", "sensitivity.md"),
    Drawn("front", "Days against dollars", "front examples/spot-fleet.yaml --budget '$50k' --plot {file}", "front.md"),
    Drawn("doctor", "What would explain a measured rate", "doctor examples/llama-8b-64xh100.yaml --measured tokens_per_s_per_gpu=5000 --plot {file}",
        "doctor.md", ("reach",)),
    Drawn("audit", "A claimed rate as an MFU, in every convention", "audit examples/llama-8b-64xh100.yaml --claim tokens_per_s=529882 --plot {file}", "audit.md"),
    Drawn("crossover", "Two ways to serve, and where they take as long", "infer examples/three-clouds-70b.yaml --prompt 4096 --crossover --plot {file}", "inference.md"),
    Drawn("log", "The pace of a run by its log", "import examples/logs/torchtitan.log --gpus 64xH100-SXM5-80GB --plot {file}", "logs.md"),
    Drawn("rounds", "Rounds over three clouds: who waits for whom", "trace examples/three-clouds-70b.yaml --svg {file}", "islands.md"),
)  # fmt: skip
HEAD = """# Gallery

Written by `make docs`, which runs each of these commands; do not edit. `--plot FILE` draws where there is something to draw: an `.svg`, a `.png`, or an
`.html` whose points tell their numbers. In a terminal the same figures are drawn with letters.

| picture | command |
| --- | --- |
"""
NEXT = """
## What now

* Draw your own: `--plot` of [the commands](commands.md) above, for a scenario of [your own](scenario.md).
* [Which question has which command](README.md).
"""


def page() -> str:
    """The whole page."""
    rows = []
    for one in GALLERY:
        pictures = " ".join(f"![{one.says}](figures/gallery/{file})" for file in one.files())
        command = one.command.format(file=f"{one.name}.svg")
        rows.append(f"| {pictures} | [{one.says}]({one.page}): `shardmeter {command}` |")
    return HEAD + "\n".join(rows) + "\n" + NEXT


def draw(one: Drawn) -> None:
    """Run a command and keep those of its pictures that are shown. Raises SystemExit with what it says where it does not draw them."""
    with tempfile.TemporaryDirectory() as folder:
        words = shlex.split(one.command.format(file=f"{folder}/{one.name}.svg"))
        done = subprocess.run(
            [sys.executable, "-m", "shardmeter", *words], capture_output=True, text=True, cwd=ROOT, check=False
        )
        lacking = [file for file in one.files() if not (Path(folder) / file).exists()]
        if done.returncode not in (0, 1) or lacking:
            raise SystemExit(f"shardmeter {one.command}: {done.stderr.strip()}; not drawn: {', '.join(lacking)}")
        for file in one.files():
            (FIGURES / file).write_bytes((Path(folder) / file).read_bytes())


def problems() -> list[str]:
    """Pictures that the page shows and that are not there, and the other way round."""
    shown = {file for one in GALLERY for file in one.files()}
    there = {path.name for path in FIGURES.glob("*")}
    return [f"figures/gallery/{file}: missing" for file in sorted(shown - there)] + [
        f"figures/gallery/{file}: on no page" for file in sorted(there - shown)
    ]


def main() -> int:
    """Draw and write, or check."""
    if not CHECKED:
        FIGURES.mkdir(parents=True, exist_ok=True)
        for one in GALLERY:
            draw(one)
        for stale in {path.name for path in FIGURES.glob("*")} - {file for one in GALLERY for file in one.files()}:
            (FIGURES / stale).unlink()
    wrong = problems()
    for problem in wrong:
        print(problem, file=sys.stderr)
    return max(kept(PAGE, page()), int(bool(wrong)))


if __name__ == "__main__":
    sys.exit(main())
