"""Rules about schedules: which there are, how many chunks a stage they run, and that every chunk has a layer.

Any number of micro-batches goes with any of them, but for a table of actions, which is of just so many.
"""

from raymega.config.choices import CHUNKS_OF, chunks, is_table, number
from raymega.config.fault import Fault, counted, nearest, one_of
from raymega.config.schema import Config

KEY, CHUNKS = "parallelism.schedule", "parallelism.chunks"


def the_schedule_is_known(config: Config) -> Fault | None:
    """It has a name, or is the name of a file with a table of actions."""
    name = config.parallelism.schedule
    if name in CHUNKS_OF or is_table(name):
        return None
    near = nearest(name.lower(), CHUNKS_OF)
    hint = f"Did you mean {near}?" if near else f"Use {one_of(tuple(CHUNKS_OF))}, or a table of actions, FILE.csv"
    return Fault(key=KEY, problem=f"there is no schedule {name}", way_out=hint)


def the_schedule_runs_the_chunks(config: Config) -> Fault | None:
    """Most schedules run one number of chunks a stage; a table says itself how many."""
    given, name = config.parallelism.chunks, config.parallelism.schedule
    fits = CHUNKS_OF.get(name, (None,))
    if given is None or given in fits or (None in fits and not is_table(name)):
        return None
    if is_table(name):
        return Fault(key=CHUNKS, problem=f"{given} given, but {name} says it itself", way_out="Leave it out")
    others = "1f1b, zb-h1 or zb-h2" if given == 1 else "interleaved"
    usual = fits[0] or 1
    problem = f"{name} runs {'one chunk' if usual == 1 else counted(usual, noun='chunk')} a stage, not {given}"
    return Fault(key=CHUNKS, problem=problem, way_out=f"Leave it out, or set schedule to {others}")


def chunks_need_stages(config: Config) -> Fault | None:
    """What is passed round several stages has several; one stage would only pass it to itself."""
    name, pp = config.parallelism.schedule, config.parallelism.pipeline_model_parallel_size
    if chunks(config) == 1 or pp != 1 or the_schedule_runs_the_chunks(config):
        return None
    problem = f"{name} runs {chunks(config)} chunks a stage, but there is one stage"
    return Fault(key=KEY, problem=problem, way_out="Use 1f1b, or pipeline_model_parallel_size 2 or more")


def every_chunk_has_a_layer(config: Config) -> Fault | None:
    """There are at most as many chunks, over all stages, as layers."""
    pp, layers = number(config.parallelism.pipeline_model_parallel_size), config.model.num_layers
    count, most = chunks(config), layers // pp
    if pp == 1 or count * pp <= layers or pp > layers or the_schedule_runs_the_chunks(config):
        return None
    problem = (
        f"{counted(pp, noun='stage')} of {counted(count, noun='chunk')} for "
        f"{counted(layers, noun='layer')}; every chunk has at least one"
    )
    smaller = f"pipeline_model_parallel_size {layers // count} or less" if layers // count > 1 else "schedule 1f1b"
    fewer = f"chunks {most} or less, " if most > 1 and config.parallelism.chunks else ""
    return Fault(key=KEY, problem=problem, way_out=f"Use {fewer}{smaller}, or model.num_layers {count * pp} or more")
