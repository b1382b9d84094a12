"""The copy at the boundary and the writer in the background."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

import psutil
import pytest
import torch

from raymega.checkpoint.find import newest_complete
from raymega.checkpoint.save import FilesWritten, Saver, SaveResult, WriteFailed
from raymega.checkpoint.shard_writer import Commit
from raymega.checkpoint.state_item import StateItem
from raymega.checkpoint.store import LocalStore, Sink, Store, open_store
from raymega.layout.shard_box import Box
from tests.checkpoint.worlds import items_of, plan_of, save, state_of


@dataclass
class GatedStore:
    """A disk on which files wait to be finished until `gate` is set."""

    inner: Store
    gate: threading.Event = field(default_factory=threading.Event)
    begun: threading.Event = field(default_factory=threading.Event)

    @property
    def place(self) -> str:
        return self.inner.place

    def sub(self, name: str) -> "GatedStore":
        return replace(self, inner=self.inner.sub(name))

    @contextmanager
    def create(self, path: str) -> Iterator[Sink]:
        self.begun.set()
        assert self.gate.wait(30)
        with self.inner.create(path) as sink:
            yield sink


def commit(step: int) -> Commit:
    return Commit(run_id="tiny", step=step, generation=1)


def item(tensor: torch.Tensor, name: str = "x") -> StateItem:
    shape = tuple(tensor.shape)
    return StateItem(name=name, kind="param", shape=shape, box=Box.whole(shape), tensor=tensor)


def saver_on(store: object) -> tuple[Saver, list[SaveResult]]:
    results: list[SaveResult] = []
    return Saver(worker="w3", store=store, report=results.append), results  # type: ignore[arg-type]


def files_of(result: SaveResult) -> tuple[dict, ...]:
    assert isinstance(result, FilesWritten), result
    return result.files


def test_what_is_written_is_the_state_at_the_boundary(tmp_path: Path):
    store = GatedStore(LocalStore(tmp_path))
    saver, results = saver_on(store)
    weight = torch.arange(12.0).reshape(3, 4).t()
    saver.start([item(weight)], commit=commit(1), wait_s=0)
    weight.zero_()  # the next step goes on while the file is written
    store.gate.set()
    assert saver.wait(10)
    (file,) = files_of(results[0])
    data = (tmp_path / "step-1" / file["file"]).read_bytes()
    assert data[-48:] == torch.arange(12.0).reshape(3, 4).t().contiguous().numpy().tobytes()


def test_types_of_all_widths_lie_aligned_in_one_file(tmp_path: Path):
    saver, results = saver_on(LocalStore(tmp_path))
    tensors = {"a": torch.ones(3, dtype=torch.bfloat16), "b": torch.ones(5), "c": torch.ones((), dtype=torch.int64)}
    saver.start([item(tensor, name) for name, tensor in tensors.items()], commit=commit(1), wait_s=0)
    assert saver.wait(10)
    assert list(files_of(results[0])[0]["pieces"]) == ["c|param|scalar", "b|param|0:5", "a|param|0:3"]


def test_a_second_save_is_refused_with_a_notice_while_the_first_is_written(tmp_path: Path):
    store = GatedStore(LocalStore(tmp_path))
    saver, results = saver_on(store)
    saver.start([item(torch.ones(4))], commit=commit(1), wait_s=0)
    saver.start([item(torch.ones(4))], commit=commit(2), wait_s=0.01)
    reason = "w3 did not save step 2: its save before is still being written"
    assert results == [WriteFailed(commit=commit(2), reason=reason)]
    store.gate.set()
    assert saver.wait(10)
    assert [result.commit.step for result in results] == [2, 1]


def test_a_second_save_may_wait_for_the_first(tmp_path: Path):
    store = GatedStore(LocalStore(tmp_path))
    saver, results = saver_on(store)
    saver.start([item(torch.ones(4))], commit=commit(1), wait_s=0)
    assert store.begun.wait(10)
    threading.Timer(0.05, store.gate.set).start()
    assert saver.start([item(torch.ones(4))], commit=commit(2), wait_s=10) > 0.02
    assert saver.wait(10)
    assert [type(result) for result in results] == [FilesWritten, FilesWritten]


def test_while_the_writer_is_slow_the_checkpoint_before_is_the_newest(tmp_path: Path):
    save(tmp_path, step=10, keep=1)
    store = GatedStore(open_store(str(tmp_path)))  # type: ignore[arg-type]
    saver, _ = saver_on(store)
    saver.start(items_of(plan_of(), 0, state_of(20)), commit=commit(20), wait_s=0)
    assert store.begun.wait(10)
    assert newest_complete(str(tmp_path)).manifest.step == 10  # type: ignore[union-attr]
    store.gate.set()
    assert saver.wait(10)
    assert newest_complete(str(tmp_path)).manifest.step == 10  # type: ignore[union-attr]


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_fault_of_the_writer_is_reported_and_blocks_nothing():
    class BrokenStore:
        def sub(self, name: str) -> "BrokenStore":
            return self

        def create(self, path: str) -> Sink:
            raise ZeroDivisionError

    saver, results = saver_on(BrokenStore())
    saver.start([item(torch.ones(4))], commit=commit(1), wait_s=0)
    assert saver.wait(10)
    assert isinstance(results[0], WriteFailed)
    assert results[0].reason == "w3's writer ended by a fault of raymega; its log has the traceback"


@dataclass
class Nowhere:
    """A disk that keeps nothing, slow or fast."""

    gate: threading.Event = field(default_factory=threading.Event)

    def sub(self, name: str) -> "Nowhere":
        return self

    @contextmanager
    def create(self, path: str) -> Iterator[Sink]:
        assert self.gate.wait(30)
        yield self

    def write(self, data: bytes | memoryview, /) -> None:
        assert len(data)


def test_sixty_saves_leave_no_memory_behind():
    state, rss = item(torch.ones(1024, 4096)), []
    store = Nowhere()
    saver, results = saver_on(store)
    for step in range(120):
        if step < 60 or step % 2:  # in the second half, every second save is asked for while one is written
            store.gate.set()
        saver.start([state], commit=commit(step), wait_s=0)
        if store.gate.is_set():
            assert saver.wait(30)
        store.gate.clear()
        rss.append(psutil.Process().memory_info().rss)
    assert sum(isinstance(result, FilesWritten) for result in results) == 90
    assert sum(isinstance(result, WriteFailed) for result in results) == 30
    assert max(rss[60], rss[119]) - rss[5] < state.tensor.nbytes
