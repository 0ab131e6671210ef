"""Measures this machine, predicts the steps of a small PyTorch transformer with nothing but what was measured, then times them.

`python scripts/transformer_check.py [--budget SECONDS] [--steps N] [--clock wall|cpu] [-o FILE]` needs PyTorch. One thread. Nothing
of the transformer's own run goes into its prediction: the rows are made, and the predictions asked, before it runs.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import shardmeter
from shardmeter.study.measure import measure

SHAPES: tuple[dict[str, int], ...] = (
    {"layers": 4, "hidden": 256, "heads": 4, "vocab": 4096, "seq_len": 256, "batch": 4},
    {"layers": 6, "hidden": 256, "heads": 4, "vocab": 8192, "seq_len": 128, "batch": 8},
    {"layers": 4, "hidden": 384, "heads": 6, "vocab": 8192, "seq_len": 256, "batch": 4},
    {"layers": 4, "hidden": 512, "heads": 8, "vocab": 8192, "seq_len": 512, "batch": 2},
    {"layers": 6, "hidden": 512, "heads": 8, "vocab": 4096, "seq_len": 128, "batch": 4},
    {"layers": 2, "hidden": 512, "heads": 8, "vocab": 16384, "seq_len": 256, "batch": 2},
    {"layers": 3, "hidden": 768, "heads": 12, "vocab": 8192, "seq_len": 256, "batch": 2},
    {"layers": 4, "hidden": 256, "heads": 4, "vocab": 2048, "seq_len": 1024, "batch": 2},
)
"""What is trained: a decoder with LayerNorm, GELU, learned positions, no biases, an own head."""
NAME = "this-machine"


def scenario(shape: Mapping[str, int]) -> dict[str, Any]:
    """The question to `predict`: the model's numbers, one device, fp32, one micro-batch a step."""
    hidden = shape["hidden"]
    model = {
        "family": "decoder", "name": "small", "layers": shape["layers"], "hidden": hidden, "ffn": 4 * hidden, "heads": shape["heads"],
        "kv_heads": shape["heads"], "head_dim": hidden // shape["heads"], "vocab": shape["vocab"], "context": shape["seq_len"],
        "mlp": "plain", "norm": "layer", "positions": "learned",
    }  # fmt: skip
    return {
        "model": model, "gpus": f"1x{NAME}", "stack": f"torch-{NAME}",
        "plan": {"sharding": "none", "precision": "fp32", "micro_batch": shape["batch"]},
        "run": {"seq_len": shape["seq_len"], "global_batch": shape["batch"]},
    }  # fmt: skip


def predicted(folder: Path) -> list[dict[str, Any]]:
    """Step time, interval and ledger of every shape, with the rows of a profile."""
    return [shardmeter.predict(scenario(shape), catalog=folder).to_dict() for shape in SHAPES]


def training_step(shape: Mapping[str, int]) -> Callable[[], None]:
    """One optimizer step of the transformer."""
    import torch
    from torch.nn import functional

    hidden, heads = shape["hidden"], shape["heads"]

    class Layer(torch.nn.Module):  # type: ignore[misc,unused-ignore]
        def __init__(self) -> None:
            super().__init__()
            self.norms = torch.nn.ModuleList(torch.nn.LayerNorm(hidden) for _ in range(2))
            self.qkv, self.out, self.up, self.down = (
                torch.nn.Linear(a * hidden, b * hidden, bias=False) for a, b in ((1, 3), (1, 1), (1, 4), (4, 1))
            )

        def forward(self, x: Any) -> Any:
            batch, seq, _ = x.shape
            parts = self.qkv(self.norms[0](x)).view(batch, seq, 3, heads, hidden // heads).permute(2, 0, 3, 1, 4)
            mixed = functional.scaled_dot_product_attention(*parts, is_causal=True)
            x = x + self.out(mixed.transpose(1, 2).reshape(batch, seq, hidden))
            return x + self.down(functional.gelu(self.up(self.norms[1](x))))

    torch.manual_seed(0)
    embed, places = torch.nn.Embedding(shape["vocab"], hidden), torch.nn.Embedding(shape["seq_len"], hidden)
    layers = torch.nn.Sequential(*(Layer() for _ in range(shape["layers"])))
    norm, head = torch.nn.LayerNorm(hidden), torch.nn.Linear(hidden, shape["vocab"], bias=False)
    everything = torch.nn.ModuleList((embed, places, layers, norm, head))
    optimizer = torch.optim.AdamW(everything.parameters(), lr=1e-4, fused=True)
    tokens = torch.randint(0, shape["vocab"], (shape["batch"], shape["seq_len"] + 1))
    at = torch.arange(shape["seq_len"])

    def step() -> None:
        logits = head(norm(layers(embed(tokens[:, :-1]) + places(at))))
        functional.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten()).backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    return step


def timed(steps: int, clock: str) -> list[list[float]]:
    """Seconds of single steps by shape, in rounds over all shapes, the first round thrown away."""
    now = time.process_time if clock == "cpu" else time.perf_counter
    ready = [training_step(shape) for shape in SHAPES]
    found: list[list[float]] = [[] for _ in ready]
    for round_ in range(steps + 1):
        for at, step in enumerate(ready):
            start = now()
            step()
            if round_:
                found[at].append(now() - start)
    return found


def table(record: Mapping[str, Any]) -> str:
    """A record as the table of docs/measure.md."""
    lines = [
        "| layers | hidden | heads | vocabulary | sequence | batch | predicted | measured (all steps) | error |",
        "|" + "---|" * 9,
    ]
    for row in record["shapes"]:
        sizes = " | ".join(str(row[name]) for name in ("layers", "hidden", "heads", "vocab", "seq_len", "batch"))
        span = f"{row['measured_s']:.3f} s ({row['fastest_s']:.3f} to {row['slowest_s']:.3f})"
        lines.append(f"| {sizes} | {row['predicted_s']:.3f} s | {span} | {100.0 * row['error']:+.1f} % |")
    return "\n".join(lines)


def main() -> None:
    """Measure, predict, time, compare."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--budget", type=float, default=60.0, help="seconds of the measurement")
    parser.add_argument("--steps", type=int, default=15, help="steps timed of every shape")
    parser.add_argument("--clock", choices=("wall", "cpu"), default="wall")
    parser.add_argument("-o", dest="file", type=Path, help="where the record is written")
    asked = parser.parse_args()
    answer = measure("cpu", threads=1, clock=asked.clock, budget=asked.budget, name=NAME)
    with tempfile.TemporaryDirectory() as folder:
        answer.write(Path(folder))
        said = predicted(Path(folder))
    rows = []
    for shape, one, seconds in zip(SHAPES, said, timed(asked.steps, asked.clock), strict=True):
        usual = statistics.median(seconds)
        rows.append({**shape, "predicted_s": one["step_time_s"], "measured_s": usual, "fastest_s": min(seconds),
                     "slowest_s": max(seconds), "error": one["step_time_s"] / usual - 1.0})  # fmt: skip
        print(f"{shape}: predicted {one['step_time_s']:.3f} s, measured {usual:.3f} s, {rows[-1]['error']:+.1%}")
    record = {"device": answer.measured.device, "software": answer.measured.software, "date": answer.measured.date,
              "threads": answer.measured.threads, "clock": asked.clock, "unsteady": answer.unsteady, "shapes": rows,
              "measured": answer.measured.to_dict()}  # fmt: skip
    if asked.file is not None:
        asked.file.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
