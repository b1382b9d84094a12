import json
import math
import os
import subprocess
import sys
from dataclasses import replace

import pytest

from raymega.control.commands import Answer, WriteTransition
from raymega.control.decision import Decision
from raymega.control.events import DrainAsked, Tick
from raymega.control.loop import Turn
from raymega.control.states import Checkpoint, first_state
from raymega.driver.records.events_sink import EventsSink
from raymega.driver.records.json_lines import LineWriter, read_lines
from raymega.driver.records.metrics_sink import MetricsSink
from raymega.errors import StateError
from raymega.mesh import Mesh
from raymega.metrics import StepRecord
from tests.driver.runs import played

KEYS = [
    "step", "loss", "grad_norm", "lr", "tokens", "tokens_total", "first_sample", "samples", "step_s", "tokens_per_s",
    "mesh", "generation", "skipped", "loss_scale", "t",
]  # fmt: skip


RESIZED = WriteTransition(
    cause="n1 goes", certified=True, step=12, before=Mesh(dp=2, pp=2, tp=1), after=Mesh(dp=1, pp=2, tp=1),
    bytes_moved=0, prepare_s=0.1, predicted_s=0.2, actual_s=0.3, predicted_step_s=0.4, reason="it moved",
)  # fmt: skip


def lines(file):
    return list(read_lines(file))


def test_each_step_stands_once_in_the_metrics_whatever_was_lost(tmp_path):
    sink = MetricsSink(tmp_path / "metrics.jsonl", step=0)
    played(sink, kill_once={9: 1, 14: 2})
    sink.close()
    written = lines(tmp_path / "metrics.jsonl")
    assert [line["step"] for line in written] == list(range(1, 21))
    assert list(written[0]) == KEYS
    assert written[-1]["tokens_total"] == 20 * 800
    assert {line["generation"] for line in written} == {1_000_001, 1_000_002, 1_000_003}


def test_going_on_from_a_checkpoint_ends_the_file_there_and_mends_a_torn_line(tmp_path):
    file = tmp_path / "metrics.jsonl"
    sink = MetricsSink(file, step=0)
    played(sink)
    sink.close()
    file.write_bytes(file.read_bytes()[:-20])
    sink = MetricsSink(file, step=10)
    assert [line["step"] for line in lines(file)] == list(range(1, 11))
    played(sink, epoch=2, checkpoint=Checkpoint(step=10, uri="mem://10", tokens_total=8000))
    sink.close()
    assert [line["step"] for line in lines(file)] == list(range(1, 21))
    assert lines(file)[-1]["tokens_total"] == 20 * 800


def test_a_loss_that_is_not_finite_is_null_and_comes_back_as_not_a_number(tmp_path):
    sink = MetricsSink(tmp_path / "metrics.jsonl", step=0)
    played(sink)
    sink.close()
    record = StepRecord.from_json(lines(tmp_path / "metrics.jsonl")[0] | {"loss": None})
    assert math.isnan(record.loss)
    assert record.to_json()["loss"] is None


def test_events_tell_what_happened_what_was_done_and_why(tmp_path):
    sink = EventsSink(tmp_path / "events.jsonl")
    played(sink, kill_once={13: 2})
    sink.close()
    written = lines(tmp_path / "events.jsonl")
    assert [line["seq"] for line in written] == list(range(1, len(written) + 1))
    left = next(line for line in written if line["event"] == "WorkerLost")
    assert (left["worker"], left["node"], left["step"], left["generation"]) == ("w2", "n0", 12, 1_000_001)
    assert left["reason"]
    assert written[-1] | {"exit_code": 0, "steps_lost": 2, "event": "RunEnded"} == written[-1]
    assert len(written) < 20, "steps are not events"


def turn_of(event, *commands) -> Turn:
    state = first_state(epoch=1)
    return Turn(
        seq=1, t=5.0, before=state, event=event, decision=Decision(state=state, commands=commands, reason="n1 goes")
    )


def test_a_notice_that_is_heeded_and_what_became_of_it_are_events(tmp_path):
    sink = EventsSink(tmp_path / "events.jsonl")
    drain = DrainAsked(request=4, node="n1", by_t=35.0, cause="SIGTERM")
    sink.saw(turn_of(drain, Answer(request=4, accepted=True, reason="n1 goes")))
    sink.saw(turn_of(drain, Answer(request=4, accepted=False, reason="n1 holds the only copy")))
    sink.saw(turn_of(Tick(), RESIZED, replace(RESIZED, certified=False)))
    sink.close()
    heeded, refused, _, resized, back = lines(tmp_path / "events.jsonl")
    assert (heeded["event"], heeded["node"], heeded["by_t"]) == ("NodeDraining", "n1", 35.0)
    assert refused["event"] == "DrainAsked"
    assert (resized["event"], resized["before"], resized["after"]) == ("Resized", "dp=2 tp=1 pp=2", "dp=1 tp=1 pp=2")
    assert (resized["predicted_s"], resized["actual_s"], resized["reason"]) == (0.2, 0.3, "it moved")
    assert back["event"] == "RolledBack"


def test_the_numbers_of_events_go_on_in_the_next_controller(tmp_path):
    for epoch in (1, 2):
        sink = EventsSink(tmp_path / "events.jsonl")
        played(sink, epoch=epoch)
        sink.close()
    seqs = [line["seq"] for line in lines(tmp_path / "events.jsonl")]
    assert seqs == list(range(1, len(seqs) + 1))


def test_a_full_disk_is_named_and_leaves_no_torn_line(tmp_path):
    script = (
        "import resource, sys, pathlib, signal\n"
        "from raymega.driver.records.json_lines import LineWriter\n"
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))\n"
        "lines = LineWriter(pathlib.Path(sys.argv[1]))\n"
        "for number in range(100):\n"
        "    lines.add({'number': number, 'text': 'x' * 50})\n"
    )
    file = tmp_path / "events.jsonl"
    done = subprocess.run([sys.executable, "-c", script, str(file)], capture_output=True, text=True, check=False)
    assert f"StateError: {file} cannot be written" in done.stderr
    assert file.read_bytes().endswith(b"}\n")
    assert len(lines(file)) == len(file.read_bytes().splitlines()) > 5


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_no_permission_is_named(tmp_path):
    tmp_path.chmod(0o500)
    with pytest.raises(StateError, match="cannot be written: Permission denied"):
        LineWriter(tmp_path / "events.jsonl")


def test_lines_are_json_for_everybody(tmp_path):
    writer = LineWriter(tmp_path / "x.jsonl")
    writer.add({"a": math.inf, "b": [math.nan, {"c": -math.inf}]})
    writer.close()
    assert json.loads((tmp_path / "x.jsonl").read_text(), parse_constant=pytest.fail) == {
        "a": None,
        "b": [None, {"c": None}],
    }


def test_a_repaired_step_is_an_event_with_its_times_and_without_what_the_ruling_was_made_on(tmp_path):
    sink = EventsSink(tmp_path / "events.jsonl")
    played(sink, work=True, kill_once={13: 2})
    sink.close()
    told = lines(tmp_path / "events.jsonl")
    repaired = next(line for line in told if line["event"] == "StepRepaired")
    assert (repaired["step"], repaired["missing"], repaired["recomputed"]) == (13, 16, 4)
    parts = [repaired[key] for key in ("detect_s", "regroup_s", "repair_s")]
    assert repaired["actual_s"] == pytest.approx(sum(parts))
    assert repaired["regroup_s"] > 0
    assert told[-1]["steps_lost"] == 0
    assert not any({"work", "decided", "heard"} & set(line) for line in told)
