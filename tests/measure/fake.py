"""A device whose kernels take exactly what the engine says of known rows, and a PyTorch that computes nothing."""

from __future__ import annotations

from typing import Any
from unittest.mock import MagicMock

from shardmeter.specs import Accelerator, Stack
from shardmeter.study.measure import Task, Timing
from shardmeter.study.measure.rows import _seconds

SHARES = {"fp32": 0.55, "bf16": 0.7, "fp8": 0.6}
PEAKS = {"fp32": 8e10, "bf16": 9.9e14, "fp8": 1.98e15}


class Simulated:
    """A `Device` without noise: 12 µs a launch, 1 ms a step, known shares."""

    name, software, clock, memory = "Simulated (R) 9000", "torch 9.9", "wall", 16e9

    def __init__(self, kind: str = "cpu", dtypes: tuple[str, ...] = ("fp32",)) -> None:
        self.kind, self.dtypes = kind, dtypes
        self.threads, self.processors = (1, 0.0) if kind == "cpu" else (0, 132.0)
        self.asked: list[Task] = []
        bandwidth = 1.5e10 if kind == "cpu" else 3.35e12
        self.truth = Accelerator(
            name="truth", memory=self.memory, memory_bandwidth=bandwidth, peak={one: PEAKS[one] for one in dtypes},
            matmul_share={one: SHARES[one] for one in dtypes}, attention_share={"fa2": (0.45, 0.35)}, attention_half=250.0,
            memory_share=1.0, processors=self.processors, scale_up_bandwidth=1e9, scale_up_domain=1.0, node_size=1.0,
        )  # fmt: skip
        self.stack = Stack(name="truth", gemm_factor=1.0, attention_factor=1.0, traffic_factor=1.4)

    def ready(self, task: Task) -> Any:
        self.asked.append(task)
        seconds = self.seconds(task)
        return None if task.kind == "attention" and task.sizes["head_dim"] == 96 else lambda: seconds

    def seconds(self, task: Task) -> float:
        if task.kind == "copy":
            return 2.0 * task.sizes["bytes"] / self.truth.memory_bandwidth
        if task.kind == "launch":
            return {"kernel": 12e-6, "step": 1e-3}[task.name]
        return _seconds(Timing(task=task, seconds=1.0, low=1.0, high=1.0, runs=1), self.truth, self.stack)


def torch_of_nothing(*, fp8: bool = True, capability: tuple[int, int] = (9, 0)) -> MagicMock:
    """A PyTorch on whose CUDA device every kernel takes 2 ms; `fp8`: whether it has fp8 products."""
    torch = MagicMock()
    torch.__version__ = "9.9"
    facts = torch.cuda.get_device_properties.return_value
    facts.name, facts.total_memory, facts.multi_processor_count = "NVIDIA H100 80GB HBM3", 80 << 30, 132
    facts.major, facts.minor = capability
    torch.cuda.Event.return_value.elapsed_time.return_value = 2.0
    if not fp8:
        torch._scaled_mm.side_effect = RuntimeError("no such kernel")
    return torch
