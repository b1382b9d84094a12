"""How far workers may run without asking, and what is saved and evaluated on the way there."""

from dataclasses import replace

from raymega.control.commands import AssignPlan, Command, Evaluate, Grant
from raymega.control.decision import Decision
from raymega.control.policy import Rules, eval_steps, granted_until, save_steps
from raymega.control.quiet import quiet_after
from raymega.control.states import SavesUnderway, Training


def grant_on(rules: Rules, training: Training) -> tuple[Training, tuple[Command, ...]]:
    """Extend the leave as policy has it, never beyond the boundary of a change, nor where the run is held."""
    until = granted_until(
        committed=training.story.committed, granted=training.granted, recent_step_s=training.recent_step_s,
        steps=rules.steps,
    )  # fmt: skip
    return _grant(rules, training, until=until)


def grant_next(rules: Rules, training: Training) -> tuple[Training, tuple[Command, ...]]:
    """Leave for the one step that everybody waits for, so that a change that is found next can come right after it."""
    return _grant(rules, training, until=max(training.granted, training.story.committed + 1))


def _grant(rules: Rules, training: Training, *, until: int) -> tuple[Training, tuple[Command, ...]]:
    story, granted = training.story, training.granted
    if training.change is not None and training.change.boundary is not None:
        until = max(granted, min(until, training.change.boundary))
    hold = story.course.hold
    if hold is not None:
        until = max(granted, min(until, hold))
    if until == granted:
        again = quiet_after(rules, training)
        return training, () if again is None else (Grant(generation=story.generation, until=granted, quiet=again),)
    asked = (step for step in story.course.saves if granted < step <= until)
    save_at = tuple(sorted({*save_steps(rules, after=granted, until=until), *asked}))
    due = eval_steps(rules, after=granted, until=until)
    evaluations = tuple(Evaluate(generation=story.generation, after_step=step) for step in due)
    boundary = training.change.boundary if training.change is not None else None
    full_at = (boundary,) if rules.codes and boundary is not None and granted < boundary <= until else ()
    underway = tuple(SavesUnderway(step=step) for step in save_at)
    training = replace(training, granted=until, saves=training.saves + underway)
    quiet = quiet_after(rules, training)
    grant = Grant(generation=story.generation, until=until, save_at=save_at, full_at=full_at, quiet=quiet)
    return training, (*evaluations, grant)


def with_rates(decision: Decision) -> Decision:
    """The same, with the rates of learning wherever leave or a place is given."""
    rates = decision.state.story.course.rates
    if not rates:
        return decision
    told = (replace(one, rates=rates) if isinstance(one, Grant | AssignPlan) else one for one in decision.commands)
    return replace(decision, commands=tuple(told))
