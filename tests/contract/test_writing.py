"""Files of users are written in one place, which leaves the old file or the new one whatever comes between (`core.files.write_whole`)."""

from __future__ import annotations

import ast
import errno
import os
import re
import signal
import stat
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from shardmeter.core.errors import ShardMeterError, Unavailable
from shardmeter.core.files import put_file, write_whole

SOURCE = Path(__file__).parents[2] / "src" / "shardmeter"
WRITERS = frozenset({"write_text", "write_bytes", "savefig", "NamedTemporaryFile", "mkstemp", "copyfile", "copy2", "rename", "tofile", "savetxt"})  # fmt: skip
ELSEWHERE = {
    "core/files.py": "the one place",
    "cli/output.py": "the null device in the place of a stream that is closed",
    "render/plot.py": "a picture in memory",
    "study/sweep/store.py": "a lock, whose content is nothing",
    "study/measure/collectives.py": "what processes of ours say, in a folder that is removed",
}
"""Files that open something for writing, each with what that is."""
LAB = "lab/"
"""Ranks of a run write logs as they go, and find one another by files of a folder that is theirs."""


def writes(tree: ast.AST) -> list[int]:
    """The lines that open something for writing."""
    found = []
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call):
            continue
        name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
        says = " ".join(
            str(one.value)
            for one in (*node.args, *(keyword.value for keyword in node.keywords if keyword.arg == "mode"))
            if isinstance(one, ast.Constant)
        )
        of_os = isinstance(node.func, ast.Attribute) and getattr(node.func.value, "id", "") == "os"
        moves = name == "replace" and (of_os or (len(node.args) == 1 and not node.keywords and not of_record(node)))
        opens = name in {"open", "fdopen"} and (of_os or any(mode in says.split() for mode in MODES))
        if name in WRITERS or moves or opens:
            found.append(node.lineno)
    return found


MODES = [f"{how}{kind}{plus}" for how in "wax" for kind in ("", "b", "t") for plus in ("", "+")] + ["r+", "rb+", "r+b"]


TELLING = re.compile(rf"open\(|\.replace\(|{'|'.join(sorted(WRITERS))}")
"""What every file that writes has in its text."""


def of_record(node: ast.Call) -> bool:
    """`dataclasses.replace(one)` and its like are called by name alone."""
    return isinstance(node.func, ast.Name)


def test_files_are_written_in_one_place():
    found = {}
    for path in sorted(SOURCE.rglob("*.py")):
        name = path.relative_to(SOURCE).as_posix()
        text = path.read_text(encoding="utf-8")
        lines = writes(ast.parse(text)) if TELLING.search(text) else []
        if lines and not name.startswith(LAB):
            found[name] = lines
    others = {name: lines for name, lines in found.items() if name not in ELSEWHERE}
    assert not others, f"{others}: use core.files.put_file or write_whole"
    assert found.keys() == ELSEWHERE.keys(), "an exception that is none any more"


@pytest.mark.parametrize("code", ["open(a, 'w')", "p.open('ab')", "p.write_text('')", "os.open(a, f)", "p.replace(q)", "os.rename(a, b)", "open(a, mode='r+')"])  # fmt: skip
def test_what_writes_is_seen(code):
    assert writes(ast.parse(code)) == [1]


@pytest.mark.parametrize("code", ["open(a)", "p.open('rb')", "replace(one)", "'a'.replace('b', 'c')", "p.read_text()"])
def test_what_reads_is_not(code):
    assert writes(ast.parse(code)) == []


def test_a_new_file_and_one_that_is_there(tmp_path):
    path = tmp_path / "a.txt"
    put_file(path, "one")
    fresh = stat.S_IMODE(path.stat().st_mode)
    (tmp_path / "beside").write_text("")
    assert fresh == stat.S_IMODE((tmp_path / "beside").stat().st_mode)
    path.chmod(0o640)
    put_file(path, b"two")
    assert (path.read_text(), stat.S_IMODE(path.stat().st_mode)) == ("two", 0o640)
    put_file(path, "three", executable=True)
    assert path.stat().st_mode & 0o111 == 0o111


def test_a_link_is_followed(tmp_path):
    (tmp_path / "to").mkdir()
    target, link = tmp_path / "to" / "a.txt", tmp_path / "link"
    link.symlink_to(target)
    put_file(link, "one")
    put_file(link, "two")
    assert link.is_symlink()
    assert target.read_text() == "two"
    assert [path.name for path in (tmp_path / "to").iterdir()] == ["a.txt"]


def test_a_pipe_takes_it_as_it_comes(tmp_path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    read = []
    reader = threading.Thread(target=lambda: read.append(pipe.read_bytes()))
    reader.start()
    put_file(pipe, "through")
    reader.join()
    assert read == [b"through"]


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EACCES, errno.EIO])
def test_a_machine_that_takes_no_more(tmp_path, monkeypatch, number):
    path = tmp_path / "a.txt"
    path.write_text("old")

    def refuse(_):
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, "fsync", refuse)
    with pytest.raises(Unavailable, match=r"a\.txt: cannot be written"):
        put_file(path, "new")
    assert [one.read_text() for one in tmp_path.iterdir()] == ["old"]


@pytest.mark.parametrize("name", ["", "nowhere/a.txt", "a\0b", "x" * 300, "file/a.txt"])
def test_a_name_that_no_file_can_have(tmp_path, name):
    (tmp_path / "file").write_text("")
    with pytest.raises(ShardMeterError) as raised:
        put_file(tmp_path / name, "new")
    assert not isinstance(raised.value, Unavailable)
    assert str(raised.value).count("\n") == 0


def test_what_fails_in_between_leaves_the_old_file(tmp_path):
    path = tmp_path / "a.txt"
    path.write_text("old")

    def half(stream):
        stream.write(b"ne")
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write_whole(path, half)
    assert [one.read_text() for one in tmp_path.iterdir()] == ["old"]


KILLED = """
import os, signal, sys
from pathlib import Path
from shardmeter.core.files import write_whole
def half(stream):
    stream.write(b"n" * 100_000)
    stream.flush()
    os.kill(os.getpid(), signal.SIGKILL)
write_whole(Path(sys.argv[1]), half)
"""


def test_a_kill_in_between_leaves_the_old_file(tmp_path):
    path = tmp_path / "a.txt"
    path.write_text("old")
    done = subprocess.run([sys.executable, "-c", KILLED, str(path)], check=False)
    assert done.returncode == -signal.SIGKILL
    assert path.read_text() == "old"
