"""Encoders of text (BERT and its like) and encoder-decoders (T5, BART): sizes, and the head that `architectures` names."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

from shardmeter.scenario.hugging_face.config import Config, known
from shardmeter.scenario.hugging_face.decoder import Decoder, count, flag, without
from shardmeter.scenario.hugging_face.decoders import GPT, _embedding
from shardmeter.scenario.hugging_face.layers import Fields, Part, every_nth, mixers

HEADS: tuple[tuple[str, str], ...] = (
    (r"For(MaskedLM|PreTraining)$", "usual"), (r"ForSequenceClassification$", "classifier"),
    (r"ForMultipleChoice$", "choice"), (r"Model$", "bare"),
)  # fmt: skip
"""(end of an architecture's name, the head it has)."""


def architecture(c: Config) -> str:
    """The first architecture that the file names; empty where it names none."""
    named = c.data.get("architectures")
    first = named[0] if isinstance(named, list) and named else named
    return first if isinstance(first, str) else ""


def labels(c: Config, usual: float = 2.0) -> float:
    """Classes that a head tells apart: `num_labels`, or as many as there are labels."""
    listed = c.raw("id2label", None)
    if "num_labels" in c.data:
        return c.count("num_labels")
    if isinstance(listed, Mapping) and listed:
        return float(len(listed))
    c.report.assume(c.label("num_labels"), usual, "no labels are listed")
    return usual


def head(pooler: str = "pooler") -> Part:
    """The head of an encoder; `pooler` is what a bare model of that type ends in."""

    def read(c: Config, found: Fields) -> Fields:
        named = architecture(c)
        kind = next((word for pattern, word in HEADS if re.search(pattern, named)), "" if named else "bare")
        if not named:
            c.report.notes.append(
                f"no architecture is named: the bare encoder{' with its pooler' if pooler == 'pooler' else ''}, without a head "
                f'that guesses masked tokens ("architectures": ["…ForMaskedLM"] has one)'
            )
        if kind == "usual":
            made = {"head": "usual", "tied": found["tied"], "head_bias": True}
            if named == "BertForPreTraining":  # a pooler and a classifier of sentence pairs beside it
                made["extra"] = found["hidden"] * found["hidden"] + 3.0 * found["hidden"] + 2.0
            return made
        if kind in ("classifier", "choice"):
            return {"head": "classifier", "classes": labels(c) if kind == "classifier" else 1.0, "tied": True}
        if kind == "bare":
            return {"head": pooler, "tied": True}
        c.refuse(
            "architectures", f"{named}: a head on every token of an encoder is not modelled", "…ForMaskedLM, …Model"
        )
        return {}

    return read


def _electra(c: Config, found: Fields) -> Fields:
    """ELECTRA: the discriminator tells replaced tokens from others by a dense layer and one number a token."""
    if architecture(c).endswith("ForPreTraining"):
        hidden = found["hidden"]
        return {"head": "pooler", "tied": True, "extra": hidden + 1.0}
    return head("none")(c, found)


def _modern(c: Config, found: Fields) -> Fields:
    """ModernBERT: windows between layers of full attention. The first layer's norm is the embedding's."""
    step = every_nth(c, "global_attn_every_n_layers", 3)
    made = mixers(lambda _, place: "f" if place % step == 0 else "w", window="local_attention")(c, found)
    bias = c.flag("attention_bias")
    if c.flag("classifier_bias") or not c.flag("decoder_bias", True):
        c.refuse(
            "decoder_bias", "ModernBERT is modelled with a bias on its logits and none on the dense layer before them"
        )
    return made | {
        "attention_bias": bias,
        "output_bias": bias,
        "norm": "layer" if c.flag("norm_bias") else "layer_no_bias",
    }


def _modern_head(c: Config, found: Fields) -> Fields:
    named = architecture(c)
    if named.endswith("ForMaskedLM"):
        if found.get("mlp_bias"):
            c.refuse("mlp_bias", "biases of MLPs without one on the dense layer of the head are not modelled")
        return {"head": "usual", "head_bias": True}
    if named and not named.endswith("Model"):
        c.refuse("architectures", f"{named}: this head is not modelled", "ModernBertForMaskedLM, ModernBertModel")
    return {"head": "none", "tied": True}


BERT: dict[str, Any] = {
    "family": "encoder", **GPT, "ffn": count("intermediate_size"), "embedding_norm": True, "final_norm": False,
    "segments": lambda c, _: c.count("type_vocab_size", 0.0, least=0.0),
}  # fmt: skip
ABSOLUTE = without("position_embedding_type", ("absolute",), "positions by distance")
ALONE = without("add_cross_attention", (False,), "attention over another encoder")


BERTS = {
    name: Decoder(BERT, (head(), ABSOLUTE, ALONE))
    for name in ("bert", "roberta", "xlm-roberta", "camembert", "data2vec-text")
}


BUCKETS = 32.0
"""Distances that T5 tells apart."""


def _t5(c: Config) -> Fields:
    """T5 and its like. The sizes of both stacks are one; `feed_forward_proj` tells the MLP."""
    found = _stacks(c)
    wide = c.word("feed_forward_proj", "relu")
    buckets = c.count("relative_attention_num_buckets")
    if buckets != BUCKETS:
        c.refuse("relative_attention_num_buckets", f"{buckets:g}: only 32 distances are modelled")
    return found | {
        "ffn": c.count("d_ff"), "head_dim": c.count("d_kv"), "context": c.count("n_positions", 512.0, "as pre-trained"),
        "mlp": "gated" if wide.startswith("gated") else "plain", "norm": "rms", "positions": "relative",
        "tied": c.flag("tie_word_embeddings", True),
    }  # fmt: skip


def _umt5(c: Config) -> Fields:
    """UMT5: T5 whose every layer, not only the first of a stack, has a bias by distance."""
    found = _t5(c)
    return found | {"extra": BUCKETS * found["heads"] * (found["layers"] + found["encoder_layers"] - 2.0)}


def _stacks(c: Config) -> Fields:
    """Sizes that encoder and decoder share."""
    named = architecture(c)
    if re.search(r"Encoder|Decoder|ForCausalLM|For(Sequence|Token)Classification|ForQuestionAnswering", named):
        c.refuse(
            "architectures", f"{named}: one stack alone, or another head, is not modelled", "…ForConditionalGeneration"
        )
    hidden, heads = c.count("hidden_size"), c.count("num_attention_heads")
    encoder = c.count("num_hidden_layers")
    decoder = c.count("num_decoder_layers", encoder) if c.kind.endswith("t5") else c.count("decoder_layers")
    return {
        "family": "encoder_decoder", "encoder_layers": int(encoder) if known(encoder) else 1,
        "layers": int(decoder) if known(decoder) else 1, "hidden": hidden, "heads": heads, "kv_heads": heads,
        "vocab": c.count("vocab_size"), "head_dim": hidden / heads,
    }  # fmt: skip


def _bart(
    offset: float = 2.0, final: bool = False, embedded: bool = True, positions: str = "learned"
) -> Callable[[Config], Fields]:
    """BART and its like: positions that are learned, with rows in front, or fixed; norms after each part, or before each and one
    at the end."""

    def read(c: Config) -> Fields:
        found = _stacks(c)
        widths = c.count("encoder_ffn_dim"), c.count("decoder_ffn_dim")
        others = c.count("encoder_attention_heads"), c.count("decoder_attention_heads")
        for what, (one, other) in {"ffn_dim": widths, "attention_heads": others}.items():
            if one != other:
                says = f"the decoder has {other:g}, the encoder {one:g}: stacks of unlike layers are not modelled"
                c.refuse(f"decoder_{what}", says)
        return found | {
            "ffn": widths[0], "context": c.count("max_position_embeddings") + offset, "mlp": "plain", "norm": "layer",
            "positions": positions, "attention_bias": True, "output_bias": True, "mlp_bias": True,
            "embedding_norm": embedded, "final_norm": final, "tied": c.flag("tie_word_embeddings", True),
        }  # fmt: skip

    return read


ROWS: Mapping[str, Callable[[Config], Fields]] = {
    **BERTS,
    "distilbert": Decoder({**BERT, "segments": 0.0, "hidden": count("dim"), "ffn": count("hidden_dim")}, (
        head("none"), without("sinusoidal_pos_embds", (False,), "positions that are not learned"))),
    "electra": Decoder(BERT, (_embedding, _electra, ABSOLUTE, ALONE)),
    "modernbert": Decoder({"family": "encoder", "mlp_bias": flag("mlp_bias"), "final_norm": True},
                          (_modern, _modern_head)),
    "t5": _t5, "mt5": _t5, "umt5": _umt5,
    "bart": _bart(), "mbart": _bart(final=True), "blenderbot": _bart(0.0, final=True, embedded=False),
    "blenderbot-small": _bart(0.0), "pegasus": _bart(0.0, final=True, embedded=False, positions="none"),
    "m2m_100": _bart(0.0, final=True, embedded=False, positions="none"),
    "marian": _bart(0.0, embedded=False, positions="none"),
}  # fmt: skip
