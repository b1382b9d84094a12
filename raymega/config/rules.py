"""What relates the keys of a config to each other: every rule a function, all of them asked at once.

    model      heads divide hidden_size, kv heads divide heads, rotary needs even heads, kinds keep apart
    mesh       tp divides heads, kv heads, ffn and sequence; pp <= layers; layers_per_stage adds up; enough devices
    batch      micro-batches divide the batch, at least one for each replica
    the rest   min_lr <= lr; warm-up <= decay; lease < orphan lease; the run's name

Uneven layers and uneven quotas of micro-batches are legal. An axis left to the planner (`auto`) counts as one.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass

from raymega.config import choices
from raymega.config.choices import near, number
from raymega.config.fault import Fault, one_of
from raymega.config.schema import Config, ModelConfig

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
TP = "parallelism.tensor_model_parallel_size"
PP = "parallelism.pipeline_model_parallel_size"
DP = "parallelism.data_parallel_size"


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """A rule and the keys it reads; where one of them, its section or the whole text is faulty, it cannot be asked."""

    broken: Callable[[Config], Fault | None]
    reads: tuple[str, ...]

    def is_askable(self, unread: frozenset[str]) -> bool:
        sections = {key.partition(".")[0] for key in self.reads}
        return not unread & {*self.reads, *sections, ""}


def faults_of(config: Config, *, unread: frozenset[str] = frozenset()) -> tuple[Fault, ...]:
    """Every rule that `config` breaks, leaving out rules that read a key in `unread`."""
    asked = [rule for rule in RULES if rule.is_askable(unread)]
    return tuple(fault for rule in asked if (fault := rule.broken(config)) is not None)


def _heads_cut_the_hidden_size(config: Config) -> Fault | None:
    model = config.model
    if model.custom or model.head_size or model.hidden_size % model.num_attention_heads == 0:
        return None
    fits = near(choices.head_counts(config), model.num_attention_heads)
    problem = f"{model.num_attention_heads} heads do not divide hidden_size {model.hidden_size}"
    way_out = f"Use {one_of(fits)} heads, or give model.head_size" if fits else "Use an even hidden_size"
    return Fault(key="model.num_attention_heads", problem=problem, way_out=way_out)


def _kv_heads_divide_the_heads(config: Config) -> Fault | None:
    heads, kv = config.model.num_attention_heads, choices.kv_heads(config)
    if config.model.custom or heads % kv == 0:
        return None
    problem = f"{kv} kv heads do not divide {heads} heads; each serves as many queries as the others"
    fits = one_of(near(choices.divisors(heads), kv))
    return Fault(key="model.num_key_value_heads", problem=problem, way_out=f"Use {fits}")


def _rotary_turns_pairs(config: Config) -> Fault | None:
    model, size = config.model, choices.head_size(config)
    whole = model.head_size or model.hidden_size % model.num_attention_heads == 0
    if model.custom or model.kind != "llama" or not whole or size % 2 == 0:
        return None
    problem = f"a head has {size} elements; rotary positions turn pairs, so that it must be even"
    if model.head_size:
        return Fault(key="model.head_size", problem=problem, way_out=f"Use {one_of((size - 1, size + 1)[size == 1 :])}")
    fits = near(choices.head_counts(config), model.num_attention_heads)
    way_out = f"Use {one_of(fits)} heads, or give model.head_size" if fits else "Use an even hidden_size"
    return Fault(key="model.num_attention_heads", problem=problem, way_out=way_out)


def _kinds_keep_apart(config: Config) -> Fault | None:
    model, plain = config.model, ModelConfig()
    foreign = {
        "qk_norm": model.qk_norm,
        "rope_theta": model.rope_theta != plain.rope_theta,
        "num_key_value_heads": choices.kv_heads(config) != model.num_attention_heads,
    }
    named = [name for name, used in foreign.items() if used]
    if model.kind != "gpt2" or not named:
        return None
    problem = f"{', '.join(named)} given, but kind gpt2 has learned positions and plain attention"
    return Fault(key=f"model.{named[0]}", problem=problem, way_out="Leave that out, or use kind llama")


def _tp_divides(config: Config, *, what: str, size: int, fits: bool, rule: str) -> Fault | None:
    tp = config.parallelism.tensor_model_parallel_size
    if config.model.custom or tp == "auto" or fits:
        return None
    problem = f"{tp} does not go with {what} {size}; {rule}"
    valid = one_of(near(choices.tp_sizes(config), tp, count=4))
    return Fault(key=TP, problem=problem, way_out=f"Use {valid}, to fit heads, kv heads and ffn_size")


def _tp_divides_the_heads(config: Config) -> Fault | None:
    heads, tp = config.model.num_attention_heads, number(config.parallelism.tensor_model_parallel_size)
    rule = "every shard has as many whole heads"
    return _tp_divides(config, what="model.num_attention_heads", size=heads, fits=heads % tp == 0, rule=rule)


def _tp_goes_with_the_kv_heads(config: Config) -> Fault | None:
    kv, tp = choices.kv_heads(config), number(config.parallelism.tensor_model_parallel_size)
    others = kv == config.model.num_attention_heads or config.model.num_attention_heads % kv != 0  # their own faults
    fits = others or choices.tp_fits_kv_heads(kv, tp)
    rule = "tp divides the kv heads, or is a multiple of them and they are replicated"
    return _tp_divides(config, what="model.num_key_value_heads", size=kv, fits=fits, rule=rule)


def _tp_divides_the_ffn(config: Config) -> Fault | None:
    ffn, tp = choices.ffn_size(config), number(config.parallelism.tensor_model_parallel_size)
    rule = "every shard has as many columns of it"
    return _tp_divides(config, what="model.ffn_size", size=ffn, fits=ffn % tp == 0, rule=rule)


def _sequence_parallel_needs_a_team(config: Config) -> Fault | None:
    tp, seq_len = config.parallelism.tensor_model_parallel_size, config.data.seq_len
    if not config.parallelism.sequence_parallel or tp == "auto" or (tp > 1 and seq_len % tp == 0):
        return None
    key = "parallelism.sequence_parallel"
    if tp == 1:
        way_out = "Set it to false, or tensor_model_parallel_size to 2 or more"
        return Fault(key=key, problem="it cuts the sequence over a team, but tp is 1", way_out=way_out)
    problem = f"data.seq_len {seq_len} is no multiple of tp {tp}, over which the sequence is cut"
    lengths = sorted({tp * max(1, seq_len // tp), tp * -(-seq_len // tp)})
    return Fault(key=key, problem=problem, way_out=f"Set it to false, or data.seq_len to {one_of(lengths)}")


def _every_stage_has_a_layer(config: Config) -> Fault | None:
    layers, pp = config.model.num_layers, number(config.parallelism.pipeline_model_parallel_size)
    if pp <= layers:
        return None
    problem = f"{pp} stages for {layers} layers; every stage has at least one"
    return Fault(key=PP, problem=problem, way_out=f"Use {layers} or less, or model.num_layers {pp} or more")


def _layers_per_stage_add_up(config: Config) -> Fault | None:
    given, layers = config.parallelism.layers_per_stage, config.model.num_layers
    pp = config.parallelism.pipeline_model_parallel_size
    if given is None or (sum(given) == layers and pp in ("auto", len(given))):
        return None
    stages = min(layers, len(given) if pp == "auto" else pp)
    problem = f"{list(given)} has {len(given)} stages and {sum(given)} layers; the model has {layers} layers"
    wanted = "" if pp == "auto" else f", the mesh {pp} stages"
    way_out = f"Use {list(choices.balanced(layers, stages))}, or leave it out"
    return Fault(key="parallelism.layers_per_stage", problem=problem + wanted, way_out=way_out)


def _the_mesh_fits_the_devices(config: Config) -> Fault | None:
    axes, devices = config.parallelism, config.run.devices
    dp, tp, pp = (
        number(axis)
        for axis in (axes.data_parallel_size, axes.tensor_model_parallel_size, axes.pipeline_model_parallel_size)
    )
    if devices is None or dp * tp * pp <= devices:
        return None
    problem = f"dp={dp} tp={tp} pp={pp} needs {dp * tp * pp} devices; {devices} are given"
    smaller = devices // (tp * pp)
    way_out = f"Use data_parallel_size {smaller}" if smaller else "Use a smaller tp or pp"
    return Fault(key="run.devices", problem=problem, way_out=f"{way_out}, or run.devices {dp * tp * pp}")


def _the_least_devices_are_within_reach(config: Config) -> Fault | None:
    axes, least = config.parallelism, config.elastic.min_devices
    sizes = (axes.data_parallel_size, axes.tensor_model_parallel_size, axes.pipeline_model_parallel_size)
    most = config.run.devices
    if most is None and "auto" not in sizes:
        most = number(sizes[0]) * number(sizes[1]) * number(sizes[2])
    if most is None or least <= most:
        return None
    problem = f"the run ends below {least} devices, but starts with {most}"
    return Fault(key="elastic.min_devices", problem=problem, way_out=f"Use {most} or less")


def _microbatches_divide_the_batch(config: Config) -> Fault | None:
    batch, micro = config.training.batch_size, config.training.micro_batch_size
    if batch % micro == 0:
        return None
    dp = number(config.parallelism.data_parallel_size)
    problem = (
        f"{batch} is not a multiple of micro_batch_size {micro}; "
        f"batch_size = micro_batch_size {micro} x micro-batches of a step, shared by dp={dp} replicas"
    )
    fits, even = choices.batch_sizes(config), choices.even_batch_sizes(config)
    shared = "" if even == fits else f" ({one_of(even)} give each replica as many)"
    sizes = choices.micro_batch_sizes(config)
    smaller = f", or micro_batch_size {one_of(near(sizes, micro))}" if sizes else ""
    return Fault(key="training.batch_size", problem=problem, way_out=f"Use {one_of(fits)}{shared}{smaller}")


def _every_replica_has_a_microbatch(config: Config) -> Fault | None:
    batch, micro = config.training.batch_size, config.training.micro_batch_size
    dp, count = number(config.parallelism.data_parallel_size), -(-batch // micro)
    if count >= dp:
        return None
    problem = f"{dp} replicas, but only {count} micro-batches in a step (batch_size {batch} / micro_batch_size {micro})"
    sizes = choices.micro_batch_sizes(config)
    smaller = f"micro_batch_size {one_of(near(sizes, micro))}, or " if sizes else ""
    return Fault(key=DP, problem=problem, way_out=f"Use {count} or less, or {smaller}batch_size {micro * dp}")


def _the_rate_falls_to_its_end(config: Config) -> Fault | None:
    training, key = config.training, "training.min_lr"
    if training.lr_schedule == "constant" and training.min_lr > 0:
        problem = f"{training.min_lr:g} given, but lr_schedule constant never falls"
        return Fault(key=key, problem=problem, way_out="Set it to 0, or lr_schedule to linear or cosine")
    if training.min_lr <= training.lr:
        return None
    problem = f"{training.min_lr:g} is above lr {training.lr:g}, from which it falls"
    return Fault(key=key, problem=problem, way_out=f"Use {training.lr:g} or less")


def _warmup_ends_before_decay(config: Config) -> Fault | None:
    training, key = config.training, "training.decay_samples"
    if training.decay_samples is None:
        return None
    if training.lr_schedule == "constant":
        problem = f"{training.decay_samples} given, but lr_schedule constant never falls"
        return Fault(key=key, problem=problem, way_out="Leave it out, or set lr_schedule to linear or cosine")
    if training.warmup_samples <= training.decay_samples:
        return None
    problem = f"the schedule ends at {training.decay_samples} samples, inside a warm-up of {training.warmup_samples}"
    return Fault(
        key=key, problem=problem, way_out=f"Use {training.warmup_samples} or more, or a shorter warmup_samples"
    )


def _orphans_outlive_a_lease(config: Config) -> Fault | None:
    lease, orphan = config.elastic.lease_s, config.elastic.orphan_lease_s
    if orphan > lease:
        return None
    problem = f"{orphan:g} s is not above lease_s {lease:g} s; workers would end before they are missed"
    return Fault(key="elastic.orphan_lease_s", problem=problem, way_out=f"Use {2 * lease:g} or more")


def _the_name_names_a_directory(config: Config) -> Fault | None:
    name = config.run.name
    if name is None or NAME.fullmatch(name):
        return None
    problem = f'"{name}" cannot name a directory and an actor; letters, digits, dot, dash, underscore, 64 at most'
    return Fault(key="run.name", problem=problem, way_out=f"Use {plain_name(name)}")


def _a_blend_has_parts(config: Config) -> Fault | None:
    if config.data.train != ():
        return None
    return Fault(key="data.train", problem="the blend is empty", way_out="Give at least one {path, weight}")


def plain_name(name: str) -> str:
    """The nearest name that is allowed."""
    return re.sub(r"[^A-Za-z0-9._-]+", "-", name).strip("-._")[:64] or "run"


HEADS = ("model.num_attention_heads", "model.hidden_size", "model.head_size", "model.kind", "model.custom")
KV = ("model.num_key_value_heads", "model.num_attention_heads", "model.custom")
FFN = ("model.ffn_size", "model.hidden_size", "model.kind", "model.custom")
BATCH = ("training.batch_size", "training.micro_batch_size", DP)
RATES = ("training.lr", "training.min_lr", "training.lr_schedule")

RULES = (
    Rule(broken=_the_name_names_a_directory, reads=("run.name",)),
    Rule(broken=_heads_cut_the_hidden_size, reads=HEADS),
    Rule(broken=_kv_heads_divide_the_heads, reads=KV),
    Rule(broken=_rotary_turns_pairs, reads=HEADS),
    Rule(broken=_kinds_keep_apart, reads=("model.kind", "model.qk_norm", "model.rope_theta", *KV)),
    Rule(broken=_a_blend_has_parts, reads=("data.train",)),
    Rule(broken=_tp_divides_the_heads, reads=(TP, *KV)),
    Rule(broken=_tp_goes_with_the_kv_heads, reads=(TP, *KV)),
    Rule(broken=_tp_divides_the_ffn, reads=(TP, *FFN)),
    Rule(broken=_sequence_parallel_needs_a_team, reads=(TP, "parallelism.sequence_parallel", "data.seq_len")),
    Rule(broken=_every_stage_has_a_layer, reads=(PP, "model.num_layers")),
    Rule(broken=_layers_per_stage_add_up, reads=(PP, "model.num_layers", "parallelism.layers_per_stage")),
    Rule(broken=_the_mesh_fits_the_devices, reads=(DP, TP, PP, "run.devices")),
    Rule(broken=_the_least_devices_are_within_reach, reads=(DP, TP, PP, "run.devices", "elastic.min_devices")),
    Rule(broken=_microbatches_divide_the_batch, reads=BATCH),
    Rule(broken=_every_replica_has_a_microbatch, reads=BATCH),
    Rule(broken=_the_rate_falls_to_its_end, reads=RATES),
    Rule(broken=_warmup_ends_before_decay, reads=(*RATES, "training.warmup_samples", "training.decay_samples")),
    Rule(broken=_orphans_outlive_a_lease, reads=("elastic.lease_s", "elastic.orphan_lease_s")),
)
