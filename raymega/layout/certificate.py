"""Is the state that workers hold after a transition the one that they held before? Pure: from what they say, a verdict.

    before   w0 0:4 a   w1 4:8 b                  after   w0 0:2 c   w1 2:4 d   w2 4:8 e
             each element once: a + b       =             each element once: c + d + e          of every tensor and kind

A fingerprint is a sum over elements, so it does not hang on how a tensor is cut; copies of one box must have the same.
Counters, rate and position must be equal everywhere. Whatever is not is named, and nothing of the new state counts.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from math import prod

from raymega.config.fault import are, counted, does
from raymega.layout.param_layout import holdings
from raymega.layout.param_spec import ParamSpec
from raymega.layout.reshard import Layout, moves
from raymega.layout.shard_box import Box, uncovered
from raymega.plan.plan import Plan, WorkerId
from raymega.plan.transition import Transition

MODULUS = 1 << 64
ELEMENT_BYTES = 4  # every kind of state is fp32
Key = tuple[str, str, Box]  # name, kind, box


@dataclass(frozen=True, slots=True, kw_only=True)
class Fingerprint:
    """Of one held box: `value` is the sum mod 2^64 over its elements of a hash of (bits, global index)."""

    name: str
    kind: str
    box: Box
    value: int


@dataclass(frozen=True, slots=True, kw_only=True)
class StatePart:
    """What one worker holds around a transition, by its own reading.

    Args:
        step: committed steps that its state has seen.
        skipped: skipped steps among them.
        position: samples consumed; the next step begins with this one.
        lr: rate of the update that leads to its state.
        updates: updates that its optimizers have made.
        loss_scale: of the next step.
        before: of all that it held by the old plan; empty if it held nothing. Those of a copy are its owner's.
        after: of all that it holds by the new plan; empty if it has no part in it.
    """

    worker: WorkerId
    step: int
    skipped: int
    position: int
    lr: float
    updates: int
    before: tuple[Fingerprint, ...]
    after: tuple[Fingerprint, ...]
    loss_scale: float = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Certified:
    """The new state is the old one. `bytes_moved`: what had to travel, the least that is possible."""

    reason: str
    bytes_moved: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Refused:
    """The new state is not the old one, or nobody can tell; each fault is a sentence."""

    faults: tuple[str, ...]


def certify(
    *,
    specs: Iterable[ParamSpec],
    kinds: tuple[str, ...],
    transition: Transition,
    new: Plan,
    step: int,
    parts: Mapping[WorkerId, StatePart],
) -> Certified | Refused:
    """Hold what all members of a transition say against the plans, and against each other.

    Args:
        specs: every parameter of the model.
        kinds: kinds of state that each of them has.
        step: committed steps at which the transition happens.
        parts: of every sender and every worker of `new`.
    """
    specs = tuple(specs)
    members = transition.members(new)
    silent = [f"{name} has not said what it holds" for name in members if name not in parts]
    if silent:
        return Refused(faults=tuple(silent))
    old_layout = sent_by(transition, specs=specs)
    new_layout = held_by(new, specs=specs, workers=new.living)
    told = [parts[name] for name in members]
    before = _Side(when="before", layout=old_layout, told={part.worker: part.before for part in told}, kinds=kinds)
    after = _Side(when="after", layout=new_layout, told={part.worker: part.after for part in told}, kinds=kinds)
    faults = (
        *_counter_faults(told, step=step, position=step * new.global_batch),
        *before.faults(specs),
        *after.faults(specs),
        *_changed(before, after),
    )
    if faults:
        return Refused(faults=faults)
    moved = moves(old=old_layout, new=new_layout, alive=frozenset(transition.senders), node_of=transition.node_of)
    num_bytes = sum(move.box.num_elements for move in moved) * len(kinds) * ELEMENT_BYTES
    return Certified(
        reason=f"the state of {counted(step, noun='step')} is whole on {new.mesh}: "
        f"{counted(len(specs), noun='tensor')} in {counted(len(kinds), noun='kind')} {are(len(specs))} "
        f"each there once, with the bits they had on {transition.old.mesh}; {num_bytes:,} bytes had to travel",
        bytes_moved=num_bytes,
    )


def held_by(plan: Plan, *, specs: Iterable[ParamSpec], workers: Iterable[WorkerId]) -> Layout:
    """What those `workers` hold by `plan`, in their order."""
    by_rank = holdings(specs, plan)
    return {worker: by_rank[plan.workers.index(worker)] for worker in workers}


def sent_by(transition: Transition, *, specs: Iterable[ParamSpec]) -> Layout:
    """What the senders of a transition have to send, copies included."""
    by_owner = held_by(transition.old, specs=specs, workers=(*transition.senders, *transition.copies))
    return {
        sender: tuple(held for owner in transition.owners(sender) for held in by_owner[owner])
        for sender in transition.senders
    }


@dataclass(frozen=True, slots=True, kw_only=True)
class _Side:
    """What was told of one side of the transition. `layout`: who must hold what."""

    when: str
    layout: Layout
    told: Mapping[WorkerId, tuple[Fingerprint, ...]]
    kinds: tuple[str, ...]

    def faults(self, specs: Iterable[ParamSpec]) -> Iterator[str]:
        yield from self._box_faults()
        yield from self._gaps(specs)
        for key, values in self.values().items():
            usual = _usual(values.values())
            odd = [worker for worker, value in values.items() if value != usual]
            if odd:
                rest = [worker for worker in values if worker not in odd]
                yield f"{_list(odd)} held other bits of {_name(key)} than {_list(rest)} {self.when} the move"

    def values(self) -> dict[Key, dict[WorkerId, int]]:
        """For each distinct box, its fingerprint on each holder; a holder that has two of it stands under both."""
        found: dict[Key, dict[WorkerId, int]] = defaultdict(dict)
        for worker, prints in self.told.items():
            for one in prints:
                values = found[one.name, one.kind, one.box]
                is_second = values.get(worker, one.value) != one.value
                values[f"{worker} (its second copy)" if is_second else worker] = one.value
        return found

    def sums(self) -> dict[tuple[str, str], int]:
        """For each tensor and kind, the fingerprint of the whole."""
        total: dict[tuple[str, str], int] = defaultdict(int)
        for (name, kind, _), values in self.values().items():
            total[name, kind] = (total[name, kind] + next(iter(values.values()))) % MODULUS
        return total

    def _box_faults(self) -> Iterator[str]:
        """Boxes that someone lacks, or has and should not."""
        for worker, prints in self.told.items():
            due = Counter((h.name, kind, h.box) for h in self.layout.get(worker, ()) for kind in self.kinds)
            told = Counter((one.name, one.kind, one.box) for one in prints)
            yield from (f"{worker} lacks {_name(key)} {self.when} the move" for key in due - told)
            for key in told - due:
                wrong = "holds twice" if key in due else "holds, and should not,"
                yield f"{worker} {wrong} {_name(key)} {self.when} the move"

    def _gaps(self, specs: Iterable[ParamSpec]) -> Iterator[str]:
        """Parts of tensors that nobody holds, by the layout."""
        boxes: dict[str, set[Box]] = defaultdict(set)
        for held in self.layout.values():
            for holding in held:
                boxes[holding.name].add(holding.box)
        for spec in specs:
            for rest in uncovered(Box.whole(spec.shape), by=sorted(boxes[spec.name])):
                yield f"{spec.name} {rest} has no holder {self.when} the move"
            if sum(box.num_elements for box in boxes[spec.name]) > prod(spec.shape):
                yield f"{spec.name} is covered more than once {self.when} the move"


def _changed(before: _Side, after: _Side) -> Iterator[str]:
    """Tensors whose bits are not what they were."""
    sums = before.sums()
    holders: dict[tuple[str, str], set[WorkerId]] = defaultdict(set)
    for (name, kind, _), values in after.values().items():
        holders[name, kind].update(values)
    for at, value in after.sums().items():
        if sums.get(at) != value:
            yield f"{at[0]} ({at[1]}) has other bits after the move than before; {_list(holders[at])} hold it now"


def _counter_faults(told: Iterable[StatePart], *, step: int, position: int) -> Iterator[str]:
    told = tuple(told)
    skipped = _usual(part.skipped for part in told)
    lr, scale = _usual(part.lr for part in told), _usual(part.loss_scale for part in told)
    for part in told:
        who = part.worker
        if part.step != step:
            yield f"{who} holds the state of step {part.step}, not of step {step}"
        if part.position != position:
            yield (
                f"{who} would go on at sample {part.position}; {counted(step, noun='step')} "
                f"{does(step, verb='end')} before sample {position}"
            )
        if part.skipped != skipped:
            yield f"{who} counts {part.skipped} skipped steps where others count {skipped}"
        if part.lr != lr:
            yield f"{who} has the rate {part.lr} where others have {lr}"
        if part.loss_scale != scale:
            yield f"{who} has the loss scale {part.loss_scale} where others have {scale}"
        if part.updates != step - skipped:
            yield (
                f"{who} has made {counted(part.updates, noun='update')}; {counted(step, noun='step')}, {skipped} "
                f"skipped, {does(step, verb='make')} {step - skipped}"
            )


def _usual(values: Iterable[float]) -> float:
    """The value that most have."""
    ((value, _),) = Counter(values).most_common(1)
    return value


def _list(workers: Iterable[WorkerId]) -> str:
    return ", ".join(sorted(workers))


def _name(key: Key) -> str:
    name, kind, box = key
    return f"{name} {box} ({kind})"
