"""Builds the documentation as a site: the pages of the repository as they are, in the order of `site_map`, into site/ or the folder that is
named. Needs no network; a warning is an error, and so is a link that leads nowhere or a page that would load something from elsewhere.

Sphinx builds it, because it is kept, warns of links between pages and of pages in no list, and has a search that works from files; MyST reads
our Markdown, Furo lays it out without fonts or scripts of others.
"""

from __future__ import annotations

import os
import re
import shutil
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from docs_home import called
from site_links import problems
from site_map import HOME, ROOT, UNDER, held, sections

OUT = ROOT / "site"
LOOK = ROOT / "scripts" / "site"
LINK = re.compile(r"(\]\()(?!https?://|mailto:|#)([^)#\s]+)(#[^)\s]*)?(\))")
FENCE = re.compile(r"^ {0,3}(```|~~~)")
SETTINGS: dict[str, Any] = {
    "project": "ShardMeter",
    "copyright": "",
    "language": "en",
    "extensions": ["myst_parser"],
    "myst_heading_anchors": 6,
    "html_theme": "furo",
    "html_title": "ShardMeter",
    "html_static_path": ["_look"],
    "html_css_files": ["site.css"],
    "html_copy_source": False,
    "html_show_sourcelink": False,
    "html_show_copyright": False,
    "html_use_index": False,
    "toc_object_entries": False,
}


def place(page: str) -> str:
    """Where a page or a file of the repository stands in the site: pages of docs/ at the top, the home page as its index."""
    if page == HOME:
        return "index.md"
    if page.startswith("docs/"):
        return page.removeprefix("docs/")
    return page.lower() if page.endswith(".md") and "/" not in page else page


def relinked(text: str, page: str, needed: Callable[[str], None]) -> str:
    """A page with its links as they are in the site; `needed` is told every file that one leads to."""

    def moved(found: re.Match[str]) -> str:
        target = os.path.normpath(Path(page).parent / found[2])
        needed(target)
        there = os.path.relpath(place(target), Path(place(page)).parent)
        return f"{found[1]}{there}{found[3] or ''}{found[4]}"

    lines, fenced = [], False
    for line in text.split("\n"):
        fenced ^= bool(FENCE.match(line))
        lines.append(line if fenced else LINK.sub(moved, line))
    return "\n".join(lines)


def stage(folder: Path) -> None:
    """Copy every page, and what pages link to, into a folder as the site has them."""
    placed = sections()
    pages = {HOME, *(page for own in placed.values() for page in own)}
    files: set[str] = set()
    for page in sorted(pages):
        text = relinked((ROOT / page).read_text(encoding="utf-8"), page, files.add)
        if page == HOME:
            text += "".join(_contents(name, own) for name, own in placed.items())
        elif page in UNDER:
            text += _contents(
                "", [one for own in placed.values() for one in own if one.startswith(UNDER[page]) and one != page]
            )
        _write(folder / place(page), text)
    for file in sorted(files - pages):
        if (ROOT / file).is_file():
            (folder / place(file)).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(ROOT / file, folder / place(file))
    shutil.copytree(LOOK, folder / "_look")


def _contents(caption: str, pages: Sequence[str]) -> str:
    """A list of pages for the side of the site, under a caption; without one, of those below the page that it stands on."""
    own = [page for page in pages if not (caption and held(page, pages))]
    entries = "\n".join(f"{called(page)} </{place(page).removesuffix('.md')}>" for page in own)
    said = f":caption: {caption}\n" if caption else ""
    return f"\n```{{toctree}}\n:hidden:\n{said}\n{entries}\n```\n"


def _write(file: Path, text: str) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text, encoding="utf-8")


def build(out: Path) -> int:
    """Build the site into a folder, in place of what is there. The exit code: 1 with every warning on standard error."""
    with tempfile.TemporaryDirectory() as scratch:
        source, made = Path(scratch) / "pages", Path(scratch) / "html"
        stage(source)
        wrong = html(source, made)
        if not wrong:
            shutil.rmtree(out, ignore_errors=True)
            shutil.copytree(made, out)
    return int(wrong)


def html(source: Path, made: Path) -> bool:
    """Turn staged pages into a site; whether anything is wrong with it, which is told on standard error."""
    from pygments.lexers.special import TextLexer
    from sphinx.application import Sphinx
    from sphinx.util.docutils import docutils_namespace

    with tempfile.TemporaryDirectory() as doctrees, docutils_namespace():
        app = Sphinx(
            source, None, made, doctrees, "html", SETTINGS, status=None, warning=sys.stderr, warningiserror=True
        )
        app.add_lexer("csv", TextLexer)
        app.build()
    (made / ".buildinfo").unlink(missing_ok=True)
    shutil.rmtree(made / "_sources", ignore_errors=True)
    wrong = problems(made)
    for problem in wrong:
        print(problem, file=sys.stderr)
    return bool(app.statuscode or wrong)


def main() -> int:
    """Build into the folder that is named, or site/."""
    out = Path(sys.argv[1]) if len(sys.argv) > 1 else OUT
    if out.exists() and any(out.iterdir()) and not (out / "searchindex.js").exists():
        print(f"{out}: holds something that is no site; name another folder", file=sys.stderr)
        return 2
    code = build(out)
    if not code:
        print(f"{len(list(out.rglob('*.html')))} pages in {out}: open {out / 'index.html'}")
    return code


if __name__ == "__main__":
    sys.exit(main())
