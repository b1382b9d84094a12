"""A worker that runs out of memory says so, keeps its state, and does the same step in smaller micro-batches."""

from collections.abc import Callable

import pytest
import torch

from raymega.plan.finer import finer
from raymega.worker import execute
from raymega.worker.interface import GenerationBroken, WorkerFailed
from raymega.worker.memory import is_out_of_memory
from tests.worker.killing import SMALL
from tests.worker.rig import ThreadRun, relative, run_layout, thread_run, tiny_config, tiny_plan

SETTINGS = {"steps": 4, "lr": 0.02, "batch_size": 8, "micro_batch_size": 4}
MODEL = {**SMALL, "num_layers": 2}


def torch_on_cpu() -> RuntimeError:
    with pytest.raises(RuntimeError) as caught:
        torch.empty(1 << 61, dtype=torch.uint8)
    return caught.value


@pytest.mark.parametrize(
    ("error", "is_memory"),
    [(torch.OutOfMemoryError("CUDA"), True), (MemoryError(), True), (torch_on_cpu(), True), (RuntimeError("x"), False)],
)
def test_which_errors_say_that_memory_ran_out(error, is_memory):
    assert is_out_of_memory(error) == is_memory


@pytest.fixture
def budget(monkeypatch):
    """Have `w1` fit no more than so many samples of a micro-batch, from a step on, in this method of an action."""

    def limit(method: str, *, samples: int, step: int) -> None:
        real: Callable = getattr(execute._Run, method)

        def checked(self: execute._Run, *args: object, **kwargs: object) -> object:
            world = self._executor.world
            if (world.me, self._batch.step) == ("w1", step) and world.plan.microbatch_size > samples:
                raise torch.OutOfMemoryError("tried to allocate 2.00 GiB\nand more lines")
            return real(self, *args, **kwargs)

        monkeypatch.setattr(execute._Run, method, checked)

    return limit


def left(run: ThreadRun, names: tuple[str, ...]) -> dict[str, GenerationBroken]:
    return {name: run.leaving(name) for name in names}


@pytest.mark.parametrize("method", ["_forward", "_through"])
@pytest.mark.parametrize("layout", [(1, 1, 2), (1, 2, 1)], ids=str)
def test_the_step_is_done_in_smaller_parts_with_the_same_numbers(layout, method, budget):
    dp, tp, pp = layout
    config = tiny_config(model=MODEL, **SETTINGS)
    plan = tiny_plan(config, dp=dp, tp=tp, pp=pp)
    whole = run_layout(layout, model=tuple(MODEL.items()), **SETTINGS)
    budget(method, samples=2, step=2)
    with thread_run(config, num_workers=2) as run:
        run.assign(plan)
        reports = run.train(plan, until=2)
        run.start(plan, first=2, until=4)
        said = left(run, plan.living)
        assert {name: report.short_of_memory for name, report in said.items()} == {
            "w0": "", "w1": "in compute (tried to allocate 2.00 GiB)"
        }  # fmt: skip
        assert {report.committed for report in said.values()} == {2}
        smaller = finer(plan, microbatch_size=2)
        run.config = tiny_config(model=MODEL, **(SETTINGS | {"micro_batch_size": 2}))
        run.assign(smaller, generation=2, step=2, keep_state=True)
        reports += run.train(smaller, generation=2, first=2, until=4)
        weights = run.weights(smaller)
    assert [r.loss for r in reports] == pytest.approx([r.loss for r in whole.reports], rel=1e-6)
    assert all(relative(weight, whole.weights[name]) < 1e-5 for name, weight in weights.items())


def test_what_runs_out_in_apply_leaves_no_state_that_is_whole(monkeypatch):
    config = tiny_config(model=MODEL, **SETTINGS)
    plan = tiny_plan(config, dp=1, tp=1, pp=1)

    def apply(*args: object, **kwargs: object) -> None:
        raise MemoryError("no room")

    with thread_run(config, num_workers=1) as run:
        run.assign(plan)
        monkeypatch.setattr("raymega.worker.ruling.Rule.apply", apply)
        run.start(plan, until=1)
        with pytest.raises(MemoryError, match="no room"):
            run.leaving("w0")
        assert any(isinstance(report, WorkerFailed) for _, report in run.reports)


@pytest.mark.parametrize("point", ["", " action=B1", " phase=reduce"])
def test_memory_that_is_filled_on_purpose_is_told_as_such_once(point, tmp_path):
    chaos = f"fill-memory stage=0 replica=0 step=2{point}"
    config = tiny_config(model=MODEL, elastic={"chaos": [chaos]}, **SETTINGS)
    plan = tiny_plan(config, dp=1, tp=1, pp=2)
    with thread_run(config, num_workers=2, tmp_path=tmp_path) as run:
        run.assign(plan)
        run.start(plan, until=2)
        said = left(run, plan.living)
        assert f"(filled on purpose: {chaos})" in said["w0"].short_of_memory
        smaller = finer(plan, microbatch_size=2)
        run.config = tiny_config(model=MODEL, **(SETTINGS | {"micro_batch_size": 2}))
        run.assign(smaller, generation=2, step=1, keep_state=True)
        run.train(smaller, generation=2, first=1, until=3)
