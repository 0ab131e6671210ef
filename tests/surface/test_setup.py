"""Where the tools are installed: the Makefile and every script of shell agree on the folder, and none removes what is no environment."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SCRIPTS = sorted((ROOT / "scripts").glob("*.sh"))
STUB = '#!/bin/sh\necho "$0 $*" >> "$CALLS"\n'


def _stub(place: Path) -> None:
    place.parent.mkdir(parents=True, exist_ok=True)
    place.write_text(STUB)
    place.chmod(0o755)


def _called(tmp_path: Path, script: str, venv: Path, *words: str) -> tuple[int, str, str]:
    """Exit code, calls of the stubs for uv and the environment's Python, and what was said."""
    calls = tmp_path / "calls"
    calls.write_text("")
    _stub(tmp_path / "path" / "uv")
    told = {"VENV": str(venv), "CALLS": str(calls), "PATH": f"{tmp_path / 'path'}:{os.environ['PATH']}"}
    done = subprocess.run(
        ["bash", str(ROOT / "scripts" / script), *words],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, **told},
    )
    return done.returncode, calls.read_text(), done.stderr


@pytest.mark.parametrize("kind", ["run", "dev"])
def test_setup_installs_into_the_folder_that_is_named(tmp_path: Path, kind: str) -> None:
    venv = tmp_path / "elsewhere"
    _stub(venv / "bin" / "python")
    code, calls, said = _called(tmp_path, "setup.sh", venv, kind)
    assert code == 0, said
    assert f"uv pip install --python {venv}/bin/python" in calls
    assert f"into {venv}" in said
    assert (venv / "dev-requirements.txt").exists() == (kind == "dev")


def test_other_scripts_ask_that_environment(tmp_path: Path) -> None:
    venv = tmp_path / "elsewhere"
    _stub(venv / "bin" / "python")
    _, calls, _ = _called(tmp_path, "torch_setup.sh", venv)
    assert f"{venv}/bin/python -c import torch" in calls


def test_what_is_no_environment_is_left_alone(tmp_path: Path) -> None:
    kept = tmp_path / "papers" / "thesis.txt"
    kept.parent.mkdir()
    kept.write_text("mine")
    code, calls, said = _called(tmp_path, "setup.sh", kept.parent)
    assert code == 1
    assert "holds something else than an environment of Python" in said
    assert kept.read_text() == "mine"
    assert "install" not in calls


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.name)
def test_no_script_names_the_folder_by_itself(script: Path) -> None:
    lines = [line for line in script.read_text().splitlines() if not line.startswith("#")]
    assert not [line for line in lines if re.search(r"(?<!-)\.venv\b", line.replace("${VENV:-.venv}", ""))]


@pytest.mark.skipif(shutil.which("make") is None, reason="make is not installed")
@pytest.mark.parametrize("by", ["argument", "environment", "nothing"])
def test_the_makefile_passes_it_on(tmp_path: Path, by: str) -> None:
    """What `make` would run, and what its scripts would be told."""
    folder = ".venv" if by == "nothing" else str(tmp_path / "elsewhere")
    ours = ("VENV", "MAKEFLAGS", "MFLAGS", "MAKELEVEL")  # make test is a make too
    environment = {name: value for name, value in os.environ.items() if name not in ours}
    makefile = tmp_path / "told.mk"
    makefile.write_text(f'include {ROOT / "Makefile"}\ntold:\n\t@echo "$$VENV $(BIN)"\n')
    words = ["make", "-f", str(makefile), "told", *([f"VENV={folder}"] if by == "argument" else [])]
    more = {"VENV": folder} if by == "environment" else {}
    done = subprocess.run(words, capture_output=True, text=True, check=True, cwd=ROOT, env={**environment, **more})
    assert done.stdout.split() == [folder, f"{folder}/bin"]
