"""The network of a row of `models.csv` in plain torch layers, for `oracle.py`. Needs torch; knows nothing of the package.

Attention is written as two matrix products, which torch counts in full: no causal half, no fused kernel that it counts as
nothing, no mask that it would have to look at.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

Row = dict[str, str]


def yes(row: Row, name: str) -> bool:
    """Whether a yes/no cell says yes."""
    return row[name] == "yes"


def norm(row: Row, width: int) -> Any:
    """The norm of the row's kind."""
    if row["norm"] == "rms":
        return nn.RMSNorm(width)
    if row["norm"] == "layer_plain":
        return nn.LayerNorm(width, elementwise_affine=False)
    return nn.LayerNorm(width, bias={"layer": True, "layer_no_bias": False}[row["norm"]])


class Attention(nn.Module):  # type: ignore[misc]
    """Projections, optional norms of queries and keys, full attention."""

    def __init__(self, row: Row) -> None:
        super().__init__()
        hidden, bias = int(row["hidden"]), yes(row, "attention_bias")
        self.heads, self.kv_heads, self.head_dim = (int(row[name]) for name in ("heads", "kv_heads", "head_dim"))
        wide, narrow = self.heads * self.head_dim, self.kv_heads * self.head_dim
        self.query = nn.Linear(hidden, wide, bias=bias)
        self.key = nn.Linear(hidden, narrow, bias=bias)
        self.value = nn.Linear(hidden, narrow, bias=bias)
        self.output = nn.Linear(wide, hidden, bias=yes(row, "output_bias"))
        if row["qk_norm"] == "head":
            self.query_norm, self.key_norm = nn.RMSNorm(self.head_dim), nn.RMSNorm(self.head_dim)
        elif row["qk_norm"] == "full":
            self.query_norm, self.key_norm = nn.RMSNorm(wide), nn.RMSNorm(narrow)

    def forward(self, x: Any) -> Any:
        """Norms of queries and keys are left out here: torch counts matrix products only."""
        query, key, value = (
            self.by_head(self.query(x), self.heads),
            self.by_head(self.key(x), self.kv_heads),
            self.by_head(self.value(x), self.kv_heads),
        )
        mixed = torch.softmax(query @ key.transpose(-1, -2), dim=-1) @ value
        return self.output(mixed.transpose(1, 2).reshape(*x.shape[:2], self.heads * self.head_dim))

    def by_head(self, x: Any, count: int) -> Any:
        """(batch, seq, width) to (batch, heads, seq, head_dim); shared heads are repeated."""
        apart = x.view(*x.shape[:2], count, self.head_dim).transpose(1, 2)
        return apart.repeat_interleave(self.heads // count, dim=1)


class Mlp(nn.Module):  # type: ignore[misc]
    """Two matrices, or three with a gate."""

    def __init__(self, row: Row, width: str = "ffn") -> None:
        super().__init__()
        hidden, ffn, bias = int(row["hidden"]), int(row[width]), yes(row, "mlp_bias")
        self.up = nn.Linear(hidden, ffn, bias=bias)
        self.gate = nn.Linear(hidden, ffn, bias=bias) if row["mlp"] == "gated" else None
        self.down = nn.Linear(ffn, hidden, bias=bias)

    def forward(self, x: Any) -> Any:
        """Any activation: torch counts none."""
        up = self.up(x)
        return self.down(torch.relu(up) if self.gate is None else torch.relu(self.gate(x)) * up)


class Experts(nn.Module):  # type: ignore[misc]
    """Router, routed experts (one tensor for all of them), shared experts with or without a gate."""

    def __init__(self, row: Row) -> None:
        super().__init__()
        hidden, width = int(row["hidden"]), int(row["moe_ffn"])
        self.experts, self.top_k = int(row["experts"]), int(row["top_k"])
        gates = 2 if row["mlp"] == "gated" else 1
        self.router = nn.Linear(hidden, self.experts, bias=False)
        self.up = nn.Parameter(torch.empty(self.experts, hidden, gates * width))
        self.down = nn.Parameter(torch.empty(self.experts, width, hidden))
        if yes(row, "mlp_bias"):
            self.up_bias = nn.Parameter(torch.empty(self.experts, gates * width))
            self.down_bias = nn.Parameter(torch.empty(self.experts, hidden))
        self.shared = Mlp(row, "shared_ffn") if row["shared_ffn"] else None
        self.shared_gate = nn.Linear(hidden, 1, bias=False) if yes(row, "shared_gate") else None

    def forward(self, x: Any) -> Any:
        """Every expert gets as many tokens as every other: which ones does not change a count."""
        self.router(x)
        tokens = x.reshape(-1, x.shape[-1])
        rows = tokens.repeat(self.top_k, 1).view(self.experts, -1, x.shape[-1])
        inner = torch.bmm(rows, self.up)[..., : self.down.shape[1]]
        result = torch.bmm(inner, self.down).reshape(self.top_k, *x.shape).sum(0)
        if self.shared is not None:
            shared = self.shared(x)
            result = result + (shared if self.shared_gate is None else shared * self.shared_gate(x))
        return result


class Layer(nn.Module):  # type: ignore[misc]
    """Attention and MLP (or experts) one after the other with a norm each, or side by side behind one norm."""

    def __init__(self, row: Row, routed: bool) -> None:
        super().__init__()
        norms = {"1": 1, "2": 2}[row["norms_per_layer"]]
        self.norms = nn.ModuleList(norm(row, int(row["hidden"])) for _ in range(norms))
        self.attention = Attention(row)
        self.mlp = Experts(row) if routed else Mlp(row)

    def forward(self, x: Any) -> Any:
        """Pre-norm; where the norms stand does not change a count."""
        if len(self.norms) == 1:
            y = self.norms[0](x)
            return x + self.attention(y) + self.mlp(y)
        x = x + self.attention(self.norms[0](x))
        return x + self.mlp(self.norms[1](x))


class Decoder(nn.Module):  # type: ignore[misc]
    """Embedding, layers, head."""

    def __init__(self, row: Row) -> None:
        super().__init__()
        hidden, vocab = int(row["hidden"]), int(row["vocab"])
        self.tokens = nn.Embedding(vocab, hidden)
        if row["positions"] == "learned":
            self.places = nn.Embedding(int(row["context"]), hidden)
        self.embedding_norm = norm(row, hidden) if yes(row, "embedding_norm") else nn.Identity()
        dense = int(row["dense_first"] or 0) if row["experts"] else int(row["layers"])
        self.layers = nn.Sequential(*(Layer(row, place >= dense) for place in range(int(row["layers"]))))
        self.final = norm(row, hidden)
        self.head = nn.Linear(hidden, vocab, bias=yes(row, "head_bias"))
        if yes(row, "tied"):
            self.head.weight = self.tokens.weight

    def forward(self, tokens: Any) -> Any:
        """Logits of every token."""
        return self.head(self.final(self.layers(self.embedding_norm(self.tokens(tokens)))))
