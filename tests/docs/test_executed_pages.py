"""The tutorial, the recipes and the studies are run from top to bottom, and print what stands there; `make docs` rewrites them."""

import re
from pathlib import Path

import pytest

import executed_pages

ROOT = Path(__file__).parents[2]
PAGES = executed_pages.pages_run()
CASES = [pytest.param(page, id=f"{page.parent.name}-{page.stem}") for page in PAGES]
STUDIES = [page for page in PAGES if page.parent.name == "studies" and page.stem != "index"]
PARTS = (
    "**Question.**",
    "First answer",
    "What surprised",
    "What would change the decision",
    "How sure, and what is not",
)


def outputs(text: str) -> str:
    """What a page's commands print, and what they are."""
    return "\n".join(re.findall(r"```(?:console|text|python)\n(.*?)```", text, re.DOTALL))


def quoted(text: str) -> list[str]:
    """What is bold and has a digit, but for numbered heads."""
    bold = [re.sub(r"\s+", " ", one) for one in re.findall(r"\*\*(.+?)\*\*", text, re.DOTALL)]
    return [one for one in bold if re.search(r"\d", one) and not re.match(r"\d\. ", one)]


@pytest.mark.parametrize("page", CASES)
def test_it_prints_what_is_shown(page):
    text = page.read_text(encoding="utf-8")
    assert executed_pages.fresh(page) == text


@pytest.mark.parametrize("page", CASES)
def test_numbers_that_the_text_takes_from_an_answer_stand_in_it(page):
    """What is bold and has a digit is quoted: without this a number of the text would outlive the answer."""
    text = page.read_text(encoding="utf-8")
    prose = re.sub(r"```.*?```", "", text, flags=re.DOTALL)
    shown = re.sub(r"\s+", " ", outputs(text))
    assert [one for one in quoted(prose) if one not in shown] == []


@pytest.mark.parametrize("page", [pytest.param(page, id=page.stem) for page in STUDIES])
def test_a_study_quotes_its_answers_and_has_every_part(page):
    text = page.read_text(encoding="utf-8")
    assert [part for part in PARTS if part not in text] == []
    assert len(quoted(text)) >= 5
    assert "../figures/studies/" in text


def test_every_page_is_in_the_index_of_its_folder():
    for page in PAGES:
        if page.parent.name in {"how-to", "studies"} and page.stem != "index":
            assert f"]({page.name})" in (page.parent / "index.md").read_text(encoding="utf-8"), page


def test_every_scenario_of_the_studies_is_asked_about():
    pages = "\n".join(page.read_text(encoding="utf-8") for page in PAGES)
    for path in sorted((ROOT / "examples" / "studies").glob("*.yaml")):
        name = f"examples/studies/{path.name}"
        assert f"$ shardmeter predict {name}" in pages
        assert f"shardmeter predict {name}" in path.read_text(encoding="utf-8")


def test_parts_of_an_answer_are_cut_where_their_titles_stand():
    printed = "first\n\nSpeed\n  a\n  b\n\nMemory: all\n  c\n\nEnd\n  d\n"
    assert executed_pages.kept(printed, None, "x") == printed
    assert (
        executed_pages.kept(printed, "Speed:1; Memory: all", "x") == "…\n\nSpeed\n  a\n  …\n\nMemory: all\n  c\n\n…\n"
    )
    assert executed_pages.kept(printed, "head", "x") == "first\n\n…\n"
    with pytest.raises(executed_pages.Stale, match="Fast"):
        executed_pages.kept(printed, "head; Fast", "x")


@pytest.mark.parametrize(
    ("block", "message"),
    [
        ("```console\n$ rm -r x\n```", "rm is not run here"),
        ("```console\n$ shardmeter predict --model nothing --gpus 8xH100-SXM5-80GB\n```", "exit code 2"),
        ("<!-- refused -->\n```console\n$ shardmeter predict --model gpt2 --gpus 1xH100-SXM5-80GB\n```", "exit code 0"),
    ],
)
def test_a_page_that_cannot_be_run_is_told(block, message, tmp_path):
    page = tmp_path / "page.md"
    page.write_text(block + "\n", encoding="utf-8")
    with pytest.raises(executed_pages.Stale, match=message):
        executed_pages.fresh(page)


def test_the_error_with_the_source_left_out_stands_first():
    page = (ROOT / "docs" / "accuracy.md").read_text(encoding="utf-8")
    heads = [line for line in page.splitlines() if "source left out |" in line]
    assert len(heads) >= 5
    assert all(line.split(" | ")[2] == "source left out" for line in heads)
