"""What a run shows of itself in a notebook: its timeline, and its controls; no run is alive here."""

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from raymega.control.events import DisturbAsked
from raymega.control.states import NodeDevices
from raymega.driver.records.lock import RunLock
from raymega.driver.records.run_dir import RunDirectory
from raymega.errors import ClusterError, ConfigError, StateError
from raymega.notebook.controls import controls_of
from raymega.notebook.reaching import order_to_kill
from raymega.notebook.run import Run
from raymega.plan.cluster import MARKET_LABEL
from raymega.plan.plan import Plan
from tests.report.told_runs import gone_on, told_run, traced, with_gaps


class Asked:
    """A run that answers what it is asked, and refuses to be resized."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    def __getattr__(self, verb: str):
        def ask(**facts: object) -> str:
            self.asked.append(f"{verb}{facts or ''}")
            if verb == "resize":
                raise ClusterError("run demo goes on as it is: <2> devices")
            return f"{verb}: so be it"

        return ask

    def _repr_html_(self) -> str:
        return f"<b>{len(self.asked)}</b>"


def buttons_of(made) -> dict[str, object]:
    return {child.description: child for row in made.children[:2] for child in row.children}


def test_a_timeline_draws_places_over_time_and_the_step_that_was_traced(tmp_path: Path):
    run = Run.at(gone_on(tmp_path / "demo"))
    assert run.timeline()._repr_html_().count("<svg") == 2, "as predicted, where nothing was traced"
    traced(run.directory, plan=run.plan)
    shown = run.timeline(step=7)
    assert shown._repr_html_().count("<svg") == 3
    assert "Step 7, as it was measured" in shown._repr_html_()
    first, *lines = str(shown).splitlines()
    assert first.startswith("demo  up for ")
    assert sum(line.endswith(", lost") for line in lines) == 2
    with pytest.raises(ConfigError, match=r"step 9 was not traced; traces: 7\. log\.trace_steps"):
        run.timeline(step=9)


def test_a_run_without_a_place_has_a_timeline_that_says_so(tmp_path: Path):
    run = told_run(tmp_path / "demo")
    for file in run.journal.iterdir():
        file.unlink()
    assert str(Run.at(run).timeline()) == "demo: nobody has had a place yet"


def test_a_step_whose_loss_is_no_number_is_a_gap_wherever_a_run_is_shown(tmp_path: Path):
    run = Run.at(with_gaps(told_run(tmp_path / "demo")))
    table = run.metrics()
    assert (table.column("loss")[7].as_py(), table.column("val_loss").null_count) == (None, 16)
    assert str(run.loss_plot()).count("<polyline") == run._repr_html_().count("<polyline") == 1
    assert run.report().is_file()
    assert "step 20 of 20" in str(run)


def test_a_run_shows_which_of_its_nodes_may_be_taken_back(tmp_path: Path):
    there = (NodeDevices(node="n0", devices=2, labels=((MARKET_LABEL, "spot"),)), NodeDevices(node="n1", devices=2))
    run = Run.at(told_run(tmp_path / "demo", nodes=there))
    shown = run._repr_html_()
    assert (shown.count(">spot<"), "Nodes marked spot may be taken back" in shown) == (2, True)
    assert run.report().read_text().count(">spot<") == 2


def test_before_its_first_step_a_run_has_all_columns_and_no_row(tmp_path: Path):
    table = Run.at(RunDirectory(path=tmp_path)).metrics()
    assert (table.num_rows, {"step", "loss", "mesh", "val_loss"} <= set(table.column_names)) == (0, True)


def test_a_run_that_others_go_on_with_is_not_over_though_its_keeper_has_ended(tmp_path: Path):
    directory = told_run(tmp_path / "demo")
    ended = subprocess.Popen(["true"])
    ended.wait()
    run = Run(name="demo", directory=directory, keeper=ended)
    assert run.is_over()
    lock = RunLock.acquire(directory.lock, controller="raymega:demo")
    assert not run.is_over()
    lock.release()


@pytest.mark.parametrize("verb", [lambda run: run.wait(step=99), lambda run: run.pause(), lambda run: run.stop()])
def test_whoever_does_not_want_to_wait_is_told_that_the_run_is_left_alone(tmp_path: Path, monkeypatch, capsys, verb):
    directory = told_run(tmp_path / "demo")
    lock = RunLock.acquire(directory.lock, controller="client of demo")  # it is only starting: everything waits

    def interrupted(_: float) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("time.sleep", interrupted)
    with pytest.raises(KeyboardInterrupt):
        verb(Run.at(directory))
    told = capsys.readouterr().out.splitlines()
    assert told == ["interrupted: run demo is left as it is; what it was asked before takes effect all the same"]
    assert directory.lock.exists()
    lock.release()


def test_what_a_run_is_called_and_was_asked_is_never_markup(tmp_path: Path):
    there = tuple(NodeDevices(node=f"<script>n{number}", devices=2) for number in range(2))
    asked = DisturbAsked(request=1, orders=("<script>alert('x')</script>",))
    run = Run.at(told_run(tmp_path / "<script>x", nodes=there, tell_at={4: asked}))
    traced(run.directory, plan=run.plan)
    for shown in (run._repr_html_(), run.report().read_text(), run.timeline()._repr_html_(), str(run.loss_plot())):
        assert ("<script" in shown, "&lt;script" in shown) == (False, True)


def test_a_log_that_is_not_there_is_told_with_whose_it_is(tmp_path: Path):
    with pytest.raises(StateError, match=r"worker-w1\.log is not there: w1, the worker of rank 1, has not begun"):
        Run.at(told_run(tmp_path / "demo")).logs(rank=1)


def test_buttons_ask_what_their_verbs_ask_and_show_the_answer():
    pytest.importorskip("ipywidgets")
    run = Asked()
    made = controls_of(run, lr=1e-3, devices=2)
    buttons = buttons_of(made)
    for verb in ("look", "pause", "resume", "step", "checkpoint", "set", "resize", "stop"):
        buttons[verb].click()
    assert run.asked == [
        "pause", "resume", "step", "checkpoint", "set{'lr': 0.001}", "resize{'devices': 2}", "stop",
    ]  # fmt: skip
    *_, answer, shown = made.children
    assert (answer.value, shown.value) == ("stop: so be it", "<b>7</b>")
    buttons["resize"].click()
    assert answer.value == "run demo goes on as it is: &lt;2&gt; devices"


def test_without_ipywidgets_it_is_said_what_to_install(tmp_path: Path, monkeypatch):
    monkeypatch.setitem(sys.modules, "ipywidgets", None)
    with pytest.raises(ConfigError, match="pip install ipywidgets"):
        Run.at(told_run(tmp_path / "demo")).controls()


def test_a_plan_shows_who_has_which_place_and_is_a_plan(tmp_path: Path):
    plan = Run.at(told_run(tmp_path / "demo")).plan
    assert str(plan).splitlines()[0].startswith("plan dp=2 tp=1 pp=2, 4 workers, schedule 1f1b")
    assert str(plan).splitlines()[1] == "  stage 0   layers 0-1   w0 on n0   w2 on n0"
    assert plan._repr_html_().count(">w3<") == 1
    again = replace(plan, microbatch_size=1)
    assert (again.living, again == plan, Plan.from_json(plan.to_json()).layers) == (plan.living, False, plan.layers)


def test_a_run_that_is_over_shows_its_controls_and_refuses_them(tmp_path: Path):
    pytest.importorskip("ipywidgets")
    made = Run.at(RunDirectory(path=told_run(tmp_path / "demo").path)).controls()
    buttons_of(made)["pause"].click()
    assert "does not train" in made.children[-2].value


def test_a_kill_is_ordered_for_work_that_the_worker_has_some_seconds_ahead(tmp_path: Path):
    plan = Run.at(told_run(tmp_path / "demo")).plan
    order = order_to_kill(3, plan=plan, last={"step": 40, "step_s": 0.1})
    assert order == "kill stage=1 replica=1 tp=0 step=60 action=F3"
    assert " step=3 " in order_to_kill(0, plan=plan, last=None)
    with pytest.raises(ConfigError, match="no rank 4; there are 4"):
        order_to_kill(4, plan=plan, last=None)
