"""What can be claimed of a run: every quantity with its dimension, its names, and how often it is the one that is wrong."""

from __future__ import annotations

from shardmeter.core.errors import UnknownName
from shardmeter.core.record import record


@record
class Quantity:
    """One quantity of a run."""

    key: str
    says: str
    dimension: str
    """How a text of it is read: a key of `reading.READERS`."""
    unit: str = ""
    """How it is shown, as in `render.cells`."""
    group: str = ""
    """Which named factors apply: ratio, flops_rate, rate, flops, batch, time, money, memory, network, network_time, peak; empty = none."""
    suspicion: int = 1
    """Of several claims that contradict each other the highest is named: what a program prints before what a person sets."""
    whole: bool = False
    """Whether it counts things."""
    aliases: tuple[str, ...] = ()


def _of(key: str, says: str, dimension: str, unit: str = "", group: str = "", suspicion: int = 1, aliases: str = "",
        *, whole: bool = False) -> Quantity:  # fmt: skip
    names = tuple(aliases.split())
    return Quantity(
        key=key, says=says, dimension=dimension, unit=unit, group=group, suspicion=suspicion, aliases=names, whole=whole
    )  # fmt: skip


ALL: tuple[Quantity, ...] = (
    _of("mfu", "model FLOPs over peak", "share", "%", "ratio", 9),
    _of("hfu", "executed FLOPs over peak", "share", "%", "ratio", 9),
    _of("tflops_per_gpu", "model FLOPs a second and GPU", "flops_rate", "FLOP/s", "flops_rate", 8, "tflops_per_s_per_gpu"),
    _of("tflops", "model FLOPs a second of the job", "flops_rate", "FLOP/s", "flops_rate", 8, "tflops_total"),
    _of("tokens_per_s", "tokens a second of the job", "rate", "tokens/s", "rate", 7, "tok_s tps throughput tokens_per_second"),
    _of("tokens_per_s_per_gpu", "tokens a second and GPU", "rate", "tokens/s", "rate", 7, "tgs tok_s_gpu tokens_per_second_per_gpu"),
    _of("tokens_per_s_per_node", "tokens a second and node", "rate", "tokens/s", "rate", 7),
    _of("tokens_per_s_per_core", "tokens a second and core", "rate", "tokens/s", "rate", 8),
    _of("samples_per_s", "sequences a second of the job", "rate", "sequences/s", "rate", 7, "sequences_per_s"),
    _of("samples_per_s_per_gpu", "sequences a second and GPU", "rate", "sequences/s", "rate", 7),
    _of("step_time", "time of an optimizer step", "time", "s", "time", 4, "step_time_s iteration_time dt"),
    _of("micro_step_time", "time of one pass forward and backward", "time", "s", "time", 3, "micro_batch_time"),
    _of("steps_per_s", "optimizer steps a second", "rate", "steps/s", "rate", 4, "iterations_per_s it_s its"),
    _of("steps", "optimizer steps", "count", "", "batch", 3, "iterations", whole=True),
    _of("tokens", "tokens of all steps", "count", "tokens", "rate", 6, "tokens_seen n_tokens_seen"),
    _of("dataset_tokens", "tokens of one epoch", "count", "tokens", "batch", 2),
    _of("dataset_samples", "sequences of one epoch", "count", "", "batch", 1, "examples num_examples", whole=True),
    _of("epochs", "passes over the data", "count", "", "batch", 1),
    _of("tokens_per_step", "tokens of an optimizer step", "count", "tokens", "batch", 3, "batch_tokens total_batch_size"),
    _of("global_batch", "sequences of an optimizer step", "count", "", "batch", 2, "train_batch_size batch_size gbs", whole=True),
    _of("micro_batch", "sequences of a pass and rank", "count", "", "batch", 2, "mbs per_device_batch", whole=True),
    _of("accumulation", "passes of a step", "count", "", "batch", 3, "grad_accum gas gradient_accumulation_steps", whole=True),
    _of("seq_len", "tokens of a sequence", "count", "tokens", "batch", 1, "seq sequence_length", whole=True),
    _of("gpus", "accelerators", "count", "", "batch", 1, "world world_size n_gpus chips devices", whole=True),
    _of("nodes", "nodes", "count", "", "batch", 1, whole=True),
    _of("gpus_per_node", "accelerators of a node", "count", "", "batch", 1, whole=True),
    _of("cores_per_gpu", "cores of an accelerator", "count", "", "batch", 1, "cores_per_chip", whole=True),
    _of("dp", "data parallel ranks", "count", "", "batch", 4, "data_parallel", whole=True),
    _of("tp", "tensor parallel ranks", "count", "", "batch", 1, "tensor_parallel", whole=True),
    _of("pp", "pipeline stages", "count", "", "batch", 1, "pipeline_parallel", whole=True),
    _of("cp", "ranks that share a sequence", "count", "", "batch", 1, "sp context_parallel sequence_parallel ulysses", whole=True),
    _of("wall_clock", "time of the run", "time", "s", "time", 5, "duration run_time training_time"),
    _of("gpu_hours", "accelerator-hours", "gpu_hours", "gpu_h", "time", 6, "chip_hours accelerator_hours"),
    _of("start", "first day", "date", "date", "", 1),
    _of("end", "last day", "date", "date", "", 1),
    _of("cost", "cost of the accelerators", "money", "USD", "money", 8),
    _of("price", "rent of an accelerator", "price", "USD/s", "money", 2, "price_per_gpu"),
    _of("price_per_node", "rent of a node", "price_per_node", "USD/s", "money", 2),
    _of("egress", "price of traffic", "egress", "USD/B", "money", 2),
    _of("traffic", "bytes that leave", "size", "B", "network", 3),
    _of("egress_cost", "cost of the traffic", "money", "USD", "money", 8),
    _of("power", "draw of an accelerator with what surrounds it", "power", "W", "energy", 2, "power_per_gpu"),
    _of("pue", "energy of the hall over that of its machines", "ratio", "", "energy", 1),
    _of("energy", "energy of the run", "energy", "W*s", "energy", 8, "electricity kwh"),
    _of("intensity", "carbon of the grid", "carbon", "kg/(W*s)", "energy", 2, "carbon_intensity"),
    _of("carbon", "carbon of the run", "mass", "kg", "energy", 8, "co2 emissions"),
    _of("parameters", "parameters", "count", "", "flops", 1, "params n_params total_parameters"),
    _of("active_parameters", "parameters that a token passes", "count", "", "flops", 1, "active_params"),
    _of("trainable_parameters", "parameters that are trained", "count", "", "flops", 2, "trainable"),
    _of("flops_per_token", "model FLOPs of a token", "flops", "FLOP", "flops", 6),
    _of("forward_flops_per_token", "model FLOPs of a token forward", "flops", "FLOP", "flops", 6),
    _of("flops", "model FLOPs of the run", "flops", "FLOP", "flops", 6, "total_flops compute training_flops"),
    _of("peak", "peak of an accelerator", "flops_rate", "FLOP/s", "peak", 8, "peak_flops promised_flops"),
    _of("memory", "memory of an accelerator", "size", "B", "memory", 7, "memory_total peak_memory memory_reserved nvidia_smi"),
    _of("memory_allocated", "memory in tensors", "size", "B", "memory", 6, "max_memory_allocated"),
    _of("memory_parameters", "memory of weights", "size", "B", "memory", 6, "memory_params memory_weights"),
    _of("memory_gradients", "memory of gradients", "size", "B", "memory", 6, "memory_grads"),
    _of("memory_optimizer", "memory of optimizer states", "size", "B", "memory", 6),
    _of("memory_activations", "memory of activations", "size", "B", "memory", 7),
    _of("memory_states", "memory of weights, gradients and optimizer", "size", "B", "memory", 6, "memory_model_states"),
    _of("memory_kv_cache", "memory of a KV cache", "size", "B", "memory", 9, "kv_cache"),
    _of("bytes_per_parameter", "bytes of states a parameter", "ratio", "B", "memory", 3),
    _of("copies", "copies of the weights", "count", "", "memory", 1, whole=True),
    _of("message", "bytes that are reduced", "size", "B", "network", 2, "allreduce_size size"),
    _of("transfer_time", "time of bytes over a link", "time", "s", "network_time", 7, "send_time"),
    _of("sync_every", "inner steps between synchronisations", "count", "", "batch", 1, "h inner_steps", whole=True),
    _of("values", "values that are reduced", "count", "", "network", 1),
    _of("bits", "bits of a value", "count", "", "network", 2),
    _of("ranks", "ranks of the collective", "count", "", "network", 1, "processes", whole=True),
    _of("slices", "slices of the message", "count", "", "network", 1, whole=True),
    _of("allreduce_time", "time of the collective", "time", "s", "network_time", 7, "all_reduce_time collective_time all_gather_time"),
    _of("link", "rate of the link, one way", "bandwidth", "B/s", "network", 2, "link_rate bandwidth"),
    _of("algbw", "size over time", "bandwidth", "B/s", "network", 8),
    _of("busbw", "bytes through a link over time", "bandwidth", "B/s", "network", 9),
    _of("collective", "what is timed", "word", "", "", 1),
    _of("accelerator", "kind of accelerator", "word", "", "", 1, "gpu device"),
    _of("optimizer", "optimizer", "word", "", "", 1),
    _of("precision", "format of weights and gradients", "word", "", "", 1, "dtype"),
    _of("sharding", "what of the states is cut over ranks", "word", "", "", 1, "zero"),
)  # fmt: skip
QUANTITIES = {one.key: one for one in ALL}
_NAMES = QUANTITIES | {alias: one for one in ALL for alias in one.aliases}
INNER = {
    "ring_factor": "2(n − 1)/n of an all-reduce, (n − 1)/n of a gather",
    "memory_shards": "ranks that share the weights",
    "gradient_shards": "ranks that share the gradients",
    "optimizer_shards": "ranks that share optimizer states",
    "parameter_bytes": "bytes of a weight",
    "gradient_bytes": "bytes of a gradient",
    "optimizer_bytes": "bytes of optimizer states a parameter",
    "executed_flops_per_token": "executed FLOPs of a token",
}
"""Quantities that follow from others and are never claimed."""


ABOUT = frozenset({"model", "plan", "stack", "instance", "fabric"})
"""Options of a scenario that someone may take for claims."""


def quantity_of(name: str) -> Quantity:
    """The quantity of a name or alias; hyphens, blanks and case do not count. Raises UnknownName."""
    plain = name.strip().lower().replace("-", "_").replace(" ", "_").replace("/", "_per_")
    if plain not in _NAMES:
        because = f"what the claims are about is said as --{plain}" if plain in ABOUT else ""
        raise UnknownName("claim", name, _NAMES, because)
    return _NAMES[plain]


def says(key: str) -> str:
    """What a quantity is, in words."""
    return QUANTITIES[key].says if key in QUANTITIES else INNER[key]
