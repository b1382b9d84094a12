"""How long a step of any plan takes, and how far it is at a moment: the clock of simulated workers.

a whole plan           `plan.predict`: the real action list, collectives, update
teams are lost         the same, times the work of its busiest stage over that of the whole plan (`plan.uneven`)
a step that is mended  the programs of the repair, on the same clock
after 40 % of it       the actions of each team that have ended by then are in its ledger
"""

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from raymega.mesh import Mesh
from raymega.pipeline.actions import Action, Kind, Program
from raymega.pipeline.timeline import Span, finish_s, timeline
from raymega.plan.cluster import Cluster, Node
from raymega.plan.fitted import PUBLISHED, Constants
from raymega.plan.job import Job
from raymega.plan.parallel_layout import ParallelLayout, Recompute, layout_of
from raymega.plan.plan import Place, Plan, WorkerId, straight_routes
from raymega.plan.predict import StepSeconds, predict_layout
from raymega.plan.programs import pass_units, team_name
from raymega.plan.repairs import RepairOrder, step_programs_of
from raymega.sim.bulk import BulkStep, bulk_units
from raymega.sim.step_cost import StepCost

PlanSize = tuple[Mesh, int]
"""The mesh of a plan, and its workers that live."""


def size_of(plan: Plan) -> PlanSize:
    """What a step's time is known by."""
    return plan.mesh, len(plan.living)


@dataclass(slots=True, kw_only=True)
class StepClock:
    """Steps of one job on one kind of node.

    Args:
        cluster: all nodes are like its first.
        team: devices that one simulated worker stands for; they share a node.
        sequence_parallel: of these teams.
        microbatch_size: samples, where plans tell fewer micro-batches apart than there are.
        in_bulk: broken steps and crossing routes are counted, not timed action by action.
        scale: measured seconds of a step over predicted ones.
        measured_s: seconds of a step of plans that were measured themselves.
    """

    job: Job
    cluster: Cluster
    team: int = 1
    sequence_parallel: bool = False
    microbatch_size: int | None = None
    recompute: Recompute = "none"
    constants: Constants = PUBLISHED
    in_bulk: bool = False
    scale: float = 1.0
    measured_s: Mapping[PlanSize, float] = field(default_factory=dict)
    _whole: dict[tuple[object, ...], StepSeconds] = field(default_factory=dict)
    _costs: list[tuple[Plan, StepCost]] = field(default_factory=list)

    def cost(self, plan: Plan) -> StepCost:
        """What a step of `plan` takes. Plans are asked for again and again, so the newest is kept."""
        if not self._costs or self._costs[0][0] is not plan:
            self._costs[:] = [(plan, self._cost(plan))]
        return self._costs[0][1]

    def begin(
        self, plan: Plan, orders: Mapping[WorkerId, RepairOrder], *, left_s: float = 0.0
    ) -> "Underway | BulkStep":
        """A step, or the rest of one by `orders`."""
        cost = self.cost(plan)
        if self.in_bulk:
            return BulkStep.of(plan, orders, cost=cost, left_s=left_s)
        return Underway.of(plan, orders, cost=cost)

    def forget(self) -> None:
        """What was asked before `scale` was set does not count."""
        self._costs.clear()

    def _cost(self, plan: Plan) -> StepCost:
        whole = _whole_of(plan)
        seconds = self._seconds(whole)
        units = self._pipeline_units(plan)
        slower = units / self._pipeline_units(whole)
        ends_s = seconds.reduce_s + seconds.apply_s
        pipeline_s = (seconds.total_s - ends_s) * slower
        compute_s = (seconds.compute_s + seconds.host_s) * plan.mesh.size / len(plan.living)
        phases = {
            "compute": min(compute_s, pipeline_s),
            "reduce": seconds.exchange_s + seconds.reduce_s,
            "apply": seconds.apply_s,
        }
        step_s = pipeline_s + ends_s
        phases["wait_peer"] = max(0.0, step_s - sum(phases.values()))
        known_s = self.measured_s.get(size_of(plan))
        scale = self.scale if known_s is None else known_s / step_s
        return StepCost(
            step_s=step_s * scale,
            pipeline_s=pipeline_s * scale,
            pipeline_units=units,
            phases={name: value * scale for name, value in phases.items()},
        )

    def _pipeline_units(self, plan: Plan) -> float:
        """How long the passes of a step take on the clock of its programs, in forwards of one block."""
        if self.in_bulk:
            return bulk_units(plan, microbatches=self.job.batch_size // self.layout(plan).microbatch_size)
        by_rank = step_programs_of(plan)
        named = {team_name(*place): by_rank[plan.team(*place)[0]] for place in plan.teams}
        return finish_s(named, durations=pass_units(plan), num_stages=len(plan.layers))

    def _seconds(self, whole: Plan) -> StepSeconds:
        layout = self.layout(whole)
        key = (layout.mesh, layout.layers, layout.microbatch_size, layout.schedule, layout.sequence_parallel)
        if key not in self._whole:
            cluster, nodes = self._packed(layout.mesh)
            found = predict_layout(layout, job=self.job, cluster=cluster, nodes=nodes, constants=self.constants)
            self._whole[key] = found.seconds
        return self._whole[key]

    def layout(self, plan: Plan) -> ParallelLayout:
        """The layout on devices."""
        layout = layout_of(plan, recompute=self.recompute)
        mesh, cut = replace(layout.mesh, tp=layout.mesh.tp * self.team), self.sequence_parallel
        micro = self.microbatch_size or layout.microbatch_size
        return replace(
            layout, mesh=mesh, microbatch_size=micro, sequence_parallel=cut or layout.sequence_parallel
        )  # fmt: skip

    def _packed(self, mesh: Mesh) -> tuple[Cluster, tuple[str, ...]]:
        """Ranks filled into nodes of the kind that the cluster is made of, teams whole."""
        kind = self.cluster.nodes[0]
        each = max(1, kind.devices // mesh.tp) * mesh.tp
        nodes = tuple(f"n{rank // each}" for rank in range(mesh.size))
        many = -(-mesh.size // each)
        row = (Node(id=f"n{i}", devices=max(each, kind.devices), device=kind.device) for i in range(many))
        return Cluster(nodes=tuple(row), links=self.cluster.links), nodes


@dataclass(slots=True, kw_only=True)
class Underway:
    """A step on its way: from the beginning, or the rest of one that broke.

    Args:
        orders: of a repair; empty: the whole step.
        started_t: None: not yet.
        total_s: from its start to its commit.
    """

    plan: Plan
    orders: Mapping[WorkerId, RepairOrder]
    cost: StepCost
    started_t: float | None = None
    total_s: float = 0.0

    @classmethod
    def of(cls, plan: Plan, orders: Mapping[WorkerId, RepairOrder], *, cost: StepCost) -> "Underway":
        """Time it: a mended step runs the programs of its orders on the same clock."""
        made = cls(plan=plan, orders=orders, cost=cost, total_s=cost.step_s)
        if orders:
            made.total_s = cost.step_s - cost.pipeline_s + made._rest_s()
        return made

    def done_at(self, t: float) -> dict[Place, frozenset[Action]]:
        """The ledger of each living team."""
        if self.started_t is None:
            return {place: self._order(place).kept for place in self.plan.teams} if self.orders else {}
        passed, ledgers = t - self.started_t, {}
        for place, spans in self._spans().items():
            count = bisect_right(spans, passed, key=lambda span: span.end_s)
            kept = self._order(place).kept if self.orders else frozenset[Action]()
            ledgers[place] = kept | frozenset(span.action for span in spans[:count])
        return ledgers

    def left_s(self, t: float) -> float:
        """Nothing: the ledgers say what is left."""
        return 0.0

    def _order(self, place: Place) -> RepairOrder:
        return self.orders[self.plan.workers[self.plan.team(*place)[0]]]

    def _programs(self) -> dict[Place, Program]:
        if self.orders:
            return {place: self._order(place).program for place in self.plan.teams}
        by_rank = step_programs_of(self.plan)
        return {place: by_rank[self.plan.team(*place)[0]] for place in self.plan.teams}

    def _rest_s(self) -> float:
        plan = self.plan
        named = {team_name(*place): program for place, program in self._programs().items()}
        return finish_s(named, durations=self._durations(), num_stages=len(plan.layers))

    def _spans(self) -> dict[Place, Sequence[Span]]:
        programs = self._programs()
        named = {team_name(*place): program for place, program in programs.items()}
        found = timeline(named, durations=self._durations(), num_stages=len(self.plan.layers))
        forwards_only = {place: self._order(place).forwards_only if self.orders else frozenset() for place in programs}
        return {
            place: [span for span in found.spans[team_name(*place)] if span.action not in forwards_only[place]]
            for place in programs
        }

    def _durations(self) -> dict[tuple[int, Kind], float]:
        """Seconds of each pass, so that the whole step's pipeline takes what was predicted for it."""
        plan = self.plan
        unit_s = self.cost.pipeline_s / self.cost.pipeline_units
        return {key: unit_s * units for key, units in pass_units(plan).items()}


def _whole_of(plan: Plan) -> Plan:
    """The plan as if no team were lost."""
    routes = straight_routes(num_microbatches=plan.num_microbatches, mesh=plan.mesh)
    return replace(plan, lost=frozenset(), routes=routes)
