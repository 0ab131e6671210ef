"""What is installed is enough: a wheel that is built here holds all that the source has, nothing of the tests, and answers away from it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import zipfile
from email.parser import Parser
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / "shardmeter"
LARGEST = 6_000_000
"""Bytes of a wheel."""
QUESTION = ["--model", "llama-3.1-8b", "--gpus", "64xH100-SXM5-80GB"]
pytestmark = pytest.mark.wheel


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    folder = tmp_path_factory.mktemp("wheel")
    done = subprocess.run(
        [sys.executable, "-m", "pip", "wheel", str(ROOT), "--no-deps", "-q", "-w", str(folder)],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    if done.returncode:
        pytest.skip(f"pip builds no wheel here (it fetches hatchling): {done.stderr.strip()[-200:]}")
    (made,) = folder.glob("*.whl")
    return made


@pytest.fixture(scope="module")
def installed(wheel, tmp_path_factory):
    """Runs Python with the wheel's content and without the source, from an empty folder."""
    place, empty = tmp_path_factory.mktemp("installed"), tmp_path_factory.mktemp("empty")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(place)

    def run(*words):
        done = subprocess.run(
            [sys.executable, *words], capture_output=True, text=True, check=False, cwd=empty,
            env={**os.environ, "PYTHONPATH": str(place), "PYTHONDONTWRITEBYTECODE": "1"},
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        return done.stdout

    assert str(place) in run("-c", "import shardmeter; print(shardmeter.__file__)")
    return run


def test_it_holds_the_source_and_nothing_else(wheel):
    with zipfile.ZipFile(wheel) as archive:
        held = {name for name in archive.namelist() if ".dist-info/" not in name}
    files = [path for path in SOURCE.rglob("*") if path.is_file() and "__pycache__" not in path.parts]
    own = {f"shardmeter/{path.relative_to(SOURCE).as_posix()}" for path in files}
    examples = {f"shardmeter/ui/examples/{path.name}" for path in (ROOT / "examples").glob("*.yaml")}
    assert held - own <= examples
    assert own <= held
    assert wheel.stat().st_size < LARGEST


def test_it_says_what_it_is(wheel):
    with zipfile.ZipFile(wheel) as archive:
        (name,) = [one for one in archive.namelist() if one.endswith(".dist-info/METADATA")]
        said = Parser().parsestr(archive.read(name).decode())
        scripts = archive.read(name.replace("METADATA", "entry_points.txt")).decode()
        licence = archive.read(name.replace("METADATA", "licenses/LICENSE")).decode()
    assert said["License-Expression"] == "Apache-2.0"
    assert said["License-File"] == "LICENSE"
    assert "Apache License" in licence
    assert said["Requires-Python"] == ">=3.11"
    assert "shardmeter = shardmeter.__main__:main" in scripts


def test_it_answers_away_from_the_source(installed):
    answer = json.loads(installed("-m", "shardmeter", "predict", *QUESTION, "--format", "json"))
    assert answer["fits"]
    found = installed("-m", "shardmeter", "plan", *QUESTION, "--set", "plan.tp=1,2", "--top", "2", "--format", "json")
    assert json.loads(found)["plans"][0]["fits"]


def test_every_data_file_is_found_by_what_reads_it(installed):
    kinds = ("models", "accelerators", "fabrics", "instances", "stacks", "regions")
    code = f"import sys; from shardmeter.cli import main; sys.exit(max(main(['catalog', one, '--format', 'csv']) for one in {kinds}))"
    assert installed("-c", code).count("\n") > 200
    code = "import shardmeter, sys; print(shardmeter.validate(sys.argv[1]).to_dict()['rows'])"
    assert installed("-c", code, str(ROOT / "examples" / "measured-template.csv")).strip() == "2"


EVERY = """
import importlib, pkgutil, shardmeter
for one in pkgutil.walk_packages(shardmeter.__path__, "shardmeter."):
    if not one.name.startswith("shardmeter.lab.") and not one.name.endswith("__main__"):
        try:
            importlib.import_module(one.name)
        except ModuleNotFoundError as error:
            assert not error.name.startswith("shardmeter"), error
"""


def test_every_module_imports(installed):
    installed("-c", EVERY)
