"""The activations that are really alive between actions, counted tensor by tensor, beside those of the memory model."""

import gc
import sys
import weakref
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from itertools import product

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from raymega.config.choices import CHUNKS_OF
from raymega.config.schema import Config
from raymega.plan.job import job_of
from raymega.plan.memory import memory_by_stage, receive_bytes
from raymega.plan.parallel_layout import layout_of
from raymega.plan.plan import Plan
from raymega.worker import execute
from tests.waiting import eventually
from tests.worker.rig import thread_run, tiny_config, tiny_plan

MODEL = {
    "hidden_size": 128, "num_attention_heads": 4, "num_key_value_heads": 2, "head_size": 32, "ffn_size": 192,
    "num_layers": 4, "vocab_size": 97,
}  # fmt: skip
MESSAGE_BYTES = 2 * 24 * 128 * 4
CHUNKS = {"interleaved": 2, "zb-v": 2}


class Alive(TorchDispatchMode):
    """Bytes of the storages that were made on this thread while it is on, and are still there."""

    def __init__(self) -> None:
        super().__init__()
        self.num_bytes = 0
        self._known = weakref.WeakSet[torch.UntypedStorage]()

    def __torch_dispatch__(self, func: Callable, types: object, args: tuple = (), kwargs: dict | None = None) -> object:
        out = func(*args, **(kwargs or {}))
        given = {id(x.untyped_storage()) for x in tree_leaves((args, kwargs)) if isinstance(x, torch.Tensor)}
        for x in tree_leaves(out):
            if isinstance(x, torch.Tensor) and id(x.untyped_storage()) not in given:
                self._count(x.untyped_storage())
        return out

    def _count(self, storage: torch.UntypedStorage) -> None:
        if storage not in self._known:
            self._known.add(storage)
            self.num_bytes += storage.nbytes()
            weakref.finalize(storage, self._gone, storage.nbytes())

    def _gone(self, num_bytes: int) -> None:
        self.num_bytes -= num_bytes


@contextmanager
def counted() -> Iterator[dict[str, list[list[int]]]]:
    """Worker -> for each of its steps, what is alive after each action, but for what its log holds."""
    found: defaultdict[str, list[list[int]]] = defaultdict(list)
    modes: defaultdict[str, Alive] = defaultdict(Alive)
    with pytest.MonkeyPatch.context() as patch:
        train = execute.Executor.train

        def watched_step(self: execute.Executor, *args: object, **kwargs: object) -> None:
            found[self.world.me].append([])
            with modes[self.world.me]:
                train(self, *args, **kwargs)

        def watched(real: Callable) -> Callable:
            def method(self: execute._Run, action: object) -> None:
                real(self, action)
                me, log = self._executor.world.me, self._executor._outbox._log
                found[me][-1].append(modes[me].num_bytes - log.peak_bytes)

            return method

        patch.setattr(execute.Executor, "train", watched_step)
        for name in ("forward", "backward", "add_owed"):
            patch.setattr(execute._Run, name, watched(getattr(execute._Run, name)))
        yield found


def predicted(config: Config, plan: Plan, *, stage: int) -> float:
    """Activations, logits, and buffers of messages."""
    layout = replace(layout_of(plan), recompute=config.parallelism.recompute)
    need = memory_by_stage(job_of(config), layout)[stage]
    return need.activations + need.logits + receive_bytes(job_of(config), layout, stage=stage)


def peaks(schedule: str, recompute: str, *, steps: int) -> Iterator[tuple[list[int], float]]:
    """Of each of two stages: the most that was alive in each step, and what the memory model says."""
    config = tiny_config(model=MODEL, parallelism={"recompute": recompute}, batch_size=8, steps=steps, lr=0.0)
    plan = tiny_plan(config, dp=1, tp=1, pp=2, chunks=CHUNKS.get(schedule, 1), schedule=schedule)
    with counted() as found, thread_run(config, num_workers=2, unbuffered=True) as run:
        run.assign(plan)
        run.train(plan, until=steps)
    for stage in range(2):
        yield [max(step) for step in found[f"w{stage}"]], predicted(config, plan, stage=stage)


SCHEDULES = tuple(CHUNKS_OF)
CASES = [("1f1b", "none"), ("1f1b", "selective"), ("interleaved", "full"), ("zb-h1", "full"), ("zb-v", "none")]
OTHERS = sorted({*product(SCHEDULES, ("none", "selective", "full"))} - {*CASES})


@pytest.mark.parametrize(
    ("schedule", "recompute"), [*CASES, *(pytest.param(*case, marks=pytest.mark.soak) for case in OTHERS)]
)
def test_what_is_alive_is_what_the_memory_model_says(schedule: str, recompute: str) -> None:
    less = 0.10 if schedule.startswith("zb") else 0.05  # of passes that are half done, the model takes the dearer half
    for alive, said in peaks(schedule, recompute, steps=3):
        assert alive[1] == alive[2], "once buffers are made, one step is as another"
        # buffers and passes may be at their most at different moments: a message's difference
        assert (1 - less) * said - MESSAGE_BYTES < alive[2] < 1.05 * said + MESSAGE_BYTES


@pytest.mark.soak
@pytest.mark.parametrize("schedule", SCHEDULES)
def test_what_is_alive_stays_flat_over_300_steps(schedule: str) -> None:
    for alive, _ in peaks(schedule, "none", steps=300):
        assert set(alive[1:]) == {alive[1]}


def held() -> tuple[int, int]:
    """Storages of tensors that are alive in this process, and their bytes."""
    gc.collect()
    tensors = [x for x in gc.get_objects() if issubclass(type(x), torch.Tensor)]
    storages = {x.untyped_storage()._cdata: x.untyped_storage().nbytes() for x in tensors}
    return len(storages), sum(storages.values())


@pytest.mark.soak
@pytest.mark.parametrize("shard_optimizer", ["none", "zero1", "mirrored"])
@pytest.mark.parametrize("schedule", ["1f1b", "zb-v"])
def test_what_is_held_between_steps_stays_flat_over_300_steps(schedule: str, shard_optimizer: str) -> None:
    config = tiny_config(model=MODEL, batch_size=8, steps=300, optimizer="adamw")
    plan = tiny_plan(config, dp=2, tp=1, pp=2, chunks=CHUNKS.get(schedule, 1), schedule=schedule)
    plan, found = replace(plan, shard_optimizer=shard_optimizer), list[tuple[int, int]]()
    with thread_run(config, num_workers=4) as run:
        run.assign(plan)
        for until in range(10, 301, 10):
            run.train(plan, first=until - 10, until=until)
            eventually(lambda: all(run.workers[w].pulse(sys.maxsize, 0.0).phase == "idle" for w in plan.living))
            found.append(held())
    print(f"{schedule} {shard_optimizer}: (tensors, bytes) after 20 steps {found[1]}, after 300 {found[-1]}")
    assert set(found[1:]) == {found[1]}
