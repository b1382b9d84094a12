import pytest
import torch
import torch.nn.functional as F

from raymega.layout.param_spec import ParamSpec
from raymega.layout.tp_split import local_box, local_shape
from raymega.model import tp_loss
from raymega.model.tp_loss import gathered_logits, vocab_loss_sum
from raymega.model.tp_team import Team
from tests.model.rig import distance, on_counted_shards, on_shards

B, T, D = 2, 8, 16


def draw(vocab, *, scale=1.0):
    generator = torch.Generator().manual_seed(vocab)
    hidden = torch.randn(B, T, D, generator=generator) * scale
    weight = torch.randn(vocab, D, generator=generator) * scale
    targets = torch.randint(0, vocab, (B, T), generator=generator)
    targets[0, 0], targets[0, 1] = 0, vocab - 1
    return hidden, weight, targets


def reference(vocab, *, mask, scale=1.0):
    hidden, weight, targets = draw(vocab, scale=scale)
    hidden.requires_grad_(), weight.requires_grad_()
    losses = F.cross_entropy((hidden @ weight.t()).view(-1, vocab), targets.view(-1), reduction="none")
    loss = (losses * mask.view(-1)).sum()
    (loss / 7).backward()
    return loss.item(), hidden.grad, weight.grad


def on_team(group, vocab, *, mask, scale=1.0, sequence_parallel=False):
    hidden, weight, targets = draw(vocab, scale=scale)
    team = Team(group=group, sequence_parallel=sequence_parallel)
    spec = ParamSpec(name="head.out", shape=(vocab, D), cut="vocab", owner="last", init="normal")
    box = local_box(spec, tp=group.size, shard=group.rank)
    leaf = torch.zeros(local_shape(spec, tp=group.size))
    leaf[: box.sizes[0]] = weight[box.offsets[0] : box.ends[0]]
    leaf.requires_grad_()
    leaf.grad = torch.zeros_like(leaf)
    if team.cuts_sequence:
        hidden = hidden.chunk(group.size, 1)[group.rank]
    hidden.requires_grad_()
    loss = vocab_loss_sum(hidden, weight=leaf, targets=targets, mask=mask, box=box, team=team)
    loss.backward(torch.tensor(1 / 7))
    logits = gathered_logits(hidden, weight=leaf, box=box, vocab_size=vocab, team=team)
    return loss.item(), hidden.grad, leaf.grad, box.sizes[0], logits


MASK = torch.tensor([[1, 1, 1, 0, 1, 1, 0, 1], [0, 0, 1, 1, 1, 0, 1, 1]], dtype=torch.bool)


@pytest.mark.parametrize("tp", [1, 2, 4, 8])
@pytest.mark.parametrize("vocab", [97, 5, 64])  # prime; one shard of four empty; no padding
@pytest.mark.parametrize("sequence_parallel", [False, True])
def test_a_cut_vocabulary_gives_the_loss_of_the_whole(tp, vocab, sequence_parallel):
    loss, dhidden, dweight = reference(vocab, mask=MASK)
    shards = on_shards(tp, lambda group: on_team(group, vocab, mask=MASK, sequence_parallel=sequence_parallel))
    assert [got[0] for got in shards] == pytest.approx([loss] * tp, rel=1e-6)
    dhiddens = [torch.cat([s[1] for s in shards], 1)] if sequence_parallel else [s[1] for s in shards]
    assert max(distance(got, dhidden) for got in dhiddens) < 1e-6
    assert distance(torch.cat([grad[:rows] for _, _, grad, rows, _ in shards]), dweight) < 1e-6


@pytest.mark.parametrize("tp", [1, 2, 4])
def test_padding_takes_no_probability_and_no_gradient(tp):
    for loss, _, grad, rows, _ in on_shards(tp, lambda group: on_team(group, 97, mask=MASK, scale=1e-3)):
        assert grad.shape[0] > rows
        assert not grad[rows:].any()
        assert loss / MASK.sum().item() == pytest.approx(torch.tensor(97.0).log().item(), rel=1e-4)


def test_large_logits_do_not_overflow():
    loss, dhidden, _ = reference(97, mask=MASK, scale=30.0)
    for got, grad, *_ in on_shards(4, lambda group: on_team(group, 97, mask=MASK, scale=30.0)):
        assert got == pytest.approx(loss, rel=1e-6)
        assert distance(grad, dhidden) < 1e-6


def test_the_loss_costs_two_collectives_of_a_number_a_position_and_never_gathers_logits():
    def body(group):
        return on_team(group, 97, mask=MASK)[0]

    _, ops = on_counted_shards(2, body)
    assert ops == {"all_reduce": 3, "all_gather": 1}  # max, sums, dX; the gather is that of `gathered_logits`


@pytest.mark.parametrize("elements", [1, 200, 1 << 18])
def test_the_size_of_a_chunk_does_not_change_the_loss(elements, monkeypatch):
    monkeypatch.setattr(tp_loss, "CHUNK_ELEMENTS", elements)
    loss, dhidden, _ = reference(97, mask=MASK)
    ((got, grad, *_),) = on_shards(1, lambda group: on_team(group, 97, mask=MASK))
    assert got == pytest.approx(loss, rel=1e-6)
    assert distance(grad, dhidden) < 1e-6


def test_a_batch_without_a_trained_token_has_no_loss_and_no_gradient():
    nothing = torch.zeros(B, T, dtype=torch.bool)
    ((loss, dhidden, dweight, _, _),) = on_shards(1, lambda group: on_team(group, 97, mask=nothing))
    assert loss == 0.0
    assert not dhidden.any()
    assert not dweight.any()


@pytest.mark.parametrize(("tp", "vocab"), [(1, 97), (2, 97), (4, 97), (4, 5)])
def test_gathered_logits_have_the_vocabulary_and_no_padding(tp, vocab):
    hidden, weight, _ = draw(vocab)
    for *_, logits in on_shards(tp, lambda group: on_team(group, vocab, mask=MASK)):
        assert logits.shape == (B, T, vocab)
        assert distance(logits, hidden @ weight.t()) < 1e-6
