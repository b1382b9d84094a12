"""The page as a browser shows it: every picture has a size, its words are within it, and none lies on another."""

import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pytest

from raymega.driver.records.accounting import history_of
from raymega.notebook.showing import run_html
from raymega.notebook.timelines import timeline_of
from raymega.report.report import report_of
from tests.report.told_runs import gone_on, sheets, traced

NAMES = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome")
BROWSER = next((path for path in map(shutil.which, NAMES) if path is not None), None)
LIMIT_S = 60
OVERLAP_PX = 2.0
MEASURE = """
<script>
const pictures = [...document.querySelectorAll("svg")].map(svg => ({
  title: svg.querySelector("title").textContent, box: svg.getBoundingClientRect(),
  words: [...svg.querySelectorAll("text")].map(text => ({text: text.textContent, box: text.getBoundingClientRect()})),
}));
const page = {width: document.documentElement.scrollWidth, pictures};
document.title = "measured " + encodeURIComponent(JSON.stringify(page));
</script>
"""
Box = dict[str, float]


def measured(page: Path) -> dict[str, Any]:
    """Where everything on the page is, as the browser has laid it out."""
    text = page.read_text()
    measuring = page.with_suffix(".measured.html")
    measuring.write_text(text + MEASURE)
    done = subprocess.run(
        [str(BROWSER), "--headless", "--no-sandbox", "--disable-gpu", "--window-size=1000,900", "--dump-dom",
         f"--user-data-dir={page.parent / 'profile'}", measuring.as_uri()],
        capture_output=True, text=True, timeout=LIMIT_S, check=True,
    )  # fmt: skip
    found = re.search(r"<title>measured ([^<]+)</title>", done.stdout)
    assert found is not None, done.stderr[-2000:]
    told: dict[str, Any] = json.loads(unquote(found[1]))
    return told


def within(inner: Box, outer: Box) -> bool:
    sides = (("left", "right"), ("top", "bottom"))
    return all(outer[low] - 1 <= inner[low] and inner[high] <= outer[high] + 1 for low, high in sides)


def overlap(one: Box, other: Box) -> bool:
    across = min(one["right"], other["right"]) - max(one["left"], other["left"])
    down = min(one["bottom"], other["bottom"]) - max(one["top"], other["top"])
    return across > OVERLAP_PX and down > OVERLAP_PX + 3  # letters do not fill the height of their line


def faults_of(told: dict[str, Any]) -> list[str]:
    faults = []
    for picture in told["pictures"]:
        box, words = picture["box"], picture["words"]
        if box["width"] < 100 or box["height"] < 30 or not words:
            faults.append(f"{picture['title']} is empty")
        faults += [f"{picture['title']}: {word['text']} is cut off" for word in words if not within(word["box"], box)]
        faults += [
            f"{picture['title']}: {one['text']} lies on {other['text']}"
            for number, one in enumerate(words)
            for other in words[:number]
            if overlap(one["box"], other["box"])
        ]
    return faults


needs_a_browser = pytest.mark.skipif(BROWSER is None, reason=f"no browser here: none of {', '.join(NAMES)}")


@needs_a_browser
def test_the_pictures_of_the_page_are_there_and_their_words_can_be_read(tmp_path: Path):
    run = sheets(gone_on(tmp_path / "run"))
    progress = history_of(run).progress
    assert progress is not None
    assert progress.plan is not None
    page = tmp_path / "report.html"
    page.write_text(report_of(traced(run, plan=progress.plan), cluster=None, now=20_000.0))
    told = measured(page)
    assert [picture["title"] for picture in told["pictures"]] == [
        "loss over steps", "where the worker-seconds went", "the mesh over time", f"mesh {progress.plan.mesh}",
        "a step on the clock", "a step on the clock", "predicted beside measured",
    ]  # fmt: skip
    assert faults_of(told) == []
    assert told["width"] <= 1000, "nothing has to be scrolled sideways"
    cells = f"{run_html(run)}{timeline_of(run).html}"
    notebook = tmp_path / "cell.html"
    notebook.write_text(f"<!doctype html><html><head><title>x</title></head><body>{cells}</body></html>")
    shown = measured(notebook)
    assert len(shown["pictures"]) == 6
    assert faults_of(shown) == []


def test_this_guard_can_fail():
    box = {"left": 0.0, "right": 200.0, "top": 0.0, "bottom": 50.0, "width": 200.0, "height": 50.0}
    word = {"text": "a", "box": box | {"right": 90.0, "bottom": 14.0}}
    cut = {"text": "b", "box": box | {"left": 190.0, "right": 230.0}}
    fine = {"title": "x", "box": box, "words": [word]}
    assert faults_of({"pictures": [fine]}) == []
    assert faults_of({"pictures": [fine | {"words": [word, word]}]}) == ["x: a lies on a"]
    assert faults_of({"pictures": [fine | {"words": [cut]}]}) == ["x: b is cut off"]
    assert faults_of({"pictures": [fine | {"words": []}]}) == ["x is empty"]
