"""The page of fronts: its Python as it runs."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "front.md").read_text(encoding="utf-8")


def test_the_python_of_the_page_runs(capsys, monkeypatch):
    import shardmeter

    monkeypatch.chdir(ROOT)
    block = re.search(r"```python\n(.*?)```", PAGE, re.DOTALL)
    assert block is not None
    exec(block[1], {"shardmeter": shardmeter})
    assert "8.0 nodes" in capsys.readouterr().out
