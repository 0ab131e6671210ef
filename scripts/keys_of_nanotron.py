"""Write the names of nanotron's settings, one a line, as the dataclasses of its configuration have them; the code is read, not run.

    python scripts/keys_of_nanotron.py CHECKOUT VERSION

CHECKOUT is a working tree of github.com/huggingface/nanotron; VERSION is what the list is called: the month of a snapshot. Where a
field may be one of several classes, the fields of all are listed. Shipped: 2026-04 (2411b022a7, 2026-04-07, which calls itself 0.4).
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path

KEYS = Path(__file__).parents[1] / "src" / "shardmeter" / "data" / "keys"


def classes(checkout: Path) -> dict[str, dict[str, str]]:
    """Fields of every dataclass of the configuration, with their annotations; and aliases, as one field without a name."""
    found: dict[str, dict[str, str]] = {}
    for file in sorted((checkout / "src" / "nanotron" / "config").glob("*.py")):
        for node in ast.parse(file.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.ClassDef):
                fields = [
                    one for one in node.body if isinstance(one, ast.AnnAssign) and isinstance(one.target, ast.Name)
                ]
                found[node.name] = {ast.unparse(one.target): ast.unparse(one.annotation) for one in fields}
            if isinstance(node, ast.Assign) and ast.unparse(node.value).startswith("Union["):
                found[ast.unparse(node.targets[0])] = {"": ast.unparse(node.value)}
    return found


def paths(name: str, known: dict[str, dict[str, str]], above: tuple[str, ...] = ()) -> Iterator[str]:
    """Dotted paths of the settings of a class; those inside a list have no number."""
    for field, annotation in known[name].items():
        path = (*above, field) if field else above
        inner = [one for one in re.findall(r"\w+", annotation) if one in known]
        if field:
            yield ".".join(path)
        for one in inner:
            yield from paths(one, known, path)


def main() -> None:
    """Write the list that the command line names."""
    checkout, version = sys.argv[1:]
    names = sorted(set(paths("Config", classes(Path(checkout)))))
    (KEYS / f"nanotron-{version}.txt").write_text("\n".join(names) + "\n", encoding="utf-8")
    print(f"{len(names)} settings")


if __name__ == "__main__":
    main()
