"""The peak that is known without prices is that of the whole step: what does not fit by it is not worth pricing."""

import pytest

from shardmeter.engine.evaluate import evaluate, memory_peak
from shardmeter.scenario import load

PLANS = (
    "fsdp", "fsdp,tp=2", "zero1,recompute=full", "ddp", "fsdp,pp=4,tp=2", "fsdp,pp=4,schedule=zb-h1", "fsdp,pp=4,schedule=interleaved,virtual_stages=2",
    "fsdp,pp=2,schedule=dualpipe", "fsdp,cp=2", "fsdp,offload=[optimizer]", "fsdp,precision=fp8", "fsdp,trainable=lora(r=16)", "fsdp,pp=4,schedule=zb-v,virtual_stages=2",
)  # fmt: skip


@pytest.mark.parametrize("model", ["llama-3.1-8b", "mixtral-8x7b"])
@pytest.mark.parametrize("plan", PLANS)
def test_the_peak_is_that_of_the_step(model, plan):
    hosts = {"base": "H100-SXM5-80GB", "host_memory_bandwidth": "400 GB/s"}
    fleet = {"islands": [{"accelerator": hosts, "nodes": 4}]}
    s = load({"model": model, "fleet": fleet, "plan": plan, "run": {"global_batch": 256}})
    whole = evaluate(s.model, s.fleet.islands[0], s.plan, s.run, s.stack)
    assert float(memory_peak(s.model, s.plan, s.run, s.stack)) == float(whole.memory_peak)


def test_a_frozen_model_is_beside_it():
    options = {"model": "llama-3.1-8b", "gpus": "16xH100-SXM5-80GB"}
    s = load(None, options=options, overrides=["run.reference=same"])
    whole = evaluate(s.model, s.fleet.islands[0], s.plan, s.run, s.stack)
    assert float(memory_peak(s.model, s.plan, s.run, s.stack)) < float(whole.memory_peak)
