"""Whatever is late, dies, stalls or returns: a step commits everywhere or nowhere, and the living finish."""

import random
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from raymega.errors import RaymegaBug
from tests.control.protocol_model import World
from tests.control.protocol_worker import Applied, Fault, Message


def late(*kinds: str, to: str = "") -> Callable[[Message], bool]:
    """Messages that are long on the way: of these kinds, to one or to all."""
    return lambda message: message.kind in kinds and message.to in (to or message.to)


def kill(world: World, name: str) -> None:
    world.workers[name].alive = False


def everybody_sent_facts(world: World) -> bool:
    return any(message.kind == "decide" for message in world.messages)


def release(world: World, *, to: str) -> None:
    for message in [m for m in world.messages if m.kind == "decide" and m.to == to]:
        world.deliver(message)


def first_steps(world: World) -> set[Applied]:
    """What the living have applied as their first step."""
    return {worker.history[0] for worker in world.workers.values() if worker.alive and worker.history}


def hold_a_decision(fault: Fault) -> World:
    """w0 answers the next generation before its decision comes; nobody else who lives has decided."""
    world = World(num_workers=3, fault=fault)
    world.waits = late("decide")
    world.until(lambda: everybody_sent_facts(world))
    kill(world, "w2")
    w0 = world.workers["w0"]
    world.until(lambda: w0.promised > w0.generation or w0.half_promised)
    release(world, to="w0")
    return world


def rule_before_the_last_promise(fault: Fault) -> World:
    """w1 has applied the step, but its answer is late, as is what it reported."""
    world = World(num_workers=3, fault=fault)
    world.waits = late("decide", to="w0")
    world.until(lambda: world.workers["w1"].held.step == 1)
    world.waits = lambda m: (m.kind in ("done", "promise") and m.sender == "w1") or (m.kind, m.to) == ("decide", "w0")
    kill(world, "w2")
    world.until(lambda: not world.moves() or len(world.journal.rulings) > 1)
    return world


def lose_a_worker_between_two_buckets(fault: Fault) -> World:
    world = World(num_workers=3, fault=fault)
    world.waits = lambda message: message.kind == "bucket" and message.bucket == 1
    world.until(lambda: all(0 in worker.sums for worker in world.workers.values()))
    kill(world, "w2")
    return world


def return_after_the_ruling(fault: Fault) -> World:
    """w2 stalls before its decision comes, is fenced, returns, decides alone, and tells; then w1 is lost."""
    world = World(num_workers=3, fault=fault)
    world.waits = late("decide")
    world.until(lambda: everybody_sent_facts(world))
    world.workers["w2"].stalled = True
    world.until(lambda: len(world.journal.rulings) == 2)
    world.workers["w2"].stalled = False
    release(world, to="w2")
    world.until(lambda: world.workers["w2"].held.step == 1 and not [m for m in world.messages if m.kind == "done"])
    kill(world, "w1")
    return world


def stall_the_controller_and_replace_it(fault: Fault) -> World:
    """The first controller has ruled and told nobody; the second one rules as well; then the first goes on."""
    world = World(num_workers=3, fault=fault)
    kill(world, "w2")
    world.until(lambda: len(world.journal.rulings) == 1)
    world.controller.stalled = True
    world.new_controller()
    world.until(lambda: world.workers["w0"].generation == world.controller.generation)
    world.controllers[0].stalled = False
    return world


def lose_a_worker_while_another_has_decided_and_not_applied(fault: Fault) -> World:
    world = World(num_workers=3, fault=fault)
    world.waits = late("decide", to="w1")
    world.until(lambda: world.workers["w0"].pending)
    kill(world, "w2")
    w0 = world.workers["w0"]
    world.deliver_next_ask(to="w0")
    assert w0.promised > w0.generation
    return world


SCENES = {
    Fault.LATE_PACKET_APPLIES: hold_a_decision,
    Fault.PROMISE_NOT_UNDER_ONE_LOCK: hold_a_decision,
    Fault.RULES_TOO_EARLY: rule_before_the_last_promise,
    Fault.BUCKET_STAYS: lose_a_worker_between_two_buckets,
    Fault.RETURNED_WORKER_IS_HEARD: return_after_the_ruling,
    Fault.OLD_CONTROLLER_IS_OBEYED: stall_the_controller_and_replace_it,
    Fault.DECISION_IS_FORGOTTEN: lose_a_worker_while_another_has_decided_and_not_applied,
}


@pytest.mark.parametrize("scene", dict.fromkeys(SCENES.values()), ids=lambda scene: scene.__name__)
def test_the_living_finish_and_agree(scene: Callable[[Fault], World]) -> None:
    world = scene(Fault.NONE)
    world.settle()
    assert len(first_steps(world) - {None}) >= 1


@pytest.mark.parametrize(("fault", "scene"), SCENES.items(), ids=lambda value: getattr(value, "name", ""))
def test_a_planted_fault_is_noticed(fault: Fault, scene: Callable[[Fault], World]) -> None:
    with pytest.raises((AssertionError, RaymegaBug)):
        scene(fault).settle()


def test_every_fault_has_its_scene() -> None:
    assert set(SCENES) == set(Fault) - {Fault.NONE}


def test_a_decision_held_back_until_after_the_promise_has_no_effect() -> None:
    world = hold_a_decision(Fault.NONE)
    assert world.workers["w0"].decided is None
    world.settle()
    assert {applied.version.generation for applied in first_steps(world)} == {world.controller.generation}


def test_what_another_has_decided_is_applied_by_the_one_whose_decision_was_held_back() -> None:
    world = World(num_workers=3)
    world.waits = late("decide", to="w0")
    world.until(lambda: world.workers["w1"].held.step == 1)
    kill(world, "w2")
    world.settle()
    assert world.journal.rulings[1][0].apply == ("w0",)
    assert len(first_steps(world)) == 1


def test_a_commit_that_was_reported_is_applied_though_its_worker_is_lost() -> None:
    world = World(num_workers=3)
    world.waits = lambda message: message.kind == "decide" and message.to != "w2"
    world.until(lambda: world.controller.heard)
    kill(world, "w2")
    world.settle()
    assert world.journal.rulings[1][0].apply == ("w0", "w1")
    assert world.workers["w0"].history[0] == world.workers["w2"].history[0]


def test_a_worker_lost_between_two_buckets_is_in_neither() -> None:
    world = lose_a_worker_between_two_buckets(Fault.NONE)
    world.settle()
    (applied,) = first_steps(world)
    assert {name for bucket in applied.sums for _, name in bucket} == {"w0", "w1"}


def test_the_ledgers_of_the_living_keep_everything() -> None:
    world = World(num_workers=3)
    world.until(lambda: sum(len(worker.computed) for worker in world.workers.values()) == 3)
    before = {(m, name) for name, worker in world.workers.items() if name != "w2" for m in worker.computed}
    kill(world, "w2")
    world.settle()
    (applied,) = first_steps(world)
    assert before
    assert before <= set(applied.sums[0])


def test_a_worker_that_repairs_may_be_lost_too() -> None:
    world = World(num_workers=3)
    world.until(lambda: world.workers["w2"].computed)
    kill(world, "w2")
    world.until(
        lambda: any(len(worker.quota) > 2 or worker.members == ("w0", "w1") for worker in world.workers.values())
    )
    kill(world, "w1")
    world.settle()
    (applied,) = first_steps(world)
    assert {name for _, name in applied.sums[0]} == {"w0"}


@pytest.mark.parametrize("applied", [False, True])
def test_a_worker_lost_during_a_skipped_step_changes_nothing(applied: bool) -> None:
    world = World(num_workers=3, skipped=(0,))
    world.waits = late("decide", to="w0")
    world.until(lambda: world.workers["w1"].held.step == 1 if applied else everybody_sent_facts(world))
    kill(world, "w2")
    world.settle()
    assert {step.facts for step in first_steps(world)} == {b"skip"}


def test_a_replaced_controller_that_returns_is_refused() -> None:
    world = stall_the_controller_and_replace_it(Fault.NONE)
    world.settle()
    assert len(first_steps(world)) == 1
    assert {worker.generation // 1_000_000 for worker in world.workers.values() if worker.alive} == {2}


def test_a_fenced_worker_that_returns_takes_no_part() -> None:
    world = return_after_the_ruling(Fault.NONE)
    world.settle()
    assert world.workers["w2"].history[0] != world.workers["w0"].history[0]
    assert all("w2" not in members for _, members in world.journal.rulings[1:])


def test_controller_and_worker_may_be_lost_together_in_every_phase() -> None:
    for moves in range(0, 60, 2):
        world = World(num_workers=3)
        for _ in range(moves):
            world.moves()[0]()
        kill(world, "w1")
        world.controller.alive = False
        world.settle()
        assert world.workers["w0"].held.step == world.steps


@given(
    seed=st.integers(0, 10**9),
    num_workers=st.integers(2, 4),
    rarity=st.sampled_from([4, 8, 20]),
    skipped=st.sets(st.integers(0, 2), max_size=1),
)
@settings(max_examples=40, deadline=None)
def test_any_interleaving_commits_everywhere_or_nowhere(
    seed: int, num_workers: int, rarity: int, skipped: set[int]
) -> None:
    rng, world = random.Random(seed), World(num_workers=num_workers, skipped=tuple(skipped))
    world.walk((rng.randrange(10**6) for _ in range(rng.randint(20, 200))), rarity=rarity)
    world.settle()
