import pytest
import torch

from raymega.model.dropout import Dropout
from raymega.model.pass_context import PassContext
from raymega.model.tp_team import Team
from tests.model.rig import on_shards, one_step, rows, tiny

RATE = 0.3


def drop(*, layer=2, site="mlp", seed=5, team=None):
    return Dropout(rate=RATE, seed=seed, layer=layer, site=site, team=team or Team())


def at(*, step=0, samples=(0, 1, 2), training=True):
    return PassContext(step=step, samples=torch.tensor(samples), training=training)


def mask(dropout=None, ctx=None, *, length=16, width=64):
    ctx = ctx or at()
    return (dropout or drop()).keep(torch.empty(len(ctx.samples), length, width), ctx)


def test_it_keeps_its_share_and_scales_what_it_keeps():
    x = torch.ones(3, 64, 128)
    y = drop()(x, at())
    assert (y == 0).float().mean() == pytest.approx(RATE, abs=0.01)
    assert torch.equal(y[y != 0].unique(), torch.tensor([1 / (1 - RATE)]))
    assert y.mean() == pytest.approx(1.0, abs=0.02)


@pytest.mark.parametrize("other", [drop(layer=3), drop(site="attention"), drop(seed=6)])
def test_another_layer_site_or_seed_has_another_mask(other):
    assert (mask() != mask(other)).float().mean() == pytest.approx(2 * RATE * (1 - RATE), abs=0.03)


def test_samples_steps_positions_and_channels_have_their_own_masks():
    here = mask()
    pairs = [(here, mask(ctx=at(step=1))), (here[0], here[1]), (here[:, 0], here[:, 1]), (here[..., 0], here[..., 1])]
    for a, b in pairs:
        assert (a != b).float().mean() == pytest.approx(2 * RATE * (1 - RATE), abs=0.12)


def test_a_sample_has_its_mask_wherever_it_stands():
    assert torch.equal(mask(ctx=at(samples=(7, 9)))[1], mask(ctx=at(samples=(9, 3, 7)))[0])


def test_a_cut_sequence_has_the_slices_of_the_whole_mask():
    def body(group):
        return mask(drop(team=Team(group=group, sequence_parallel=True)), length=16 // group.size)

    assert torch.equal(torch.cat(on_shards(4, body), 1), mask())


def test_replicated_shards_have_the_same_mask():
    masks = on_shards(2, lambda group: mask(drop(team=Team(group=group))))
    assert all(torch.equal(got, mask()) for got in masks)


def test_evaluation_drops_nothing():
    x = torch.randn(3, 4, 8)
    assert drop()(x, at(training=False)) is x


def test_a_repeated_pass_gives_the_same_bits():
    config = tiny(num_layers=2, dropout=0.1)
    first, again = (one_step(config, rows(2)) for _ in range(2))
    assert first.loss == again.loss
    assert all(torch.equal(first.grads[name], again.grads[name]) for name in first.grads)
