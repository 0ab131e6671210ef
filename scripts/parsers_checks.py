"""What the exporters write, shown to the parsers of those it is written for.

tests/parsers/ has one file a check (a format, at a version of its trainer) and the plans that all are asked to write. `written`
exports them, `answers` asks the real parser in an environment that `make parsers` made, `tests/parsers/recorded.json` has what it
said. Whether a parser meets a mistyped name with an error is asked too: of every setting written, the name less one letter.
"""

from __future__ import annotations

import functools
import hashlib
import json
import os
import re
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

from ruamel.yaml import YAML

import shardmeter
from parsers_ask import loaded
from shardmeter.interop.configs import format_named
from shardmeter.interop.configs.record import Exported, Inexpressible

ROOT = Path(__file__).resolve().parents[1]
FOLDER = ROOT / "tests" / "parsers"
RECORDED = FOLDER / "recorded.json"
HOME = Path(os.environ.get("SHARDMETER_PARSERS", ROOT / ".venv-parsers"))
"""Where the environments of the parsers lie."""
KEYS = ROOT / "src" / "shardmeter" / "data" / "keys"


def checks() -> dict[str, ModuleType]:
    """Every check by its name: the file's."""
    found = {path.stem: loaded(path) for path in sorted(FOLDER.glob("*.py")) if not path.stem.startswith("test_")}
    return {name: module for name, module in found.items() if hasattr(module, "accepts")}


@functools.cache
def plans() -> dict[str, shardmeter.Scenario]:
    """The scenarios that every exporter is asked to write, by name."""
    documents = YAML(typ="safe").load((FOLDER / "plans.yaml").read_text(encoding="utf-8"))
    return {name: shardmeter.load({"name": name, **document}) for name, document in documents.items()}


def exported(check: ModuleType, scenario: shardmeter.Scenario) -> Exported | Inexpressible:
    """A scenario in the format of a check, or why it cannot be written. A launcher starts the check's TRAINER."""
    trainer: str = getattr(check, "TRAINER", "")
    try:
        made: Exported = format_named(trainer or check.FORMAT, "write").write(scenario, "" if trainer else check.FOR)
        if trainer:
            made = format_named(check.FORMAT, "launch").launch(scenario, made, check.FOR)
    except Inexpressible as refused:
        return refused
    return made


def written(check: ModuleType) -> tuple[dict[str, Exported], dict[str, Inexpressible]]:
    """Every plan in the format of a check, and those that cannot be."""
    made = {name: exported(check, scenario) for name, scenario in plans().items()}
    return (
        {name: one for name, one in made.items() if isinstance(one, Exported)},
        {name: one for name, one in made.items() if isinstance(one, Inexpressible)},
    )


def question(made: Exported) -> dict[str, Any]:
    """What a parser is shown of an export."""
    return {"files": {file.name: file.text for file in made.files}, "launch": made.launch}


def digest(made: Exported) -> str:
    """What tells one export from another: its files and its launch, less the version of ShardMeter that a comment may name."""
    text = json.dumps(question(made), sort_keys=True).replace(shardmeter.__version__, "")
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def misspelt(asked: Mapping[str, Any], key: str) -> dict[str, Any] | None:
    """The same question with the last name of a key less its middle letter; None where the export does not have that name as a word."""
    name = re.split(r"[.\s]", key.strip())[-1].lstrip("-").split("=")[0]
    word = re.compile(rf"(?<![\w-]){'(?:--)?' if key.lstrip().startswith('-') else ''}{re.escape(name)}(?![\w-])")
    middle = len(name) // 2
    typo = name[:middle] + name[middle + 1 :]

    def changed(text: str) -> str:
        return word.sub(lambda found: found[0].replace(name, typo), text)

    other = {
        "files": {file: changed(text) for file, text in asked["files"].items()},
        "launch": changed(asked["launch"]),
    }
    return None if len(name) < 2 or other == dict(asked) else other


def python_of(check: ModuleType) -> Path:
    """The interpreter that has a check's parser, once `make parsers` has run."""
    return HOME / str(check.ENVIRONMENT) / "bin" / "python"


def paths_of(check: ModuleType, name: str) -> list[str]:
    """Folders that its interpreter looks into first: packages of its own version, checked-out sources."""
    own = [HOME / "alone" / name] if getattr(check, "ALONE", ()) else []
    return [str(path) for path in (*own, *(HOME / "sources" / source for source in getattr(check, "SOURCES", {})))]


def answers(name: str, check: ModuleType, asked: Sequence[Mapping[str, Any]]) -> tuple[str, list[str]]:
    """(the parser and its version, what it says against each question) from the real parser, in one process of its own."""
    with tempfile.TemporaryDirectory() as folder:
        questions, said = Path(folder, "questions.json"), Path(folder, "answers.json")
        questions.write_text(json.dumps(list(asked)), encoding="utf-8")
        files = (ROOT / "scripts" / "parsers_ask.py", FOLDER / f"{name}.py", questions, said)
        command = [str(python_of(check)), "-P", *map(str, files)]
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths_of(check, name)), "CUDA_VISIBLE_DEVICES": ""}
        done = subprocess.run(command, env=environment, cwd=folder, capture_output=True, text=True, check=False)
        if not said.exists():
            raise RuntimeError(f"the parser of {name} did not answer:\n{done.stderr[-2000:]}")
        answer = json.loads(said.read_text(encoding="utf-8"))
    return answer["parser"], answer["answers"]


def asked(name: str, check: ModuleType) -> dict[str, Any]:
    """All that a check's parser says, as recorded.json keeps it."""
    made, not_made = written(check)
    typos = {
        setting.key: other
        for one in made.values()
        for setting in one.said
        if (other := misspelt(question(one), setting.key)) is not None
    }
    parser, said = answers(name, check, [*map(question, made.values()), *typos.values()])
    of_plans, of_typos = dict(zip(made, said, strict=False)), dict(zip(typos, said[len(made) :], strict=True))
    return {
        "parser": parser,
        "accepted": {plan: digest(made[plan]) for plan, against in of_plans.items() if not against},
        "refused": {plan: against for plan, against in of_plans.items() if against},
        "inexpressible": sorted(not_made),
        "typos_refused": sorted(key for key, against in of_typos.items() if against),
        "typos_silent": sorted(key for key, against in of_typos.items() if not against),
    }


def keys(check: ModuleType) -> frozenset[str]:
    """The names that a check's trainer has, as they ship; empty where none do."""
    path = KEYS / getattr(check, "KEYS", f"{check.FORMAT}.txt")
    return frozenset(path.read_text(encoding="utf-8").split()) if path.exists() else frozenset()
