"""Every diagnosis on the page prints what stands there."""

import re
import shlex
from pathlib import Path

import pytest

from shardmeter.cli import main

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "doctor.md").read_text(encoding="utf-8")
SHOWN = re.findall(r"```console\n\$ (shardmeter doctor examples/[^\n]*)\n(.*?)```", PAGE, re.DOTALL)


@pytest.mark.parametrize(("command", "printed"), SHOWN, ids=range(len(SHOWN)))
def test_it_prints_what_is_shown(command, printed, capsys, monkeypatch):
    monkeypatch.chdir(ROOT)
    assert main(shlex.split(command)[1:]) == 0
    assert capsys.readouterr().out == printed


def test_every_figure_that_can_be_measured_is_on_the_page():
    from shardmeter.study.doctor.measured import QUANTITIES

    table = PAGE[PAGE.index("## What can be measured") : PAGE.index("## How to read it")]
    for one in QUANTITIES:
        assert f"`{one.name}`" in table or one.name.startswith("tokens_per_s_per_"), one.name
