"""What is learned is the next token: a target is shifted once, wherever it is shifted."""

import numpy as np
import pytest

from raymega.model.stage import build_stage
from raymega.worker.sample import Draws, generate
from tests.worker import rig
from tests.worker.killing import SMALL

ADAM = {"optimizer": "adamw", "lr": 1e-2, "steps": 60, "batch_size": 16, "micro_batch_size": 8}


def counting(samples: np.ndarray, *, seq: int, vocab: int) -> np.ndarray:
    return ((11 * samples[:, None] + np.arange(seq + 1)) % vocab).astype(np.int32)


def test_rows_that_count_upward_teach_to_go_on_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rig, "rows_of", counting)
    config = rig.tiny_config(model={**SMALL, "num_layers": 2}, **ADAM)
    plan = rig.tiny_plan(config, dp=1, tp=1, pp=2)
    with rig.thread_run(config, num_workers=2) as run:
        run.assign(plan)
        last = run.train(plan, until=ADAM["steps"])[-1]
        learned = run.weights(plan)
    model = build_stage(config, layers=(0, 2), first=True, last=True, team=None, seed=0)
    for param in model.params:
        param.data.detach().copy_(learned[param.spec.name])
    draws = Draws(num_tokens=5, temperature=0, top_k=0)
    assert last.loss < 0.5, "of ln 97 = 4.6 at first"
    assert generate(model, start=[5, 6, 7], end=-1, vocab_size=97, seq_len=24, draws=draws) == [8, 9, 10, 11, 12]
