import pytest

from raymega.driver.records.accounting import progress_of
from raymega.driver.records.run_dir import RunDirectory
from raymega.errors import ConfigError
from raymega.report.foretold import Pair, foretold, foretold_text
from tests.driver.test_accounting import trained
from tests.driver.written import events, steps

EVENTS = (
    {"event": "StepRepaired", "step": 13, "predicted_s": 1.5, "actual_s": 2.0},
    {"event": "Resized", "step": 15, "predicted_s": 0.6, "actual_s": 0.7, "before": "dp=2 tp=1 pp=2", "after": "dp=1"},
    {"event": "WorkerLost", "step": 13},
)


@pytest.fixture
def run(tmp_path) -> RunDirectory:
    found = RunDirectory(path=tmp_path)
    trained(found)
    found.metrics.write_text(steps(*({"step_s": seconds} for seconds in (0.4, 0.5, 9.0))))
    found.events.write_text(events(*EVENTS))
    return found


def told_of(run: RunDirectory, *, cluster: str | None) -> tuple[Pair, ...]:
    return foretold(run, progress=progress_of(run), cluster=cluster)


def test_a_change_of_workers_alone_is_told_as_one(run):
    run.events.write_text(events(EVENTS[1] | {"after": "dp=2 tp=1 pp=2"}))
    assert "dp=2 tp=1 pp=2, other workers, after step 15" in {pair.of for pair in told_of(run, cluster=None)}


def test_what_was_foretold_of_a_run_stands_beside_what_it_took(run):
    step, repair, change = told_of(run, cluster=None)
    assert (step.measured_s, step.of) == (0.5, "dp=2 tp=1 pp=2")
    assert 0 < step.predicted_s < 10
    assert repair == Pair(kind="repair", predicted_s=1.5, measured_s=2.0, of="of step 13")
    assert change.of == "dp=2 tp=1 pp=2 -> dp=1 after step 15"
    assert "  repair         1.5 s         2 s   of step 13" in foretold_text((repair,), cluster="local:4")


def test_faster_hardware_foretells_shorter_steps(run):
    slow, fast = (told_of(run, cluster=word)[0].predicted_s for word in ("local:4", "dgx-a100:1"))
    assert fast < slow


def test_a_cluster_that_is_too_small_for_the_run_is_refused(run):
    with pytest.raises(ConfigError, match="has 2 devices"):
        told_of(run, cluster="local:2")


def test_of_a_run_without_a_step_nothing_is_told(tmp_path):
    found = RunDirectory(path=tmp_path)
    trained(found)
    assert told_of(found, cluster=None) == ()
    assert foretold_text((), cluster=None) == ""
