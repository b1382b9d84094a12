"""The page of a run: from its directory alone, whole in itself, whatever has become of the run."""

import html
import re
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path

import pytest

from raymega.driver.records.accounting import history_of
from raymega.driver.records.run_dir import RunDirectory
from raymega.plan.plan import Plan
from raymega.report.on_the_clock import measured_step
from raymega.report.report import report_of
from tests.report.told_runs import cut_off, gone_on, sheets, told_run, traced

NOW = 20_000.0
OPEN_ENDED = {"meta", "line", "rect", "circle", "polyline", "br", "text"}


class Page(HTMLParser):
    """A page whose elements are closed in order; its headlines and pictures."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[str] = []
        self.feed(text)
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: object) -> None:
        self.tags.append(tag)
        if tag not in {"meta", "br"}:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: object) -> None:
        self.tags.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def plan_of(run: RunDirectory) -> Plan:
    progress = history_of(run).progress
    assert progress is not None
    assert progress.plan is not None
    return progress.plan


def headlines(text: str) -> list[str]:
    return re.findall(r"<h2>(.*?)</h2>", text)


ALL = [
    "Loss, and what happened", "Goodput: where the time went", "The mesh over time", "A step on the clock",
    "Predicted beside measured", "Decisions, and why",
]  # fmt: skip


def test_a_run_that_was_started_again_is_told_as_one(tmp_path: Path):
    run = sheets(gone_on(tmp_path))
    text = report_of(traced(run, plan=plan_of(run)), cluster=None, now=NOW)
    assert headlines(text) == ALL
    assert Page(text).tags.count("svg") == 7
    assert "40 of 40" in text
    assert "worker lost (2)" in text
    assert "<b>2</b><span>recoveries</span>" in text, "a launch is none"
    assert "from the checkpoint of step 20" in text
    assert "measured: step 7" in text


@pytest.mark.parametrize("made", [lambda path: told_run(path), lambda path: cut_off(gone_on(path))])
def test_nothing_of_it_comes_from_elsewhere(tmp_path: Path, made: Callable[[Path], RunDirectory]):
    page = report_of(made(tmp_path), cluster=None, now=NOW)
    tags = set(Page(page).tags)
    assert not tags & {"script", "link", "img", "iframe", "object", "embed"}
    assert set(re.findall(r'(?:src|href|url)\s*[=(]\s*["\']?([^"\')]+)', page)) == set()
    assert set(re.findall(r"https?://[^\"' ]+", page)) == {"http://www.w3.org/2000/svg"}


def test_a_run_that_goes_on_is_shown_as_far_as_it_is(tmp_path: Path):
    text = report_of(cut_off(told_run(tmp_path, kill_once={5: 2})), cluster=None, now=NOW)
    assert "Loss, and what happened" in headlines(text)
    assert "its controller is gone and did not say how it ended" in text


def test_a_run_that_failed_says_so_and_how_it_goes_on(tmp_path: Path):
    run = told_run(tmp_path / "my runs", kill_at={13: 2})
    text = html.unescape(report_of(run, cluster=None, now=NOW))
    assert "ended with exit code" in text
    assert f"raymega train '{run.path}/config.yaml'" in text, "to be typed as it stands"


def test_a_run_without_a_step_has_a_page_too(tmp_path: Path):
    run = told_run(tmp_path)
    for file in (run.metrics, run.events, *run.journal.iterdir()):
        file.unlink()
    text = report_of(run, cluster=None, now=NOW)
    assert headlines(text) == ["Loss, and what happened"]
    assert "no step is committed yet" in text


def test_what_a_run_says_is_no_markup(tmp_path: Path):
    run = told_run(tmp_path, kill_once={13: 2})
    run.events.write_text(run.events.read_text().replace("w2 is lost", "<script>w2</script> is lost"))
    text = report_of(run, cluster=None, now=NOW)
    assert "&lt;script&gt;w2" in text
    assert "<script>" not in text


def test_the_newest_whole_trace_is_drawn_from_the_first_pass_on(tmp_path: Path):
    run = told_run(tmp_path)
    plan = plan_of(run)
    traced(traced(run, plan=plan, step=9), plan=plan, step=7)
    (run.traces / "step-11.json").write_text('{"traceEvents": [')
    measured = measured_step(run)
    assert measured is not None
    assert measured.step == 9
    assert measured.span_s == pytest.approx(0.5)
    assert measured.rows[0].label == "w0  replica 0 stage 0"
    assert [bar.name for bar in measured.rows[0].bars] == ["0F0", "wait"]
