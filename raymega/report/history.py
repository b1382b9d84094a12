"""A run over the time that it was up: who had which place when, what the run was doing, when it was started again.

first launch          later, started again            time up: the pauses between launches are nobody's
|-----------------|         |-------------|     -->   |-----------------|-------------|
"""

from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from raymega.control.events import WorkerLost
from raymega.control.loop import Turn
from raymega.control.states import (
    Failed,
    Finished,
    Moving,
    Restoring,
    Saving,
    Seat,
    Settling,
    State,
    Stopping,
    Training,
    plan_of,
    seats_of,
)
from raymega.driver.records.accounting import progress_along
from raymega.driver.records.journal import JournalHead
from raymega.driver.records.progress import Progress
from raymega.driver.records.run_dir import RunDirectory
from raymega.pictures.meshes import Doing, Stay
from raymega.plan.plan import Plan, WorkerId


@dataclass(frozen=True, slots=True, kw_only=True)
class Launch:
    """A start of the run at unix time `t`, `at_s` into its time up, after `step` steps. `until_t`: its last turn."""

    t: float
    until_t: float
    at_s: float
    step: int


@dataclass(frozen=True, slots=True, kw_only=True)
class History:
    """A run up to now. `progress`: None before its first turn."""

    progress: Progress | None = None
    launches: tuple[Launch, ...] = ()
    stays: tuple[Stay, ...] = ()
    doings: tuple[Doing, ...] = ()

    @property
    def up_s(self) -> float:
        """How long the run was up."""
        return self.launches[-1].at_s + self.launches[-1].until_t - self.launches[-1].t if self.launches else 0.0

    def at_s(self, t: float) -> float:
        """How long it had been up at unix time `t`."""
        launch = next((one for one in reversed(self.launches) if one.t <= t), None)
        return 0.0 if launch is None else launch.at_s + t - launch.t


def history_of(run: RunDirectory) -> History:
    """Told from the journals of a run. Raises: StateError for one that is broken."""
    told = _Told()
    for head, turn, told.progress in progress_along(run):
        if turn is not None:
            told.saw(turn)
        elif head.takes_over is None:
            told.began(head)
    told.pause()
    return History(
        progress=told.progress, launches=tuple(told.launches), stays=tuple(told.stays), doings=tuple(told.doings)
    )


@dataclass(slots=True)
class _Told:
    """What was told so far; `open`: who has a place now, since when."""

    progress: Progress | None = None
    launches: list[Launch] = field(default_factory=list)
    stays: list[Stay] = field(default_factory=list)
    doings: list[Doing] = field(default_factory=list)
    open: dict[WorkerId, Stay] = field(default_factory=dict)
    gone: set[WorkerId] = field(default_factory=set)
    plan: Plan | None = None
    seats: tuple[Seat, ...] = ()

    def began(self, head: JournalHead) -> None:
        """A launch from a checkpoint, or the first."""
        self.pause()
        step = head.checkpoint.step if head.checkpoint is not None else 0
        self.launches.append(Launch(t=head.t, until_t=head.t, at_s=self.now_s, step=step))

    def pause(self) -> None:
        """Nobody leads the run from here on."""
        self._close(list(self.open))
        self.gone, self.plan, self.seats = set(), None, ()

    @property
    def now_s(self) -> float:
        if not self.launches:
            return 0.0
        launch = self.launches[-1]
        return launch.at_s + launch.until_t - launch.t

    def saw(self, turn: Turn) -> None:
        before_s = self.now_s
        launch = self.launches[-1]
        self.launches[-1] = replace(launch, until_t=max(launch.until_t, turn.t))
        what = doing_of(turn.before)
        if what is not None and self.now_s > before_s:
            self._did(what, before_s)
        state = turn.decision.state
        if isinstance(turn.event, WorkerLost):
            self._close([turn.event.worker], lost=True)
            self.gone.add(turn.event.worker)
        plan, seats = plan_of(state), seats_of(state)
        if plan is not self.plan or seats is not self.seats or isinstance(turn.event, WorkerLost):
            self.plan, self.seats = plan, seats
            self._settle({stay.worker: stay for stay in self._places(plan, seats)})
        if isinstance(state, Finished | Failed):
            self._close(list(self.open))

    def _did(self, what: str, since_s: float) -> None:
        last = self.doings[-1] if self.doings else None
        if last is not None and last.what == what and last.end_s == since_s:
            self.doings[-1] = replace(last, end_s=self.now_s)
        else:
            self.doings.append(Doing(what=what, begin_s=since_s, end_s=self.now_s))

    def _places(self, plan: Plan | None, seats: tuple[Seat, ...]) -> Iterator[Stay]:
        living = set(plan.living) if plan is not None else set()
        for seat in seats:
            if seat.worker in self.gone:
                continue
            at = plan.coord_of(seat.worker) if plan is not None and seat.worker in living else None
            shard = f", shard {at.shard}" if at is not None and plan is not None and plan.mesh.tp > 1 else ""
            yield Stay(
                worker=seat.worker, node=seat.node, stage=at.stage if at is not None else None,
                begin_s=self.now_s, end_s=self.now_s,
                words=f"stage {at.stage}, replica {at.replica}{shard}" if at is not None else "standing by",
            )  # fmt: skip

    def _settle(self, wanted: dict[WorkerId, Stay]) -> None:
        """Close the places that changed, open the new ones."""
        changed = [
            worker for worker, stay in self.open.items() if worker not in wanted or stay.words != wanted[worker].words
        ]
        self._close(changed)
        for worker, stay in wanted.items():
            self.open.setdefault(worker, stay)

    def _close(self, workers: list[WorkerId], *, lost: bool = False) -> None:
        for worker in workers:
            stay = self.open.pop(worker, None)
            if stay is not None and (self.now_s > stay.begin_s or lost):
                self.stays.append(replace(stay, end_s=self.now_s, lost=lost))


def doing_of(state: State) -> str | None:
    """What a run in `state` is doing, for people; None: nothing any more."""
    match state:
        case Training() | Stopping():
            training = state if isinstance(state, Training) else state.training
            return "training" if training.repair is None else "repairing"
        case Restoring() | Settling():
            return "repairing"
        case Moving():
            return "moving state"
        case Saving():
            return "saving"
        case Finished() | Failed():
            return None
        case _:
            return "starting"
