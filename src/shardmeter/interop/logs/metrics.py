"""Names of metrics that trainers send to trackers, and what of a step they are."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from shardmeter.interop.logs.values import GB, GIB, inverse, number, positive, times, whole

Meaning = tuple[str, Callable[[str | float | None], float | None]]


def _giga(value: str | float | None) -> float | None:
    return times(value, GIB)


def _decimal(value: str | float | None) -> float | None:
    return times(value, GB)


METRICS: Mapping[str, Meaning] = {
    "time_metrics/end_to_end(s)": ("seconds", positive), "iteration-time": ("seconds", positive), "perf/step_time_seconds": ("seconds", positive),
    "train_step_timing in s": ("seconds", positive), "iter_time": ("seconds", positive), "throughput/batches_per_sec": ("seconds", inverse),
    "batches_per_sec": ("seconds", inverse), "throughput/device/batches_per_sec": ("seconds", inverse), "device/batches_per_sec": ("seconds", inverse),
    "throughput(tps)": ("tokens_per_s_per_gpu", positive), "tps": ("tokens_per_s_per_gpu", positive),
    "throughput/device/tokens_per_sec": ("tokens_per_s_per_gpu", positive), "perf/per_device_tokens_per_sec": ("tokens_per_s_per_gpu", positive),
    "throughput/device/tps": ("tokens_per_s_per_gpu", positive), "tokens_per_second_per_gpu": ("tokens_per_s_per_gpu", positive),
    "tokens_per_sec_per_gpu": ("tokens_per_s_per_gpu", positive), "throughput/tokens_per_sec": ("tokens_per_s", positive),
    "tokens_per_sec": ("tokens_per_s", positive), "samples_per_sec": ("samples_per_s", positive), "throughput/samples_per_sec": ("samples_per_s", positive),
    "batch-size": ("samples", positive), "global_batch_size": ("samples", positive), "throughput/global_batch_size": ("samples", positive),
    "memory/max_reserved(gib)": ("reserved", _giga), "memory/max_active(gib)": ("allocated", _giga), "peak_memory_reserved": ("reserved", _giga),
    "peak_memory_alloc": ("allocated", _giga), "memory/peak_reserved_mem": ("reserved", _decimal), "memory/peak_allocated_mem": ("allocated", _decimal),
    "mem-max-allocated-bytes": ("allocated", positive), "n_tokens_seen": ("tokens_seen", whole), "num_input_tokens_seen": ("tokens_seen", whole),
    "time/token": ("tokens_seen", whole), "time/sample": ("samples_seen", whole), "throughput/total tokens": ("tokens_seen", whole),
    "consumed_samples": ("samples_seen", whole), "loss_metrics/global_avg_loss": ("loss", number), "lm loss": ("loss", number), "loss": ("loss", number),
    "train_loss": ("loss", number), "reduced_train_loss": ("loss", number), "loss/train/total": ("loss", number), "train/ce loss": ("loss", number),
    "learning/loss": ("loss", number), "_runtime": ("at", positive), "_timestamp": ("at", positive),
}  # fmt: skip
"""By the name in small letters, without `train/` before it: the field of a `Step`, and what makes its number of the text."""
PREFIXES = ("train/", "train ", "trainer/", "train_")


def meaning(key: str) -> Meaning | None:
    """What a metric is; a W&B chart writes the name of the run and a dash before it."""
    name = key.rpartition(" - ")[2].strip().lower()
    if name in METRICS:
        return METRICS[name]
    return next((METRICS[short] for before in PREFIXES if (short := name.removeprefix(before)) != name and short in METRICS), None)
