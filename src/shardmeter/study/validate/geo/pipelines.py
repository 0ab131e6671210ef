"""Seconds of an iteration for a row of the decentralised-pipeline runs: read from what the row says of the set-up, never its value."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

import numpy as np

from shardmeter.study.validate.geo import systems
from shardmeter.study.validate.geo.constants import FITTED, LEFT_OUT, NIC, RATES, Fitted
from shardmeter.study.validate.geo.links import Network, Ranks, network, shuffled, uniform
from shardmeter.study.validate.geo.systems import WIRE, Work
from shardmeter.study.validate.rows import NotModelled

SEEDS = (2022, 2023, 2024)
FLUSH, FLUSH_WIDE = 64, 62
"""Micro-batches of a pipeline between two updates of its activations' buffers; with 40 layers fewer fit."""
STAGES, REPLICAS = 8, 8
DEEPSPEED_SIZE = 4
"""Sequences of a micro-batch in the launchers of DeepSpeed."""


def predict_row(row: Mapping[str, str], fitted: Fitted = FITTED) -> float:
    """Seconds of the row's iteration, from its columns method, model, n_layers, global_batch_tokens, gpus_per_island, wan_gbps,
    rtt_ms and notes. Raises NotModelled for what cannot be expressed."""
    method = " ".join(row["method"].split()).lower()
    named = re.match(r"case *[0-9]|.*worldwide", row["notes"].lower())
    try:
        return _case(method, row, fitted) if named else _throttled(method, row, fitted)
    except (ValueError, OverflowError) as error:
        raise NotModelled(f"a number or a shape that does not fit the set-up: {error}") from None


def left_out(row: Mapping[str, str]) -> float:
    """The same by constants that have not seen the row's case; those of all cases where it is of none that they were fitted on."""
    found = re.match(r"case *([0-9])", row["notes"].lower())
    return predict_row(row, LEFT_OUT.get(f"case{found[1]}", FITTED) if found else FITTED)


def _case(method: str, row: Mapping[str, str], fitted: Fitted) -> float:
    """A row of one of the emulated networks: the mean over the assignments that were measured."""
    layers, batch = round(float(row["n_layers"])), _sequences(row)
    plain = Work(layers=layers, width=2048, sequence=2048, bytes=2.0, layer=fitted.layer)
    fused = Work(layers=layers, width=2048, sequence=2048, bytes=2.0, layer=fitted.layer_fused)
    nominal, gives = (25.0, fitted.adapter) if row["notes"].startswith("case1") else (10.0, NIC)
    net = network(row["notes"], {"sold": nominal, "gives": gives * 1e-9})
    random = "wo scheduler" in method
    if method.startswith("ours"):
        if not random:
            return _ours(net, np.argsort(net.scheduled), plain, fitted, batch)
        return _mean(net, random, lambda node: _ours(net, node, plain, fitted, batch))
    if method.startswith("megatron"):
        degrees = re.match(r"megatron-(?:p([0-9]+))?(?:t([0-9]+))?", method)
        stages, tensor = (int(found or 1) for found in degrees.groups()) if degrees else (1, 1)
        return _mean(net, random, lambda node: _megatron(net, node, fused, fitted, batch, stages, tensor))
    spread = len(set(net.instance)) > STAGES
    if method.startswith("deepspeed"):
        return _mean(net, spread, lambda node: _deepspeed(net, node, plain, fitted, batch), hosts=True)
    if method.startswith("zero"):
        steps = batch / DEEPSPEED_SIZE / len(net.instance)
        each = _mean(net, spread, lambda node: systems.zero_3(net, node, plain, fitted, DEEPSPEED_SIZE), hosts=True)
        return steps * each
    raise NotModelled(f"no model of the system {row['method']!r}")


def _throttled(method: str, row: Mapping[str, str], fitted: Fitted) -> float:
    """A row in which every link has the same rate and delay, one GPU per node."""
    rate = re.match(r"[0-9.]+", row["wan_gbps"])
    model = re.search(r"([0-9]+)L d([0-9]+) seq([0-9]+) (fp16|fp32)", row["model"])
    if not rate or not model:
        raise NotModelled("neither a rate nor a shape of the model that we read")
    layers, width, sequence, precision = int(model[1]), int(model[2]), int(model[3]), model[4]
    nodes, batch = round(float(row["gpus_per_island"])), _sequences(row)
    net = uniform(min(float(rate[0]) * 1e9, NIC), float(row["rtt_ms"]) / 2e3, nodes)
    recompute = "no recompute" not in row["model"]
    layer = RATES.get((precision, width), fitted.layer)
    stated = re.search(r"([0-9]+) stages", method)
    if method.startswith("megatron"):
        layer = fitted.layer_fused if precision == "fp16" else layer
        work = Work(layers=layers, width=width, sequence=sequence, bytes=2.0 if precision == "fp16" else 4.0,
                    layer=layer if recompute else 0.75 * layer, recompute=recompute)  # fmt: skip
        stages, tensor = (
            int(found[1]) if (found := re.search(key, method)) else 1 for key in (r"p+([0-9]+)", r"t(?:p)?([0-9]+)")
        )
        return _megatron(net, np.arange(nodes), work, fitted, batch, stages, tensor)
    work = Work(layers=layers, width=width, sequence=sequence, bytes=2.0 if precision == "fp16" else 4.0, layer=layer)
    if method.startswith("zero-3") and "fairscale" in row["model"]:
        # two passes over the parameters, as an all-reduce makes
        whole = systems.stage_bits(work, 1)
        return systems.all_reduce(net, np.arange(nodes)[None], whole) + batch / nodes * layers * layer
    if not stated or not method.startswith(("gpipe", "1f1b")):
        raise NotModelled(f"no model of the system {row['method']!r}")
    return _pipelines(net, work, fitted, int(stated[1]), batch, method)


def _pipelines(net: Network, work: Work, fitted: Fitted, stages: int, batch: int, method: str) -> float:
    ranks = np.arange(len(net.instance)).reshape(-1, stages).T
    replicas = ranks.shape[1]
    each = batch // replicas
    flushes, size = (2, FLUSH) if "ours" in method else (1, each)
    schedule = systems.one_f_one_b if method.startswith("1f1b") else systems.gpipe
    seconds = flushes * schedule(net, ranks, work, fitted, size)
    bits = systems.stage_bits(work, stages)
    if replicas == 1:
        return seconds
    if "allreduce" in method:  # tensor by tensor, some 16 of each layer
        tensors = 16.0 * work.layers / stages
        return seconds + tensors * systems.all_reduce(net, ranks, bits / tensors)
    if "sharded" in method:
        share = 2.0 * (replicas - 1.0) / replicas
        return seconds + share * WIRE * float(bits.max()) / float(net.rate.min()) + 4.0 * float(net.delay.max())
    return seconds + systems.central(net, ranks, bits)


def _ours(net: Network, node: Ranks, work: Work, fitted: Fitted, batch: int) -> float:
    """GPipe in as many flushes as the batch needs; then gradients, through a parameter server at each stage's first rank."""
    ranks = node.reshape(REPLICAS, STAGES).T
    micro_batches = FLUSH_WIDE if work.layers >= 40 else FLUSH
    flushes = batch / (FLUSH * REPLICAS)
    seconds = flushes * systems.gpipe(net, ranks, work, fitted, micro_batches)
    return seconds + systems.central(net, ranks, systems.stage_bits(work, STAGES))


def _megatron(net: Network, node: Ranks, work: Work, fitted: Fitted, batch: int, stages: int, tensor: int) -> float:
    """Tensor ranks innermost, then data, then stages outermost."""
    replicas = len(node) // (stages * tensor)
    grid = node.reshape(stages, replicas, tensor)
    heads = grid[:, :, 0]
    seconds = systems.megatron(net, heads, work, fitted, batch // replicas, tensor, heads[-1])
    return seconds + systems.all_reduce(net, heads, systems.stage_bits(work, stages) / tensor)


def _deepspeed(net: Network, node: Ranks, work: Work, fitted: Fitted, batch: int) -> float:
    """Data ranks inside, stages outside; ZeRO-1 moves as much as an all-reduce."""
    ranks = node.reshape(STAGES, REPLICAS)
    seconds = systems.deepspeed(net, ranks, work, fitted, batch // (REPLICAS * DEEPSPEED_SIZE), DEEPSPEED_SIZE)
    return seconds + systems.all_reduce(net, ranks, systems.stage_bits(work, STAGES))


def _mean(net: Network, random: bool, seconds: Callable[[Ranks], float], *, hosts: bool = False) -> float:
    """Over the assignments: the node of every rank. Without scheduling nodes were given ranks at random; DeepSpeed's list of
    hosts was shuffled, host by host."""
    nodes = np.arange(len(net.instance))
    if not random:
        return seconds(nodes)
    found = []
    for seed in SEEDS:
        if not hosts:
            found.append(seconds(np.argsort(shuffled(seed, len(nodes)))))
            continue
        order = shuffled(seed, int(net.instance.max()) + 1)
        found.append(seconds(np.concatenate([nodes[net.instance == host] for host in order])))
    return float(np.mean(found))


def _sequences(row: Mapping[str, str]) -> int:
    found = re.search(r"seq([0-9]+)", row["model"])
    if not found:
        raise NotModelled("the model does not say its sequence")
    return round(float(row["global_batch_tokens"]) / float(found[1]))
