"""Is the step that broke applied by all, or repaired? Ruled once, when nobody can decide any more.

    a worker is lost -> the next generation is asked for; every member of the old one
        promises   nothing of an older generation decides in it from here on; says what it has decided, what it holds
        is fenced  dead or silent beyond its lease: whatever it does is refused for good
    all have promised or are fenced
        someone has decided step k, or its commit was heard of    all who lack it apply the same facts
        nobody has                                                nobody ever will: it is repaired

A decision, once made, is in some answer, or it died with its worker and never was. So a ruling may be asked for again,
by another controller too. Workers stand in two steps at most: first the older one is settled everywhere, then the newer
one is repaired from its own ledgers. A version of the state is (step, generation that decided it).
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from raymega.errors import RaymegaBug
from raymega.metrics import generation_words
from raymega.plan.plan import WorkerId


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class Version:
    """State after `step` steps, as decided in `generation`; the first values are of generation 0."""

    step: int
    generation: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Decided:
    """The decision that leads to `version`: the facts of the step as bytes, commit and skip alike."""

    version: Version
    facts: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Promise:
    """A worker's answer to `generation`.

    Args:
        held: the version of its state, applied and gathered whole; None: it has none, or broke inside applying.
        decided: its newest decision, applied or not.
    """

    worker: WorkerId
    generation: int
    held: Version | None
    decided: Decided | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Wait:
    """No ruling yet: these have neither promised nor are they fenced."""

    on: tuple[WorkerId, ...]
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Ruling:
    """How the members go on in `generation`.

    Args:
        version: what all hold before the step with index `version.step` is repaired.
        decided: the decision that leads there, for whoever still has to apply it; None: nobody decided anything.
        apply: those who apply it now, to the gradients that they have reduced.
        without_state: members whose state is void, or too old to reach `version` by one decision.
    """

    generation: int
    version: Version
    decided: Decided | None
    apply: tuple[WorkerId, ...]
    without_state: tuple[WorkerId, ...]
    reason: str


def rule(
    generation: int,
    *,
    members: Iterable[WorkerId],
    answers: Iterable[Promise],
    fenced: Collection[WorkerId],
    heard: Decided | None = None,
) -> Ruling | Wait:
    """Rule on a generation that broke.

    Args:
        generation: the one that the promises are for.
        members: of every older generation that has not been ruled on; at least those of the newest.
        answers: all that came, in any order; promises to an older question are none.
        heard: the newest commit that was reported before this ruling, whoever reported it.
    Raises:
        RaymegaBug: a step was decided twice, or two states of one step are not the same version.
    """
    living = sorted(set(members) - set(fenced))
    given = {promise.worker: promise for promise in answers if promise.generation == generation}
    promised = {name: given[name] for name in living if name in given}
    silent = tuple(name for name in living if name not in promised)
    if silent:
        return Wait(on=silent, reason=f"{', '.join(silent)} has not promised {generation_words(generation)}")
    decisions = _decisions(promised, heard)
    version = _newest({*decisions, *(promise.held for promise in promised.values() if promise.held is not None)})
    decided = decisions.get(version)
    behind = [name for name in living if promised[name].held != version]
    apply = tuple(name for name in behind if decided is not None and _is_one_before(promised[name].held, version))
    without = tuple(name for name in behind if name not in apply)
    return Ruling(
        generation=generation,
        version=version,
        decided=decided,
        apply=apply,
        without_state=without,
        reason=_reason(version, apply=apply, without=without, fenced=fenced),
    )


def _decisions(promised: Mapping[WorkerId, Promise], heard: Decided | None) -> dict[Version, Decided]:
    """What was decided, by version."""
    found = [promise.decided for promise in promised.values()] + [heard]
    by_version: dict[Version, Decided] = {}
    for decided in found:
        if decided is not None and by_version.setdefault(decided.version, decided) != decided:
            raise RaymegaBug(f"Two decisions lead to {decided.version}; facts have the same bits everywhere.")
    return by_version


def _newest(versions: Collection[Version]) -> Version:
    """The version with the most steps; no step may have two."""
    if len({version.step for version in versions}) < len(versions):
        raise RaymegaBug(f"Some step has two versions: {sorted(versions)}; its state is no longer one.")
    return max(versions, default=Version(step=0, generation=0))


def _is_one_before(held: Version | None, version: Version) -> bool:
    return held is not None and held.step == version.step - 1


def _reason(
    version: Version, *, apply: tuple[WorkerId, ...], without: tuple[WorkerId, ...], fenced: Collection[WorkerId]
) -> str:
    parts = [f"step {version.step + 1} is repaired: nobody who is left has decided it"]
    if apply:
        parts.insert(0, f"step {version.step} is decided, {', '.join(apply)} apply it now")
    if without:
        parts.append(f"{', '.join(without)} need their state from elsewhere")
    if fenced:
        parts.append(f"fenced: {', '.join(sorted(fenced))}")
    return "; ".join(parts)
