"""A run goes on from a checkpoint of its own only: what would train something else is refused before it starts."""

from dataclasses import replace

import pytest

from raymega.config.load import load
from raymega.config.schema import Config
from raymega.driver.going_on import refuse_unlike
from raymega.errors import ConfigError, RaymegaError, StateError
from raymega.layout.checkpoint_manifest import Manifest, tensors_of
from raymega.layout.param_layout import param_specs


def config(*changes: str) -> Config:
    shape = ("model.hidden_size=32", "model.vocab_size=257", "data.seq_len=16", "run.seed=7", "training.batch_size=8")
    return load("", source="test", overrides=(*shape, *changes))


def manifest() -> Manifest:
    specs = param_specs(config().model, seq_len=16)
    return Manifest(
        run_id="demo", step=5, generation=1, samples=40, seed=7, config_digest="", tokenizer="mine", shards=(),
        tensors=tensors_of(specs, kinds=("param", "exp_avg", "exp_avg_sq")),
    )  # fmt: skip


@pytest.mark.parametrize(
    "change",
    ["training.steps=99", "training.lr=1e-2", "parallelism.data_parallel_size=2", "training.micro_batch_size=2"],
)
def test_what_may_change_at_a_resume_does_not_hinder_it(change: str):
    refuse_unlike(manifest(), config=config(change), tokenizer="mine")


@pytest.mark.parametrize(
    ("change", "kind", "told"),
    [
        ("run.seed=8", ConfigError, "run.seed: 8 is not the seed of the checkpoint at step 5, which is 7"),
        ("training.batch_size=16", ConfigError, "training.batch_size: 16 is not that of the .* which is 8"),
        ("model.vocab_size=300", StateError, r"embed.tokens .* is F32 \[257, 32\] in the checkpoint, F32 \[300, 32\]"),
        ("model.num_layers=2", StateError, "is in the checkpoint, but not in this model's state"),
        ("training.optimizer=sgd", StateError, "exp_avg.* is in the checkpoint"),
    ],
)
def test_what_trains_something_else_is_refused(change: str, kind: type[RaymegaError], told: str):
    with pytest.raises(kind, match=told):
        refuse_unlike(manifest(), config=config(change), tokenizer="mine")


def test_another_tokenizer_is_refused_even_with_as_many_ids():
    with pytest.raises(ConfigError, match=r"data\.tokenizer: shakespeare-2k is not the tokenizer"):
        refuse_unlike(replace(manifest(), tokenizer="another"), config=config(), tokenizer="mine")
