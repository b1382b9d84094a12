"""Global names as Hugging Face transformers knows them, and its layouts where they differ.

    layers.7.attn.wq [out, in]             model.layers.7.self_attn.q_proj.weight [out, in]       llama
    layers.7.attn.wq, wk, wv [out, in]     transformer.h.7.attn.c_attn.weight [in, q | k | v]     gpt2: one, transposed

Rotary pairs are halves of a head here as there, so no rows are permuted. Tensors are whole and unpadded.
"""

from collections.abc import Mapping

import torch
from torch import Tensor

_LLAMA_ENDS = {
    "embed.tokens": "model.embed_tokens.weight",
    "final_norm.weight": "model.norm.weight",
    "head.out": "lm_head.weight",
}
_LLAMA_BLOCK = {
    "attn_norm.weight": "input_layernorm.weight",
    "attn.wq": "self_attn.q_proj.weight",
    "attn.wk": "self_attn.k_proj.weight",
    "attn.wv": "self_attn.v_proj.weight",
    "attn.q_norm": "self_attn.q_norm.weight",
    "attn.k_norm": "self_attn.k_norm.weight",
    "attn.wo": "self_attn.o_proj.weight",
    "mlp_norm.weight": "post_attention_layernorm.weight",
    "mlp.gate": "mlp.gate_proj.weight",
    "mlp.up": "mlp.up_proj.weight",
    "mlp.down": "mlp.down_proj.weight",
}
_GPT2_ENDS = {
    "embed.tokens": "transformer.wte.weight",
    "embed.positions": "transformer.wpe.weight",
    "final_norm.weight": "transformer.ln_f.weight",
    "final_norm.bias": "transformer.ln_f.bias",
    "head.out": "lm_head.weight",
}
_GPT2_BLOCK = {
    "attn_norm.weight": "ln_1.weight",
    "attn_norm.bias": "ln_1.bias",
    "attn.wo": "attn.c_proj.weight",
    "attn.bo": "attn.c_proj.bias",
    "mlp_norm.weight": "ln_2.weight",
    "mlp_norm.bias": "ln_2.bias",
    "mlp.up": "mlp.c_fc.weight",
    "mlp.up_bias": "mlp.c_fc.bias",
    "mlp.down": "mlp.c_proj.weight",
    "mlp.down_bias": "mlp.c_proj.bias",
}
_GPT2_TRANSPOSED = frozenset({"attn.wo", "mlp.up", "mlp.down"})


def to_hf_llama(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """State dict of `LlamaForCausalLM` (of `Qwen3ForCausalLM` with q/k norm); tied: the head is the embedding."""
    state = {}
    for name, tensor in tensors.items():
        layer, part = _split(name)
        state[_LLAMA_ENDS[part] if layer is None else f"model.layers.{layer}.{_LLAMA_BLOCK[part]}"] = tensor
    state.setdefault("lm_head.weight", tensors["embed.tokens"])
    return state


def to_hf_gpt2(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """State dict of `GPT2LMHeadModel`; tied: the head is the embedding."""
    state = {}
    for name, tensor in tensors.items():
        layer, part = _split(name)
        if layer is None:
            state[_GPT2_ENDS[part]] = tensor
        elif part in _GPT2_BLOCK:
            state[f"transformer.h.{layer}.{_GPT2_BLOCK[part]}"] = tensor.t() if part in _GPT2_TRANSPOSED else tensor
        elif part == "attn.wq":
            state[f"transformer.h.{layer}.attn.c_attn.weight"] = _joined(tensors, layer=layer, letter="w").t()
        elif part == "attn.bq":
            state[f"transformer.h.{layer}.attn.c_attn.bias"] = _joined(tensors, layer=layer, letter="b")
    state.setdefault("lm_head.weight", tensors["embed.tokens"])
    return state


def _joined(tensors: Mapping[str, Tensor], *, layer: int, letter: str) -> Tensor:
    return torch.cat([tensors[f"layers.{layer}.attn.{letter}{which}"] for which in "qkv"])


def _split(name: str) -> tuple[int | None, str]:
    """`layers.7.attn.wq` -> (7, "attn.wq"); a name outside the blocks -> (None, name)."""
    if not name.startswith("layers."):
        return None, name
    _, layer, part = name.split(".", 2)
    return int(layer), part
