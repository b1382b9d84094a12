"""What a prepared directory holds, and whether it still does.

    shakespeare-256/
      manifest.json         written last: without it there is no data set
      tokenizer.json        where the tokenizer is not `byte`
      train-00000.arrow     rows of seq_len + 1 ids, see token_file.py
      valid-00000.arrow

    {"format": 1, "seq_len": 256, "dtype": "uint16",
     "tokenizer": {"name": "shakespeare-2k", "fingerprint": "bc46..", "vocab_size": 2048, "eod_id": 0},
     "splits": {"train": {"rows": 7367, "trained_tokens": 1885740, "unigram_entropy": 5.94,
                          "shards": [{"file": "train-00000.arrow", "rows": 7367, "trained_tokens": 1885740,
                                      "size_bytes": 3800000, "min_id": 0, "max_id": 2047, "xxh3": "91ab.."}]}},
     "checksum": "5d0e.."}                                xxh3 of everything before it

`load_manifest` and `check_fits` look at no shard's content and cost a stat per shard; `verify_files` reads everything.
"""

import json
from pathlib import Path
from shlex import quote
from typing import Any

import xxhash
from pydantic import BaseModel, ConfigDict, ValidationError

from raymega.errors import DataError

FORMAT = 1
MANIFEST = "manifest.json"
TOKENIZER = "tokenizer.json"


class _Record(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class ShardInfo(_Record):
    """One file. `min_id`, `max_id` are over all ids of all rows; `xxh3` is the 64-bit digest of the file."""

    file: str
    rows: int
    trained_tokens: int
    size_bytes: int
    min_id: int
    max_id: int
    xxh3: str


class SplitInfo(_Record):
    """The rows of one split, in the order of their shards; entropy in nats of the trained targets."""

    rows: int
    trained_tokens: int
    unigram_entropy: float
    shards: tuple[ShardInfo, ...]


class TokenizerInfo(_Record):
    """Whose ids they are; `name` is what the user called it."""

    name: str
    fingerprint: str
    vocab_size: int
    eod_id: int


class Manifest(_Record):
    """The whole of a prepared directory."""

    format: int
    seq_len: int
    dtype: str
    tokenizer: TokenizerInfo
    splits: dict[str, SplitInfo]

    def to_text(self) -> str:
        """The text of manifest.json, checksum included."""
        content = self.model_dump(mode="json")
        return json.dumps(content | {"checksum": _checksum(content)}, indent=1) + "\n"


def load_manifest(directory: str) -> Manifest:
    """Read DIRECTORY/manifest.json.

    Raises:
        DataError: there is none, it cannot be read, it was changed, or a newer raymega wrote it.
    """
    path = Path(directory) / MANIFEST
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (FileNotFoundError, NotADirectoryError) as error:
        raise DataError(
            f"{directory} is not a prepared data set: it has no {MANIFEST}. "
            f"Make one with `raymega data prepare INPUT --out {quote(directory)}`.",
            file=str(path),
        ) from error
    except OSError as error:
        raise DataError(
            f"{path} cannot be read: {error.strerror}. Give this user permission.", file=str(path)
        ) from error
    except (ValueError, RecursionError) as error:
        raise _corrupt(path, str(error)) from error
    return _manifest_of(content, path=path)


def _manifest_of(content: Any, *, path: Path) -> Manifest:
    if not isinstance(content, dict):
        raise _corrupt(path, "it holds no object")
    checksum = content.pop("checksum", None)
    if isinstance(content.get("format"), int) and content["format"] > FORMAT:
        raise DataError(
            f"{path} has format {content['format']}; this raymega reads up to {FORMAT}. "
            "Update raymega, or prepare the data again.",
            file=str(path),
        )
    if checksum != _checksum(content):
        raise _corrupt(path, "its checksum does not fit its content")
    try:
        return Manifest.model_validate(content)
    except ValidationError as error:
        raise _corrupt(path, str(error)) from error


def check_fits(manifest: Manifest, *, directory: str, seq_len: int, vocab_size: int, fingerprint: str | None) -> None:
    """Refuse a data set that a run of `seq_len`, `vocab_size` and the tokenizer of `fingerprint` cannot train on.

    Raises:
        DataError: another row length or tokenizer, ids outside the vocabulary, or a shard that is not as written.
    """
    if manifest.seq_len != seq_len:
        raise DataError(
            f"{directory} has rows of seq_len {manifest.seq_len}; data.seq_len is {seq_len}. "
            f"Set data.seq_len={manifest.seq_len}, or prepare it again with --seq-len {seq_len}.",
            file=directory,
        )
    if fingerprint is not None and manifest.tokenizer.fingerprint != fingerprint:
        raise DataError(
            f"{directory} was prepared with tokenizer {manifest.tokenizer.name}, not with the one of data.tokenizer: "
            f"their fingerprints {manifest.tokenizer.fingerprint} and {fingerprint} differ. "
            f"Set data.tokenizer to the same one ({directory}/{TOKENIZER} is a copy), or prepare the data again.",
            file=directory,
        )
    if manifest.dtype == "uint16" and manifest.tokenizer.vocab_size > 2**16:
        raise DataError(
            f"{directory} stores column ids as uint16; its tokenizer has {manifest.tokenizer.vocab_size} ids, and "
            "16 bits hold 65536. Prepare the data again.",
            file=directory,
        )
    for split in manifest.splits.values():
        for shard in split.shards:
            check_shard(shard, directory=directory, vocab_size=vocab_size)


def check_shard(shard: ShardInfo, *, directory: str, vocab_size: int) -> None:
    """Compare what the manifest says of one shard with the vocabulary and with the file's size."""
    path = Path(directory) / shard.file
    if shard.min_id < 0 or shard.max_id >= vocab_size:
        raise DataError(
            f"{path} has ids from {shard.min_id} to {shard.max_id}; the vocabulary has {vocab_size} (0 to "
            f"{vocab_size - 1}). Set model.vocab_size to the tokenizer's, or prepare the data with another tokenizer.",
            file=str(path),
        )
    try:
        size_bytes = path.stat().st_size
    except OSError as error:
        raise DataError(
            f"{path} is in the manifest but cannot be found: {error.strerror}. Restore it, or prepare the data again.",
            file=str(path),
        ) from error
    if size_bytes != shard.size_bytes:
        raise DataError(
            f"{path} has {size_bytes} bytes; the manifest says {shard.size_bytes}. "
            "It is truncated or not the file that was written: copy it again, or prepare the data again.",
            file=str(path),
        )


def file_digest(path: Path) -> str:
    """The 64-bit xxh3 of a file's bytes, in hexadecimal."""
    digest = xxhash.xxh3_64()
    with path.open("rb") as file:
        while chunk := file.read(1 << 22):
            digest.update(chunk)
    return digest.hexdigest()


def _checksum(content: dict[str, Any]) -> str:
    return xxhash.xxh3_64_hexdigest(json.dumps(content, sort_keys=True).encode())


def _corrupt(path: Path, reason: str) -> DataError:
    return DataError(f"{path} is corrupt: {reason}. Restore it from a copy, or prepare the data again.", file=str(path))
