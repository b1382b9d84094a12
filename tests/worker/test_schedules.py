"""Every schedule gives the same numbers, is repaired like any other, and hands its state to any other."""

from functools import lru_cache

import pytest

from raymega.comm.local import LocalGroup
from raymega.layout.certificate import Certified
from raymega.model.decoder import Block
from raymega.plan.plan import Plan
from raymega.worker.execute import _Run
from tests.worker.killing import KillWorld, kill_world
from tests.worker.moving import move
from tests.worker.rig import ONE, Result, relative, run_layout, thread_run, tiny_config, tiny_plan
from tests.worker.test_law_one import assert_same

CHUNKS = {"interleaved": 2, "zb-h1": 1, "zb-h2": 1, "zb-v": 2}
MODEL = {
    "hidden_size": 24, "num_attention_heads": 4, "num_key_value_heads": 2, "head_size": 6, "ffn_size": 20,
    "num_layers": 6,
}  # fmt: skip
CALM = {"steps": 2, "lr": 0.02, "micro_batch_size": 1}
LAYOUTS = [(1, 1, 2), (2, 1, 2), (1, 2, 2), (1, 1, 3)]
TABLE = ("0F0,0F1,0F2,0F3,0I0,0W0,0B1,0I2,0I3,0W2,0W3", "1F0,1I0,1F1,1I1,1F2,1I2,1F3,1I3,1W0,1W1,1W2,1W3")


@lru_cache
def one_worker(model: tuple[tuple[str, object], ...] = tuple(MODEL.items()), **training: object) -> Result:
    return run_layout(ONE, model=model, **CALM, **training)


def run(
    name: str, layout: tuple[int, int, int], *, model: dict[str, object] | None = None, **settings: object
) -> Result:
    items = tuple((MODEL | (model or {})).items())
    return run_layout(layout, model=items, schedule=name, chunks=CHUNKS[name], **CALM, **settings)


@pytest.mark.parametrize("layout", LAYOUTS, ids=str)
@pytest.mark.parametrize("name", CHUNKS)
def test_a_schedule_does_not_occur_in_the_result(name: str, layout: tuple[int, int, int]) -> None:
    assert_same(run(name, layout, clip_grad=0.5), one_worker(clip_grad=0.5))


@pytest.mark.parametrize(
    "model",
    [{"tie_embeddings": True, "dropout": 0.1}, {"kind": "gpt2", "num_key_value_heads": None, "tie_embeddings": True}],
    ids=["llama", "gpt2"],
)
@pytest.mark.parametrize("name", ["zb-h1", "zb-v"])
def test_tied_ends_learned_positions_and_dropout_are_the_same(name: str, model: dict[str, object]) -> None:
    assert_same(run(name, (2, 1, 2), model=model), one_worker(tuple((MODEL | model).items())))


@pytest.mark.parametrize("name", ["zb-h2", "zb-v"])
def test_a_cut_sequence_is_gathered_for_the_weights_part_too(name: str) -> None:
    assert_same(run(name, (1, 2, 2), sequence_parallel=True), one_worker())


def test_backwards_in_parts_give_the_bits_of_whole_ones() -> None:
    whole = run_layout((1, 1, 2), model=tuple(MODEL.items()), **CALM)
    for name in ("zb-h1", "zb-h2"):
        mine = run(name, (1, 1, 2))
        assert [r.loss for r in mine.reports] == [r.loss for r in whole.reports]
        assert all(relative(mine.weights[at], weight) == 0 for at, weight in whole.weights.items())


def test_a_schedule_from_a_table_runs() -> None:
    def from_table(plan: Plan) -> dict[str, object]:
        return {"schedule": "mine.csv", "table": TABLE}

    mine = run_layout((2, 1, 2), model=tuple(MODEL.items()), change=from_table, **CALM)
    assert_same(mine, one_worker())


@pytest.mark.parametrize("name", ["interleaved", "zb-v"])
def test_schedules_run_where_every_send_waits_for_its_receive(name: str) -> None:
    assert_same(run(name, (1, 1, 3), unbuffered=True), one_worker())


@pytest.mark.parametrize("name", ["interleaved", "zb-v"])
def test_schedules_run_over_wires_that_look_at_no_tags(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """As those between GPUs, on which what one peer sends comes in the order of sending."""
    for method in ("start_send", "start_recv"):
        real = getattr(LocalGroup, method)
        untagged = lambda self, x, *, real=real, tag=0, **peer: real(self, x, **peer)  # noqa: E731
        monkeypatch.setattr(LocalGroup, method, untagged)
    assert_same(run(name, (1, 1, 2)), one_worker())


def test_no_gradient_changes_in_an_inputs_part(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = []

    def watched(self: _Run, kept, action, *, dy):
        grad = self._executor.chunks[action.stage].flat.grad
        before = grad.clone()
        found = real(self, kept, action, dy=dy)
        seen.append((str(action.kind), bool((grad == before).all())))
        return found

    real = _Run._through
    monkeypatch.setattr(_Run, "_through", watched)
    run("zb-h1", (1, 1, 2))
    assert set(seen) == {("I", True)}
    assert len(seen) == 2 * 2 * 8


@pytest.mark.parametrize("name", ["1f1b", "zb-h1", "zb-v"])
def test_a_gradient_that_a_block_hands_on_as_it_got_it_is_still_there_for_its_weights(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Block, "__call__", lambda self, x, ctx: x + self.mlp(self.mlp_norm(x.detach())))
    model = tuple(MODEL.items())
    parted = run_layout((1, 1, 2), model=model, schedule=name, chunks=CHUNKS.get(name, 1), **CALM)
    assert_same(parted, run_layout(ONE, model=model, **CALM))


@pytest.mark.parametrize("name", CHUNKS)
def test_a_kill_at_any_action_costs_what_died_and_nothing_else(name: str) -> None:
    with kill_world((2, 1, 2), schedule=name, chunks=CHUNKS[name]) as world:
        world.look()
        for victim in world.plan.workers[:2]:
            for point in actions_of(world, victim):
                case = world.kill(victim, at=point)
                try:
                    world.check(case)
                except AssertionError as error:
                    raise AssertionError(f"{victim} was killed at {point}: {case.recovered.reason}") from error


def actions_of(world: KillWorld, worker: str) -> list[str]:
    """The points of the step that are actions, and the reduction."""
    found = [point for point in world.points[worker] if point[0].isdigit() or point == "reduce"]
    assert {point.strip("0123456789") for point in found} > {"F", "reduce"}
    return found


@pytest.mark.parametrize(("before", "after"), [("zb-v", "interleaved"), ("1f1b", "zb-v"), ("zb-h2", "1f1b")])
def test_a_live_run_goes_on_under_another_schedule(before: str, after: str) -> None:
    config = tiny_config(model=MODEL, **(CALM | {"steps": 4}))
    old = tiny_plan(config, dp=1, tp=1, pp=2, schedule=before, chunks=CHUNKS.get(before, 1))
    new = tiny_plan(config, dp=2, tp=1, pp=2, schedule=after, chunks=CHUNKS.get(after, 1))
    with thread_run(config, num_workers=4) as run:
        run.assign(old)
        reports = run.train(old, until=2)
        found = move(run, old=old, new=new, generation=2, step=2)
        assert isinstance(found.verdict, Certified)
        reports += run.train(new, generation=2, first=2, until=4)
        mine = Result(reports=reports, weights=run.weights(new))
    assert_same(mine, run_layout(ONE, model=tuple(MODEL.items()), **(CALM | {"steps": 4})))
