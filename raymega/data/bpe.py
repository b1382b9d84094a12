"""Train a byte-level BPE: the same texts give the same tokenizer.json, byte for byte.

    texts -> GPT-2's pre-tokens -> counts -> merges          id 0 ends documents, 1 .. 256 are the bytes, then merges

Source: Sennrich et al. 2016 (arXiv 1508.07909); byte level as in GPT-2 (Radford et al. 2019).
"""

from collections.abc import Iterable

from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

from raymega.errors import ConfigError

EOD_TOKEN = "<|endofdocument|>"
SMALLEST_VOCAB, LARGEST_VOCAB = 257, 2**20


def train_bpe(texts: Iterable[str], *, vocab_size: int) -> str:
    """The tokenizer.json of a BPE with at most `vocab_size` ids, special token and bytes included.

    Raises:
        ConfigError: `vocab_size` does not hold the bytes and the end of a document, or is beyond reason.
    """
    if vocab_size < SMALLEST_VOCAB:
        raise ConfigError(
            f"a BPE of {vocab_size} ids cannot hold 256 bytes and the end of a document. "
            f"Ask for {SMALLEST_VOCAB} or more.",
            vocab_size=vocab_size,
        )
    if vocab_size > LARGEST_VOCAB:  # room for all ids is taken at once, and a process without memory is aborted
        raise ConfigError(
            f"a BPE of {vocab_size} ids is beyond any that is trained. Ask for {LARGEST_VOCAB} or less.",
            vocab_size=vocab_size,
        )
    core = Tokenizer(models.BPE())
    core.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
    core.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size,
        special_tokens=[EOD_TOKEN],
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    core.train_from_iterator(texts, trainer)
    return str(core.to_str(pretty=True)) + "\n"
