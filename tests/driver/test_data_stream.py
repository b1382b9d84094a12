"""The data streams on a real Ray: every sample once and in order, from any step, and nothing left behind."""

import logging
import shutil
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import ray

from raymega.config.schema import Blend, DataConfig
from raymega.data.open_data import OpenData, open_data
from raymega.driver.hands import data_stream
from raymega.driver.hands.data_stream import train_stream, valid_stream
from raymega.errors import DataError
from raymega.layout.data_order import DataOrder
from tests.data.corpora import number_of, numbered_rows, prepare_here

pytestmark = [pytest.mark.ray, pytest.mark.usefixtures("local_ray")]


@pytest.fixture
def config(tmp_path: Path) -> DataConfig:
    """64 rows whose content begins with their number."""
    return DataConfig(train=str(numbered_rows(tmp_path, num_rows=64)), tokenizer="byte", seq_len=24)


@pytest.fixture
def data(config: DataConfig) -> OpenData:
    return open_data(config, seed=3)


@pytest.fixture(autouse=True)
def _no_thread_is_left() -> Iterator[None]:
    before = set(threading.enumerate())
    yield
    limit = time.monotonic() + 30
    while left := {thread for thread in threading.enumerate() if thread not in before and not thread.daemon}:
        assert time.monotonic() < limit, left
        next(iter(left)).join(timeout=1)
    assert not [thread.name for thread in threading.enumerate() if "Prefetch" in thread.name]


def rows_of(data: OpenData, start: int, stop: int, *, batch_size: int = 8) -> list[int]:
    stream = train_stream(data, batch_size=batch_size, start_step=start, stop_step=stop)
    return [number_of(row) for batch in stream for row in batch.ids]


def test_steps_are_those_of_the_order_over_many_epochs(data: OpenData) -> None:
    order = DataOrder(num_rows=64, seed=3)
    assert rows_of(data, 0, 40) == order.row_of(np.arange(320)).tolist()


def test_resume_on_the_epoch_border_trains_the_second_epoch(data: OpenData) -> None:
    second = rows_of(data, 8, 16)
    assert sorted(second) == list(range(64))
    assert second != rows_of(data, 0, 8)


def test_a_stream_of_many_windows_has_every_step_once(data: OpenData, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(data_stream, "LARGEST_BLOCK_STEPS", 3)
    monkeypatch.setattr(data_stream, "WINDOW_BLOCKS", 4)
    batches = list(train_stream(data, batch_size=5, start_step=7, stop_step=40))
    assert [batch.step for batch in batches] == list(range(7, 40))
    samples = np.concatenate([batch.samples for batch in batches])
    assert np.array_equal(samples, np.arange(35, 200))


def test_batches_have_the_shape_and_type_of_a_step(data: OpenData) -> None:
    batch = next(iter(train_stream(data, batch_size=6, start_step=2, stop_step=3)))
    assert batch.ids.shape == (6, 25)
    assert (batch.ids.dtype, batch.samples.dtype) == (np.int32, np.int64)
    assert batch.ids.flags.writeable
    assert (batch.mask, batch.trained_tokens) == (None, 6 * 24)


def test_workers_that_hold_all_cpus_do_not_starve_the_data(data: OpenData) -> None:
    @ray.remote
    class Hog:
        def ready(self) -> None: ...

    hog = Hog.options(num_cpus=ray.available_resources()["CPU"]).remote()
    ray.get(hog.ready.remote())
    try:
        assert len(rows_of(data, 0, 2)) == 16
    finally:
        ray.kill(hog)


def test_an_evaluation_has_every_row_once_and_masks_what_fills_it_up(tmp_path: Path, config: DataConfig) -> None:
    data = open_data(config.model_copy(update={"valid": str(config.train)}), seed=1)
    batches = list(valid_stream(data, batch_size=10, num_samples=24))
    assert [batch.trained_tokens for batch in batches] == [240, 240, 96]
    last = batches[-1]
    assert last.ids.shape == (10, 25)
    assert last.samples.tolist() == [20, 21, 22, 23] + [-1] * 6
    assert last.mask is not None
    assert last.mask.sum(axis=1).tolist() == [24] * 4 + [0] * 6


def test_a_blend_draws_from_its_sources_by_weight(tmp_path: Path, config: DataConfig) -> None:
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / "dots.txt").write_text("!" * 2000)
    prepare_here([tmp_path / "b" / "dots.txt"], tmp_path / "b" / "out", seq_len=24)
    blend = (Blend(path=str(config.train), weight=3.0), Blend(path=str(tmp_path / "b" / "out"), weight=1.0))
    data = open_data(config.model_copy(update={"train": blend}), seed=3)
    batches = list(train_stream(data, batch_size=8, start_step=0, stop_step=10))
    assert [int((batch.ids[:, 0] == ord("!")).sum()) for batch in batches] == [2] * 10


def test_a_shard_that_vanishes_is_named_by_the_stream(data: OpenData, config: DataConfig) -> None:
    shutil.rmtree(str(config.train))
    with pytest.raises(DataError, match=r"train-0000\d\.arrow cannot be opened as a token shard"):
        rows_of(data, 0, 4)


def test_an_abandoned_stream_stops_fetching(data: OpenData, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(data_stream, "LARGEST_BLOCK_STEPS", 1)
    stream = train_stream(data, batch_size=8, start_step=0, stop_step=10**9)
    assert next(stream).step == 0
    stream.close()
    assert list(stream) == []
    assert not [thread.name for thread in threading.enumerate() if thread.name.startswith("StreamingExecutor")]


def test_a_slow_consumer_is_not_outrun(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Steps of about 1 MiB, of which the object store may hold 4 MiB: all that is ahead stays of that size."""
    monkeypatch.setattr(data_stream, "STORE_BYTES", 4 << 20)
    monkeypatch.setattr(data_stream, "LARGEST_BLOCK_STEPS", 1)
    wide = DataConfig(train=str(numbered_rows(tmp_path, num_rows=200, seq_len=1023)), tokenizer="byte", seq_len=1023)
    stream = train_stream(open_data(wide, seed=1), batch_size=256, start_step=0, stop_step=64)
    used = []
    for batch in stream:
        if batch.step % 8 == 0:
            time.sleep(0.2)  # the consumer is slow
            used.append(stored_bytes())
    assert max(used) < 16 << 20


def stored_bytes() -> float:
    name = "object_store_memory"
    return ray.cluster_resources()[name] - ray.available_resources().get(name, 0.0)


def test_a_second_stream_gives_its_first_batch_at_once(data: OpenData) -> None:
    rows_of(data, 0, 1)
    seconds = []
    for start in (1, 10**6, 10**12):
        began = time.monotonic()
        rows_of(data, start, start + 1)
        seconds.append(time.monotonic() - began)
    assert min(seconds) < 0.5  # idle machine: 0.1


def test_streaming_writes_nothing_to_the_terminal(
    data: OpenData, capfd: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO):
        rows_of(data, 0, 3)
    assert capfd.readouterr() == ("", "")
    assert caplog.messages == []
