"""A run told again from its journals: every turn of every controller it had, and what they add up to.

    journal/000001.jsonl  ->  decide, decide, ..  ->  turns  ->  Progress: goodput, steps lost, recoveries
    journal/000002.jsonl  ->  ..

Nothing but the run's directory is needed: the brain is pure, so the states need not have been written down.
"""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from raymega.config.schema import Config
from raymega.control.decision import Brain, Planned
from raymega.control.loop import Turn
from raymega.control.policy import Rules
from raymega.control.states import Seat, State, first_state
from raymega.control.transitions import decide
from raymega.driver.journal import journals, read_entries, read_head
from raymega.driver.progress import Progress
from raymega.driver.run_dir import RunDirectory
from raymega.plan.planner import plan_for


def brain_of(config: Config, *, rules: Rules) -> Brain:
    """The brain of a run: its rules, and the planner over the nodes of its seats."""

    def planned(seats: tuple[Seat, ...]) -> Planned:
        return plan_for(config, workers={seat.worker: seat.node for seat in seats})

    return Brain(rules=rules, plan_for=planned)


def turns_of(file: Path, *, config: Config) -> Iterator[Turn]:
    """The turns of one controller, decided again. Raises: StateError for a journal that is broken in the middle."""
    head = read_head(file)
    brain = brain_of(config, rules=head.rules)
    state: State = first_state(epoch=head.epoch, checkpoint=head.checkpoint)
    for entry in read_entries(file):
        decision = decide(brain, state, entry.event, entry.t)
        yield Turn(seq=entry.seq, t=entry.t, before=state, event=entry.event, decision=decision)
        state = decision.state


def progress_of(run: RunDirectory) -> Progress | None:
    """Where a run stands, over all its controllers; the time between them is nobody's. None: it has no journal yet."""
    config, progress = run.read_config(), None
    for file in journals(run.journal):
        if file.stat().st_size == 0:
            continue  # its controller died before it began
        t = read_head(file).t
        if progress is None:
            progress = Progress.begin(t)
        else:
            progress = replace(progress, goodput=replace(progress.goodput, t=t))
        for turn in turns_of(file, config=config):
            progress = progress.after(turn)
    return progress
