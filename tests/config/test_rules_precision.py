import pytest

from raymega.config.load import load
from raymega.errors import ConfigError


@pytest.mark.parametrize(
    ("training", "told"),
    [
        ("precision: bf16, loss_scale: 1024", "needs none"),
        ("precision: fp16, min_loss_scale: 131072", "above initial_loss_scale 65536"),
        ("precision: fp16, loss_scale: 0", "loss_scale"),
        ("precision: fp16, min_loss_scale: 0", "min_loss_scale"),
    ],
)
def test_loss_scales_that_cannot_be_are_refused(training, told):
    with pytest.raises(ConfigError, match=told):
        load(f"training: {{{training}}}", source="test")


def test_a_scale_may_begin_at_its_floor():
    assert load("training: {precision: fp16, initial_loss_scale: 1}", source="test").training.min_loss_scale == 1


@pytest.mark.parametrize(
    ("parallelism", "told"),
    [("recompute: [0, 7]", "has 0 to 3"), ("recompute: [-1]", "recompute"), ("recompute: some", "recompute")],
)
def test_recomputation_of_what_is_not_there_is_refused(parallelism, told):
    with pytest.raises(ConfigError, match=told):
        load(f"parallelism: {{{parallelism}}}", source="test")


def test_selective_recomputation_of_a_model_of_ones_own_is_refused():
    with pytest.raises(ConfigError, match="keeps to itself"):
        load("model: {custom: 'mine:build'}\nparallelism: {recompute: selective}", source="test")
