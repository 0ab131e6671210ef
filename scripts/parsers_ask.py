"""Run by the Python of a parser, which need not have ShardMeter: `python -P scripts/parsers_ask.py CHECK QUESTIONS ANSWERS`.

CHECK is a file of tests/parsers/ with `accepts` and `parser`; QUESTIONS a JSON list of `{files, launch}`; ANSWERS the JSON that
is written: what parsed, and of every question what it was refused for, empty where it was accepted.
"""

from __future__ import annotations

import contextlib
import io
import json
import sys
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import ModuleType
from typing import Any

LONGEST = 300
"""Characters of a refusal that are kept."""


def loaded(path: Path) -> ModuleType:
    """A check, under a name of its own: a check of deepspeed imports deepspeed."""
    loader = SourceFileLoader(f"check_{path.stem}", str(path))
    module = ModuleType(loader.name)
    module.__file__ = str(path)
    loader.exec_module(module)
    return module


def refusal(check: ModuleType, question: dict[str, Any]) -> str:
    """What the parser says against one export; empty = accepted. A parser that ends the process says it on its way out."""
    said = io.StringIO()
    try:
        with contextlib.redirect_stderr(said), contextlib.redirect_stdout(said):
            check.accepts(question["files"], question["launch"])
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # noqa: BLE001 — whatever a parser raises, SystemExit too, is its answer
        lines = f"{said.getvalue().strip()[-LONGEST:]} {type(error).__name__}: {error}".split()
        return " ".join(lines)[-LONGEST:]
    return ""


def main() -> None:
    """Ask every question of one check."""
    path, questions, answers = map(Path, sys.argv[1:4])
    check = loaded(path)
    asked = json.loads(questions.read_text(encoding="utf-8"))
    said = [refusal(check, question) for question in asked]
    answers.write_text(json.dumps({"parser": check.parser(), "answers": said}), encoding="utf-8")


if __name__ == "__main__":
    main()
