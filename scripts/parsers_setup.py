"""Make the environments of the real parsers (about 3 GB): what the checks of tests/parsers/ say that they need. Run it as `make parsers` does."""

from __future__ import annotations

import subprocess
import sys
from collections import defaultdict
from pathlib import Path
from types import ModuleType

from parsers_checks import HOME, checks


def run(*command: str | Path) -> None:
    """Run a command and end where it fails."""
    print("$", *command, flush=True)
    if subprocess.run(command, check=False).returncode:
        sys.exit(f"{command[0]} failed")


def make(environment: str, needs: list[str]) -> None:
    """One virtual environment with what all its checks need; nothing is done where the list is the one of last time."""
    folder = HOME / environment
    listed = folder / "needs.txt"
    if listed.exists() and listed.read_text(encoding="utf-8").split() == needs:
        return
    if not (folder / "bin" / "python").exists():
        run(sys.executable, "-m", "venv", folder)
    run(folder / "bin" / "python", "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *needs)
    listed.write_text("\n".join(needs) + "\n", encoding="utf-8")


def make_alone(name: str, check: ModuleType) -> None:
    """Packages of another version than the environment has, in a folder of the check's own; checked-out sources."""
    folder, wanted = HOME / "alone" / name, getattr(check, "ALONE", ())
    if wanted and not folder.exists():
        python = HOME / check.ENVIRONMENT / "bin" / "python"
        run(python, "-m", "pip", "install", "--quiet", "--no-deps", "--target", folder, *wanted)
    for source, (address, commit) in getattr(check, "SOURCES", {}).items():
        place = HOME / "sources" / source
        if not place.exists():
            run("git", "clone", "--quiet", "--filter=blob:none", "--no-checkout", address, place)
        run("git", "-C", place, "checkout", "--quiet", commit)


def main() -> None:
    """Make what is not there yet."""
    needs: dict[str, set[str]] = defaultdict(set)
    found = checks()
    for check in found.values():
        needs[check.ENVIRONMENT].update(check.NEEDS)
    for environment, packages in needs.items():
        make(environment, sorted(packages))
    for name, check in found.items():
        make_alone(name, check)


if __name__ == "__main__":
    main()
