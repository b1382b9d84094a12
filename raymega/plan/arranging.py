"""Which schedule does a mesh run? The config's own, wherever it can; what is left of a run may be too small for it.

interleaved, 2 chunks   4 stages, 8 layers     interleaved, 8 virtual stages
                        4 stages, 7 layers     1f1b
                        1 stage                1f1b
table of 4 rows         2 stages               1f1b
"""

from dataclasses import dataclass

from raymega.config.choices import chunks, is_table
from raymega.config.fault import counted
from raymega.config.schema import Config
from raymega.errors import ConfigError
from raymega.mesh import Mesh
from raymega.pipeline.catalog import schedule
from raymega.pipeline.schedule_file import read_table
from raymega.plan.mesh_choice import wish
from raymega.plan.stages import Layers, balanced_layers, layers_of_counts

PLAIN = "1f1b"


@dataclass(frozen=True, slots=True, kw_only=True)
class Arrangement:
    """A schedule, its table if it is from one, and the layers of each virtual stage."""

    schedule: str
    layers: Layers
    table: tuple[str, ...] = ()


def arranged(config: Config, mesh: Mesh) -> Arrangement:
    """What `mesh` runs.

    Raises: ConfigError if it is the mesh that the config asks for, and its table is no schedule of that.
    """
    axes, layers = config.parallelism, config.model.num_layers
    table = axes.schedule_table or ()
    count = schedule(axes.schedule, rows=table).chunks or 1 if table else chunks(config)
    why_not = _why_not(config, mesh, chunks=count)
    if why_not is not None and is_table(axes.schedule) and mesh == wish(config):
        raise ConfigError(f"parallelism.schedule: {axes.schedule} does not fit {mesh}: {why_not}.", file=axes.schedule)
    name, num_stages = (PLAIN, mesh.pp) if why_not is not None else (axes.schedule, mesh.pp * count)
    given = axes.layers_per_stage
    return Arrangement(
        schedule=name,
        layers=layers_of_counts(given)
        if given is not None and len(given) == num_stages
        else balanced_layers(layers, num_stages=num_stages),
        table=table if name == axes.schedule else (),
    )


def _why_not(config: Config, mesh: Mesh, *, chunks: int) -> str | None:
    """What keeps `mesh` from running the config's schedule."""
    name, table = config.parallelism.schedule, config.parallelism.schedule_table or ()
    if chunks > 1 and mesh.pp == 1 and not table:
        return "there is one stage"
    if chunks * mesh.pp > config.model.num_layers:
        return (
            f"{counted(chunks * mesh.pp, noun='virtual stage')} for "
            f"{counted(config.model.num_layers, noun='layer')}; every one has at least one"
        )
    if not table:
        return f"{name} was not read" if is_table(name) else None
    own = read_table(table, name=name)
    if len(table) != mesh.pp:
        return f"it has {counted(len(table), noun='row')}; every stage has one"
    num_microbatches = config.training.batch_size // config.training.micro_batch_size
    if num_microbatches != own.num_microbatches * mesh.dp:
        return (
            f"it is of {counted(own.num_microbatches, noun='micro-batch')} a replica; "
            f"batch_size / micro_batch_size is {num_microbatches}"
        )
    return None
