"""Whoever ends a command, by Ctrl-C or by a request to end (SIGTERM), is obeyed at once: the exit code says it, no process stays, and what
was to be written is whole or not there."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"
WITHIN = float(os.environ.get("ENDED_WITHIN", "5"))
"""Seconds; on a machine that does nothing else 1 holds (docs/hardening.md), which ENDED_WITHIN=1 asks for."""
LARGE = ["--model", "deepseek-v3", "--gpus", "2048xH100-SXM5-80GB", "--global-batch", "15360"]
OVER = ["--over", "plan.tp=1,2,4,8", "--over", "plan.recompute=none,selective,full", "--over", "run.global_batch=256..65536:x2",
        "--over", "fleet.islands.0.fabric.bandwidth=1Gbps..400Gbps:log20", "--over", "plan.micro_batch=1..64", "--over", "run.seq_len=1024..131072:x2"]  # fmt: skip
OF_ONE = ["--model", "llama-3.1-8b", "--gpus", "64xH100-SXM5-80GB"]
THREE = [str(EXAMPLES / "three-clouds-70b.yaml"), "--set", "fleet.use=any", "--set", "plan.sync.method=any", "--set", "plan.sync.sync_every=10..500:+10",
         "--set", "plan.sync.bits=2,4,8,16"]  # fmt: skip
MAP = ["--over", "distance=1km..2000km:log12", "--over", "oversubscription=1,2,4,8"]
COMMANDS = {
    "plan": ["plan", *LARGE, "--processes", "1"],
    "plan, processes": ["plan", *LARGE, "--processes", "2", "--save", "best.yaml"],
    "plan, islands": ["plan", *THREE],
    "plan, scale-across": ["plan", str(EXAMPLES / "scale-across.yaml"), "--scale-across", *MAP, "--save", "best.yaml"],
    "sweep, file": ["sweep", *OF_ONE, *OVER, "-o", "grid.csv", "--workers", "2"],
    "validate": ["validate"],
}
SIGNALS = {"ctrl-c": (signal.SIGINT, 130), "end": (signal.SIGTERM, 143)}


def ended(arguments, folder, number, after):
    """A command in a group of its own, given a signal `after` seconds: its exit code, what it said, seconds to its end."""
    process = subprocess.Popen(
        [sys.executable, "-m", "shardmeter", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        cwd=folder,
    )
    try:
        time.sleep(after)
        if number == signal.SIGINT:
            os.killpg(process.pid, number)  # as a terminal does
        else:
            process.send_signal(number)
        begun = time.monotonic()
        out, said = process.communicate(timeout=20)
        return process.returncode, out, said, time.monotonic() - begun
    finally:
        left = is_left(process.pid)
        if left:
            os.killpg(process.pid, signal.SIGKILL)
            process.communicate()
        assert not left, "a process stays"


def is_left(group):
    """Whether a process of a group is there a moment after the first has ended."""
    for _ in range(40):
        try:
            os.killpg(group, 0)
        except ProcessLookupError:
            return False
        time.sleep(0.05)
    return True


@pytest.mark.skipif(os.name == "nt", reason="signals of a terminal")
@pytest.mark.parametrize("how", SIGNALS)
@pytest.mark.parametrize("name", COMMANDS)
def test_a_long_command_ends_at_once(tmp_path, name, how):
    number, code = SIGNALS[how]
    returned, _, said, seconds = ended(COMMANDS[name], tmp_path, number, 2.0)
    assert returned == code, said
    assert "Traceback" not in said
    assert ("terminated" if number == signal.SIGTERM else "interrupted") in said
    assert seconds <= WITHIN
    for file in tmp_path.iterdir():
        assert file.suffix == ".parts" or file.read_text(encoding="utf-8").startswith(("model:", "name:", "fleet:"))
    assert not any(path.suffix == ".tmp" for path in tmp_path.rglob("*"))


@pytest.mark.skipif(os.name == "nt", reason="signals of a terminal")
@pytest.mark.parametrize("after", [0.6, 0.8, 1.0, 1.2, 1.5])
def test_a_whole_group_is_ended_while_workers_start(tmp_path, after):
    """What workers of this sweep are given is longer than a pipe: one that ended before it had read it left its parent writing."""
    values = ["--over", "plan.micro_batch=1..40", "--over", "run.seq_len=1024..8192:+64"]
    command = [sys.executable, "-m", "shardmeter", "sweep", THREE[0], *values, "-o", "grid.csv", "--workers", "2"]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, start_new_session=True, cwd=tmp_path)
    try:
        time.sleep(after)
        os.killpg(process.pid, signal.SIGTERM)
        _, said = process.communicate(timeout=15)
        assert process.returncode in (143, -signal.SIGTERM), said  # the second before it is ours to say
        assert "Traceback" not in said
        assert not is_left(process.pid)
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.communicate()
