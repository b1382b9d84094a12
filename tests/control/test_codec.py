import json
import math
from dataclasses import replace

import pytest

from raymega.control.arbitration import Decided, Version
from raymega.control.codec import command_to_json, event_from_json, event_to_json, replay
from raymega.control.loop import Turn, run
from raymega.control.states import first_state
from raymega.errors import StateError
from raymega.pipeline.actions import parse_program
from raymega.pipeline.missing import TeamReport
from tests.control.examples import G, left, step
from tests.control.fake_hands import FakeHands, brain, nodes
from tests.control.test_transitions import ROWS


@pytest.mark.parametrize("event", [row[1] for row in ROWS], ids=lambda event: type(event).__name__)
def test_an_event_comes_back_from_its_line(event):
    assert event_from_json(json.loads(json.dumps(event_to_json(event)))) == event


def test_a_promise_comes_back_from_its_line():
    decided = Decided(version=Version(step=10, generation=G), facts=b"\x00\xff")
    facts = frozenset(parse_program("0F0 0F1 0B0"))
    work = TeamReport(stages=(0, 2), done=facts, logged=facts, spoiled=True)
    for event in (replace(left("w0"), decided_in=G, decided=decided, work=work), replace(step(10), decided=decided)):
        assert event_from_json(json.loads(json.dumps(event_to_json(event)))) == event


def test_a_number_that_json_does_not_know_comes_back_as_not_a_number():
    line = event_to_json(step(10)) | {"loss": None}
    assert math.isnan(event_from_json(line).loss)


def test_an_event_of_another_version_is_named():
    with pytest.raises(StateError, match="'Teleported', which this version does not know"):
        event_from_json({"event": "Teleported"})


class Turns(list):
    def saw(self, turn: Turn) -> None:
        self.append(turn)


@pytest.mark.parametrize("work", [False, True])
def test_what_was_told_gives_the_same_decisions_again(work):
    turns, start = Turns(), first_state(epoch=1)
    hands = FakeHands(
        nodes=nodes(2, 2), kill_once={7: 1, 13: 2}, break_once={9}, skipped={3}, jitter=5, work=work, ahead={13}
    )
    run(start, brain=brain(eval_every=4), hands=hands, watchers=[turns])
    told = [(turn.t, event_from_json(json.loads(json.dumps(event_to_json(turn.event))))) for turn in turns]
    again = list(replay(start, told, brain=brain(eval_every=4)))
    assert again == [turn.decision for turn in turns]
    assert all(json.dumps(command_to_json(command)) for decision in again for command in decision.commands)
