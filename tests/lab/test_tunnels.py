"""Emulated lines, really made; skipped, with the reason, where they may not be."""

from __future__ import annotations

import signal
import socket
import statistics
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest
from lab_islands import experiment, mixed

from shardmeter.core.errors import Unavailable
from shardmeter.lab import network
from shardmeter.lab.network import tun

pytestmark = pytest.mark.netns


@pytest.fixture
def tunnels() -> None:
    reasons = network.missing("tun")
    if reasons:
        pytest.skip("; ".join(reasons))


@contextmanager
def sockets(net: Any, kind: socket.SocketKind = socket.SOCK_DGRAM) -> Iterator[list[socket.socket]]:
    """A socket in every island."""
    with ExitStack() as opened:
        found = []
        for namespace, address in zip(net.namespaces, net.addresses, strict=True):
            made = opened.enter_context(namespace.within(lambda: socket.socket(socket.AF_INET, kind)))
            made.bind((address, 5000))
            made.settimeout(1.0)
            found.append(made)
        yield found


def test_round_trips_take_what_the_line_says(tunnels: None) -> None:
    with network.open_network(mixed(), kind="tun") as net, sockets(net) as ends:
        for one, other, rtt, count in ((0, 1, 5e-3, 40), (1, 2, 0.1, 4)):
            times = []
            for _ in range(count):
                began = time.monotonic()
                ends[one].sendto(b"there", (net.addresses[other], 5000))
                came, sender = ends[other].recvfrom(100)
                ends[other].sendto(came, sender)
                ends[one].recv(100)
                times.append(time.monotonic() - began)
            assert rtt - 4e-4 <= statistics.median(times) < rtt + 2e-3


def test_counters_are_what_was_sent_with_headers_and_nothing_else(tunnels: None) -> None:
    with network.open_network(experiment(3), kind="tun") as net, sockets(net) as ends:
        for _ in range(20):
            ends[0].sendto(bytes(1000), (net.addresses[2], 5000))
        for _ in range(20):
            ends[2].recv(2000)
        counted = net.traffic()
        assert counted is not None
        assert (counted[0].sent_bytes, counted[0].sent_packets) == (20 * 1028, 20)
        assert (counted[2].received_bytes, counted[2].received_packets) == (20 * 1028, 20)
        assert [one.received_bytes + one.dropped_packets for one in counted[:2]] == [0, 0]
        assert (counted[1].sent_packets, counted[2].sent_packets) == (0, 0)


def test_tcp_gets_the_rate_of_the_line(tunnels: None) -> None:
    with (
        network.open_network(experiment(2, bandwidth=2.5e6, queue=1e5), kind="tun") as net,
        sockets(net, socket.SOCK_STREAM) as (client, server),
    ):
        server.listen()
        client.connect((net.addresses[1], 5000))
        line, _ = server.accept()
        with line:
            sender = threading.Thread(target=client.sendall, args=(bytes(2_500_000),))
            sender.start()
            got, began, first = 0, 0.0, 0
            while got < 2_500_000:
                got += len(line.recv(1 << 16))
                if not began and got > 500_000:
                    began, first = time.monotonic(), got
            rate = (got - first) / (time.monotonic() - began)
            sender.join()
    assert rate == pytest.approx(2.5e6, rel=0.05)


def test_loss_and_jitter_are_as_asked(tunnels: None) -> None:
    line = experiment(2, rtt=0.02, jitter=1e-3, loss=0.1)
    with network.open_network(line, kind="tun") as net, sockets(net) as (one, other):
        other.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 22)
        came: list[tuple[int, float]] = []

        def receive() -> None:
            while not came or came[-1][0] != 10**6:
                came.append((int(other.recv(100)), time.monotonic()))

        receiver = threading.Thread(target=receive)
        receiver.start()
        left = {}
        for k in range(1000):
            left[k] = time.monotonic()
            one.sendto(b"%d" % k, (net.addresses[1], 5000))
            time.sleep(1e-3)
        while receiver.is_alive():
            one.sendto(b"%d" % 10**6, (net.addresses[1], 5000))
            time.sleep(0.01)
        counted = net.traffic()
    order = [k for k, _ in came if k < 1000]
    assert order == sorted(order)
    assert 60 < 1000 - len(order) < 140
    assert counted is not None
    assert 1000 - len(order) <= counted[0].dropped_packets <= 1000 - len(order) + 10
    delays = [when - left[k] for k, when in came if k < 1000]
    assert statistics.mean(delays) == pytest.approx(0.01, abs=1e-3)
    assert 0.6e-3 < statistics.pstdev(delays) < 2e-3


def test_a_full_queue_drops(tunnels: None) -> None:
    with network.open_network(experiment(2, bandwidth=1.25e5, queue=9000), kind="tun") as net, sockets(net) as ends:
        for _ in range(30):
            ends[0].sendto(bytes(972), (net.addresses[1], 5000))
        time.sleep(0.2)
        counted = net.traffic()
        assert counted is not None
        assert 19 <= counted[0].dropped_packets <= 21
        assert counted[1].received_packets == 30 - counted[0].dropped_packets


def test_a_line_that_is_cut_is_cut_both_ways_and_no_other(tunnels: None) -> None:
    with network.open_network(experiment(3), kind="tun") as net, sockets(net) as ends:
        net.cut(0, 1)
        ends[0].settimeout(0.1)
        ends[1].settimeout(0.1)
        for one, other, arrives in ((0, 1, False), (1, 0, False), (0, 2, True), (2, 1, True)):
            ends[one].sendto(b"there", (net.addresses[other], 5000))
            if arrives:
                assert ends[other].recv(100) == b"there"
            else:
                with pytest.raises(TimeoutError):
                    ends[other].recv(100)
        net.cut(2)
        ends[2].sendto(b"there", (net.addresses[1], 5000))
        with pytest.raises(TimeoutError):
            ends[1].recv(100)


def test_tcp_keeps_to_the_smaller_packets_of_one_line(tunnels: None) -> None:
    with network.open_network(mixed(), kind="tun") as net, sockets(net, socket.SOCK_STREAM) as ends:
        ends[2].listen()
        for one, size in ((0, 9000), (1, 1500)):
            ends[one].connect((net.addresses[2], 5000))
            line, _ = ends[2].accept()
            with line:
                assert size - 60 <= line.getsockopt(socket.IPPROTO_TCP, socket.TCP_MAXSEG) <= size - 40


def test_hosts_are_set_as_on_a_wide_area_line_and_this_one_is_not_touched(tunnels: None) -> None:
    settings = (
        "net/ipv4/tcp_wmem",
        "net/ipv4/tcp_rmem",
        "net/ipv6/conf/all/disable_ipv6",
        "net/ipv4/tcp_congestion_control",
    )

    def mine() -> tuple[Any, ...]:
        read = [path.read_text() for name in settings if (path := Path("/proc/sys") / name).exists()]
        return (read, socket.if_nameindex(), Path("/proc/self/ns/net").readlink(), Path("/proc/net/route").read_text())

    before = mine()
    with network.open_network(experiment(2, bandwidth=1.25e8, rtt=0.1), kind="tun", congestion="reno") as net:
        assert isinstance(net, tun.TunNetwork)
        assert int(net.namespaces[0].setting("ipv4/tcp_wmem").split()[2]) >= 25e6
        assert net.namespaces[1].setting("ipv6/conf/all/disable_ipv6") in ("1", "")
        assert net.congestion == "reno"
        assert mine() == before
    assert mine() == before


def test_an_error_inside_leaves_nothing(tunnels: None) -> None:
    found: list[Any] = []

    def broken() -> None:
        with network.open_network(experiment(), kind="tun") as net:
            assert isinstance(net, tun.TunNetwork)
            found.extend([net.entered(0), net.entered(1), net.carriers[0].process])
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        broken()
    one, other, process = found
    assert process.returncode == 0
    assert not Path(one).exists()
    assert not Path(other).exists()


def test_a_forwarder_that_ends_is_told(tunnels: None) -> None:
    with network.open_network(experiment(), kind="tun") as net:
        assert isinstance(net, tun.TunNetwork)
        assert net.broken() == ""
        net.carriers[0].process.kill()
        net.carriers[0].process.wait()
        assert "exit code -9" in net.broken()
        with pytest.raises(Unavailable, match="exit code -9"):
            net.traffic()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGKILL])
def test_a_signal_to_the_opener_leaves_nothing(tunnels: None, number: signal.Signals) -> None:
    script = f"""
        import sys, time
        sys.path[:0] = {sys.path!r}
        from lab_islands import experiment
        from shardmeter.lab import network
        with network.open_network(experiment(3), kind="tun") as net:
            print(*(carrier.process.pid for carrier in net.carriers), flush=True)
            time.sleep(60)
    """
    with subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(script)], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as opener:
        assert opener.stdout is not None
        pids = [int(word) for word in opener.stdout.readline().split()]
        assert pids
        assert all(Path(f"/proc/{pid}").exists() for pid in pids)
        opener.send_signal(number)
        opener.wait(5.0)
    until = time.monotonic() + 3.0
    while time.monotonic() < until and any(Path(f"/proc/{pid}").exists() for pid in pids):
        time.sleep(0.02)
    assert not any(Path(f"/proc/{pid}").exists() for pid in pids)
    assert not [said for said in network.leftovers() if f"process {opener.pid} " in said]
