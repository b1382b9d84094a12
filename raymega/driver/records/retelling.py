"""What a run was asked, as a script that asks another run of its config the same after the same steps.

    journal     set(lr=1e-4), which holds from step 31 on      rewind(step=20), asked at step 45      stop, saved at 60
    script      pause after 30, wait for it, set               go on to 45, rewind                    go on to 59, stop

The other run is held where a verb took effect, so that it takes effect there again: the same losses, by law 1. Halts of
people are halts here too. Faults on purpose are asked for again; what else is lost, or leaves, is a comment: it changes
no loss curve, and nodes have other names each time.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from math import inf

from raymega.config.schema import Config
from raymega.control.commands import Answer, Finish, WriteTransition
from raymega.control.events import (
    CheckpointAsked,
    DisturbAsked,
    DrainAsked,
    ResizeAsked,
    ResumeAsked,
    RewindAsked,
    SetAsked,
    StopAsked,
    WorkerLost,
)
from raymega.control.loop import Turn
from raymega.control.policy import Rules, save_steps
from raymega.driver.records.journal import JournalHead
from raymega.driver.records.script import FORK, LAUNCH, Arguments, Line, Script

ITS_OWN = {"run": {"name", "dir"}}  # of a config, that another run has otherwise


def script_of(
    told: Iterable[tuple[JournalHead, Turn | None]], *, config: Config, directory: str, name: str
) -> tuple[Line, ...]:
    """The script by which a run `name` is asked what the run in `directory` was asked.

    Args:
        told: how each of its controllers began, and their turns (`driver.records.replay`).
        config: that lies in `directory`.
    """
    retelling = _Retelling(config=config, directory=directory, name=name)
    for head, turn in told:
        if turn is not None:
            retelling.saw(turn)
        elif head.takes_over is None:
            retelling.begins(head)
    retelling.ends()
    return tuple(retelling.script.lines)


@dataclass(frozen=True, slots=True, kw_only=True)
class Deed:
    """What is done once `step` steps are committed, while the run is held there; without `halts` only told."""

    step: int
    note: str
    calls: tuple[Line, ...] = ()
    halts: bool = True

    @property
    def sets_rate(self) -> bool:
        return any(call.verb == "set" for call in self.calls)


@dataclass(slots=True, kw_only=True)
class _Retelling:
    """What was told so far.

    Args:
        deeds: that take effect later than where the first run is.
        saved: checkpoints that the other run makes too, because it is asked to.
        committed: steps of the first run.
        resize: that is not taken up yet, with the answer to it.
        stop, over: how the launch ended, if it has.
    """

    config: Config
    directory: str
    name: str
    script: Script = field(default_factory=Script)
    deeds: list[Deed] = field(default_factory=list)
    saved: set[int] = field(default_factory=set)
    rules: Rules | None = None
    committed: int = 0
    resize: tuple[ResizeAsked, str] | None = None
    stop: StopAsked | None = None
    over: Finish | None = None

    def begins(self, head: JournalHead) -> None:
        """A launch: the first, or a later one, which goes on from a checkpoint."""
        step = head.checkpoint.step if head.checkpoint is not None else 0
        again = bool(self.script.lines)
        if again:
            self._end_before(step)
        elif step:
            self.script.note(
                f"it begins after step {step} with the checkpoint that {self.directory} has of it, which has to be "
                f"there still: raymega ckpt ls {self.directory}"
            )
        self.script.launch(self._launch(head, step=step, again=again))
        self.deeds, self.saved, self.rules, self.committed = [], {step}, head.rules, step
        self.resize, self.stop, self.over = None, None, None

    def saw(self, turn: Turn) -> None:
        """Put what was asked for, and granted, where it took effect."""
        before, after, reason = turn.before.story, turn.decision.state.story, turn.decision.reason
        accepted = any(isinstance(command, Answer) and command.accepted for command in turn.decision.commands)
        match turn.event:
            case SetAsked(lr=lr) if accepted and after.course.rates != before.course.rates:
                self._set(lr, step=after.course.rates[-1][0], note=reason)
            case CheckpointAsked() if accepted:
                for step in set(after.course.saves) - set(before.course.saves):
                    self.saved.add(step)
                    self._do(step - 1, reason, Line(verb="checkpoint"))
            case ResumeAsked() if accepted and before.course.hold == before.committed:
                self._do(before.committed, f"the run was paused after step {before.committed}")
            case ResizeAsked(request=int()) if accepted:
                self.resize = turn.event, reason
            case RewindAsked() if accepted:
                self._rewind(turn.event, step=before.committed, note=reason)
            case DisturbAsked(orders=orders, without=without) if accepted:
                named: Arguments = {} if without is None else {"without": dict(without)}
                self._do(before.committed, reason, Line(verb="chaos", words=orders, arguments=named))
            case DrainAsked() | WorkerLost():
                self._tell(f"{reason or type(turn.event).__name__} (not asked for here)")
            case StopAsked():
                self.stop = turn.event
        for command in turn.decision.commands:
            if isinstance(command, WriteTransition) and command.certified:
                self._resized(step=command.step - 1)
            elif isinstance(command, Finish):
                self.over = command
        self.committed = after.committed

    def ends(self) -> None:
        """Write down the end, or that there is none yet."""
        self._flush(inf if self.over is None else self.committed)
        if self.stop is not None and self._is_to_go_on:
            assert self.over is not None, "it has ended"
            self.script.note(self.over.reason)
            self.script.hold(self.committed - 1)
            self.script.call("stop")
            return
        if self.over is None or self._is_to_go_on:
            why = "it was not over" if self.over is None else self.over.reason
            self.script.note(f"step {self.committed}: that is all so far: {why}")
        self.script.go_to_the_end()

    @property
    def _is_to_go_on(self) -> bool:
        """Has it ended before its last step?"""
        return self.over is not None and self.over.resume_step is not None

    def _launch(self, head: JournalHead, *, step: int, again: bool) -> Line:
        if step and not again:  # it is a fork, or its journals are gone
            return Line(verb=FORK, words=(self.directory, self.name), arguments={"step": step})
        sections = _differing(head.config or self.config, self.config)
        sections["run"] = {**sections.get("run", {}), "name": self.name}
        if self.config.checkpoint.path is not None:
            sections["checkpoint"] = {**sections.get("checkpoint", {}), "path": None}
        resume: Arguments = {"resume": step or "none"} if again else {}
        arguments = {**sections, "background": True, **resume}
        return Line(verb=LAUNCH, words=(f"{self.directory}/config.yaml",), arguments=arguments)

    def _end_before(self, step: int) -> None:
        """Bring the launch so far to where the next one goes on from `step`."""
        self._flush(self.committed)
        if self.over is not None and not self._is_to_go_on:
            self.script.go_to_the_end()
            return
        why = "its controller was gone" if self.over is None else self.over.reason
        self.script.note(f"it went on from the checkpoint of step {step}, which this run has too by then, since {why}")
        self.script.hold(step - 1)
        self.script.call("stop")

    def _set(self, lr: float, *, step: int, note: str) -> None:
        """A rate that was to hold from there on, or later, never does."""
        self.deeds = [deed for deed in self.deeds if deed.step < step or not deed.sets_rate]
        self._do(step, note, Line(verb="set", arguments={"lr": lr}))

    def _resized(self, *, step: int) -> None:
        """The state goes over to another plan once `step` more one is committed: it is asked for right before."""
        if self.resize is None:
            return
        (event, note), self.resize = self.resize, None
        mesh = event.mesh
        wish = {"devices": event.devices} if mesh is None else {"dp": mesh.dp, "tp": mesh.tp, "pp": mesh.pp}
        self._do(step, note, Line(verb="resize", arguments=wish))

    def _rewind(self, event: RewindAsked, *, step: int, note: str) -> None:
        assert self.rules is not None, "a turn comes after a beginning"
        self._flush(step)
        self.script.note(note)
        kept = {*self.saved, *save_steps(self.rules, after=0, until=step)}
        if event.to.step not in kept:
            self.script.note("not again: that checkpoint was made in the place of one that a loss had broken")
            return
        self.script.hold(step)
        self.script.call("wait", saved=max(one for one in kept if one <= step))  # then none is just being published
        self.script.rewind(event.to.step)

    def _do(self, step: int, note: str, *calls: Line) -> None:
        self.deeds.append(Deed(step=max(1, step), note=note, calls=calls))

    def _tell(self, note: str) -> None:
        self.deeds.append(Deed(step=self.committed, note=f"step {self.committed}: {note}", halts=False))

    def _flush(self, until: float) -> None:
        """Write down what takes effect up to there, in the order of steps."""
        due = sorted((deed for deed in self.deeds if deed.step <= until), key=lambda deed: deed.step)
        self.deeds = [deed for deed in self.deeds if deed.step > until]
        for deed in due:
            self.script.note(deed.note)
            is_past = self.script.at is not None and deed.step < self.script.at
            if deed.halts and is_past:
                self.script.note(f"not again: the run is past step {deed.step} here")
            elif deed.halts:
                self.script.hold(deed.step)
                self.script.lines += deed.calls


def _differing(config: Config, base: Config) -> dict[str, Arguments]:
    """The sections of `config`, as far as they are not as in `base`."""
    mine, others = config.model_dump(mode="json"), base.model_dump(mode="json")
    found = {
        section: {
            key: value
            for key, value in values.items()
            if value != others[section][key] and key not in ITS_OWN.get(section, ())
        }
        for section, values in mine.items()
    }
    return {section: values for section, values in found.items() if values}
