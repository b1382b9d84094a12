"""The verbs that show a run: a page of its own, and a dashboard for all."""

import json
from pathlib import Path

from tests.report.told_runs import told_run


def test_report_writes_the_page_and_says_where(raymega, tmp_path: Path):
    run = told_run(tmp_path / "runs" / "demo")
    ended = raymega("report", "demo")
    assert (ended.code, ended.out.strip()) == (0, str(run.path / "report.html"))
    assert "<h1>Run demo</h1>" in (run.path / "report.html").read_text()
    elsewhere = tmp_path / "otter.html"
    assert raymega("report", str(run.path), "--out", str(elsewhere)).out.strip() == str(elsewhere)
    assert elsewhere.exists()


def test_a_report_of_what_is_no_run_or_on_no_cluster_is_refused(raymega, tmp_path: Path):
    told_run(tmp_path / "runs" / "demo")
    assert "nope is no run" in raymega("report", "nope").err
    small = raymega("report", "demo", "--cluster", "local:2")
    assert (small.code, "has 2 devices" in small.err) == (2, True)
    assert not (tmp_path / "runs" / "demo" / "report.html").exists()
    unwritable = raymega("report", "demo", "--out", str(tmp_path / "none" / "x.html"))
    assert (unwritable.code, "cannot be written" in unwritable.err) == (5, True)


def test_dashboard_prints_what_grafana_imports(raymega, tmp_path: Path):
    printed = json.loads(raymega("dashboard").out)
    assert printed["title"] == "raymega"
    assert raymega("dashboard", "--out", "board.json").code == 0
    assert json.loads((tmp_path / "board.json").read_text()) == printed
