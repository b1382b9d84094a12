"""Every rule between keys by rows, and that what a refusal proposes is accepted."""

import random

import pytest

from raymega.config.choices import divisors, micro_batch_sizes
from raymega.config.load import check, load, to_yaml
from raymega.config.proposal import proposal, with_values, written
from raymega.config.rules import faults_of
from raymega.config.schema import Config
from raymega.errors import ConfigError

TP, PP, DP = (
    f"parallelism.{axis}_size" for axis in ("tensor_model_parallel", "pipeline_model_parallel", "data_parallel")
)
TINY = {
    "model.hidden_size": 96, "model.num_layers": 10, "model.num_attention_heads": 12, "model.num_key_value_heads": 4,
    "model.ffn_size": 160,
}  # fmt: skip


def told(**changes: object) -> list[str]:
    return [str(fault) for fault in faults_of(with_values(Config(), dict(changes)))]


@pytest.mark.parametrize(
    "changes",
    [
        {},
        TINY,
        TINY | {TP: 2, PP: 2, DP: 2, "data.seq_len": 24, "parallelism.sequence_parallel": True},
        TINY | {TP: 4, PP: 10},
        {"model.num_attention_heads": 8, "model.num_key_value_heads": 2, TP: 4},  # kv heads are replicated
        {"model.num_layers": 30, PP: 4},  # stages of 8, 8, 7, 7
        {"model.num_layers": 5, PP: 2, "parallelism.layers_per_stage": (3, 2)},
        {"training.batch_size": 12, DP: 2},  # three micro-batches over two replicas: uneven quotas
        {"model.kind": "gpt2", "model.hidden_size": 27, "model.num_attention_heads": 3},
        {"training.warmup_samples": 640, "training.steps": 5},
        {"parallelism.schedule": "zb-v", PP: 2},  # two chunks a stage, four layers
        {"parallelism.schedule": "interleaved", "parallelism.chunks": 5, PP: 2, "model.num_layers": 11},
        {"parallelism.schedule": "interleaved", PP: 2, "parallelism.layers_per_stage": (1, 1, 1, 1)},
        {"parallelism.schedule": "zb-h2", PP: 4, "training.batch_size": 12},
        {"parallelism.schedule": "mine.csv", PP: 2},
        {DP: "auto", TP: "auto", PP: "auto", "run.devices": 8},
        {"model.custom": "mine:model", "model.num_attention_heads": 5, TP: 3},
    ],
)
def test_what_is_legal_is_accepted(changes: dict[str, object]):
    assert told(**changes) == []


@pytest.mark.parametrize(
    ("changes", "key", "words"),
    [
        ({"model.num_attention_heads": 6, "model.hidden_size": 64}, "model.num_attention_heads",
         ["6 heads do not divide hidden_size 64", "Use 2, 4 or 8 heads"]),
        ({"model.num_key_value_heads": 3}, "model.num_key_value_heads",
         ["3 kv heads do not divide 4", "Use 1, 2 or 4"]),
        ({"model.hidden_size": 36}, "model.num_attention_heads",
         ["a head has 9 elements", "must be even", "Use 2, 3 or 6"]),
        ({"parallelism.schedule": "zbv"}, "parallelism.schedule",
         ["there is no schedule zbv", "Did you mean zb-v?"]),
        ({"parallelism.schedule": "fastest"}, "parallelism.schedule", ["no schedule fastest", "zb-v", "FILE.csv"]),
        ({"parallelism.chunks": 2}, "parallelism.chunks",
         ["1f1b runs one chunk a stage, not 2", "Leave it out, or set schedule to interleaved"]),
        ({"parallelism.schedule": "zb-v", PP: 2, "parallelism.chunks": 1}, "parallelism.chunks",
         ["zb-v runs 2 chunks a stage, not 1", "1f1b, zb-h1 or zb-h2"]),
        ({"parallelism.schedule": "mine.csv", PP: 2, "parallelism.chunks": 1}, "parallelism.chunks",
         ["mine.csv says it itself", "Leave it out"]),
        ({"parallelism.schedule": "zb-v"}, "parallelism.schedule", ["one stage", "Use 1f1b"]),
        ({"parallelism.schedule": "interleaved", "parallelism.chunks": 3, PP: 2}, "parallelism.schedule",
         ["2 stages of 3 chunks for 4 layers", "chunks 2 or less", "model.num_layers 6 or more"]),
        ({"model.head_size": 7}, "model.head_size", ["7 elements", "Use 6 or 8"]),
        ({"model.kind": "gpt2", "model.qk_norm": True}, "model.qk_norm", ["kind gpt2", "use kind llama"]),
        ({"model.kind": "gpt2", "model.num_key_value_heads": 2}, "model.num_key_value_heads", ["plain attention"]),
        ({"model.kind": "gpt2", "model.rope_theta": 5e5}, "model.rope_theta", ["learned positions"]),
        ({"model.hidden_size": 96, "model.num_attention_heads": 6, TP: 4}, TP,
         ["4 does not go with model.num_attention_heads 6", "Use 1 or 2, to fit"]),
        ({"model.num_attention_heads": 12, "model.num_key_value_heads": 4, "model.hidden_size": 96,
          "model.ffn_size": 192, TP: 6}, TP,
         ["model.num_key_value_heads 4", "replicated", "Use 1, 2, 4 or 12"]),
        ({"model.ffn_size": 130, TP: 4}, TP, ["model.ffn_size 130", "Use 1 or 2"]),
        ({"parallelism.sequence_parallel": True}, "parallelism.sequence_parallel", ["tp is 1", "Set it to false"]),
        ({"parallelism.sequence_parallel": True, TP: 2, "data.seq_len": 25}, "parallelism.sequence_parallel",
         ["25 is no multiple of tp 2", "24 or 26"]),
        ({"model.num_layers": 3, PP: 4}, PP, ["4 stages for 3 layers", "Use 3 or less"]),
        ({PP: 2, "parallelism.layers_per_stage": (2, 3)}, "parallelism.layers_per_stage",
         ["[2, 3] has 2 stages and 5 layers", "the model has 4", "Use [2, 2]"]),
        ({PP: 3, "parallelism.layers_per_stage": (2, 2)}, "parallelism.layers_per_stage",
         ["the mesh 3", "Use [2, 1, 1]"]),
        ({DP: 4, TP: 2, PP: 3, "run.devices": 16}, "run.devices",
         ["dp=4 tp=2 pp=3 needs 24 devices; 16 are given", "data_parallel_size 2, or run.devices 24"]),
        ({"elastic.min_devices": 3}, "elastic.min_devices", ["below 3 devices, but starts with 1", "Use 1."]),
        ({"training.batch_size": 10, DP: 2}, "training.batch_size",
         ["10 is not a multiple of micro_batch_size 4", "batch_size = micro_batch_size 4 x micro-batches", "dp=2",
          "Use 8 or 12 (8 or 16 give each replica as many), or micro_batch_size 1, 2 or 5"]),
        ({"training.batch_size": 8, "training.micro_batch_size": 4, DP: 3}, DP,
         ["3 replicas, but only 2 micro-batches", "Use 2 or less, or micro_batch_size 1 or 2, or batch_size 12"]),
        ({"training.batch_size": 4, "training.micro_batch_size": 4, DP: 2}, DP,
         ["only 1 micro-batch in a step", "Use 1, or micro_batch_size"]),
        ({"training.min_lr": 1.0, "training.lr_schedule": "cosine"}, "training.min_lr", ["above lr 0.001"]),
        ({"training.min_lr": 1e-4}, "training.min_lr", ["constant never falls"]),
        ({"training.decay_samples": 100}, "training.decay_samples", ["constant never falls"]),
        ({"training.decay_samples": 100, "training.warmup_samples": 101, "training.lr_schedule": "linear"},
         "training.decay_samples", ["inside a warm-up of 101", "Use 101 or more"]),
        ({"elastic.lease_s": 20.0}, "elastic.orphan_lease_s", ["15 s is not above lease_s 20 s", "Use 40"]),
        ({"run.name": "a b/c"}, "run.name", ["cannot name a directory", "Use a-b-c"]),
        ({"run.dir": "s3://bucket/runs"}, "run.dir", ["is a URI", "Use a path; checkpoint.path may be a URI"]),
        ({"data.train": ()}, "data.train", ["empty"]),
    ],
)  # fmt: skip
def test_what_is_illegal_is_refused_with_both_values_and_a_way_out(changes, key: str, words: list[str]):
    (message,) = told(**changes)
    assert message.startswith(key + ": ")
    assert [word for word in words if word not in message] == []


def test_five_broken_rules_come_in_one_message_with_one_proposal_that_passes():
    text = (
        "run: {devices: 16}\nmodel: {hidden_size: 96, num_attention_heads: 6, num_layers: 5, num_experts: 3}\n"
        "parallelism: {tensor_model_parallel_size: 4, pipeline_model_parallel_size: 6, data_parallel_size: 3}\n"
        "training: {batch_size: 10, micro_batch_size: 4}\n"
    )
    with pytest.raises(ConfigError) as caught:
        load(text, source="run.yaml")
    message, pasted = str(caught.value), caught.value.facts["proposal"]
    for key in ("model.num_experts", "run.devices", TP, PP, "training.batch_size"):
        assert f": {key}: " in message
    assert "One way that passes: --set " + " --set ".join(pasted) in message
    load(text.replace(", num_experts: 3", ""), source="run.yaml", overrides=pasted)


def test_a_value_that_was_not_given_is_told_to_be_the_default():
    with pytest.raises(
        ConfigError, match=r"^run.yaml:1: training.batch_size: 16 is not a multiple .* \(not given; this"
    ):
        load("training: {micro_batch_size: 32}", source="run.yaml")


def test_a_proposal_keeps_the_model_and_the_batch_where_it_can():
    config = with_values(Config(), {"model.num_attention_heads": 8, TP: 3, "training.batch_size": 10, DP: 2})
    assert written(proposal(config)) == (f"{TP}=2", "training.micro_batch_size=2")


def test_a_config_built_in_python_is_held_to_the_same_rules():
    with pytest.raises(ConfigError, match="4 stages for 3 layers"):
        check(with_values(Config(), {"model.num_layers": 3, PP: 4}))
    check(Config())


def random_config(dice: random.Random) -> Config:
    small = lambda *values: dice.choice(values)  # noqa: E731
    axis = lambda: small(1, 2, 3, 4, 5, 6, 8, "auto")  # noqa: E731
    return with_values(Config(), {
        "run.devices": small(None, None, 1, 2, 7, 16, 24), "run.name": small(None, "ok", "a b", "-", "ü"),
        "model.kind": small("llama", "gpt2"), "model.hidden_size": dice.randint(1, 130),
        "model.num_attention_heads": dice.randint(1, 16), "model.num_layers": dice.randint(1, 12),
        "model.num_key_value_heads": small(None, 1, 2, 3, 4, 6, 8), "model.head_size": small(None, None, 7, 8),
        "model.ffn_size": small(None, 130, 160), "model.qk_norm": small(False, True),
        "model.custom": small(None, None, None, "mine:model"), "model.rope_theta": small(1e4, 5e5),
        TP: axis(), PP: axis(), DP: axis(),
        "parallelism.sequence_parallel": small(False, True), "data.seq_len": dice.randint(1, 70),
        "parallelism.layers_per_stage": small(None, None, (2, 2), (3, 1, 1), (1,) * 20),
        "training.batch_size": dice.randint(1, 50), "training.micro_batch_size": dice.randint(1, 20),
        "training.lr": small(0.0, 1e-3), "training.min_lr": small(0.0, 1e-4, 1.0),
        "training.lr_schedule": small("constant", "linear", "cosine"), "training.warmup_samples": small(0, 50),
        "training.decay_samples": small(None, 10, 100), "elastic.min_devices": small(1, 1, 3, 40),
        "elastic.lease_s": small(2.0, 20.0), "data.train": small("shakespeare", ()),
        "parallelism.grad_compression": small("none", "none", "bf16", "int8"), "elastic.copies_every": small(0, 0, 1),
        "parallelism.shard_optimizer": small("none", "none", "zero1", "mirrored"),
        "parallelism.recompute": small("none", "selective", "full", (0, 3), (11,)),
        "training.precision": small("fp32", "bf16", "fp16"), "training.loss_scale": small("dynamic", "dynamic", 128.0),
        "training.min_loss_scale": small(1.0, 1.0, 1e6),
    })  # fmt: skip


def test_every_proposal_is_accepted_for_hundreds_of_random_configs():
    dice, refused = random.Random(1), 0
    for _ in range(300):
        config = random_config(dice)
        if not faults_of(config):
            continue
        refused += 1
        assert proposal(config), [str(fault) for fault in faults_of(config)]
        text = "\n".join(f"# {change}" for change in written(proposal(config)))
        assert faults_of(with_values(config, proposal(config))) == (), text
    assert refused > 270


def test_every_proposal_is_accepted_when_pasted_back_as_flags():
    dice = random.Random(2)
    for _ in range(20):
        config = random_config(dice)
        load(to_yaml(config), source="run.yaml", overrides=written(proposal(config)))


def test_a_fault_of_a_size_beyond_any_machine_is_told_at_once():
    assert divisors(360) == tuple(n for n in range(1, 361) if 360 % n == 0)
    assert divisors(2**62)[:3] == (1, 2, 4)
    assert divisors(2**62)[-1] == 2**62


@pytest.mark.parametrize(("model_parallel", "rows", "allowed"), [(1, 4, [4]), (2, 8, [4, 8]), (4, 16, [4, 8])])
def test_a_batch_is_shared_by_replicas_and_not_by_devices(model_parallel: int, rows: int, allowed: list[int]):
    dp = 16 // model_parallel
    config = with_values(Config(), {DP: dp, TP: model_parallel, "training.batch_size": 64})
    assert 64 // dp == rows
    assert [size for size in (4, 8) if size in micro_batch_sizes(config)] == allowed
