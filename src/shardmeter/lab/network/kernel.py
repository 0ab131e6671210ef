"""What the lab asks of the Linux kernel that Python has no function for."""

from __future__ import annotations

import ctypes
import os
import re
import signal
import socket
import struct
from contextlib import suppress

NEW_NETWORK = 0x40000000
"""CLONE_NEWNET: a network namespace."""
CAPABILITIES = {"CAP_NET_ADMIN": 12, "CAP_SYS_ADMIN": 21}
TITLE = "smlab-"
"""Processes of the lab are called so, and after the process that opened the lab; see `leftovers`."""
TUN = "/dev/net/tun"


def title(opener: int) -> str:
    """What a process of the lab is called: 15 characters at most."""
    return f"{TITLE}{opener}"


def _checked(result: int) -> None:
    if result != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


def _library() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)


def leave_network() -> None:
    """Put the calling thread into a new network namespace of its own. Raises OSError where the kernel refuses."""
    _checked(_library().unshare(NEW_NETWORK))


def enter_network(namespace: int | str) -> None:
    """Put the calling thread into a network namespace, given as an open file or as a path. Raises OSError."""
    file = os.open(namespace, os.O_RDONLY | os.O_CLOEXEC) if isinstance(namespace, str) else namespace
    try:
        _checked(_library().setns(file, NEW_NETWORK))
    finally:
        if isinstance(namespace, str):
            os.close(file)


def call_process(name: str) -> None:
    """Set the name under which the calling process is listed; the first 15 bytes count."""
    _library().prctl(15, name.encode(), 0, 0, 0)


def die_with(pipe: int) -> None:
    """Have the kernel kill the calling process when the other end of a pipe, of which it holds the end to read, is closed: as that of a
    process that ends is, however it ends. A pipe that is closed already kills nobody."""
    import fcntl

    fcntl.fcntl(pipe, fcntl.F_SETOWN, os.getpid())
    fcntl.fcntl(pipe, fcntl.F_SETSIG, signal.SIGKILL)
    fcntl.fcntl(pipe, fcntl.F_SETFL, fcntl.fcntl(pipe, fcntl.F_GETFL) | os.O_ASYNC)


def capabilities_missing() -> tuple[str, ...]:
    """Names of the capabilities that the lab needs and this process has not."""
    status = ""
    with suppress(OSError), open("/proc/self/status", encoding="utf-8") as file:  # noqa: PTH123
        status = file.read()
    found = re.search(r"^CapEff:\s*([0-9a-f]+)", status, re.MULTILINE)
    held = int(found[1], 16) if found else 0
    return tuple(name for name, bit in CAPABILITIES.items() if not held >> bit & 1)


def tun_device(name: str) -> int:
    """A new TUN device in the calling thread's namespace: packets without link headers, read and written without waiting.

    The device is there as long as the file that is returned. Raises OSError."""
    import fcntl  # not on every system on which `missing` is asked

    file = os.open(TUN, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        fcntl.ioctl(
            file, 0x400454CA, struct.pack("16sH22x", name.encode(), 0x0001 | 0x1000)
        )  # TUNSETIFF, IFF_TUN | IFF_NO_PI
    except OSError:
        os.close(file)
        raise
    return file


def raise_interface(name: str, *, address: str = "", mtu: int = 0, backlog: int = 0) -> None:
    """Give an interface of the calling thread's namespace an address (of a /24), an MTU, a length of its queue, and switch it on.

    Raises OSError."""
    import fcntl

    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asked:

        def ask(number: int, form: str, *values: bytes | int) -> bytes:
            return fcntl.ioctl(asked, number, struct.pack(f"16s{form}", name.encode(), *values).ljust(40, b"\0"))

        if mtu:
            ask(0x8922, "i", mtu)  # SIOCSIFMTU
        if backlog:
            ask(0x8943, "i", backlog)  # SIOCSIFTXQLEN
        if address:
            ask(0x8916, "HH4s", socket.AF_INET, 0, socket.inet_aton(address))  # SIOCSIFADDR
            ask(0x891C, "HH4s", socket.AF_INET, 0, socket.inet_aton("255.255.255.0"))  # SIOCSIFNETMASK
        (flags,) = struct.unpack_from("H", ask(0x8913, "H", 0), 16)  # SIOCGIFFLAGS
        ask(0x8914, "H", flags | 1)  # SIOCSIFFLAGS, IFF_UP


def narrow_route(name: str, address: str, mtu: int) -> None:
    """Have TCP send segments of at most `mtu` bytes, headers included, to one host and back, where others get longer ones.

    Raises OSError."""
    import fcntl

    device = ctypes.create_string_buffer(name.encode())
    host, any_address = (struct.pack("HH4s8x", socket.AF_INET, 0, socket.inet_aton(a)) for a in (address, "0.0.0.0"))  # noqa: S104
    flags = 0x0001 | 0x0004 | 0x0040  # RTF_UP | RTF_HOST | RTF_MSS
    route = struct.pack(
        "L16s16s16sHhLPhxxxxxxPLLH6x",
        0,
        host,
        any_address,
        any_address,
        flags,
        0,
        0,
        0,
        0,
        ctypes.addressof(device),
        mtu,
        0,
        0,
    )
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asked:
        fcntl.ioctl(asked, 0x890B, route)  # SIOCADDRT


def reason(failure: OSError) -> str:
    """Why the kernel refused, in its own words."""
    return os.strerror(failure.errno) if failure.errno else str(failure)
