"""Networks of rows of `models.csv` that are no decoders, in plain torch layers, for `oracle.py`. Needs torch; knows nothing of
the package. Each takes its row and, for a model of two parts, the row of its image tower; `example` gives it an input.

Attention is full and written as two matrix products, as in `oracle_network.py`, whose layers these are made of.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from oracle_network import Attention, Decoder, Layer, Mlp, Row, norm, yes


def blank_is_yes(row: Row, name: str) -> bool:
    """Whether a yes/no cell says yes or nothing."""
    return bool(row[name] != "no")


def number(row: Row, name: str, blank: int = 0) -> int:
    """A whole number of a cell."""
    return int(row[name] or blank)


class Encoder(nn.Module):  # type: ignore[misc]
    """Embeddings of tokens, positions and segments; layers; the head that guesses masked tokens."""

    def __init__(self, row: Row) -> None:
        super().__init__()
        hidden, vocab = number(row, "hidden"), number(row, "vocab")
        self.tokens = nn.Embedding(vocab, hidden)
        self.places = nn.Embedding(number(row, "context"), hidden)
        self.segments = nn.Embedding(number(row, "segments"), hidden)
        self.embedding_norm = norm(row, hidden) if yes(row, "embedding_norm") else nn.Identity()
        self.layers = nn.Sequential(*(Layer(row, "f", "d") for _ in range(number(row, "layers"))))
        self.final = norm(row, hidden) if blank_is_yes(row, "final_norm") else nn.Identity()
        self.transform = nn.Sequential(nn.Linear(hidden, hidden), nn.GELU(), norm(row, hidden))
        self.head = nn.Linear(hidden, vocab, bias=yes(row, "head_bias"))
        if yes(row, "tied"):
            self.head.weight = self.tokens.weight

    def forward(self, tokens: Any) -> Any:
        """Logits of every token."""
        return self.head(self.transform(self.final(self.layers(self.embedding_norm(self.tokens(tokens))))))


class Pooling(nn.Module):  # type: ignore[misc]
    """Attention of one learned query over all tokens, and an MLP."""

    def __init__(self, row: Row) -> None:
        super().__init__()
        hidden = number(row, "hidden")
        self.query = nn.Parameter(torch.empty(1, 1, hidden))
        self.heads = number(row, "heads")
        self.wq, self.wk, self.wv, self.wo = (nn.Linear(hidden, hidden) for _ in range(4))
        self.norm, self.mlp = norm(row, hidden), Mlp(row)

    def forward(self, x: Any) -> Any:
        """One vector an image."""
        query = self.wq(self.query.expand(x.shape[0], -1, -1))
        parts = [y.view(x.shape[0], -1, self.heads, x.shape[-1] // self.heads).transpose(1, 2)
                 for y in (query, self.wk(x), self.wv(x))]  # fmt: skip
        mixed = torch.softmax(parts[0] @ parts[1].transpose(-1, -2), -1) @ parts[2]
        pooled = self.wo(mixed.transpose(1, 2).reshape(x.shape[0], 1, x.shape[-1]))
        return (pooled + self.mlp(self.norm(pooled)))[:, 0]


class Scaled(nn.Module):  # type: ignore[misc]
    """A layer whose halves are weighed by vectors."""

    def __init__(self, row: Row) -> None:
        super().__init__()
        self.layer = Layer(row, "f", "d")
        self.scales = nn.Parameter(torch.empty(2, number(row, "hidden")))

    def forward(self, x: Any) -> Any:
        """Where the vectors stand does not change a count."""
        return self.layer(x) * self.scales[0]


class Vision(nn.Module):  # type: ignore[misc]
    """Patches by a convolution, class tokens and positions, layers, head."""

    def __init__(self, row: Row) -> None:
        super().__init__()
        hidden, patch, channels = number(row, "hidden"), number(row, "patch"), number(row, "channels", 3)
        count, extra = (number(row, "image_size") // patch) ** 2, number(row, "class_tokens")
        self.kind = row["head"]
        self.patches = nn.Conv2d(channels, hidden, patch, patch, bias=blank_is_yes(row, "patch_bias"))
        self.extra = nn.Parameter(torch.empty(1, extra, hidden)) if extra else None
        rows = count + (extra if blank_is_yes(row, "class_position") else 0)
        self.places = nn.Parameter(torch.empty(1, rows, hidden)) if row["positions"] == "learned" else None
        self.embedding_norm = norm(row, hidden) if yes(row, "embedding_norm") else nn.Identity()
        kind = Scaled if yes(row, "layer_scale") else lambda one: Layer(one, "f", "d")
        self.layers = nn.Sequential(*(kind(row) for _ in range(number(row, "layers"))))
        self.final = norm(row, hidden) if blank_is_yes(row, "final_norm") else nn.Identity()
        heads: dict[str, Any] = {
            "classifier": lambda: nn.Linear(hidden, number(row, "vocab"), bias=yes(row, "head_bias")),
            "projection": lambda: nn.Linear(hidden, number(row, "projection"), bias=False),
            "pooling": lambda: Pooling(row),
        }
        self.head: Any = heads[self.kind]() if self.kind in heads else None

    def forward(self, image: Any) -> Any:
        """One vector an image, or all tokens of a tower without a head."""
        x = self.patches(image).flatten(2).transpose(1, 2)
        if self.extra is not None:
            x = torch.cat([self.extra.expand(x.shape[0], -1, -1), x], 1)
        x = self.final(self.layers(self.embedding_norm(x)))
        if self.head is None:
            return x
        return self.head(x if self.kind == "pooling" else x[:, 0])


class DualEncoder(nn.Module):  # type: ignore[misc]
    """Image tower, text tower, projections, scale (and bias) of the logits."""

    def __init__(self, row: Row, tower: Row) -> None:
        super().__init__()
        hidden = number(row, "hidden")
        self.images = Vision(tower)
        self.tokens = nn.Embedding(number(row, "vocab"), hidden)
        self.places = nn.Embedding(number(row, "context"), hidden)
        self.layers = nn.Sequential(*(Layer(row, "f", "d") for _ in range(number(row, "layers"))))
        self.final = norm(row, hidden)
        self.projection = nn.Linear(hidden, number(row, "projection"), bias=yes(row, "head_bias"))
        self.logits = nn.Parameter(torch.empty({"softmax": 1, "sigmoid": 2}[row["contrast"]]))

    def forward(self, image: Any, tokens: Any) -> Any:
        """The features of both."""
        return self.images(image), self.projection(self.final(self.layers(self.tokens(tokens)))[:, 0])


class Multimodal(nn.Module):  # type: ignore[misc]
    """Image tower, projector, decoder."""

    def __init__(self, row: Row, tower: Row) -> None:
        super().__init__()
        self.merge = number(row, "merge", 1)
        wide, hidden = number(tower, "hidden") * self.merge**2, number(row, "hidden")
        self.images, self.text = Vision(tower), Decoder(row)
        self.extra = number(tower, "class_tokens")
        projectors: dict[str, Any] = {
            "linear": lambda: nn.Linear(wide, hidden),
            "mlp": lambda: nn.Sequential(nn.Linear(wide, hidden), nn.GELU(), nn.Linear(hidden, hidden)),
            "merger": lambda: nn.Sequential(nn.Linear(wide, wide), nn.GELU(), nn.Linear(wide, hidden)),
        }
        self.projector = projectors[row["projector"]]()
        self.before = norm(tower, number(tower, "hidden")) if row["projector"] == "merger" else nn.Identity()

    def forward(self, image: Any, tokens: Any) -> Any:
        """Logits of every token; where the image stands in the text does not change a count."""
        patches = self.before(self.images(image)[:, self.extra :])
        self.projector(patches.reshape(patches.shape[0], -1, patches.shape[-1] * self.merge**2))
        return self.text(tokens)


class Crossed(nn.Module):  # type: ignore[misc]
    """A decoder's layer: attention over itself, attention over the encoder's output, MLP."""

    def __init__(self, row: Row) -> None:
        super().__init__()
        hidden = number(row, "hidden")
        self.norms = nn.ModuleList(norm(row, hidden) for _ in range(3))
        self.own, self.other, self.mlp = Attention(row), Attention(row), Mlp(row)

    def forward(self, x: Any, memory: Any) -> Any:
        """Where the norms stand does not change a count."""
        x = x + self.own(self.norms[0](x))
        at = self.other
        query = at.by_head(at.query(self.norms[1](x)), at.heads)
        key, value = at.by_head(at.key(memory), at.kv_heads), at.by_head(at.value(memory), at.kv_heads)
        mixed = torch.softmax(query @ key.transpose(-1, -2), -1) @ value
        x = x + at.output(mixed.transpose(1, 2).reshape(*x.shape[:2], at.heads * at.head_dim))
        return x + self.mlp(self.norms[2](x))


class EncoderDecoder(nn.Module):  # type: ignore[misc]
    """Shared embedding, encoder, decoder, head; biases by distance or learned positions of both stacks."""

    def __init__(self, row: Row) -> None:
        super().__init__()
        hidden, vocab = number(row, "hidden"), number(row, "vocab")
        self.tokens = nn.Embedding(vocab, hidden)
        size = (32, number(row, "heads")) if row["positions"] == "relative" else (number(row, "context"), hidden)
        self.places = nn.ModuleList(nn.Embedding(*size) for _ in range(2))
        self.embedding_norms = nn.ModuleList(
            norm(row, hidden) if yes(row, "embedding_norm") else nn.Identity() for _ in range(2)
        )
        self.finals = nn.ModuleList(
            norm(row, hidden) if blank_is_yes(row, "final_norm") else nn.Identity() for _ in range(2)
        )
        self.encoder = nn.Sequential(*(Layer(row, "f", "d") for _ in range(number(row, "encoder_layers"))))
        self.decoder = nn.ModuleList(Crossed(row) for _ in range(number(row, "layers")))
        self.head = nn.Linear(hidden, vocab, bias=yes(row, "head_bias"))
        if yes(row, "tied"):
            self.head.weight = self.tokens.weight

    def forward(self, source: Any, target: Any) -> Any:
        """Logits of every target token."""
        memory = self.finals[0](self.encoder(self.embedding_norms[0](self.tokens(source))))
        x = self.embedding_norms[1](self.tokens(target))
        for layer in self.decoder:
            x = layer(x, memory)
        return self.head(self.finals[1](x))


class Modulated(nn.Module):  # type: ignore[misc]
    """A layer with norms without weights and six vectors made of the condition."""

    def __init__(self, row: Row) -> None:
        super().__init__()
        hidden = number(row, "hidden")
        self.attention, self.mlp = Attention(row), Mlp(row)
        self.modulation = nn.Linear(hidden, 6 * hidden)

    def forward(self, x: Any, condition: Any) -> Any:
        """Shift, scale and gate of both halves."""
        shift, scale, gate, shift2, scale2, gate2 = self.modulation(condition)[:, None].chunk(6, -1)
        x = x + gate * self.attention(x * (1 + scale) + shift)
        return x + gate2 * self.mlp(x * (1 + scale2) + shift2)


class Diffusion(nn.Module):  # type: ignore[misc]
    """Patches, time step and class; modulated layers; noise and its variance."""

    def __init__(self, row: Row) -> None:
        super().__init__()
        hidden, patch, channels = number(row, "hidden"), number(row, "patch"), number(row, "channels")
        self.patches = nn.Conv2d(channels, hidden, patch, patch)
        self.time = nn.Sequential(nn.Linear(256, hidden), nn.SiLU(), nn.Linear(hidden, hidden))
        self.classes = nn.Embedding(number(row, "vocab") + 1, hidden)
        self.layers = nn.ModuleList(Modulated(row) for _ in range(number(row, "layers")))
        self.modulation = nn.Linear(hidden, 2 * hidden)
        self.head = nn.Linear(hidden, patch * patch * 2 * channels)

    def forward(self, latent: Any, step: Any, label: Any) -> Any:
        """Two numbers for each latent."""
        x, condition = self.patches(latent).flatten(2).transpose(1, 2), self.time(step) + self.classes(label)
        for layer in self.layers:
            x = layer(x, condition)
        shift, scale = self.modulation(condition)[:, None].chunk(2, -1)
        return self.head(x * (1 + scale) + shift)


class Lstm(nn.Module):  # type: ignore[misc]
    """An LSTM by its equations, step by step: four gates of the input and of the hidden state before, one bias each or none."""

    def __init__(self, row: Row) -> None:
        super().__init__()
        hidden = number(row, "hidden")
        self.incoming = nn.Linear(hidden, 4 * hidden, bias=yes(row, "attention_bias"))
        self.recurrent = nn.Linear(hidden, 4 * hidden, bias=False)

    def forward(self, x: Any) -> Any:
        """The hidden state of every step."""
        hidden = cell = torch.zeros_like(x[:, 0])
        found = []
        for step in range(x.shape[1]):
            opened, kept, candidate, shown = (self.incoming(x[:, step]) + self.recurrent(hidden)).chunk(4, -1)
            cell = torch.sigmoid(kept) * cell + torch.sigmoid(opened) * torch.tanh(candidate)
            hidden = torch.sigmoid(shown) * torch.tanh(cell)
            found.append(hidden)
        return torch.stack(found, 1)


class Recurrent(nn.Module):  # type: ignore[misc]
    """Embedding; LSTMs, each after a norm, some with an MLP after another; head."""

    def __init__(self, row: Row) -> None:
        super().__init__()
        hidden, vocab, letters = number(row, "hidden"), number(row, "vocab"), row["mlps"] or "d"
        self.tokens = nn.Embedding(vocab, hidden)
        parts: list[Any] = []
        for place in range(number(row, "layers")):
            parts += [Lstm(row), *[Mlp(row)] * (letters[place % len(letters)] == "d")]
        self.parts = nn.ModuleList(parts)
        self.norms = nn.ModuleList(norm(row, hidden) for _ in parts)
        self.final = norm(row, hidden) if blank_is_yes(row, "final_norm") else nn.Identity()
        self.head = nn.Linear(hidden, vocab, bias=yes(row, "head_bias"))
        if yes(row, "tied"):
            self.head.weight = self.tokens.weight

    def forward(self, tokens: Any) -> Any:
        """Logits of every token."""
        x = self.tokens(tokens)
        for before, part in zip(self.norms, self.parts, strict=True):
            x = x + part(before(x))
        return self.head(self.final(x))


def network(row: Row, rows: dict[str, Row]) -> Any:
    """The network of a row of any family."""
    tower = (rows[row["vision"]],) if row["vision"] else ()
    kinds: dict[str, Any] = {
        "decoder": Decoder, "encoder": Encoder, "vision": Vision, "dual_encoder": DualEncoder, "multimodal": Multimodal,
        "encoder_decoder": EncoderDecoder, "diffusion": Diffusion, "recurrent": Recurrent,
    }  # fmt: skip
    return kinds[row["family"]](row, *tower)


def example(row: Row, rows: dict[str, Row], seq: int) -> tuple[Any, ...]:
    """One sample of a row's family with `seq` tokens of text, on whatever device is the default."""
    tokens = torch.zeros(1, seq, dtype=torch.long)
    seen = rows[row["vision"]] if row["vision"] else row
    size, channels = number(seen, "image_size"), number(seen, "channels", 3)
    image = torch.empty(1, channels, size, size) if size else None
    inputs: dict[str, Any] = {
        "vision": lambda: (image,),
        "diffusion": lambda: (image, torch.empty(1, 256), torch.zeros(1, dtype=torch.long)),
        "dual_encoder": lambda: (image, tokens),
        "multimodal": lambda: (image, tokens),
        "encoder_decoder": lambda: (tokens, torch.zeros(1, number(row, "target_length") or seq, dtype=torch.long)),
    }
    return inputs.get(row["family"], lambda: (tokens,))()  # type: ignore[no-any-return]
