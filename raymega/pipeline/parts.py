"""What becomes of a backward in two parts when the step breaks between them.

    ledger     2F0 2I0 2W0 2F1 2I1        the gradient of micro-batch 0 counts, that of 1 does not yet
    living     2W1 is left                no other team can run it: this one has what 2I1 kept for it
    lost       2B1 is missing             as is all that the lost team did; it is run in one

To others an input's part is the backward: it made what they take in, and its own team owes the rest. So a repair is
planned in whole backwards, and what is owed is put in front: it frees activations, and waits for nobody.
"""

from collections.abc import Collection

from raymega.pipeline.actions import Action, Kind
from raymega.pipeline.missing import TeamReport


def whole(action: Action) -> Action:
    """The backward that a part belongs to; anything else as it is."""
    return Action(action.stage, Kind.B, action.microbatch) if action.kind in (Kind.I, Kind.W) else action


def joined(report: TeamReport) -> TeamReport:
    """A team's report with whole backwards in place of inputs' parts."""
    return TeamReport(
        stages=report.stages,
        done=frozenset(map(whole, report.done)),
        logged=frozenset(map(whole, report.logged)),
        spoiled=report.spoiled,
    )


def owed(done: Collection[Action]) -> tuple[Action, ...]:
    """The weights' parts whose inputs' parts are done, in the order in which their micro-batches came."""
    parts = [Action(a.stage, Kind.W, a.microbatch) for a in done if a.kind is Kind.I]
    return tuple(sorted((a for a in parts if a not in done), key=lambda a: (a.microbatch, -a.stage)))
