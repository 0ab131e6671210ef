"""Writes the formula book (docs/formulas.md and a page for each module under docs/formulas) from the registry of `@formula`; `--check` fails
when a page is not what would be written.

Signatures, units and texts are those of the functions, their bodies the code that runs, numbers those of `worked_numbers`.
"""

from __future__ import annotations

import ast
import inspect
import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

from pages import kept_all
from shardmeter.core.formula import REGISTRY, Formula
from shardmeter.render import cells
from shardmeter.scenario.catalog import load_catalog
from worked_numbers import Worked, modules, worked

DOCS = Path(__file__).parent.parent / "docs"
FRONT, SYMBOLS, SOURCES = "formulas.md", "formulas/symbols.md", "formulas/sources.md"
WRITTEN = "Written by `make docs` from the formulas themselves; do not edit."
LONG = 45
"""Letters of a sentence that is a title as it is."""
LARGEST = 9
"""Numbers of an array that are all shown; of a larger one its least and its largest."""
MARK = re.compile(r"([*<\[\]])")
LABEL = re.compile(r"(?:(?<=\s)|^)(Leaves out): ?")
HEAD = f"""# Formula book

{WRITTEN}

Every price in an answer comes from one of these functions: {{count}} of them, in {{pages}} modules. Each has its arguments with their units, the code that
runs, what it leaves out, its source, and one worked number: a call that was made while a command answered, called again to see that the same
comes out. `shardmeter explain RUN.yaml --term NAME` shows the calls of your own run.

* [By symbol](formulas/symbols.md): which formulas take a quantity, or give one.
* [By source](formulas/sources.md): what rests on which paper.

Arguments are SI: seconds, bytes, FLOPs, watts, dollars; 1 is a count, a share or a ratio. A number may be a float or an array: of pairs of
islands, rows are parted by semicolons; of more than nine numbers the least and the largest are told.
"""
NEXT = """## What now

* [How a number of your own run comes about]({base}commands.md#explain): `shardmeter explain`.
* [What is checked against measured runs]({base}accuracy.md), and how well.
* [The rooms of the program]({base}../ARCHITECTURE.md): what calls these formulas.
"""


def pages() -> dict[Path, str]:
    """Every page of the book, by its file."""
    modules()
    found: dict[str, list[Formula]] = {}
    for formula in REGISTRY.values():
        found.setdefault(formula.body.__module__, []).append(formula)
    numbers = worked()
    texts = {f"formulas/{slug(name)}.md": _module(name, found[name], numbers) for name in found}
    texts |= {FRONT: _front(found), SYMBOLS: _symbols(), SOURCES: _sources()}
    return {DOCS / name: text for name, text in texts.items()}


def slug(module: str) -> str:
    """The page of a module: `shardmeter.physics.gemm` is `gemm`."""
    return module.rpartition(".")[2].strip("_").replace("_", "-")


def link(formula: Formula, base: str = "") -> str:
    """A link to the entry of a formula, from a page that reaches the others at `base`."""
    return f"[{formula.name}]({base}{slug(formula.body.__module__)}.md#{formula.name})"


def _front(found: Mapping[str, Sequence[Formula]]) -> str:
    parts = [HEAD.format(count=sum(map(len, found.values())), pages=len(found))]
    for name in sorted(found, key=slug):
        title, _ = _said(sys.modules[name])
        parts += [
            f"## [{title}](formulas/{slug(name)}.md)",
            "",
            _line(("formula", "gives", "what it is")),
            _line(["---"] * 3),
        ]
        parts += [_line((link(one, "formulas/"), one.units["return"], _first(one.doc))) for one in found[name]]
        parts.append("")
    return "\n".join([*parts, NEXT.format(base="")])


def _module(name: str, formulas: Sequence[Formula], numbers: Mapping[str, Worked]) -> str:
    module = sys.modules[name]
    title, rest = _said(module)
    file = f"src/{name.replace('.', '/')}.py"
    parts = [f"# {title}", f"{WRITTEN} All of `{file}`; the whole book: [formula book](../formulas.md).", *rest]
    for one in formulas:
        parts += [f"## {one.name}", *_entry(module, one, numbers[one.name])]
    return "\n\n".join([*parts, NEXT.format(base="../")])


def _said(module: ModuleType) -> tuple[str, list[str]]:
    """The first sentence of what a module says of itself as a title, a long one up to where it first pauses, and what follows it."""
    paragraphs = [" ".join(part.split()) for part in (inspect.getdoc(module) or "").split("\n\n")]
    first, _, rest = paragraphs[0].partition(". ")
    short = re.split(r"[:,] ", first, maxsplit=1)[0] if len(first) > LONG else first
    opening = rest if short == first else paragraphs[0]
    return _marked(short.rstrip(".:")), [_marked(part) for part in (opening, *paragraphs[1:]) if part]


def _entry(module: ModuleType, one: Formula, number: Worked) -> list[str]:
    rows = [_line(("argument", "unit", "worked number", "in SI")), _line(("---", "---", "---:", "---:"))]
    defaults = {name: parameter.default for name, parameter in inspect.signature(one.body).parameters.items()}
    for name, value in {**defaults, **number.arguments}.items():
        rows.append(_line((f"`{name}`", one.units[name], *_shown(value, one.units[name]))))
    rows.append(
        _line(
            ("**result**", one.units["return"], *(f"**{text}**" for text in _shown(number.value, one.units["return"])))
        )
    )
    return [
        *_paragraphs(one.doc),
        f"Source: {cited(one.cite)}",
        f"```python\n{code(module, one)}\n```",
        f"One call {number.says}:",
        "\n".join(rows),
    ]


def _paragraphs(doc: str) -> list[str]:
    found = []
    for part in doc.split("\n\n"):
        text = LABEL.sub(r"\n**\1:** ", _marked(" ".join(part.split())))
        found += [piece.strip() for piece in text.split("\n") if piece.strip()]
    return found


def _marked(text: str) -> str:
    """Text whose signs are no Markdown, but what stands in backticks."""
    parts = text.split("`")
    return "`".join(part if index % 2 else MARK.sub(r"\\\1", part) for index, part in enumerate(parts))


def cited(key: str) -> str:
    """A source in full."""
    source = load_catalog().citation(key)
    where = f", {_marked(source.where)}" if source.where else ""
    return f"{_marked(source.authors)}: *{_marked(source.title)}* ({source.year}){where}."


def code(module: ModuleType, one: Formula) -> str:
    """The function as it runs, without decorator and docstring, after the constants and before the private functions that it uses."""
    tree = ast.parse(inspect.getsource(module))
    lines = inspect.getsource(module).splitlines()
    functions = {node.name: node for node in tree.body if isinstance(node, ast.FunctionDef)}
    constants = {
        name: node for node in tree.body if isinstance(node, ast.Assign | ast.AnnAssign) for name in _targets(node)
    }
    wanted, queue = [], [one.name]
    while queue:
        name = queue.pop(0)
        wanted.append(name)
        used = {node.id: None for node in ast.walk(functions[name]) if isinstance(node, ast.Name)}
        queue += [
            other for other in used if other in functions and other not in REGISTRY and other not in [*wanted, *queue]
        ]
    names = {node.id for name in wanted for node in ast.walk(functions[name]) if isinstance(node, ast.Name)}
    said = dict.fromkeys(
        "\n".join(lines[node.lineno - 1 : node.end_lineno]) for name, node in constants.items() if name in names
    )
    blocks = [_function(functions[name], lines) for name in wanted]
    return "\n\n\n".join(["\n".join(said), *blocks] if said else blocks)


def _targets(node: ast.Assign | ast.AnnAssign) -> list[str]:
    targets = node.targets if isinstance(node, ast.Assign) else [node.target]
    return [found.id for target in targets for found in ast.walk(target) if isinstance(found, ast.Name)]


def _function(node: ast.FunctionDef, lines: Sequence[str]) -> str:
    body = node.body[1:] if ast.get_docstring(node) else node.body
    head = lines[node.lineno - 1 : node.body[0].lineno - 1]
    return "\n".join([*head, *lines[body[0].lineno - 1 : node.end_lineno]])


def _shown(value: Any, unit: str) -> tuple[str, str]:
    """A value as people read it, and as it enters."""
    if value is None or isinstance(value, str):
        return str(value), ""
    numbers = np.asarray(value, dtype=float)
    own = "" if unit == "1" else unit
    if numbers.size == 1:
        return cells.text(float(numbers.item()), own, exact=True), f"{numbers.item():.6g}"
    if numbers.size > LARGEST:
        ends = [float(np.nanmin(numbers)), float(np.nanmax(numbers))]
        low, high = (cells.text(one, own, exact=True) for one in ends)
        shape = " × ".join(map(str, numbers.shape))
        return (
            low if low == high else f"{low} to {high}"
        ), f"{shape}: {' to '.join(f'{one:.6g}' for one in dict.fromkeys(ends))}"
    rows = np.atleast_2d(numbers).tolist()
    read = "; ".join(", ".join(cells.text(one, own, exact=True) for one in row) for row in rows)
    return read, "; ".join(", ".join(f"{one:.6g}" for one in row) for row in rows)


def _first(doc: str) -> str:
    """The first sentence."""
    text = " ".join(doc.split("\n\n", maxsplit=1)[0].split())
    return _marked(re.split(r"(?<=[a-z0-9)])[.:;] ", text, maxsplit=1)[0].rstrip(".:")).replace("|", "\\|")


def _symbols() -> str:
    taken: dict[str, dict[str, list[Formula]]] = {}
    for one in REGISTRY.values():
        for name, unit in one.units.items():
            if name != "return":
                taken.setdefault(name, {}).setdefault(unit, []).append(one)
    rows = [
        _line((f"`{name}`", unit, _links(formulas)))
        for name in sorted(taken, key=lambda name: (name.lower(), name))
        for unit, formulas in taken[name].items()
    ]
    gives: dict[str, list[Formula]] = {}
    for one in REGISTRY.values():
        gives.setdefault(one.units["return"], []).append(one)
    head = (
        f"# Formulas by symbol\n\n{WRITTEN} [The book](../formulas.md), [by source](sources.md).\n\n## What goes in\n"
    )
    names = [_line(("symbol", "unit", "of")), _line(["---"] * 3), *rows, "", "## What comes out", ""]
    results = [_line((unit, _links(gives[unit]))) for unit in sorted(gives)]
    return "\n".join([head, *names, _line(("unit", "of")), _line(["---"] * 2), *results, "", NEXT.format(base="../")])


def _sources() -> str:
    resting: dict[str, list[Formula]] = {}
    for one in REGISTRY.values():
        resting.setdefault(one.cite, []).append(one)
    rows = sorted((cited(key), key) for key in resting)
    lines = [_line((text.replace("|", "\\|"), f"`{key}`", _links(resting[key]))) for text, key in rows]
    head = f"# Formulas by source\n\n{WRITTEN} [The book](../formulas.md), [by symbol](symbols.md).\n"
    return "\n".join(
        [head, _line(("source", "key", "formulas")), _line(["---"] * 3), *lines, "", NEXT.format(base="../")]
    )


def _links(formulas: Iterable[Formula]) -> str:
    return ", ".join(link(one) for one in sorted(formulas, key=lambda one: one.name))


def _line(items: Iterable[str]) -> str:
    return f"| {' | '.join(items)} |"


def main() -> int:
    """Write the pages, or check them."""
    return kept_all(DOCS / "formulas", pages())


if __name__ == "__main__":
    sys.exit(main())
