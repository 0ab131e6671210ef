"""`measure`: rows are those of the device that was timed; files, profiles, CUDA without a GPU, the small transformer."""

from __future__ import annotations

import importlib.util
import json
import sys
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock

import pytest

import shardmeter
from shardmeter.cli.main import main
from shardmeter.core.errors import BadData, ShardMeterError, Unavailable
from shardmeter.core.record import changed
from shardmeter.specs import Accelerator, Stack
from shardmeter.study.measure import Measured, Measurement, Task, Timing, measure, of, read
from shardmeter.study.measure import torch_device as layer
from shardmeter.study.measure.rows import seconds_of
from shardmeter.study.measure.run import timings
from shardmeter.study.measure.tasks import tasks

ROOT = Path(__file__).parents[2]
RECORD = ROOT / "tests" / "measure" / "recorded.json"
HAS_TORCH = importlib.util.find_spec("torch") is not None
SHARES = {"fp32": 0.55, "bf16": 0.7, "fp8": 0.6}
PEAKS = {"fp32": 8e10, "bf16": 9.9e14, "fp8": 1.98e15}


def timed(task: Task, seconds: float) -> Timing:
    return Timing(task=task, seconds=seconds, low=seconds, high=seconds, runs=9)


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
            return 2.0 * task.sizes["bytes"] / float(self.truth.memory_bandwidth)
        if task.kind == "launch":
            return {"kernel": 12e-6, "step": 1e-3}[task.name]
        return seconds_of(Timing(task=task, seconds=1.0, low=1.0, high=1.0, runs=1), self.truth, self.stack)


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


@pytest.fixture(scope="module")
def answer() -> Measurement:
    return measure(Simulated(), budget=1e-3, quick=True, name="simulated")


def test_rows_are_those_of_the_device_that_was_timed(answer):
    device, stack = answer.rows.accelerator, answer.rows.stack
    reached = device.matmul_share["fp32"] * device.peak["fp32"]
    assert reached == pytest.approx(SHARES["fp32"] * 8e10, rel=0.03)
    assert device.memory_bandwidth == pytest.approx(1.5e10)
    assert stack.traffic_factor == pytest.approx(1.4, rel=1e-3)
    assert (stack.launch_overhead, stack.step_overhead) == pytest.approx((12e-6, 1e-3))
    forward, backward = device.attention_share["fa2"]
    assert device.attention_half == 250.0
    assert forward / backward == pytest.approx(0.45 / 0.35, rel=1e-3)
    assert not device.host_ahead
    assert max(answer.rows.errors["matmul"], answer.rows.errors["attention"]) < 0.02


def test_a_gpu_is_measured_in_its_formats_against_the_peaks_of_its_row():
    device = Simulated("cuda", ("bf16", "fp8"))
    like = Accelerator(
        name="H", memory=8e10, memory_bandwidth=3.35e12, peak={"bf16": 9.9e14, "fp8": 1.98e15}, matmul_share={"bf16": 0.8, "fp8": 0.8},
        attention_share={}, power=700.0, scale_up_bandwidth=4.5e11, scale_up_domain=8.0, node_size=8.0,
    )  # fmt: skip
    found = measure(device, budget=1e-3, quick=True, like=like).rows.accelerator
    assert found.matmul_share["bf16"] == pytest.approx(SHARES["bf16"], rel=1e-3)
    assert found.matmul_share["fp8"] == pytest.approx(SHARES["fp8"], rel=1e-3)
    assert (found.power, found.scale_up_domain, found.host_ahead) == (700.0, 8.0, True)


def test_a_file_gives_the_same_rows_and_a_profile_predicts_with_them(answer, tmp_path, capsys):
    file, folder = tmp_path / "m.json", tmp_path / "mine"
    file.write_text(json.dumps(answer.measured.to_dict()), encoding="utf-8")
    assert of(read(file), "simulated").rows == answer.rows
    assert (
        main(["measure", "--from", str(file), "--name", "simulated", "--profile", str(folder), "--format", "json"]) == 0
    )
    said = json.loads(capsys.readouterr().out)
    assert said["rows"]["stacks"]["name"] == "torch-simulated"
    assert [figure["slug"] for figure in said["figures"]] == ["products", "met"]
    run: dict[str, Any] = {
        "gpus": "1xsimulated",
        "stack": "torch-simulated",
        "plan": "none,precision=fp32",
        "model": "gpt2",
        "seq": 512,
    }
    step = shardmeter.predict(**run, catalog=folder).to_dict()["step_time_s"]
    slower = shardmeter.predict(**run, catalog=folder, overrides=["stack.launch_overhead=20 us"]).to_dict()[
        "step_time_s"
    ]
    # 12 layers of 60 kernels, embedding and head of 30 each: in line with the device, not hidden behind it
    assert slower - step == pytest.approx(8e-6 * (12 * 60 + 60), rel=1e-6)


def test_measurements_that_are_none_are_refused_with_all_that_is_wrong(answer, tmp_path):
    whole = answer.measured.to_dict()
    row = whole["timings"][0]
    bad = {**whole, "threads": "two", "timings": [{**row, "seconds": -1.0}, {**row, "kind": "sleep"}, 7]}
    for text, says in (
        ("{", "not readable"), ("[]", "no file of measurements"), (json.dumps(bad), "threads"),
        (json.dumps({**whole, "timings": [one for one in whole["timings"] if one["kind"] == "copy"]}), "matmul"),
    ):  # fmt: skip
        file = tmp_path / "bad.json"
        file.write_text(text, encoding="utf-8")
        with pytest.raises(BadData, match=says):
            of(read(file))
    file.write_text(json.dumps(bad), encoding="utf-8")
    with pytest.raises(BadData) as raised:
        read(file)
    assert len(raised.value.violations) == 4


def test_every_task_runs_on_cuda_and_what_a_build_lacks_is_left_out():
    found = tasks("cuda", ("bf16", "fp8"), quick=True)
    kinds = {(task.kind, task.name, task.phase, task.dtype): task for task in found}
    asked = tuple(kinds.values())
    full = layer.TorchDevice(torch_of_nothing(), "cuda", None, "wall")
    assert full.dtypes == ("bf16", "fp8")
    taken = [full.ready(task) for task in asked]
    assert all(run is not None for run in taken)
    matmul = next(run for run, task in zip(taken, asked, strict=True) if task.kind == "matmul")
    assert matmul is not None
    assert matmul() == pytest.approx(2e-3)
    lacking = layer.TorchDevice(torch_of_nothing(fp8=False), "cuda", None, "wall")
    left_out = {task.dtype for task in asked if lacking.ready(task) is None}
    assert left_out == {"fp8"}
    assert layer.TorchDevice(torch_of_nothing(capability=(8, 0)), "cuda", None, "wall").dtypes == ("bf16",)


def test_what_cannot_run_is_told_and_kept_in_the_file(tmp_path):
    class Lacking(Simulated):
        def ready(self, task: Task) -> Any:
            return None if task.name == "residual" else super().ready(task)

    measured = measure(Lacking(), quick=True, budget=0.01).measured
    assert measured.left_out
    assert any(one.startswith("pointwise residual") for one in measured.left_out)
    (tmp_path / "here.json").write_text(json.dumps(measured.to_dict()), encoding="utf-8")
    again = of(read(tmp_path / "here.json"))
    assert again.measured == measured
    assert f"not timed, as it could not run here: {measured.left_out[0]}" in again.warnings


def test_the_clock_is_read_at_least_five_times_and_the_first_run_is_thrown_away():
    runs = iter([100.0, *[1.0] * 200])

    class Slow(Simulated):
        def ready(self, task: Task) -> Any:
            return lambda: next(runs)

    (one,) = timings(Slow(), [Task(kind="launch", name="kernel", sizes={})], budget=0.0)
    assert (one.seconds, one.high, one.runs) == (1.0, 1.0, 5)


@pytest.mark.skipif(HAS_TORCH, reason="PyTorch is installed here")
def test_without_pytorch_the_command_says_what_to_install(capsys):
    with pytest.raises(Unavailable, match=r"shardmeter\[measure\]"):
        measure()
    assert main(["measure", "--quick"]) == 74
    assert "pip install" in capsys.readouterr().err


def test_the_recorded_transformer_is_predicted_by_its_recorded_measurement(tmp_path):
    """The rows of the record, remade and asked again by this engine: what the page shows is what the code says."""
    import transformer_check

    record = json.loads(RECORD.read_text(encoding="utf-8"))
    file = tmp_path / "m.json"
    file.write_text(json.dumps(record["measured"]), encoding="utf-8")
    of(read(file), transformer_check.NAME).write(tmp_path / "mine")
    said = [one["step_time_s"] for one in transformer_check.predicted(tmp_path / "mine")]
    assert said == pytest.approx([row["predicted_s"] for row in record["shapes"]], rel=1e-3)
    assert all(abs(step / row["measured_s"] - 1.0) <= 0.15 for step, row in zip(said, record["shapes"], strict=True))
    assert len(said) == 8
    assert transformer_check.table(record) in (ROOT / "docs" / "measure.md").read_text(encoding="utf-8")


@pytest.mark.torch
@pytest.mark.skipif(not HAS_TORCH, reason="needs PyTorch: pip install 'shardmeter[measure]'")
def test_a_real_transformer_is_predicted_by_what_is_measured_here(tmp_path, monkeypatch):
    import transformer_check

    file = tmp_path / "record.json"
    monkeypatch.setattr(
        sys, "argv", ["transformer_check", "--budget", "60", "--steps", "9", "--clock", "cpu", "-o", str(file)]
    )
    transformer_check.main()
    record = json.loads(file.read_text(encoding="utf-8"))
    assert isinstance(read_back(record, tmp_path), Measured)
    errors = [row["error"] for row in record["shapes"]]
    assert max(map(abs, errors)) <= 0.15, errors


def read_back(record: dict[str, object], folder: Path) -> Measured:
    file = folder / "m.json"
    file.write_text(json.dumps(record["measured"]), encoding="utf-8")
    return read(file)


def test_a_clock_of_one_thread_goes_with_one_thread():
    if HAS_TORCH:
        with pytest.raises(ShardMeterError, match="--threads 1"):
            measure(threads=2, clock="cpu")


@pytest.mark.parametrize(("ranks", "reduce_share"), [(2, None), (8, None), (8, 1.2)])
def test_links_are_priced_as_they_were_timed(ranks, reduce_share):
    device = Simulated()
    links = {"scale_up_bandwidth": 3e11, "scale_up_share": 0.8, "scale_up_reduce_share": reduce_share, "scale_up_step": 3e-6,
             "scale_up_latency": 20e-6, "scale_up_domain": float(ranks), "node_size": float(ranks)}  # fmt: skip
    truth = changed(device.truth, **links)
    asked = [
        Task(kind="collective", name=name, sizes={"bytes": size, "ranks": ranks})
        for name in ("all_reduce", "all_gather", "reduce_scatter") for size in (1 << 12, 1 << 20, 1 << 28)
    ]  # fmt: skip
    between = [timed(task, seconds_of(timed(task, 1.0), truth, device.stack)) for task in asked]
    alone = measure(device, quick=True, budget=0.01).measured
    answer = of(changed(alone, timings=(*alone.timings, *between)), "x", "H100-SXM5-80GB")
    for one in between:
        said = seconds_of(one, answer.rows.accelerator, answer.rows.stack)
        assert said == pytest.approx(one.seconds, rel=0.02), one.task.label
    assert answer.rows.errors["collective"] < 0.01
    assert answer.rows.accelerator.node_size == 8, "a part of a machine that was timed makes it no smaller"
