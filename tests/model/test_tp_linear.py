import pytest
import torch
import torch.nn.functional as F

from raymega.model.tp_linear import column_linear, row_linear
from raymega.model.tp_team import Team
from tests.model.rig import distance, on_counted_shards, on_shards

B, T, D, FF = 2, 8, 12, 20


def leaf(values):
    weight = values.clone().requires_grad_()
    weight.grad = torch.zeros_like(weight)
    return weight


def inputs():
    generator = torch.Generator().manual_seed(3)
    draw = [torch.randn(*shape, generator=generator) for shape in ((B, T, D), (FF, D), (FF,), (D, FF), (D,))]
    return draw, torch.randn(B, T, D, generator=generator)


def reference():
    (x, a, a_bias, b, b_bias), dy = inputs()
    xs = [t.requires_grad_() for t in (x, a, a_bias, b, b_bias)]
    y = F.linear(torch.relu(F.linear(xs[0], xs[1], xs[2])), xs[3], xs[4])
    y.backward(dy)
    return y.detach(), [t.grad for t in xs]


def part(whole, group, dim):
    return whole.chunk(group.size, dim)[group.rank]


def pair(group, *, sequence_parallel):
    """Column, relu, row on one shard: output, dX, and the four parameters' gradients."""
    (x, a, a_bias, b, b_bias), dy = inputs()
    team = Team(group=group, sequence_parallel=sequence_parallel)
    if team.cuts_sequence:
        x, dy = part(x, group, 1), part(dy, group, 1)
    x = x.requires_grad_()
    weights = [leaf(w) for w in (part(a, group, 0), part(a_bias, group, 0), part(b, group, 1), b_bias)]
    inner = torch.relu(column_linear(x, weight=weights[0], bias=weights[1], team=team))
    y = row_linear(inner, weight=weights[2], bias=weights[3], team=team)
    y.backward(dy)
    return y.detach(), x.grad, [w.grad for w in weights]


@pytest.mark.parametrize("tp", [1, 2, 4])
@pytest.mark.parametrize("sequence_parallel", [False, True])
def test_a_cut_pair_equals_the_whole(tp, sequence_parallel):
    y, (dx, da, da_bias, db, db_bias) = reference()
    shards = on_shards(tp, lambda group: pair(group, sequence_parallel=sequence_parallel))
    ys, dxs, grads = zip(*shards, strict=True)
    if sequence_parallel:
        ys, dxs = [torch.cat(ys, 1)], [torch.cat(dxs, 1)]
        row_bias = [sum(g[3] for g in grads)]  # a part on each shard
    else:
        row_bias = [g[3] for g in grads]
    assert max(distance(got, y) for got in ys) < 1e-6
    assert max(distance(got, dx) for got in dxs) < 1e-6
    assert max(distance(got, db_bias) for got in row_bias) < 1e-6
    for i, (want, dim) in enumerate([(da, 0), (da_bias, 0), (db, 1)]):
        assert distance(torch.cat([g[i] for g in grads], dim), want) < 1e-6


def test_the_row_bias_is_added_once():
    def body(group):
        bias = torch.full((D,), 1e3)
        weight = torch.zeros(D, FF // group.size)
        return row_linear(torch.zeros(B, T, FF // group.size), weight=weight, bias=bias, team=Team(group=group))

    assert all(torch.equal(y, torch.full((B, T, D), 1e3)) for y in on_shards(4, body))


def test_a_pair_costs_one_collective_in_each_direction():
    _, ops = on_counted_shards(2, lambda group: pair(group, sequence_parallel=False))
    assert ops == {"all_reduce": 2}


def test_sequence_parallelism_never_reduces_all_as_well():
    _, ops = on_counted_shards(2, lambda group: pair(group, sequence_parallel=True))
    assert ops == {"all_gather": 3, "reduce_scatter": 2}  # one gather more: the input is kept cut


def test_a_weight_gradient_is_added_to_what_is_there():
    (x, a, *_), _ = inputs()
    weight = leaf(a)
    accumulator = weight.grad
    for _ in range(3):
        column_linear(x.requires_grad_(), weight=weight, bias=None, team=Team()).sum().backward()
    assert weight.grad is accumulator
    assert distance(accumulator, 3 * x.sum((0, 1)).expand(FF, D)) < 1e-6


def test_still_elements_of_a_bias_get_exactly_no_gradient():
    (x, a, a_bias, *_), _ = inputs()
    weight, bias = leaf(a), leaf(a_bias)
    column_linear(x.requires_grad_(), weight=weight, bias=bias, team=Team(), still=slice(4, 9)).sum().backward()
    assert torch.equal(bias.grad == 0, (torch.arange(FF) >= 4) & (torch.arange(FF) < 9))


def scalar_weight(start):
    weight = leaf(torch.ones(1, 1))
    weight.grad.fill_(start)
    return weight


def add_microbatch(weight, contribution):
    column_linear(
        torch.full((1, 1, 1), contribution, requires_grad=True), weight=weight, bias=None, team=Team()
    ).backward()


def test_small_contributions_are_not_lost_in_the_accumulator():
    weight = scalar_weight(1.0)
    for _ in range(64):
        add_microbatch(weight, 2.0**-13)
    assert weight.grad.item() == 1.0078125


def test_eight_contributions_of_an_eighth_are_exactly_one():
    weight = scalar_weight(0.0)
    for _ in range(8):
        add_microbatch(weight, 0.125)
    assert weight.grad.item() == 1.0
