import pytest
import torch
import transformers

from raymega.interop.hf_names import to_hf_gpt2, to_hf_llama
from tests.model.rig import build_shard, distance, on_shards, rows, tiny, whole

SIZES = {"num_hidden_layers": 3, "vocab_size": 97, "bos_token_id": 0, "eos_token_id": 0, "attn_implementation": "eager"}
LLAMA = {
    **SIZES, "hidden_size": 96, "num_attention_heads": 12, "num_key_value_heads": 4, "head_dim": 8,
    "intermediate_size": 160, "rms_norm_eps": 1e-5, "rope_theta": 10000.0,
}  # fmt: skip


def loud_weights(config):
    """Values that matter everywhere: no norm is one, no bias is zero."""
    (shard,) = on_shards(1, lambda group: build_shard(config, group=group, pp=1))
    generator = torch.Generator().manual_seed(5)
    for param in shard.stages[0].params:
        param.data.add_(torch.randn(param.data.shape, generator=generator), alpha=0.2)
    return whole([shard.named([stage.flat.data for stage in shard.stages])])


def logits(config, weights, ids, *, tp, pp):
    def body(group):
        shard = build_shard(config, group=group, pp=pp)
        for stage in shard.stages:
            for param in stage.params:
                box = param.box
                param.data.copy_(weights[param.spec.name][tuple(map(slice, box.offsets, box.ends))])
        return shard.logits(ids)

    return on_shards(tp, body)


def hf_logits(model, state, ids):
    model.load_state_dict(state)
    with torch.no_grad():
        return model.eval()(ids).logits


@pytest.mark.parametrize(("tp", "pp"), [(1, 1), (2, 1), (1, 2), (2, 2), (4, 1)])
@pytest.mark.parametrize("tie", [False, True])
def test_logits_equal_llama(tp, pp, tie):
    config, ids = tiny(num_layers=3, tie_embeddings=tie), rows(2)
    weights = loud_weights(config)
    model = transformers.LlamaForCausalLM(transformers.LlamaConfig(**LLAMA, tie_word_embeddings=tie))
    want = hf_logits(model, to_hf_llama(weights), ids)
    assert want.shape == (2, 25, 97)
    for got in logits(config, weights, ids, tp=tp, pp=pp):
        assert distance(got, want) < 1e-5
        assert distance(got[:, 20:], want[:, 20:]) < 1e-5


@pytest.mark.parametrize(("tp", "pp"), [(1, 1), (2, 2)])
def test_logits_equal_qwen3_whose_heads_are_normed(tp, pp):
    config, ids = tiny(num_layers=3, qk_norm=True), rows(2)
    weights = loud_weights(config)
    model = transformers.Qwen3ForCausalLM(transformers.Qwen3Config(**LLAMA, tie_word_embeddings=False))
    want = hf_logits(model, to_hf_llama(weights), ids)
    assert all(distance(got, want) < 1e-5 for got in logits(config, weights, ids, tp=tp, pp=pp))


@pytest.mark.parametrize(("tp", "pp"), [(1, 1), (2, 1), (1, 2), (2, 2), (4, 1)])
def test_logits_equal_gpt2(tp, pp):
    config = tiny(kind="gpt2", num_layers=3, num_key_value_heads=None, tie_embeddings=True, seq_len=25)
    weights, ids = loud_weights(config), rows(2)
    model = transformers.GPT2LMHeadModel(
        transformers.GPT2Config(**SIZES, n_embd=96, n_layer=3, n_head=12, n_inner=160, n_positions=25)
    )
    want = hf_logits(model, to_hf_gpt2(weights), ids)
    for got in logits(config, weights, ids, tp=tp, pp=pp):
        assert distance(got, want) < 1e-5
        assert distance(got[:, 20:], want[:, 20:]) < 1e-5


def test_positions_matter():
    """Guards the guard: with equal positions everywhere the logits would differ."""
    config, ids = tiny(num_layers=1), torch.full((1, 6), 7)
    ids[0, 0] = 3
    (got,) = logits(config, loud_weights(config), ids, tp=1, pp=1)
    assert distance(got[:, 5], got[:, 2]) > 1e-3


@pytest.mark.parametrize(("vocab", "tp"), [(97, 2), (97, 4), (65535, 4)])
@pytest.mark.parametrize("tie", [False, True])
def test_padding_of_the_vocabulary_stays_inside(vocab, tp, tie):
    config = tiny(num_layers=1, vocab_size=vocab, hidden_size=12, head_size=8, ffn_size=16, tie_embeddings=tie)

    def body(group):
        shard = build_shard(config, group=group, pp=1)
        return shard.named([stage.flat.data for stage in shard.stages])

    state = to_hf_llama(whole(on_shards(tp, body)))
    assert state["model.embed_tokens.weight"].shape == (vocab, 12)
    assert state["lm_head.weight"].shape == (vocab, 12)
