"""Rules about a model on a mesh: tp divides what it cuts, pp leaves no stage empty, there are devices for it all.

Uneven layers are legal. An axis left to the planner (`auto`) counts as one.
"""

from raymega.config import choices
from raymega.config.choices import near, number
from raymega.config.fault import Fault, at_most, counted, one_of
from raymega.config.schema import Config

TP = "parallelism.tensor_model_parallel_size"
PP = "parallelism.pipeline_model_parallel_size"
DP = "parallelism.data_parallel_size"


def _tp_divides(config: Config, *, what: str, size: int, fits: bool, rule: str) -> Fault | None:
    tp = config.parallelism.tensor_model_parallel_size
    if config.model.custom or tp == "auto" or fits:
        return None
    problem = f"{tp} does not go with {what} {size}; {rule}"
    valid = one_of(near(choices.tp_sizes(config), tp, count=4))
    return Fault(key=TP, problem=problem, way_out=f"Use {valid}, to fit heads, kv heads and ffn_size")


def tp_divides_the_heads(config: Config) -> Fault | None:
    """Every shard holds as many whole query heads."""
    heads, tp = config.model.num_attention_heads, number(config.parallelism.tensor_model_parallel_size)
    rule = "every shard has as many whole heads"
    return _tp_divides(config, what="model.num_attention_heads", size=heads, fits=heads % tp == 0, rule=rule)


def tp_goes_with_the_kv_heads(config: Config) -> Fault | None:
    """tp divides the kv heads, or each kv head is replicated over whole shards."""
    kv, tp = choices.kv_heads(config), number(config.parallelism.tensor_model_parallel_size)
    others = kv == config.model.num_attention_heads or config.model.num_attention_heads % kv != 0  # their own faults
    fits = others or choices.tp_fits_kv_heads(kv, tp)
    rule = "tp divides the kv heads, or is a multiple of them and they are replicated"
    return _tp_divides(config, what="model.num_key_value_heads", size=kv, fits=fits, rule=rule)


def tp_divides_the_ffn(config: Config) -> Fault | None:
    """Every shard holds as many columns of the mlp."""
    ffn, tp = choices.ffn_size(config), number(config.parallelism.tensor_model_parallel_size)
    rule = "every shard has as many columns of it"
    return _tp_divides(config, what="model.ffn_size", size=ffn, fits=ffn % tp == 0, rule=rule)


def sequence_parallel_needs_a_team(config: Config) -> Fault | None:
    """A sequence is cut over a team of two or more, evenly."""
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


def every_stage_has_a_layer(config: Config) -> Fault | None:
    """There are at most as many stages as layers."""
    layers, pp = config.model.num_layers, number(config.parallelism.pipeline_model_parallel_size)
    if pp <= layers:
        return None
    problem = f"{counted(pp, noun='stage')} for {counted(layers, noun='layer')}; every stage has at least one"
    return Fault(key=PP, problem=problem, way_out=f"Use {at_most(layers)}, or model.num_layers {pp} or more")


def layers_per_stage_add_up(config: Config) -> Fault | None:
    """Layers given by stage are as many as the model has, for as many stages as the mesh has."""
    given, layers = config.parallelism.layers_per_stage, config.model.num_layers
    pp = choices.virtual_stages(config)
    if given is None or (sum(given) == layers and pp in ("auto", len(given))):
        return None
    stages = min(layers, len(given) if pp == "auto" else pp)
    problem = (
        f"{list(given)} has {counted(len(given), noun='stage')} and "
        f"{counted(sum(given), noun='layer')}; the model has {counted(layers, noun='layer')}"
    )
    wanted = "" if pp == "auto" else f", the mesh {counted(pp, noun='stage')}"
    way_out = f"Use {list(choices.balanced(layers, stages))}, or leave it out"
    return Fault(key="parallelism.layers_per_stage", problem=problem + wanted, way_out=way_out)


def the_mesh_fits_the_devices(config: Config) -> Fault | None:
    """dp * tp * pp is at most the devices that are given."""
    axes, devices = config.parallelism, config.run.devices
    dp, tp, pp = (
        number(axis)
        for axis in (axes.data_parallel_size, axes.tensor_model_parallel_size, axes.pipeline_model_parallel_size)
    )
    if devices is None or dp * tp * pp <= devices:
        return None
    problem = f"dp={dp} tp={tp} pp={pp} needs {counted(dp * tp * pp, noun='device')}; {devices} are given"
    smaller = devices // (tp * pp)
    way_out = f"Use data_parallel_size {smaller}" if smaller else "Use a smaller tp or pp"
    return Fault(key="run.devices", problem=problem, way_out=f"{way_out}, or run.devices {dp * tp * pp}")


def the_least_devices_are_within_reach(config: Config) -> Fault | None:
    """A run does not ask for more devices than it starts with."""
    axes, least = config.parallelism, config.elastic.min_devices
    sizes = (axes.data_parallel_size, axes.tensor_model_parallel_size, axes.pipeline_model_parallel_size)
    most = config.run.devices
    if most is None and "auto" not in sizes:
        most = number(sizes[0]) * number(sizes[1]) * number(sizes[2])
    if most is None or least <= most:
        return None
    problem = f"the run ends below {counted(least, noun='device')}, but starts with {most}"
    return Fault(key="elastic.min_devices", problem=problem, way_out=f"Use {at_most(most)}")
