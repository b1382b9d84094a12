import pytest

from raymega.config.load import load
from raymega.errors import ConfigError


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("parallelism: {grad_compression: int8, data_parallel_size: 8}", "pays up to 7. Use none, or a smaller"),
        ("parallelism: {grad_compression: bf16, data_parallel_size: 4}", "pays up to 3. Use none, or int8, or a"),
        ("parallelism: {grad_compression: int8}\nelastic: {copies_every: 1}", "Set elastic.copies_every to 0"),
        ("parallelism: {grad_compression: bf16, shard_optimizer: zero1}", "--set parallelism.grad_compression=none$"),
        ("parallelism: {grad_compression: int4}", "none, bf16, fp16, int8"),
    ],
)
def test_compression_that_cannot_be_or_does_not_pay_is_refused(text, told):
    with pytest.raises(ConfigError, match=told):
        load(f"{text}\ntraining: {{batch_size: 32}}", source="test")


def test_it_is_off_by_default_and_works_between_any_replicas():
    axes = load("parallelism: {grad_compression: int8, data_parallel_size: 4}", source="test").parallelism
    assert (axes.grad_compression, axes.grad_compression_between) == ("int8", "replicas")
    assert load("", source="test").parallelism.grad_compression == "none"
