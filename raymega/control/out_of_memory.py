"""What happens when a device runs out of memory in a step: the same batch in smaller micro-batches.

    w3: 8 samples do not fit   everyone leaves, and the step begins anew in twice as many micro-batches of 4
    w3: 4 samples do not fit   .. of 2
    w3: 1 sample does not fit  the run ends, resumable, and says what would keep less

Every worker has the state before the step and keeps its boxes, so nothing moves and nothing is lost. Each cut can
happen once, so it counts for no failed recovery. What is planned later keeps to the size that was found.
"""

from dataclasses import dataclass, replace

from raymega.control.broken import Leaver
from raymega.control.repairing import CannotMend, Mend
from raymega.control.states import Settling
from raymega.plan.finer import finer, next_finer
from raymega.plan.plan import Plan


@dataclass(frozen=True, slots=True, kw_only=True)
class TooLarge:
    """There are no smaller micro-batches: the run ends, with advice."""

    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Eased:
    """The break, and how the step is finished: in smaller micro-batches, if somebody has run out of memory."""

    state: Settling
    mended: Mend | CannotMend


def ease(state: Settling, mended: Mend | CannotMend) -> Eased | TooLarge:
    """Cut the micro-batches, if somebody has run out of memory; else all stays as it is."""
    short = next((said for said in state.left if said.short_of_memory), None)
    if short is None:
        return Eased(state=state, mended=mended)
    size = next_finer(state.plan)
    if size is None:
        return TooLarge(reason=_advice(short, state.plan))
    story = state.story
    told = (
        f"{short.worker} ran out of memory {short.short_of_memory}: micro-batches of {size} in the place of "
        f"{state.plan.microbatch_size} from step {story.committed + 1} on, the same batch. "
        f"Set training.micro_batch_size to {size} to begin so, or keep less with parallelism.recompute"
    )
    outlook = replace(story.outlook, most_samples=size)
    eased = replace(state, story=replace(story, outlook=outlook, recoveries=story.recoveries - 1))
    if isinstance(mended, CannotMend):
        return Eased(state=eased, mended=CannotMend(reason=f"{told}; {mended.reason}"))
    found = replace(mended.found, plan=finer(mended.found.plan, microbatch_size=size))
    return Eased(state=eased, mended=replace(mended, found=found, anew=f"{told}; {mended.anew}"))


def _advice(short: Leaver, plan: Plan) -> str:
    least = f"{plan.microbatch_size} sample{'s' if plan.microbatch_size > 1 else ''} a micro-batch"
    why = f"{plan.schedule} is a table of so many" if plan.table else "there is nothing smaller"
    more = "more stages (pipeline_model_parallel_size) or shards (tensor_model_parallel_size)"
    return (
        f"{short.worker} ran out of memory {short.short_of_memory}, with {least}, and {why}. "
        f"Set parallelism.recompute to full, use {more}, or devices with more memory; `raymega plan` says what fits"
    )
