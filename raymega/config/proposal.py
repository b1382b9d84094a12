"""One complete set of changes that makes a config legal: what a refusal offers to paste back.

The mesh gives way before the model, and micro-batches before the batch, since the plan does not occur in the result.
Each fix looks at the config as the fixes before it left it.
"""

from typing import Any

from raymega.config import choices, rules_compression, rules_precision, rules_schedule
from raymega.config.choices import nearest_to, number
from raymega.config.rules import NAME, faults_of, plain_name
from raymega.config.rules_chaos import that_can_happen
from raymega.config.rules_mesh import DP, PP, TP
from raymega.config.schema import Config, ModelConfig

Changes = dict[str, Any]  # Any: dotted key -> a value of that field's type


def proposal(config: Config) -> Changes:
    """The changes after which no rule is broken, by dotted key; empty if there is nothing to change, or no way."""
    fixed, changes = config, Changes()
    for fix in FIXES:
        wanted = {key: value for key, value in fix(fixed).items() if value_at(fixed, key) != value}
        fixed, changes = with_values(fixed, wanted), changes | wanted
    changes = {key: value for key, value in changes.items() if value_at(config, key) != value}
    return {} if faults_of(fixed) else changes


def value_at(config: Config, key: str) -> Any:
    """What the config says at a dotted key."""
    section, _, field = key.partition(".")
    return getattr(getattr(config, section), field)


def with_values(config: Config, changes: Changes) -> Config:
    """The config with other values at some dotted keys."""
    for key, value in changes.items():
        section, _, field = key.partition(".")
        changed = getattr(config, section).model_copy(update={field: value})
        config = config.model_copy(update={section: changed})
    return config


def written(changes: Changes) -> tuple[str, ...]:
    """The changes as `--set` takes them: `a.b=c`."""
    return tuple(f"{key}={_yaml(value)}" for key, value in changes.items())


def _yaml(value: Any) -> str:
    if isinstance(value, tuple):
        return f"[{','.join(_yaml(item) for item in value)}]"
    if value is None or isinstance(value, bool):
        return "null" if value is None else str(value).lower()
    return str(value)


def _name(config: Config) -> Changes:
    name = config.run.name
    return {} if name is None or NAME.fullmatch(name) else {"run.name": plain_name(name)}


def _kind(config: Config) -> Changes:
    if config.model.kind != "gpt2":
        return {}
    return {
        "model.qk_norm": False,
        "model.rope_theta": ModelConfig().rope_theta,
        "model.num_key_value_heads": None,
    }


def _heads(config: Config) -> Changes:
    model = config.model
    if model.custom:
        return {}
    if model.head_size:
        return {"model.head_size": model.head_size + (model.head_size % 2 if model.kind == "llama" else 0)}
    even = {} if choices.head_counts(config) else {"model.hidden_size": model.hidden_size + 1}
    counts = choices.head_counts(with_values(config, even))
    return even | {"model.num_attention_heads": nearest_to(counts, model.num_attention_heads)}


def _kv_heads(config: Config) -> Changes:
    heads, kv = config.model.num_attention_heads, config.model.num_key_value_heads
    if config.model.custom or kv is None:
        return {}
    return {"model.num_key_value_heads": nearest_to(choices.divisors(heads), kv)}


def _tp(config: Config) -> Changes:
    tp, most = config.parallelism.tensor_model_parallel_size, config.run.devices
    if tp == "auto":
        return {}
    sizes = [size for size in choices.tp_sizes(config) if most is None or size <= most]
    return {TP: nearest_to(sizes, tp)}


def _sequence(config: Config) -> Changes:
    tp = config.parallelism.tensor_model_parallel_size
    return {"parallelism.sequence_parallel": False} if tp == 1 else {}


def _pp(config: Config) -> Changes:
    pp, tp = config.parallelism.pipeline_model_parallel_size, number(config.parallelism.tensor_model_parallel_size)
    if pp == "auto":
        return {}
    most = config.model.num_layers if config.run.devices is None else config.run.devices // tp
    return {PP: max(1, min(pp, config.model.num_layers, most))}


def _stages(config: Config) -> Changes:
    given, layers = config.parallelism.layers_per_stage, config.model.num_layers
    pp = choices.virtual_stages(config)
    if given is None or (sum(given) == layers and pp in ("auto", len(given))):
        return {}
    return {"parallelism.layers_per_stage": choices.balanced(layers, min(layers, len(given)) if pp == "auto" else pp)}


def _schedule(config: Config) -> Changes:
    axes, layers, pp = config.parallelism, config.model.num_layers, config.parallelism.pipeline_model_parallel_size
    broken = [
        rule(config) for rule in (rules_schedule.the_schedule_is_known, rules_schedule.the_schedule_runs_the_chunks)
    ]
    changed = {"parallelism.chunks": None} if axes.chunks and any(broken) else {}
    if not choices.is_table(axes.schedule) and axes.schedule not in choices.CHUNKS_OF:
        return changed | {"parallelism.schedule": "1f1b"}
    count = choices.chunks(with_values(config, changed))
    if count > 1 and (pp == 1 or count * number(pp) > layers):
        return {"parallelism.schedule": "1f1b", "parallelism.chunks": None}
    return changed


def _dp(config: Config) -> Changes:
    dp, axes = config.parallelism.data_parallel_size, config.parallelism
    if dp == "auto" or config.run.devices is None:
        return {}
    team = number(axes.tensor_model_parallel_size) * number(axes.pipeline_model_parallel_size)
    return {DP: max(1, min(dp, config.run.devices // team))}


def _batch(config: Config) -> Changes:
    batch, micro = config.training.batch_size, config.training.micro_batch_size
    if batch % micro == 0 and batch // micro >= number(config.parallelism.data_parallel_size):
        return {}
    sizes = choices.micro_batch_sizes(config)
    kept = max((size for size in sizes if size <= micro), default=0)
    if kept * 2 >= micro:
        return {"training.micro_batch_size": kept}
    return {"training.batch_size": nearest_to(choices.batch_sizes(config), batch)}


def _devices(config: Config) -> Changes:
    axes, devices = config.parallelism, config.run.devices
    sizes = (axes.data_parallel_size, axes.tensor_model_parallel_size, axes.pipeline_model_parallel_size)
    most = devices or number(sizes[0]) * number(sizes[1]) * number(sizes[2])
    if devices is None and "auto" in sizes:
        return {}
    return {"elastic.min_devices": min(config.elastic.min_devices, most)}


def _rates(config: Config) -> Changes:
    training = config.training
    if training.lr_schedule == "constant":
        return {"training.min_lr": 0.0, "training.decay_samples": None}
    decay = training.decay_samples and max(training.decay_samples, training.warmup_samples)
    return {"training.min_lr": min(training.min_lr, training.lr), "training.decay_samples": decay}


def _leases(config: Config) -> Changes:
    lease, orphan = config.elastic.lease_s, config.elastic.orphan_lease_s
    return {} if orphan > lease else {"elastic.orphan_lease_s": 2 * lease}


def _blend(config: Config) -> Changes:
    return {"data.train": "shakespeare"} if config.data.train == () else {}


def _chaos(config: Config) -> Changes:
    return {"elastic.chaos": that_can_happen(config)}


def _compression(config: Config) -> Changes:
    rules = (
        rules_compression.sums_are_whole, rules_compression.it_sends_less, rules_compression.nothing_is_copied_of_it,
    )  # fmt: skip
    return {rules_compression.KEY: "none"} if any(rule(config) is not None for rule in rules) else {}


def _numbers(config: Config) -> Changes:
    training = config.training
    scale = training.loss_scale if training.precision == "fp16" else "dynamic"
    floor = min(training.min_loss_scale, training.initial_loss_scale)
    return {"training.loss_scale": scale, "training.min_loss_scale": floor}


def _recompute(config: Config) -> Changes:
    asked = config.parallelism.recompute
    if asked == "selective":
        return {rules_precision.RECOMPUTE: "full"} if config.model.custom else {}
    if isinstance(asked, str):
        return {}
    return {rules_precision.RECOMPUTE: tuple(layer for layer in asked if layer < config.model.num_layers)}


FIXES = (
    _name, _blend, _kind, _heads, _kv_heads, _tp, _sequence, _pp, _schedule, _stages, _dp, _batch, _devices, _rates,
    _leases, _chaos, _compression, _numbers, _recompute,
)  # fmt: skip
