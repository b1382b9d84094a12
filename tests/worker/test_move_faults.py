"""Faults planted into a real move: each is named by the certificate, and the run goes on from the old state."""

from collections.abc import Callable
from dataclasses import replace

import pytest
import torch

from raymega.layout.certificate import Refused
from raymega.layout.reshard import Move
from raymega.worker import move_state
from raymega.worker.move_state import Mover
from raymega.worker.state import TrainState
from tests.worker.moving import bits, go_back, layout, move, same_bits
from tests.worker.rig import ThreadRun, thread_run, tiny_config

CONFIG = tiny_config(model={"num_layers": 2, "num_key_value_heads": 12}, optimizer="adamw", lr=1e-3, warmup_samples=100)
OLD = layout(CONFIG, workers=["w0", "w1"], dp=1, tp=1, layers=[1, 1])
NEW = layout(CONFIG, workers=["w1", "w2"], dp=1, tp=2, layers=[2])
VICTIM = 1  # the shard of w2, which is sent all that it holds


def find(state: TrainState, name: str, kind: str) -> torch.Tensor:
    return next(item.tensor for item in state.items() if (item.name, item.kind) == (name, kind))


def flip_a_bit(state: TrainState) -> None:
    find(state, "layers.1.mlp.up", "param").view(torch.int32)[3, 5] ^= 1 << 7


def keep_stale_moments(state: TrainState) -> None:
    find(state, "layers.0.mlp.down", "exp_avg").mul_(1 / 0.9)


def swap_q_and_k(state: TrainState) -> None:
    wq, wk = (find(state, f"layers.0.attn.{name}", "param") for name in ("wq", "wk"))
    wq[:], wk[:] = wk.clone(), wq.clone()


def lack_a_chunk(state: TrainState) -> None:
    state.chunks = {}


def hold_a_chunk_twice(state: TrainState) -> None:
    state.chunks = {**state.chunks, 9: state.chunks[0]}


def stand_a_step_behind(state: TrainState) -> None:
    state.committed -= 1


def count_an_update_more(state: TrainState) -> None:
    state.chunks[0].pieces[0].optimizer.updates.add_(1)


FAULTS = {
    flip_a_bit: "layers.1.mlp.up (param) has other bits after the move than before",
    keep_stale_moments: "layers.0.mlp.down (exp_avg) has other bits after the move than before",
    swap_q_and_k: "layers.0.attn.wk (param) has other bits after the move than before",
    lack_a_chunk: "w2 lacks layers.0.attn.wq 48:96,0:96 (param) after the move",
    hold_a_chunk_twice: "w2 holds twice layers.0.attn.wq 48:96,0:96 (param) after the move",
    stand_a_step_behind: "w2 holds the state of step 1, not of step 2",
    count_an_update_more: "w2 has made 3 updates; 2 steps, 0 skipped, make 2",
}


def refused_and_back(run: ThreadRun) -> tuple[str, ...]:
    """The faults that the certificate names, after the run has gone on from the old state."""
    run.assign(OLD)
    run.train(OLD, until=2)
    held = {name: bits(run.workers[name].state) for name in OLD.living}
    found = move(run, old=OLD, new=NEW, generation=2, step=2)
    assert isinstance(found.verdict, Refused)
    generation = go_back(run, OLD, broken=2, step=2)
    assert all(same_bits(bits(run.workers[name].state), held[name]) for name in OLD.living)
    assert len(run.train(OLD, generation=generation, first=2, until=3)) == 1
    return found.verdict.faults


@pytest.mark.parametrize(("plant", "fault"), FAULTS.items(), ids=lambda x: getattr(x, "__name__", ""))
def test_a_fault_in_the_new_state_is_named(
    plant: Callable[[TrainState], None], fault: str, monkeypatch: pytest.MonkeyPatch
):
    real = TrainState.take_over

    def spoiled(self: TrainState, *args: object, **kwargs: object) -> None:
        real(self, *args, **kwargs)
        if self.seat.shard == VICTIM:
            plant(self)

    monkeypatch.setattr(TrainState, "take_over", spoiled)
    with thread_run(CONFIG, num_workers=3) as run:
        faults = refused_and_back(run)
    assert any(told.startswith(fault) for told in faults), faults


@pytest.mark.parametrize(
    ("field", "value", "fault"),
    [
        ("lr", 2e-3, "w2 has the rate 0.00032 where others have 0.00016"),
        ("batch_size", 16, "w2 would go on at sample 32; 2 steps end before sample 16"),
    ],
)
def test_a_worker_that_would_train_otherwise_is_named(
    field: str, value: float, fault: str, monkeypatch: pytest.MonkeyPatch
):
    real = Mover.of

    def other(assignment, *, settings, fabric) -> Mover:
        mover = real(assignment, settings=settings, fabric=fabric)
        training = CONFIG.training.model_copy(update={field: value})
        return replace(mover, config=CONFIG.model_copy(update={"training": training})) if mover.me == "w2" else mover

    monkeypatch.setattr(Mover, "of", other)
    with thread_run(CONFIG, num_workers=3) as run:
        assert fault in refused_and_back(run)


def test_a_box_that_is_not_sent_is_named(monkeypatch: pytest.MonkeyPatch):
    real = move_state.moves

    def fewer(**kwargs: object) -> tuple[Move, ...]:
        return tuple(one for one in real(**kwargs) if one.name != "layers.1.attn.wo")

    monkeypatch.setattr(move_state, "moves", fewer)
    with thread_run(CONFIG, num_workers=3) as run:
        faults = refused_and_back(run)
    assert "layers.1.attn.wo (exp_avg) has other bits after the move than before; w1, w2 hold it now" in faults
