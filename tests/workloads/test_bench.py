"""The bench compares equal work, and its statistics say what they claim."""

import numpy as np
import pytest
import torch

from raymega.config.schema import Config
from raymega.model.stage import PassContext, build_stage
from tests.worker.rig import tiny_config
from workloads.bench.contender import Block
from workloads.bench.pairs import Outcome, Spread, alternate
from workloads.bench.peer import loss_sum, sizes_of
from workloads.bench.plain_model import PlainDecoder, fill
from workloads.bench.same_work import first_values, rows_of
from workloads.bench.settings import MESHES, Settings, plan_of


class Timed:
    """A contender that takes `step_s` a step, and starts from another loss if told so."""

    def __init__(self, step_s: float, *, loss: float = 2.0) -> None:
        self.step_s, self.loss = step_s, loss

    def prepare(self, steps: tuple[int, int]) -> None:
        self.num_steps = steps[1] - steps[0]

    def run(self) -> Block:
        seconds = self.step_s * self.num_steps
        return Block(seconds=seconds, processor_s=seconds / 2, losses=(self.loss,) * self.num_steps)


def contest(a: Timed, b: Timed) -> Outcome:
    return alternate(a, b, precision="fp32", num_pairs=9, block_s=1.0, tell=lambda line: None)


@torch.no_grad()
def plain_loss(config: Config, layers: tuple[tuple[int, int], ...]) -> float:
    rows = torch.from_numpy(rows_of(config, 0)).long()
    x = rows[:, :-1]
    for part in layers:
        model = PlainDecoder(sizes_of(config, layers=part))
        fill(model, first_values(config))
        x = model(x)
    return float(loss_sum(x, rows[:, 1:]))


@torch.no_grad()
def own_loss(config: Config) -> float:
    rows = torch.from_numpy(rows_of(config, 0)).long()
    stage = build_stage(config, layers=(0, 10), first=True, last=True, team=None, seed=1234)
    context = PassContext(step=0, samples=torch.arange(len(rows)), training=True)
    return float(stage.loss_sum(stage.forward(rows[:, :-1], context), rows[:, 1:], None))


@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize("layers", [((0, 10),), ((0, 4), (4, 10))])
def test_the_plain_model_computes_the_same_loss(tied: bool, layers: tuple[tuple[int, int], ...]):
    config = tiny_config(model={"tie_embeddings": tied})
    assert plain_loss(config, layers) == pytest.approx(own_loss(config), rel=1e-5)


def test_a_contender_half_as_slow_has_a_ratio_of_two():
    outcome = contest(Timed(0.2), Timed(0.4))
    assert (outcome.ratio.median, outcome.ratio.low) == (pytest.approx(2.0), pytest.approx(2.0))
    assert outcome.work.median == pytest.approx(2.0)
    assert outcome.same.median == pytest.approx(1.0)


def test_the_noise_of_the_machine_shows_in_a_a():
    blocks = [Block(seconds=s, processor_s=s, losses=(1.0,)) for s in (1.0, 1.5) * 5]
    same = Outcome(raymega=blocks, peer=blocks, loss_gap=0.0).same
    assert same.low < 0.7
    assert same.high > 1.4


def test_contenders_that_do_other_work_are_refused():
    with pytest.raises(AssertionError, match="losses of the same steps differ"):
        contest(Timed(0.2), Timed(0.2, loss=2.001))


def test_an_interval_holds_the_median_of_what_it_is_drawn_from():
    draws = [np.random.default_rng(seed).normal(1.0, 0.1, size=15) for seed in range(40)]
    inside = [spread.low <= 1.0 <= spread.high for spread in (Spread.of(list(draw)) for draw in draws)]
    assert 34 <= sum(inside)


def test_every_contest_has_a_plan_of_its_mesh():
    settings = Settings.read()
    for shape in settings.shapes:
        for name, (dp, pp) in MESHES.items():
            mesh = plan_of(settings.config(shape, name)).mesh
            assert (mesh.dp, mesh.pp, mesh.tp) == (dp, pp, 1)
