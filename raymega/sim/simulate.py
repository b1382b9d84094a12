"""What a run would keep of a cluster whose nodes come and go: `control.loop` over simulated hands.

    config, cluster, trace --> the brain's own decisions, in virtual time --> goodput, share of linear, tokens

A week of thousands of devices takes seconds. Tensor-parallel teams live and die as one, so one simulated worker stands
for a team where nodes hold whole teams. All nodes are like the cluster's first one.
"""

import gc
import random
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import count

from raymega.config.choices import divisors
from raymega.config.schema import Config
from raymega.control.decision import Brain
from raymega.control.events import Event, StopAsked
from raymega.control.loop import run
from raymega.control.outlook import Wish
from raymega.control.policy import Rules
from raymega.control.quiet import tick_due_t
from raymega.control.states import Seat, first_state
from raymega.errors import ConfigError
from raymega.mesh import Mesh
from raymega.plan.cluster import Cluster
from raymega.plan.fitted import PUBLISHED, Constants
from raymega.plan.job import Job, job_of
from raymega.plan.parallel_layout import recompute_of
from raymega.plan.plan import Plan, WorkerId
from raymega.plan.repairs import repair_plan
from raymega.sim.agenda import Agenda
from raymega.sim.bulk import repair_in_bulk
from raymega.sim.node_trace import NodeTrace
from raymega.sim.recorder import Recorder
from raymega.sim.sim_runtime import SimHands
from raymega.sim.state_moves import SimMoves
from raymega.sim.step_clock import PlanSize, StepClock
from raymega.sim.times import Times

TICK_S = 5.0
ENDLESS = 10**9  # steps
MOST_PASSES = 2000
NEW_VALUES = 200_000  # of them Python looks for circles
LEAST_EACH = 8  # micro-batches of a replica that are told apart in larger ones


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """What is simulated.

    Args:
        config: with its vocabulary and sizes resolved.
        cluster: its first node is what every node is like.
        full_step_s: measured seconds of a step on the most nodes of the trace; None: as predicted.
        steps_s: measured seconds of a step of other plans, by mesh and workers that live.
        seed: chooses which nodes go, where the trace does not say.
        most_at_once: steps that hands tell of in one event, at most; None: as many as the brain allows. It makes no
            difference but in time.
        most_passes: micro-batches x stages of a step that are timed one by one; above, it is counted (`sim.bulk`).
    """

    config: Config
    cluster: Cluster
    trace: NodeTrace
    times: Times = field(default_factory=Times)
    constants: Constants = PUBLISHED
    full_step_s: float | None = None
    steps_s: Mapping[PlanSize, float] = field(default_factory=dict)
    seed: int = 0
    most_at_once: int | None = None
    most_passes: int = MOST_PASSES

    @property
    def job(self) -> Job:
        return job_of(self.config)

    @property
    def team(self) -> int:
        """Devices that one simulated worker stands for."""
        tp = self.config.parallelism.tensor_model_parallel_size
        return tp if isinstance(tp, int) and self.cluster.nodes[0].free % tp == 0 else 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Simulation:
    """What came of it.

    Args:
        full_step_s: of the plan on the most nodes that there were.
        ended: the reason, where the run ended before the trace.
    """

    scenario: Scenario
    seen: Recorder
    full_step_s: float
    ended: str

    @property
    def duration_s(self) -> float:
        return self.scenario.trace.end_s

    @property
    def node_devices(self) -> int:
        return self.scenario.cluster.nodes[0].free

    @property
    def tokens_per_s(self) -> float:
        return self.seen.tokens / self.duration_s

    @property
    def samples_per_s(self) -> float:
        return self.seen.steps * self.scenario.config.training.batch_size / self.duration_s

    @property
    def device_hours(self) -> float:
        """Of all that was there, used or not."""
        return self.scenario.trace.node_seconds() * self.node_devices / 3600

    @property
    def worker_hours(self) -> float:
        """Of devices with a part in a plan, which is what goodput is of."""
        return self.seen.goodput.total_s * self.scenario.team / 3600

    @property
    def spare_hours(self) -> float:
        """Of devices that were there and had no part."""
        return max(0.0, self.device_hours - self.worker_hours)

    @property
    def largest_mesh(self) -> Mesh | None:
        """Of the plans that trained, in devices; None: nothing did."""
        meshes = (stretch.plan.mesh for stretch in self.seen.stretches)
        largest = max(meshes, key=lambda mesh: mesh.size, default=None)
        return largest and replace(largest, tp=largest.tp * self.scenario.team)

    @property
    def share_of_linear(self) -> float:
        """Steps over those of as many node-seconds at the speed of the most nodes; the start is given away."""
        trace = self.scenario.trace
        start_s = (self.seen.started_s or 0.0) * trace.rows[0][1]
        return self.seen.steps * self.full_step_s * trace.most / max(1e-9, trace.node_seconds() - start_s)

    @property
    def effective_share(self) -> float:
        """Worker-seconds in committed steps, over all since the run had started."""
        spent = self.seen.goodput
        since_s = spent.total_s - spent.seconds["start"]
        return spent.share * spent.total_s / since_s if since_s > 0 else 0.0


def simulate(scenario: Scenario) -> Simulation:
    """Run the brain of `scenario.config` over the trace. Raises: ConfigError, PlanError as a launch would."""
    config = _of_teams(scenario)
    clock = StepClock(
        job=scenario.job,
        cluster=scenario.cluster,
        team=scenario.team,
        sequence_parallel=scenario.team > 1 and scenario.config.parallelism.sequence_parallel,
        microbatch_size=scenario.config.training.micro_batch_size,
        recompute=recompute_of(scenario.config),
        constants=scenario.constants,
        measured_s=_of_simulated(scenario),
    )
    moves = SimMoves(
        config=config,
        team=scenario.team,
        job=scenario.job,
        layout=clock.layout,
        usable_bytes=scenario.cluster.nodes[0].known_bytes,
    )
    full = _full_plan(scenario, moves)
    if full.num_microbatches * full.mesh.pp > scenario.most_passes:  # too many to time each of them at each loss
        clock.in_bulk, moves.config = True, _in_coarser(config, replicas=_most_replicas(scenario))
        moves.forget()
        full = _full_plan(scenario, moves)
    full_s = clock.cost(full).step_s
    if scenario.full_step_s is not None:
        clock.scale = scenario.full_step_s / full_s
        clock.forget()
    hands = SimHands(
        agenda=Agenda[Event](),
        clock=clock,
        moves=moves,
        times=scenario.times,
        tokens_per_step=scenario.job.tokens_per_step,
        most_at_once=scenario.most_at_once,
    )
    _put_down(hands, scenario)
    rules = replace(Rules.of(moves.config, validates=False), steps=ENDLESS, counts_steps=True)
    repair = repair_in_bulk if clock.in_bulk else repair_plan
    brain = Brain(rules=rules, plan_for=partial(moves.plan_for, wish=Wish()), moves=moves, repair=repair)
    seen = Recorder(end_s=scenario.trace.end_s)
    with _seldom_collected():
        over = run(first_state(epoch=1), brain=brain, hands=hands, watchers=[seen], tick_s=TICK_S, due_t=tick_due_t)
    return Simulation(
        scenario=scenario,
        seen=seen,
        full_step_s=scenario.full_step_s or full_s,
        ended="" if hands.now() >= scenario.trace.end_s else over.reason,
    )


@contextmanager
def _seldom_collected() -> Iterator[None]:
    """Thousands of workers are tens of thousands of values a turn, in no circle: to look for some takes a third."""
    before = gc.get_threshold()
    gc.set_threshold(NEW_VALUES, *before[1:])
    try:
        yield
    finally:
        gc.set_threshold(*before)


def _of_teams(scenario: Scenario) -> Config:
    """The config of simulated workers: a team of `scenario.team` devices is one of them."""
    config = scenario.config
    if scenario.cluster.free < 1 or scenario.cluster.nodes[0].free < 1:
        raise ConfigError("The first node of the cluster has no free device; a run needs one. Give it one.")
    if scenario.team == 1:
        return config
    axes = {"tensor_model_parallel_size": 1, "sequence_parallel": False}
    devices = None if config.run.devices is None else config.run.devices // scenario.team
    return config.model_copy(
        update={
            "parallelism": config.parallelism.model_copy(update=axes),
            "run": config.run.model_copy(update={"devices": devices}),
        }
    )


def _of_simulated(scenario: Scenario) -> dict[PlanSize, float]:
    """Measured steps by the plans of simulated workers."""
    team = scenario.team
    return {
        (replace(mesh, tp=mesh.tp // team), workers // team): step_s
        for (mesh, workers), step_s in scenario.steps_s.items()
        if mesh.tp % team == 0
    }


def _most_replicas(scenario: Scenario) -> int:
    """As the config asks for; as many as there are devices where their number is the planner's."""
    asked = scenario.config.parallelism.data_parallel_size
    return scenario.trace.most * scenario.cluster.nodes[0].free if asked == "auto" else asked


def _in_coarser(config: Config, *, replicas: int) -> Config:
    """The config with as many samples in a micro-batch that is told apart as leave each replica enough of them.

    A step is timed with the micro-batches of the config; only what is left of a broken one is counted in these.
    """
    batch, micro = config.training.batch_size, config.training.micro_batch_size
    sizes = [size for size in divisors(batch) if size % micro == 0 and batch // size >= LEAST_EACH * replicas]
    training = config.training.model_copy(update={"micro_batch_size": max(sizes, default=micro)})
    return config.model_copy(update={"training": training})


def _full_plan(scenario: Scenario, moves: SimMoves) -> Plan:
    """The plan on the most nodes that there are."""
    each = scenario.cluster.nodes[0].free // scenario.team
    seats = tuple(
        Seat(worker=f"w{node * each + device}", node=f"n{node}", device=device)
        for node in range(scenario.trace.most)
        for device in range(each)
    )
    return moves.plan_for(seats, Wish()).plan


def _put_down(hands: SimHands, scenario: Scenario) -> None:
    """Nodes as the trace has them, and the end. No name comes twice; which nodes go is drawn where it is not known."""
    each, trace, dice = scenario.cluster.nodes[0].free // scenario.team, scenario.trace, random.Random(scenario.seed)
    there, names, known = 0, (f"n{number}" for number in count()), dict(trace.leaving)
    for at_s, nodes in trace.rows:
        fresh = {next(names): each for _ in range(nodes - there)}
        if nodes < there:
            hands.agenda.put(at_s, partial(_leave, hands, there - nodes, known.get(at_s), dice))
        if fresh or at_s == 0:
            hands.agenda.put(at_s, partial(hands.come, fresh))
        there = nodes
    for _ in range(2):  # the second one ends it at once
        hands.agenda.put(trace.end_s, lambda: StopAsked(by="interrupt"))


def _leave(hands: SimHands, many: int, workers: tuple[WorkerId, ...] | None, dice: random.Random) -> Event | None:
    """So many nodes go: those of `workers`, then those without any; which of them is drawn. None: all are drawn."""
    there, seats = list(hands.nodes.devices), hands.nodes.seats
    gone = list(dict.fromkeys(seats[worker].node for worker in workers or () if worker in seats))[:many]
    busy = {seat.node for seat in seats.values()} if workers is not None else set[str]()
    idle = [node for node in there if node not in busy]
    for others in (idle, [node for node in there if node in busy and node not in gone]):
        gone += [others.pop(dice.randrange(len(others))) for _ in range(min(len(others), many - len(gone)))]
    return hands.go(tuple(gone))
