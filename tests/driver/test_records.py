"""Figures that other programs read: TensorBoard, trackers, traces, the summary on disk."""

import json
import sys
import types

import pytest

from raymega.config.schema import Config, ModelConfig, TrainingConfig
from raymega.driver.records.progress import Facts, Progress
from raymega.driver.records.summary import SummaryFile
from raymega.driver.records.trace import write_trace
from raymega.driver.sinks.tensorboard_sink import TensorBoardSink
from raymega.driver.sinks.trackers import TrackerSink, check_trackers, open_trackers
from raymega.errors import ConfigError
from raymega.worker.interface import TraceRow
from tests.control.examples import SEATS
from tests.control.fake_hands import plan_for
from tests.driver.runs import played


class Kept:
    """A tracker that keeps what it is given, and fails at `breaks_at`."""

    def __init__(self, breaks_at: int = 0) -> None:
        self.steps, self.ended, self.breaks_at = [], None, breaks_at

    def begin(self, *, name, config, folder) -> None:
        self.name = name

    def log(self, *, step, figures) -> None:
        if step == self.breaks_at:
            raise ConnectionError("no route to host")
        self.steps.append((step, figures["loss/train"]))

    def end(self, *, exit_code) -> None:
        self.ended = exit_code


def tracked(tracker: Kept, tmp_path) -> list[str]:
    warnings: list[str] = []
    sink = TrackerSink(tracker, name="demo", config=Config(), folder=tmp_path, t=1000.0, warn=warnings.append)
    last, _ = played(sink)
    sink.close()
    assert last.exit_code == 0
    return warnings


def test_a_tracker_gets_every_step_and_the_end(tmp_path):
    tracker = Kept()
    assert tracked(tracker, tmp_path) == []
    assert ([step for step, _ in tracker.steps], tracker.ended) == (list(range(1, 21)), 0)


def test_a_tracker_that_fails_is_left_alone_and_the_run_goes_on(tmp_path):
    tracker = Kept(breaks_at=3)
    assert tracked(tracker, tmp_path) == ["Kept failed and is left alone: ConnectionError: no route to host"]
    assert ([step for step, _ in tracker.steps], tracker.ended) == ([1, 2], None)


def test_a_tracker_that_is_not_installed_is_named_before_anything_starts(monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(
        ConfigError, match=r"log\.trackers: wandb, mlflow is not installed here\. Run pip install wandb"
    ):
        check_trackers(("wandb", "mlflow"))


def test_wandb_and_mlflow_are_called_as_they_want_to_be(monkeypatch, tmp_path):
    calls: list[str] = []

    def noting(name: str, **own: object) -> types.ModuleType:
        module = types.ModuleType(name)
        module.__spec__ = types.SimpleNamespace(name=name)
        for call, answer in own.items():
            setattr(module, call, lambda *args, call=call, answer=answer, **kwargs: (calls.append(call), answer)[1])
        return module

    run = types.SimpleNamespace(log=lambda *a, **k: calls.append("log"), finish=lambda **k: calls.append("finish"))
    monkeypatch.setitem(sys.modules, "wandb", noting("wandb", init=run))
    mlflow = noting("mlflow", start_run=None, log_dict=None, log_metrics=None, end_run=None)
    monkeypatch.setitem(sys.modules, "mlflow", mlflow)
    for tracker in open_trackers(("wandb", "mlflow")):
        tracker.begin(name="demo", config={}, folder=tmp_path)
        tracker.log(step=1, figures={"loss/train": 1.0})
        tracker.end(exit_code=0)
    assert calls == ["init", "log", "finish", "start_run", "log_dict", "log_metrics", "end_run"]


def test_tensorboard_gets_the_figures_of_every_step(tmp_path):
    sink = TensorBoardSink(tmp_path, step=0, t=1000.0)
    played(sink, kill_once={13: 2})
    sink.close()
    files = list(tmp_path.iterdir())
    written = b"".join(file.read_bytes() for file in files)
    assert len(files) == 2, "what is done again is in a file of its own, which purges the steps before"
    assert all(name in written for name in (b"loss/train", b"optimizer/lr", b"goodput/useful", b"throughput"))


def test_the_summary_lies_on_disk_when_the_run_has_ended(tmp_path):
    config = Config(training=TrainingConfig(steps=20), model=ModelConfig(vocab_size=2000))
    facts = Facts(name="demo", run_dir=str(tmp_path), config=config, flops_per_token=1)
    played(SummaryFile(tmp_path / "summary.txt", facts=facts, progress=Progress.begin(1000.0)))
    text = (tmp_path / "summary.txt").read_text()
    assert "run demo ended with exit code 0: all 20 steps" in text
    assert "  goodput  " in text


def test_a_trace_has_a_process_for_each_worker_and_begins_at_zero(tmp_path):
    plan = plan_for(SEATS).plan
    rows = {
        worker: [
            TraceRow(name="0F0", start_s=50.0 + rank, duration_s=0.25, lane="compute"),
            TraceRow(name="send", start_s=50.5 + rank, duration_s=0.1, lane="communication"),
            TraceRow(name="sums", start_s=50.6 + rank, duration_s=0.3, lane="hidden"),
            TraceRow(name="reduce", start_s=50.9 + rank, duration_s=0.1, lane="communication"),
            TraceRow(name="gather", start_s=50.95 + rank, duration_s=0.05, lane="communication"),
        ]
        for rank, worker in enumerate(plan.workers)
    }
    trace = json.loads(write_trace(tmp_path, rows, step=7, plan=plan).read_text())
    events = trace["traceEvents"]
    names = [event["args"]["name"] for event in events if event["name"] == "process_name"]
    assert names[3] == "w3 (replica 1, stage 1, shard 0)"
    stretches = [(event["pid"], event["name"], event["ts"], event["dur"]) for event in events if event["ph"] == "X"]
    assert stretches[:2] == [(0, "0F0", 0.0, 250_000.0), (0, "send", 500_000.0, 100_000.0)]
    assert all(event["ts"] >= 0 for event in events if event["ph"] == "X")
    shares = trace["otherData"]
    assert (shares["exposed share of gradient sums"], shares["exposed share of the step"]) == (0.25, 0.15)
