"""Opening data: what the config names is found, checked, blended, and prepared where it ships with raymega."""

import os
import re
import shutil
import threading
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from raymega.config.schema import Blend, DataConfig
from raymega.data import builtin
from raymega.data.builtin import builtin_directory
from raymega.data.fetch import batches_of
from raymega.data.open_data import open_data
from raymega.data.tokenizer import ByteTokenizer
from raymega.errors import ConfigError, DataError, RaymegaBug
from raymega.layout.data_order import NO_ROW
from tests.data.corpora import number_of, numbered_rows, prepare_here


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache" / "raymega"


@pytest.fixture
def config(tmp_path: Path) -> DataConfig:
    return DataConfig(train=str(numbered_rows(tmp_path, num_rows=60)), tokenizer="byte", seq_len=24)


def test_the_default_data_is_shakespeare_under_its_own_bpe(cache: Path) -> None:
    data = open_data(DataConfig(), seed=1)
    assert data.tokenizer.vocab_size == 2048
    assert data.unigram_entropy == pytest.approx(5.9456, abs=1e-4)
    assert data.splits[0].num_rows == 7359
    assert data.valid is not None
    assert data.valid.num_rows == 384
    [first] = batches_of(data.train_fetch(batch_size=2).table(np.array([0])), batch_size=2)
    assert first.ids.shape == (2, 257)


def test_a_built_in_corpus_is_prepared_once(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = builtin_directory("shakespeare", tokenizer=ByteTokenizer(), seq_len=64)
    monkeypatch.setattr(builtin, "write_dataset", lambda *_, **__: pytest.fail("prepared again"))
    assert builtin_directory("shakespeare", tokenizer=ByteTokenizer(), seq_len=64) == first
    assert first.parent == cache


def test_two_that_come_first_together_share_one_result(cache: Path) -> None:
    found: list[Path] = []
    together = threading.Barrier(2)

    def prepare() -> None:
        together.wait()
        found.append(builtin_directory("shakespeare", tokenizer=ByteTokenizer(), seq_len=512))

    threads = [threading.Thread(target=prepare) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=60)
    assert found[0] == found[1]
    assert os.listdir(cache) == [found[0].name]


def test_other_rows_or_tokenizers_are_other_directories(cache: Path) -> None:
    other = replace(ByteTokenizer(), fingerprint="another")
    choices = ((ByteTokenizer(), 512), (ByteTokenizer(), 513), (other, 512))
    made = {builtin_directory("shakespeare", tokenizer=chosen, seq_len=seq_len) for chosen, seq_len in choices}
    assert len(made) == 3


def test_a_blend_is_drawn_from_all_its_sources(tmp_path: Path, config: DataConfig) -> None:
    (tmp_path / "marks.txt").write_text("!" * 500)
    prepare_here([tmp_path / "marks.txt"], tmp_path / "marks", seq_len=24)
    blend = (Blend(path=str(config.train), weight=2), Blend(path=str(tmp_path / "marks"), weight=1))
    data = open_data(config.model_copy(update={"train": blend}), seed=7)
    batches = list(batches_of(data.train_fetch(batch_size=6).table(np.arange(20)), batch_size=6))
    assert [int((batch.ids[:, 0] == ord("!")).sum()) for batch in batches] == [2] * 20
    numbers = [number_of(row) for batch in batches for row in batch.ids if row[0] != ord("!")]
    assert sorted(numbers[:60]) == list(range(60))


def test_a_corpus_is_known_by_its_rows_and_share_wherever_it_lies(tmp_path: Path, config: DataConfig) -> None:
    (tmp_path / "other").mkdir()
    other = str(numbered_rows(tmp_path / "other", num_rows=30))
    moved = shutil.copytree(str(config.train), tmp_path / "moved")
    weighed = DataConfig(
        train=(Blend(path=str(moved), weight=1), Blend(path=other, weight=3)), tokenizer="byte", seq_len=24
    )
    [alone] = open_data(config, seed=1).sources
    assert re.fullmatch("60 rows of digest [0-9a-f]{16}", alone)
    first, second = open_data(weighed, seed=1).sources
    assert first == f"{alone} at 1 of 4"
    assert second.startswith("30 rows of digest ")
    assert second.endswith(" at 3 of 4")


def test_inputs_and_targets_of_a_sample_come_from_the_same_row(config: DataConfig) -> None:
    data = open_data(config, seed=7)
    whole = np.concatenate(
        [batch.ids for batch in batches_of(data.train_fetch(batch_size=4).table(np.arange(15)), batch_size=4)]
    )
    one_by_one = [
        next(batches_of(data.train_fetch(batch_size=1).table(np.array([step])), batch_size=1)).ids[0]
        for step in range(60)
    ]
    assert np.array_equal(whole, np.stack(one_by_one))


def test_a_step_that_is_short_or_mixed_is_an_error_and_never_a_smaller_batch(config: DataConfig) -> None:
    table = open_data(config, seed=7).train_fetch(batch_size=4).table(np.arange(2))
    with pytest.raises(RaymegaBug, match="7 rows came for steps of 4"):
        next(batches_of(table.slice(1), batch_size=4))
    with pytest.raises(RaymegaBug, match="rows of steps 0 to 1 came as one batch"):
        next(batches_of(table.slice(2, 4), batch_size=4))


@pytest.mark.parametrize("batch_size", [1, 2, 3, 4, 10, 16])
def test_an_evaluation_weighs_every_row_once_for_any_batch(config: DataConfig, batch_size: int) -> None:
    data = open_data(config.model_copy(update={"valid": config.train}), seed=1)
    fetch = data.valid_fetch(batch_size=batch_size, num_samples=10)
    batches = list(batches_of(fetch.table(np.arange(fetch.order.num_batches)), batch_size=batch_size))
    seen = [
        number_of(row)
        for batch in batches
        for row, sample in zip(batch.ids, batch.samples, strict=True)
        if sample != NO_ROW
    ]
    assert seen == list(range(10))
    assert sum(batch.trained_tokens for batch in batches) == 10 * 24
    assert {batch.ids.shape for batch in batches} == {(batch_size, 25)}


def test_masks_of_prompts_reach_the_batch(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text('{"prompt": "1+1=", "completion": "2"}\n' * 40)
    prepare_here([tmp_path / "a.jsonl"], tmp_path / "out", seq_len=12)
    data = open_data(DataConfig(train=str(tmp_path / "out"), tokenizer="byte", seq_len=12), seed=1)
    [batch] = batches_of(data.train_fetch(batch_size=8).table(np.array([0])), batch_size=8)
    assert batch.mask is not None
    assert set(np.unique(batch.ids[:, 1:][batch.mask]).tolist()) == {ord("2"), 256}
    assert batch.trained_tokens == batch.mask.sum() == 8 * 4


def test_validation_that_is_not_there_says_how_to_get_it(config: DataConfig) -> None:
    with pytest.raises(DataError, match=r"--valid-fraction, or set training\.eval_every=0"):
        open_data(config, seed=1).valid_fetch(batch_size=2)


def test_a_model_with_fewer_ids_than_the_data_is_refused(config: DataConfig) -> None:
    with pytest.raises(DataError, match="has ids from 46 to 256; the vocabulary has 57"):
        open_data(config, seed=1, vocab_size=57)


def test_data_of_another_tokenizer_is_refused(config: DataConfig) -> None:
    with pytest.raises(DataError, match=r"prepared with tokenizer byte, not with the one of data\.tokenizer"):
        open_data(config.model_copy(update={"tokenizer": "shakespeare-2k"}), seed=1)


def test_what_is_not_there_is_named(config: DataConfig) -> None:
    with pytest.raises(DataError, match="nowhere is not a prepared data set"):
        open_data(config.model_copy(update={"train": "nowhere"}), seed=1)
    with pytest.raises(ConfigError, match="tokenizer 'nope'"):
        open_data(config.model_copy(update={"tokenizer": "nope"}), seed=1)
