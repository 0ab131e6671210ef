"""Torchtitan's settings: what its defaults mean, what only one version has, what is no plan of its."""

import pytest

import shardmeter
from shardmeter.core.errors import BadScenario
from shardmeter.interop.configs import torchft, torchtitan
from shardmeter.interop.configs.record import Inexpressible

TOML = """
[model]
name = "llama3"
flavor = "70B"

[training]
local_batch_size = 16
seq_len = 4096
dataset = "mine"

[parallelism]
tensor_parallel_degree = 8
pipeline_parallel_degree = 4
pipeline_parallel_schedule = "interleaved1F1B"
pipeline_parallel_microbatch_size = 2
data_parallel_shard_degree = 2

[activation_checkpoint]
mode = "selective"

[comm]
trainn_timeout_seconds = 3
"""
BASE = {
    "model": "llama-3.1-8b",
    "gpus": "16xH100-SXM5-80GB",
    "run": {"seq_len": 4096, "global_batch": 64, "steps": 100},
}
PYTHON = """
from torchtitan.config import ParallelismConfig
from torchtitan.models.llama3.config_registry import llama3_8b

def mine():
    config = llama3_8b()
    config.training.local_batch_size = 2
    config.parallelism = ParallelismConfig(tensor_parallel_degree=4)
    return config
"""


def keys(settings):
    return {one.key: one.means for one in settings}


def test_defaults_are_told_with_their_values():
    read = torchtitan.read(TOML, "mine.toml")
    assert read.version == "0.2.2"
    assert read.document["model"] == "llama-3.1-70b"
    plan, run = read.document["plan"], read.document["run"]
    assert (plan["tp"], plan["pp"], plan["dp_shard"], plan["micro_batch"]) == (8, 4, 2, 2)
    assert (plan["schedule"], plan["virtual_stages"], plan["recompute"]) == ("interleaved", 2, "every-2")
    assert plan["reshard"] is False, "by default parameters stay gathered beside a pipeline"
    assert run == {"seq_len": 4096, "steps": 10000, "global_batch": 32}
    assumed = "\n".join(read.assumed)
    assert "training.steps = 10000 is the trainer's default" in assumed
    assert "fsdp_reshard_after_forward = default" in assumed
    assert keys(read.unknown) == {
        "comm.trainn_timeout_seconds": "the nearest are comm.train_timeout_seconds, comm.init_timeout_seconds, comm.trace_buf_size"
    }
    assert "training.dataset" in keys(read.ignored)


def test_flags_win_over_the_function_that_they_begin_with():
    line = (
        "torchrun --nproc-per-node 8 -m torchtitan.train --module llama3 --config llama3_70b \\\n"
        "  --training.local-batch-size=2 --parallelism.context_parallel_degree 2 --training.no_disable_cuda_graphs \\\n"
        "  --compile.enable activation_checkpoint:none"
    )
    read = torchtitan.read(line, "line")
    assert read.version == "0.3.0"
    plan = read.document["plan"]
    assert (plan["tp"], plan["cp"], plan["cp_kind"], plan["micro_batch"], plan["recompute"]) == (
        8,
        2,
        "all-gather",
        2,
        "none",
    )
    assert read.document["run"]["seq_len"] == 8192
    assert read.document["stack"] == {"base": "titan-compile", "step_graphs": True}
    assert read.unknown == ()


def test_a_python_function_is_read_and_never_run():
    read = torchtitan.read(PYTHON + "\nraise SystemExit\n", "mine.py")
    assert read.document["model"] == "llama-3.1-8b"
    assert (read.document["plan"]["tp"], read.document["plan"]["micro_batch"]) == (4, 2)
    assert read.document["plan"]["recompute"] == "selective"


def test_a_function_of_ones_own_is_told():
    read = torchtitan.read("--module mine --config tuned --parallelism.tensor_parallel_degree 2", "line")
    assert "import its Python file" in keys(read.ignored)["--module --config"]


@pytest.mark.parametrize("text", ["[training", "def f(:\n", "--module 'x", "from torchtitan import x\n"])
def test_what_is_none_of_the_three_is_refused(text):
    with pytest.raises(BadScenario):
        torchtitan.read(text, "settings.py" if "def" in text or "from" in text else "settings")


def test_a_value_that_is_none_is_told_and_the_default_taken():
    read = torchtitan.read(
        '[training]\nlocal_batch_size = "many"\n[parallelism]\nfsdp_reshard_after_forward = "allways"\n', "x"
    )
    assert read.document["plan"]["micro_batch"] == 8
    assert keys(read.ignored) == {
        "training.local_batch_size": "'many' is no whole number of 1 or more",
        "parallelism.fsdp_reshard_after_forward": "'allways' is none of its words; the nearest are always, default, never",
    }


REFUSED = {
    "zero2": ({"sharding": "zero2"}, "0.3.0", "plan.sharding"),
    "dualpipe": ({"pp": 2, "schedule": "dualpipe"}, "0.3.0", "plan.schedule"),
    "ring": ({"cp": 2, "cp_kind": "ring"}, "0.3.0", "plan.cp_kind"),
    "every-2": ({"recompute": "every-2"}, "0.3.0", "plan.recompute"),
    "lora": ({"trainable": "lora(r=16)"}, "0.2.2", "plan.trainable"),
    "muon": ({"optimizer": "muon"}, "0.2.2", "plan.optimizer"),
    "order": ({"tp": 2, "rank_order": ["dp_shard", "tp", "cp", "dp_replicate", "pp"]}, "0.3.0", "plan.rank_order"),
    "reduce": ({"reduce_dtype": "bf16"}, "0.3.0", "plan.reduce_dtype"),
    "fp8": ({"precision": "fp8"}, "0.3.0", "plan.precision"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_another_run_is_refused_with_the_way_out(case):
    plan, version, field = REFUSED[case]
    with pytest.raises(Inexpressible) as refused:
        torchtitan.write(shardmeter.load({**BASE, "plan": plan}), version)
    assert [one.field for one in refused.value.violations] == [field]
    assert refused.value.violations[0].way_out


def test_every_reason_is_given_at_once():
    scenario = shardmeter.load(
        {**BASE, "model": "gpt2", "plan": {"sharding": "zero1", "optimizer": "sgd"}, "run": {"seq_len": 1024}}
    )
    with pytest.raises(Inexpressible) as refused:
        torchtitan.write(scenario, "0.3.0")
    assert {one.field for one in refused.value.violations} >= {"model", "plan.sharding", "plan.optimizer"}


def test_a_model_of_another_shape_is_none_of_torchtitans():
    scenario = shardmeter.load({**BASE, "model": {"base": "llama-3.1-8b", "layers": 16}})
    with pytest.raises(Inexpressible, match="layers differ"):
        torchtitan.write(scenario)


def test_a_pipeline_takes_the_step_in_one_local_batch():
    scenario = shardmeter.load({**BASE, "plan": {"pp": 2, "micro_batch": 2, "dp_replicate": 2}})
    said = {one.key: one.value for one in torchtitan.write(scenario, "0.2.2").said}
    assert said["training.local_batch_size"] == "8"
    assert said["parallelism.pipeline_parallel_microbatch_size"] == "2"


FLEET = {
    "islands": [{"name": name, "gpus": "16xH100-SXM5-80GB"} for name in ("oregon", "iowa")],
    "wan": {"default": {"bandwidth": "10 Gbps", "rtt": "40 ms", "loss": 0}},
}  # fmt: skip


def joined(**sync):
    return shardmeter.load({"model": "llama-3.1-8b", "fleet": FLEET, "run": BASE["run"], "plan": {"sync": sync}})


def test_bits_that_torchft_does_not_send_are_told():
    made = torchft.write(joined(method="diloco", sync_every=50))
    assert [one for one in made.unsaid if one.startswith("plan.sync.bits: 16 were predicted; torchft sends 32")]
    assert "$ISLAND" in made.launch


def test_rules_of_fragments_are_torchfts():
    sync = {"method": "streaming_diloco", "sync_every": 50, "num_fragments": 4, "fragment_sync_delay": 20}
    with pytest.raises(Inexpressible, match="no multiple of num_fragments = 4; say 48"):
        torchft.write(joined(**sync))
    with pytest.raises(Inexpressible, match="at most 11"):
        torchft.write(joined(**sync | {"sync_every": 48}))
    with pytest.raises(Inexpressible, match="noloco"):
        torchft.write(joined(method="noloco", sync_every=50))


def test_the_older_version_mixes_precision_only_where_something_is_sharded_or_nothing_is_cut():
    scenario = shardmeter.load({**BASE, "gpus": "8xH100-SXM5-80GB", "plan": "none,tp=8"})
    assert torchtitan.write(scenario, "0.3.0").said
    with pytest.raises(Inexpressible, match="computes in fp32"):
        torchtitan.write(scenario, "0.2.2")
    text = TOML.replace("pipeline_parallel_degree = 4", "").replace("shard_degree = 2", "shard_degree = 1")
    assert torchtitan.read(text, "mine.toml").document["plan"]["precision"] == "fp32"
    alone = text.replace("tensor_parallel_degree = 8", "")
    assert torchtitan.read(alone, "mine.toml").document["plan"]["precision"] == "bf16"


def test_context_parallelism_shards_in_any_case():
    for sharding in ("none,dp_shard=1", "ddp"):
        gpus = "4xH100-SXM5-80GB" if sharding.startswith("none") else BASE["gpus"]
        scenario = shardmeter.load({**BASE, "gpus": gpus, "plan": f"{sharding},cp=4,cp_kind=all-gather"})
        with pytest.raises(Inexpressible, match="beside cp, over which"):
            torchtitan.write(scenario)


def test_a_pipeline_is_not_captured():
    stack = {"base": "titan-compile", "step_graphs": True}
    plan = "fsdp,dp_shard=4,pp=4,reshard=false"
    made = torchtitan.write(shardmeter.load({**BASE, "stack": stack, "plan": plan}))
    assert {one.key: one.value for one in made.said}["training.disable_cuda_graphs"] == "true"
    assert any(one.startswith("stack.step_graphs") for one in made.unsaid)
