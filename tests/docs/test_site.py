"""The site: every page has its place, every formula and row its entry, every link leads somewhere, and nothing is loaded from elsewhere."""

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import click
import pytest

import build_site
import docs_home
import gallery
import site_links
import site_map
from formula_book import slug
from shardmeter.cli import cli
from shardmeter.core.formula import REGISTRY
from shardmeter.scenario.catalog import load_catalog
from shardmeter.scenario.tables import KINDS
from worked_numbers import modules

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
NAMED = [
    pattern
    for _, patterns in site_map.SECTIONS
    for pattern in patterns
    if "*" not in pattern and pattern[:5] == "docs/"
]


def text(page):
    return (ROOT / page).read_text(encoding="utf-8")


def test_every_formula_has_an_entry_with_a_worked_number():
    modules()
    assert len(REGISTRY) > 100
    front = text("docs/formulas.md")
    for name, formula in REGISTRY.items():
        if not formula.body.__module__.startswith("shardmeter."):  # of another test in this process
            continue
        page = f"formulas/{slug(formula.body.__module__)}.md"
        entry = re.search(rf"^## {name}\n(.*?)(?=^## )", text(f"docs/{page}"), re.MULTILINE | re.DOTALL)
        assert entry is not None, name
        for part in ("**Leaves out:**", "Source: ", f"def {name}(", "One call ", "| **result** |"):
            assert part in entry[1], (name, part)
        for parameter, unit in formula.units.items():
            assert f"| {'**result**' if parameter == 'return' else f'`{parameter}`'} | {unit} | " in entry[1], name
        assert f"]({page}#{name})" in front, name
        assert f"#{name})" in text("docs/formulas/sources.md"), name


@pytest.mark.parametrize("kind", KINDS)
def test_every_row_of_the_catalog_is_on_its_page_with_source_and_date(kind):
    rows = load_catalog().rows(kind)
    page = text(f"docs/catalog/{kind.replace('_', '-')}.md")
    body, sources = page.split("## Sources")
    said = re.findall(r"^\d+\. (.+)$", sources, re.MULTILINE)
    found = {line.split(" | ")[0].strip("|` "): line for line in body.splitlines() if line.startswith("| ")}
    for row in rows:
        number, *date = found[row["name"]].removesuffix(" |").split(" | ")[-2 if "retrieved" in row else -1 :]
        assert said[int(number) - 1].replace("\\", "") == row["source"]
        assert date == ([row["retrieved"]] if "retrieved" in row else [])


def test_every_page_has_its_place_and_the_home_page_lists_it():
    home = text(site_map.HOME)
    assert home == docs_home.page()
    pages = [page for own in site_map.sections().values() for page in own]
    assert len(pages) == len(set(pages))
    listed = [page for page in pages if not site_map.held(page, pages)]
    assert [page for page in listed if f"]({os.path.relpath(page, 'docs')})" not in home] == []


def test_a_page_in_no_section_and_a_name_without_a_page_are_told(tmp_path):
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "stray.md").write_text("# Stray\n", encoding="utf-8")
    with pytest.raises(SystemExit, match=r"docs/stray\.md: in no section") as told:
        site_map.sections(tmp_path)
    assert "README.md: no such page" in str(told.value)


@pytest.mark.parametrize("page", [*NAMED, "docs/formulas/gemm.md", "docs/catalog/models.md"])
def test_every_page_ends_with_what_now(page):
    last = text(page).rpartition("\n## ")[2]
    assert last.startswith("What now\n")
    assert len(re.findall(r"^\* .*\]\(", last, re.MULTILINE)) >= 2


def test_pictures_and_commands_of_the_gallery_are_there(monkeypatch):
    monkeypatch.chdir(ROOT)
    assert gallery.problems() == []
    assert text("docs/gallery.md") == gallery.page()
    shardmeter = click.Context(
        cli, info_name="shardmeter", **cli.context_settings
    )  # a command keeps its first parent's names of help
    for one in gallery.GALLERY:
        word, *arguments = shlex.split(one.command.format(file="picture.svg"))
        assert cli.commands[word].make_context(word, arguments, parent=shardmeter).params
        assert (DOCS / one.page).exists()


def test_links_are_as_the_site_has_its_pages():
    needed: list[str] = []
    page = "a [b](../README.md#c), ![d](figures/e.svg) and [f](https://g.org/h.md)\n```\n[i](j.md)\n```\n[k](wan.md)"
    assert build_site.relinked(page, "docs/catalog/models.md", needed.append) == page.replace(
        "../README.md#c", "../index.md#c"
    )
    assert needed == ["docs/README.md", "docs/catalog/figures/e.svg", "docs/catalog/wan.md"]
    assert build_site.relinked("[a](docs/wan.md)", "CHANGELOG.md", needed.append) == "[a](wan.md)"


BROKEN = {
    '<a href="b.html#there">x</a>': "",
    '<a href="b.html#gone">x</a>': "no such place",
    '<a href="#gone">x</a>': "no such place",
    '<a href="gone.html">x</a>': "no such file",
    '<a href="https://example.org/x">x</a>': "",
    '<a href="https://nowhere">x</a>': "no address",
    '<a href="ftp://example.org">x</a>': "no address",
    '<img src="https://example.org/x.png">': "would load",
    '<img src="gone.png">': "not there",
    '<img src="data:image/png;base64,AA==">': "",
    '<script src="//cdn.example.org/x.js"></script>': "would load",
    '<link rel="stylesheet" href="https://fonts.example.org/css">': "would load",
    '<p style="background: url(https://example.org/x.png)">': "would load",
    "<style>@import 'https://example.org/x.css';</style>": "would load",
}


@pytest.mark.parametrize("part", BROKEN)
def test_a_site_with_a_broken_link_or_a_load_from_elsewhere_is_told(part, tmp_path):
    (tmp_path / "a.html").write_text(part, encoding="utf-8")
    (tmp_path / "b.html").write_text('<h2 id="there">x</h2>', encoding="utf-8")
    found = site_links.problems(tmp_path)
    assert len(found) == bool(BROKEN[part])
    assert all(BROKEN[part] in one for one in found)


def test_styles_and_scripts_that_load_from_elsewhere_are_told(tmp_path):
    (tmp_path / "a.css").write_text("@font-face { src: url('https://fonts.example.org/a.woff2') }", encoding="utf-8")
    (tmp_path / "a.js").write_text('fetch("https://example.org/x.json")', encoding="utf-8")
    assert [one.split(":")[0] for one in site_links.problems(tmp_path)] == ["a.css", "a.js"]


@pytest.mark.site
def test_the_site_builds_and_finds_what_is_on_it(tmp_path):
    pytest.importorskip("sphinx")
    script = ROOT / "scripts" / "build_site.py"
    done = subprocess.run(
        [sys.executable, script, tmp_path / "site"], capture_output=True, text=True, cwd=ROOT, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert 'id="gemm-time"' in (tmp_path / "site" / "formulas" / "gemm.html").read_text(encoding="utf-8")
    assert "gemm_time" in (tmp_path / "site" / "searchindex.js").read_text(encoding="utf-8")


@pytest.mark.site
@pytest.mark.filterwarnings("ignore::PendingDeprecationWarning", "ignore::DeprecationWarning")
@pytest.mark.parametrize("line", ["[x](nowhere.md)", "[x](wan.md#nowhere)", "![x](nowhere.svg)"])
def test_a_warning_is_an_error(line, tmp_path, capsys):
    pytest.importorskip("sphinx")
    (tmp_path / "pages" / "_look").mkdir(parents=True)
    (tmp_path / "pages" / "_look" / "site.css").touch()
    (tmp_path / "pages" / "wan.md").write_text("# Lines\n", encoding="utf-8")
    page = f"# Home\n\n{line}\n\n```{{toctree}}\nwan\n```\n"
    (tmp_path / "pages" / "index.md").write_text(page, encoding="utf-8")
    assert build_site.html(tmp_path / "pages", tmp_path / "html")
    assert "nowhere" in capsys.readouterr().err
