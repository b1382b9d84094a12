"""What the hands tell the workers of a generation, and what they take for news."""

from collections.abc import Iterator
from types import SimpleNamespace

import pytest

from raymega.config.schema import TrainingConfig
from raymega.control.arbitration import Decided, Version
from raymega.control.commands import AbortGeneration, AssignPlan, Grant
from raymega.driver.hands.membership import Membership
from raymega.driver.hands.translate import event_of
from raymega.layout.certificate import StatePart
from raymega.pipeline.actions import parse_program
from raymega.pipeline.missing import TeamReport
from raymega.plan.plan import Plan
from raymega.plan.repairs import PlanRepair, orders_of, repair_plan, stages_of
from raymega.plan.transition import Transition
from raymega.worker.interface import Assignment, Decision, EvalReport, GenerationBroken, Moved, Ready, StepReport
from tests.driver.test_feeder import Mail, plan_of

FACTS = Decided(version=Version(step=7, generation=1), facts=b"\x01\x02")


class Post:
    """Takes the orders to the workers."""

    def __init__(self) -> None:
        self.sent: list[tuple[str, str, tuple[object, ...]]] = []

    def send(self, worker: str, order: str, *arguments: object) -> None:
        self.sent.append((worker, order, arguments))

    def assignments(self) -> dict[str, Assignment]:
        return {worker: arguments[0] for worker, order, arguments in self.sent if order == "start"}


@pytest.fixture
def post() -> Post:
    return Post()


@pytest.fixture
def membership(post: Post) -> Iterator[Membership]:
    mail = Mail()
    mail.feeder.close()
    made = Membership(
        post, make_sources=mail.sources, rendezvous=SimpleNamespace(address=("127.0.0.1", 1)), eval_batches=0,
        training=TrainingConfig(), failed=mail.errors.put,
    )  # fmt: skip
    yield made
    made.close()


def report(step: int, *, generation: int = 1, skipped: bool = False) -> StepReport:
    return StepReport(
        step=step, generation=generation, loss=1.0, grad_norm=1.0, lr=1e-3, tokens=64, skipped=skipped, step_s=0.1,
        t=0.0, facts=b"\x01\x02",
    )  # fmt: skip


def repaired(plan: Plan) -> PlanRepair:
    """The rest of a step whose worker w3 is gone."""
    found = repair_plan(plan, reports={w: TeamReport(stages=stages_of(plan, plan.coord_of(w).stage)) for w in W[:3]})
    assert isinstance(found, PlanRepair)
    return found


W = ("w0", "w1", "w2", "w3")
PLAN = plan_of(dp=2, pp=2)
FIRST = AssignPlan(generation=1, plan=PLAN, step=5, checkpoint=None)
FOUND = repaired(PLAN)
REPAIR = AssignPlan(
    generation=2, plan=FOUND.plan, step=7, checkpoint=None, keep_state=True, settle=FACTS, repair=orders_of(FOUND),
    links=tuple(sorted(FOUND.links)),
)  # fmt: skip
MOVE = AssignPlan(
    generation=2, plan=plan_of(dp=1, pp=2), step=7, checkpoint=None, settle=FACTS,
    move=Transition(old=PLAN, senders=W, node_of=dict.fromkeys(W, "n0")),
)  # fmt: skip


def test_each_living_worker_gets_its_own_part_of_a_repair(post, membership):
    membership.assign(FIRST)
    post.sent.clear()
    membership.assign(REPAIR)
    told = post.assignments()
    assert set(told) == {"w0", "w1", "w2"}
    assert {worker: one.repair for worker, one in told.items()} == dict(REPAIR.repair)
    assert {(one.settle, one.keep_state, one.links) for one in told.values()} == {(b"\x01\x02", True, REPAIR.links)}


def test_a_generation_is_ready_without_those_that_are_lost(membership):
    membership.assign(FIRST)
    membership.assign(REPAIR)
    ready = Ready(generation=2, committed=7, seconds={})
    assert [membership.is_complete_with(worker, ready) for worker in W[:3]] == [False, False, True]


def test_a_commit_is_told_once_whoever_tells_of_it(membership):
    membership.assign(FIRST)
    assert [membership.is_news(report(step)) for step in (6, 7, 6, 7)] == [True, True, False, False]
    assert not membership.is_news(report(8, generation=3))


def test_a_validation_is_told_once_whoever_tells_of_it(membership):
    membership.assign(FIRST)
    losses = [EvalReport(after_step=step, generation=1, loss=5.0, tokens=8) for step in (5, 5, 6, 5)]
    assert [membership.is_news(loss) for loss in losses] == [True, False, True, False]
    assert not membership.is_news(EvalReport(after_step=7, generation=3, loss=5.0, tokens=8))


def test_skipped_steps_outlive_a_repair_but_not_a_return_to_a_checkpoint(membership):
    membership.assign(FIRST)
    membership.is_news(report(6, skipped=True))
    membership.is_news(report(7))
    membership.assign(REPAIR)
    assert membership.counted(generation=2, step=7).skipped == 1
    membership.assign(AssignPlan(generation=3, plan=PLAN, step=0, checkpoint=None))
    assert membership.counted(generation=3, step=0).skipped == 0


def test_a_promise_reaches_the_brain_whole():
    work = TeamReport(stages=(0,), done=frozenset(parse_program("0F0 0B0")))
    decided = Decision(step=7, generation=1, facts=b"\x01\x02")
    left = GenerationBroken(generation=1, reason="r", committed=7, decided_in=1, decided=decided, work=work)
    event = event_of("w1", left)
    assert (event.committed, event.decided_in, event.decided, event.work) == (7, 1, FACTS, work)


def test_those_that_only_send_have_a_part_in_a_move_until_its_first_grant(post, membership):
    membership.assign(FIRST)
    post.sent.clear()
    membership.assign(MOVE)
    membership.grant(Grant(generation=2, until=9))
    membership.abort(AbortGeneration(generation=2, reason="w9 is lost", lost=("w9",)))
    assert {worker: one.move for worker, one in post.assignments().items()} == dict.fromkeys(W, MOVE.move)
    assert [worker for worker, order, _ in post.sent if order == "grant"] == list(W)
    assert [worker for worker, order, _ in post.sent if order == "abort"] == list(W)


def test_a_worker_that_is_sent_its_state_is_told_how_many_steps_were_skipped(post, membership):
    membership.assign(FIRST)
    membership.is_news(report(6, skipped=True))
    membership.is_news(report(7))
    membership.assign(MOVE)
    assert membership.counted(generation=2, step=7).skipped == 1
    assert {(one.skipped, one.keep_state) for one in post.assignments().values() if one.generation == 2} == {(1, False)}


def test_a_part_that_has_moved_reaches_the_brain_whole():
    part = StatePart(worker="w1", step=7, skipped=0, position=56, lr=1e-3, updates=7, before=(), after=())
    event = event_of("w1", Moved(generation=2, part=part, bytes_sent=1, bytes_received=9, seconds={"move": 0.2}))
    assert (event.worker, event.generation, event.part) == ("w1", 2, part)
    assert (event.bytes_received, event.seconds) == (9, {"move": 0.2})
