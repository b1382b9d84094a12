"""A run over the time that it was up: what it adds up to, who had which place when, what it was doing, its launches.

first launch          later, started again            time up: the pauses between launches are nobody's
|-----------------|         |-------------|     -->   |-----------------|-------------|

A value that grows with each turn (`after`), of one launch; those of several are put behind each other (`then`).
"""

from collections.abc import Collection, Iterator
from dataclasses import dataclass, replace

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
from raymega.driver.records.progress import Progress
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
    """A run up to now.

    Args:
        progress: None before its first launch.
        open: places that somebody has now; `end_s` says nothing yet.
        gone: workers that were lost in this launch.
        plan, seats: as they were when places were last looked at.
    """

    progress: Progress | None = None
    launches: tuple[Launch, ...] = ()
    stays: tuple[Stay, ...] = ()
    doings: tuple[Doing, ...] = ()
    open: tuple[Stay, ...] = ()
    gone: frozenset[WorkerId] = frozenset()
    plan: Plan | None = None
    seats: tuple[Seat, ...] = ()

    @classmethod
    def begin(cls, t: float, *, step: int) -> "History":
        """A launch at unix time `t` that goes on after `step` steps."""
        return cls(progress=Progress.begin(t), launches=(Launch(t=t, until_t=t, at_s=0.0, step=step),))

    @property
    def up_s(self) -> float:
        """How long the run was up."""
        return self.launches[-1].at_s + self.launches[-1].until_t - self.launches[-1].t if self.launches else 0.0

    def at_s(self, t: float) -> float:
        """How long it had been up at unix time `t`."""
        launch = next((one for one in reversed(self.launches) if one.t <= t), None)
        return 0.0 if launch is None else launch.at_s + t - launch.t

    def after(self, turn: Turn) -> "History":
        """The same after one more turn of the launch."""
        assert self.progress is not None, "a launch has begun"
        *before, launch = self.launches
        told = replace(
            self,
            progress=self.progress.after(turn),
            launches=(*before, replace(launch, until_t=max(launch.until_t, turn.t))),
        )
        what = doing_of(turn.before)
        if what is not None and told.up_s > self.up_s:
            told = replace(told, doings=_appended(self.doings, Doing(what=what, begin_s=self.up_s, end_s=told.up_s)))
        return told._settled(turn)

    def closed(self) -> "History":
        """Nobody leads the run from here on."""
        return replace(self._close({stay.worker for stay in self.open}), gone=frozenset(), plan=None, seats=())

    def then(self, later: "History") -> "History":
        """This run, and after a pause what `later` tells of another launch."""
        if self.progress is None or later.progress is None:
            return self if later.progress is None else later
        ended, at_s = self.closed(), self.up_s
        doings = ended.doings
        for doing in later.doings:
            doings = _appended(doings, replace(doing, begin_s=doing.begin_s + at_s, end_s=doing.end_s + at_s))
        return replace(
            later,
            progress=self.progress.then(later.progress),
            launches=(*ended.launches, *(replace(launch, at_s=launch.at_s + at_s) for launch in later.launches)),
            stays=(*ended.stays, *_shifted(later.stays, at_s)),
            doings=doings,
            open=tuple(_shifted(later.open, at_s)),
        )

    def _settled(self, turn: Turn) -> "History":
        """Places as they are after `turn`, which may have been given, taken or lost in it."""
        told, state = self, turn.decision.state
        lost = isinstance(turn.event, WorkerLost)
        if isinstance(turn.event, WorkerLost):
            told = told._close({turn.event.worker}, lost=True)
            told = replace(told, gone=told.gone | {turn.event.worker})
        plan, seats = plan_of(state), seats_of(state)
        if lost or plan is not told.plan or seats is not told.seats:
            wanted = {stay.worker: stay for stay in _places(plan, seats, gone=told.gone, at_s=told.up_s)}
            told = replace(told, plan=plan, seats=seats)._with_places(wanted)
        return told._close({stay.worker for stay in told.open}) if isinstance(state, Finished | Failed) else told

    def _with_places(self, wanted: dict[WorkerId, Stay]) -> "History":
        """Close the places that changed, open the new ones."""
        changed = {
            stay.worker for stay in self.open if stay.worker not in wanted or stay.words != wanted[stay.worker].words
        }
        told = self._close(changed)
        kept = {stay.worker for stay in told.open}
        return replace(told, open=(*told.open, *(stay for worker, stay in wanted.items() if worker not in kept)))

    def _close(self, workers: Collection[WorkerId], *, lost: bool = False) -> "History":
        ending = [stay for stay in self.open if stay.worker in workers]
        if not ending:
            return self
        now_s = self.up_s
        ended = (replace(stay, end_s=now_s, lost=lost) for stay in ending if now_s > stay.begin_s or lost)
        left = tuple(stay for stay in self.open if stay.worker not in workers)
        return replace(self, open=left, stays=(*self.stays, *ended))


def _appended(doings: tuple[Doing, ...], doing: Doing) -> tuple[Doing, ...]:
    """One more; the last goes on where it is the same."""
    if doings and doings[-1].what == doing.what and doings[-1].end_s == doing.begin_s:
        return (*doings[:-1], replace(doings[-1], end_s=doing.end_s))
    return (*doings, doing)


def _shifted(stays: tuple[Stay, ...], by_s: float) -> Iterator[Stay]:
    return (replace(stay, begin_s=stay.begin_s + by_s, end_s=stay.end_s + by_s) for stay in stays)


def _places(plan: Plan | None, seats: tuple[Seat, ...], *, gone: frozenset[WorkerId], at_s: float) -> Iterator[Stay]:
    living = set(plan.living) if plan is not None else set()
    for seat in seats:
        if seat.worker in gone:
            continue
        at = plan.coord_of(seat.worker) if plan is not None and seat.worker in living else None
        shard = f", shard {at.shard}" if at is not None and plan is not None and plan.mesh.tp > 1 else ""
        yield Stay(
            worker=seat.worker, node=seat.node, stage=at.stage if at is not None else None, begin_s=at_s, end_s=at_s,
            words=f"stage {at.stage}, replica {at.replica}{shard}" if at is not None else "standing by",
        )  # fmt: skip


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
