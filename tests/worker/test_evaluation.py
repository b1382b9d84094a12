"""The validation loss counts every row once, whatever the layout and the size of the batches it comes in."""

import numpy as np
import pytest

from raymega.layout.data_order import NO_ROW, ValidOrder
from raymega.worker.interface import EvalReport, MicrobatchRows, StepBatch
from tests.worker.rig import batch_of, rows_of, thread_run, tiny_config, tiny_plan

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
