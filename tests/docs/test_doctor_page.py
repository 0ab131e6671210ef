"""The page of diagnoses names all that can be measured."""

from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "doctor.md").read_text(encoding="utf-8")


def test_every_figure_that_can_be_measured_is_on_the_page():
    from shardmeter.study.doctor.measured import QUANTITIES

    table = PAGE[PAGE.index("## What can be measured") : PAGE.index("## How to read it")]
    for one in QUANTITIES:
        assert f"`{one.name}`" in table or one.name.startswith("tokens_per_s_per_"), one.name
