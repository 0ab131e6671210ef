"""Write the names of torchtitan's settings, and what the functions of its registries say: `python scripts/keys_of_torchtitan.py FOLDER`.

FOLDER holds the package `torchtitan` as it is installed. Nothing of it is run: both are read from its syntax trees. Writes
`src/shardmeter/data/keys/torchtitan-VERSION.txt` and, from 0.3 on, `src/shardmeter/data/torchtitan_configs.csv`.
"""

from __future__ import annotations

import ast
import csv
import re
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

from shardmeter.interop.configs._torchtitan_python import functions
from shardmeter.interop.configs._torchtitan_read import DEFAULTS, NEW_DEFAULTS

DATA = Path(__file__).parents[1] / "src" / "shardmeter" / "data"
KEPT = {
    *DEFAULTS,
    *NEW_DEFAULTS,
    "model_spec",
    "converters",
    "compile.components",
    "parallelism.pipeline_parallel_layers_per_stage",
}
"""Settings of registries that a reader understands."""


def main() -> None:
    """Write both files."""
    folder = Path(sys.argv[1])
    package = folder / "torchtitan"
    version = version_of(folder)
    keys = sorted(old_keys(package) if version.startswith("0.2") else new_keys(package))
    (DATA / "keys").mkdir(exist_ok=True)
    (DATA / "keys" / f"torchtitan-{version}.txt").write_text("\n".join(keys) + "\n", encoding="utf-8")
    print(f"{len(keys)} settings of torchtitan {version}")
    if not version.startswith("0.2"):
        rows = list(registries(package))
        with (DATA / "torchtitan_configs.csv").open("w", encoding="utf-8", newline="") as file:
            csv.writer(file, lineterminator="\n").writerows([("module", "config", "key", "value"), *rows])
        print(f"{len(rows)} rows of registries")


def version_of(folder: Path) -> str:
    """The version of the package in a folder."""
    return next(folder.glob("torchtitan-*.dist-info")).name.removeprefix("torchtitan-").removesuffix(".dist-info")


def classes(file: Path) -> dict[str, ast.ClassDef]:
    """The classes of a file by their name, inner ones with the outer's before."""
    found: dict[str, ast.ClassDef] = {}

    def look(body: Iterable[ast.stmt], before: str) -> None:
        for node in body:
            if isinstance(node, ast.ClassDef):
                found[before + node.name] = node
                look(node.body, f"{before}{node.name}.")

    look(ast.parse(file.read_text(encoding="utf-8")).body, "")
    return found


def fields(node: ast.ClassDef) -> Iterator[tuple[str, str]]:
    """The fields of a dataclass: (name, annotation)."""
    for line in node.body:
        if isinstance(line, ast.AnnAssign) and isinstance(line.target, ast.Name):
            yield line.target.id, ast.unparse(line.annotation)


def old_keys(package: Path) -> set[str]:
    """Sections of JobConfig, with those that torchft adds."""
    known = classes(package / "config" / "job_config.py")
    more = classes(package / "components" / "ft" / "config" / "job_config.py")

    def inside(name: str, before: str) -> Iterator[str]:
        for field, annotation in fields(known[name]):
            if annotation in known:
                yield from inside(annotation, f"{before}{field}.")
            else:
                yield before + field

    return {*inside("JobConfig", ""), *(f"fault_tolerance.{field}" for field, _ in fields(more["FaultTolerance"]))}


def new_keys(package: Path) -> set[str]:
    """Fields of Trainer.Config and of every Config that may stand in one of them."""
    known: dict[str, ast.ClassDef] = {}
    for file in package.rglob("*.py"):
        known |= classes(file)
    found = {"num_mtp_layers", "converters"}  # arguments of model_registry
    for field, annotation in fields(known["Trainer.Config"]):
        found.add(field)
        for name, node in known.items():
            owner = re.findall(r"[A-Z]\w+", annotation)
            if name == annotation or stands_in(name, owner, known):
                found |= {f"{field}.{one}" for one, _ in fields(node)}
    for name in ("TorchFTManager.Config", "FaultTolerance"):
        found |= {f"fault_tolerance.{one}" for one, _ in fields(known[name])}
    return found | {"optimizer.lr"}  # of default_adamw


def stands_in(name: str, owner: list[str], known: dict[str, ast.ClassDef]) -> bool:
    """Whether the Config `name` may stand where one of `owner` is asked for: its class, or one that derives from it."""
    base, dot, last = name.rpartition(".")
    if last != "Config" or not dot:
        return name in owner and name.endswith("Config")
    if owner[:1] == ["ActivationCheckpointingConfig"]:
        return base.endswith("AC") or base == "ActivationCheckpointing"
    seen = set()
    while base in known and base not in seen:
        seen.add(base)
        if base in owner:
            return True
        base = next((ast.unparse(one).split("[")[0] for one in known[base].bases), "")
    return False


def registries(package: Path) -> Iterator[tuple[str, str, str, str]]:
    """What the functions of the registries say of what is understood: (module, function, key, value)."""
    for file in sorted(package.rglob("config_registry.py")):
        module = ".".join(file.parent.relative_to(package).parts[1:])
        if not re.fullmatch(r"(torchft\.)?\w+", module):
            continue
        said: dict[str, dict[str, object]] = {}
        for found in functions(file.read_text(encoding="utf-8"), str(file)):
            base = said.get(found.base.split(" ")[-1], {}) if found.base else {}
            kept = {
                key: value for key, value in found.settings.items() if key in KEPT or key.startswith("fault_tolerance.")
            }
            if "model_spec" in kept:
                kept["model_spec"] = f"{module} {kept['model_spec']}"
            said[found.name] = {**base, **kept}
        for config, settings in ((name, one) for name, one in said.items() if "debug" not in name):
            yield from ((module, config, key, repr(value)) for key, value in settings.items())


if __name__ == "__main__":
    main()
