"""Events, commands and states as plain data, for the journal; events also back again.

    {"event": "WorkerLost", "worker": "w3", "node": "n1", "cause": "SIGKILL", "silent_s": 0.0, "node_gone": false}

Whatever decides anything is in these lines, so that a journal fed to `decide` gives the same decisions.
"""

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import fields, is_dataclass
from typing import Any

from pydantic import TypeAdapter

from raymega.control.arbitration import Decided, Version
from raymega.control.commands import Command, WriteStep
from raymega.control.decision import Brain, Decision
from raymega.control.events import EVENTS, Event
from raymega.control.states import Checkpoint, State
from raymega.control.transitions import decide
from raymega.errors import StateError
from raymega.pipeline.actions import Action, parse
from raymega.pipeline.missing import TeamReport
from raymega.plan.plan import Plan

_READERS: dict[str, TypeAdapter[Event]] = {kind.__name__: TypeAdapter(kind) for kind in EVENTS}
_CHECKPOINT: TypeAdapter[Checkpoint | None] = TypeAdapter(Checkpoint | None)


def plain(value: Any) -> Any:  # Any: whatever states, events and commands are made of
    """`value` as what JSON knows: dataclasses by field, sets in order, actions as they print, bytes as hex digits."""
    if isinstance(value, Plan):
        return value.to_json()
    if isinstance(value, Action):
        return str(value)
    if isinstance(value, bytes):
        return value.hex()
    if is_dataclass(value):
        return {field.name: plain(getattr(value, field.name)) for field in fields(value)}
    if isinstance(value, tuple | list):
        return [plain(item) for item in value]
    if isinstance(value, frozenset):
        return sorted(plain(item) for item in value)
    if isinstance(value, dict):
        return {str(key): plain(item) for key, item in value.items()}
    return value


def event_to_json(event: Event) -> dict[str, Any]:
    """The event by its name and fields; `event_from_json` gives an equal one."""
    return {"event": type(event).__name__, **plain(event)}


def event_from_json(data: dict[str, Any]) -> Event:
    """The event that `event_to_json` wrote. Raises: StateError for a name that is none of ours."""
    numbers = {key: math.nan for key in ("loss", "grad_norm") if data.get(key, 0.0) is None}  # JSON has no NaN
    promised = {key: read(data[key]) for key, read in _PROMISED.items() if data.get(key) is not None}
    rest = {key: value for key, value in data.items() if key != "event"} | numbers | promised
    reader = _READERS.get(data["event"])
    if reader is None:
        raise StateError(f"the journal has an event {data['event']!r}, which this version does not know")
    return reader.validate_python(rest)


def _decided(data: dict[str, Any]) -> Decided:
    return Decided(version=Version(**data["version"]), facts=bytes.fromhex(data["facts"]))


def _work(data: dict[str, Any]) -> TeamReport:
    return TeamReport(
        stages=tuple(data["stages"]),
        done=frozenset(map(parse, data["done"])),
        logged=frozenset(map(parse, data["logged"])),
        spoiled=data["spoiled"],
    )


_PROMISED: dict[str, Callable[[dict[str, Any]], object]] = {"decided": _decided, "heard": _decided, "work": _work}


def command_to_json(command: Command) -> dict[str, Any]:
    """The command by its name and facts; a step's record, which its event holds already, by its number."""
    if isinstance(command, WriteStep):
        return {"command": "WriteStep", "step": command.record.step}
    return {"command": type(command).__name__, **plain(command)}


def checkpoint_from_json(data: dict[str, Any] | None) -> Checkpoint | None:
    """The checkpoint that `plain` wrote."""
    return _CHECKPOINT.validate_python(data)


def replay(state: State, told: Iterable[tuple[float, Event]], *, brain: Brain) -> Iterator[Decision]:
    """Decide again on what was told, each with the time at which it was."""
    for t, event in told:
        decision = decide(brain, state, event, t)
        yield decision
        state = decision.state
