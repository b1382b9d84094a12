from functools import reduce

import pytest

from raymega.config.load import to_yaml
from raymega.config.schema import (
    CheckpointConfig,
    Config,
    ElasticConfig,
    ModelConfig,
    ParallelismConfig,
    RunConfig,
    TrainingConfig,
)
from raymega.control.brain import brain_of
from raymega.control.loop import Watcher, run
from raymega.control.policy import Rules
from raymega.control.states import Checkpoint
from raymega.driver.beginning import begin
from raymega.driver.records import snapshot
from raymega.driver.records.accounting import history_of, progress_of
from raymega.driver.records.progress import Progress
from raymega.driver.records.replay import heads, told
from raymega.driver.records.run_dir import RunDirectory, write_whole
from raymega.driver.records.snapshot import Snapshots
from tests.control.fake_hands import FakeHands, nodes
from tests.driver.runs import Turns

CONFIG = Config(
    run=RunConfig(name="demo", seed=1, devices=4),
    model=ModelConfig(num_layers=4, vocab_size=2000),
    parallelism=ParallelismConfig(data_parallel_size=2, pipeline_model_parallel_size=2),
    training=TrainingConfig(steps=20, batch_size=8, micro_batch_size=2),
    checkpoint=CheckpointConfig(every_steps=5),
    elastic=ElasticConfig(max_restarts=3),
)


def trained(
    run_dir: RunDirectory, *, checkpoint: Checkpoint | None = None, t: float = 1000.0, ray_s: float = 0.0,
    config: Config = CONFIG, watchers: tuple[Watcher, ...] = (), **faults,
) -> Turns:  # fmt: skip
    """A run in virtual time with the real planner, written to `run_dir`; asked for `ray_s` before it begins."""
    rules, turns = Rules.of(config, validates=False), Turns()
    run_dir.create()
    write_whole(run_dir.config, to_yaml(config))
    began = begin(run_dir.journal, rules=rules, checkpoint=checkpoint, launch="", config=config, began_t=t - ray_s)
    hands = FakeHands(**{"nodes": nodes(4), "clock": t, **faults})
    snapshots = Snapshots(began.tenure, history=began.history)
    run(
        began.state,
        brain=brain_of(config, rules=rules),
        hands=hands,
        watchers=[began.journal, snapshots, turns, *watchers],
    )
    began.journal.close()
    return turns


def test_a_run_told_again_from_its_directory_has_the_same_turns(tmp_path):
    run_dir = RunDirectory(path=tmp_path)
    turns = trained(run_dir, kill_once={13: 2}, break_once={7})
    assert [turn for _, turn in told(heads(run_dir.journal), config=CONFIG) if turn is not None] == turns


def test_progress_counts_over_all_controllers_and_not_the_time_between(tmp_path):
    run_dir = RunDirectory(path=tmp_path)
    trained(run_dir, kill_at={13: 2})
    alone = progress_of(run_dir).goodput
    newest = Checkpoint(step=10, uri="mem://10", tokens_total=8000)
    turns = trained(run_dir, checkpoint=newest, t=9000.0)
    both = progress_of(run_dir)
    assert both.goodput.total_s == pytest.approx(alone.total_s + 4 * (turns[-1].t - 9000.0))
    assert (both.finish.exit_code, both.story.committed, both.last.step) == (0, 20, 20)


def test_status_counts_the_time_that_ray_takes_to_start_as_the_summary_does(tmp_path):
    run_dir = RunDirectory(path=tmp_path)
    turns = trained(run_dir, ray_s=60.0)
    shown = reduce(Progress.after, turns, Progress.begin(940.0)).goodput
    assert progress_of(run_dir).goodput == shown
    assert shown.seconds["start"] > 60.0


def test_a_launch_with_another_config_leaves_the_one_before_as_it_was(tmp_path):
    run_dir = RunDirectory(path=tmp_path)
    trained(run_dir, kill_once={13: 2})
    more, smaller = TrainingConfig(steps=40, batch_size=8, micro_batch_size=2), ParallelismConfig(data_parallel_size=2)
    config = CONFIG.model_copy(update={"training": more, "parallelism": smaller})
    trained(run_dir, checkpoint=Checkpoint(step=20, uri="mem://20", tokens_total=16000), t=9000.0, config=config)
    both = progress_of(run_dir)
    assert (str(both.plan.mesh), both.story.committed, both.finish.exit_code) == ("dp=2 tp=1 pp=1", 40, 0)


def test_a_run_without_a_journal_has_no_progress_yet(tmp_path):
    run_dir = RunDirectory(path=tmp_path)
    run_dir.create()
    write_whole(run_dir.config, to_yaml(CONFIG))
    assert progress_of(run_dir) is None
    (run_dir.journal / "000001.jsonl").touch()
    assert progress_of(run_dir) is None


def test_launches_add_up_from_their_snapshots_as_from_their_whole_journals(tmp_path, monkeypatch):
    monkeypatch.setattr(snapshot, "EVERY_TURNS", 16)
    monkeypatch.setattr(snapshot, "TOLD_AGAIN", 4)
    run_dir = RunDirectory(path=tmp_path)
    trained(run_dir, kill_at={13: 2})
    more = CONFIG.model_copy(update={"training": CONFIG.training.model_copy(update={"steps": 40})})
    newest = Checkpoint(step=10, uri="mem://10", tokens_total=8000)
    turns = trained(run_dir, checkpoint=newest, t=9000.0, config=more, kill_once={33: 1})
    taken = list(run_dir.journal.glob("*.snapshot"))
    short = history_of(run_dir)
    for file in taken:
        file.unlink()
    assert (history_of(run_dir), len(taken)) == (short, 2)
    assert short.up_s == pytest.approx(history_of(run_dir).launches[1].at_s + turns[-1].t - 9000.0)
