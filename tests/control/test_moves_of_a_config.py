"""The brain of a config: which plans it has for a live run, what moves, and what is certified."""

from dataclasses import replace

import pytest

from raymega.control.brain import ConfigMoves, brain_of
from raymega.control.events import NodesChanged
from raymega.control.outlook import Wish
from raymega.control.states import Failed, Finished, NodeDevices, Seat, first_state
from raymega.control.transitions import decide
from raymega.errors import PlanError, StateLost
from raymega.layout.certificate import Certified, Fingerprint, Refused, StatePart, held_by
from raymega.mesh import Mesh
from raymega.plan.plan import Plan
from raymega.plan.transition import Transition
from raymega.plan.uneven import without_teams
from tests.control.fake_hands import RULES
from tests.plan.test_planner import config

SEATS = tuple(Seat(worker=f"w{n}", node=f"n{n // 2}", device=n % 2) for n in range(4))
CONFIG = config(dp=2, pp=2).model_copy(update={"model": config().model.model_copy(update={"vocab_size": 512})})
MOVES = ConfigMoves(config=CONFIG)
PLAN: Plan = MOVES.plan_for(SEATS, Wish()).plan


def transition(senders: tuple[str, ...] = PLAN.living) -> Transition:
    return Transition(old=PLAN, senders=senders, node_of={seat.worker: seat.node for seat in SEATS})


def prints(plan: Plan, worker: str) -> tuple[Fingerprint, ...]:
    held = held_by(plan, specs=MOVES.specs, workers=(worker,))[worker]
    return tuple(
        Fingerprint(name=one.name, kind=kind, box=one.box, value=one.box.num_elements)
        for one in held
        for kind in MOVES.kinds
    )


def parts(new: Plan) -> dict[str, StatePart]:
    return {
        worker: StatePart(
            worker=worker, step=9, skipped=0, position=9 * new.global_batch, lr=1e-3, updates=9,
            before=prints(PLAN, worker), after=prints(new, worker) if worker in new.living else (),
        )
        for worker in transition().members(new)
    }  # fmt: skip


def test_a_wish_is_planned_for_and_nothing_else():
    assert PLAN.mesh == Mesh(dp=2, pp=2, tp=1)
    assert MOVES.plan_for(SEATS, Wish(devices=2)).plan.mesh == Mesh(dp=1, pp=2, tp=1)
    assert MOVES.plan_for(SEATS, Wish(mesh=Mesh(dp=1, pp=2, tp=2))).plan.mesh == Mesh(dp=1, pp=2, tp=2)
    with pytest.raises(PlanError, match="does not go with"):
        MOVES.plan_for(SEATS, Wish(mesh=Mesh(dp=1, pp=1, tp=3)))


def roomy(usable_bytes: float | None) -> tuple[Seat, ...]:
    return tuple(replace(seat, usable_bytes=usable_bytes) for seat in SEATS)


def test_a_plan_that_its_devices_cannot_hold_is_none():
    assert MOVES.plan_for(roomy(1e12), Wish()).plan == MOVES.plan_for(roomy(None), Wish()).plan == PLAN
    with pytest.raises(PlanError, match="No mesh that the config allows fits"):
        MOVES.plan_for(roomy(1e3), Wish())
    assert MOVES.lacks(PLAN, roomy(1e12)) is MOVES.lacks(PLAN, roomy(None)) is None
    assert "stage 0 needs" in (MOVES.lacks(PLAN, roomy(1e3)) or "")


@pytest.mark.parametrize(("generations", "exit_code"), [(0, 4), (1, 75)])
def test_where_nothing_fits_a_run_does_not_begin_and_one_that_has_can_be_resumed(generations: int, exit_code: int):
    brain = brain_of(CONFIG, rules=RULES)
    nodes = tuple(NodeDevices(node=f"n{n}", devices=2, usable_bytes=1e3) for n in range(2))
    first = first_state(epoch=1)
    state = replace(first, story=replace(first.story, generation=first.story.next_generation - 1 + generations))
    decision = decide(brain, state, NodesChanged(nodes=nodes), 100.0)
    assert isinstance(decision.state, Failed | Finished)
    assert (decision.state.exit_code, "stage 0 needs" in decision.reason) == (exit_code, True)


def test_only_what_somebody_lacks_is_weighed():
    fewer = without_teams(PLAN, [(1, 0)])
    assert MOVES.busiest_bytes(transition(), fewer) == 0
    other = MOVES.plan_for(SEATS, Wish(mesh=Mesh(dp=1, pp=4, tp=1))).plan
    assert MOVES.busiest_bytes(transition(), other) > 0


def test_a_box_without_a_holder_cannot_move():
    with pytest.raises(StateLost, match="had no living holder"):
        MOVES.busiest_bytes(transition((PLAN.workers[0],)), PLAN)


def test_a_whole_state_is_certified_and_a_stale_one_refused():
    new = MOVES.plan_for(SEATS, Wish(mesh=Mesh(dp=1, pp=2, tp=2))).plan
    told = parts(new)
    assert isinstance(MOVES.certify(transition(), new, step=9, parts=told), Certified)
    told["w1"] = replace(told["w1"], step=8)
    assert isinstance(MOVES.certify(transition(), new, step=9, parts=told), Refused)
