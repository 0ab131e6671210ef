"""Writes docs/README.md, the home page of the documentation: the questions of the README, each with its page, and all pages in order; `--check`
fails when it is not what would be written."""

from __future__ import annotations

import re
import sys

from pages import kept
from site_map import HOME, ROOT, held, sections, title

ROW = re.compile(r"^\| ([^|]+\?) \| (.+) \|$", re.MULTILINE)
COMMAND = re.compile(r"`([a-z]+)([^`]*)`")
ANSWERS = {
    "predict": "scenario.md",
    "plan": "planning.md",
    "plan --scale-across": "scale-across.md",
    "solve": "commands.md#solve",
    "explain": "formulas.md",
    "import": "import-export.md",
    "infer": "inference.md",
    "validate": "accuracy.md",
    "calibrate": "calibration.md",
    "measure": "measure.md",
    "catalog": "catalog.md",
}
"""The page of a command, where it is not the one of its own name."""
HEAD = """<!-- written by `make docs` from the README's questions and the pages' titles; do not edit -->

# ShardMeter

How fast will a transformer train on these GPUs with this sharding, will it fit, how long will it take and what will it cost?
ShardMeter answers before you rent anything. [Install it and ask once]({readme}), then find your question here.

## What do you ask?

| you ask | command | page |
| --- | --- | --- |
"""
NAMES = {"README.md": "Install, ask, read an answer", "docs/catalog.md": "Catalog: what can be named"}
"""Pages that are called something else here than they call themselves."""


def page() -> str:
    """The whole page."""
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    rows = [f"| {asks} | {command} | {_answer(command)} |" for asks, command in ROW.findall(readme)]
    parts = [HEAD.format(readme="../README.md") + "\n".join(rows), "", "## All pages", ""]
    for name, pages in sections().items():
        parts += [f"### {name}", ""]
        parts += [f"* [{called(one)}]({_from_docs(one)})" for one in pages if not held(one, pages)]
        parts.append("")
    return "\n".join(parts)


def called(one: str) -> str:
    """What a page is called in a list."""
    return NAMES.get(one) or title(one)


def _answer(command: str) -> str:
    """The page that a command of the README is explained on. Raises SystemExit for one without."""
    found = COMMAND.search(command)
    if found is None:
        raise SystemExit(f"README.md: no command in {command!r}")
    word, rest = found[1], found[2]
    key = next((key for key in ANSWERS if " " in key and key.split()[0] == word and key.split()[1] in rest), word)
    page = ANSWERS.get(key, f"{key}.md")
    file = ROOT / "docs" / page.partition("#")[0]
    if not file.exists():
        raise SystemExit(f"README.md asks `{word}`, which has no page: name one in scripts/docs_home.py")
    shown = f"Commands: {word}" if "#" in page else title(f"docs/{page}")
    return f"[{shown}]({page})"


def _from_docs(one: str) -> str:
    return one.removeprefix("docs/") if one.startswith("docs/") else f"../{one}"


def main() -> int:
    """Write the page, or check it."""
    return kept(ROOT / HOME, page())


if __name__ == "__main__":
    sys.exit(main())
