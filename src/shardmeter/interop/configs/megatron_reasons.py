"""Why an option of Megatron-LM changes nothing in a scenario."""

from __future__ import annotations

import re

REASONS = (
    (r"data|split|tokenizer|vocab|merge|mmap|reset-|eod|dataloader|num-workers|fim|mock|blend|sft", "data: no figure depends on which"),
    (r"^--(lr|min-lr|weight-decay|adam|sgd|muon|clip-grad|init-method|seed|start-weight|end-weight|loss-scale|initial-loss|override-opt|decoupled)", "how it learns, not how fast it runs"),
    (r"dropout|norm-epsilon|rotary|rope|yarn|position-ids|softmax-in-fp32|query-key-layer-scaling|init-std|aux-loss|z-loss|score-function|scaling-factor|bias-update|expert-bias|pre-softmax|load-balancing|group-topk|num-groups|jitter", "a number of the model that costs no time of its own"),
    (r"save|load|ckpt|checkpoint|finetune|exit|restart|rerun|ft-|async-strategy", "checkpoints: say run.checkpoint"),
    (r"eval|valid", "evaluation: say run.evaluation"),
    (r"log|tensorboard|wandb|timing|profile|nvtx|straggler|otel|one-logger|record-memory", "what it logs"),
    (r"^--(overlap|no-overlap|delay|defer|align|tp-comm|no-tp-comm|disable-tp-comm|microbatch-group|p2p)|nccl|symmetric|bucket|sharp", "what runs behind what, and over which buffers, is a fact of the stack"),
    (r"fusion|fused|flash|attention-backend|transformer-impl|cuda-graph|kernel|permute|grouped-gemm|te-|jit|apex|dispatcher|deepep|hybridep|cross-entropy|persist|use-mcore|legacy|fp8-|router-dtype|garbage|gc", "which kernels run is a fact of the stack"),
    (r"capacity|drop|pad-expert|force-load", "experts are dropless and their load is plan.expert_skew"),
    (r"infer|rl-|grpo|langrl|dino|ict|retro|bert|vision|mamba|hybrid|heterogeneous|distill|logits", "another task or another kind of model, which is not read from options"),
    (r"timeout|distributed|gloo|device|hugepages|lazy|init|high-priority|manual-gc|nonpersistent|local-rank", "how processes start"),
)  # fmt: skip
"""A pattern of names, and the reason; the first that fits counts."""
OTHERWISE = "known to the trainer; no figure here depends on it"


def reason(key: str) -> str:
    """Why one option is ignored."""
    return next((why for pattern, why in REASONS if re.search(pattern, key)), OTHERWISE)
