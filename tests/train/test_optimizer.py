import pytest
import torch

from raymega.config.schema import TrainingConfig
from raymega.train.optimizer import CHUNK_ELEMENTS, build_optimizer

NUM, DECAYED = CHUNK_ELEMENTS + 640, CHUNK_ELEMENTS + 128


def training(**facts):
    return TrainingConfig(**{"weight_decay": 0.1, "betas": (0.9, 0.95), "eps": 1e-8, **facts})


def draw(seed=0):
    return torch.randn(NUM, generator=torch.Generator().manual_seed(seed))


def build(kind, **facts):
    data = draw()
    return data, build_optimizer(training(optimizer=kind, **facts), data=data, num_decayed=DECAYED)


def by_the_paper(kind, steps, *, clip):
    """Algorithm 2 of arXiv 1711.05101, or plain descent, in fp64."""
    w, m, v = draw().double(), torch.zeros(NUM).double(), torch.zeros(NUM).double()
    decay = torch.zeros(NUM).double()
    decay[:DECAYED] = 0.1
    for step in range(1, steps + 1):
        grad = draw(step).double() * clip
        m, v = 0.9 * m + 0.1 * grad, 0.95 * v + 0.05 * grad**2
        adam = m / (1 - 0.9**step) / ((v / (1 - 0.95**step)).sqrt() + 1e-8)
        w = w - 0.1 * decay * w - 0.1 * (grad if kind == "sgd" else adam)
    return w.float()


@pytest.mark.parametrize("kind", ["sgd", "adamw"])
@pytest.mark.parametrize("clip", [1.0, 0.3])
def test_updates_are_those_of_the_paper(kind, clip):
    data, optimizer = build(kind)
    for step in range(3):
        optimizer.apply(draw(step + 1), lr=0.1, clip=clip)
    assert torch.allclose(data, by_the_paper(kind, 3, clip=clip), rtol=1e-5, atol=1e-6)
    assert optimizer.updates == 3


@pytest.mark.parametrize("kind", ["sgd", "adamw"])
def test_the_reduced_gradient_is_read_and_never_written(kind):
    _, optimizer = build(kind)
    grad = draw(1)
    optimizer.apply(grad, lr=0.1, clip=0.3)
    assert torch.equal(grad, draw(1))


@pytest.mark.parametrize("kind", ["sgd", "adamw"])
def test_only_the_decayed_range_shrinks_without_a_gradient(kind):
    data, optimizer = build(kind)
    optimizer.apply(torch.zeros(NUM), lr=0.1, clip=1.0)
    assert torch.equal(data[DECAYED:], draw()[DECAYED:])
    assert torch.allclose(data[:DECAYED], draw()[:DECAYED] * (1 - 0.1 * 0.1))


def test_clipping_in_chunks_gives_the_bits_of_a_clipped_gradient():
    data, optimizer = build("adamw")
    optimizer.apply(draw(1), lr=0.1, clip=0.25)
    other, whole = build("adamw")
    whole.apply(draw(1) * 0.25, lr=0.1, clip=1.0)
    assert torch.equal(data, other)
    assert torch.equal(optimizer.moments["exp_avg_sq"], whole.moments["exp_avg_sq"])


def test_an_element_is_updated_alike_wherever_it_lies():
    """Else the two copies of a tied matrix, which lie at different offsets of their stages, would part."""
    data, optimizer = build("adamw")
    optimizer.apply(draw(1), lr=0.1, clip=1.0)
    piece = draw()[64:192].clone()
    alone = build_optimizer(training(optimizer="adamw"), data=piece, num_decayed=128)
    alone.apply(draw(1)[64:192].clone(), lr=0.1, clip=1.0)
    assert torch.equal(piece, data[64:192])


def test_small_updates_of_fp32_weights_are_kept():
    data = torch.ones(64)
    optimizer = build_optimizer(training(optimizer="sgd", weight_decay=0.0), data=data, num_decayed=0)
    for _ in range(100):
        optimizer.apply(torch.full((64,), 6e-4), lr=1.0, clip=1.0)
    assert data[0].item() == pytest.approx(0.94, abs=1e-5)
