"""Preparation: files in, shards out, whole or not at all, the same however it is cut into spans."""

import gzip
import json
import os
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from raymega.data import documents, text_range, write
from raymega.data.bpe import train_bpe
from raymega.data.manifest import load_manifest
from raymega.data.tokenizer import tokenizer_of_json
from raymega.errors import DataError
from tests.data.corpora import prepare_here, split_of, text_of

RS = b"\x1e"  # stands for an end of document


@pytest.fixture
def small_spans(monkeypatch: pytest.MonkeyPatch) -> None:
    """Spans, pieces and windows so small that a short text meets every border."""
    monkeypatch.setattr(documents, "SPAN_BYTES", 50)
    monkeypatch.setattr(documents, "PIECE_CHARS", 20)
    monkeypatch.setattr(text_range, "SEARCH_BYTES", 30)
    monkeypatch.setattr(text_range, "READ_BYTES", 40)


def write_parquet(path: Path, texts: list[str]) -> Path:
    pq.write_table(pa.table({"text": pa.array(texts, pa.string())}), path)
    return path


def test_txt_jsonl_and_parquet_become_one_stream_in_order(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("first\n\nfile")
    (tmp_path / "b.jsonl").write_text('{"text": "one"}\n\n{"text": "two"}\n')
    write_parquet(tmp_path / "c.parquet", ["row", "", "last"])
    prepare_here([tmp_path], tmp_path / "out")
    assert text_of(tmp_path / "out") == b"first\n\nfile" + RS + b"one" + RS + b"two" + RS + b"row" + RS + b"last" + RS


@pytest.mark.usefixtures("small_spans")
@pytest.mark.parametrize(
    "text",
    [
        "para graph\n\n" * 30,
        "lines only\n" * 30,
        "no break at all" * 20,
        "ümläute und 漢字 " * 20,
        "漢字" * 100,
        "\n" * 130,
        "x" * 50 + "\n\n" + "y" * 49,
        "a\n\n\nb\n\n  c\r\n\r\nd" * 20,
    ],
    ids=["paragraphs", "lines", "none", "words", "wide", "newlines", "border", "mixed"],
)
def test_a_text_file_comes_back_whole_from_any_spans(tmp_path: Path, text: str) -> None:
    (tmp_path / "a.txt").write_bytes(text.encode())
    with gzip.open(tmp_path / "a.txt.gz", "wb") as file:
        file.write(text.encode())
    for name in ("a.txt", "a.txt.gz"):
        prepare_here([tmp_path / name], tmp_path / name.replace(".", "-"))
        assert text_of(tmp_path / name.replace(".", "-")) == text.encode() + RS


@pytest.mark.usefixtures("small_spans")
def test_every_line_of_jsonl_is_read_once_from_any_spans(tmp_path: Path) -> None:
    texts = [f"{i}" * (i % 37 + 1) for i in range(60)]
    lines = "\n".join(json.dumps({"text": text}) for text in texts)
    for name, data in (("plain", lines), ("closed", lines + "\n")):
        (tmp_path / f"{name}.jsonl").write_text(data)
        prepare_here([tmp_path / f"{name}.jsonl"], tmp_path / name)
        assert text_of(tmp_path / name) == "".join(text + "\x1e" for text in texts).encode()


def test_a_byte_order_mark_is_no_text(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_bytes(b"\xef\xbb\xbfhello world")
    prepare_here([tmp_path / "a.txt"], tmp_path / "out")
    assert text_of(tmp_path / "out") == b"hello world" + RS


@pytest.mark.parametrize("place", [0, 1, 2])
def test_empty_parquet_files_cost_one_warning_and_no_row(
    tmp_path: Path, place: int, caplog: pytest.LogCaptureFixture
) -> None:
    full = write_parquet(tmp_path / "full.parquet", [f"row {i}" for i in range(10)])
    no_rows = write_parquet(tmp_path / "no_rows.parquet", [])
    no_groups = tmp_path / "no_groups.parquet"
    pq.ParquetWriter(no_groups, pa.schema([("text", pa.string())])).close()
    inputs = [no_rows, no_groups]
    inputs.insert(place, full)
    prepare_here(inputs, tmp_path / "out")
    assert text_of(tmp_path / "out").count(RS) == 10
    [warning] = caplog.messages
    assert str(no_rows) in warning
    assert str(no_groups) in warning


def test_only_empty_files_are_refused_and_leave_nothing(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    write_parquet(tmp_path / "in" / "a.parquet", [])
    (tmp_path / "in" / "b.txt").write_text("")
    with pytest.raises(DataError, match="nothing in the input is trained"):
        prepare_here([tmp_path / "in"], tmp_path / "out")
    assert os.listdir(tmp_path) == ["in"]


def test_prompts_are_masked_and_counted(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text('{"prompt": "2+2=", "completion": "4"}\n{"prompt": "ab", "completion": "cd"}\n')
    manifest = prepare_here([tmp_path / "a.jsonl"], tmp_path / "out", seq_len=5)
    rows = split_of(tmp_path / "out").gather(np.arange(2))
    trained = [row[1:][mask].tolist() for row, mask in zip(rows.ids, rows.mask, strict=True)]
    assert trained == [[*b"4", 256], [*b"cd", 256]]
    assert manifest.splits["train"].trained_tokens == 5


def test_given_ids_are_kept_exactly(tmp_path: Path) -> None:
    ids = [0, 255, 256, 7]
    pq.write_table(pa.table({"input_ids": pa.array([ids], pa.list_(pa.int32()))}), tmp_path / "a.parquet")
    prepare_here([tmp_path / "a.parquet"], tmp_path / "out", seq_len=4)
    assert split_of(tmp_path / "out").gather(np.array([0])).ids.tolist() == [[*ids, 256]]


def test_given_ids_outside_the_vocabulary_are_refused_with_file_and_row(tmp_path: Path) -> None:
    pq.write_table(pa.table({"ids": [[1, 2], [3, 300]]}), tmp_path / "a.parquet")
    with pytest.raises(DataError, match=r"a\.parquet row 1 has id 300; the vocabulary of byte has 257"):
        prepare_here([tmp_path / "a.parquet"], tmp_path / "out")


def test_a_narrow_column_of_ids_is_refused_with_file_column_and_type(tmp_path: Path) -> None:
    pq.write_table(pa.table({"ids": pa.array([[1]], pa.list_(pa.uint8()))}), tmp_path / "a.parquet")
    with pytest.raises(DataError, match=r"a\.parquet: column ids has type list<.*uint8>; the vocabulary has 257"):
        prepare_here([tmp_path / "a.parquet"], tmp_path / "out")


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.jsonl", b'{"text": "x"}\n{"text": \n', r"a\.jsonl line 2 is no JSON"),
        ("a.jsonl", b'{"text": "x"}\n{"body": "y"}\n', r"a\.jsonl line 2 has fields body"),
        ("a.jsonl", b"[1]\n", r"a\.jsonl line 1 has fields none"),
        ("a.jsonl", b'{"text": "x"}\n{"n": ' + b"9" * 5000 + b"}\n", r"a\.jsonl line 2 is no JSON that can be read"),
        ("a.jsonl", b"[" * 100_000, r"a\.jsonl line 1 is no JSON that can be read"),
        ("a.jsonl", b'{"text": "x"}\n{"text": "a\\ud83d"}\n', r"a\.jsonl line 2 has half a character, '\\ud83d'"),
        ("a.jsonl", b'{"prompt": "\\ude00", "completion": "y"}\n', r"a\.jsonl line 1 has half a character"),
        ("a.jsonl", b'{"ids": [1, 9223372036854775808]}\n', r"a\.jsonl line 1 has an id that 64 bits do not hold"),
        ("a.txt", b"abc\xff", r"a\.txt is not UTF-8 at byte 3"),
        ("a.parquet", b"PAR1 not", r"a\.parquet cannot be read as parquet"),
        ("a.jsonl.gz", b"no gzip", r"a\.jsonl\.gz cannot be read"),
    ],
)
def test_bad_input_is_named_and_leaves_nothing(tmp_path: Path, name: str, content: bytes, message: str) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(DataError, match=message):
        prepare_here([tmp_path / name], tmp_path / "parent" / "of" / "out")
    assert os.listdir(tmp_path) == [name]


def test_parents_that_hold_something_else_by_then_stay(tmp_path: Path) -> None:
    out = tmp_path / "parent" / "of" / "out"
    with suppress(DataError), write.partial_directory(out):
        (tmp_path / "parent" / "another").touch()
        raise DataError("nothing in the input")
    assert os.listdir(tmp_path / "parent") == ["another"]


def test_unsigned_ids_and_broken_text_of_parquet_are_refused_with_their_row(tmp_path: Path) -> None:
    pq.write_table(pa.table({"ids": pa.array([[1], [2**63]], pa.list_(pa.uint64()))}), tmp_path / "a.parquet")
    with pytest.raises(DataError, match=r"a\.parquet row 1 has an id that 64 bits do not hold"):
        prepare_here([tmp_path / "a.parquet"], tmp_path / "out")
    broken = pa.StringArray.from_buffers(1, pa.py_buffer(b"\0\0\0\0\1\0\0\0"), pa.py_buffer(b"\xff"))
    pq.write_table(pa.table({"text": broken}), tmp_path / "b.parquet")
    with pytest.raises(DataError, match=r"b\.parquet is not UTF-8 in rows 0 to 63"):
        prepare_here([tmp_path / "b.parquet"], tmp_path / "out")


@pytest.mark.usefixtures("small_spans")
def test_a_line_number_counts_from_the_start_of_the_file(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text('{"text": "ok"}\n' * 20 + "nonsense\n")
    with pytest.raises(DataError, match=r"a\.jsonl line 21 is no JSON"):
        prepare_here([tmp_path / "a.jsonl"], tmp_path / "out")


def test_validation_takes_its_share_and_documents_end_where_they_are_cut(tmp_path: Path) -> None:
    texts = [f"document {i:03d}" for i in range(100)]
    write_parquet(tmp_path / "a.parquet", texts)
    prepare_here([tmp_path / "a.parquet"], tmp_path / "out", valid_fraction=0.1)
    train, valid = (text_of(tmp_path / "out", split).split(RS)[:-1] for split in ("train", "valid"))
    assert len(valid) == 10
    assert sorted(train + valid) == [text.encode() for text in texts]


def test_a_long_document_may_lie_in_both_splits_and_each_part_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(documents, "PIECE_CHARS", 20)
    (tmp_path / "a.txt").write_text("".join(f"paragraph {i:02d}..\n\n" for i in range(40)))
    prepare_here([tmp_path / "a.txt"], tmp_path / "out", valid_fraction=0.2)
    train, valid = (text_of(tmp_path / "out", split) for split in ("train", "valid"))
    assert sorted((train + valid).replace(RS, b"\n").split()) == sorted((tmp_path / "a.txt").read_bytes().split())
    assert valid.count(RS) >= 4
    assert train.endswith(RS)
    assert valid.endswith(RS)


def test_the_manifest_counts_what_the_shards_hold(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("to be or not to be " * 100)
    tokenizer = tokenizer_of_json(train_bpe(["to be or not to be"], vocab_size=262), name="small")
    prepare_here([tmp_path / "a.txt"], tmp_path / "out", tokenizer=tokenizer, shard_bytes=300)
    info = load_manifest(str(tmp_path / "out")).splits["train"]
    rows = split_of(tmp_path / "out").gather(np.arange(info.rows))
    assert info.trained_tokens == rows.mask.sum() == sum(shard.trained_tokens for shard in info.shards)
    assert {shard.rows for shard in info.shards[:-1]} == {300 // 18}
    assert (tmp_path / "out" / "tokenizer.json").read_text() == tokenizer.json_text


def test_the_directory_of_another_is_never_touched(tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "mine").write_text("precious")
    (tmp_path / "a.txt").write_text("some text")
    with pytest.raises(DataError, match="out cannot be written"):
        prepare_here([tmp_path / "a.txt"], tmp_path / "out")
    assert sorted(os.listdir(tmp_path)) == ["a.txt", "out"]
    assert os.listdir(tmp_path / "out") == ["mine"]


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 256 KiB."""
    disk = tmp_path / "disk"
    disk.mkdir()
    done = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=256k", "tmpfs", disk], capture_output=True, text=True)
    if done.returncode:
        pytest.skip(f"no permission to mount: {done.stderr.strip()}")
    yield disk
    subprocess.run(["umount", disk], check=True)


def test_a_full_disk_is_said_and_leaves_nothing(small_disk: Path, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("word " * 200_000)
    with pytest.raises(DataError, match="The disk is full: free space, or choose another --out"):
        prepare_here([tmp_path / "a.txt"], small_disk / "out", shard_bytes=50_000)
    assert os.listdir(small_disk) == []


@pytest.mark.skipif(os.geteuid() != 0, reason="takes the identity of a user without permission")
def test_a_place_without_permission_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("some text")
    for parent in (tmp_path, *tmp_path.parents[:3]):
        parent.chmod(0o755)
    os.seteuid(65534)
    try:
        with pytest.raises(DataError, match="Choose a --out that this user may write to"):
            prepare_here([tmp_path / "a.txt"], tmp_path / "out")
    finally:
        os.seteuid(0)
