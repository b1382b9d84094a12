import pytest
import torch

from raymega.layout.param_spec import ParamSpec
from raymega.layout.tp_split import local_box, local_shape
from raymega.model.tp_embedding import vocab_embedding
from raymega.model.tp_team import Team
from tests.model.rig import on_shards

VOCAB, D = 97, 6
IDS = torch.tensor(
    [[0, 24, 25, 48, 49, 50, 7, 7], [72, 73, 74, 75, 96, 0, 7, 1]]
)  # both sides of each border at tp 2 and 4


def embed(group, *, sequence_parallel):
    spec = ParamSpec(name="embed.tokens", shape=(VOCAB, D), cut="vocab", owner="first", init="normal")
    box = local_box(spec, tp=group.size, shard=group.rank)
    leaf = torch.zeros(local_shape(spec, tp=group.size))
    leaf[: box.sizes[0]] = table()[box.offsets[0] : box.ends[0]]
    leaf.requires_grad_()
    leaf.grad = torch.zeros_like(leaf)
    team = Team(group=group, sequence_parallel=sequence_parallel)
    x = vocab_embedding(IDS, weight=leaf, box=box, team=team)
    grad = torch.arange(IDS.numel() * D).view(*IDS.shape, D).float()
    x.backward(grad.chunk(group.size, 1)[group.rank] if team.cuts_sequence else grad)
    return x.detach(), leaf.grad[: box.sizes[0]]


def table():
    return torch.randn(VOCAB, D, generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize("tp", [1, 2, 4])
@pytest.mark.parametrize("sequence_parallel", [False, True])
def test_a_cut_table_looks_up_and_collects_as_the_whole_does(tp, sequence_parallel):
    whole = table().requires_grad_()
    torch.nn.functional.embedding(IDS, whole).backward(torch.arange(IDS.numel() * D).view(*IDS.shape, D).float())
    xs, grads = zip(*on_shards(tp, lambda group: embed(group, sequence_parallel=sequence_parallel)), strict=True)
    for x in [torch.cat(xs, 1)] if sequence_parallel else xs:
        assert torch.equal(x, table()[IDS])
    assert torch.equal(torch.cat(grads), whole.grad)
