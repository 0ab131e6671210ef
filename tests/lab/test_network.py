"""Emulated lines: their law on a clock of numbers, what is asked of the kernel as text, what is missing as sentences."""

from __future__ import annotations

import os
import shutil
import socket
import statistics
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from lab_islands import experiment, mixed

from shardmeter.core.errors import BadScenario, Unavailable, UnknownName
from shardmeter.lab import network
from shardmeter.lab.network import capabilities, forwarder, hosts, kernel, netem, tun
from shardmeter.lab.network.forwarder import Forwarder, Way
from shardmeter.lab.records import Line

# The law of one way.


def test_packets_take_their_size_over_the_rate_one_after_the_other_and_arrive_a_delay_later() -> None:
    way = Way(rate=1e6, delay=0.01, queue=1e6)
    assert [way.admit(5.0, 1000) for _ in range(3)] == pytest.approx([5.011, 5.012, 5.013])
    assert way.admit(6.0, 500) == pytest.approx(6.0105), "an idle line keeps nothing from before"


def test_what_would_wait_in_more_than_the_queue_is_dropped() -> None:
    way = Way(rate=1e6, delay=0.0, queue=5000)
    dues = [way.admit(0.0, 1000) for _ in range(8)]
    assert [due is None for due in dues] == [False] * 5 + [True] * 3
    assert (way.carried, way.dropped) == (5, 3)
    assert way.admit(0.001, 1000) == pytest.approx(0.006), "one has left: one may come"


def test_a_packet_larger_than_the_queue_passes_an_idle_line() -> None:
    assert Way(rate=1e6, delay=0.0, queue=100).admit(0.0, 1000) == pytest.approx(0.001)


@given(
    st.lists(st.tuples(st.floats(0, 0.01), st.integers(40, 9000)), min_size=1, max_size=60),
    st.sampled_from([0.0, 1e-3, 5e-3]), st.integers(0, 99),
)  # fmt: skip
def test_no_way_is_faster_than_its_rate_nor_out_of_order(
    packets: list[tuple[float, int]], jitter: float, seed: int
) -> None:
    way = Way(rate=1e6, delay=0.02, queue=2e4, jitter=jitter, seed=seed)
    now, dues = 0.0, []
    for gap, size in packets:
        now += gap
        due = way.admit(now, size)
        assert (way.free - now) * way.rate <= way.queue + 1e-6
        if due is not None:
            assert due >= now + size / way.rate - 1e-12
            if not jitter:
                assert due == way.free + way.delay
            dues.append(due)
    assert dues == sorted(dues)
    assert way.carried + way.dropped == len(packets)


def test_losses_are_as_many_as_asked_and_the_same_again() -> None:
    def lost(seed: int) -> list[bool]:
        way = Way(rate=1e9, delay=0.0, queue=1e9, loss=0.05, seed=seed)
        return [way.admit(k * 1e-3, 100) is None for k in range(10000)]

    assert lost(1) == lost(1) != lost(2)
    assert 410 < sum(lost(1)) < 590


@pytest.mark.parametrize("gap", [1e-4, 2e-3])
def test_jitter_has_the_deviation_that_was_asked_for_and_leaves_the_mean(gap: float) -> None:
    way = Way(rate=1e9, delay=0.01, queue=1e9, jitter=1e-3, seed=3)
    delays = []
    for k in range(int(60 / gap)):
        due = way.admit(k * gap, 100)
        assert due is not None
        delays.append(due - k * gap)
    assert statistics.pstdev(delays) == pytest.approx(1e-3, rel=0.06)
    assert statistics.mean(delays) == pytest.approx(0.01, rel=0.01)


def test_jitter_never_makes_a_delay_negative() -> None:
    way = Way(rate=1e9, delay=1e-3, queue=1e9, jitter=5e-3, seed=3)
    assert all((way.admit(k * 1e-3, 1) or 0.0) >= k * 1e-3 for k in range(5000))


def test_a_way_that_is_cut_carries_nothing() -> None:
    way = Way(rate=1e6, delay=0.0, queue=1e6)
    way.cut = True
    assert way.admit(0.0, 100) is None
    assert way.dropped == 1


# The forwarder, between sockets in the place of devices.


def packet(receiver: int, size: int = 100) -> bytes:
    """An IPv4 packet to the address of an island, as far as the forwarder reads it."""
    return (b"\x45" + bytes(15) + socket.inet_aton(hosts.address(receiver))).ljust(size, b"x")


@contextmanager
def forwarding(ways: dict[tuple[int, int], Way]) -> Iterator[tuple[list[socket.socket], Any]]:
    """The workers' ends of the devices, and what gives an order and returns the answer."""
    islands = 1 + max(max(pair) for pair in ways)
    pairs = [socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM) for _ in range(islands)]
    with ExitStack() as opened:
        for device, end in pairs:
            opened.enter_context(device)
            opened.enter_context(end)
            device.setblocking(False)
            end.settimeout(2.0)
        (orders, order), (answer, answers) = os.pipe(), os.pipe()
        running = Forwarder([device.fileno() for device, _ in pairs], ways)
        thread = threading.Thread(target=running.run, args=(orders, answers))
        thread.start()

        def ask(words: str) -> bytes:
            os.write(order, words.encode() + b"\n")
            return os.read(answer, 1 << 16)

        try:
            yield [end for _, end in pairs], ask
        finally:
            os.close(order)
            thread.join(5.0)
            assert not thread.is_alive(), "it ends with its input"
            for file in (orders, answers, answer):
                os.close(file)


def test_the_forwarder_delivers_to_whom_a_packet_is_for_when_it_is_due() -> None:
    ways = {(0, 1): Way(rate=1e6, delay=0.03, queue=1e6), (0, 2): Way(rate=1e6, delay=0.01, queue=1e6)}
    with forwarding(ways) as (ends, ask):
        began = time.monotonic()
        ends[0].send(packet(1, 200))
        ends[0].send(packet(2, 300))
        ends[0].send(b"\x60 not IPv4")
        ends[0].send(packet(7))
        assert len(ends[2].recv(9000)) == 300
        assert time.monotonic() - began > 0.01
        assert len(ends[1].recv(9000)) == 200
        assert 0.03 < time.monotonic() - began < 0.3
        assert b'"ways": [[0, 1, 1, 0], [0, 2, 1, 0]]' in (said := ask("count"))
        assert b'"refused": 1' in said
        assert b'"delivered": 2' in said


def test_an_order_to_cut_loses_what_is_under_way() -> None:
    ways = {(0, 1): Way(rate=1e6, delay=0.2, queue=1e6), (0, 2): Way(rate=1e6, delay=0.2, queue=1e6)}
    with forwarding(ways) as (ends, ask):
        for receiver in (1, 2):
            ends[0].send(packet(receiver))
        time.sleep(0.05)
        assert ask("cut 0 1") == b'"done"\n'
        ends[0].send(packet(1))
        assert ends[2].recv(9000) == packet(2)
        ends[1].settimeout(0.3)
        with pytest.raises(TimeoutError):
            ends[1].recv(9000)
        assert b'"ways": [[0, 1, 0, 2], [0, 2, 1, 0]]' in ask("count")


# Islands and lines.


def test_every_pair_has_the_line_that_was_said_of_it() -> None:
    one = mixed()
    assert {(a, b): line.rtt for a, b, line in hosts.pairs(one)} == {(0, 1): 5e-3, (0, 2): 5e-3, (1, 2): 0.1}
    assert set(hosts.lines_of(one, 2)) == {0, 1}
    assert [hosts.mtu(one, island) for island in range(3)] == [9000, 9000, 9000]
    assert hosts.window(one, 0) == 12.5e6 * 5e-3 + 1e6
    said = {"lines": [{"one": 1, "other": 2, "way": tun.described(one.line)}], "senders": [2], "seed": 0}
    assert [(pair, way.delay) for pair, way in forwarder.ways_of(said).items()] == [((2, 1), 2.5e-3)]


def test_as_many_forwarders_as_the_rates_need_and_no_more_than_processors(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "cpu_count", lambda: 2)
    assert tun.processes_for(experiment(4)) == 1
    assert tun.processes_for(experiment(2, bandwidth=1.25e8)) == 1
    assert tun.processes_for(experiment(4, bandwidth=1.25e8)) == 2
    assert tun.processes_for(experiment(8, bandwidth=1.25e9)) == 2
    assert tun.processes_for(experiment(1)) == 1


def test_lines_that_cannot_be_are_refused_all_at_once() -> None:
    with pytest.raises(BadScenario) as refused:
        network.open_network(experiment(2, bandwidth=0.0, loss=1.0, mtu=1e6, queue=10.0, rtt=-1.0), kind="tun")
    fields = {violation.field for violation in refused.value.violations}
    assert fields == {f"line.{field}" for field in ("bandwidth", "loss", "mtu", "queue", "rtt")}


def test_an_unknown_kind_is_told_with_those_there_are() -> None:
    with pytest.raises(UnknownName, match="netem"):
        network.open_network(experiment(), kind="netm")


def test_plain_loopback_needs_nothing_and_says_that_it_emulates_nothing() -> None:
    with network.open_network(experiment(3), kind="loopback") as net:
        assert (net.kind, net.interface, net.traffic(), net.entered(1)) == ("loopback", "lo", None, None)
        assert len(set(net.addresses)) == 3
        assert "nothing is emulated" in net.notes[0]
        with pytest.raises(Unavailable, match="cannot be cut"):
            net.cut(0)


# The kernel's own emulation, as text: few kernels that run tests have it.


def test_a_line_in_the_words_of_netem() -> None:
    line = Line(bandwidth=12.5e6, rtt=0.02, jitter=1e-3, loss=0.001, queue=9e5, mtu=9000.0)
    said = " ".join(netem.netem_words(line))
    assert said == "netem limit 115 delay 10000us 1732us loss 0.1% rate 100000000bit"
    assert (
        " ".join(netem.netem_words(Line(bandwidth=1.25e6, rtt=0.1))) == "netem limit 120 delay 50000us rate 10000000bit"
    )


def test_every_way_has_a_class_a_queue_and_a_filter_of_its_own() -> None:
    said = [" ".join(command) for command in netem.island_commands(mixed(), 1)]
    assert said[:2] == ["ip link set dev wan0 gso_max_segs 1", "tc qdisc add dev wan0 root handle 1: htb"]
    for other, words in (
        (0, "limit 116 delay 2500us rate 100000000bit"),
        (2, "limit 710 delay 50000us rate 10000000bit"),
    ):
        flow = f"1:{other + 1}"
        assert f"ip neigh add 10.78.0.{other + 1} lladdr 02:00:00:00:00:0{other + 1} dev wan0 nud permanent" in said
        assert f"tc class add dev wan0 parent 1: classid {flow} htb rate 32gbit quantum 200000" in said
        assert f"tc qdisc add dev wan0 parent {flow} handle 1{other}: netem {words}" in said
        assert any(
            line.startswith("tc filter") and line.endswith(f"dst 10.78.0.{other + 1}/32 flowid {flow}") for line in said
        )
    assert " ".join(netem.cut_command(2)) == "tc qdisc replace dev wan0 parent 1:3 blackhole"


def test_a_bridge_joins_the_islands() -> None:
    said = [" ".join(command) for command in netem.hub_commands(experiment(2, mtu=1500.0), ["/a", "/b"])]
    assert said[0] == "ip link add name hub0 mtu 1500 type bridge"
    assert (
        "ip link add name site1 mtu 1500 type veth peer name wan0 address 02:00:00:00:00:02 mtu 1500 netns /b" in said
    )
    assert "ip link set dev site1 master hub0 up" in said


def test_what_queues_dropped_is_read_of_what_tc_prints() -> None:
    text = '[{"kind":"htb","root":true,"drops":7},{"kind":"netem","parent":"1:2","drops":5},{"kind":"blackhole","parent":"1:3","drops":2}]'
    assert netem.dropped(text) == 7
    assert netem.dropped("") == 0


def test_link_headers_are_not_counted() -> None:
    counters = (1140, 10, 0, 0, 0, 0, 0, 0, 2280, 20, 0, 1, 0, 0, 0, 0)
    counted = tun.traffic_of(counters, dropped=2, header=netem.ETHERNET)
    assert (counted.received_bytes, counted.sent_bytes, counted.sent_packets, counted.dropped_packets) == (
        1000,
        2000,
        20,
        3,
    )


# What is missing, as sentences.


def test_another_system_is_told_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", "darwin")
    assert network.missing() == ("network namespaces need Linux; this is darwin",)
    assert network.missing("loopback") == ()


def test_privileges_that_lack_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernel, "capabilities_missing", lambda: ("CAP_SYS_ADMIN",))
    (said,) = network.missing()
    assert said == "needs root, or CAP_NET_ADMIN and CAP_SYS_ADMIN: this process has no CAP_SYS_ADMIN"
    with pytest.raises(Unavailable, match="cannot be emulated here: needs root"):
        network.open_network(experiment())


def test_a_kernel_that_refuses_namespaces_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse() -> None:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(kernel, "capabilities_missing", tuple)
    monkeypatch.setattr(kernel, "leave_network", refuse)
    (said,) = network.missing("tun")
    assert said.startswith("the kernel refuses a network namespace: Operation not permitted")


def test_devices_and_commands_that_lack_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(capabilities, "privileges_missing", tuple)
    monkeypatch.setattr(shutil, "which", lambda name: None)
    monkeypatch.setattr(kernel, "TUN", "/dev/net/none")
    assert network.missing("netem") == ("no ip command (package iproute2)", "no tc command (package iproute2)")
    assert network.missing()[0].startswith("no /dev/net/none")


def test_processes_whose_opener_has_ended_are_left_over(tmp_path: Path) -> None:
    for pid, name, state in (
        (10, "python", "S"),
        (11, "smlab-10", "S"),
        (12, "smlab-99", "S"),
        (13, "smlab-98", "Z"),
        (14, "a (b", "S"),
    ):
        (tmp_path / str(pid)).mkdir()
        (tmp_path / str(pid) / "stat").write_text(f"{pid} ({name}) {state} 1 1")
    assert network.leftovers(tmp_path) == ("process 12 of a lab that process 99 had opened, which has ended",)
