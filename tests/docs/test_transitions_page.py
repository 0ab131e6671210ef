"""The page on transitions shows what the command prints, and names every regime with its terms."""

import re
import shlex
from pathlib import Path

from shardmeter.cli import main
from shardmeter.study.transitions import KINDS
from shardmeter.study.transitions.regimes import OF_TERM, REGIMES

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "transitions.md").read_text(encoding="utf-8")


def test_its_example_is_what_is_printed(capsys, monkeypatch):
    monkeypatch.delenv("COLUMNS", raising=False)
    monkeypatch.delenv("FORCE_COLOR", raising=False)
    monkeypatch.chdir(ROOT)
    shown = re.search(r"## Example\n.*?```console\n\$ shardmeter (.*?)\n(.*?)```", PAGE, re.DOTALL)
    assert shown is not None
    assert main(shlex.split(shown[1])) == 0
    assert capsys.readouterr().out == shown[2]


def test_it_names_every_regime_term_and_kind():
    assert all(name in PAGE for name in (*REGIMES, *KINDS))
    table = PAGE[PAGE.index("| regime | terms |") : PAGE.index("What compute loses")]
    assert [term for term in OF_TERM if term not in table] == []
