"""The order of the pages: what the home page of the documentation lists, and what the site has at its side."""

from __future__ import annotations

import re
from collections.abc import Collection
from pathlib import Path

ROOT = Path(__file__).parent.parent
HOME = "docs/README.md"
SECTIONS: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("Begin", ("README.md", "docs/tutorial*.md", "docs/scenario.md", "docs/gallery.md", "docs/ui*.md", "docs/report*.md")),
    ("How to", ("docs/how-to*.md", "docs/how-to/index*.md", "docs/how-to/*.md")),
    ("Worked studies", (
            "docs/studies*.md", "docs/studies/index*.md", "docs/studies/one-*.md", "docs/studies/two-*.md", "docs/studies/three-*.md",
            "docs/studies/*.md",
        )),
    (
        "Questions",
        (
            "docs/planning.md", "docs/front.md", "docs/scale-across.md", "docs/returns.md", "docs/transitions.md", "docs/tradeoffs.md",
            "docs/sensitivity.md", "docs/doctor.md", "docs/audit.md", "docs/diff.md", "docs/sweep.md", "docs/inference.md",
        ),
    ),
    ("The whole run", ("docs/loss.md", "docs/failures.md", "docs/money.md")),
    (
        "Over several islands",
        (
            "docs/islands.md", "docs/sync.md", "docs/methods.md", "docs/wan.md", "docs/network.md", "docs/long-links.md",
            "docs/zero-order.md",
        ),
    ),
    (
        "Your files, your machines",
        ("docs/config.md", "docs/import-export.md", "docs/logs.md", "docs/calibration.md", "docs/measure.md", "docs/validate.md", "docs/lab*.md"),
    ),
    (
        "How far to trust it",
        (
            "docs/accuracy.md", "docs/geo.md", "docs/runs.md", "docs/curves.md", "docs/cross-site.md", "docs/thresholds.md",
            "docs/zoo.md", "docs/hardening.md", "docs/comparison*.md",
        ),
    ),
    (
        "Reference",
        (
            "docs/commands.md", "docs/formulas.md", "docs/formulas/*.md", "docs/catalog.md", "docs/catalog/*.md", "ARCHITECTURE.md",
            "CONTRIBUTING.md", "CHANGELOG.md",
        ),
    ),
)  # fmt: skip
"""Sections with their pages in order: a name must be there, a pattern may find none; a page belongs to the first that finds it."""
UNDER = {
    "docs/how-to/index.md": "docs/how-to/",
    "docs/studies/index.md": "docs/studies/",
    "docs/formulas.md": "docs/formulas/",
    "docs/catalog.md": "docs/catalog/",
}
"""Pages that hold others: the other pages of a folder stand below them, where the page is there."""
TITLE = re.compile(r"^# (.+)$", re.MULTILINE)


def sections(root: Path = ROOT) -> dict[str, tuple[str, ...]]:
    """The pages of every section that has some, as paths below the root. Raises SystemExit for a page that is in none, and for a name
    that is no page."""
    placed: dict[str, tuple[str, ...]] = {}
    seen = {HOME}
    missing = []
    for title, patterns in SECTIONS:
        own: list[str] = []
        for pattern in patterns:
            found = sorted(path.relative_to(root).as_posix() for path in root.glob(pattern))
            own += [page for page in found if page not in {*seen, *own}]
            if not found and "*" not in pattern:
                missing.append(f"{pattern}: no such page")
        seen |= set(own)
        if own:
            placed[title] = tuple(own)
    there = {path.relative_to(root).as_posix() for path in [*root.glob("*.md"), *root.glob("docs/**/*.md")]}
    missing += [f"{page}: in no section" for page in sorted(there - seen)]
    if missing:
        raise SystemExit("\n".join([*missing, "(the order of the pages is in scripts/site_map.py)"]))
    return placed


def held(page: str, pages: Collection[str]) -> bool:
    """Whether a page stands below another one of these."""
    return any(page.startswith(folder) and page != over and over in pages for over, folder in UNDER.items())


def title(page: str, root: Path = ROOT) -> str:
    """What a page calls itself. Raises SystemExit for one without a title."""
    found = TITLE.search((root / page).read_text(encoding="utf-8"))
    if found is None:
        raise SystemExit(f"{page}: has no title")
    return found[1]
