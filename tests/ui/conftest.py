"""A server of the tests: the real one, on a free port of this machine."""

import http.client
import json
import os
import signal
import subprocess
import sys
import time
import urllib.parse
from contextlib import contextmanager
from pathlib import Path

import pytest


def absent():
    """What the page needs and is not there."""
    from shardmeter.ui.serving import missing

    return ", ".join(missing())


class Asked:
    """A response, read."""

    def __init__(self, response):
        self.status, self.headers, self.body = response.status, response.headers, response.read()

    def json(self):
        return json.loads(self.body)

    def says(self):
        return self.json()["error"]["says"]


class Client:
    """Asks one server; every call is a connection of its own."""

    def __init__(self, port, pid=0, log=None):
        self.port, self.pid, self.log = port, pid, log

    def errors(self):
        """What the server said of errors, once it has ended."""
        return self.log.communicate(timeout=20)[1]

    def children(self):
        """Every process below the server."""
        return set(children(self.pid))

    def ask(self, path, query=None, *, method="GET", body=None, headers=None, timeout=60.0):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=timeout)
        try:
            target = (
                path
                if query is None
                else f"{path}?{query if isinstance(query, str) else urllib.parse.urlencode(query, doseq=True)}"
            )
            connection.request(method, target, body=body, headers=headers or {})
            return Asked(connection.getresponse())
        finally:
            connection.close()


def children(pid):
    """Every process below one, by its id."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                parent = int((entry / "stat").read_text().rpartition(") ")[2].split()[1])
            except (OSError, ValueError):
                continue
            if parent == pid:
                found += [int(entry.name), *children(int(entry.name))]
    return found


@contextmanager
def served(*options, killed=False):
    """A server in a process of its own; afterwards it and all below it must be gone. `killed`: the test ends it."""
    if absent():
        pytest.skip(f"{absent()}: not installed here")
    root = Path(__file__).parents[2]
    environment = os.environ | {"PYTHONPATH": str(root / "src"), "PYTHONUNBUFFERED": "1"}
    with subprocess.Popen(
        [sys.executable, "-m", "shardmeter", "ui", "--no-open", "--port", "0", *options],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment, cwd=root, start_new_session=True,
    ) as process:  # fmt: skip
        assert process.stdout is not None
        try:
            first = process.stdout.readline()
            assert "http://" in first, f"{first}: {process.stderr and process.stderr.read()}"
            yield Client(urllib.parse.urlsplit(first.split()[4]).port, process.pid, process)
            if killed:
                return
            below = children(process.pid)
            process.send_signal(signal.SIGINT)
            _, said = process.communicate(timeout=20)
            assert "Traceback" not in said, said
            until = time.monotonic() + 5.0
            while (left := [one for one in below if Path(f"/proc/{one}").exists()]) and time.monotonic() < until:
                time.sleep(0.05)
            assert not left, "processes outlive the server"
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)


@pytest.fixture(scope="session")
def page():
    with served() as client:
        yield client


@pytest.fixture(scope="session")
def serving():
    """`with serving("--option"): …`, a server of one's own."""
    return served
