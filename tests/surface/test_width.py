"""No line of an answer is wider than the terminal that it is read on; a pipe is given whole sentences."""

from __future__ import annotations

import contextlib
import io
import re
from pathlib import Path

import pytest

from shardmeter.cli import main

E = "examples/llama-8b-64xh100.yaml"
FLEET = "examples/three-clouds-70b.yaml"
COMMANDS = (
    f"predict {E}",
    f"predict {FLEET}",
    "predict examples/spot-fleet.yaml",
    "predict examples/does-not-fit.yaml",
    f"explain {E}",
    f"solve micro-batch {E}",
    f"sweep {E} --over plan.tp=1,2,4 --over run.seq_len=4096,8192",
    f"returns {FLEET}",
    f"sensitivity {E}",
    f"tradeoffs {E}",
    f"diff {E} examples/llama-70b-tp8-pp4.yaml",
    f"doctor {E} --measured tokens_per_s_per_gpu=2100",
    f"infer {FLEET}",
    f"audit {E} --claim mfu=52%",
    f"front {E}",
    "catalog accelerators",
    "catalog stacks",
    "catalog instances",
    "catalog models llama-3.1-8b",
)
WORDS = re.compile(r"\x1b\[[0-9;]*m")


class Terminal(io.StringIO):
    """Somebody reads it."""

    encoding = "utf-8"

    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize("columns", [100, 80])
@pytest.mark.parametrize("command", COMMANDS)
def test_no_line_is_wider_than_the_terminal(monkeypatch: pytest.MonkeyPatch, command: str, columns: int) -> None:
    monkeypatch.chdir(Path(__file__).parents[2])
    monkeypatch.setenv("COLUMNS", str(columns))
    monkeypatch.setenv("TERM", "xterm-256color")
    out = Terminal()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(io.StringIO()):
        code = main(command.split())
    lines = WORDS.sub("", out.getvalue()).splitlines()
    assert code in (0, 1)
    assert len(lines) > 3
    assert [line for line in lines if len(line) > columns] == []
