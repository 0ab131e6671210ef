"""What free texts mean, one table for each column. Texts are those that published tables of runs use."""

import pytest

from shardmeter.families import decoder
from shardmeter.scenario.catalog import load_catalog
from shardmeter.study.validate.accelerator import guessed, read_accelerator
from shardmeter.study.validate.architecture import own_sequence, read_model
from shardmeter.study.validate.fabric import GBPS, read_fabric
from shardmeter.study.validate.link import read_link
from shardmeter.study.validate.offload import read_offload
from shardmeter.study.validate.precision import read_precision
from shardmeter.study.validate.recompute import read_recompute, read_selective
from shardmeter.study.validate.rows import NotModelled, Row, Unclear
from shardmeter.study.validate.schedule import check_notes, read_schedule
from shardmeter.study.validate.sharding import read_sharding
from shardmeter.study.validate.stack import read_stack
from shardmeter.study.validate.task import check_family, check_task, read_task, read_trainable

ACCELERATORS = {
    "A100": "A100-SXM4-80GB",
    "A100 (312 TFLOP/s peak; memory size not in the sheets)": "A100-SXM4-80GB",
    "A100 80GB (note: A100 + Tomahawk4 200G)": "A100-SXM4-80GB",
    "A100-40GB (JUWELS Booster)": "A100-SXM4-40GB",
    "A100-40GB (a100_40gb)": "A100-SXM4-40GB",
    "A100-SXM4-80GB (Selene)": "A100-SXM4-80GB",
    "A800-80GB": "A100-SXM4-80GB",
    "AMD Instinct MI300X 192GB HBM3 192 GB": "MI300X",
    "MI300X (text: MI300)": "MI300X",
    "AMD Instinct MI325X 256GB HBM3E DLC 256GB": "MI325X",
    "AMD Instinct MI350X 294912 MiB": "MI355X",
    "B200-SXM": "B200-SXM (HGX)",
    "B300": "B300-SXM (HGX)",
    "GB200 (186GB)": "GB200 (per GPU, NVL72)",
    "NVIDIA Blackwell GPU (GB200) 189471 MiB": "GB200 (per GPU, NVL72)",
    "NVIDIA Blackwell Ultra GPU (GB300) 288GB": "GB300 (per GPU, NVL72)",
    "NVIDIA Blackwell GPU (B200-SXM-180GB) 183359 MiB": "B200-SXM (HGX)",
    "H100-80GB (h100_80gb; SXM per peak 989.5 TF used for MFU)": "H100-SXM5-80GB",
    "H100-80GB (SXM, AWS p5-like; HF hopper cluster)": "H100-SXM5-80GB",
    "H100-SXM 94-96GB HBM2e lower TDP": "H100-SXM5-80GB",
    "NVIDIA H100-SXM5-80GB 81559 MiB": "H100-SXM5-80GB",
    "NVIDIA H200-NVL-141GB 141 GB": "H200-NVL-141GB",
    "NVIDIA H200-SXM5-141GB 143771 MiB": "H200-SXM-141GB",
    "GH200-96GB (Alps Clariden)": "GH200-96GB",
    "H800-80GB": "H800-SXM5",
    "NVIDIA L40S 46068 MiB": "L40S",
    "RTX 3090 24GB": "RTX 3090",
    "RTX A6000": "RTX A6000",
    "TPU v3-256 (256 cores = 128 chips)": "TPU v3",
    "TPU-v5p 95GB": "TPU v5p",
    "TPU-v5e 16GB": "TPU v5e",
    "TPU-trillium 32GB": "TPU v6e (Trillium)",
    "Trainium1 (trn1.32xlarge)": "Trainium1",
    "V100-SXM2-16GB (AWS p3.16xlarge)": "V100-SXM2-16GB",
    "V100-SXM2-32GB": "V100-SXM2-32GB",
}


@pytest.mark.parametrize(("text", "name"), ACCELERATORS.items())
def test_accelerators(text, name):
    assert read_accelerator(text).name == name


def test_the_low_power_h100_is_a_variant():
    found = read_accelerator("H100-SXM 96GB HBM2e 2.4TB/s, 500W power limit (Grand Teton)")
    assert (found.memory, found.memory_bandwidth, found.power_limit) == (96 * 2.0**30, 2.4e12, 500.0)
    assert read_accelerator("H100-SXM5-80GB (700W, Grand Teton)").memory is None


@pytest.mark.parametrize("text", ["RTX-3090+Titan-RTX", "Cerebras WSE-3"])
def test_accelerators_that_cannot_be_expressed(text):
    with pytest.raises(NotModelled):
        read_accelerator(text)


@pytest.mark.parametrize("text", ["", "B200? (row label says H200)", "B200 (power limited)"])
def test_accelerators_that_do_not_count(text):
    with pytest.raises(Unclear):
        read_accelerator(text)


STACKS = {
    ("Aleph Alpha Scaling (internal)", 2023, ""): "aa-2023",
    ("Alpa (JAX), 10/17/2022", 2022, ""): "misc-small",
    ("FlashAttention repo training (PyTorch)", 2023, "no FlashAttention"): "misc-small",
    ("LLM-Foundry v0.0.4/Composer FSDP, torch 2.1", 2024, ""): "foundry-t21",
    ("LLM-Foundry/Composer FSDP (May 2023 release, image default torch 1.13.1)", 2023, ""): "foundry-t113",
    ("MaxText (JAX)", 2024, ""): "maxtext-2024",
    ("MaxText (JAX, GPU)", 2024, ""): "jax-gpu-2024",
    ("maxtext", 2024, ""): "mlperf-tpu",
    ("PAX", 2023, ""): "mlperf-tpu",
    ("Paxml (JAX, GPU)", 2024, ""): "jax-gpu-2024",
    ("Megatron-Bridge / Megatron-Core (NeMo container 25.11)", 2025, ""): "bridge-2025",
    ("Megatron-Bridge / Megatron-Core (NeMo container 26.04.01)", 2026, ""): "bridge-2026",
    ("Megatron-Core >=0.9 (PyTorch 2.5, CUDA 12.6)", 2025, ""): "mcore-2024",
    ("Megatron-Core r0.8.0", 2024, "tp-comm-overlap"): "mcore-2024",
    ("Megatron-DeepSpeed (BigScience)", 2021, ""): "mds-2022",
    ("Megatron-LLaMA", 2023, ""): "mlm-2023",
    ("Megatron-LM (2021)", 2021, ""): "mlm-2021",
    ("Megatron-LM (sail-sg zero-bubble)", 2023, "PP schedule 1F1B"): "mlm-2023",
    ("Megatron-LM 2022", 2022, ""): "mlm-2022",
    ("Megatron-LM 23e00ed0", 2026, ""): "mlm-2026",
    ("Megatron-LM/NeMo", 2025, ""): "mcore-2025",
    ("NeMo / Megatron-Core (container 24.07)", 2024, ""): "mcore-2024",
    ("NeMo 25.04 / Megatron-Core", 2025, ""): "mcore-2025",
    ("NeMo 23.08-class container", 2023, ""): "nemo-2023",
    ("NeMo Megatron", 2023, ""): "nemo-2023",
    ("Nemo Megatron ", 2024, ""): "neuron-nxd",
    ("NeMo (ngc23.09), MLPerf v3.1", 2023, ""): "misc-small",
    ("NeMo AutoModel (PyTorch, FSDP2)", 2026, ""): "automodel-2025",
    ("NVIDIA NeMo Framework Release 24.04", 2025, ""): "mlperf-nemo",
    ("NGC Pytorch 24.09, NGC HugeCTR 24.09, NVIDIA Nemo 24.09", 2024, ""): "mlperf-nemo",
    ("CUDA 12.3", 2024, ""): "mlperf-nemo",
    ("PyTorch", 2024, ""): "mlperf-nemo",
    ("PyTorch", 2025, "eager (original)"): "misc-small",
    ("PyTorch 2.6.0, ROCm 6.4", 2025, ""): "mlperf-amd",
    ("PyTorch 2.6.0a0+gitfc899bf", 2025, ""): "mlperf-amd",
    ("Pytorch 24.09", 2025, ""): "mlperf-amd",
    ("NeuronX Distributed ", 2024, ""): "neuron-nxd",
    (":ref:", 2025, ""): "neuron-nxd",
    ("ViT-Base Fine-tuning Example ", 2024, ""): "neuron-nxd",
    ("DeepSpeed 0.6.2 / PyTorch 1.10.2", 2022, ""): "ds-zero3-2022",
    ("DeepSpeed (HF)", 2023, ""): "misc-small",
    ("InternEvo v0.2.1dev20231121", 2023, ""): "internevo-2024",
    ("fms-fsdp (PyTorch FSDP1)", 2024, ""): "fsdp-2024",
    ("PyTorch FSDP", 2023, ""): "fsdp-2024",
    ("Primus-Megatron", 2026, "PP algorithm zbb"): "primus-2025",
    ("Sailor (Megatron-DeepSpeed)", 2025, ""): "sailor-2025",
    ("nanotron v0.5", 2025, "flash-attention 2, no torch.compile"): "nanotron-2025",
    ("open_clip", 2022, ""): "openclip-2021",
    ("timm benchmark.py", 2022, ""): "timm-2022",
    ("torchtune full_finetune_single_device", 2025, ""): "torchtune-2025",
    ("torchtitan (PyTorch FSDP2)", 2024, "eager"): "titan-eager",
    ("torchtitan (PyTorch FSDP2)", 2024, "FSDP2 eager/compile not stated"): "titan-eager",
    ("torchtitan (PyTorch FSDP2)", 2024, "torch.compile"): "titan-compile",
    ("torchtitan (PyTorch FSDP2)", 2024, "Float8"): "titan-compile",
    ("torchtitan", 2025, ""): "titan-compile",
}  # fmt: skip


@pytest.mark.parametrize(("framework", "id_"), STACKS.items())
def test_stacks(framework, id_):
    text, year, notes = framework
    assert read_stack(text, float(year), notes).id == id_


def test_every_stack_id_means_itself():
    for id_ in set(STACKS.values()) - {"misc-small"}:
        assert read_stack(id_, None, "").id == id_


@pytest.mark.parametrize(
    ("notes", "attention", "kernels"),
    [
        ("torch", "unfused", ""),
        ("fused", "fused", ""),
        ("flash_attentionv1.0.8", "fa1", ""),
        ("flash_attention2", "fa2", ""),
        ("flash_attention2 + RMS kernel", "fa2", "fused_norm"),
        ("flash-attention 2, no torch.compile", "fa2", ""),
        ("FlashAttention", "fa1", ""),
        ("FlashAttention-2", "fa2", ""),
        ("no FlashAttention", "unfused", ""),
        ("flash attention (attn_impl flash), low_precision_layernorm", "", ""),
        ("torch.compile; async TP", "", ""),
        ("attention=fa3; kernels=compiled", "fa3", "compiled"),
    ],
)
def test_kernels_are_a_field(notes, attention, kernels):
    found = read_stack("Aleph Alpha Scaling", 2023.0, notes)
    assert (found.attention, found.kernels) == (attention, kernels)


@pytest.mark.parametrize(
    ("text", "compute", "gather", "reduce"),
    [
        ("bf16 (pure)", "bf16", "bf16", "bf16"),
        ("bf16 (amp)", "bf16", "bf16", "fp32"),
        ("bf16 (fp32 grad accumulation)", "bf16", "bf16", "fp32"),
        ("bf16 (MFU 41% of 989 => bf16)", "bf16", "", ""),
        ("Autocast:BF16/AMP", "bf16", "", ""),
        ("Autocast:BF16+SR", "bf16", "bf16", "bf16"),
        ("fp16 mixed", "fp16", "", ""),
        ("fp16/amp", "fp16", "", ""),
        ("amp", "fp16", "", ""),
        ("", "bf16", "", ""),
    ],
)
def test_precisions(text, compute, gather, reduce):
    found = read_precision(text, "titan-compile")
    assert (found.compute, found.gather, found.reduce) == (compute, gather, reduce)


@pytest.mark.parametrize(
    ("text", "stack", "notes", "compute", "gather"),
    [
        ("fp8 (float8) + bf16", "titan-compile", "", "fp8", ""),
        ("fp8 (float8) + bf16", "titan-compile", "torch.compile + float8 (fsdp float8 all-gather)", "fp8", "fp8"),
        ("fp8 tensorwise, float8 all-gather", "titan-compile", "", "fp8", "fp8"),
        ("fp8 rowwise, bf16 all-gather", "titan-compile", "", "fp8-rowwise", "bf16"),
        ("fp8 rowwise_with_gw_hp, bf16 all-gather", "titan-compile", "", "fp8-rowwise-hp", "bf16"),
        ("fp8 (current scaling, FP8-CS)", "bridge-2026", "", "fp8", ""),
        ("fp8", "mcore-2024", "", "fp8-delayed", ""),
        ("fp8", "bridge-2026", "", "fp8", ""),
        ("fp8 (hybrid)", "mcore-2025", "", "fp8-delayed", ""),
        ("mxfp8_cublas_rceil", "titan-compile", "", "mxfp8", ""),
        ("nvfp4", "bridge-2026", "", "nvfp4", ""),
    ],
)
def test_few_bits(text, stack, notes, compute, gather):
    found = read_precision(text, stack, notes)
    assert (found.compute, found.gather) == (compute, gather)


@pytest.mark.parametrize(
    ("task", "model", "lineage", "trainable"),
    [
        ("pretrain", "Llama-3-8B", "megatron", "all"),
        ("finetune", "Llama-3-8B", "megatron", "all"),
        ("lora", "Llama-3-8B", "megatron", "lora(r=16,on=qkv)"),
        ("lora", "Llama-3-8B", "fsdp", "lora(r=16)"),
        ("finetune", "Llama-2-70B LoRA r8 (MLPerf)", "megatron", "lora(r=8,on=qkv)"),
    ],
)
def test_what_is_trained(task, model, lineage, trainable):
    assert read_trainable(task, model, lineage) == trainable


@pytest.mark.parametrize("text", ["FP32", "int8"])
def test_precisions_that_are_not_modelled(text):
    with pytest.raises(NotModelled):
        read_precision(text, "titan-compile")


@pytest.mark.parametrize(
    ("text", "dp", "kind", "shard", "replicate", "reshard"),
    [
        ("ddp (zero0)", 8, "ddp", 1, 8, True),
        ("zero0", 8, "ddp", 1, 8, True),
        ("none", 1, "none", 1, 1, True),
        ("", 1, "none", 1, 1, True),
        ("", 16, "zero1", 16, 1, True),
        ("zero1 (Megatron distributed optimizer)", 16, "zero1", 16, 1, True),
        ("OverlappedDistributedOptimizer", 16, "zero1", 16, 1, True),
        ("ddp/distributed optimizer", 16, "zero1", 16, 1, True),
        ("zero1 group 8 (node-local)", 32, "zero1", 8, 4, True),
        ("zero2", 16, "zero2", 16, 1, True),
        ("fsdp FULL_SHARD (zero3) over 64", 64, "fsdp", 64, 1, True),
        ("fsdp SHARD_GRAD_OP (zero2) over 128", 128, "fsdp", 128, 1, False),
        ("fsdp2 (zero3) over 8", 32, "fsdp", 8, 4, True),
        ("fsdp (params not resharded after forward = zero2-like)", 8, "fsdp", 8, 1, False),
        ("fsdp (megatron-fsdp) group 64", 128, "fsdp", 64, 2, True),
        ("fsdp group 128 x dp 4", 512, "fsdp", 128, 4, True),
        ("fsdp within slice (16), data parallel across 4 slice(s)", 64, "fsdp", 16, 4, True),
        ("fsdp within slice (), data parallel across 2 slice(s)", 64, "fsdp", 32, 2, True),
        ("hsdp (hybrid)", 32, "fsdp", 8, 4, True),
        ("fsdp + Megatron TP", 16, "fsdp", 16, 1, True),
    ],
)
def test_shardings(text, dp, kind, shard, replicate, reshard):
    found = read_sharding(text, float(dp), "mcore-2024", 8.0)
    assert (found.kind, found.shard, found.replicate, found.reshard) == (kind, shard, replicate, reshard)


@pytest.mark.parametrize(
    ("sharding", "notes", "kinds", "layers"),
    [
        ("fsdp over 64", "", (), 0.0),
        ("zero1", "no CPU offload", (), 0.0),
        ("fsdp", "cpu_offloading_num_layers=40", ("activations",), 40.0),
        ("zero2 (ZeRO-Offload)", "", ("optimizer",), 0.0),
        ("zero3", "offload_optimizer: cpu; offload_param: cpu", ("optimizer", "parameters"), 0.0),
        ("fsdp", "+activation offloading, optimizer offload", ("optimizer", "activations"), 0.0),
    ],
)
def test_what_lies_on_the_host(sharding, notes, kinds, layers):
    found = read_offload(sharding, notes, 80.0)
    assert (found.kinds, found.layers) == (kinds, layers)


def test_offloading_that_cannot_be_read():
    for text in ("zero3 (with CPU offload capabilities)", "cumulative: +activation offloading"):
        with pytest.raises(Unclear):
            read_offload("", text, 80.0)
    with pytest.raises(Unclear, match="40 layers are offloaded, the model has 32"):
        read_offload("", "cpu_offloading_num_layers=40", 32.0)
    with pytest.raises(NotModelled, match="NVMe"):
        read_offload("zero3 infinity, optimizer offload to nvme", "", 80.0)


def test_shardings_that_cannot_be_read():
    for text in ("fsdp + dp (group sizes not in the table)", "fsdp2 group 3", "none"):
        with pytest.raises(Unclear):
            read_sharding(text, 8.0, "misc-small", 8.0)


@pytest.mark.parametrize(
    ("text", "policy", "selective"),
    [
        ("", "none", ""),
        ("none beyond recipe default (preset sets none)", "none", ""),
        ("full", "full", ""),
        ("selective", "selective", ""),
        ("selective (attention core)", "selective", "attention"),
        ("op: core_attn", "selective", "attention"),
        ("selective (op)", "selective", "alternate"),
        ('selective (every other layer: torchtitan "selective layer")', "every-2", ""),
        ("selective (layer)", "every-2", ""),
        ("every-4", "every-4", ""),
        ("op: layernorm+moe_act", "layernorm+moe_act", ""),
        ("op-list: moe_act, mla_up_proj", "mla_up_proj+moe_act", ""),
        ("op: moe+layernorm+core_attn+moe_act", "core_attn+layernorm+moe+moe_act", "attention"),
        ("full block, 5 layers", "5-of-8", ""),
    ],
)
def test_recompute(text, policy, selective):
    assert (read_recompute(text, 8.0), read_selective(text)) == (policy, selective)


@pytest.mark.parametrize(
    "text",
    ["op: layernorm+dropout", "full block, 5 layers", "minimal", "qkv_proj_offloaded (MaxText policy)", "sometimes"],
)
def test_recompute_that_is_not_modelled(text):
    with pytest.raises(NotModelled):
        read_recompute(text, 10.5)


@pytest.mark.parametrize("text", ["selective (every n-th block)", "full block", "full block, 9 layers"])
def test_recompute_that_says_too_little(text):
    with pytest.raises(Unclear):
        read_recompute(text, 8.0)


def test_graphs_of_whole_iterations_are_told_from_those_of_modules():
    for notes in ("cuda_graph_impl=full_iteration; x", "cuda_graph_impl=local; cuda_graph_scope=full_iteration"):
        assert read_stack("bridge-2026", 2026, notes).step_graphs
    modules = (f"cuda_graph_impl={impl}; cuda_graph_scope=['attn']" for impl in ("transformer_engine", "local"))
    for notes in ("", "cuda_graph_impl=none; cuda_graph_scope=full_iteration", *modules):
        assert not read_stack("bridge-2026", 2026, notes).step_graphs


@pytest.mark.parametrize(
    ("text", "kind", "adapter", "adapters", "node"),
    [
        ("", "", None, None, None),
        ("n/a (1 node)", "", None, None, None),
        ("EFA", "efa", None, None, None),
        ("RoCE 1600 Gbps node-node", "roce", None, None, 1600),
        ("2 Tb/s RoCE per host", "roce", None, None, 2000),
        ("RDMA 400 Gb/s per GPU", "roce", 400, None, None),
        ("RoCE RDMA", "roce", None, None, None),
        ("400 Gb/s per GPU CX-7", "infiniband", 400, None, None),
        ("NDR 400G IB per GPU", "infiniband", 400, None, None),
        ("400 Gbps", "", 400, None, None),
        ("8x200Gb HDR IB per node (Selene, per paper)", "infiniband", 200, 8, None),
        ("4 x HDR 200 Gbit/s InfiniBand per node", "infiniband", 200, 4, None),
        ("4x ConnectX-8 IB XDR 800 Gb/s", "infiniband", 800, 4, None),
        ("4x200 Gbps RDMA", "roce", 200, 4, None),
        ("DGX SuperPOD IB", "infiniband", 200, 8, None),
        ("4x Omni-Path links per node (Jean Zay)", "omni-path", 100, 4, None),
        ("Slingshot (Alps)", "slingshot", 200, 4, None),
        ("DCN between slices", "dcn", 100, 2, None),
        ("Storage: 2x ConnectX-7 IB NDR 400Gb/s, Compute: 8x ConnectX-7 IB NDR 400Gb/s, Management: 100Gb/s Ethernet NIC",
         "infiniband", 400, 8, None),
        ("BF3 200Gbps for NS and 2xBF3 400Gbps for EW", "roce", 400, 2, None),
        ("InfiniBand; Data bandwidth for GPU-PCIe: 504 GB/s; PCIe-NIC: 500 GB/s", "infiniband", None, None, None),
        ("Ethernet(RoCEv2)", "roce", None, None, None),
    ],
)  # fmt: skip
def test_fabrics(text, kind, adapter, adapters, node):
    found = read_fabric(text)
    assert (found.kind, found.adapters) == (kind, adapters)
    assert found.adapter == (None if adapter is None else adapter * GBPS)
    assert found.node == (None if node is None else node * GBPS)


@pytest.mark.parametrize(
    ("text", "kind", "domain"),
    [
        ("NVLink4 (8-GPU)", "", None),
        ("18x 5th Gen NVLink, 14.4TB/s", "", None),
        ("PCIe Gen4", "pcie", None),
        ("4-way NVIDIA NVLINK bridge", "", 4),
        ("NVLink4 (4x GH200)", "", 4),
        ("ICI (slice of 128 chips)", "", 128),
        ("Infinity Fabric Link", "", None),
    ],
)
def test_links(text, kind, domain):
    found = read_link(text)
    assert (found.kind, found.domain) == (kind, domain)


@pytest.mark.parametrize(
    ("notes", "pp", "virtual", "schedule"),
    [
        ("", 1, None, ("1f1b", 1)),
        ("", 4, None, ("1f1b", 1)),
        ("", 4, 3.0, ("interleaved", 3)),
        ("PP schedule 1F1B-I", 8, 3.0, ("interleaved", 3)),
        ("PP algorithm 1f1b-interleaved", 8, 2.0, ("interleaved", 2)),
        ("torch.compile; PP schedule Interleaved 1F1B", 8, 2.0, ("interleaved", 2)),
        ("PP schedule 1F1B", 8, 1.0, ("1f1b", 1)),
        ("PP schedule ZB-1p", 8, 1.0, ("zb-h1", 1)),
        ("PP schedule ZB-2p", 8, 1.0, ("zb-2p", 1)),
        ("PP algorithm zbv", 8, 2.0, ("zb-v", 2)),
        ("PP schedule ZB-2p", 1, 1.0, ("1f1b", 1)),
    ],
)
def test_schedules(notes, pp, virtual, schedule):
    assert read_schedule(notes, float(pp), virtual) == schedule


@pytest.mark.parametrize("notes", ["PP algorithm zbb", "PP algorithm v-half", "PP algorithm v-min"])
def test_other_zero_bubble_schedules_are_not_modelled(notes):
    with pytest.raises(NotModelled):
        read_schedule(notes, 8.0, 2.0)


def test_notes_that_are_not_modelled():
    with pytest.raises(NotModelled):
        check_notes("optimizer in backward")


@pytest.mark.parametrize(
    ("text", "task"),
    [
        ("", "pretrain"),
        ("pretrain", "pretrain"),
        ("sft", "finetune"),
        ("full finetune (CPU offload, fused optimizer)", "finetune"),
        ("LoRA", "lora"),
        ("QLoRA", "qlora"),
        ("DPO", "finetune"),
        ("DPO LoRA", "lora"),
        ("RLHF (PPO)", "reinforcement"),
        ("grpo", "reinforcement"),
        ("RL with rollouts", "reinforcement"),
        ("CLIP pretrain", "dual_encoder"),
        ("dual-encoder", "dual_encoder"),
        ("image classification train", "vision"),
        ("vision", "vision"),
    ],
)
def test_tasks(text, task):
    assert read_task(text) == task
    refused = {
        "qlora": "quantised base are not modelled",
        "reinforcement": "rollouts of reinforcement learning are out of scope",
    }
    if task not in refused:
        check_task(task)
    else:
        with pytest.raises(NotModelled, match=refused[task]):
            check_task(task)


@pytest.mark.parametrize(
    "name",
    ["DeepSeek-V4-Flash", "DeepSeek-V3.2", "Zamba2-7B", "MiniMax-Text-01", "Switch-XXL",
     "Nemotron-3-Ultra (hybrid Mamba-MoE)", "swin_base_patch4_window7_224", "ModernBERT-large", "Stable Diffusion 3", "FLUX.1"],
)  # fmt: skip
def test_families_that_are_not_modelled(name):
    with pytest.raises(NotModelled):
        check_family(name)


@pytest.mark.parametrize(
    "name",
    ["Nemotron-340B", "Nemotron-4-15B", "Llama-3.1-405B", "GPT-1T", "BLOOM-176B", "Qwen2.5 7B", "MPT-7b", "Qwen3-30B-A3B",
     "Mixtral-8x7B", "Llama3-8x70B", "Grok-1 proxy (2 layers)", "GPT-OSS-120B", "DeepSeek-V3-671B", "Kimi K2",
     "Nemotron-3-Nano (hybrid Mamba-MoE)", "Nemotron V3 Super 120B (26.02)", "MiniMax-M2.5"],
)  # fmt: skip
def test_decoders_pass(name):
    check_family(name)


@pytest.mark.parametrize(
    ("name", "shipped", "layers", "mtp"),
    [("DeepSeek-V3-671B", "deepseek-v3", 61, 1), ("deepseekv3 (4 layers)", "deepseek-v3", 4, 1),
     ("deepseekv2 (4 layers)", "deepseek-v2", 4, 0), ("Kimi K2", "kimi-k2", 61, 0), ("GPT-OSS-20B", "gpt-oss-20b", 24, 0),
     ("Nemotron-3-Nano (hybrid Mamba-MoE)", "nemotron-3-nano", 52, 0), ("Nemotron V3 Super", "nemotron-3-super", 88, 2),
     ("Nemotron-3.5-Lightning (hybrid Mamba-MoE)", "nemotron-3-nano", 52, 1)],
)  # fmt: skip
def test_names_that_stand_for_a_shipped_model(name, shipped, layers, mtp):
    """Such models have more numbers than a row has columns; what a row states of them counts."""
    model, known = read_model(Row(line=2, cells={"model": name}), "bridge-2025", 4096.0), load_catalog().model(shipped)
    assert (model.name, model.layers, model.mtp, model.context) == (name, layers, mtp, 4096.0)
    assert (model.mixers, model.kv_lora_rank, model.hidden) == (known.mixers, known.kv_lora_rank, known.hidden)
    stated = read_model(Row(line=2, cells={"model": name, "n_layers": "3", "vocab": "50304"}), "bridge-2025", 4096.0)
    assert (stated.layers, stated.vocab) == (3, 50304.0)


@pytest.mark.parametrize(
    ("name", "family", "row"),
    [("bert-110m", "encoder", "bert-base"), ("HuggingFace BERT-Large Ph1", "encoder", "bert-large"),
     ("T5-11B", "encoder_decoder", "t5-11b"), ("CLIP ViT-B/32", "dual_encoder", "clip-vit-b-32"),
     ("CLIP ViT-B-16", "dual_encoder", "clip-vit-b-16"), ("CLIP ViT-B/16+ 240", "dual_encoder", "clip-vit-b-16-plus-240"),
     ("CLIP g/14", "dual_encoder", "clip-vit-g-14"), ("CLIP ViT-H-14", "dual_encoder", "clip-vit-h-14"),
     ("HuggingFace CLIP-Base", "dual_encoder", "clip-vit-b-32"), ("HuggingFace ViT-Base", "vision", "vit-base-patch16-224"),
     ("vit_base_patch16_224", "vision", "vit-base-patch16-224"), ("ViT-L/16 384px finetune", "vision", "vit-large-patch16-384"),
     ("deit3_huge_patch14_224", "vision", "deit3-huge-patch14-224"), ("ViT g/14", "vision", "vit-giant-patch14-224")],
)  # fmt: skip
def test_names_of_other_families_are_rows_of_the_catalog(name, family, row):
    check_family(name)
    model = read_model(Row(line=2, cells={"model": name}), "misc-small", 512.0)
    assert (model.family, model.name) == (family, row)


def test_a_row_states_the_sizes_of_an_encoder():
    cells = {"model": "bert-20b", "n_layers": "48", "hidden": "6144", "n_heads": "96", "seq_len": "512"}
    model = read_model(Row(line=2, cells=cells), "nemo-2023", 512.0)
    assert (model.layers, model.hidden, model.ffn, model.heads, model.head_dim) == (48, 6144.0, 24576.0, 96.0, 64.0)


@pytest.mark.parametrize("name", ["ViT-5-Small (22M)", "vit_base_patch99_224", "CLIP ViT-Z/3"])
def test_an_image_model_of_unknown_patches_is_no_decoder(name):
    cells = {"model": name, "n_layers": "12", "hidden": "384", "n_heads": "6", "ffn_hidden": "1536", "vocab": "1000"}
    with pytest.raises(Unclear, match="architecture is not known"):
        read_model(Row(line=2, cells=cells), "misc-small", 197.0)


@pytest.mark.parametrize(
    ("name", "own"),
    [("vit_small_patch16_224", 197.0), ("CLIP ViT-B/32", 77.0), ("bert-4b", None), ("Llama-3.1-8B", None)],
)
def test_images_and_towers_give_their_sequence(name, own):
    assert own_sequence(Row(line=2, cells={"model": name})) == own


@pytest.mark.parametrize(
    ("name", "experts", "active"),
    [("Qwen3-30B-A3B", (128.0, 8.0, 768.0), 3.0e9), ("Qwen3-235B-A22B", (128.0, 8.0, 1536.0), 21.5e9),
     ("Mixtral-8x7B", (8.0, 2.0, 14336.0), 12.7e9), ("Mixtral-8x22B-G8T8", (64.0, 8.0, 2048.0), None),
     ("Llama3-8x70B", (8.0, 2.0, 28672.0), None), ("Grok-1", (8.0, 2.0, 32768.0), None),
     ("Qwen2-57B-A14B", (64.0, 8.0, 2560.0), 13.7e9), ("Llama-3.1-8B", None, None)],
)  # fmt: skip
def test_experts_of_a_name(name, experts, active):
    model = read_model(Row(line=2, cells={"model": name}), "bridge-2025", 4096.0)
    assert experts == ((model.experts, model.top_k, model.moe_ffn) if model.experts else None)
    if active:
        assert decoder.active_matrices(model) + model.vocab * model.hidden == pytest.approx(active, rel=0.03)


@pytest.mark.parametrize(
    "text", ["H100-SMX", "H100 SMX5 80GB", "H100-PICE", "H100-PCI-80GB", "A100-SXN4-40GB", "H100 NVM"]
)
def test_a_slip_in_the_form_of_an_accelerator_is_no_guess(text):
    with pytest.raises(Unclear, match="did you mean"):
        read_accelerator(text)


@pytest.mark.parametrize(
    ("text", "guess"),
    [
        ("H100", True), ("A100 (variant not stated)", True), ("V100", True), ("H100-SXM5-80GB", False), ("RTX 4090", False),
        ("A100-80GB", False), ("H100 PCIe", False), ("DGX A100", False), ("TPU v5e", False),
    ],
)  # fmt: skip
def test_a_chip_without_its_form_is_said_to_be_a_guess(text, guess):
    assert bool(guessed(text, read_accelerator(text).name)) is guess
