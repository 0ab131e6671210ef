"""What the head of a log says of a run, as a scenario: degrees, batch, length, accelerators. The model is a name of the trainer's own."""

from __future__ import annotations

from typing import Any

from shardmeter.interop.configs.record import Imported, Setting
from shardmeter.interop.logs.record import LogAccount
from shardmeter.interop.logs.values import positive
from shardmeter.specs import Scenario

DEVICES = {
    "NVIDIA H100 80GB HBM3": "H100-SXM5-80GB", "NVIDIA H100 PCIe": "H100-PCIe-80GB", "NVIDIA H100 NVL": "H100-NVL-94GB",
    "NVIDIA H200": "H200-SXM-141GB", "NVIDIA H800": "H800-SXM5", "NVIDIA H20": "H20", "NVIDIA A100-SXM4-80GB": "A100-SXM4-80GB",
    "NVIDIA A100-SXM4-40GB": "A100-SXM4-40GB", "NVIDIA A100 80GB PCIe": "A100-PCIe-80GB", "NVIDIA A100-PCIE-40GB": "A100-PCIe-40GB",
    "NVIDIA B200": "B200-SXM (HGX)", "NVIDIA GB200": "GB200 (per GPU, NVL72)", "NVIDIA B300 SXM6 AC": "B300-SXM (HGX)", "NVIDIA L4": "L4",
    "NVIDIA L40S": "L40S", "NVIDIA A10": "A10", "NVIDIA A10G": "A10G", "NVIDIA RTX A6000": "RTX A6000", "NVIDIA GeForce RTX 3090": "RTX 3090",
    "NVIDIA GeForce RTX 4090": "RTX 4090", "NVIDIA GeForce RTX 5090": "RTX 5090", "Tesla V100-SXM2-16GB": "V100-SXM2-16GB",
    "Tesla V100-SXM2-32GB": "V100-SXM2-32GB", "AMD Instinct MI300X": "MI300X", "AMD Instinct MI325X": "MI325X",
}  # fmt: skip
"""Names that drivers give devices, and ours."""
FACTS = {
    "model": "the trainer's own name of the model: say --model", "parameters": "follows from the model", "device_memory": "follows from the accelerator",
    "accelerator": "a device that the catalog does not know by this name: say --gpus", "gpus": "how many, but not which: say --gpus",
    "accumulation": "follows from the batch, the micro-batch and the degrees", "tokens_per_step": "follows from the batch and the sequence length",
    "trainable_parameters": "follows from the model",
}  # fmt: skip
"""What is said and is no field of a scenario, and why."""


def imported(account: LogAccount) -> Imported:
    """The head of a log as a document; a batch that only reports say is taken from them, and said to be."""
    said = dict(account.said)
    document: dict[str, Any] = {}
    understood, ignored, assumed = [], [], []
    device = DEVICES.get(said.get("accelerator", ""))
    if device is not None and account.gpus is not None:
        document["gpus"] = f"{account.gpus:.0f}x{device}"
        understood.append(Setting(key="accelerator", value=said.pop("accelerator"), means=f"gpus = {document['gpus']}"))
        said.pop("gpus", None)
    for key, text in said.items():
        part, _, field = key.partition(".")
        if field == "dp" or part not in ("plan", "run"):
            ignored.append(Setting(key=key, value=text, means=FACTS.get(key, "no field of a scenario")))
            continue
        value = positive(text)
        document.setdefault(part, {})[field] = text if value is None else int(value)
        understood.append(Setting(key=key, value=text, means=f"{key} = {text}"))
    run = document.get("run", {})
    if "global_batch" not in run and "seq_len" in run and account.tokens_per_step is not None:
        document["run"]["global_batch"] = max(1, round(account.tokens_per_step / run["seq_len"]))
        assumed.append(f"The batch is the {account.tokens_per_step:,.0f} tokens of a step over the sequence length.")
    return Imported(
        format=account.format, version=account.version, document=document, understood=tuple(understood), assumed=tuple(assumed),
        ignored=tuple(ignored),
    )  # fmt: skip


def known(scenario: Scenario) -> dict[str, str]:
    """What a scenario tells of a run that its log may not."""
    numbers = {"gpus": scenario.fleet.gpus, "run.seq_len": scenario.run.seq_len, "run.global_batch": scenario.run.global_batch}
    return {name: f"{float(value):.0f}" for name, value in numbers.items()}
