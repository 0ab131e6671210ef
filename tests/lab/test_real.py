"""The lab for real: the fast study over emulated lines, a smaller one over plain loopback. Skipped, with the reason, where that cannot be."""

from __future__ import annotations

import importlib.util
import json
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from shardmeter.lab.network import leftovers, missing

TORCH = pytest.mark.skipif(
    importlib.util.find_spec("torch") is None, reason="PyTorch is not installed: pip install 'shardmeter[lab]'"
)
STUDY = """
name: small
alone_seconds: 1 s
models: {tiny: {layers: 2, hidden: 64}}
lines: {country: {bandwidth: 100 Mbps, rtt: 20 ms}}
experiments:
  - {name: every, method: ddp, islands: 2, line: country, model: tiny, rounds: 1, settings: {steps: 25}}
  - {name: outer, method: diloco, islands: 2, line: country, model: tiny, rounds: 3, sync: {sync_every: 10}}
"""


@pytest.fixture
def lines() -> None:
    """Skip where no line can be emulated."""
    lacking = missing()
    if lacking:
        pytest.skip("; ".join(lacking))


def left_beyond(before: set[str]) -> set[str]:
    """What a lab has left: the process that forks workers notices the end of its opener, and needs a moment to end too."""
    until = time.monotonic() + 5.0
    while (left := set(leftovers()) - before) and time.monotonic() < until:
        time.sleep(0.05)
    return left


def lab(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "shardmeter", "lab", *arguments]


def run(*arguments: str) -> tuple[int, Any, str]:
    done = subprocess.run(lab(*arguments, "--format", "json"), capture_output=True, text=True, check=False)
    assert "Traceback" not in done.stderr, done.stderr
    return done.returncode, json.loads(done.stdout) if done.stdout else None, done.stderr


@TORCH
@pytest.mark.torch
@pytest.mark.netns
@pytest.mark.usefixtures("lines")
def test_the_fast_study_is_predicted_before_and_met(tmp_path: Path) -> None:
    before, start = set(leftovers()), time.monotonic()
    code, said, told = run("run", "fast", "-o", str(tmp_path / "out"))
    totals = said["totals"]
    assert code == 0, told
    assert totals["as_asked"] == totals["predicted_first"] == totals["experiments"] == 4
    assert totals["loss"]["falls"] == totals["loss"]["told"] == 3
    assert totals["wire_bytes"]["n"] >= 5
    assert totals["wire_bytes"]["worst_abs_error"] <= 0.05
    assert totals["round"]["n"] == 3
    assert totals["round"]["median_abs_error"] <= 0.25
    assert left_beyond(before) == set()
    assert time.monotonic() - start < 90.0


@TORCH
@pytest.mark.torch
@pytest.mark.netns
@pytest.mark.usefixtures("lines")
@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM])
def test_what_is_interrupted_leaves_nothing(how: Any, tmp_path: Path) -> None:
    file, out = tmp_path / "study.yaml", tmp_path / "out"
    file.write_text(STUDY, encoding="utf-8")
    before = set(leftovers())
    process = subprocess.Popen(
        lab("run", str(file), "-o", str(out)), stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    until = time.monotonic() + 60.0
    while not (out / "every" / "prediction.json").exists() and time.monotonic() < until and process.poll() is None:
        time.sleep(0.05)
    process.send_signal(how)
    _, told = process.communicate(timeout=30.0)
    assert process.returncode == 130, told
    assert "Traceback" not in told
    assert json.loads((out / "every" / "outcome.json").read_text(encoding="utf-8"))["says"] == "interrupted"
    assert left_beyond(before) == set()
    code, said, _ = run("report", str(out))
    assert code == 1
    assert said["experiments"][0]["status"] == "failed"


@TORCH
@pytest.mark.torch
def test_over_plain_loopback_losses_and_messages_are_compared_and_times_are_not(tmp_path: Path) -> None:
    file = tmp_path / "study.yaml"
    file.write_text(STUDY, encoding="utf-8")
    code, said, told = run("run", str(file), "-o", str(tmp_path / "out"), "--kind", "loopback")
    assert code == 0, told
    every, outer = said["experiments"]
    assert said["machine"]["emulation"] == "loopback"
    assert said["totals"]["round"]["n"] == 0
    assert every["round"]["measured"] is not None
    assert every["loss"]["falls"]
    assert outer["loss"]["falls"]
    assert outer["payload_bytes"]["error"] == pytest.approx(0.0, abs=0.01)
    assert any("not scored" in one for one in said["warnings"])


@TORCH
@pytest.mark.torch
def test_without_privileges_the_reason_is_told_before_anything_is_made(tmp_path: Path) -> None:
    setpriv = shutil.which("setpriv")
    if setpriv is None:
        pytest.skip("no setpriv command (package util-linux), by which privileges are dropped")
    out = tmp_path / "out"
    dropped = [setpriv, "--bounding-set=-all", "--inh-caps=-all", *lab("run", "fast", "-o", str(out))]
    done = subprocess.run(dropped, capture_output=True, text=True, check=False)
    assert done.returncode == 74, done.stderr
    assert "CAP_NET_ADMIN" in done.stderr
    assert "--kind loopback" in done.stderr
    assert not out.exists()
