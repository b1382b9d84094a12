"""The sizes of a model, with every default filled in.

    hidden_size D    heads of head_size K    kv heads shared by heads / kv_heads queries    ffn_size F    vocabulary V

Defaults as published: head_size = D / heads; F = 4 D (GPT-2) or 8/3 D rounded up to a multiple of 16 (Llama, whose gate
adds a third matrix: Shazeer 2020, arXiv 2002.05202).
"""

from dataclasses import dataclass

from raymega.config.schema import ModelConfig

FFN_MULTIPLE = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class Dims:
    """Sizes in elements; none is derived any more."""

    hidden: int
    layers: int
    heads: int
    kv_heads: int
    head_size: int
    ffn: int
    vocab: int


def dims_of(model: ModelConfig) -> Dims:
    """Fill in the defaults; `model.vocab_size` is set by then (the tokenizer's, where the user gave none)."""
    assert model.vocab_size is not None, "the vocabulary is known before a model is laid out"
    return Dims(
        hidden=model.hidden_size,
        layers=model.num_layers,
        heads=model.num_attention_heads,
        kv_heads=model.num_key_value_heads or model.num_attention_heads,
        head_size=model.head_size or model.hidden_size // model.num_attention_heads,
        ffn=model.ffn_size or default_ffn_size(model),
        vocab=model.vocab_size,
    )


def default_ffn_size(model: ModelConfig) -> int:
    """Inner size of the mlp where the config gives none."""
    if model.kind == "gpt2":
        return 4 * model.hidden_size
    return -(-8 * model.hidden_size // (3 * FFN_MULTIPLE)) * FFN_MULTIPLE
