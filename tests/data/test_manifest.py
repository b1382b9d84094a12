"""A prepared directory says what it holds, and whatever is not as written is refused by name."""

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from raymega.data.manifest import MANIFEST, Manifest, check_fits, load_manifest
from raymega.data.token_file import verify_files
from raymega.errors import DataError
from tests.data.corpora import numbered_rows

VOCAB = 257


@pytest.fixture
def prepared(tmp_path: Path) -> Path:
    return numbered_rows(tmp_path, num_rows=200)


def check(directory: Path, *, seq_len: int = 24, vocab_size: int = VOCAB, fingerprint: str = "byte-257") -> None:
    manifest = load_manifest(str(directory))
    check_fits(manifest, directory=str(directory), seq_len=seq_len, vocab_size=vocab_size, fingerprint=fingerprint)


def edit(directory: Path, change: Callable[[dict], None]) -> None:
    """Change the manifest as a writer would, with a checksum that fits."""
    content = json.loads((directory / MANIFEST).read_text())
    del content["checksum"]
    change(content)
    (directory / MANIFEST).write_text(Manifest.model_validate(content).to_text())


def test_what_was_written_fits_and_is_whole(prepared: Path) -> None:
    check(prepared)
    verify_files(load_manifest(str(prepared)), directory=str(prepared))
    assert len(load_manifest(str(prepared)).splits["train"].shards) > 1


def test_a_directory_that_was_never_prepared_says_how_to(tmp_path: Path) -> None:
    for directory in (tmp_path, tmp_path / "missing"):
        with pytest.raises(DataError, match="raymega data prepare INPUT --out"):
            load_manifest(str(directory))


@pytest.mark.parametrize(
    "content",
    ["", "{", "[1]", "null", '{"format": 1}', "\udcff"],
    ids=["empty", "cut", "list", "null", "bare", "bytes"],
)
def test_a_corrupt_manifest_is_named(prepared: Path, content: str) -> None:
    (prepared / MANIFEST).write_bytes(content.encode(errors="surrogateescape"))
    with pytest.raises(DataError, match=r"manifest\.json is corrupt"):
        load_manifest(str(prepared))


def test_one_changed_digit_in_the_manifest_is_noticed(prepared: Path) -> None:
    text = (prepared / MANIFEST).read_text()
    (prepared / MANIFEST).write_text(text.replace('"seq_len": 24', '"seq_len": 25'))
    with pytest.raises(DataError, match="checksum does not fit"):
        load_manifest(str(prepared))


def test_a_newer_format_asks_for_a_newer_raymega(prepared: Path) -> None:
    edit(prepared, lambda content: content.update(format=2))
    with pytest.raises(DataError, match="has format 2; this raymega reads up to 1"):
        load_manifest(str(prepared))


def test_another_row_length_names_both_and_the_way_out(prepared: Path) -> None:
    with pytest.raises(DataError, match=r"rows of seq_len 24; data\.seq_len is 32.*--seq-len 32"):
        check(prepared, seq_len=32)


def test_another_tokenizer_is_refused(prepared: Path) -> None:
    with pytest.raises(DataError, match="prepared with tokenizer byte"):
        check(prepared, fingerprint="other")


def test_ids_outside_the_vocabulary_are_refused_before_any_step(prepared: Path) -> None:
    with pytest.raises(DataError, match=r"train-00000\.arrow has ids from 46 to 57; the vocabulary has 50"):
        check(prepared, vocab_size=50)


def test_sixteen_bits_are_refused_for_a_larger_vocabulary(prepared: Path) -> None:
    edit(prepared, lambda content: content["tokenizer"].update(vocab_size=128256))
    with pytest.raises(DataError, match="column ids as uint16; its tokenizer has 128256"):
        check(prepared, vocab_size=128256)


def test_a_truncated_shard_is_noticed_without_reading_it(prepared: Path) -> None:
    shard = prepared / "train-00001.arrow"
    os.truncate(shard, shard.stat().st_size - 1)
    with pytest.raises(DataError, match=r"train-00001\.arrow has \d+ bytes; the manifest says \d+"):
        check(prepared)


def test_a_missing_shard_is_named(prepared: Path) -> None:
    (prepared / "train-00001.arrow").unlink()
    with pytest.raises(DataError, match=r"train-00001\.arrow is in the manifest but cannot be found"):
        check(prepared)


def test_a_flipped_bit_is_found_by_verifying(prepared: Path) -> None:
    shard = prepared / "train-00000.arrow"
    content = bytearray(shard.read_bytes())
    at = content.find(b"0\x000\x000\x003\x00")  # the number of row 3
    content[at] ^= 1
    shard.write_bytes(content)
    check(prepared)
    with pytest.raises(DataError, match=r"train-00000\.arrow is not the file that was written"):
        verify_files(load_manifest(str(prepared)), directory=str(prepared))


def test_verifying_names_the_row_with_an_id_outside_the_vocabulary(prepared: Path) -> None:
    edit(prepared, lambda content: content["tokenizer"].update(vocab_size=48))  # the digits are 48 to 57
    with pytest.raises(DataError, match=r"train-00000\.arrow row 0 has ids outside the vocabulary of 48"):
        verify_files(load_manifest(str(prepared)), directory=str(prepared))


@pytest.mark.skipif(os.geteuid() != 0, reason="takes the identity of a user without permission")
def test_a_directory_without_permission_says_so(prepared: Path) -> None:
    (prepared / MANIFEST).chmod(0o600)
    for parent in (prepared, *prepared.parents[:3]):
        parent.chmod(0o755)
    os.seteuid(65534)
    try:
        with pytest.raises(DataError, match=r"manifest\.json cannot be read: Permission denied"):
            load_manifest(str(prepared))
    finally:
        os.seteuid(0)
