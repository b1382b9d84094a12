"""Moves a worker's state to where the next plan wants it, beside the old state, which stays as it is.

    settle        apply the last decision, if this worker has not yet
    fingerprint   what it holds by the old plan; of copies, what they have to be
    keep          boxes that it has already: whole chunks as they are, the rest copied
    carry         parcels to and from the others
    fingerprint   what it holds by the next plan
    tell          Moved: counters, rate, position, fingerprints, bytes

Nothing of the new state counts before the certificate that the controller makes of what all have told.
"""

import time
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from itertools import pairwise

import torch

from raymega.comm.group import Fabric, Group, GroupSpec
from raymega.config.schema import Config
from raymega.layout.certificate import Fingerprint, StatePart, held_by, sent_by
from raymega.layout.param_layout import is_tied
from raymega.layout.param_spec import ParamSpec
from raymega.layout.parcels import Pair, pair_of, parcels, rounds_of
from raymega.layout.reshard import Move, moves
from raymega.model.stage import specs_of
from raymega.plan.groups import groups_of
from raymega.plan.plan import WorkerId
from raymega.plan.transition import Transition
from raymega.train.lr_schedule import lr_at, rated
from raymega.worker.copy_slots import Slots, fingerprints
from raymega.worker.held import Held
from raymega.worker.interface import Assignment, Moved, WorkerSettings
from raymega.worker.parcel_post import Carried, Post
from raymega.worker.ruling import Constants, Rule
from raymega.worker.sources import Source, source_of
from raymega.worker.state import Counters, TrainState, kinds_of

PARCEL_ELEMENTS = 1 << 20  # 4 MiB of fp32


@dataclass(frozen=True, slots=True, kw_only=True)
class Mover:
    """One worker's part in the transition of one assignment.

    Args:
        specs: every parameter of the model.
        fabric: of the assignment's generation; its groups by the next plan are built.
    """

    assignment: Assignment
    transition: Transition
    config: Config
    specs: tuple[ParamSpec, ...]
    me: WorkerId
    fabric: Fabric
    device: torch.device

    @classmethod
    def of(cls, assignment: Assignment, *, settings: WorkerSettings, fabric: Fabric) -> "Mover":
        assert assignment.move is not None, "the assignment moves state"
        config = settings.config
        return cls(
            assignment=assignment, transition=assignment.move, config=config, specs=specs_of(config),
            me=settings.worker, fabric=fabric, device=torch.device(settings.device),
        )  # fmt: skip

    def settle(self, held: Held, *, slots: Slots) -> Source | None:
        """What to send from, brought to the step of the transition; None, and nothing held, for no sender."""
        if self.me not in self.transition.senders:
            held.take(None)
            return None
        source = source_of(self.transition, me=self.me, held=held, slots=slots)
        old, facts = source.state, self.assignment.settle
        if facts is not None and old is not None and old.committed == self.assignment.step - 1:
            constants = Constants.of(self.specs, plan=self.transition.old)
            rule = Rule(config=self.config, state=old, constants=constants, rates=lambda: self.assignment.rates)
            rule.settle(facts)
        if old is not None:
            old.check_sent(before="before a move")
        return source

    def move(self, *, old: Source | None, new: TrainState | None) -> Moved:
        """Send what others lack, fill `new`, and say what there is.

        Args:
            old: what there is by the old plan; None: this worker is no sender.
            new: made for the next plan; None: this worker has no part in it.
        Raises:
            GroupBroken, CollectiveTimeout, StaleMessage if the world changed; StateLost if nobody holds some box.
        """
        clock = [time.perf_counter()]
        before = old.fingerprints() if old is not None else ()
        clock.append(time.perf_counter())
        found = self._moves()
        groups = self._groups({pair_of(move.source, move.receiver) for move in found})
        clock.append(time.perf_counter())
        post = Post(me=self.me, generation=self.assignment.generation, source=old, target=new, device=self.device)
        mine = parcels(found, me=self.me, kinds=kinds_of(self.config), max_elements=PARCEL_ELEMENTS)
        carried = post.carry(mine, groups=groups)
        if new is not None:
            beside = old.state if old is not None else None
            new.take_over(old.items() if old is not None else (), beside=beside, counters=_known(old, carried))
        clock.append(time.perf_counter())
        after = fingerprints(tuple(new.items())) if new is not None else ()
        clock.append(time.perf_counter())
        printed, built, moved, again = (end - start for start, end in pairwise(clock))
        return Moved(
            generation=self.assignment.generation,
            part=self._part(new if new is not None else old, before=before, after=after),
            bytes_sent=carried.bytes_sent,
            bytes_received=carried.bytes_received,
            seconds={"build": built, "move": moved, "fingerprint": printed + again},
        )

    def _moves(self) -> tuple[Move, ...]:
        """Everybody's, the same for all who ask."""
        transition, plan = self.transition, self.assignment.plan
        return moves(
            old=sent_by(transition, specs=self.specs),
            new=held_by(plan, specs=self.specs, workers=plan.living),
            alive=frozenset(transition.senders),
            node_of=transition.node_of,
        )

    def _groups(self, pairs: Collection[Pair]) -> Mapping[Pair, Group]:
        """A group for each of my pairs: one that the next plan has anyway and holds both, or one of two.

        All members go by the rounds of all pairs, so each next group has both its members at it. Between GPUs messages
        go over groups of two alone, which are connected for them when they are built.
        """
        plan, generation, links = self.assignment.plan, self.assignment.generation, self.assignment.links
        planned = groups_of(plan, generation=generation, tied=is_tied(self.specs), links=links)
        most = 2 if self.device.type == "cuda" else len(plan.workers)
        fit = (group for group in planned if self.me in group.members and len(group.members) <= most)
        mine = [GroupSpec(key=group.key, members=group.members) for group in fit]
        rounds = rounds_of(pairs)
        found: dict[Pair, Group] = {}
        for pair in sorted((pair for pair in pairs if self.me in pair), key=lambda pair: (rounds[pair], pair)):
            own = GroupSpec(key=f"g{generation}/move/{pair[0]}-{pair[1]}", members=pair)
            found[pair] = self.fabric.group(next((s for s in mine if set(pair) <= set(s.members)), own))
        return found

    def _part(
        self, held: TrainState | Source | None, *, before: tuple[Fingerprint, ...], after: tuple[Fingerprint, ...]
    ) -> StatePart:
        assert held is not None, "a member of a move holds a state before it, or after it"
        counters = held.counters
        training = rated(self.config.training, self.assignment.rates, step=counters.committed)
        trained = counters.committed - counters.skipped
        return StatePart(
            worker=self.me,
            step=counters.committed,
            skipped=counters.skipped,
            position=counters.committed * training.batch_size,
            lr=lr_at(training, samples=trained * training.batch_size),
            updates=counters.updates,
            loss_scale=counters.scale.scale,
            before=before,
            after=after,
        )


def serve(assignment: Assignment, *, settings: WorkerSettings, fabric: Fabric, held: Held, slots: Slots) -> Moved:
    """The part of a sender that has none in the next plan; it keeps its state."""
    mover = Mover.of(assignment, settings=settings, fabric=fabric)
    return mover.move(old=mover.settle(held, slots=slots), new=None)


def _known(old: Source | None, carried: Carried) -> Counters:
    """Of the state that this worker held, or was sent a part of."""
    counters = old.counters if old is not None else carried.counters
    assert counters is not None, "who holds nothing yet is sent its boxes"
    return counters
