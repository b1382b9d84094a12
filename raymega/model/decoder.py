"""The built-in decoder: Llama kind or GPT-2 kind, as the config says.

x = x + dropout(attention(norm(x)))
x = x + dropout(mlp(norm(x)))

llama   RMSNorm, rotary, SwiGLU, no biases                   (Touvron et al. 2023, arXiv 2302.13971)
gpt2    LayerNorm, learned positions, GELU, biases           (Radford et al. 2019)
"""

from dataclasses import dataclass

from torch import Tensor

from raymega.config.dims import dims_of
from raymega.config.schema import Config, ModelConfig
from raymega.layout.param_layout import param_specs
from raymega.layout.param_spec import ParamSpec
from raymega.model.attention import Attention, Heads, RotaryHeads, plain_heads
from raymega.model.dropout import EMBEDDING_LAYER, Dropout, Site
from raymega.model.flat_params import FlatParams
from raymega.model.mlp import GeluMlp, SwigluMlp
from raymega.model.norms import Norm, layer_norm, rms_norm
from raymega.model.pass_context import PassContext
from raymega.model.protocol import Ground
from raymega.model.rotary import RotaryTable
from raymega.model.tp_embedding import vocab_embedding
from raymega.model.tp_loss import gathered_logits, vocab_loss_sum


@dataclass(frozen=True, slots=True, kw_only=True)
class Decoder:
    """The `Architecture` of `config.model`."""

    config: Config

    def param_specs(self) -> tuple[ParamSpec, ...]:
        return param_specs(self.config.model, seq_len=self.config.data.seq_len)

    def embedding(self, ground: Ground) -> "Embedding":
        return Embedding(model=self.config.model, ground=ground)

    def block(self, ground: Ground, *, layer: int) -> "Block":
        again = self.config.parallelism.recompute == "selective"
        return Block(model=self.config.model, ground=ground, layer=layer, attention_again=again)

    def head(self, ground: Ground) -> "LanguageHead":
        return LanguageHead(model=self.config.model, ground=ground)


class Embedding:
    """Tokens, and positions where they are learned."""

    def __init__(self, *, model: ModelConfig, ground: Ground) -> None:
        self.tokens, self.box = ground.flat.weight("embed.tokens"), ground.flat.param("embed.tokens").box
        self.positions = ground.flat.weight("embed.positions") if model.kind == "gpt2" else None
        self.dropout = _dropout(model, ground=ground, layer=EMBEDDING_LAYER, site="embedding")
        self.team = ground.team

    def __call__(self, ids: Tensor, ctx: PassContext) -> Tensor:
        """[B, T] int64 -> [B, T/tp or T, D]."""
        x = vocab_embedding(ids, weight=self.tokens, box=self.box, team=self.team)
        if self.positions is not None:
            here = self.team.positions(x.shape[1])
            x = x + self.positions[here.start : here.stop]
        return self.dropout(x, ctx)


class Block:
    """One layer. `attention_again`: what lies between its two products is computed again in the backward."""

    def __init__(self, *, model: ModelConfig, ground: Ground, layer: int, attention_again: bool) -> None:
        name, flat, team = f"layers.{layer}", ground.flat, ground.team
        gpt2 = model.kind == "gpt2"
        self.attn_norm = _norm(model, flat=flat, name=f"{name}.attn_norm")
        self.attention = Attention(
            flat=flat, name=f"{name}.attn", head_size=dims_of(model).head_size, biases=gpt2, team=team,
            again=attention_again,
            split=plain_heads if gpt2 else _rotary_heads(model, ground=ground, name=f"{name}.attn"),
        )  # fmt: skip
        self.mlp_norm = _norm(model, flat=flat, name=f"{name}.mlp_norm")
        self.mlp = (GeluMlp if gpt2 else SwigluMlp)(flat=flat, name=f"{name}.mlp", team=team)
        self.attn_dropout = _dropout(model, ground=ground, layer=layer, site="attention")
        self.mlp_dropout = _dropout(model, ground=ground, layer=layer, site="mlp")

    def __call__(self, x: Tensor, ctx: PassContext) -> Tensor:
        x = x + self.attn_dropout(self.attention(self.attn_norm(x)), ctx)
        return x + self.mlp_dropout(self.mlp(self.mlp_norm(x)), ctx)


class LanguageHead:
    """The last norm, and the output matrix: its own, or the tokens' own where they are tied."""

    def __init__(self, *, model: ModelConfig, ground: Ground) -> None:
        name = "embed.tokens" if model.tie_embeddings else "head.out"
        self.out, self.box = ground.flat.weight(name), ground.flat.param(name).box
        self.norm = _norm(model, flat=ground.flat, name="final_norm")
        self.vocab_size, self.team = dims_of(model).vocab, ground.team

    def __call__(self, x: Tensor, ctx: PassContext) -> Tensor:
        return self.norm(x)

    def loss_sum(self, hidden: Tensor, *, targets: Tensor, mask: Tensor | None) -> Tensor:
        return vocab_loss_sum(
            hidden, weight=self.out, targets=targets, mask=mask, box=self.box, team=self.team
        )  # fmt: skip

    def logits(self, hidden: Tensor) -> Tensor:
        return gathered_logits(
            hidden, weight=self.out, box=self.box, vocab_size=self.vocab_size, team=self.team
        )  # fmt: skip


def _norm(model: ModelConfig, *, flat: FlatParams, name: str) -> Norm:
    weight, eps = flat.exact(f"{name}.weight"), model.norm_eps
    if model.kind == "llama":
        return lambda x: rms_norm(x, weight=weight, eps=eps)
    bias = flat.exact(f"{name}.bias")
    return lambda x: layer_norm(x, weight=weight, bias=bias, eps=eps)


def _rotary_heads(model: ModelConfig, *, ground: Ground, name: str) -> Heads:
    flat = ground.flat
    return RotaryHeads(
        table=RotaryTable(head_size=dims_of(model).head_size, theta=model.rope_theta, device=ground.device),
        norms=(flat.exact(f"{name}.q_norm"), flat.exact(f"{name}.k_norm")) if model.qk_norm else None,
        eps=model.norm_eps,
    )


def _dropout(model: ModelConfig, *, ground: Ground, layer: int, site: Site) -> Dropout:
    return Dropout(rate=model.dropout, seed=ground.seed, layer=layer, site=site, team=ground.team)
