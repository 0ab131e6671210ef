"""What benchmarks and a profiler would show in a world: numbers that tell causes apart."""

from __future__ import annotations

import numpy as np

from shardmeter.core.record import changed
from shardmeter.core.units import Number
from shardmeter.engine.price import prices
from shardmeter.physics import gemm
from shardmeter.specs.demands import OPTIMIZER, Transfer
from shardmeter.strategies import precision
from shardmeter.study.doctor.world import World

MESSAGE = 1e9
"""Bytes of a benchmarked collective."""
SHORTEST = 1e-12


def bus(one: World, *, across: bool) -> Number:
    """Bus bandwidth of an all-reduce, as nccl-tests defines it: over all GPUs, or inside one node."""
    scenario = one.scenario
    island = scenario.fleet.islands[0]
    ranks = float(island.gpus if across else island.gpus_per_node)
    plan = changed(scenario.plan, tp=1.0, pp=1, cp=1.0, ep=1.0, etp=1.0, dp_shard=ranks, dp_replicate=1.0)
    recipe = precision.recipe(plan.precision)
    charge = prices(island, scenario.stack, plan, recipe.width, recipe.base).transfer(
        Transfer(
            label="benchmark", collective="all_reduce", size=MESSAGE, axes=("dp_shard",), phase=OPTIMIZER, scope="step"
        )
    )
    moved: Number = MESSAGE * 2.0 * (ranks - 1.0) / ranks / np.maximum(charge.seconds, SHORTEST)
    return moved


def product(one: World) -> Number:
    """Rate of a large product under the stack and the device of a world."""
    scenario = one.scenario
    plan, device = scenario.plan, scenario.fleet.islands[0].accelerator
    recipe = precision.recipe(plan.precision)
    price = prices(scenario.fleet.islands[0], scenario.stack, plan, recipe.width, recipe.base)
    side = 8192.0
    flops = 2.0 * side**3
    traffic = gemm.gemm_traffic(side, side, side, 1.0, recipe.width, recipe.width)
    return flops / gemm.gemm_time(flops, traffic, 1.0, price.rate, device.memory_bandwidth, 0.0)


def communication(one: World) -> Number:
    """Share of a step in which communication kernels run, exposed or hidden; at most all of it."""
    return np.minimum(one.communicated / one.step, 1.0)
