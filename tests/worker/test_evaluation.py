"""The validation loss counts every row once, whatever the layout and the size of the batches it comes in."""

import numpy as np
import pytest

from raymega.layout.data_order import NO_ROW, ValidOrder
from raymega.worker.interface import EvalReport, MicrobatchRows, StepBatch, StepReport
from tests.waiting import eventually
from tests.worker.rig import ThreadRun, batch_of, rows_of, thread_run, tiny_config, tiny_plan

NUM_ROWS, SEQ, VOCAB = 13, 24, 97


def valid_batch(order: ValidOrder, *, number: int, micro: int) -> StepBatch:
    """Batch `number` of the evaluation after step 1, filled up with rows that do not count."""
    samples = order.positions(number)
    ids = rows_of(np.maximum(samples, 0), seq=SEQ, vocab=VOCAB)
    mask = np.repeat(samples[:, None] != NO_ROW, SEQ, axis=1)
    parts = [slice(first, first + micro) for first in range(0, len(samples), micro)]
    rows = {m: MicrobatchRows(samples=samples[p], ids=ids[p], mask=mask[p]) for m, p in enumerate(parts)}
    return StepBatch(split="valid", step=number, after_step=1, trained_tokens=int(mask.sum()), microbatches=rows)


def evaluated(layout: tuple[int, int, int], *, batch_size: int) -> EvalReport:
    dp, tp, pp = layout
    config = tiny_config(
        model={"num_layers": 2}, steps=1, lr=0.0, eval_every=1, batch_size=batch_size, micro_batch_size=2
    )
    plan = tiny_plan(config, dp=dp, tp=tp, pp=pp)
    order = ValidOrder(num_rows=NUM_ROWS, batch_size=batch_size)
    valid = tuple(valid_batch(order, number=number, micro=2) for number in range(order.num_batches))
    with thread_run(config, num_workers=plan.mesh.size) as run:
        run.assign(plan, eval_batches=order.num_batches)
        for name in plan.workers:
            run.workers[name].feed(1, (batch_of(config, 0), *valid))
            run.workers[name].grant(1, 1)
        return run.wait_for(EvalReport, workers=plan.workers[:1], generation=1)[0]


@pytest.mark.parametrize(("layout", "batch_size"), [((1, 1, 1), 4), ((2, 1, 2), 8), ((1, 2, 1), 16)])
def test_a_split_that_no_batch_divides_is_evaluated_whole(layout: tuple[int, int, int], batch_size: int):
    mine, other = evaluated(layout, batch_size=batch_size), evaluated((1, 1, 1), batch_size=26)
    assert (mine.tokens, other.tokens) == (NUM_ROWS * SEQ, NUM_ROWS * SEQ)
    assert mine.loss == pytest.approx(other.loss, rel=1e-6)


CONFIG = tiny_config(model={"num_layers": 2}, steps=4, eval_every=1, batch_size=8, micro_batch_size=2)
PLAN = tiny_plan(CONFIG, dp=2, tp=1, pp=2)
ROWS = ValidOrder(num_rows=NUM_ROWS, batch_size=8)


def fed(run: ThreadRun, *, generation: int, without: str = "") -> None:
    """Steps 1 and 2 and leave for the first to all, rows to evaluate after it to all but one."""
    rows = tuple(valid_batch(ROWS, number=number, micro=2) for number in range(ROWS.num_batches))
    for name in PLAN.workers:
        run.workers[name].feed(generation, (*(batch_of(CONFIG, step) for step in range(2)), *rows * (name != without)))
        run.workers[name].grant(generation, 1)


def test_a_validation_that_a_death_cuts_off_is_taken_again_before_the_next_step():
    with thread_run(CONFIG, num_workers=4) as run:
        run.assign(PLAN, eval_batches=ROWS.num_batches)
        fed(run, generation=1)
        expected = run.wait_for(EvalReport, workers=("w0",), generation=1)[0].loss
    with thread_run(CONFIG, num_workers=4) as run:
        run.assign(PLAN, eval_batches=ROWS.num_batches)
        fed(run, generation=1, without="w3")
        eventually(lambda: run.workers["w3"].pulse(0, 0.0).phase == "evaluate")
        run.hub.kill("w3")
        found = run.recover(PLAN, dead={"w3"}, generation=2, eval_batches=ROWS.num_batches, evaluate=True)
        fed(run, generation=2)
        for name in found.plan.living:
            run.workers[name].grant(2, 2)
        again = run.wait_for(EvalReport, workers=("w0",), generation=2)[0]
        following = run.wait_for(StepReport, workers=("w0",), generation=2)[0]
    assert (found.step, again.after_step, following.step) == (1, 1, 2)
    assert again.loss == pytest.approx(expected, rel=1e-6)


def test_survivors_tell_the_validation_that_the_dead_reporter_told_nobody_of():
    with thread_run(CONFIG, num_workers=4) as run:
        run.assign(PLAN, eval_batches=ROWS.num_batches)
        fed(run, generation=1)
        told = run.wait_for(EvalReport, workers=("w0",), generation=1)[0]
        eventually(lambda: run.workers["w3"].pulse(0, 0.0).phase == "idle")
        run.workers["w3"].abort(1)
        commits = run.leaving("w3").commits
    assert [type(report) for report in commits] == [StepReport, EvalReport]
    assert commits[-1] == told
