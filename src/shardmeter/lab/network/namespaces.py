"""Network namespaces without names: each is there as long as somebody holds it, so that none can be left behind.

A namespace is made by a thread that moves into a new one, opens it, and ends; the process itself never leaves its own. What holds it
afterwards is that open file, and the workers inside. When they are gone, through whichever end, the kernel takes the namespace apart
with every interface in it.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from typing import TypeVar

from shardmeter.lab.network import kernel

T = TypeVar("T")
SETTINGS = "/proc/sys/net"
"""Shows a thread the settings of the namespace that it is in."""
COUNTERS = "/proc/thread-self/net/dev"


def elsewhere(call: Callable[[], T]) -> T:
    """Call in a thread of its own, which may change its namespace and then ends. Raises what the call raises."""
    results: list[T] = []
    failures: list[BaseException] = []

    def run() -> None:
        try:
            results.append(call())
        except BaseException as failure:  # noqa: BLE001  (raised again below, in the thread that asked)
            failures.append(failure)

    thread = threading.Thread(target=run, name="namespace", daemon=True)
    thread.start()
    thread.join()
    if failures:
        raise failures[0]
    return results[0]


class Namespace:
    """One network namespace, held open by this process."""

    def __init__(self) -> None:
        """Make it. Raises OSError where the kernel refuses."""
        self.file, self._counters = elsewhere(_made)

    @property
    def path(self) -> str:
        """What other processes can open to enter it (`nsenter --net=PATH`), as long as this process holds it."""
        return f"/proc/{os.getpid()}/fd/{self.file}"

    def within(self, call: Callable[[], T]) -> T:
        """Call inside it. Raises what the call raises."""

        def run() -> T:
            kernel.enter_network(self.file)
            return call()

        return elsewhere(run)

    def set(self, name: str, value: str) -> bool:
        """Write a setting of its own, as `ipv4/tcp_rmem`; whether it could be written (containers may forbid it, kernels lack it)."""

        def write() -> None:
            with open(f"{SETTINGS}/{name}", "w", encoding="ascii") as file:  # noqa: PTH123
                file.write(value)

        try:
            self.within(write)
        except OSError:
            return False
        return True

    def setting(self, name: str) -> str:
        """A setting of its own, as written there; empty where there is none."""

        def read() -> str:
            with open(f"{SETTINGS}/{name}", encoding="ascii") as file:  # noqa: PTH123
                return file.read().strip()

        try:
            return self.within(read)
        except OSError:
            return ""

    def counters(self, interface: str) -> tuple[int, ...]:
        """The sixteen numbers that the kernel counts of an interface: received bytes, packets, errors, drops …, then those sent.

        Raises LookupError where there is no such interface."""
        text = os.pread(self._counters, 1 << 16, 0).decode()
        for line in text.splitlines():
            name, colon, numbers = line.partition(":")
            if colon and name.strip() == interface:
                return tuple(map(int, numbers.split()))
        raise LookupError(interface)

    def close(self) -> None:
        """Let go of it. Twice is once."""
        for file in (self.file, self._counters):
            if file >= 0:
                os.close(file)
        self.file = self._counters = -1


def _made() -> tuple[int, int]:
    kernel.leave_network()
    file = os.open("/proc/thread-self/ns/net", os.O_RDONLY | os.O_CLOEXEC)
    try:
        return file, os.open(COUNTERS, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        os.close(file)
        raise
