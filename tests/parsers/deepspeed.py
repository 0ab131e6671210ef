"""DeepSpeed's own configuration of the JSON, with the batches of as many replicas as it means, and AutoEP's checks of the degrees."""

import json

FORMAT = "deepspeed"
FOR = ""
ENVIRONMENT = "torch"
NEEDS = ("torch==2.13.0", "deepspeed==0.19.8")
KEYS = "deepspeed-0.19.8.txt"


def parser():
    import deepspeed

    return f"deepspeed {deepspeed.__version__.split('+')[0]}"


def accepts(files, launch):
    from unittest.mock import patch

    from deepspeed.module_inject.auto_ep_config import validate_autoep_config
    from deepspeed.runtime import config

    (text,) = files.values()
    said = json.loads(text)
    assert launch.startswith("torchrun ")
    assert launch.split()[-1] in files
    each = said.get("train_micro_batch_size_per_gpu", 1) * said.get("gradient_accumulation_steps", 1)
    replicas, cp = max(1, said.get("train_batch_size", each) // each), said.get("sequence_parallel_size", 1)
    with (
        patch.object(config.dist, "get_rank", lambda: 0),
        patch.object(config.dist, "get_world_size", lambda: replicas * cp),
    ):
        made = config.DeepSpeedConfig(said)
    tp, pp = max(1, made.tensor_parallel_config.autotp_size), said.get("pipeline", {}).get("stages", 1)
    zero = made.zero_config
    validate_autoep_config(
        made.expert_parallel_config,
        replicas * cp * tp * pp,
        pp,
        tp,
        cp,
        zero_stage=int(zero.stage),
        zero_offload_optimizer=zero.offload_optimizer is not None,
        zero_offload_param=zero.offload_param is not None,
    )
    assert pp == 1 or zero.stage < 2, "pipelines go with stages 0 and 1"  # PipelineEngine asserts it
