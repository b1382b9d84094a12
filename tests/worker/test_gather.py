"""Weights that are made of pieces travel under the next forward: each part waits for its own, and for no more."""

from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import replace

import pytest

from raymega.comm.local import LocalHub
from raymega.mesh import Coord
from raymega.plan.plan import Plan
from raymega.plan.programs import team_name
from raymega.worker import step
from raymega.worker.gather import Weights
from raymega.worker.interface import Assignment, WorkerSettings
from tests.waiting import eventually
from tests.worker.killing import kill_world
from tests.worker.rig import ThreadRun, batch_of, relative, run_layout, thread_run, tiny_config, tiny_plan
from tests.worker.slow_link import Hours, SlowLink
from tests.worker.test_kill_shards import weights_follow

MODEL = {"num_layers": 4, "num_key_value_heads": 2}
SMALL_BYTES = 8192


@pytest.fixture(autouse=True)
def small_buckets(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(step, "BUCKET_BYTES", SMALL_BYTES)


@contextmanager
def cut_run(
    layout: tuple[int, int, int], *, kind: str = "zero1", batch_size: int = 12, **rest: object
) -> Iterator[tuple[ThreadRun, Plan]]:
    dp, tp, pp = layout
    config = tiny_config(model=MODEL, lr=0.02, batch_size=batch_size)
    plan = replace(tiny_plan(config, dp=dp, tp=tp, pp=pp), shard_optimizer=kind)
    with thread_run(config, num_workers=plan.mesh.size, **rest) as run:
        run.assign(plan)
        yield run, plan


def test_shares_hold_every_row_once_in_the_order_in_which_parts_read_them():
    with cut_run((3, 1, 2), kind="mirrored") as (run, _):
        (stage, chunk), *_ = run.workers["w3"].state.chunks.items()
        shares = run.workers["w3"]._generation._step.weights._shares
    rows = [(p, one.spec.name) for share in shares for some in share.lines for p, one in some]
    assert len(rows) == len(set(rows)) == sum(len(layout.rows) for layout in chunk.layouts)
    assert {share.stage for share in shares} == {stage}
    assert [share.part for share in shares] == sorted(share.part for share in shares)
    uses = [(share.part, chunk.model.first_use[one.spec.name]) for share in shares for _, one in share.lines[0]]
    assert all(part <= use for part, use in uses)
    assert len(shares) > len(chunk.model.parts)


def hours_of_two_steps(patch: pytest.MonkeyPatch, *, early: bool) -> tuple[int, int, int]:
    """Hours of two steps, of their forwards, and of the link."""
    days, hub, begin, need, parts = {"w0": Hours(), "w1": Hours()}, LocalHub(), Weights.begin, Weights.need, []

    def at_once(self: Weights) -> None:
        begin(self)
        self.finish()

    def slowly(self: Weights, stage: int, part: int) -> None:
        need(self, stage, part)
        days[self._world.me].now += 1
        parts.append(part)

    def fabric(*, assignment: Assignment, settings: WorkerSettings) -> SlowLink:
        me, generation = settings.worker, assignment.generation
        return SlowLink(hub, me=me, generation=generation, hours=days[me], slowed="start_all_gather")

    patch.setattr(Weights, "need", slowly)
    patch.setattr(Weights, "begin", begin if early else at_once)
    with cut_run((2, 1, 1), batch_size=4, wires=fabric) as (run, plan):
        run.train(plan, until=2)
    return days["w0"].now, len(parts) // 2, days["w0"].sums


def test_a_forward_and_its_weights_take_the_longer_of_their_times_and_not_the_sum(monkeypatch):
    with monkeypatch.context() as patch:
        late, forwards, link = hours_of_two_steps(patch, early=False)
    with monkeypatch.context() as patch:
        early, _, _ = hours_of_two_steps(patch, early=True)
    assert late == forwards + link
    forward, gather = forwards / 2, link / 2
    first_share, last_gather = 2, gather  # vectors come before the first matrices; nothing follows the last step
    assert max(forward, gather) < early - forward - last_gather <= max(forward, gather) + first_share


def test_who_dies_before_it_sends_its_weights_breaks_the_next_forward_and_nothing_else():
    with kill_world((3, 1, 2), num_layers=4, change=lambda plan: replace(plan, shard_optimizer="mirrored")) as world:
        world.look()

        def wait_for_all(worker: str, point: str) -> None:  # else the decision may die with the only one who had it
            if (worker, point) == ("w1", "gather"):
                eventually(lambda: {world.run.workers[name].state.committed for name in world.plan.living} == {1})

        world.meets = wait_for_all
        world.begin()
        world.strike(world.plan, "w1", at="gather", until=2)
        found = world.recover(world.plan, dead={"w1"})
        assert found.step == 1
        for worker in found.plan.living:
            weights_follow(world, worker)
        world.check(world.go_on(found, dead={"w1"}))


def open_passes(run: ThreadRun, worker: str) -> Collection[object]:
    work = run.workers[worker]._generation.work
    return work.passes if work is not None else ()


def test_what_is_open_when_weights_are_gathered_again_is_gone_on_with():
    with cut_run((3, 1, 2), kind="mirrored") as (run, plan):
        ahead, behind, dies = (plan.worker(Coord(replica, 0, 0)) for replica in range(3))
        for name in plan.living:
            run.workers[name].feed(1, (batch_of(run.config, 0),))
            run.workers[name].grant(1, 2)
        run.workers[ahead].feed(1, (batch_of(run.config, 1),))
        eventually(lambda: run.workers[ahead].state.committed == 1 and len(open_passes(run, ahead)) == 2)
        assert not run.workers[behind].state.chunks[0].is_whole
        run.hub.kill(dies)
        found = run.recover(plan, dead={dies}, generation=2)
        assert len(found.kept[team_name(0, 0)]) == 2, "its forwards"
        reports = run.train(found.plan, generation=2, first=1, until=2)
        weights = run.weights(found.plan)
    calm = run_layout((1, 1, 1), steps=2, model=tuple(MODEL.items()), lr=0.02, batch_size=12)
    assert reports[0].loss == pytest.approx(calm.reports[1].loss, rel=1e-5)
    assert all(relative(weight, calm.weights[name]) < 1e-5 for name, weight in weights.items())
