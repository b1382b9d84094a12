"""How many ids a model has, for those who ask about its shapes, perhaps before there is any text.

model.vocab_size                              as it says
tokenizer byte, built in, a file              as many as that has
the path of a file that is not there yet      assumed, and said: 50,257 for gpt2, 32,000 for llama
"""

import os
from dataclasses import dataclass

from raymega.config.resolve import resolve
from raymega.config.schema import Config

USUAL = {"gpt2": 50257, "llama": 32000}  # of the tokenizers of GPT-2 and of Llama 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Known:
    """A config with the sizes that a model needs; `assumed`: a sentence, where its vocabulary was not to be found."""

    config: Config
    assumed: str | None


def with_vocabulary(config: Config) -> Known:
    """Fill in the sizes of a model; the tokenizer is read only where it gives one of them.

    Raises: ConfigError, DataError if there is a tokenizer, and it cannot be read.
    """
    vocab, assumed = config.model.vocab_size, None
    if vocab is None and _is_to_come(config.data.tokenizer):
        vocab = USUAL[config.model.kind]
        assumed = (
            f"a vocabulary of {vocab:,}, as models of kind {config.model.kind} usually have: there is no "
            f"{config.data.tokenizer} yet. Set model.vocab_size for another."
        )
    elif vocab is None:
        from raymega.data.tokenizer import load_tokenizer

        vocab = load_tokenizer(config.data.tokenizer).vocab_size
    name, seed = config.run.name or "planned", config.run.seed or 0
    return Known(config=resolve(config, vocab_size=vocab, name=name, seed=seed), assumed=assumed)


def _is_to_come(tokenizer: str) -> bool:
    """Whether it is a path, not a name, and nothing is there."""
    return (os.sep in tokenizer or tokenizer.endswith(".json")) and not os.path.exists(tokenizer)
