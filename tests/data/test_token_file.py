"""Shards: exact ids back at the right width, read in place, rows by their global number."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from raymega.data.pack import PackedRows
from raymega.data.token_file import dtype_for, mask_bits, open_shard, pack_mask, unpack_mask, write_shard
from raymega.errors import DataError
from tests.data.corpora import number_of, numbered_rows, split_of


def all_trained(ids: list[list[int]]) -> PackedRows:
    array = np.array(ids, dtype=np.int32)
    return PackedRows(ids=array, mask=np.ones((len(ids), array.shape[1] - 1), dtype=np.bool_))


def test_ids_above_sixteen_bits_come_back_exact(tmp_path: Path) -> None:
    ids = [[0, 65535, 65536, 70000, 128000]]
    info = write_shard(tmp_path / "s.arrow", all_trained(ids), dtype=dtype_for(128256))
    assert open_shard(tmp_path / "s.arrow", seq_len=4).ids.tolist() == ids
    assert (info.min_id, info.max_id) == (0, 128000)


@pytest.mark.parametrize(("vocab_size", "dtype"), [(97, "uint16"), (65536, "uint16"), (65537, "int32")])
def test_sixteen_bits_are_used_only_where_every_id_fits(vocab_size: int, dtype: str) -> None:
    assert dtype_for(vocab_size) == dtype


def test_a_shard_is_read_in_place(tmp_path: Path) -> None:
    write_shard(tmp_path / "s.arrow", all_trained([[1, 2, 3]] * 1000), dtype="uint16")
    before = pa.total_allocated_bytes()
    shard = open_shard(tmp_path / "s.arrow", seq_len=2)
    assert not shard.ids.flags.owndata
    assert shard.ids.dtype == np.uint16
    assert pa.total_allocated_bytes() - before < 1000


def test_rows_are_gathered_by_their_number_across_shards(tmp_path: Path) -> None:
    split = split_of(numbered_rows(tmp_path, num_rows=300))
    assert len(split.paths) > 3
    wanted = np.array([299, 0, 150, 150, 7, 298], dtype=np.int64)
    rows = split.gather(wanted)
    assert [number_of(row) for row in rows.ids] == wanted.tolist()
    assert rows.ids.dtype == np.int32
    assert rows.mask.all()


def test_no_rows_are_no_rows(tmp_path: Path) -> None:
    split = split_of(numbered_rows(tmp_path, num_rows=5))
    assert split.gather(np.empty(0, dtype=np.int64)).ids.shape == (0, 25)


def test_masks_with_holes_come_back_and_plain_ones_cost_nothing(tmp_path: Path) -> None:
    ids = np.ones((2, 10), dtype=np.int32)
    holes = np.array([[True, False] * 4 + [True], [False] * 8 + [True]])
    prefix = np.array([[True] * 9, [True] * 4 + [False] * 5])
    for name, mask in (("holes", holes), ("prefix", prefix)):
        write_shard(tmp_path / name, PackedRows(ids=ids, mask=mask), dtype="uint16")
        shard = open_shard(tmp_path / name, seq_len=9)
        assert np.array_equal(shard.mask_of(np.arange(2)), mask)
        assert (shard.mask_bits is None) == (name == "prefix")


@given(rows=st.integers(0, 5), seq_len=st.integers(1, 20), seed=st.integers(0, 99))
@settings(max_examples=30, deadline=None)
def test_packed_masks_unpack(rows: int, seq_len: int, seed: int) -> None:
    mask = np.random.default_rng(seed).random((rows, seq_len)) < 0.5
    column = pack_mask(mask)
    assert np.array_equal(unpack_mask(mask_bits(column), seq_len=seq_len), mask)
    assert np.array_equal(unpack_mask(mask_bits(column.slice(rows // 2)), seq_len=seq_len), mask[rows // 2 :])


def test_a_file_that_is_no_shard_is_refused(tmp_path: Path) -> None:
    (tmp_path / "s.arrow").write_bytes(b"not arrow")
    for path in (tmp_path / "s.arrow", tmp_path / "missing"):
        with pytest.raises(DataError, match="cannot be opened as a token shard"):
            open_shard(path, seq_len=2)


def test_a_shard_of_another_length_or_type_is_refused_with_column_and_type(tmp_path: Path) -> None:
    write_shard(tmp_path / "s.arrow", all_trained([[1, 2, 3]]), dtype="uint16")
    with pytest.raises(DataError, match="column ids has type fixed_size_list"):
        open_shard(tmp_path / "s.arrow", seq_len=3)
    table = pa.table({"ids": [1.5], "trained": [1]})
    with pa.OSFile(str(tmp_path / "f.arrow"), "wb") as sink, pa.ipc.new_file(sink, table.schema) as writer:
        writer.write_table(table)
    with pytest.raises(DataError, match="column ids has type double"):
        open_shard(tmp_path / "f.arrow", seq_len=2)


def test_a_row_with_an_id_that_no_vocabulary_has_is_named_when_it_is_fetched(tmp_path: Path) -> None:
    split = replace(split_of(numbered_rows(tmp_path, num_rows=60)), vocab_size=ord("5"))  # rows are made of digits
    assert len(split.gather(np.array([0, 44])).ids) == 2
    with pytest.raises(DataError, match=r"\.arrow row \d+ has ids outside the vocabulary of 53"):
        split.gather(np.array([0, 57]))
