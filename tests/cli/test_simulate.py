import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from raymega.cli.app import app
from raymega.errors import ConfigError
from tests.report.told_runs import told_run


def simulated(*words: str) -> str:
    done = CliRunner().invoke(app, ["simulate", "nano", "--cluster", "cpu:4", *words], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return done.output


@pytest.fixture
def trace(tmp_path: Path) -> str:
    file = tmp_path / "spot.csv"
    file.write_text("t_s,n_nodes\n0,4\n100,3\n200,4\n300,4\n")
    return str(file)


def test_a_trace_is_lived_through_drawn_and_explained(trace: str) -> None:
    text = simulated("--trace", trace)
    assert text.startswith("5 min on 3.7 of 4 nodes of 1, 2 changes")
    assert text.splitlines()[0].endswith(" s in fp32")
    assert "of linear" in text
    assert "detect_s" in text


def test_devices_in_no_plan_are_told_of_first_with_a_way_to_use_them() -> None:
    first, *_ = simulated("--cluster", "cpu:6", "--duration", "1m").splitlines()
    assert first.startswith("4 of 6 devices are used by dp=2 tp=1 pp=2; ")
    way = "parallelism.data_parallel_size=auto"
    assert f"--set {way}" in first
    words = ("--cluster", "cpu:8", "--duration", "1m", "--set", way)
    assert simulated(*words).startswith("60 s on 8.0 of 8 nodes")


def test_programs_are_given_the_same_figures(trace: str) -> None:
    found = json.loads(simulated("--trace", trace, "--json"))
    assert found["duration_s"] == 300
    assert 0.5 < found["goodput"] <= 1
    assert sum(found["shares"].values()) == pytest.approx(1)


def test_failures_can_be_drawn_instead() -> None:
    found = json.loads(simulated("--mtbf", "2m", "--duration", "20m", "--back", "1m", "--json"))
    assert found["repairs"] > 0


def test_a_trace_of_more_nodes_than_the_cluster_has_is_refused(trace: str) -> None:
    with pytest.raises(ConfigError, match=r"has up to 4 nodes; the cluster has 2, .* Give a --cluster of 4 nodes"):
        simulated("--cluster", "cpu:2", "--trace", trace)


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("--mtbf", "soon"), "--mtbf: 'soon'"),
        (("--mtbf", "1m", "--trace", "x.csv"), "Give one of them"),
        (("--trace", "nowhere.csv"), "nowhere.csv cannot be read"),
        (("--cluster", "cpu:0"), "at least one node"),
        (("--price", "1e308"), "--price is 1e.308; dollars of a device-hour are above zero, and at most"),
    ],
)
def test_what_makes_no_sense_is_refused(words: tuple[str, ...], says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        simulated(*words)


def test_a_run_that_was_made_gives_its_times_and_its_faults(tmp_path: Path) -> None:
    run = told_run(tmp_path / "demo", kill_once={13: 2})
    found = json.loads(simulated("--journal", str(run.path), "--trace", str(run.path), "--json"))
    assert found["full_step_s"] == pytest.approx(0.09, rel=0.1)  # of its hands
    assert found["repairs"] + found["rewinds"] > 0
