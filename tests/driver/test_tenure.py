"""What a lost controller leaves is read whole by the next one, and nothing of a replaced one counts."""

from dataclasses import fields

import pytest

from raymega.control.brain import brain_of
from raymega.control.commands import WriteStep
from raymega.control.events import Tick
from raymega.control.loop import Turn, run
from raymega.control.policy import Rules
from raymega.control.states import Training, first_state
from raymega.driver.beginning import begin, estate_of, take_over
from raymega.driver.records import snapshot
from raymega.driver.records.events_sink import EventsSink
from raymega.driver.records.history import History
from raymega.driver.records.json_lines import read_lines
from raymega.driver.records.metrics_sink import MetricsSink
from raymega.driver.records.snapshot import Snapshots, read_snapshot
from raymega.driver.records.tenure import Tenure
from raymega.errors import Superseded
from tests.control.fake_hands import FakeHands, nodes
from tests.driver.runs import Turns
from tests.driver.test_accounting import CONFIG

RULES, BEGAN_T = Rules.of(CONFIG, validates=False), 1000.0


class Dies(Exception):
    """The controller is killed."""


class Mortal:
    """A watcher that dies with turn number `turn`, after it is written down."""

    def __init__(self, turn: int) -> None:
        self.turn = turn

    def saw(self, turn: Turn) -> None:
        if turn.seq == self.turn:
            raise Dies


def killed(folder, *watchers, turn: int) -> Turns:
    """The turns of a controller that is killed in mid-run."""
    beginning, turns = begin(folder, rules=RULES, checkpoint=None, launch="a", config=CONFIG, began_t=BEGAN_T), Turns()
    snapshots = Snapshots(beginning.tenure, history=History.begin(BEGAN_T, step=0))
    told = (beginning.journal, snapshots, turns, *watchers, Mortal(turn))
    with pytest.raises(Dies):
        run(beginning.state, brain=brain_of(CONFIG, rules=RULES), hands=FakeHands(nodes=nodes(4)), watchers=told)
    return turns


def test_the_next_controller_goes_on_from_the_last_decision(tmp_path):
    turns = killed(tmp_path, turn=10)
    beginning = take_over(tmp_path, rules=RULES, checkpoint=None, launch="a", config=CONFIG, began_t=BEGAN_T)
    assert isinstance(beginning.state, Training)
    assert (beginning.state, beginning.seq) == (turns[-1].decision.state, 10)
    assert list(beginning.turns) == turns
    assert (beginning.tenure.epoch, beginning.events[0].epoch) == (2, 2)


def test_another_launch_in_the_same_directory_inherits_nothing(tmp_path):
    killed(tmp_path, turn=10)
    beginning = take_over(tmp_path, rules=RULES, checkpoint=None, launch="b", config=CONFIG, began_t=BEGAN_T)
    assert (beginning.state, beginning.events) == (first_state(epoch=2), ())


def test_a_controller_that_died_before_it_began_is_passed_over(tmp_path):
    turns = killed(tmp_path, turn=10)
    Tenure.take(tmp_path)
    beginning = take_over(tmp_path, rules=RULES, checkpoint=None, launch="a", config=CONFIG, began_t=BEGAN_T)
    assert (beginning.tenure.epoch, beginning.state) == (3, turns[-1].decision.state)


def test_a_replaced_controller_may_carry_nothing_out_and_what_it_wrote_counts_for_nothing(tmp_path):
    old, turns = begin(tmp_path, rules=RULES, checkpoint=None, launch="a", config=CONFIG, began_t=BEGAN_T), Turns()
    hands = FakeHands(nodes=nodes(4))
    with pytest.raises(Dies):
        run(old.state, brain=brain_of(CONFIG, rules=RULES), hands=hands, watchers=(old.journal, turns, Mortal(10)))
    new = take_over(tmp_path, rules=RULES, checkpoint=None, launch="a", config=CONFIG, began_t=BEGAN_T)
    late = Turn(seq=11, t=2000.0, before=turns[-1].decision.state, event=Tick(), decision=turns[-1].decision)
    with pytest.raises(Superseded, match="controller 1 has been replaced"):
        old.journal.saw(late)
    again = take_over(tmp_path, rules=RULES, checkpoint=None, launch="a", config=CONFIG, began_t=BEGAN_T)
    assert (again.state, again.seq) == (new.state, 10)


def test_a_snapshot_gives_the_same_estate_as_the_whole_journal(tmp_path, monkeypatch):
    monkeypatch.setattr(snapshot, "EVERY_TURNS", 8)
    monkeypatch.setattr(snapshot, "TOLD_AGAIN", 4)
    killed(tmp_path, turn=23)
    short = estate_of(tmp_path, launch="a", config=CONFIG)
    assert read_snapshot(tmp_path / "000001.jsonl").seq == 16
    (tmp_path / "000001.snapshot").write_bytes(b"torn")
    whole = estate_of(tmp_path, launch="a", config=CONFIG)
    assert (short.state, short.inherited, short.t) == (whole.state, whole.inherited, whole.t)
    assert short.turns == whole.turns[-7:]
    assert short.history == whole.history


@pytest.mark.parametrize("other", [{"MEANING": 2}, {"__version__": "0.0.9"}, {"fields": lambda kind: fields(kind)[1:]}])
def test_a_snapshot_of_another_program_is_none_and_the_journal_is_told_from_the_beginning(tmp_path, monkeypatch, other):
    for name, value in {"EVERY_TURNS": 8, "TOLD_AGAIN": 4}.items():
        monkeypatch.setattr(snapshot, name, value)
    turns = killed(tmp_path, turn=23)
    for name, value in other.items():
        monkeypatch.setattr(snapshot, name, value)
    assert read_snapshot(tmp_path / "000001.jsonl") is None
    assert list(estate_of(tmp_path, launch="a", config=CONFIG).turns) == turns


def test_a_snapshot_that_knows_more_than_its_journal_is_none(tmp_path, monkeypatch):
    for name, value in {"EVERY_TURNS": 8, "TOLD_AGAIN": 4}.items():
        monkeypatch.setattr(snapshot, name, value)
    turns = killed(tmp_path, turn=23)
    journal = tmp_path / "000001.jsonl"
    journal.write_bytes(b"".join(journal.read_bytes().splitlines(keepends=True)[:11]))
    assert list(estate_of(tmp_path, launch="a", config=CONFIG).turns) == turns[:10]


def test_what_the_sinks_have_missed_is_caught_up_once(tmp_path):
    metrics, events = MetricsSink(tmp_path / "metrics.jsonl", step=0), EventsSink(tmp_path / "events.jsonl")
    turns = killed(tmp_path / "journal", metrics, events, turn=12)
    written = list(read_lines(tmp_path / "metrics.jsonl"))
    metrics.close()
    (tmp_path / "metrics.jsonl").write_text("")
    committed = turns[-1].decision.state.story.committed
    for _ in range(2):
        sink = MetricsSink(tmp_path / "metrics.jsonl", step=committed)
        sink.catch_up(turns)
        sink.close()
    assert list(read_lines(tmp_path / "metrics.jsonl")) == written
    assert any(isinstance(command, WriteStep) for turn in turns for command in turn.decision.commands)
    before = list(read_lines(tmp_path / "events.jsonl"))
    EventsSink.inherit(tmp_path / "events.jsonl", turns=turns).close()
    events.saw(turns[1])  # of the one before: it writes where nobody reads
    assert list(read_lines(tmp_path / "events.jsonl")) == before
    events.close()
