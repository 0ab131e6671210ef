"""What keeps lines from being emulated on this machine, as sentences; found by trying, not by versions."""

from __future__ import annotations

import os
import shutil
import sys
from contextlib import ExitStack

from shardmeter.lab.network import kernel, netem
from shardmeter.lab.network.namespaces import Namespace


def missing(kind: str = "auto") -> tuple[str, ...]:
    """What keeps a kind of emulation (auto: either) from working here. Empty where it works; plain loopback always does."""
    if kind == "loopback":
        return ()
    if kind == "netem":
        return netem_missing()
    found = tun_missing()
    return () if not found or (kind == "auto" and not netem_missing()) else found


def tun_missing() -> tuple[str, ...]:
    """What keeps a forwarder between TUN devices from working."""
    return privileges_missing() or _tun_refused()


def netem_missing() -> tuple[str, ...]:
    """What keeps the kernel's own emulation from working."""
    found = privileges_missing()
    found += tuple(f"no {name} command (package iproute2)" for name in ("ip", "tc") if shutil.which(name) is None)
    if found:
        return found
    refused = netem.tried()
    return (f"the kernel has no netem (CONFIG_NET_SCH_NETEM): {refused}",) if refused else ()


def privileges_missing() -> tuple[str, ...]:
    """What keeps network namespaces from being made."""
    if sys.platform != "linux":
        return (f"network namespaces need Linux; this is {sys.platform}",)
    lacking = kernel.capabilities_missing()
    if lacking:
        return (f"needs root, or CAP_NET_ADMIN and CAP_SYS_ADMIN: this process has no {' and no '.join(lacking)}",)
    try:
        Namespace().close()
    except OSError as failure:
        return (f"the kernel refuses a network namespace: {kernel.reason(failure)} (containers often forbid them)",)
    return ()


def _tun_refused() -> tuple[str, ...]:
    if not os.path.exists(kernel.TUN):  # noqa: PTH110
        return (f"no {kernel.TUN} (kernel module tun; for a container: --device {kernel.TUN})",)
    with ExitStack() as opened:
        try:
            namespace = Namespace()
            opened.callback(namespace.close)
            opened.callback(os.close, namespace.within(lambda: kernel.tun_device("try0")))
        except OSError as failure:
            return (f"{kernel.TUN} refuses a device: {kernel.reason(failure)}",)
    return ()
