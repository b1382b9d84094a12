"""Batches go to the workers that need them, ahead of time, and again to those of a later plan."""

import queue
from dataclasses import replace

import numpy as np
import pytest

from raymega.driver.hands.feeder import (
    LONGEST_WINDOW,
    SHORTEST_WINDOW,
    Feeder,
    Sources,
    cut_batch,
    receivers,
    window_steps,
)
from raymega.errors import DataError
from raymega.mesh import Mesh
from raymega.plan.plan import Plan, straight_routes
from raymega.worker.interface import StepBatch
from tests.driver.fake_data import FakeStream

LIMIT_S = 10.0


def plan_of(*, dp: int, pp: int, tp: int = 1, num_microbatches: int = 4) -> Plan:
    mesh = Mesh(dp=dp, pp=pp, tp=tp)
    return Plan(
        mesh=mesh, workers=tuple(f"w{rank}" for rank in range(mesh.size)), layers=tuple((i, i + 1) for i in range(pp)),
        routes=straight_routes(num_microbatches=num_microbatches, mesh=mesh), microbatch_size=2,
    )  # fmt: skip


class Mail:
    """A feeder over fake streams, and what it has sent."""

    def __init__(self, *, steps: int = 100, width: int = 5) -> None:
        self.opened: list[int] = []
        self.sent: queue.SimpleQueue[tuple[str, int, StepBatch]] = queue.SimpleQueue()
        self.errors: queue.SimpleQueue[BaseException] = queue.SimpleQueue()
        self.calls = 0
        self.steps, self.width = steps, width
        self.feeder = Feeder(self.sources, send=self.send, failed=self.errors.put)

    def sources(self) -> Sources:
        def train(step: int) -> FakeStream:
            self.opened.append(step)
            return FakeStream(step, self.steps, rows=8, width=self.width)

        return Sources(train=train, valid=lambda: FakeStream(0, 3, rows=8), steps=self.steps)

    def send(self, worker: str, generation: int, batches: tuple[StepBatch, ...]) -> None:
        self.calls += 1
        for batch in batches:
            self.sent.put((worker, generation, batch))

    def next(self, count: int) -> list[tuple[str, int, StepBatch]]:
        return [self.sent.get(timeout=LIMIT_S) for _ in range(count)]


@pytest.fixture
def mail():
    made = Mail()
    yield made
    made.feeder.close()


def test_only_the_first_and_the_last_stage_get_rows_and_only_their_own():
    needs = receivers(plan_of(dp=2, pp=3, tp=2), rows=8)
    first, last = {"w0", "w1", "w6", "w7"}, {"w4", "w5", "w10", "w11"}
    assert set(needs) == first | last
    assert {needs[w] for w in ("w0", "w1", "w4", "w5")} == {(0, 2)}
    assert {needs[w] for w in ("w6", "w7", "w10", "w11")} == {(1, 3)}


def test_a_microbatch_has_the_rows_at_its_place():
    batch = next(iter(FakeStream(5, 6, rows=8)))
    cut = cut_batch(batch, (1, 3), size=2, split="train", after_step=5, last=False)
    assert (cut.step, cut.trained_tokens) == (5, 32)
    assert {m: rows.samples.tolist() for m, rows in cut.microbatches.items()} == {1: [42, 43], 3: [46, 47]}
    assert np.array_equal(cut.microbatches[3].ids[:, 0], [46, 47])


def test_the_window_is_bounded_in_steps_and_in_bytes():
    assert window_steps(1) == LONGEST_WINDOW
    assert window_steps(2**40) == SHORTEST_WINDOW


def test_steps_are_sent_up_to_a_window_ahead_of_what_is_committed_half_a_window_at_a_time(mail: Mail):
    mail.feeder.feed_from(10, generation=7, plan=plan_of(dp=1, pp=1))
    first = mail.next(LONGEST_WINDOW)
    assert [(worker, generation, batch.step) for worker, generation, batch in first] == [
        ("w0", 7, step) for step in range(10, 10 + LONGEST_WINDOW)
    ]
    mail.feeder.committed(10 + LONGEST_WINDOW // 2)
    more = mail.next(LONGEST_WINDOW // 2)
    assert [batch.step for _, _, batch in more][-1] == 10 + LONGEST_WINDOW // 2 + LONGEST_WINDOW - 1
    assert mail.calls == 3
    assert mail.sent.empty()


def test_what_is_not_committed_goes_to_the_next_plan_without_a_second_reading(mail: Mail):
    mail.feeder.feed_from(0, generation=1, plan=plan_of(dp=1, pp=1))
    mail.next(LONGEST_WINDOW)
    mail.feeder.committed(3)
    mail.feeder.feed_from(3, generation=2, plan=plan_of(dp=2, pp=1))
    again = mail.next(2 * LONGEST_WINDOW)
    assert [batch.step for worker, _, batch in again if worker == "w1"] == list(range(3, 3 + LONGEST_WINDOW))
    assert mail.opened == [0]


def test_a_run_that_goes_back_reads_from_there(mail: Mail):
    mail.feeder.feed_from(20, generation=1, plan=plan_of(dp=1, pp=1))
    mail.next(LONGEST_WINDOW)
    mail.feeder.feed_from(4, generation=2, plan=plan_of(dp=1, pp=1))
    assert [batch.step for _, _, batch in mail.next(LONGEST_WINDOW)] == list(range(4, 4 + LONGEST_WINDOW))
    assert mail.opened == [20, 4]


def test_what_is_read_ahead_is_sent_once_there_is_somebody(mail: Mail):
    mail.feeder.read_ahead(6)
    mail.feeder.feed_from(6, generation=1, plan=plan_of(dp=1, pp=1))
    assert [batch.step for _, _, batch in mail.next(LONGEST_WINDOW)] == list(range(6, 6 + LONGEST_WINDOW))
    assert mail.opened == [6]


def test_an_evaluation_is_sent_whole_and_its_last_batch_says_so(mail: Mail):
    mail.feeder.evaluate(5, generation=1, plan=plan_of(dp=1, pp=1))
    sent = [batch for _, _, batch in mail.next(3)]
    assert [(b.split, b.step, b.after_step, b.last) for b in sent] == [
        ("valid", 0, 5, False), ("valid", 1, 5, False), ("valid", 2, 5, True)
    ]  # fmt: skip


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")  # it goes to the log besides
def test_data_that_cannot_be_read_is_told():
    def broken() -> Sources:
        raise DataError("row 7 of shard 3 is torn")

    errors: queue.SimpleQueue[BaseException] = queue.SimpleQueue()
    feeder = Feeder(broken, send=lambda *_: None, failed=errors.put)
    assert "row 7" in str(errors.get(timeout=LIMIT_S))
    feeder.close()


def test_what_a_lost_team_computed_goes_to_those_whom_the_routes_name():
    lost = replace(plan_of(dp=2, pp=2), routes=((0, 0), (1, 0), (0, 0), (1, 0)), lost=frozenset({(1, 1)}))
    assert receivers(lost, rows=8) == {"w0": (0, 2), "w1": (0, 1, 2, 3), "w2": (1, 3)}
