"""What relates the keys of a config to each other: every rule a function, all of them asked at once.

    model      heads divide hidden_size, kv heads divide heads, rotary needs even heads, kinds keep apart
    mesh       tp divides heads, kv heads, ffn and sequence; pp <= layers; layers_per_stage adds up; enough devices
    schedule   is known, runs the chunks, and every chunk has a layer
    batch      micro-batches divide the batch, at least one for each replica
    the rest   min_lr <= lr; warm-up <= decay; lease < orphan lease; the run's name; calendar; chaos that can happen

Uneven layers and uneven quotas of micro-batches are legal. An axis left to the planner (`auto`) counts as one.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass

from raymega.config import (
    choices,
    rules_calendar,
    rules_chaos,
    rules_compression,
    rules_mesh,
    rules_model,
    rules_precision,
    rules_schedule,
)
from raymega.config.choices import near, number
from raymega.config.fault import Fault, at_most, counted, one_of
from raymega.config.rules_mesh import DP, PP, TP
from raymega.config.schema import Config

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")


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


def _microbatches_divide_the_batch(config: Config) -> Fault | None:
    batch, micro = config.training.batch_size, config.training.micro_batch_size
    if batch % micro == 0:
        return None
    dp = number(config.parallelism.data_parallel_size)
    problem = (
        f"{batch} is not a multiple of micro_batch_size {micro}; "
        f"batch_size = micro_batch_size {micro} x micro-batches of a step, shared by dp={counted(dp, noun='replica')}"
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
    problem = (
        f"{counted(dp, noun='replica')}, but only {counted(count, noun='micro-batch')} in a step "
        f"(batch_size {batch} / micro_batch_size {micro})"
    )
    sizes = choices.micro_batch_sizes(config)
    smaller = f"micro_batch_size {one_of(near(sizes, micro))}, or " if sizes else ""
    return Fault(key=DP, problem=problem, way_out=f"Use {at_most(count)}, or {smaller}batch_size {micro * dp}")


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
    problem = (
        f"the schedule ends at {counted(training.decay_samples, noun='sample')}, inside a warm-up of "
        f"{training.warmup_samples}"
    )
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


def _the_run_directory_is_local(config: Config) -> Fault | None:
    place = config.run.dir
    if "://" not in place:
        return None
    problem = f"{place} is a URI; a run's directory is on a file system that all nodes share"
    return Fault(key="run.dir", problem=problem, way_out="Use a path; checkpoint.path may be a URI")


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
CHUNKS = (rules_schedule.KEY, rules_schedule.CHUNKS)
RATES = ("training.lr", "training.min_lr", "training.lr_schedule")

RULES = (
    Rule(broken=_the_name_names_a_directory, reads=("run.name",)),
    Rule(broken=_the_run_directory_is_local, reads=("run.dir",)),
    Rule(broken=rules_model.heads_cut_the_hidden_size, reads=HEADS),
    Rule(broken=rules_model.kv_heads_divide_the_heads, reads=KV),
    Rule(broken=rules_model.rotary_turns_pairs, reads=HEADS),
    Rule(broken=rules_model.kinds_keep_apart, reads=("model.kind", "model.qk_norm", "model.rope_theta", *KV)),
    Rule(broken=_a_blend_has_parts, reads=("data.train",)),
    Rule(broken=rules_mesh.tp_divides_the_heads, reads=(TP, *KV)),
    Rule(broken=rules_mesh.tp_goes_with_the_kv_heads, reads=(TP, *KV)),
    Rule(broken=rules_mesh.tp_divides_the_ffn, reads=(TP, *FFN)),
    Rule(broken=rules_mesh.sequence_parallel_needs_a_team, reads=(TP, "parallelism.sequence_parallel", "data.seq_len")),
    Rule(broken=rules_mesh.every_stage_has_a_layer, reads=(PP, "model.num_layers")),
    Rule(
        broken=rules_mesh.layers_per_stage_add_up,
        reads=(PP, "model.num_layers", "parallelism.layers_per_stage", *CHUNKS),
    ),
    Rule(broken=rules_schedule.the_schedule_is_known, reads=CHUNKS[:1]),
    Rule(broken=rules_schedule.the_schedule_runs_the_chunks, reads=CHUNKS),
    Rule(broken=rules_schedule.chunks_need_stages, reads=(PP, *CHUNKS)),
    Rule(broken=rules_schedule.every_chunk_has_a_layer, reads=(PP, "model.num_layers", *CHUNKS)),
    Rule(broken=rules_mesh.the_mesh_fits_the_devices, reads=(DP, TP, PP, "run.devices")),
    Rule(
        broken=rules_mesh.the_least_devices_are_within_reach, reads=(DP, TP, PP, "run.devices", "elastic.min_devices")
    ),
    Rule(broken=_microbatches_divide_the_batch, reads=BATCH),
    Rule(broken=_every_replica_has_a_microbatch, reads=BATCH),
    Rule(broken=_the_rate_falls_to_its_end, reads=RATES),
    Rule(broken=_warmup_ends_before_decay, reads=(*RATES, "training.warmup_samples", "training.decay_samples")),
    Rule(broken=rules_precision.a_loss_scale_is_that_of_fp16, reads=("training.loss_scale", "training.precision")),
    Rule(
        broken=rules_precision.the_scale_begins_above_its_floor,
        reads=("training.initial_loss_scale", "training.min_loss_scale"),
    ),
    Rule(broken=rules_precision.recomputed_layers_are_there, reads=("parallelism.recompute", "model.num_layers")),
    Rule(broken=rules_precision.selective_knows_the_attention, reads=("parallelism.recompute", "model.custom")),
    Rule(broken=rules_compression.sums_are_whole, reads=(rules_compression.KEY, "parallelism.shard_optimizer")),
    Rule(broken=rules_compression.it_sends_less, reads=(rules_compression.KEY, DP)),
    Rule(broken=rules_compression.nothing_is_copied_of_it, reads=(rules_compression.KEY, "elastic.copies_every")),
    Rule(broken=_orphans_outlive_a_lease, reads=("elastic.lease_s", "elastic.orphan_lease_s")),
    Rule(broken=rules_calendar.the_calendar_is_in_order, reads=rules_calendar.READS),
    Rule(broken=rules_calendar.the_zone_is_known, reads=(rules_calendar.ZONE,)),
    Rule(broken=rules_chaos.every_order_can_happen, reads=rules_chaos.READS),
)
