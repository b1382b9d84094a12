"""What it costs that a broken step can be repaired: bytes, no copies. What `elastic.boundary_log: off` means."""

from collections.abc import Iterator
from contextlib import contextmanager

import pytest
import torch

from raymega.comm import boundary_log
from raymega.comm.frames import framed_bytes
from tests.worker.rig import ThreadRun, thread_run, tiny_config, tiny_plan

MESSAGE = (2, 24, 96)
NUM_MICROBATCHES = 12


@contextmanager
def trained(kept: str, *, steps: int = 1) -> Iterator[tuple[ThreadRun, list[float]]]:
    """Two stages that have done some steps, and the losses of these."""
    config = tiny_config(model={"num_layers": 2}, elastic={"boundary_log": kept}, batch_size=2 * NUM_MICROBATCHES)
    plan = tiny_plan(config, dp=1, tp=1, pp=2)
    with thread_run(config, num_workers=2, unbuffered=True) as run:
        run.assign(plan)
        reports = run.train(plan, until=steps)
        yield run, [report.loss for report in reports]


@pytest.mark.parametrize("kept", ["device", "host", "off"])
def test_a_step_copies_each_message_once_whether_it_is_kept_or_not(kept, monkeypatch):
    copies, copy = [], boundary_log.write_payload
    monkeypatch.setattr(
        boundary_log, "write_payload", lambda buffer, x: (copies.append(tuple(x.shape)), copy(buffer, x))
    )
    with trained(kept):
        assert copies == [MESSAGE] * 2 * NUM_MICROBATCHES  # activations down, gradients up


def test_a_log_holds_the_messages_of_a_step_and_nothing_between_steps():
    size = framed_bytes(MESSAGE, torch.float32)
    with trained("device", steps=2) as (run, _):
        logs = [worker._desk.log for worker in run.workers.values()]
        assert [(log.peak_bytes, log.num_bytes) for log in logs] == [(NUM_MICROBATCHES * size, 0)] * 2


def test_without_a_log_training_is_the_same_to_the_bit():
    with trained("off", steps=2) as (_, losses), trained("device", steps=2) as (_, same):
        assert losses == same


@pytest.mark.parametrize(("kept", "offered"), [("device", True), ("off", False)])
def test_without_a_log_a_worker_that_leaves_offers_no_work(kept, offered):
    with trained(kept) as (run, _):
        run.workers["w0"].abort(1)
        assert (run.leaving("w0").work is not None) == offered
