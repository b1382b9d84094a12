"""Text to ids and back: bytes, any Hugging Face tokenizer.json, or a tokenizer that ships with raymega.

    spec                 ids                                    end of a document
    byte                 0 .. 255 are the bytes of UTF-8        256
    shakespeare-2k       BPE of 2048, package data              0
    PATH/tokenizer.json  whatever the file says                 the first of EOD_TOKENS in it, or the one asked for
    a prepared directory what it was prepared with              as it was prepared

Every text can be written as ids, and a text that spells a special token gets the ids of its letters: no document can
end another. Tokenizers are compared by fingerprint, a digest of what the file says, not of how it is laid out.
"""

import json
import os
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np
import tokenizers
import xxhash
from numpy.typing import NDArray

from raymega.data.manifest import MANIFEST, TOKENIZER, load_manifest
from raymega.errors import ConfigError, DataError

Ids = NDArray[np.int32]

BUILTIN_TOKENIZERS = ("shakespeare-2k",)
EOD_TOKENS = (
    "<|endofdocument|>", "<|endoftext|>", "<|end_of_text|>", "</s>", "<eos>", "<|eos|>", "<|end▁of▁sentence|>", "[SEP]",
)  # fmt: skip
"""Where a tokenizer.json does not say which token ends a document: the names that the field uses, in this order."""

PIECE_CHARS = 4096
"""Long texts are encoded in pieces of about so many characters, which is faster."""

_BEFORE_PARAGRAPH = re.compile(r"\n(?=\n\S)")


@dataclass(frozen=True, slots=True, kw_only=True)
class ByteTokenizer:
    """The bytes of UTF-8; decoding replaces what is not UTF-8."""

    name: str = "byte"
    vocab_size: int = 257
    eod_id: int = 256
    fingerprint: str = "byte-257"

    def encode(self, texts: Sequence[str]) -> list[Ids]:
        """The ids of each text."""
        return [np.frombuffer(text.encode(), dtype=np.uint8).astype(np.int32) for text in texts]

    def decode(self, ids: Iterable[int]) -> str:
        """The text of `ids`, without ends of documents."""
        return bytes(i for i in ids if i != self.eod_id).decode(errors="replace")


@dataclass(frozen=True, slots=True, kw_only=True)
class JsonTokenizer:
    """A tokenizer of the Hugging Face library; it crosses processes as its JSON: `core` would forget its settings."""

    name: str
    vocab_size: int
    eod_id: int
    fingerprint: str
    json_text: str
    core: tokenizers.Tokenizer
    splits_at_paragraphs: bool

    def __reduce__(self) -> tuple[Any, ...]:
        rebuild = partial(tokenizer_of_json, name=self.name, eod_token=self.core.id_to_token(self.eod_id))
        return rebuild, (self.json_text,)

    def encode(self, texts: Sequence[str]) -> list[Ids]:
        """The ids of each text, the same whether or not it was encoded in pieces."""
        pieces = [_pieces(text) if self.splits_at_paragraphs else [text] for text in texts]
        encoded = self.core.encode_batch_fast([p for parts in pieces for p in parts], add_special_tokens=False)
        ids = iter([np.array(piece.ids, dtype=np.int32) for piece in encoded])
        return [np.concatenate([next(ids) for _ in parts]) for parts in pieces]

    def decode(self, ids: Iterable[int]) -> str:
        """The text of `ids`, without special tokens."""
        return str(self.core.decode(list(ids), skip_special_tokens=True))


Tokenizer = ByteTokenizer | JsonTokenizer


def load_tokenizer(spec: str, *, eod_token: str | None = None) -> Tokenizer:
    """The tokenizer that `spec` names: byte, a built-in name, a tokenizer.json, or a directory with prepared data.

    Raises:
        ConfigError: no such tokenizer, or no token in it that ends a document.
        DataError: the file is not a tokenizer.json.
    """
    if spec == "byte":
        return ByteTokenizer()
    if spec in BUILTIN_TOKENIZERS:
        text = (files("raymega") / "corpora" / f"{spec}.json").read_text(encoding="utf-8")
        return tokenizer_of_json(text, name=spec, eod_token=eod_token)
    path = Path(spec) / TOKENIZER if os.path.isdir(spec) else Path(spec)
    prepared = load_manifest(str(path.parent)).tokenizer if os.path.exists(path.parent / MANIFEST) else None
    if prepared is not None and prepared.name == "byte" and not os.path.exists(path):
        return ByteTokenizer()
    try:
        text = path.read_text(encoding="utf-8-sig")
    except (FileNotFoundError, NotADirectoryError) as error:
        raise ConfigError(
            f"tokenizer {spec!r} is neither a file nor built in. "
            f"Give byte, {', '.join(BUILTIN_TOKENIZERS)}, or the path of a tokenizer.json, such as the one in what "
            "`raymega data prepare INPUT --out prepared --tokenizer train:4096` makes.",
            tokenizer=spec,
        ) from error
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"{path} cannot be read: {error}. Give a readable tokenizer.json.", file=str(path)) from error
    if prepared is not None and eod_token is None:
        eod_token = tokenizers.Tokenizer.from_str(text).id_to_token(prepared.eod_id)
    return tokenizer_of_json(text, name=spec, eod_token=eod_token)


def tokenizer_of_json(text: str, *, name: str, eod_token: str | None = None) -> JsonTokenizer:
    """The tokenizer that the text of a tokenizer.json describes."""
    content = _content(text, name=name)
    core = tokenizers.Tokenizer.from_str(text)
    core.encode_special_tokens = True
    core.no_truncation()
    core.no_padding()
    return JsonTokenizer(
        name=name,
        vocab_size=max(core.get_vocab(with_added_tokens=True).values()) + 1,
        eod_id=_eod_id(core, name=name, eod_token=eod_token),
        fingerprint=xxhash.xxh3_128_hexdigest(json.dumps(content, sort_keys=True, ensure_ascii=False).encode()),
        json_text=text,
        core=core,
        splits_at_paragraphs=_splits_at_paragraphs(content),
    )


def _content(text: str, *, name: str) -> dict[str, Any]:
    try:
        content = json.loads(text)
        if isinstance(content, dict) and isinstance(content.get("model"), dict) and "vocab" in content["model"]:
            return content
        reason = "it has no model with a vocabulary"
    except (ValueError, RecursionError) as error:
        reason = str(error)
    raise DataError(
        f"{name} is not a tokenizer.json of the Hugging Face library: {reason}. "
        "Write one with `tokenizers`, or train one with `--tokenizer train:VOCAB`.",
        file=name,
    )


def _eod_id(core: tokenizers.Tokenizer, *, name: str, eod_token: str | None) -> int:
    candidates = EOD_TOKENS if eod_token is None else (eod_token,)
    for token in candidates:
        token_id = core.token_to_id(token)
        if token_id is not None:
            return int(token_id)
    raise ConfigError(
        f"tokenizer {name} has none of {', '.join(candidates)}; documents need a token that ends them. "
        "Name one of its tokens with --eod-token.",
        tokenizer=name,
    )


def _splits_at_paragraphs(content: dict[str, Any]) -> bool:
    """Whether a cut between the two newlines before a paragraph is sure to change no id.

    GPT-2's pattern ends a run of white space one character before what follows it, so the pre-tokens on both sides of
    that cut are those of the whole text. Other patterns may join the newlines; their texts are encoded whole.
    """
    pre = content.get("pre_tokenizer")
    if not isinstance(pre, dict) or content.get("normalizer") is not None:
        return False
    return bool(pre.get("type") == "ByteLevel" and pre.get("use_regex", True) and not pre.get("add_prefix_space", True))


def _pieces(text: str) -> list[str]:
    pieces: list[str] = []
    start = 0
    for paragraph in _BEFORE_PARAGRAPH.finditer(text):
        if paragraph.end() - start >= PIECE_CHARS:
            pieces.append(text[start : paragraph.end()])
            start = paragraph.end()
    pieces.append(text[start:])
    return pieces
