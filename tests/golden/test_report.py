"""One whole report as text: what moves in it is shown by the difference and, if it is meant, blessed (`make bless`)."""

from __future__ import annotations

import bless_report


def test_the_report_stands() -> None:
    text = bless_report.golden()
    assert text == bless_report.GOLDEN.read_text(encoding="utf-8"), "if this is meant: make bless"
    page = bless_report.PAGE.read_text(encoding="utf-8")
    assert bless_report.shown(text) == page
    assert text.partition("\n## 2. ")[0] in page
