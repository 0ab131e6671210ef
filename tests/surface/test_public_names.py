"""The Python surface: sorted, complete, importable, cheap."""

import importlib
import subprocess
import sys
import tomllib
from pathlib import Path

import shardmeter

ROOT = Path(__file__).parents[2]

PUBLIC = {
    "BadData",
    "BadQuantity",
    "BadScenario",
    "Scenario",
    "ShardMeterError",
    "Unavailable",
    "UnknownName",
    "__version__",
    "audit",
    "calibrate",
    "diff",
    "doctor",
    "explain",
    "export",
    "front",
    "import_config",
    "infer",
    "load",
    "measure",
    "plan",
    "predict",
    "read_log",
    "report",
    "returns",
    "scale_across",
    "sensitivity",
    "solve",
    "sweep",
    "tradeoffs",
    "transitions",
    "validate",
}


def test_all_is_sorted_and_frozen():
    assert shardmeter.__all__ == sorted(shardmeter.__all__)
    assert set(shardmeter.__all__) == PUBLIC


def test_every_public_name_is_there():
    for name in shardmeter.__all__:
        assert getattr(shardmeter, name) is not None


def test_functions_of_the_surface_survive_the_import_of_their_modules():
    importlib.import_module("shardmeter.study.predict")
    importlib.import_module("shardmeter.study.validate")
    assert callable(shardmeter.predict)
    assert callable(shardmeter.validate)


def test_importing_the_package_imports_nothing_heavy():
    program = "import shardmeter, sys; print(sorted({'numpy', 'pydantic', 'rich', 'click'} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_the_commands_can_be_listed_without_anything_heavy():
    program = (
        "import shardmeter.cli.main, sys; print(sorted({'numpy', 'pydantic', 'rich', 'matplotlib'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_the_version_is_said_once():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert project["version"] == shardmeter.__version__


def test_types_are_shipped():
    assert (ROOT / "src" / "shardmeter" / "py.typed").exists()
