"""What a run would be as another mesh, or on so many devices: its config, as if it had been asked for.

    config dp=2 pp=2      --devices 3            dp=auto pp=2, on 3 devices at most
                          --plan dp=1,tp=2,pp=1  just that mesh

The same rules hold as for a config that is read: a mesh that does not divide is refused with what would. Rules about
`run.devices` are none of them: it is what the config asks for, and what other keys, as the calendar, are held to.
"""

from collections.abc import Mapping

from raymega.config.choices import chunks
from raymega.config.fault import counted
from raymega.config.rules import faults_of
from raymega.config.schema import Config
from raymega.errors import PlanError
from raymega.mesh import Mesh


def as_mesh(config: Config, mesh: Mesh) -> Config:
    """The config of the run as `mesh`. Raises: PlanError if the model or the batch cannot be cut so."""
    axes = {
        "data_parallel_size": mesh.dp,
        "tensor_model_parallel_size": mesh.tp,
        "pipeline_model_parallel_size": mesh.pp,
    }
    return _asked(config, axes, devices=mesh.size, wish=str(mesh))


def on_devices(config: Config, devices: int) -> Config:
    """The config of the run on so many devices: replicas as they fit. Raises: PlanError for fewer than the least."""
    return _asked(config, {"data_parallel_size": "auto"}, devices=devices, wish=counted(devices, noun="device"))


def _asked(config: Config, axes: Mapping[str, int | str | None], *, devices: int, wish: str) -> Config:
    least = config.elastic.min_devices
    if devices < least:
        raise PlanError(f"{wish} is below elastic.min_devices {least}. Ask for {least} or more.", asked=devices)
    stages = config.parallelism.layers_per_stage
    if stages is not None and axes.get("pipeline_model_parallel_size") not in (None, len(stages) // chunks(config)):
        axes = {**axes, "layers_per_stage": None}
    if axes.get("tensor_model_parallel_size") == 1:
        axes = {**axes, "sequence_parallel": False}
    asked = config.model_copy(
        update={
            "parallelism": config.parallelism.model_copy(update=axes),
            "run": config.run.model_copy(update={"devices": devices}),
        }
    )
    faults = faults_of(asked, unread=frozenset({"run.devices"}))
    if faults:
        raise PlanError(f"{wish}: {' '.join(map(str, faults))}", asked=devices)
    return asked
