"""From `data:` in the config to rows that can be read: directories opened, checked and blended.

    train: shakespeare | DIR | [{path, weight}]  ->  splits + BlendOrder        valid: DIR | their own validation splits

Checked here, before any worker starts: what can be known without reading the shards, and every byte of data sets that
are small. Of larger ones, ids are checked as rows are fetched.
"""

from dataclasses import dataclass

import xxhash

from raymega.config.schema import Blend, DataConfig
from raymega.data.builtin import BUILTIN_CORPORA, builtin_directory
from raymega.data.fetch import TrainFetch, ValidFetch
from raymega.data.manifest import Manifest, SplitInfo, check_fits, load_manifest
from raymega.data.token_file import TokenSplit, verify_files
from raymega.data.tokenizer import Tokenizer, load_tokenizer
from raymega.errors import DataError
from raymega.layout.data_order import BlendOrder, ValidOrder

FULL_CHECK_BYTES = 256 << 20
"""Data sets up to this size are read in full when they are opened: a second at most."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenData:
    """The data of a run.

    Args:
        sources: what is trained on, in words that are the same wherever it lies: rows, digest, share of the blend.
        unigram_entropy: nats, of the training targets, sources weighted as they are blended.
    """

    tokenizer: Tokenizer
    seq_len: int
    order: BlendOrder
    splits: tuple[TokenSplit, ...]
    valid: TokenSplit | None
    sources: tuple[str, ...]
    unigram_entropy: float

    def train_fetch(self, *, batch_size: int) -> TrainFetch:
        """What fetches training steps of `batch_size` samples."""
        return TrainFetch(order=self.order, splits=self.splits, batch_size=batch_size)

    def valid_fetch(self, *, batch_size: int, num_samples: int | None = None) -> ValidFetch:
        """What fetches an evaluation over the first `num_samples` rows, or all."""
        if self.valid is None:
            raise DataError(
                "there is no validation data: data.valid is not set and data.train has no validation split. "
                "Set data.valid, prepare with --valid-fraction, or set training.eval_every=0."
            )
        num_rows = min(num_samples or self.valid.num_rows, self.valid.num_rows)
        return ValidFetch(order=ValidOrder(num_rows=num_rows, batch_size=batch_size), split=self.valid)


def open_data(config: DataConfig, *, seed: int, vocab_size: int | None = None) -> OpenData:
    """Open the data that `config` names, and prepare built-in corpora where that was never done.

    Args:
        config: section `data`.
        seed: the run's seed; shuffles the order.
        vocab_size: the model's; default: the tokenizer's.
    Raises:
        DataError: what is there cannot be trained on by this config.
        ConfigError: no such tokenizer.
    """
    tokenizer = load_tokenizer(config.tokenizer)
    blend = (Blend(path=config.train, weight=1.0),) if isinstance(config.train, str) else config.train
    opened = [
        _open(source.path, config=config, tokenizer=tokenizer, vocab_size=vocab_size or tokenizer.vocab_size)
        for source in blend
    ]
    splits = tuple(TokenSplit.of(manifest, directory=directory, split="train") for directory, manifest in opened)
    order = BlendOrder.build(
        [split.num_rows for split in splits],
        weights=[source.weight for source in blend],
        seed=seed,
        shuffle=config.shuffle,
    )
    entropies = [manifest.splits["train"].unigram_entropy for _, manifest in opened]
    return OpenData(
        tokenizer=tokenizer,
        seq_len=config.seq_len,
        order=order,
        splits=splits,
        valid=_valid(opened, config=config, tokenizer=tokenizer, vocab_size=vocab_size or tokenizer.vocab_size),
        sources=tuple(
            _words(manifest.splits["train"], share=int(share), period=len(order.pattern))
            for (_, manifest), share in zip(opened, order.shares, strict=True)
        ),
        unigram_entropy=float(order.shares @ entropies / order.shares.sum()),
    )


Opened = tuple[str, Manifest]


def _words(split: SplitInfo, *, share: int, period: int) -> str:
    digest = xxhash.xxh3_64_hexdigest(" ".join(shard.xxh3 for shard in split.shards).encode())
    part = "" if share == period else f" at {share} of {period}"
    return f"{split.rows} rows of digest {digest}{part}"


def _open(path: str, *, config: DataConfig, tokenizer: Tokenizer, vocab_size: int) -> Opened:
    if path in BUILTIN_CORPORA:
        path = str(builtin_directory(path, tokenizer=tokenizer, seq_len=config.seq_len))
    manifest = load_manifest(path)
    check_fits(
        manifest,
        directory=path,
        seq_len=config.seq_len,
        vocab_size=vocab_size,
        fingerprint=tokenizer.fingerprint,
    )
    if sum(shard.size_bytes for split in manifest.splits.values() for shard in split.shards) <= FULL_CHECK_BYTES:
        verify_files(manifest, directory=path)
    return path, manifest


def _valid(train: list[Opened], *, config: DataConfig, tokenizer: Tokenizer, vocab_size: int) -> TokenSplit | None:
    """The validation rows of data.valid, all of its splits; else those of the training sources, one after another."""
    if config.valid is None:
        splits = [(directory, manifest, "valid") for directory, manifest in train if "valid" in manifest.splits]
    else:
        directory, manifest = _open(config.valid, config=config, tokenizer=tokenizer, vocab_size=vocab_size)
        splits = [(directory, manifest, name) for name in sorted(manifest.splits)]
        if config.valid in BUILTIN_CORPORA:
            splits = [split for split in splits if split[2] == "valid"]
    parts = [TokenSplit.of(manifest, directory=directory, split=name) for directory, manifest, name in splits]
    if not parts:
        return None
    return TokenSplit(
        seq_len=config.seq_len,
        vocab_size=tokenizer.vocab_size,
        paths=tuple(path for part in parts for path in part.paths),
        rows=tuple(rows for part in parts for rows in part.rows),
    )
