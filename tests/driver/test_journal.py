import threading

import pytest

from raymega.control.codec import command_to_json, replay
from raymega.control.states import first_state
from raymega.driver.records.journal import read_entries, read_head
from raymega.driver.records.tenure import Tenure, journals
from raymega.errors import StateError
from tests.control.fake_hands import brain
from tests.driver.runs import journalled


def test_a_journal_fed_to_the_brain_gives_the_same_decisions(tmp_path):
    journalled(tmp_path, kill_once={7: 1, 13: 2}, break_once={9}, skipped={3}, jitter=3)
    (file,) = journals(tmp_path)
    head, entries = read_head(file), list(read_entries(file))
    state = first_state(epoch=head.epoch, checkpoint=head.checkpoint)
    again = replay(state, ((entry.t, entry.event) for entry in entries), brain=brain())
    written = [(entry.state, entry.commands, entry.reason) for entry in entries]
    assert written == [(type(d.state).__name__, tuple(command_to_json(c) for c in d.commands), d.reason) for d in again]
    assert (head.rules, entries[-1].state) == (brain().rules, "Finished")


@pytest.mark.parametrize("cut", [1, 7, 40])
def test_a_torn_last_line_is_no_line(tmp_path, cut):
    turns = journalled(tmp_path)
    (file,) = journals(tmp_path)
    file.write_bytes(file.read_bytes()[:-cut])
    assert [entry.seq for entry in read_entries(file)] == [turn.seq for turn in turns[:-1]]


RATE_OF_NONE = (
    b'{"seq": 4, "t": 1, "event": {"event": "SetAsked", "request": 1, "lr": null}, "state": "", "commands": []}'
)
BROKEN = {
    "torn": b"{torn", "zeros": b"\0\0\0\0{", "no text": b"\xff\xfe{}", "a list": b"[1]", "a number": b"3",
    "nothing": b"", "lacks": b'{"seq": 4}', "other": RATE_OF_NONE,
    "unknown": b'{"seq": 4, "t": 1, "event": {"event": "Nope"}}',
}  # fmt: skip
HEADS = (b'{"epoch": 1}', b'{"epoch": 1, "t": 1, "rules": {"no": 1}, "checkpoint": null}', b"[]")


@pytest.mark.parametrize("broken", BROKEN.values(), ids=BROKEN)
def test_a_line_that_is_broken_in_the_middle_is_an_error_that_names_it(tmp_path, broken: bytes):
    journalled(tmp_path)
    (file,) = journals(tmp_path)
    lines = file.read_bytes().splitlines(keepends=True)
    file.write_bytes(b"".join([*lines[:4], broken + b"\n", *lines[5:]]))
    with pytest.raises(StateError, match=r"000001.jsonl:5( is n| has no|: turn 4 cannot be read)"):
        list(read_entries(file))


@pytest.mark.parametrize("head", HEADS)
def test_a_head_that_is_broken_is_an_error_that_names_it(tmp_path, head: bytes):
    (tmp_path / "000001.jsonl").write_bytes(head + b"\n")
    with pytest.raises(StateError, match=r"000001.jsonl:1( is no| has no|: how a controller began cannot be read)"):
        read_head(tmp_path / "000001.jsonl")


def test_of_many_controllers_each_gets_an_epoch_of_its_own(tmp_path):
    epochs, start = [], threading.Barrier(8)

    def begin() -> None:
        start.wait()
        epochs.append(Tenure.take(tmp_path).epoch)

    threads = [threading.Thread(target=begin) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(epochs) == list(range(1, 9))


def test_a_controller_that_died_before_it_began_is_named(tmp_path):
    (tmp_path / "000001.jsonl").touch()
    with pytest.raises(StateError, match="died before it began"):
        read_head(tmp_path / "000001.jsonl")
