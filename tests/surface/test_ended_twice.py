"""Signals that come where Python drops what they raise, and signals that come again while a command cleans up."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

BEGIN = """
import os, signal, sys, time
import shardmeter.cli
from shardmeter.__main__ import main

def come(*numbers):
    for number in numbers:
        os.kill(os.getpid(), number)
        for _ in range(1000):
            pass
"""
REMOVED = """
class Removed:
    def __del__(self):
        come(signal.{number})

def run():
    try:
        Removed()
        time.sleep(10)
    except KeyboardInterrupt as came:
        return {code} if type(came).__name__ == "{kind}" else 1
    return 0
"""
AGAIN = """
def run():
    try:
        come(signal.{first})
    finally:
        come(signal.SIGINT, signal.SIGTERM, signal.SIGINT)
        print("cleaned up")
"""
STUCK = """
from shardmeter.core import interrupts
interrupts.PATIENCE = 0.1

def run():
    try:
        come(signal.{first})
    finally:
        time.sleep(0.2)
        come(signal.{first})
        time.sleep(10)
"""
END = """
shardmeter.cli.main = run
sys.exit(main())
"""
pytestmark = pytest.mark.skipif(os.name == "nt", reason="signals of a terminal")


def ended(body):
    return subprocess.run(
        [sys.executable, "-c", BEGIN + body + END], capture_output=True, text=True, timeout=20, check=False
    )


@pytest.mark.parametrize(("number", "code", "kind"), [("SIGTERM", 143, "Terminated"), ("SIGINT", 130, "KeyboardInterrupt")])  # fmt: skip
def test_what_is_dropped_while_an_object_is_removed_comes_again(number, code, kind):
    done = ended(REMOVED.format(number=number, code=code, kind=kind))
    assert (done.returncode, done.stderr) == (code, "")


@pytest.mark.parametrize(("first", "code"), [("SIGTERM", 143), ("SIGINT", 130)])
def test_what_comes_again_leaves_the_cleaning_up_in_peace(first, code):
    done = ended(AGAIN.format(first=first))
    assert (done.returncode, done.stdout) == (code, "cleaned up\n")
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(("first", "code"), [("SIGTERM", 143), ("SIGINT", 130)])
def test_cleaning_up_that_does_not_end_is_ended_by_who_asks_again(first, code):
    done = ended(STUCK.format(first=first))
    assert done.returncode == code
    assert "Traceback" not in done.stderr
