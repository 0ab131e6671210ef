"""Writes what each example prints beside it (`examples/NAME.out`), the first of them into README.md, a comparison into docs/diff.md, and into
the pages of EXECUTED what the commands print that they show."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent
README = ROOT / "README.md"
SHOWN = "llama-8b-64xh100"
BLOCK = re.compile(r"(<!-- example: written by `make docs` -->\n).*?(<!-- end of example -->)", re.DOTALL)


SERVED = {"three-clouds-70b": ("--compare", "--crossover")}
"""Examples that are served too, with the options for it: `examples/NAME.infer.out`."""
COMPARED = {
    "unreliable-every-step": ("examples/unreliable-diloco.yaml",),
    "spot-fleet": ("--set-b", "fleet.islands.iowa.spot=false", "--set-b", "fleet.islands.iowa.preemption=null"),
}
"""Examples that are compared, each with what: `examples/NAME.diff.out`."""
COMPARISON = ROOT / "docs" / "diff.md"
EXPLAINED = "unreliable-every-step"
"""The comparison of that page."""

EXECUTED = ("doctor", "front", "import-export", "logs", "returns", "scale-across", "sensitivity", "tradeoffs", "transitions")
"""Pages of docs/ that show commands with what these print."""
SHOWS = re.compile(r"```console\n\$ (shardmeter \w+ examples/[^\n]*)\n(?!\$)(.+?)```", re.DOTALL)
"""A block that shows one command for an example, and all that it prints."""


def printed(path: Path, name: str = "predict", options: tuple[str, ...] = ()) -> str:
    """What a command prints for a file, off a terminal."""
    plain = {key: value for key, value in os.environ.items() if key not in {"COLUMNS", "FORCE_COLOR"}}
    command = [sys.executable, "-m", "shardmeter", name, str(path.relative_to(ROOT)), *options]
    environment = {**plain, "PYTHONIOENCODING": "utf-8"}
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, env=environment, check=False)
    if done.returncode not in (0, 1):
        raise SystemExit(f"{path.name}: {done.stderr.strip()}")
    return done.stdout


def main() -> int:
    """Write every output."""
    for path in sorted((ROOT / "examples").glob("*.yaml")):
        text = printed(path)
        path.with_suffix(".out").write_text(text, encoding="utf-8")
        if path.stem in SERVED:
            served = printed(path, "infer", SERVED[path.stem])
            path.with_suffix(".infer.out").write_text(served, encoding="utf-8")
        if path.stem in COMPARED:
            compared = printed(path, "diff", COMPARED[path.stem])
            path.with_suffix(".diff.out").write_text(compared, encoding="utf-8")
            if path.stem == EXPLAINED:
                put(COMPARISON, command("diff", path, COMPARED[path.stem]), compared)
        if path.stem == SHOWN:
            put(README, command("predict", path), text)
    for name in EXECUTED:
        page = ROOT / "docs" / f"{name}.md"
        page.write_text(executed(page.read_text(encoding="utf-8")), encoding="utf-8")
    return 0


def executed(page: str) -> str:
    """A page with what each command that it shows prints."""

    def fresh(found: re.Match[str]) -> str:
        _, name, file, *options = shlex.split(found[1])
        return f"```console\n$ {found[1]}\n{printed(ROOT / file, name, tuple(options))}```"

    return SHOWS.sub(fresh, page)


def command(name: str, path: Path, options: tuple[str, ...] = ()) -> str:
    """A command as it stands on a page."""
    return " ".join(("shardmeter", name, f"examples/{path.name}", *options))


def put(page: Path, line: str, text: str) -> None:
    """Write a command and what it prints into the place for it on a page."""
    shown = f"```console\n$ {line}\n{text}```"
    made = BLOCK.sub(lambda found: f"{found[1]}\n{shown}\n\n{found[2]}", page.read_text(encoding="utf-8"))
    page.write_text(made, encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main())
