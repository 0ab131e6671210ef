"""Whether anything of the lab is still there whose opener is gone. Namespaces and interfaces are held by processes alone: no process,
no namespace."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

from shardmeter.lab.network.kernel import TITLE


def leftovers(proc: Path = Path("/proc")) -> tuple[str, ...]:
    """Processes of the lab (forwarders, workers, and the server that starts these) whose opener has ended, as sentences.

    One that has ended itself and is not yet waited for holds nothing and is not listed."""
    found = []
    for folder in proc.glob("[0-9]*"):
        name, state = _name_and_state(folder)
        if not name.startswith(TITLE) or state in ("Z", "X", ""):
            continue
        opener = name.removeprefix(TITLE)
        if _name_and_state(proc / opener)[1] in ("Z", "X", ""):
            found.append(f"process {folder.name} of a lab that process {opener} had opened, which has ended")
    return tuple(found)


def _name_and_state(folder: Path) -> tuple[str, str]:
    """What a process is called, and its state in a letter; both empty where there is none."""
    with suppress(OSError):
        name, _, rest = (
            (folder / "stat").read_text(encoding="utf-8", errors="replace").partition("(")[2].rpartition(")")
        )
        return name, rest.split()[0]
    return "", ""
