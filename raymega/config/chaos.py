"""What goes wrong on purpose, in words: one order, one fault.

    kill stage=1 replica=0 step=40 action=B3       it sends SIGKILL to itself as it begins backward 3 of step 40
    stall stage=0 replica=1 tp=1 step=12 for=5     it stops, heartbeats and all, and goes on 5 s later
    drain node=1 step=30 phase=reduce for=30       node 1 is to be free within 30 s
    fill-memory stage=0 replica=0 step=5           it has no memory left for its micro-batches, once
    kill controller step=9 phase=decide

    VERB [node=N | stage=S replica=R [tp=T] | controller] step=K [action=F3|B1 | phase=P | bucket=N] [for=SECONDS]

Words after the verb may come in any order. Without a target it is the first worker that comes to the point; without a
point it is the beginning of the step; tp is 0 where it is not given. Phases are compute, reduce, decide, apply,
and gather where the optimizer state is cut. Steps count from 1, all else from 0. A node is
named by its number, in the order in which the run came to use them, or by the first letters of its id.
"""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields
from typing import Any, Literal, get_args

from raymega.config.fault import nearest, one_of
from raymega.errors import ConfigError

Verb = Literal["kill", "stall", "slow", "cut", "drain", "fill-disk", "fill-memory"]
Phase = Literal["compute", "reduce", "decide", "apply", "gather"]
VERBS: tuple[str, ...] = get_args(Verb)
PHASES: tuple[str, ...] = get_args(Phase)
KEYS = ("node", "stage", "replica", "tp", "step", "action", "phase", "bucket", "for")
CONTROLLER = "controller"
FOR_CONTROLLER = ("kill", "stall")


@dataclass(frozen=True, slots=True, kw_only=True)
class ChaosOrder:
    """One thing that goes wrong, once. `str` prints it as `parse` reads it.

    Args:
        node: number of a node, or the first letters of its id.
        step: the step in hand, from 1.
        action: F or B, or I or W where backwards are in two parts, and a micro-batch of the step.
        bucket: of the gradient sums.
        for_s: how long it lasts; of a drain, how long until the node has to be free. None: for good.
    """

    verb: Verb
    step: int
    node: str | None = None
    stage: int | None = None
    replica: int | None = None
    tp: int | None = None
    controller: bool = False
    action: str | None = None
    phase: Phase | None = None
    bucket: int | None = None
    for_s: float | None = None

    def __str__(self) -> str:
        values = {key: getattr(self, _field(key)) for key in KEYS}
        named = [f"{key}={value:g}" if key == "for" else f"{key}={value}" for key, value in values.items()
                 if value is not None]  # fmt: skip
        return " ".join([self.verb, *([CONTROLLER] if self.controller else []), *named])

    @property
    def microbatch(self) -> int | None:
        """The micro-batch of `action`."""
        return int(self.action[1:]) if self.action is not None else None

    @property
    def has_no_point(self) -> bool:
        """It happens as the step begins."""
        return self.action is None and self.phase is None and self.bucket is None


@dataclass(frozen=True, slots=True, kw_only=True)
class Read:
    """What a text says: an order, or everything that is wrong with it, each with its way out."""

    order: ChaosOrder | None
    faults: tuple[str, ...] = ()


def parse(text: str) -> ChaosOrder:
    """Read one order. Raises: ConfigError with all that is wrong with it."""
    found = read(text)
    if found.order is None:
        raise ConfigError(f'"{text}" is no chaos: {" ".join(found.faults)}', faults=found.faults)
    return found.order


def read(text: str) -> Read:
    """Read one order, and find every fault of it.

    >>> read("kil stage=1 replica=0 step=4 action=G3").faults
    ('kil is no verb. Did you mean kill?', 'action=G3: F, B, I or W and a micro-batch is wanted, as in B3.')
    >>> str(read("kill step=40 replica=0 stage=1 action=B3").order)
    'kill stage=1 replica=0 step=40 action=B3'
    """
    verb, *words = text.split() or [""]
    faults = [] if verb in VERBS else [_unlike(verb, VERBS, f"{verb or 'nothing'} is no verb.")]
    values: dict[str, Any] = {}
    for word in words:
        key, equals, said = word.partition("=")
        if word == CONTROLLER:
            values["controller"] = True
        elif not equals or key not in KEYS:
            faults.append(_unlike(key, (*KEYS, CONTROLLER), f"{word} is not known."))
        elif _field(key) in values:
            faults.append(f"{key} stands twice. Keep one of them.")
        else:
            value, fault = _value(key, said)
            values[_field(key)] = value
            faults.extend([f"{word}: {fault}"] if fault else [])
    faults.extend(_broken(verb, values))
    return Read(order=None if faults else ChaosOrder(verb=verb, **values), faults=tuple(faults))  # type: ignore[arg-type]


def _field(key: str) -> str:
    return "for_s" if key == "for" else key


def _value(key: str, said: str) -> tuple[Any, str | None]:
    """The value, or what is wrong with it."""
    if key == "phase":
        return said, None if said in PHASES else _unlike(said, PHASES, f"one of {one_of(PHASES)}.")
    shape, convert, wanted = _SHAPES.get(key, _WHOLE)
    if not re.fullmatch(shape, said):
        return said, f"{wanted}."
    return convert(said), None


_WHOLE: tuple[str, Callable[[str], Any], str] = (r"\d+", int, "a whole number is wanted, from 0")
_SHAPES: dict[str, tuple[str, Callable[[str], Any], str]] = {
    "step": (r"0*[1-9]\d*", int, "steps are whole numbers, from 1"),
    "node": (r"[\w.-]+", str, "a node's number is wanted, or the first letters of its id"),
    "action": (r"[FBIW]\d+", str, "F, B, I or W and a micro-batch is wanted, as in B3"),
    "for": (r"\d+(\.\d+)?", float, "seconds are wanted, as in 2.5"),
}


def _broken(verb: str, values: dict[str, Any]) -> Iterator[str]:
    """What does not go together."""
    if "step" not in values:
        yield "step is missing. Write when, as in step=40."
    place = [key for key in ("stage", "replica", "tp") if key in values]
    targets = [*(key for key in ("node", CONTROLLER) if key in values), *place[:1]]
    if len(targets) > 1:
        yield f"{one_of(targets)}: one target is wanted. Keep one of them."
    if place and not {"stage", "replica"} <= set(place):
        yield "a worker is named by stage and replica. Give both."
    points = [key for key in ("action", "phase", "bucket") if key in values]
    if len(points) > 1:
        yield f"{one_of(points)}: one point of the step is wanted. Keep one of them."
    if verb == "kill" and "for_s" in values:
        yield "what is killed stays dead. Leave for out."
    if verb == "fill-memory" and "for_s" in values:
        yield "memory is there again for smaller micro-batches. Leave for out."
    if verb == "fill-memory" and values.get("phase") in ("apply", "gather"):
        yield "what fails from apply on is lost, as in a kill. Use an earlier phase."
    if verb in VERBS and verb not in FOR_CONTROLLER and CONTROLLER in values:
        yield f"{verb} controller: there is {one_of(FOR_CONTROLLER)} for it. Use one of them, or name a worker."


def _unlike(word: str, known: tuple[str, ...], problem: str) -> str:
    near = nearest(word, known)
    return f"{problem} Did you mean {near}?" if near else f"{problem} Use {one_of(known)}."


assert {field.name for field in fields(ChaosOrder)} == {_field(key) for key in KEYS} | {"verb", "controller"}
