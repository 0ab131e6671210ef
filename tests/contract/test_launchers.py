"""Launchers start every node of a plan once, in the order in which its mesh lies over the islands."""

import csv
import re

import pytest

import shardmeter
from shardmeter import data
from shardmeter.interop.configs import formats
from shardmeter.interop.configs.record import Exported, Inexpressible, Written
from shardmeter.scenario.catalog import load_catalog

LAUNCHERS = {name: one for name, one in formats().items() if hasattr(one, "launch")}
OREGON = {
    "name": "oregon",
    "accelerator": "H100-SXM5-80GB",
    "nodes": 2,
    "gpus_per_node": 8,
    "fabric": "ib-ndr400",
    "region": "aws:us-west-2",
}
IOWA = {**OREGON, "name": "iowa", "nodes": 3, "region": "gcp:us-central1"}
WAN = {"default": {"bandwidth": "10 Gbps", "rtt": "40 ms", "loss": 0, "streams": 24}}


def scenario(islands=(OREGON, IOWA), run=None, **plan):
    fleet = {"islands": list(islands), "wan": WAN} if len(islands) > 1 else {"islands": list(islands)}
    run = {"seq_len": 8192, "global_batch": 240, "steps": 100, **(run or {})}
    return shardmeter.load(
        {"name": "two sites", "model": "llama-3.1-8b", "fleet": fleet, "plan": {"sharding": "fsdp", **plan}, "run": run}
    )


def trainer(command="torchrun -m torchtitan.train --config plan", format_="torchtitan"):
    return Exported(format=format_, version="", files=(Written(name="plan.toml", text=""),), launch=command, said=())


def texts(launcher, made, started=None):
    return [file.text for file in LAUNCHERS[launcher].launch(made, started or trainer()).files]


@pytest.mark.parametrize("launcher", LAUNCHERS)
def test_nodes_of_all_islands_have_ranks_of_one_process_group(launcher):
    oregon, iowa = texts(launcher, scenario())
    assert "--nnodes=5 --nproc-per-node=8" in oregon
    assert "--nnodes=5 --nproc-per-node=8" in iowa
    assert re.search(r'--node-rank="\$\w+"', oregon)
    assert re.search(r'--node-rank="\$\(\(2 \+ \w+\)\)"', iowa)
    assert "NCCL_SOCKET_NTHREADS=16" in iowa
    assert "NCCL_NSOCKS_PERTHREAD=1" in iowa


def test_the_axis_that_crosses_islands_tells_which_is_first():
    islands = (OREGON, {**IOWA, "nodes": 2})
    first, second = texts("slurm", scenario(islands, pp=2, placement={"pp": ["iowa", "oregon"]}))
    assert "on iowa (1 of 2 islands)" in first
    assert "on oregon (2 of 2 islands)" in second
    with pytest.raises(Inexpressible, match="outermost axis is pp"):
        texts("slurm", scenario(islands, pp=2))


@pytest.mark.parametrize("launcher", LAUNCHERS)
def test_replica_groups_meet_at_the_lighthouse_of_the_first_island(launcher):
    oregon, iowa = texts(launcher, scenario(sync={"method": "diloco"}), trainer(format_="torchft"))
    assert "--nnodes=2 " in oregon
    assert "--nnodes=3 " in iowa
    assert "torchft_lighthouse --min_replicas 2" in oregon
    assert "torchft_lighthouse" not in iowa
    assert 'TORCHFT_LIGHTHOUSE="${LIGHTHOUSE:?' in iowa
    assert "export ISLAND=1\n" in re.sub(r"  #.*", "", iowa)


def test_accelerate_is_told_the_same_by_its_own_names():
    (text,) = texts("slurm", scenario((OREGON,)), trainer("accelerate launch --config_file a.yaml train.py"))
    assert "accelerate launch --num_machines=2 --num_processes=16 --machine_rank" in text
    with pytest.raises(Inexpressible, match="it is started by python"):
        texts("slurm", scenario((OREGON,)), trainer("python train.py"))


def test_deadlines_regions_and_markets_are_said():
    rented = {"name": "iowa", "instance": "a3-ultragpu-8g", "nodes": 2, "region": "gcp:us-central1", "spot": True}
    made = scenario((rented,), {"deadline": "36.5 h"})
    (slurm,), (sky,), (dstack,) = (texts(name, made) for name in ("slurm", "skypilot", "dstack"))
    assert "#SBATCH --time=1-12:30:00\n" in slurm
    assert {"infra: gcp/us-central1", "accelerators: H200:8", "use_spot: true"} <= {
        line.strip() for line in sky.splitlines()
    }
    assert {"regions: [us-central1]", "gpu: H200:141GB:8", "spot_policy: spot", "max_duration: 37h"} <= {
        line.strip() for line in dstack.splitlines()
    }


def test_what_cannot_be_rented_or_started_is_refused_with_its_name():
    with pytest.raises(Inexpressible, match="skypilot has no H800-SXM5"):
        texts("skypilot", scenario(({**OREGON, "accelerator": "H800-SXM5"},)))
    with pytest.raises(Inexpressible, match="Trainium2 is no GPU"):
        texts("torchrun", scenario(({**OREGON, "accelerator": "Trainium2", "fabric": "efa-v3"},)))


def test_names_of_launchers_are_those_of_accelerators():
    with data.open_text("accelerator_names.csv") as file:
        rows = list(csv.DictReader(file))
    catalog = load_catalog()
    assert {row["accelerator"] for row in rows} <= {catalog.accelerator(row["accelerator"]).name for row in rows}
    assert all(row["source"] and row["retrieved"] and (row["skypilot"] or row["dstack"]) for row in rows)
