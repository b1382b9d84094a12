"""Events in words: which of them are marked, and what a reader is told of each."""

from typing import Any

import pytest

from raymega.control.events import EVENTS
from raymega.driver.records.events_sink import FORKED
from raymega.driver.records.history import History, Launch
from raymega.pictures import colors
from raymega.report.chronicle import KINDS, entries_of, kind_of, marks_of, spaced

LINE: dict[str, Any] = {"t": 12.0, "step": 4, "event": "WorkerLost", "commands": [], "reason": "w1 is lost"}


def test_every_kind_of_mark_has_a_colour():
    assert {*KINDS.values(), "back to a checkpoint", "started again"} == set(colors.EVENTS)


def test_every_event_that_is_marked_can_happen():
    known = {event.__name__ for event in EVENTS} | {"StepRepaired", "NodeDraining", "Resized", "RolledBack", FORKED}
    assert set(KINDS) <= known


@pytest.mark.parametrize(
    ("event", "commands", "kind"),
    [
        ("WorkerLost", ["AbortGeneration"], "worker lost"),
        ("GenerationLeft", ["AssignPlan", "Rewind"], "back to a checkpoint"),
        ("StepRepaired", ["Rewind"], "step repaired"),
        ("Tick", [], ""),
    ],
)
def test_what_an_event_is_marked_as(event: str, commands: list[str], kind: str):
    assert kind_of(LINE | {"event": event, "commands": commands}) == kind


def test_later_launches_are_marked_at_the_step_they_began_from():
    launches = (Launch(t=0.0, until_t=20.0, at_s=0.0, step=0), Launch(t=90.0, until_t=99.0, at_s=20.0, step=7))
    marks = marks_of([LINE], history=History(launches=launches))
    assert [(mark.kind, mark.step) for mark in marks] == [("worker lost", 4), ("started again", 7)]


def test_a_row_says_when_what_why_and_what_was_ordered():
    history = History(launches=(Launch(t=10.0, until_t=20.0, at_s=5.0, step=0),))
    (entry,) = entries_of([LINE | {"commands": ["AbortGeneration", "Grant", "Grant"]}], history=history)
    assert (entry.up_s, entry.what, entry.orders) == (7.0, "worker lost", "abort generation, grant")
    assert spaced("Tick") == "tick"
