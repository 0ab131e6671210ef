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


def number(row: Row, name: str) -> int:
    """A count; 0 for an empty cell."""
    return int(row[name] or 0)


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
        self.gated = yes(row, "attention_gate")
        self.query = nn.Linear(hidden, wide * (2 if self.gated else 1), bias=bias)
        self.key = nn.Linear(hidden, narrow, bias=bias)
        self.value = nn.Linear(hidden, narrow, bias=bias)
        self.output = nn.Linear(wide, hidden, bias=yes(row, "output_bias"))
        if row["qk_norm"] == "head":
            self.query_norm, self.key_norm = nn.RMSNorm(self.head_dim), nn.RMSNorm(self.head_dim)
        elif row["qk_norm"] == "full":
            self.query_norm, self.key_norm = nn.RMSNorm(wide), nn.RMSNorm(narrow)

        if yes(row, "sinks"):
            self.sinks = nn.Parameter(torch.empty(self.heads))

    def forward(self, x: Any) -> Any:
        """Norms of queries and keys are left out here: torch counts matrix products only."""
        query, key, value = (
            self.by_head(self.query(x)[..., : self.heads * self.head_dim], self.heads),
            self.by_head(self.key(x), self.kv_heads),
            self.by_head(self.value(x), self.kv_heads),
        )
        mixed = torch.softmax(query @ key.transpose(-1, -2), dim=-1) @ value
        return self.output(mixed.transpose(1, 2).reshape(*x.shape[:2], self.heads * self.head_dim))

    def by_head(self, x: Any, count: int) -> Any:
        """(batch, seq, width) to (batch, heads, seq, head_dim); shared heads are repeated."""
        apart = x.view(*x.shape[:2], count, self.head_dim).transpose(1, 2)
        return apart.repeat_interleave(self.heads // count, dim=1)


class LatentAttention(nn.Module):  # type: ignore[misc]
    """Queries, keys and values from two latents; one rotated key for all heads."""

    def __init__(self, row: Row) -> None:
        super().__init__()
        hidden, self.heads = int(row["hidden"]), int(row["heads"])
        self.wide, self.turned, self.value_dim = (int(row[n]) for n in ("head_dim", "qk_rope_head_dim", "v_head_dim"))
        rank, self.rank = number(row, "q_lora_rank"), int(row["kv_lora_rank"])
        query = nn.Linear(rank or hidden, self.heads * self.wide, bias=False)
        self.query = nn.Sequential(nn.Linear(hidden, rank, bias=False), nn.RMSNorm(rank), query) if rank else query
        self.down = nn.Linear(hidden, self.rank + self.turned, bias=False)
        self.norm = nn.RMSNorm(self.rank)
        self.up = nn.Linear(self.rank, self.heads * (self.wide - self.turned + self.value_dim), bias=False)
        self.output = nn.Linear(self.heads * self.value_dim, hidden, bias=False)

    def forward(self, x: Any) -> Any:
        """Full attention; nothing is turned."""
        apart = (*x.shape[:2], self.heads, -1)
        query = self.query(x).view(apart).transpose(1, 2)
        down = self.down(x)
        both = self.up(self.norm(down[..., : self.rank])).view(apart).transpose(1, 2)
        shared = down[:, None, :, self.rank :].expand(-1, self.heads, -1, -1)
        key = torch.cat([both[..., : self.wide - self.turned], shared], dim=-1)
        mixed = torch.softmax(query @ key.transpose(-1, -2), dim=-1) @ both[..., self.wide - self.turned :]
        return self.output(mixed.transpose(1, 2).reshape(*x.shape[:2], -1))


class Recurrence(nn.Module):  # type: ignore[misc]
    """What Mamba-2 and the gated delta rule share: one projection in, a short convolution, a state per head, one out."""

    def __init__(self, row: Row, steps: int, bias: bool) -> None:
        super().__init__()
        hidden, self.heads, self.width = (int(row[name]) for name in ("hidden", "state_heads", "state_head_dim"))
        self.groups, self.state, self.chunk = (int(row[name]) for name in ("state_groups", "state_dim", "state_chunk"))
        inner, keys = self.heads * self.width, self.groups * self.state
        mixed, span = inner + 2 * keys, int(row["conv_width"])
        self.into = nn.Linear(hidden, 2 * inner + 2 * keys + steps * self.heads, bias=False)
        self.convolution = nn.Conv1d(mixed, mixed, span, groups=mixed, bias=bias, padding=span - 1)
        self.decay, self.step = nn.Parameter(torch.empty(self.heads)), nn.Parameter(torch.empty(self.heads))
        self.out = nn.Linear(inner, hidden, bias=False)

    def forward(self, x: Any) -> Any:
        """Splits, runs the recurrence in chunks, projects back; the convolution is no matrix product."""
        both = self.into(x)
        inner, keys = self.heads * self.width, self.groups * self.state
        value, key, query = (part.reshape(*x.shape[:2], count, -1) for part, count in (
            (both[..., :inner], self.heads), (both[..., inner : inner + keys], self.groups),
            (both[..., inner + keys : inner + 2 * keys], self.groups)))  # fmt: skip
        value, key, query = (
            part.unflatten(1, (-1, self.chunk)).permute(0, 1, 3, 2, 4) for part in (value, key, query)
        )  # batch, chunks, heads or groups, tokens, width
        mixed = self.mix(value, key, query)
        return self.out(mixed.permute(0, 1, 3, 2, 4).reshape(*x.shape[:2], inner))

    def mix(self, value: Any, key: Any, query: Any) -> Any:
        """The recurrence over chunks."""
        raise NotImplementedError


class Mamba2(Recurrence):
    """Mamba-2: biased convolution, a skip weight per head, a norm over all values."""

    def __init__(self, row: Row) -> None:
        super().__init__(row, steps=1, bias=True)
        self.skip, self.norm = nn.Parameter(torch.empty(self.heads)), nn.RMSNorm(self.heads * self.width)

    def mix(self, value: Any, key: Any, query: Any) -> Any:
        """Scores of each group once; of each head its masked scores, its own state, and what the state before gives."""
        shared = self.heads // self.groups
        scores = (query @ key.transpose(-1, -2)).repeat_interleave(shared, dim=2)
        inside = scores @ value
        states = key.repeat_interleave(shared, dim=2).transpose(-1, -2) @ value
        return inside + query.repeat_interleave(shared, dim=2) @ states


class DeltaRule(Recurrence):
    """The gated delta rule: a rate beside the step, plain convolution, one norm for all heads."""

    def __init__(self, row: Row) -> None:
        super().__init__(row, steps=2, bias=False)
        self.norm = nn.RMSNorm(self.width)

    def mix(self, value: Any, key: Any, query: Any) -> Any:
        """Keys with keys (and the inverse of that, which is solved, not multiplied), corrected values and keys, the state."""
        shared = self.heads // self.groups
        key, query = (part.repeat_interleave(shared, dim=2) for part in (key, query))
        inverse = key @ key.transpose(-1, -2)
        corrected, erased = inverse @ value, inverse @ key
        states = key.transpose(-1, -2) @ corrected
        fresh = corrected - erased @ states
        return query @ states + (query @ key.transpose(-1, -2)) @ fresh


class SelectiveScan(nn.Module):  # type: ignore[misc]
    """The first Mamba with Jamba's norms: a state for every channel, scanned, which is no matrix product."""

    def __init__(self, row: Row) -> None:
        super().__init__()
        hidden, self.rank, self.state = (int(row[name]) for name in ("hidden", "step_rank", "state_dim"))
        self.inner, span = int(row["state_heads"]), int(row["conv_width"])
        self.into = nn.Linear(hidden, 2 * self.inner, bias=False)
        self.convolution = nn.Conv1d(self.inner, self.inner, span, groups=self.inner, bias=True, padding=span - 1)
        self.choice = nn.Linear(self.inner, self.rank + 2 * self.state, bias=False)
        self.step = nn.Linear(self.rank, self.inner, bias=True)
        self.decay, self.skip = nn.Parameter(torch.empty(self.inner, self.state)), nn.Parameter(torch.empty(self.inner))
        self.norms = nn.ModuleList(nn.RMSNorm(width) for width in (self.rank, self.state, self.state))
        self.out = nn.Linear(self.inner, hidden, bias=False)

    def forward(self, x: Any) -> Any:
        """Neither convolution nor scan: torch counts matrix products only."""
        value, gate = self.into(x).chunk(2, dim=-1)
        return self.out(value * self.step(self.choice(value)[..., : self.rank]) * gate)


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
        latent = number(row, "moe_latent")
        inner = latent or hidden
        self.router = nn.Linear(hidden, self.experts, bias=yes(row, "router_bias"))
        self.into = nn.Linear(hidden, latent, bias=False) if latent else nn.Identity()
        self.out = nn.Linear(latent, hidden, bias=False) if latent else nn.Identity()
        self.up = nn.Parameter(torch.empty(self.experts, inner, gates * width))
        self.down = nn.Parameter(torch.empty(self.experts, width, inner))
        if yes(row, "mlp_bias"):
            self.up_bias = nn.Parameter(torch.empty(self.experts, gates * width))
            self.down_bias = nn.Parameter(torch.empty(self.experts, inner))
        self.shared = Mlp(row, "shared_ffn") if row["shared_ffn"] else None
        self.shared_gate = nn.Linear(hidden, 1, bias=False) if yes(row, "shared_gate") else None

    def forward(self, x: Any) -> Any:
        """Every expert gets as many tokens as every other: which ones does not change a count."""
        self.router(x)
        tokens = self.into(x.reshape(-1, x.shape[-1]))
        rows = tokens.repeat(self.top_k, 1).view(self.experts, -1, tokens.shape[-1])
        inner = torch.bmm(rows, self.up)[..., : self.down.shape[1]]
        result = torch.bmm(inner, self.down).reshape(self.top_k, *x.shape[:2], -1).sum(0)
        result = self.out(result)
        if self.shared is not None:
            shared = self.shared(x)
            result = result + (shared if self.shared_gate is None else shared * self.shared_gate(x))
        return result


MIXERS: dict[str, Any] = {"m": Mamba2, "d": DeltaRule, "s": SelectiveScan}
MLPS: dict[str, Any] = {"d": Mlp, "e": Experts}


class Layer(nn.Module):  # type: ignore[misc]
    """A mixer and an MLP (or experts) one after the other with one or two norms each, side by side behind one norm, or one of
    the two alone."""

    def __init__(self, row: Row, mixer: str, mlp: str) -> None:
        super().__init__()
        norms = int(row["norms_per_layer"])
        if "-" in mixer + mlp:
            norms //= 2
        attention = LatentAttention if row["kv_lora_rank"] else Attention
        self.norms = nn.ModuleList(norm(row, int(row["hidden"])) for _ in range(norms))
        self.mixer = None if mixer == "-" else MIXERS.get(mixer, attention)(row)
        self.mlp = None if mlp == "-" else MLPS[mlp](row)

    def forward(self, x: Any) -> Any:
        """Pre-norm; where the norms stand does not change a count."""
        if self.mixer is not None and self.mlp is not None and len(self.norms) == 1:
            y = self.norms[0](x)
            return x + self.mixer(y) + self.mlp(y)
        for part in (self.mixer, self.mlp):
            if part is not None:
                x = x + part(self.norms[0](x))
        return x


class Prediction(nn.Module):  # type: ignore[misc]
    """A module that predicts one token further: both inputs' norms, their projection, a layer, a norm before the shared head."""

    def __init__(self, row: Row, mixer: str, mlp: str) -> None:
        super().__init__()
        hidden = int(row["hidden"])
        self.norms = nn.ModuleList(norm(row, hidden) for _ in range(3))
        self.together = nn.Linear(2 * hidden, hidden, bias=False)
        self.layer = Layer(row, mixer, mlp)

    def forward(self, x: Any) -> Any:
        """The embedding of the next token is as wide as the state."""
        return self.norms[2](self.layer(self.together(torch.cat([x, x], dim=-1))))


def kinds(row: Row) -> list[tuple[str, str]]:
    """Mixer and MLP of every layer: the letters of the row, repeated."""
    mixers, mlps = row["mixers"] or "f", row["mlps"] or ("e" if row["experts"] else "d")
    dense = number(row, "dense_first") if row["experts"] else 0
    return [
        (mixers[place % len(mixers)], "d" if place < dense else mlps[place % len(mlps)])
        for place in range(int(row["layers"]))
    ]


class Decoder(nn.Module):  # type: ignore[misc]
    """Embedding, layers, head."""

    def __init__(self, row: Row) -> None:
        super().__init__()
        hidden, vocab = int(row["hidden"]), int(row["vocab"])
        self.tokens = nn.Embedding(vocab, hidden)
        if row["positions"] == "learned":
            self.places = nn.Embedding(int(row["context"]), hidden)
        self.embedding_norm = norm(row, hidden) if yes(row, "embedding_norm") else nn.Identity()
        self.layers = nn.Sequential(*(Layer(row, mixer, mlp) for mixer, mlp in kinds(row)))
        ahead = "e" if row["experts"] else "d"
        self.predictions = nn.ModuleList(Prediction(row, "f", ahead) for _ in range(number(row, "mtp")))
        self.final = norm(row, hidden)
        self.head = nn.Linear(hidden, vocab, bias=yes(row, "head_bias"))
        if yes(row, "tied"):
            self.head.weight = self.tokens.weight

    def forward(self, tokens: Any) -> Any:
        """Logits of every token; prediction modules pass the same head again."""
        x = self.layers(self.embedding_norm(self.tokens(tokens)))
        logits = self.head(self.final(x))
        for module in self.predictions:
            logits = logits + self.head(module(x))
        return logits
