"""State that nobody else holds is kept by others, and a run that loses its holder goes on from there."""

import threading
from collections.abc import Collection
from dataclasses import replace

import pytest
import torch

from raymega.config.schema import Config
from raymega.control.arbitration import Version
from raymega.control.broken import Leaver
from raymega.control.copies_found import CopiesFound, copies_found
from raymega.layout.certificate import Certified, Refused
from raymega.layout.copies import CopyRoute, Home, Kept, keepers
from raymega.model.stage import specs_of
from raymega.plan.job import job_of
from raymega.plan.memory import memory_by_stage
from raymega.plan.parallel_layout import layout_of
from raymega.plan.plan import Plan
from raymega.plan.transition import Transition
from raymega.worker import peer_copies
from raymega.worker.copy_slots import Slot
from raymega.worker.interface import Assignment
from tests.waiting import eventually
from tests.worker.moving import Move, end_move, layout, without_team
from tests.worker.rig import LIMIT_S, ONE, Result, ThreadRun, relative, run_layout, thread_run, tiny_config

MODEL = {"num_layers": 4, "num_key_value_heads": 2}
ADAM = {"optimizer": "adamw", "lr": 1e-3, "weight_decay": 0.1, "clip_grad": 1.0, "eps": 1e-4}
STEPS = 6


@pytest.fixture(autouse=True)
def _small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of 16 KiB, so that many travel."""
    monkeypatch.setattr(peer_copies, "PIECE_BYTES", 1 << 14)


@pytest.fixture(scope="module")
def undisturbed() -> Result:
    return run_layout(ONE, steps=STEPS, model=tuple(MODEL.items()), **ADAM)


def config_with(every: int) -> Config:
    return tiny_config(model=MODEL, elastic={"copies_every": every}, **ADAM)


def routes_of(config: Config, plan: Plan, *, tolerate: int = 1) -> tuple[CopyRoute, ...]:
    """With every worker on a node of its own."""
    homes = {worker: Home(node=f"n-{worker}") for worker in plan.living}
    return keepers(plan, specs=specs_of(config), homes=homes, tolerate=tolerate).routes


def wait_until_kept(run: ThreadRun, routes: Collection[CopyRoute], *, step: int) -> None:
    """Until every copy of `step` is sealed, at both ends."""
    due = [(end, route.owner) for route in routes for end in (route.owner, route.holder)]
    eventually(lambda: all(any((k.owner, k.step) == (o, step) for k in run.workers[w].copies.kept) for w, o in due))


def lose(run: ThreadRun, plan: Plan, *, dead: Collection[str], generation: int, newest: int) -> CopiesFound | None:
    """`dead` die, the others leave; what is found of the state."""
    for name in dead:
        run.hub.kill(name)
    living = [name for name in plan.living if name not in dead]
    for name in living:
        run.workers[name].abort(generation)
    left = {name: run.leaving(name) for name in living}
    said = [
        Leaver(worker=name, committed=one.committed, decided_in=one.decided_in, kept=one.kept)
        for name, one in left.items()
    ]
    return copies_found(plan, left=said, newest=newest)


def restore(run: ThreadRun, found: CopiesFound, *, old: Plan, new: Plan, generation: int) -> Move:
    everyone = {*old.living, *new.living}
    version = found.version
    transition = Transition(
        old=old, senders=found.senders, node_of={worker: worker for worker in everyone}, copies=found.copies,
        version=(version.step, version.generation),
    )  # fmt: skip
    for name in transition.members(new):
        run.workers[name].start(
            Assignment(
                generation=generation, plan=new, step=version.step, store=("127.0.0.1", 0), move=transition,
                copies=routes_of(run.config, new),
            )
        )  # fmt: skip
    return end_move(run, transition, new=new, generation=generation, step=version.step)


CASES = {
    "pp=2": ({"dp": 1, "tp": 1, "layers": [2, 2]}, ["w1"], ["w0", "w2"]),
    "pp=2, on one worker": ({"dp": 1, "tp": 1, "layers": [2, 2]}, ["w0"], ["w1"]),
    "tp=2": ({"dp": 1, "tp": 2, "layers": [4]}, ["w1"], ["w2", "w0"]),
    "zero1, two replicas": ({"dp": 2, "tp": 1, "layers": [4], "shard_optimizer": "zero1"}, ["w1"], ["w0"]),
    "zero1, two at once": ({"dp": 3, "tp": 1, "layers": [4], "shard_optimizer": "zero1"}, ["w0", "w2"], ["w1", "w3"]),
    "pp=3, two at once": ({"dp": 1, "tp": 1, "layers": [1, 2, 1]}, ["w0", "w2"], ["w1", "w3", "w4"]),
}


@pytest.mark.parametrize("case", CASES)
def test_a_stage_without_replicas_comes_back_and_the_run_is_as_undisturbed(case: str, undisturbed: Result):
    shape, dead, staff = CASES[case]
    config = config_with(1)
    old = layout(config, workers=["w0", "w1", "w2"], **shape)
    layers = [4] if len(staff) == 1 else shape["layers"]
    layers = [2, 2] if shape["dp"] == 3 else layers
    new = layout(config, workers=staff, dp=1, tp=shape["tp"], layers=layers)
    routes = routes_of(config, old, tolerate=len(dead))
    with thread_run(config, num_workers=5, unbuffered=True) as run:
        run.assign(old, copies=routes)
        reports = run.train(old, until=3)
        wait_until_kept(run, routes, step=3)
        needs = memory_by_stage(replace(job_of(config), outlives=len(dead), copies_on_device=False), layout_of(old))
        kept = {w: (run.workers[w].copies.num_bytes, needs[old.coord_of(w).stage].host_copies) for w in old.living}
        assert all(0.5 * counted < held <= 1.01 * counted for held, counted in kept.values()), kept
        found = lose(run, old, dead=dead, generation=1, newest=3)
        assert found is not None
        assert found.version == Version(step=3, generation=1)
        move = restore(run, found, old=old, new=new, generation=2)
        assert isinstance(move.verdict, Certified), move.verdict
        reports += run.train(new, generation=2, first=3, until=STEPS)
        weights = run.weights(new)
    for mine, other in zip(reports, undisturbed.reports, strict=True):
        assert mine.loss == pytest.approx(other.loss, rel=1e-5)
    assert all(relative(weight, undisturbed.weights[name]) < 1e-5 for name, weight in weights.items())


def test_everyone_goes_back_to_the_step_of_the_copy_and_at_most_so_many_steps_are_redone(undisturbed: Result):
    config = config_with(3)
    old = layout(config, workers=["w0", "w1"], dp=1, tp=1, layers=[2, 2])
    new = layout(config, workers=["w0", "w2"], dp=1, tp=1, layers=[2, 2])
    with thread_run(config, num_workers=3) as run:
        run.assign(old, copies=routes_of(config, old))
        run.train(old, until=5)
        found = lose(run, old, dead=["w1"], generation=1, newest=5)
        assert found is not None
        assert found.version.step == 3  # of w0 it is a snapshot
        assert isinstance(restore(run, found, old=old, new=new, generation=2).verdict, Certified)
        reports = run.train(new, generation=2, first=3, until=STEPS)
    for mine, other in zip(reports, undisturbed.reports[3:], strict=True):
        assert mine.loss == pytest.approx(other.loss, rel=1e-5)


def test_the_last_holder_after_a_loss_is_covered():
    config = config_with(1)
    whole = layout(config, workers=["w0", "w1", "w2", "w3"], dp=2, tp=1, layers=[2, 2])
    assert routes_of(config, whole) == ()
    old = without_team(whole, (1, 1))  # w3 is gone: w1 alone holds the last stage
    routes = routes_of(config, old)
    assert [route.owner for route in routes] == ["w1"]
    new = layout(config, workers=["w0", "w2"], dp=1, tp=1, layers=[2, 2])
    with thread_run(config, num_workers=4) as run:
        run.assign(old, copies=routes)
        run.train(old, until=2)
        wait_until_kept(run, routes, step=2)
        held = run.weights(old, "exp_avg_sq")
        found = lose(run, old, dead=["w1"], generation=1, newest=2)
        assert found is not None
        assert isinstance(restore(run, found, old=old, new=new, generation=2).verdict, Certified)
        assert all(run.weights(new, "exp_avg_sq")[name].equal(tensor) for name, tensor in held.items())


def test_a_copy_whose_bytes_have_changed_is_refused():
    config = config_with(1)
    old = layout(config, workers=["w0", "w1"], dp=1, tp=1, layers=[2, 2])
    new = layout(config, workers=["w0", "w2"], dp=1, tp=1, layers=[2, 2])
    with thread_run(config, num_workers=3) as run:
        run.assign(old, copies=routes_of(config, old))
        run.train(old, until=2)
        wait_until_kept(run, routes_of(config, old), step=2)
        slot = run.workers["w0"].copies.find("w1", version=(2, 1))
        assert slot is not None
        flipped = next(item for item in slot.items if item.name == "layers.2.mlp.up" and item.kind == "exp_avg")
        flipped.tensor.view(torch.int32)[3, 5] ^= 1
        found = lose(run, old, dead=["w1"], generation=1, newest=2)
        assert found is not None
        verdict = restore(run, found, old=old, new=new, generation=2).verdict
    assert isinstance(verdict, Refused)
    assert verdict.faults == ("layers.2.mlp.up (exp_avg) has other bits after the move than before; w2 hold it now",)


def test_bytes_that_change_on_the_way_are_not_sealed(monkeypatch: pytest.MonkeyPatch):
    real = Slot.wrong

    def spoiled(slot: Slot) -> tuple[str, ...]:
        slot.snapshot.payload[100] ^= 1
        return real(slot)

    config = config_with(1)
    plan = layout(config, workers=["w0", "w1"], dp=1, tp=1, layers=[2, 2])
    monkeypatch.setattr(Slot, "wrong", spoiled)
    with thread_run(config, num_workers=2) as run:
        run.assign(plan, copies=routes_of(config, plan))
        run.start(plan, until=2)
        left = {name: run.leaving(name) for name in plan.living}
    assert all({kept.owner for kept in one.kept} == {name} for name, one in left.items())
    assert all(one.committed == 1 for one in left.values())  # the copy of the first values did not arrive


@pytest.mark.parametrize("nth", [1, 4])
def test_a_death_in_the_middle_of_copying_leaves_the_older_copy(nth: int):
    config = config_with(1)
    old = layout(config, workers=["w0", "w1"], dp=1, tp=1, layers=[2, 2])
    with thread_run(config, num_workers=2, unbuffered=True) as run:
        run.assign(old, copies=routes_of(config, old))
        run.train(old, until=2)
        wait_until_kept(run, routes_of(config, old), step=2)
        died, count = threading.Event(), [0]

        def on_op(worker: str, key: str, op: str) -> None:
            count[0] += (worker, key, op) == ("w1", "g1/copy/w1-w0", "send")
            if count[0] == nth and not died.is_set():
                died.set()
                run.hub.kill("w1")

        run.hub.on_op = on_op
        run.start(old, first=2, until=3)
        assert died.wait(LIMIT_S)
        found = lose(run, old, dead=["w1"], generation=1, newest=3)
    assert found is not None
    assert found.version == Version(step=2, generation=1)


def test_who_has_committed_a_step_knows_that_the_copies_of_the_one_before_are_whole():
    config = config_with(1)
    plan = layout(config, workers=["w0", "w1"], dp=1, tp=1, layers=[2, 2])
    held = threading.Event()
    with thread_run(config, num_workers=2) as run:

        def on_op(worker: str, key: str, op: str) -> None:
            if (worker, key, op) == ("w0", "g1/copy/w0-w1", "send") and run.workers["w0"].state.committed == 2:
                assert held.wait(LIMIT_S)

        run.hub.on_op = on_op
        run.assign(plan, copies=routes_of(config, plan))
        run.start(plan, until=4)
        first = run.workers["w0"]
        eventually(lambda: first.pulse(1 << 60, 0.0).phase == "copies" and first.state.committed >= 2)
        assert {run.workers[name].state.committed for name in plan.living} == {2}
        held.set()
        run.settle(plan, committed=4)


def test_without_routes_nothing_is_copied():
    config = config_with(1)
    plan = layout(config, workers=["w0", "w1"], dp=2, tp=1, layers=[4])
    with thread_run(config, num_workers=2) as run:
        run.assign(plan, copies=routes_of(config, plan))
        run.train(plan, until=2)
        assert all(worker.copies.kept == () and worker.copies.num_bytes == 0 for worker in run.workers.values())


def test_a_state_of_first_values_is_copied_before_the_first_step():
    config = config_with(5)
    plan = layout(config, workers=["w0", "w1"], dp=1, tp=1, layers=[2, 2])
    with thread_run(config, num_workers=2) as run:
        run.assign(plan, copies=routes_of(config, plan))
        run.train(plan, until=1)
        wait_until_kept(run, routes_of(config, plan), step=0)
        found = lose(run, plan, dead=["w1"], generation=1, newest=1)
    assert found == CopiesFound(version=Version(step=0, generation=0), senders=("w0",), copies={"w1": "w0"})
    assert Kept(owner="w1", step=0, generation=0) in run.workers["w0"].copies.kept
