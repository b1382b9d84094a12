"""Rules about the shape of a model: heads cut its width, kv heads share heads, rotary turns pairs, kinds keep apart."""

from raymega.config import choices
from raymega.config.choices import near
from raymega.config.fault import Fault, counted, one_of
from raymega.config.schema import Config, ModelConfig


def heads_cut_the_hidden_size(config: Config) -> Fault | None:
    """Without a head_size of its own, hidden_size is cut into whole heads."""
    model = config.model
    if model.custom or model.head_size or model.hidden_size % model.num_attention_heads == 0:
        return None
    fits = near(choices.head_counts(config), model.num_attention_heads)
    problem = f"{counted(model.num_attention_heads, noun='head')} do not divide hidden_size {model.hidden_size}"
    way_out = f"Use {one_of(fits)} heads, or give model.head_size" if fits else "Use an even hidden_size"
    return Fault(key="model.num_attention_heads", problem=problem, way_out=way_out)


def kv_heads_divide_the_heads(config: Config) -> Fault | None:
    """Each kv head serves as many query heads."""
    heads, kv = config.model.num_attention_heads, choices.kv_heads(config)
    if config.model.custom or heads % kv == 0:
        return None
    problem = f"{kv} kv heads do not divide {counted(heads, noun='head')}; each serves as many queries as the others"
    fits = one_of(near(choices.divisors(heads), kv))
    return Fault(key="model.num_key_value_heads", problem=problem, way_out=f"Use {fits}")


def rotary_turns_pairs(config: Config) -> Fault | None:
    """A llama head has an even number of elements."""
    model, size = config.model, choices.head_size(config)
    whole = model.head_size or model.hidden_size % model.num_attention_heads == 0
    if model.custom or model.kind != "llama" or not whole or size % 2 == 0:
        return None
    problem = f"a head has {size} elements; rotary positions turn pairs, so that it must be even"
    if model.head_size:
        return Fault(key="model.head_size", problem=problem, way_out=f"Use {one_of((size - 1, size + 1)[size == 1 :])}")
    fits = near(choices.head_counts(config), model.num_attention_heads)
    way_out = f"Use {one_of(fits)} heads, or give model.head_size" if fits else "Use an even hidden_size"
    return Fault(key="model.num_attention_heads", problem=problem, way_out=way_out)


def kinds_keep_apart(config: Config) -> Fault | None:
    """What only llama has is not asked of gpt2."""
    model, plain = config.model, ModelConfig()
    foreign = {
        "qk_norm": model.qk_norm,
        "rope_theta": model.rope_theta != plain.rope_theta,
        "num_key_value_heads": choices.kv_heads(config) != model.num_attention_heads,
    }
    named = [name for name, used in foreign.items() if used]
    if model.kind != "gpt2" or not named:
        return None
    problem = f"{', '.join(named)} given, but kind gpt2 has learned positions and plain attention"
    return Fault(key=f"model.{named[0]}", problem=problem, way_out="Leave that out, or use kind llama")
