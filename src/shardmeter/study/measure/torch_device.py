"""Tasks in PyTorch, on a CPU or on a CUDA device: what a training step in PyTorch calls for the same work."""

from __future__ import annotations

import ctypes
import os
import platform
import re
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from shardmeter.core.errors import ShardMeterError, Unavailable
from shardmeter.specs.demands import FORWARD, INPUT_GRAD
from shardmeter.study.measure.record import Task

Work = Callable[[], Any]
SHORT = 2e-4
"""Seconds of a run below which a task is repeated inside it, so that the clock's own cost is lost in it."""
CHAIN = 100
"""Kernels of a launch task."""
PARAMETERS = 50
"""Tensors of the smallest optimizer step."""
COPIES = 8
"""Buffers that a task goes round over, so that it finds its operands as cold as a step with several layers leaves them."""


def open_device(kind: str, threads: int | None = None, clock: str = "wall") -> TorchDevice:
    """The device of a kind. Raises Unavailable without PyTorch, ShardMeterError where there is no such device, or a clock
    that it has not."""
    try:
        import torch
    except ImportError:
        raise Unavailable("measuring needs PyTorch: pip install 'shardmeter[measure]'") from None
    if kind == "cuda" and not torch.cuda.is_available():
        raise ShardMeterError("--device cuda: PyTorch finds no CUDA device here; --device cpu measures the processor")
    if clock == "cpu" and (kind != "cpu" or (threads or 1) != 1):
        raise ShardMeterError("--clock cpu counts the seconds of one thread: it goes with --device cpu --threads 1")
    return TorchDevice(torch, kind, threads, clock)


def refuse_ranks(kind: str, ranks: int) -> None:
    """Raises ShardMeterError where a device of that kind is not there for every process."""
    most = max(2, os.cpu_count() or 1)
    if kind == "cuda":
        import torch

        most = int(torch.cuda.device_count())
    if ranks > most:
        raise ShardMeterError(
            f"--ranks {ranks}: every process has a {'GPU' if kind == 'cuda' else 'core'} of its own, of which {most} are here"
        )


class TorchDevice:
    """A device as PyTorch has it; see `run.Device`."""

    def __init__(self, torch: Any, kind: str, threads: int | None, clock: str) -> None:
        self._torch, self.kind, self.clock = torch, kind, clock
        self.software = f"torch {torch.__version__}"
        self._now = time.process_time if clock == "cpu" else time.perf_counter
        if kind == "cuda":
            facts = torch.cuda.get_device_properties(0)
            self.name, self.memory = str(facts.name), float(facts.total_memory)
            self.processors, self.threads = float(facts.multi_processor_count), 0
            narrow = ("fp8",) if (facts.major, facts.minor) >= (8, 9) else ()
            self.dtypes: tuple[str, ...] = ("bf16", *narrow)
        else:
            torch.set_num_threads(1 if clock == "cpu" else threads or torch.get_num_threads())
            self.name, self.memory = _processor(), float(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))
            self.processors, self.threads, self.dtypes = 0.0, int(torch.get_num_threads()), ("fp32",)
            keep_memory()
        torch.manual_seed(0)

    def ready(self, task: Task) -> Callable[[], float] | None:
        """Operands are made here; None where a kernel is missing (fp8 products of some builds)."""
        make = {
            "matmul": self._matmul, "attention": self._attention, "copy": self._copy, "pointwise": self._pointwise,
            "launch": self._launch,
        }[task.kind]  # fmt: skip
        try:
            work, share = make(task)
            work()
            self._wait()
        except (RuntimeError, NotImplementedError, AttributeError):
            return None
        if task.kind == "launch":
            return lambda: self._launched(work) * share
        once = self._timed(work, 1)
        times = max(1, round(SHORT / once)) if once < SHORT else 1
        return lambda: self._timed(work, times) * share

    def _timed(self, work: Work, times: int) -> float:
        if self.kind == "cuda":
            start, end = (self._torch.cuda.Event(enable_timing=True) for _ in range(2))
            start.record()
            for _ in range(times):
                work()
            end.record()
            end.synchronize()
            return float(start.elapsed_time(end)) * 1e-3 / times
        begin = self._now()
        for _ in range(times):
            work()
        return (self._now() - begin) / times

    def _launched(self, work: Work) -> float:
        """Seconds of the host, which does not wait for the device: its queue is empty before and long enough."""
        self._wait()
        begin = self._now()
        work()
        return self._now() - begin

    def _wait(self) -> None:
        if self.kind == "cuda":
            self._torch.cuda.synchronize()

    def _randn(self, *shape: int, dtype: str, grad: bool = False) -> Any:
        torch = self._torch
        kind = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}[dtype]
        return torch.randn(*shape, device=self.kind, dtype=kind, requires_grad=grad)

    def _matmul(self, task: Task) -> tuple[Work, float]:
        """The product that autograd calls in this phase for y = x·Wᵀ, W as PyTorch keeps it: outputs × inputs."""
        if task.dtype == "fp8":
            return self._matmul_fp8(task)
        torch, sizes = self._torch, task.sizes
        x = self._randn(sizes["tokens"], sizes["inputs"], dtype=task.dtype)
        weight = self._randn(sizes["outputs"], sizes["inputs"], dtype=task.dtype)
        out = self._randn(sizes["tokens"], sizes["outputs"], dtype=task.dtype)
        if task.phase == FORWARD:
            return lambda: torch.nn.functional.linear(x, weight), 1.0
        if task.phase == INPUT_GRAD:
            return lambda: out @ weight, 1.0
        return lambda: out.t() @ x, 1.0

    def _matmul_fp8(self, task: Task) -> tuple[Work, float]:
        """One scale a tensor; the kernel takes rows by columns, so every operand lies as it wants it (casts are apart)."""
        torch, sizes = self._torch, task.sizes
        m, k, n = {
            FORWARD: (sizes["tokens"], sizes["inputs"], sizes["outputs"]),
            INPUT_GRAD: (sizes["tokens"], sizes["outputs"], sizes["inputs"]),
        }.get(task.phase, (sizes["outputs"], sizes["tokens"], sizes["inputs"]))
        left = self._randn(m, k, dtype="bf16").to(torch.float8_e4m3fn)
        right = self._randn(n, k, dtype="bf16").to(torch.float8_e4m3fn).t()
        one = torch.ones((), device=self.kind)
        return lambda: torch._scaled_mm(left, right, scale_a=one, scale_b=one, out_dtype=torch.bfloat16), 1.0  # noqa: SLF001  (PyTorch has no other name for it)

    def _attention(self, task: Task) -> tuple[Work, float]:
        attend, sizes = self._torch.nn.functional.scaled_dot_product_attention, task.sizes
        shape = (sizes["batch"], sizes["heads"], sizes["seq"], sizes["head_dim"])
        parts = [self._randn(*shape, dtype=task.dtype, grad=task.phase != FORWARD) for _ in range(3)]
        if task.phase == FORWARD:
            return lambda: attend(*parts, is_causal=True), 1.0
        out, gradient = attend(*parts, is_causal=True), self._randn(*shape, dtype=task.dtype)
        return lambda: self._torch.autograd.grad(out, parts, gradient, retain_graph=True), 1.0

    def _copy(self, task: Task) -> tuple[Work, float]:
        count = max(task.sizes["bytes"] // 4, 1)
        source, target = (self._randn(count, dtype="fp32") for _ in range(2))
        return (lambda: source.mul_(1.0)) if task.name == "in place" else (lambda: target.copy_(source)), 1.0

    def _pointwise(self, task: Task) -> tuple[Work, float]:
        if task.name == "update":
            return self._update([task.sizes["width"]] * task.sizes["rows"])
        if task.name == "loss":
            return self._loss(task)
        functional, shape = self._torch.nn.functional, (task.sizes["rows"], task.sizes["width"])
        backward = task.phase != FORWARD and task.name != "residual"
        inputs = [self._randn(*shape, dtype=task.dtype, grad=backward) for _ in range(COPIES)]
        other = [self._randn(*shape, dtype=task.dtype) for _ in range(COPIES)]
        scale, shift = (self._randn(shape[1], dtype=task.dtype, grad=backward) for _ in range(2))

        def forward(x: Any, y: Any) -> Any:
            if task.name == "norm":
                return functional.layer_norm(x, shape[1:], scale, shift)
            return (
                functional.gelu(x) if task.name == "activation" else x + y
            )  # two gradients of one tensor are added like this too

        if not backward:
            return lambda: [forward(x, y) for x, y in zip(inputs, other, strict=True)], 1.0 / COPIES
        outputs = [forward(x, y) for x, y in zip(inputs, other, strict=True)]
        wanted = [*inputs, scale, shift] if task.name == "norm" else inputs
        return lambda: self._torch.autograd.grad(outputs, wanted, other, retain_graph=True), 1.0 / COPIES

    def _loss(self, task: Task) -> tuple[Work, float]:
        """Cross entropy on fp32 logits, as eager code has it."""
        torch, rows, width = self._torch, task.sizes["rows"], task.sizes["width"]
        logits = self._randn(rows, width, dtype=task.dtype, grad=task.phase != FORWARD)
        target = torch.randint(0, width, (rows,), device=self.kind)
        if task.phase == FORWARD:
            return lambda: torch.nn.functional.cross_entropy(logits.float(), target), 1.0
        loss = torch.nn.functional.cross_entropy(logits.float(), target)
        return lambda: torch.autograd.grad(loss, logits, retain_graph=True), 1.0

    def _update(self, widths: list[int]) -> tuple[Work, float]:
        """AdamW with one kernel a tensor (or for all of them)."""
        parameters = [self._randn(width, dtype="fp32", grad=True) for width in widths]
        for one in parameters:
            one.grad = self._torch.zeros_like(one)
        return self._torch.optim.AdamW(parameters, fused=True).step, 1.0

    def _launch(self, task: Task) -> tuple[Work, float]:
        """kernel: the smallest of a chain that autograd records; step: an optimizer step over the smallest parameters."""
        if task.name == "step":
            return self._update([1] * PARAMETERS)
        x = self._randn(1, dtype="fp32", grad=True)

        def chain() -> None:
            y = x
            for _ in range(CHAIN):
                y = y * 1.0

        return chain, 1.0 / CHAIN


def keep_memory() -> None:
    """Tell the C library to keep what is freed (glibc): else every large tensor is paid for page by page, each time anew. Training
    on a CPU keeps it too where its allocator is tcmalloc or jemalloc."""
    with suppress(OSError, AttributeError):
        mallopt = ctypes.CDLL("libc.so.6").mallopt
        mallopt(-3, 1 << 30)  # M_MMAP_THRESHOLD
        mallopt(-1, (1 << 31) - 1)  # M_TRIM_THRESHOLD


def _processor() -> str:
    """What the processor calls itself."""
    with suppress(OSError):
        found = re.search(r"^model name\s*:\s*(.+)$", Path("/proc/cpuinfo").read_text(encoding="utf-8"), re.MULTILINE)
        if found:
            return found.group(1).strip()
    return platform.processor() or platform.machine() or "cpu"
