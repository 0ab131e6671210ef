"""The same question gives the same bytes: under any order of hashes, on any number of processes, at any time.

Of a search the seconds it took are told in the JSON alone (`space.seconds`, `space.plans_per_s`). What differs
too is what was written where: nothing else."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from shardmeter.cli import cli

EXAMPLES = Path(__file__).parents[2] / "examples"
ONE, CLOUDS, MONEY = (str(EXAMPLES / name) for name in ("llama-8b-64xh100.yaml", "three-clouds-70b.yaml", "three-clouds-money.yaml"))  # fmt: skip
QUESTIONS = {
    "predict": [MONEY],
    "explain": [ONE],
    "plan": ["--model", "llama-3.1-8b", "--gpus", "16xH100-SXM5-80GB", "--set", "plan.tp=1,2", "--processes", "2"],
    "front": [MONEY, "--set", "fleet.islands.oregon.nodes=4", "--set", "fleet.islands.iowa.nodes=4"],
    "solve": ["micro-batch", ONE],
    "sweep": [ONE, "--over", "plan.micro_batch=1..4", "--over", "plan.recompute=none,full"],
    "returns": [ONE, "--scaling", "weak"],
    "transitions": [ONE, "--x", "fleet.islands.0.fabric.bandwidth"],
    "sensitivity": [ONE],
    "tradeoffs": [str(EXAMPLES / "intellect-1.yaml"), "--over", "plan.sync.sync_every=10,30,100"],
    "diff": [ONE, "--set-b", "plan.tp=4"],
    "doctor": [ONE, "--measured", "tokens_per_s_per_gpu=2100"],
    "trace": [str(EXAMPLES / "llama-70b-tp8-pp4.yaml"), "--straggle", "0.1"],
    "infer": [CLOUDS, "--compare"],
    "calibrate": [ONE, "--log", str(EXAMPLES / "logs" / "torchtitan.log")],
    "audit": ["--claim", "mfu=104%", "--claim", "accelerator=H100-SXM5-80GB"],
    "import": [str(EXAMPLES / "trainers" / "torchtitan-8b.toml"), "--gpus", "64xH100-SXM5-80GB"],
    "export": [ONE, "--to", "torchtitan"],
    "validate": [str(EXAMPLES / "measured-template.csv")],
    "catalog": ["models"],
    "show": [str(Path(__file__).parents[2] / "tests" / "samples" / "settings" / "none.json")],
}
OTHERS = {
    "measure": "times this machine",
    "ui": "a page",
    "lab": "times real runs",
    "report": "the answers of these commands",
}
"""Commands without a question here, each with why."""
MORE = {
    "plan, islands": ["plan", CLOUDS, "--set", "plan.sync.method=diloco,streaming_diloco"],
    "plan, scale-across": [
        "plan",
        str(EXAMPLES / "scale-across.yaml"),
        "--scale-across",
        "--over",
        "distance=10km,400km",
    ],
    "plan, one process": ["plan", *QUESTIONS["plan"][:-1], "1"],
}
CASES = {**{name: [name, *words] for name, words in QUESTIONS.items()}, **MORE}
FORMATS = ("table", "json", "csv")
LONG = frozenset({"front", "plan", "plan, one process", "plan, islands", "plan, scale-across"})
"""Searches, of which only the page is asked, unless SAME_BYTES=all."""
TIMES = frozenset({"seconds", "plans_per_s", "seconds_per_point"})


RUN = """
import contextlib, hashlib, io, json, sys, time
from shardmeter.cli import main
cases, forms, long, times = json.loads(sys.argv[1])
def timeless(text):
    data = json.loads(text) if text else {}
    left = [data]
    while left:
        one = left.pop()
        for name in times if isinstance(one, dict) and "space" in one else ():
            one["space"].pop(name, None)
        left += one.values() if isinstance(one, dict) else one if isinstance(one, list) else ()
    return json.dumps(data)
if __name__ == "__main__":
    for name, words in cases.items():
        for form in forms[:1] if name in long else forms:
            out, begun = io.StringIO(), time.process_time()
            with contextlib.redirect_stdout(out), contextlib.redirect_stderr(io.StringIO()):
                code = main([*words, "--format", form])
            text = timeless(out.getvalue()) if form == "json" else out.getvalue()
            print(json.dumps([name, form, code, hashlib.sha256(text.encode()).hexdigest(), time.process_time() - begun, text[:4000]]), flush=True)
"""
"""Answers every case in one process: (name, format, exit code, hash, seconds, beginning)."""


def answers(folder, seed, cases):
    """What every case comes to under an order of hashes; in the reverse order for an odd seed, as what was asked before is no matter."""
    long = [] if os.environ.get("SAME_BYTES") == "all" else sorted(LONG)
    ordered = dict(reversed(cases.items())) if seed % 2 else cases
    script = folder / f"run-{seed}.py"
    script.write_text(RUN, encoding="utf-8")
    done = subprocess.run(
        [sys.executable, str(script), json.dumps([ordered, FORMATS, long, sorted(TIMES)])],
        capture_output=True, text=True, check=False, env={**os.environ, "PYTHONHASHSEED": str(seed)},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-2000:]
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    return {(name, form): (code, digest, text) for name, form, code, digest, _, text in rows}


def test_every_command_has_a_question():
    assert cli.commands.keys() - OTHERS.keys() == QUESTIONS.keys()


def test_the_same_question_gives_the_same_bytes(tmp_path):
    with ThreadPoolExecutor(2) as pool:
        first, second = pool.map(lambda seed: answers(tmp_path, seed, CASES), (1, 4242))
    assert first.keys() == second.keys()
    for case in first:
        assert first[case] == second[case], case
        assert first[case][0] in (0, 1, 2), case
    for name, form in first:
        assert name != "plan" or first[name, form] == first["plan, one process", form]
