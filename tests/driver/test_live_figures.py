"""What a run tells Prometheus, and the dashboard that shows it."""

import json
import re
import threading
from functools import reduce
from importlib.resources import files
from types import SimpleNamespace

import pytest

from raymega.control.goodput import CATEGORIES
from raymega.driver.process.in_thread import InThread
from raymega.driver.records.progress import Progress
from raymega.driver.sinks.live_figures import EXPORTED_AS, FIGURES, Sample, Vital, samples_of, stage_samples
from raymega.driver.sinks.live_metrics_sink import LiveMetricsSink
from raymega.worker.time_sheet import Spent
from tests.control.examples import PLAN
from tests.driver.runs import turns_of
from tests.house.rooms import ROOT

NAMES = {figure.name for figure in FIGURES}
BY_STAGE = {"raymega_memory_bytes", "raymega_stage_busy_share"}


def vital(useful_s: float, idle_s: float, *, memory_bytes: int = 0, in_hand_s: float = 0.0) -> Vital:
    spent = Spent(seconds={"useful": useful_s, "idle": idle_s}, in_hand={"useful": in_hand_s})
    return Vital(memory_bytes=memory_bytes, spent=spent)


def targets() -> list[tuple[str, str]]:
    """What each line of the dashboard asks for, and what it is called there."""
    board = json.loads((files("raymega") / "dashboards" / "grafana.json").read_text())
    return [(target["expr"], target["legendFormat"]) for panel in board["panels"] for target in panel["targets"]]


def test_the_dashboard_asks_for_just_what_is_exported():
    asked = [name for query, _ in targets() for name in re.findall(rf"{EXPORTED_AS}(\w+)", query)]
    assert set(asked) == NAMES
    assert len(asked) == len(targets())
    assert all('{run=~"$run"}' in query for query, _ in targets())


def test_each_of_its_lines_is_one_of_a_run_and_of_each_label_and_named_by_them():
    labels = {figure.name: ["run", *figure.labels] for figure in FIGURES}
    for query, called in targets():
        (name,) = re.findall(rf"{EXPORTED_AS}(\w+)", query)
        assert query.startswith(f"max by ({', '.join(labels[name])}) (")  # Ray's own labels change with a controller
        assert re.findall(r"{{(\w+)}}", called) == labels[name]


def test_its_panels_do_not_lie_on_each_other():
    board = json.loads((files("raymega") / "dashboards" / "grafana.json").read_text())
    spots = [
        (x, y)
        for at in (panel["gridPos"] for panel in board["panels"])
        for x in range(at["x"], at["x"] + at["w"])
        for y in range(at["y"], at["y"] + at["h"])
    ]
    assert len(spots) == len(set(spots))
    assert max(x for x, _ in spots) < 24


def test_every_figure_but_those_of_stages_and_validation_follows_from_the_turns():
    told = reduce(Progress.after, turns_of(kill_once={13: 2}), Progress.begin(1000.0))
    samples = list(samples_of(told))
    values = {sample.name: sample.value for sample in samples}
    assert set(values) >= NAMES - BY_STAGE - {"raymega_validation_loss"}
    assert (values["raymega_step"], values["raymega_steps_lost"]) == (20, 2)
    assert values["raymega_goodput"] == told.goodput.share
    spent = [sample.value for sample in samples if sample.name == "raymega_worker_seconds"]
    assert len(spent) == len(CATEGORIES)
    assert sum(spent) == pytest.approx(told.goodput.total_s)


def test_a_stage_is_as_busy_as_its_workers_were_since_the_last_look():
    first, second = (PLAN.workers[PLAN.team(0, stage)[0]] for stage in (0, 1))
    before = {first: vital(10.0, 0.0), second: vital(5.0, 5.0)}
    now = {first: vital(13.0, 1.0, memory_bytes=7), second: vital(6.0, 7.0, in_hand_s=1.0)}
    told = {(sample.name, sample.labels[0][1]): sample.value for sample in stage_samples(PLAN, before=before, now=now)}
    assert told["raymega_stage_busy_share", "0"] == pytest.approx(3 / 4)
    assert told["raymega_stage_busy_share", "1"] == pytest.approx(2 / 4)
    assert told["raymega_memory_bytes", "0"] == 7


def test_a_step_that_is_taken_back_leaves_no_share_below_zero():
    worker = PLAN.workers[0]
    told = list(stage_samples(PLAN, before={worker: vital(10.0, 0.0)}, now={worker: vital(9.0, 5.0)}))
    assert [sample.value for sample in told if sample.name == "raymega_stage_busy_share"] == [0.0]


class Gauges(dict[str, dict[str, float]]):
    """In the place of Ray's: what was set, by name and labels."""

    def gauge(self, name: str, *, description: str, tag_keys: tuple[str, ...]) -> "Gauge":
        return Gauge(self, name, tag_keys)


class Gauge:
    def __init__(self, kept: Gauges, name: str, keys: tuple[str, ...]) -> None:
        self.kept, self.name, self.keys, self.own = kept, name, keys, dict[str, str]()

    def set_default_tags(self, tags: dict[str, str]) -> "Gauge":
        self.own = tags
        return self

    def set(self, value: float, tags: dict[str, str]) -> None:
        labels = self.own | tags
        assert tuple(sorted(labels)) == tuple(sorted(self.keys))
        self.kept.setdefault(self.name, {})[str(labels)] = value


def test_the_sink_sets_each_sample_with_the_labels_of_its_figure(monkeypatch):
    kept = Gauges()
    monkeypatch.setattr("raymega.driver.sinks.live_metrics_sink.Gauge", kept.gauge)
    looks = iter([{PLAN.workers[0]: vital(1.0 * look, 0.5 * look, memory_bytes=9)} for look in range(1, 99)])
    sink = LiveMetricsSink(run="demo", progress=Progress.begin(1000.0), vitals=lambda: next(looks))
    for turn in turns_of():
        sink.saw(turn)
    sink.tick()
    assert kept["raymega_step"] == {"{'run': 'demo'}": 20}
    assert kept["raymega_stage_busy_share"]["{'run': 'demo', 'stage': '0'}"] == pytest.approx(2 / 3)
    assert set(kept) >= BY_STAGE
    assert Sample(name="a", value=1.0).labels == ()


def test_a_run_that_stands_is_told_again_at_each_tick(monkeypatch):
    kept = Gauges()
    monkeypatch.setattr("raymega.driver.sinks.live_metrics_sink.Gauge", kept.gauge)
    sink = LiveMetricsSink(run="demo", progress=Progress.begin(1000.0), vitals=lambda: {PLAN.workers[0]: vital(1, 1)})
    for turn in turns_of():
        sink.saw(turn)
    told = set(kept)
    kept.clear()  # as Ray does with what is not set any more
    sink.tick()
    assert set(kept) == told | {"raymega_memory_bytes"}


def test_ticks_come_with_turns_and_without():
    ticked, seen = threading.Semaphore(0), threading.Semaphore(0)
    (turn, *_) = turns_of()
    sink = SimpleNamespace(saw=lambda turn: seen.release(), tick=ticked.release, close=lambda: None)
    telling = InThread(lambda: sink, tick_s=0.01)
    for _ in range(3):
        telling.saw(turn)
        assert seen.acquire(timeout=10.0)
        assert ticked.acquire(timeout=10.0)
    telling.close()


def test_the_manual_names_every_figure_with_its_labels():
    manual = (ROOT / "docs" / "metrics.md").read_text()
    for figure in FIGURES:
        labels = f"`{figure.labels[0]}`" if figure.labels else ""
        assert f"| `{EXPORTED_AS}{figure.name}` | {labels} |".replace("|  |", "| |") in manual
