"""Every kill of a step: each worker, each action of its program, each phase and sum; and what must be so afterwards.

undisturbed     losses, gradient norms and weights are those of a run that nobody disturbed (law 1)
once            no step is lost or rewound; the victim died by SIGKILL and nobody else did
missing         what ran after the kill is what no living team had finished, once for each shard: by the orders of
                the brain, and by a count of the calls of forwards and backwards that no ledger knows of
"""

from collections import Counter
from collections.abc import Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace

import pytest

from raymega.config.chaos import PHASES, ChaosOrder
from raymega.control.states import Finished
from raymega.mesh import Coord
from raymega.pipeline.actions import Action, Kind, parse, work_of_step
from raymega.plan.plan import Plan, WorkerId
from raymega.plan.planner import plan_for
from raymega.plan.repairs import step_programs_of
from workloads.chaos.arena import Arena, Outcome, relative
from workloads.chaos.crew import was_killed
from workloads.chaos.toy import Layout, config_of

LAYOUTS = tuple(Layout(dp=dp, tp=tp, pp=pp) for dp, tp, pp in ((2, 1, 2), (2, 2, 1), (3, 1, 2), (2, 1, 3)))
STEPS, BROKEN = 3, 2
LAW_ONE = 1e-5


@dataclass(frozen=True, kw_only=True)
class Kill:
    """One worker's end at one point of step `BROKEN`."""

    layout: Layout
    order: ChaosOrder

    def __str__(self) -> str:
        return f"{self.layout}: {self.order}"


def devices_of(layout: Layout) -> dict[str, int]:
    """A node for each team."""
    return {f"n{number}": layout.tp for number in range(layout.dp * layout.pp)}


def plan_of(layout: Layout) -> Plan:
    """The plan that a run of `layout` begins with."""
    seats = [node for node, devices in devices_of(layout).items() for _ in range(devices)]
    workers = {f"w{number}": node for number, node in enumerate(seats)}
    return plan_for(config_of(layout, steps=STEPS), workers=workers).plan


def kills_of(layout: Layout) -> Iterator[Kill]:
    """Every worker, at every action, phase and sum of its step."""
    plan = plan_of(layout)
    for rank, program in enumerate(step_programs_of(plan)):
        coord = plan.mesh.coord(rank)
        points: list[dict[str, object]] = [{"action": f"{a.kind}{a.microbatch}"} for a in program]
        points += [{"phase": phase} for phase in PHASES if layout.is_cut or phase != "gather"] + [{"bucket": 0}]
        for point in points:
            order = ChaosOrder(
                verb="kill", stage=coord.stage, replica=coord.replica, tp=coord.shard, step=BROKEN, **point
            )  # type: ignore[arg-type]
            yield Kill(layout=layout, order=order)


def last_kills_of(layout: Layout) -> Iterator[Kill]:
    """Every worker, in the last step: as it is applied, as weights are gathered, and just before it is saved."""
    plan = plan_of(layout)
    for rank in range(plan.mesh.size):
        coord = plan.mesh.coord(rank)
        for phase in ("decide", "apply", "gather") if layout.is_cut else ("decide", "apply"):
            order = ChaosOrder(
                verb="kill", stage=coord.stage, replica=coord.replica, tp=coord.shard, step=STEPS, phase=phase
            )  # type: ignore[arg-type]
            yield Kill(layout=layout, order=order)


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """A kill that cost nothing. `bits`: the weights are those of the undisturbed run to the bit."""

    kill: Kill
    bits: bool
    repair_s: float
    recomputed: int


def opened(layout: Layout) -> AbstractContextManager[Arena]:
    """Processes for runs of `layout`; where one loss is a loss of state, it moves back from copies in peers' memory."""
    moves = layout.shard_optimizer == "zero1"
    config = config_of(layout, steps=STEPS, copies_every=1 if moves else 0)
    return Arena.open(config, devices=devices_of(layout), changes_plans=moves)


def kill(arena: Arena, case: Kill, *, calm: Outcome) -> Verdict:
    """Carry out `case` and hold the outcome to all that it must be.

    Raises: AssertionError naming what is not so, with what was decided and why as its note.
    """
    found = arena.run(orders=(str(case.order),))
    try:
        return _judged(found, case, calm=calm)
    except AssertionError as error:
        error.add_note("\n".join(turn.decision.reason for turn in found.turns if turn.decision.reason))
        raise


def _judged(found: Outcome, case: Kill, *, calm: Outcome) -> Verdict:
    plan, victim = plan_of(case.layout), victim_of(case)
    _check_end(found, victim=victim)
    check_undisturbed(found, calm=calm)
    recomputed = _check_missing(found, plan=plan, victim=victim)
    return Verdict(
        kill=case,
        bits=all(weight.equal(calm.weights[name]) for name, weight in found.weights.items()),
        repair_s=found.kept.repairs[0].actual_s,
        recomputed=recomputed,
    )


def kill_last(arena: Arena, case: Kill, *, calm: Outcome) -> str:
    """Carry out `case`, which breaks the last save or the step before it: what is saved is as undisturbed."""
    found = arena.run(orders=(str(case.order),))
    try:
        assert isinstance(found.end, Finished), found.end
        assert (found.end.exit_code, found.end.story.steps_lost, found.kept.rewound) == (0, 0, [])
        assert any(map(was_killed, found.died.values())), "nobody died"
        check_undisturbed(found, calm=calm)
    except AssertionError as error:
        error.add_note("\n".join(turn.decision.reason for turn in found.turns if turn.decision.reason))
        raise
    return f"{case}: saved by {len(found.kept.assigned[-1].plan.living)}"


def check_undisturbed(found: Outcome, *, calm: Outcome) -> None:
    """Losses, norms, samples and weights are those of the run that nobody disturbed."""
    steps, expected = list(found.kept.records), list(calm.kept.records)
    assert steps == expected, f"recorded {steps}, undisturbed {expected}"
    for step, record in calm.kept.records.items():
        other = found.kept.records[step]
        told = f"step {step}: {other}, undisturbed {record}"
        assert other.first_sample == record.first_sample, told
        assert other.loss == pytest.approx(record.loss, rel=LAW_ONE), told
        assert other.grad_norm == pytest.approx(record.grad_norm, rel=LAW_ONE), told
    for name, weight in calm.weights.items():
        assert relative(found.weights[name], weight) < LAW_ONE, name


def victim_of(case: Kill) -> WorkerId:
    """Who dies."""
    return plan_of(case.layout).worker(Coord(case.order.replica, case.order.stage, case.order.tp))  # type: ignore[arg-type]


def check_only_one_died(found: Outcome, *, victim: WorkerId) -> None:
    """The run finished, and the victim was killed and nobody else."""
    assert isinstance(found.end, Finished), found.end
    assert found.end.exit_code == 0, found.end
    by_themselves = {worker: code for worker, code in found.died.items() if code is not None}
    assert list(by_themselves) == [victim], by_themselves
    assert was_killed(by_themselves[victim]), by_themselves
    assert [worker for _, worker in found.kept.lost] == [victim], found.kept.lost


def _check_end(found: Outcome, *, victim: WorkerId) -> None:
    check_only_one_died(found, victim=victim)
    assert isinstance(found.end, Finished)
    assert found.kept.rewound == [], found.kept.rewound
    assert found.end.story.steps_lost == 0, found.end
    assert len(found.kept.repairs) == 1, found.kept.repairs


def _check_missing(found: Outcome, *, plan: Plan, victim: WorkerId) -> int:
    """What had to be done (again) of the step that broke; returns how much of it had been done before."""
    repaired = next(command for command in found.kept.assigned if command.repair)
    step, before = repaired.step + 1, found.kept.assigned[0].generation
    ordered = {worker: Counter(map(str, order.program)) for worker, order in repaired.repair.items()}
    done = {w: set(_calls(found, generation=before, step=step, worker=w)) for w in plan.workers}
    ran = {w: Counter(_calls(found, generation=repaired.generation, step=step, worker=w)) for w in plan.workers}
    for worker in plan.workers:
        asked = ordered.get(worker, Counter())
        assert ran[worker] == asked, f"{worker} ran {ran[worker]} of step {step}, it was to run {asked}"
    teams = [[plan.workers[rank] for rank in plan.team(*place)] for place in plan.teams]
    living = [team for team in teams if victim not in team]
    kept = set().union(*(set.intersection(*(done[w] for w in team)) for team in living))
    left = set(map(str, _left(plan, kept=frozenset(map(parse, kept)))))
    for shard in range(plan.mesh.tp):
        again = sum((ran[team[shard]] for team in living), Counter())
        told = f"missing of step {step} by the calls: {sorted(left)}; run for it: {sorted(again.elements())}"
        assert again == Counter(left), told
    return len(set().union(*done.values()) & left)


def _left(plan: Plan, *, kept: frozenset[Action]) -> Iterator[Action]:
    """What nobody has of a step; of a backward in two parts, the part for the weights where the other is there."""
    for forward in work_of_step(num_stages=len(plan.layers), num_microbatches=plan.num_microbatches, kinds=(Kind.F,)):
        backward, to_input, to_weights = (replace(forward, kind=kind) for kind in (Kind.B, Kind.I, Kind.W))
        yield from {forward, to_weights if to_input in kept else backward} - kept


def _calls(found: Outcome, *, generation: int, step: int, worker: WorkerId) -> list[str]:
    return [
        call.action for call in found.calls if (call.generation, call.step, call.worker) == (generation, step, worker)
    ]
