import pytest

from raymega.config.schema import TrainingConfig
from raymega.train.lr_schedule import lr_at, rated


def training(**facts):
    return TrainingConfig(**{"lr": 1e-3, "steps": 100, "batch_size": 16, **facts})


@pytest.mark.parametrize(("step", "lr"), [(25, 8.535533906e-4), (50, 5.0e-4), (75, 1.464466094e-4), (100, 0.0)])
@pytest.mark.parametrize(("batch", "micro"), [(16, 4), (16, 16), (4, 1)])
def test_a_cosine_is_read_at_the_samples_of_the_step(step, lr, batch, micro):
    config = training(lr_schedule="cosine", batch_size=batch, micro_batch_size=micro)
    assert lr_at(config, samples=step * batch) == pytest.approx(lr, abs=1e-9)


def test_a_linear_schedule_ends_at_min_lr_and_stays_there():
    config = training(lr_schedule="linear", min_lr=1e-4, decay_samples=1000)
    assert lr_at(config, samples=500) == pytest.approx(5.5e-4)
    assert lr_at(config, samples=1000) == lr_at(config, samples=10**6) == pytest.approx(1e-4)


def test_a_warm_up_climbs_from_above_zero_and_meets_the_schedule():
    config = training(lr_schedule="cosine", warmup_samples=160, decay_samples=1600)
    assert lr_at(config, samples=16) == pytest.approx(1e-4)
    assert lr_at(config, samples=80) == pytest.approx(5e-4)
    assert lr_at(config, samples=160) == 1e-3
    assert lr_at(config, samples=880) == pytest.approx(5e-4)


def test_another_batch_size_does_not_move_the_schedule():
    first, other = (training(lr_schedule="cosine", decay_samples=1600, batch_size=b) for b in (16, 64))
    assert [lr_at(first, samples=s) for s in range(0, 2000, 64)] == [
        lr_at(other, samples=s) for s in range(0, 2000, 64)
    ]


def test_a_constant_rate_is_constant():
    assert {lr_at(training(), samples=s) for s in (0, 1, 10**9)} == {1e-3}


def test_a_schedule_that_ends_with_its_warm_up_is_flat_at_min_lr():
    config = training(lr_schedule="linear", warmup_samples=100, decay_samples=100, min_lr=1e-4)
    assert lr_at(config, samples=100) == 1e-3
    assert lr_at(config, samples=101) == pytest.approx(1e-4)


def test_a_rate_that_was_asked_for_holds_for_later_steps_and_is_scheduled_as_the_first():
    config = training(lr_schedule="linear", decay_samples=1600)
    rates = ((10, 2e-3), (50, 4e-3))
    assert [rated(config, rates, step=step).lr for step in (1, 10, 11, 50, 51)] == [1e-3, 1e-3, 2e-3, 2e-3, 4e-3]
    assert lr_at(rated(config, rates, step=50), samples=800) == pytest.approx(1e-3)
