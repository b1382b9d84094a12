"""A gradient leaves ahead of the products for weights: the same bits, and a kill between the two is repaired."""

import pytest
import torch

from raymega.model import stage
from raymega.pipeline.actions import Action, Kind
from raymega.worker.execute import Executor, _Run
from tests.worker.killing import kill_world
from tests.worker.rig import run_layout

MODEL = (("num_layers", 4), ("dropout", 0.1))
SHORT = {"steps": 2, "model": MODEL}


def sent_before_adding(monkeypatch: pytest.MonkeyPatch, layout: tuple[int, int, int], **settings: object) -> set[bool]:
    """Whether each gradient left before its own backward had changed an accumulator."""
    before, found = dict[tuple[str, Action], torch.Tensor](), set[bool]()
    backward, send = _Run.backward, Executor.send

    def watched_backward(self: _Run, action: Action) -> None:
        executor = self._executor
        before[executor.world.me, action] = executor.chunks[action.stage].flat.grad.clone()
        backward(self, action)

    def watched_send(self: Executor, action: Action, run: _Run) -> None:
        if action.kind is Kind.B and action.stage > 0:
            found.add(torch.equal(self.chunks[action.stage].flat.grad, before[self.world.me, action]))
        send(self, action, run)

    monkeypatch.setattr(_Run, "backward", watched_backward)
    monkeypatch.setattr(Executor, "send", watched_send)
    run_layout(layout, **SHORT, **settings)
    return found


@pytest.mark.parametrize(
    ("layout", "settings", "is_early"),
    [
        ((2, 1, 2), {}, True),
        ((1, 1, 2), {"schedule": "interleaved", "chunks": 2, "precision": "bf16"}, True),
        ((1, 2, 2), {}, False),
        ((1, 1, 2), {"recompute": "selective"}, False),
        ((1, 1, 2), {"recompute": [3]}, False),
    ],
    ids=str,
)
def test_gradients_leave_early_where_that_costs_nothing(monkeypatch, layout, settings, is_early):
    assert sent_before_adding(monkeypatch, layout, **settings) == {is_early}


@pytest.mark.parametrize(
    ("layout", "settings"),
    [
        ((2, 1, 2), {}),
        ((1, 1, 3), {"schedule": "gpipe"}),
        ((1, 1, 2), {"schedule": "interleaved", "chunks": 2, "unbuffered": True}),
        ((1, 1, 2), {"precision": "bf16"}),
    ],
    ids=str,
)
def test_a_gradient_that_left_early_changes_no_bit(monkeypatch, layout, settings):
    early = run_layout(layout, **SHORT, **settings)
    monkeypatch.setattr(stage, "parts_cost_nothing", lambda *_, **__: False)
    late = run_layout(layout, **SHORT, **settings)
    assert [report.facts for report in early.reports] == [report.facts for report in late.reports]
    assert all(torch.equal(weight, late.weights[name]) for name, weight in early.weights.items())


@pytest.mark.parametrize("schedule", ["gpipe", "interleaved"])
def test_a_kill_between_a_gradient_and_its_weights_part_costs_what_died_and_nothing_else(schedule):
    with kill_world((2, 1, 2), schedule=schedule, chunks=2 if schedule == "interleaved" else 1) as world:
        world.look()
        for victim in world.plan.workers:
            for point in (point for point in world.points[victim] if point.endswith("sent")):
                world.check(world.kill(victim, at=point))
        assert sum(point.endswith("sent") for points in world.points.values() for point in points) >= 4
