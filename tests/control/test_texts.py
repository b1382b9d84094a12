"""What the brain says of one worker, one device, one step or one sample reads as people say it."""

import re

import pytest

from raymega.control.events import DrainAsked, ResizeAsked
from raymega.control.loop import run
from raymega.control.states import first_state
from tests.control.fake_hands import FakeHands, brain, moving_brain, nodes
from tests.driver.runs import Turns

ONE_OF_MANY = re.compile(r"(?<![=\w.])1 (?:(?!is\b|was\b|has\b)[a-z-]*[a-rt-z]s\b|\w+ (?:are|were|have|stay|go)\b)")
ALONE = {"nodes": nodes(1)}
TOLD = {
    "one step": (brain(steps=1), ALONE),
    "one step that is skipped": (brain(steps=3, max_nonfinite_steps=0), ALONE),
    "a death": (brain(steps=4, save_every=1), {**ALONE, "kill_once": {3: 0}}),
    "one of two": (moving_brain(steps=6), {"nodes": nodes(1, 1), "kill_once": {3: 1}, "work": True}),
    "to one device": (moving_brain(steps=9), {"nodes": nodes(1, 1), "tell_at": {4: ResizeAsked(request=1, devices=1)}}),
    "a notice": (
        moving_brain(steps=9),
        {"nodes": nodes(1, 1), "tell_at": {4: DrainAsked(request=1, node="n1", by_t=9e9, cause="spot")}},
    ),
}


@pytest.mark.parametrize(("mind", "faults"), TOLD.values(), ids=TOLD)
def test_one_thing_is_told_as_one(mind, faults):
    turns = Turns()
    run(first_state(epoch=1), brain=mind, hands=FakeHands(**faults), watchers=[turns])
    said = [turn.decision.reason for turn in turns]
    said += [
        str(command)
        for turn in turns
        for command in turn.decision.commands
        if type(command).__str__ is not object.__str__
    ]
    assert [text for text in said if ONE_OF_MANY.search(text.split("(")[0])] == []
    assert any("committed" in text for text in said)


@pytest.mark.parametrize("text", ["1 workers stay", "all 1 steps are", "1 worker stay, 0", "1 micro-batches of"])
def test_this_guard_can_fail(text):
    assert ONE_OF_MANY.search(text)


@pytest.mark.parametrize("text", ["step 1 is lost", "1 loss of", "1 worker stays", "dp=1 tp=1 pp=1 needs"])
def test_what_reads_well_is_none(text):
    assert not ONE_OF_MANY.search(text)
