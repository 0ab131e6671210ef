"""What a script would start, seen by the shell itself: the starters of processes are replaced by one that writes down its arguments."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

STARTERS = ("torchrun", "accelerate")
RECORDER = '#!/bin/bash\nprintf "%s\\0" "$(basename "$0")" "$@" > "$STARTED"\n'
INNER = {
    "srun": '#!/bin/bash\nwhile [[ "$1" == --* ]]; do shift; done\nexec "$@"\n',
    "scontrol": "#!/bin/bash\necho first-node; echo second-node\n",
    "torchft_lighthouse": "#!/bin/bash\nexit 0\n",
}
"""Stand-ins of what a script asks on its way: SLURM's step and its list of hosts, the lighthouse of replica groups."""


def started(script: str, arguments: Sequence[str] = (), variables: Mapping[str, str] | None = None) -> list[str]:
    """The words that a bash script hands to torchrun or accelerate, the starter's name first. Raises RuntimeError with what bash says
    where it fails or starts nothing."""
    folder = Path("stand-ins").absolute()
    folder.mkdir(exist_ok=True)
    for name, text in {**dict.fromkeys(STARTERS, RECORDER), **INNER}.items():
        (folder / name).write_text(text, encoding="utf-8")
        (folder / name).chmod(0o755)
    (folder / "script.sh").write_text(script, encoding="utf-8")
    (folder / "started").unlink(missing_ok=True)
    environment = {**os.environ, **(variables or {}), "STARTED": str(folder / "started")}
    environment["PATH"] = f"{folder}{os.pathsep}{environment['PATH']}"
    command = ["bash", str(folder / "script.sh"), *arguments]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=60)
    if done.returncode or not (folder / "started").exists():
        raise RuntimeError(f"bash: {done.stderr.strip() or 'nothing was started'}")
    return (folder / "started").read_text(encoding="utf-8").split("\0")[:-1]


def parsed(words: Sequence[str]) -> tuple[int, int, int]:
    """(nodes, processes of all, rank of the node) as the real parser of torchrun or of accelerate reads them. It raises SystemExit."""
    starter, *arguments = words
    if starter == "torchrun":
        from torch.distributed.run import get_args_parser

        read = get_args_parser().parse_args(arguments)
        return int(read.nnodes), int(read.nnodes) * int(read.nproc_per_node), int(read.node_rank)
    from accelerate.commands.launch import launch_command_parser

    read = launch_command_parser().parse_args(arguments[1:])
    return int(read.num_machines), int(read.num_processes), int(read.machine_rank or 0)
