"""State moves between plans on a live run: it goes on as if nothing had, or the old state is there, bit for bit."""

import gc
import random
import threading
import weakref
from functools import lru_cache
from itertools import pairwise

import pytest

from raymega.config.schema import Config
from raymega.layout.certificate import Certified
from raymega.plan.plan import Plan, ShardOptimizer
from raymega.worker import move_state
from raymega.worker.interface import Decision, StepReport
from raymega.worker.state import kinds_of
from tests.worker.moving import begin_move, bits, go_back, layout, move, same_bits, without_team
from tests.worker.rig import LIMIT_S, ONE, Result, ThreadRun, relative, run_layout, thread_run, tiny_config

MODEL = {"num_layers": 4, "num_key_value_heads": 2}
ADAM = {"optimizer": "adamw", "lr": 1e-3, "weight_decay": 0.1, "clip_grad": 1.0, "eps": 1e-4}
"""A step of Adam is a ratio of two small numbers; the eps keeps it from blowing rounding up."""
WALK = 12
SHAPES = [(dp, tp, pp) for dp in (1, 2, 3) for tp in (1, 2, 4) for pp in (1, 2, 3, 4) if dp * tp * pp <= 8]


def walk_of(
    config: Config, *, seed: int, length: int = WALK, kinds: tuple[ShardOptimizer, ...] = ("none",)
) -> list[Plan]:
    """Random layouts, uneven stages, on random workers of nine."""
    rng = random.Random(seed)
    plans = []
    for _ in range(length):
        dp, tp, pp = rng.choice(SHAPES)
        ends = [0, *sorted(rng.sample(range(1, 4), pp - 1)), 4]
        workers = rng.sample([f"w{n}" for n in range(9)], dp * tp * pp)
        layers, kind = [b - a for a, b in pairwise(ends)], rng.choice(kinds)
        plans.append(layout(config, workers=workers, dp=dp, tp=tp, layers=layers, shard_optimizer=kind))
    return plans


@pytest.fixture(autouse=True)
def _small_parcels(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of 16 KiB, so that many travel."""
    monkeypatch.setattr(move_state, "PARCEL_ELEMENTS", 1 << 12)


@lru_cache
def undisturbed(*, tied: bool) -> Result:
    model = {**MODEL, "tie_embeddings": tied}
    return run_layout(ONE, steps=WALK, model=tuple(model.items()), **ADAM)


@pytest.mark.parametrize(
    ("tied", "kinds"),
    [(False, ("none",)), (True, ("none",)), (True, ("none", "zero1", "mirrored"))],
    ids=["untied", "tied", "tied, cut in all ways"],
)
def test_a_walk_through_random_layouts_equals_the_run_that_never_moved(tied: bool, kinds: tuple[ShardOptimizer, ...]):
    config = tiny_config(model={**MODEL, "tie_embeddings": tied}, **ADAM)
    plans = walk_of(config, seed=5 + tied, kinds=kinds)
    with thread_run(config, num_workers=9, unbuffered=True) as run:
        run.assign(plans[0])
        reports = run.train(plans[0], until=1)
        for step, (old, new) in enumerate(pairwise(plans), start=1):
            found = move(run, old=old, new=new, generation=step + 1, step=step)
            assert isinstance(found.verdict, Certified), found.verdict
            assert found.verdict.bytes_moved <= found.bytes_received <= 1.05 * found.verdict.bytes_moved
            reports += run.train(new, generation=step + 1, first=step, until=step + 1)
        weights = run.weights(plans[-1])
    for mine, other in zip(reports, undisturbed(tied=tied).reports, strict=True):
        assert (mine.loss, mine.grad_norm) == pytest.approx((other.loss, other.grad_norm), rel=1e-5)
    for name, weight in weights.items():
        assert relative(weight, undisturbed(tied=tied).weights[name]) < 1e-5, name


GROW_AND_SHRINK = {
    "shrink": ({"dp": 2, "tp": 1, "layers": [2, 2]}, {"dp": 1, "tp": 1, "layers": [3, 1]}),
    "grow, fresh workers": ({"dp": 1, "tp": 1, "layers": [4]}, {"dp": 2, "tp": 2, "layers": [1, 3]}),
    "all fresh, all leave": ({"dp": 1, "tp": 2, "layers": [4]}, {"dp": 1, "tp": 1, "layers": [2, 2]}),
    "same boxes": ({"dp": 1, "tp": 2, "layers": [2, 2]}, {"dp": 1, "tp": 2, "layers": [2, 2]}),
}


@pytest.mark.parametrize("case", GROW_AND_SHRINK)
def test_every_holder_has_the_bits_that_were_there(case: str):
    config = tiny_config(model=MODEL, **ADAM)
    before, after = GROW_AND_SHRINK[case]
    names = [f"w{n}" for n in range(10)]
    old = layout(config, workers=names, **before)
    new = layout(config, workers=names[2:] if case == "all fresh, all leave" else names, **after)
    with thread_run(config, num_workers=10, unbuffered=True) as run:
        run.assign(old)
        run.train(old, until=2)
        held = {kind: run.weights(old, kind) for kind in kinds_of(config)}
        found = move(run, old=old, new=new, generation=2, step=2)
        assert isinstance(found.verdict, Certified), found.verdict
        assert found.bytes_received <= 1.05 * found.verdict.bytes_moved
        for kind, tensors in held.items():
            moved = run.weights(new, kind)  # checks that all replicas hold the same bits
            assert all(moved[name].equal(tensor) for name, tensor in tensors.items())


def test_boxes_that_stay_are_not_sent_nor_copied():
    config = tiny_config(model=MODEL, **ADAM)
    old = layout(config, workers=["w0", "w1"], dp=1, tp=1, layers=[2, 2])
    new = layout(config, workers=["w0", "w1", "w2", "w3"], dp=2, tp=1, layers=[2, 2])
    with thread_run(config, num_workers=4) as run:
        run.assign(old)
        run.train(old, until=1)
        places = {name: [item.tensor.data_ptr() for item in run.workers[name].state.items()] for name in old.living}
        found = move(run, old=old, new=new, generation=2, step=1)
        for name in old.living:
            assert found.moved[name].bytes_received == 0
            assert [item.tensor.data_ptr() for item in run.workers[name].state.items()] == places[name]


def test_the_state_comes_from_what_is_left_of_a_plan_with_lost_teams():
    config = tiny_config(model=MODEL, **ADAM)
    whole = layout(config, workers=["w0", "w1", "w2", "w3"], dp=2, tp=1, layers=[2, 2])
    old = without_team(whole, (0, 1))  # w1 is gone
    new = layout(config, workers=["w3", "w0"], dp=1, tp=2, layers=[4])
    with thread_run(config, num_workers=4) as run:
        run.assign(old)
        run.train(old, until=1)
        held = run.weights(old, "exp_avg_sq")
        found = move(run, old=old, new=new, generation=2, step=1)
        assert isinstance(found.verdict, Certified), found.verdict
        assert all(run.weights(new, "exp_avg_sq")[name].equal(tensor) for name, tensor in held.items())


def test_the_nearest_holder_sends():
    config = tiny_config(model=MODEL, **ADAM)
    old = layout(config, workers=["w0", "w2"], dp=2, tp=1, layers=[4])
    new = layout(config, workers=["w0", "w2", "w3"], dp=3, tp=1, layers=[4])
    with thread_run(config, num_workers=4) as run:
        run.assign(old)
        run.train(old, until=1)
        found = move(run, old=old, new=new, generation=2, step=1)
    assert found.moved["w0"].bytes_sent == 0  # w2 and w3 are on one node
    assert found.moved["w2"].bytes_sent == found.moved["w3"].bytes_received > 0


def test_who_has_reduced_the_last_step_and_not_decided_it_settles_it_first():
    config = tiny_config(model=MODEL, **ADAM)
    old = layout(config, workers=["w0", "w1"], dp=2, tp=1, layers=[4])
    new = layout(config, workers=["w1", "w2"], dp=1, tp=1, layers=[2, 2])
    with thread_run(config, num_workers=3) as run:
        orders, asked = run.workers["w1"].orders, threading.Event()
        real = orders.decide

        def late(decision: Decision) -> bool:
            if decision.step == 2:
                orders.abort(1)
                asked.set()
            return real(decision)

        orders.decide = late
        run.assign(old)
        run.train(old, until=1)
        run.start(old, first=1, until=2)
        assert asked.wait(LIMIT_S)
        (report,) = run.wait_for(StepReport, workers=("w0",), generation=1)
        found = move(run, old=old, new=new, generation=2, step=2, settle=report.facts)
    assert isinstance(found.verdict, Certified), found.verdict
    assert {moved.part.step for moved in found.moved.values()} == {2}


CHANGE = ({"dp": 2, "tp": 1, "layers": [2, 2]}, {"dp": 1, "tp": 2, "layers": [1, 3]})


@pytest.mark.parametrize(("victim", "op"), [("w4", "recv"), ("w2", "send"), ("w4", "build")])
@pytest.mark.parametrize("nth", [1, 3])
def test_a_death_within_a_move_leaves_the_others_with_the_old_state(victim: str, op: str, nth: int):
    config = tiny_config(model=MODEL, **ADAM)
    old = layout(config, workers=["w0", "w1", "w2", "w3"], **CHANGE[0])
    new = layout(config, workers=["w0", "w1", "w4", "w5"], **CHANGE[1])
    with thread_run(config, num_workers=6, unbuffered=True) as run:
        run.assign(old)
        run.train(old, until=1)
        held = {name: bits(run.workers[name].state) for name in old.living}
        died = kill_at(run, victim=victim, op=op, nth=nth)
        begin_move(run, old=old, new=new, generation=2, step=1)
        assert died.wait(LIMIT_S), f"{victim} makes no {nth}th {op}"
        back = without_team(old, (1, 0)) if victim == "w2" else old
        generation = go_back(run, back, broken=2, step=1)
        assert all(same_bits(bits(run.workers[name].state), held[name]) for name in back.living)
        reports = run.train(back, generation=generation, first=1, until=2)
    assert reports[0].loss == pytest.approx(undisturbed(tied=False).reports[1].loss, rel=1e-5)


def kill_at(run: ThreadRun, *, victim: str, op: str, nth: int) -> threading.Event:
    """Kill `victim` before its nth operation `op` from here on."""
    died, count = threading.Event(), [0]

    def on_op(worker: str, key: str, name: str) -> None:
        count[0] += (worker, name) == (victim, op)
        if count[0] == nth and not died.is_set():
            died.set()
            run.hub.kill(victim)

    run.hub.on_op = on_op
    return died


def test_a_move_that_was_certified_and_not_yet_granted_can_go_on_or_be_moved_again():
    config = tiny_config(model=MODEL, **ADAM)
    plans = [layout(config, workers=["w0", "w1", "w2"], dp=1, tp=1, layers=layers) for layers in ([2, 1, 1], [1, 1, 2])]
    with thread_run(config, num_workers=3) as run:
        run.assign(plans[0])
        run.train(plans[0], until=1)
        held = run.weights(plans[0], "exp_avg")
        move(run, old=plans[0], new=plans[1], generation=2, step=1)
        again = move(run, old=plans[1], new=plans[0], generation=3, step=1)
        assert isinstance(again.verdict, Certified), again.verdict
        go_back(run, plans[0], broken=3, step=1)
        assert all(run.weights(plans[0], "exp_avg")[name].equal(tensor) for name, tensor in held.items())


def test_the_first_grant_drops_the_old_state():
    config = tiny_config(model=MODEL, **ADAM)
    old = layout(config, workers=["w0", "w1"], dp=1, tp=1, layers=[2, 2])
    new = layout(config, workers=["w0", "w1"], dp=1, tp=1, layers=[1, 3])
    with thread_run(config, num_workers=2) as run:
        run.assign(old)
        run.train(old, until=1)
        kept = [weakref.ref(run.workers[name].state.chunks[n].model.flat.data) for n, name in enumerate(old.living)]
        move(run, old=old, new=new, generation=2, step=1)
        assert all(ref() is not None for ref in kept)
        run.train(new, generation=2, first=1, until=2)
        gc.collect()
        assert all(ref() is None for ref in kept)
