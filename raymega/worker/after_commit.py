"""What follows from a step that is applied: whole weights, a snapshot, copies; and its picture, if that is asked for.

All of it may break, by another's death: the step is committed all the same.
"""

from dataclasses import replace

from raymega.worker.desk import Desk
from raymega.worker.interface import StepTrace
from raymega.worker.replicas import check_replicas
from raymega.worker.step import Done, Step
from raymega.worker.trace_rows import trace_rows


def follow(done: Done, *, step: Step, desk: Desk, saves: bool) -> Done:
    """Do it, and add the seconds that it held up the step. `saves`: a snapshot for a checkpoint is due.

    Raises: GroupBroken, CollectiveTimeout, StaleMessage if someone is lost; StateError if replicas differ.
    """
    state, done = step.state, step.gather(done)
    desk.sheet.commit(state.committed, wait_s=done.work.wait_s)
    desk.log.release(through_step=state.committed - 1)
    every = desk.settings.config.elastic.check_replicas_every
    if every and state.committed % every == 0:
        check_replicas(state, world=step.world)
    stall_s = desk.saves.save(state, generation=step.world.generation) if saves else 0.0
    seconds = {"snapshot": stall_s, "copies": desk.copies.committed(state)}
    return replace(done, seconds={**done.seconds, **seconds})


def trace(done: Done, *, step: Step, desk: Desk, waited: tuple[float, float]) -> None:
    """Report what was done when, if that is asked for. `waited`: for the batch, from and until."""
    committed = step.state.committed
    if committed in desk.settings.config.log.trace_steps:
        rows = trace_rows(done, waited_from=waited[0], waited_until=waited[1])
        desk.reports.add(StepTrace(step=committed, generation=step.world.generation, rows=rows))
