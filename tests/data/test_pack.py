"""Packing: every id is a target once, masks go by place and never by value."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from raymega.data.pack import PackedRows, Packer, SplitChooser
from raymega.data.unigram import count_targets, unigram_entropy
from raymega.errors import DataError

EOD = 0
documents = st.lists(st.lists(st.integers(1, 90), max_size=30), min_size=1, max_size=12)


def packed(
    docs: list[list[int]], *, seq_len: int, take_each: bool = False, prompts: list[int] | None = None
) -> PackedRows:
    packer = Packer(seq_len=seq_len, eod_id=EOD)
    parts = []
    for doc, prompt in zip(docs, prompts or [0] * len(docs), strict=True):
        packer.add(np.array(doc, dtype=np.int32), num_untrained=prompt)
        packer.end_document()
        if take_each:
            parts.append(packer.take())
    parts.append(packer.finish())
    return PackedRows(ids=np.concatenate([p.ids for p in parts]), mask=np.concatenate([p.mask for p in parts]))


def test_rows_of_a_stream_share_their_border_and_the_last_is_filled_up() -> None:
    rows = packed([[1, 2, 3], [4, 5], [6, 7, 8, 9]], seq_len=4)
    assert rows.ids.tolist() == [[1, 2, 3, 0, 4], [4, 5, 0, 6, 7], [7, 8, 9, 0, 0]]
    assert rows.mask.tolist() == [[True] * 4, [True] * 4, [True, True, True, False]]


@given(docs=documents, seq_len=st.integers(1, 17))
@settings(max_examples=60, deadline=None)
def test_every_id_but_the_first_is_a_trained_target_exactly_once(docs: list[list[int]], seq_len: int) -> None:
    rows = packed(docs, seq_len=seq_len)
    stream = [i for doc in docs for i in [*doc, EOD]]
    assert rows.ids[:, 1:][rows.mask].tolist() == stream[1:]
    assert np.array_equal(rows.ids[1:, 0], rows.ids[:-1, -1])


@given(docs=documents, seq_len=st.integers(1, 17))
@settings(max_examples=30, deadline=None)
def test_taking_rows_on_the_way_changes_nothing(docs: list[list[int]], seq_len: int) -> None:
    whole, stepwise = packed(docs, seq_len=seq_len), packed(docs, seq_len=seq_len, take_each=True)
    assert np.array_equal(whole.ids, stepwise.ids)
    assert np.array_equal(whole.mask, stepwise.mask)


def test_padding_masks_by_length_though_it_equals_the_end_of_text() -> None:
    rows = packed([[5, 6], [7, 8]], seq_len=7)
    assert rows.ids.tolist() == [[5, 6, 0, 7, 8, 0, 0, 0]]
    assert rows.mask.tolist() == [[True, True, True, True, True, False, False]]


def test_a_row_of_counting_ids_has_its_successors_as_targets_shifted_once() -> None:
    rows = packed([list(range(1, 50))], seq_len=8)
    inputs, targets = rows.ids[:-1, :-1], rows.ids[:-1, 1:]
    assert np.array_equal(inputs + 1, targets)
    assert (rows.num_trained[:-1] == 8).all()


def test_prompts_are_inputs_and_never_targets() -> None:
    rows = packed([[1, 2, 3, 4], [5, 6]], seq_len=6, prompts=[2, 1])
    assert rows.ids[0].tolist() == [1, 2, 3, 4, 0, 5, 6]
    assert rows.mask[0].tolist() == [False, True, True, True, False, True]


def test_a_row_that_is_all_prompt_is_left_out() -> None:
    rows = packed([list(range(1, 20)), [1, 2]], seq_len=4, prompts=[19, 0])
    assert (rows.num_trained > 0).all()
    assert rows.num_trained.sum() == 4  # the end of the first document, the second and its end


def test_nothing_packs_to_no_rows() -> None:
    assert packed([[]], seq_len=4).ids.shape == (0, 5)


@given(sizes=st.lists(st.integers(1, 1000), min_size=1, max_size=200), fraction=st.floats(0, 0.5))
@settings(max_examples=40, deadline=None)
def test_the_validation_share_stays_within_half_a_piece_of_the_wish(sizes: list[int], fraction: float) -> None:
    chooser = SplitChooser(valid_fraction=fraction)
    valid = sum(size for size in sizes if chooser.choose(size) == "valid")
    assert abs(valid - fraction * sum(sizes)) <= max(sizes) / 2 + 1e-9 * sum(sizes)


def test_no_validation_is_no_validation() -> None:
    chooser = SplitChooser(valid_fraction=0.0)
    assert {chooser.choose(size) for size in (1, 5, 9)} == {"train"}


def test_the_unigram_entropy_of_equal_ids_is_the_log_of_their_number() -> None:
    ids = np.tile(np.arange(8, dtype=np.int32), 3)[None, :]
    counts = count_targets(ids[:, :9], mask=np.ones((1, 8), dtype=np.bool_), vocab_size=10)
    assert counts.tolist() == [1] * 8 + [0, 0]
    assert np.isclose(unigram_entropy(counts), np.log(8), rtol=1e-12)
    assert unigram_entropy(np.zeros(4, dtype=np.int64)) == 0.0


def test_a_row_that_no_memory_holds_is_refused() -> None:
    packer = Packer(seq_len=10**15, eod_id=0)
    packer.add(np.arange(5))
    with pytest.raises(DataError, match=r"a row of 1,000,000,000,000,000 positions, of which the text fills 5"):
        packer.finish()
