"""What is left open is filled in once, and never against what was given."""

import pytest

from raymega.config.load import load, to_yaml
from raymega.config.presets import preset_text
from raymega.config.resolve import resolve
from raymega.config.rules import faults_of
from raymega.config.schema import Config
from raymega.errors import ConfigError


def resolved(text: str, *, vocab_size: int = 97) -> Config:
    return resolve(load(text, source="run.yaml"), vocab_size=vocab_size, name="drawn", seed=11)


def test_open_sizes_follow_from_the_others():
    model = resolved("model: {hidden_size: 96, num_attention_heads: 12}").model
    assert (model.num_key_value_heads, model.head_size, model.ffn_size, model.vocab_size) == (12, 8, 256, 97)
    assert resolved("model: {kind: gpt2, hidden_size: 96}").model.ffn_size == 384


def test_name_and_seed_are_drawn_only_where_none_is_given():
    assert (resolved("").run.name, resolved("").run.seed) == ("drawn", 11)
    given = resolved("run: {name: mine, seed: 0}").run
    assert (given.name, given.seed) == ("mine", 0)


def test_a_vocabulary_smaller_than_the_tokenizers_is_refused():
    with pytest.raises(ConfigError, match=r"model.vocab_size: 96 is below the 97 ids .* Use 97 or more"):
        resolved("model: {vocab_size: 96}")
    assert resolved("model: {vocab_size: 128}").model.vocab_size == 128


@pytest.mark.parametrize("name", ["nano", "small", "gpt3-175b"])
def test_a_resolved_config_is_legal_and_stays_as_it_is(name: str):
    config = resolved(preset_text(name), vocab_size=2048)
    assert faults_of(config) == ()
    again = load(to_yaml(config), source="config.yaml")
    assert resolve(again, vocab_size=2048, name="other", seed=3) == config
