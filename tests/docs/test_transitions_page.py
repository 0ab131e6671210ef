"""The page on transitions names every regime with its terms."""

from pathlib import Path

from shardmeter.study.transitions import KINDS
from shardmeter.study.transitions.regimes import OF_TERM, REGIMES

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "transitions.md").read_text(encoding="utf-8")


def test_it_names_every_regime_term_and_kind():
    assert all(name in PAGE for name in (*REGIMES, *KINDS))
    table = PAGE[PAGE.index("| regime | terms |") : PAGE.index("What compute loses")]
    assert [term for term in OF_TERM if term not in table] == []
