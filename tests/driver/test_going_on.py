"""A run goes on from a checkpoint of its own only: what would train something else is refused before it starts."""

from dataclasses import replace

import pytest

from raymega.config.load import load
from raymega.config.schema import Config
from raymega.driver.going_on import kept_of, refuse_unlike
from raymega.errors import ConfigError, RaymegaError, StateError
from raymega.layout.checkpoint_manifest import Manifest, tensors_of
from raymega.layout.param_layout import param_specs

ROWS = "9 rows of digest aa"


def config(*changes: str) -> Config:
    shape = ("model.hidden_size=32", "model.vocab_size=257", "data.seq_len=16", "run.seed=7", "training.batch_size=8")
    return load("", source="test", overrides=(*shape, *changes))


def manifest() -> Manifest:
    specs = param_specs(config().model, seq_len=16)
    return Manifest(
        run_id="demo", step=5, generation=1, samples=40, seed=7, config_digest="", tokenizer="mine", shards=(),
        tensors=tensors_of(specs, kinds=("param", "exp_avg", "exp_avg_sq")),
    )  # fmt: skip


def go_on(*changes: str, rows: str = ROWS, before: Manifest | None = None):
    """Go on from a checkpoint that tells of all that is kept, as the config with `changes` on `rows` wants to."""
    told = before or replace(manifest(), kept=kept_of(config(), sources=(ROWS,)))
    now = config(*changes)
    refuse_unlike(told, config=now, tokenizer="mine", kept=kept_of(now, sources=(rows,)))


@pytest.mark.parametrize(
    "change",
    [
        "training.steps=99",
        "training.lr=1e-2",
        "parallelism.data_parallel_size=2",
        "training.micro_batch_size=2",
        "model.dropout=0.5",
        "model.init.std=0.1",
        "data.train=/moved",
        "data.valid=/other",
    ],
)
def test_what_may_change_at_a_resume_does_not_hinder_it(change: str):
    go_on(change)


@pytest.mark.parametrize(
    ("change", "kind", "told"),
    [
        ("run.seed=8", ConfigError, "the checkpoint at step 5 is of another config: run.seed is 8, was 7. "),
        (
            "training.batch_size=16",
            ConfigError,
            "training.batch_size is 16, was 8.*, or start another run, where run.init_from takes",
        ),
        ("model.vocab_size=300", StateError, r"embed.tokens .* is F32 \[257, 32\] in the checkpoint, F32 \[300, 32\]"),
        ("model.num_layers=2", StateError, "is in the checkpoint, but not in this model's state"),
        ("training.optimizer=sgd", StateError, "exp_avg.* is in the checkpoint"),
    ],
)
def test_what_trains_something_else_is_refused(change: str, kind: type[RaymegaError], told: str):
    with pytest.raises(kind, match=told):
        refuse_unlike(manifest(), config=config(change), tokenizer="mine", kept={})


def test_another_tokenizer_is_refused_even_with_as_many_ids():
    with pytest.raises(ConfigError, match=r"data\.tokenizer is of fingerprint mine, was of fingerprint another"):
        refuse_unlike(replace(manifest(), tokenizer="another"), config=config(), tokenizer="mine", kept={})


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ("model.num_attention_heads=2", "model.num_attention_heads is 2, was 4"),
        ("model.num_key_value_heads=4", "model.num_key_value_heads is 4, was null"),
        ("model.rope_theta=100", "model.rope_theta is 100.0, was 10000.0"),
        ("model.norm_eps=0.1", "model.norm_eps is 0.1, was 1e-05"),
        ("model.kind=gpt2", "model.kind is gpt2, was llama"),
        ("model.custom=mine:made", "model.custom is mine:made, was null"),
        ("data.shuffle=false", "data.shuffle is false, was true"),
    ],
)
def test_a_change_that_no_shape_shows_is_refused(change: str, told: str):
    with pytest.raises(ConfigError, match=rf"{told}. What a model computes, and which rows come next, stay the same"):
        go_on(change)


def test_other_rows_are_refused_wherever_they_lie_and_named_once_where_rows_are_of_another_length():
    with pytest.raises(ConfigError, match=r"data\.train is 9 rows of digest bb, was 9 rows of digest aa"):
        go_on(rows="9 rows of digest bb")
    with pytest.raises(ConfigError) as found:
        go_on("data.seq_len=8", rows="18 rows of digest cc")
    assert found.value.facts["changed"] == ("data.seq_len",)


def test_all_that_is_changed_is_told_at_once():
    with pytest.raises(ConfigError, match=r"run.seed is 8, was 7; .*rope_theta is 5.0, was 10000.0; data.train is 1 r"):
        go_on("run.seed=8", "model.rope_theta=5", rows="1 rows of digest dd")


def test_an_older_checkpoint_that_does_not_tell_is_gone_on_from():
    go_on("model.rope_theta=100", rows="1 rows of digest dd", before=manifest())
