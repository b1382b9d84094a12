"""Parameters and FLOPs against counts by hand, and against the layout's own list of parameters."""

from math import prod

import pytest

from raymega.config.load import load
from raymega.config.presets import preset_text
from raymega.config.schema import ModelConfig
from raymega.layout.param_layout import param_specs
from raymega.model_shape import boundary_bytes, checkpoint_bytes, parameter_count, state_bytes, token_flops

TINY = ModelConfig(
    hidden_size=96, num_layers=10, num_attention_heads=12, num_key_value_heads=4, ffn_size=160, vocab_size=97
)


def changed(**fields: object) -> ModelConfig:
    return TINY.model_copy(update=fields)


MODELS = {
    "llama": TINY,
    "tied": changed(tie_embeddings=True),
    "qk_norm": changed(qk_norm=True),
    "wide heads": changed(head_size=10),
    "gpt2": changed(kind="gpt2", num_key_value_heads=None),
    "gpt2 tied": changed(kind="gpt2", num_key_value_heads=None, tie_embeddings=True),
}


@pytest.mark.parametrize("name", MODELS)
def test_parameters_are_those_that_the_layout_names(name: str):
    specs = param_specs(MODELS[name], seq_len=24)
    assert parameter_count(MODELS[name], seq_len=24).total == sum(prod(spec.shape) for spec in specs)


@pytest.mark.parametrize(
    ("preset", "vocab", "parameters"),
    [("llama-1b", 128256, 1_235_814_400), ("llama-8b", 128256, 8_030_261_248), ("small", 50257, 124_439_808)],
)
def test_published_models_have_their_published_size(preset: str, vocab: int, parameters: int):
    config = load(preset_text(preset), source=preset)
    model = config.model.model_copy(update={"vocab_size": vocab})
    assert parameter_count(model, seq_len=config.data.seq_len).total == parameters


def test_gpt3_has_175_billion_parameters():
    config = load(preset_text("gpt3-175b"), source="gpt3-175b")
    assert parameter_count(config.model, seq_len=config.data.seq_len).total == pytest.approx(174.6e9, rel=1e-3)


@pytest.mark.parametrize("seq_len", [16, 4096])
@pytest.mark.parametrize("name", ["llama", "tied", "gpt2"])
def test_flops_are_the_matrix_products_counted_by_hand(name: str, seq_len: int):
    kv_rows, mlp_products = (96, 2) if name == "gpt2" else (32, 3)
    products = [(96, 96), (96, kv_rows), (96, kv_rows), (96, 96), *[(96, 160)] * mlp_products]  # q k v o, mlp
    scores = [(8, seq_len), (seq_len, 8)] * 12  # a head's query against all keys, its weights against all values
    block = sum(2 * rows * columns for rows, columns in products + scores)
    flops = token_flops(MODELS[name], seq_len=seq_len)
    assert flops.forward == 10 * block + 2 * 96 * 97
    assert flops.total == 3 * flops.forward


def test_fewer_kv_heads_and_a_narrower_ffn_cost_less():
    costs = [token_flops(model, seq_len=16).total for model in (changed(num_key_value_heads=12), TINY)]
    assert costs[0] - costs[1] == 3 * 10 * 2 * 2 * 96 * (96 - 32)
    assert token_flops(changed(ffn_size=80), seq_len=16).total < costs[1]


def test_state_takes_sixteen_bytes_a_parameter_with_adamw():
    assert state_bytes(6_700_000_000, optimizer="adamw") == 107_200_000_000
    assert (state_bytes(10, optimizer="sgd"), checkpoint_bytes(10, optimizer="adamw")) == (80, 120)


def test_a_boundary_tensor_has_one_vector_a_token():
    assert boundary_bytes(TINY, micro_batch_size=2, seq_len=24) == 2 * 24 * 96 * 4
