"""A machine that stood still comes back, and nothing that it says or sends has an effect.

SIGSTOP in mid-step   silent for a lease: lost; its machine does not answer, so nobody can end it
the step is repaired, others train on
SIGCONT               it finds its groups broken, leaves a generation that is over, and says so: refused
"""

from raymega.control.commands import WriteRepair
from raymega.control.events import GenerationLeft
from raymega.control.states import Finished
from raymega.plan.plan import WorkerId
from workloads.chaos.arena import Arena, Outcome
from workloads.chaos.hands import ProcessHands
from workloads.chaos.kills import check_undisturbed
from workloads.chaos.toy import Layout, config_of

LAYOUT = Layout(dp=2, tp=1, pp=2)
STEPS, STOPPED_AFTER = 40, 2
LIMIT_S = 60.0


def come_back(*, victim: WorkerId, wait_s: float = 0.02) -> Outcome:
    """Raises: AssertionError if the run is not as undisturbed, or the returned worker was heard."""
    config = config_of(LAYOUT, steps=STEPS, lease_s=1.0)
    devices = {f"n{number}": 1 for number in range(LAYOUT.size)}
    with Arena.open(config, devices=devices, wait_s=wait_s) as arena:
        calm = arena.run()
        found = arena.run(beside=lambda hands: _stand_still(arena, hands, victim))
        assert arena.crew.returned.is_set(), f"{victim} has not come back"
    assert isinstance(found.end, Finished), found.end
    check_undisturbed(found, calm=calm)
    assert [worker for _, worker in found.kept.lost] == [victim]
    assert found.end.story.steps_lost == 0
    repairs = [command for command in found.kept.commands if isinstance(command, WriteRepair)]
    assert len(repairs) == 1
    late = [turn for turn in found.turns if isinstance(turn.event, GenerationLeft) and turn.event.worker == victim]
    assert not late, "what it says has no effect"
    return found


def _stand_still(arena: Arena, hands: ProcessHands, victim: WorkerId) -> None:
    assert hands.wait_for(lambda: len(hands.kept.records) >= STOPPED_AFTER, LIMIT_S)
    arena.crew.strand(victim)
    assert hands.wait_for(lambda: bool(hands.kept.repairs), LIMIT_S), "it is not missed"
    arena.crew.wake(victim)
    assert arena.crew.returned.wait(LIMIT_S), "it does not come back"
