"""`raymega export`: a run's parameters and its config, for other programs.

PATH/model.safetensors   whole tensors under global names       PATH/raymega.yaml   the config that they were trained by
"""

from raymega.checkpoint.export import Exported, export_params
from raymega.checkpoint.store import open_store, write_bytes
from raymega.config.load import to_yaml
from raymega.driver.records.reading import checkpoint_of
from raymega.driver.records.run_dir import RunDirectory
from raymega.errors import StateError

CONFIG = "raymega.yaml"


def export_run(run: RunDirectory, *, to: str, step: str = "auto") -> Exported:
    """Write the parameters of a run's newest whole checkpoint, or of one step, into the directory `to`.

    Raises: StateError while there is none, or where nothing can be written; ConfigError if there is something in `to`.
    """
    config, checkpoint = run.read_config(), checkpoint_of(run, step=step)
    try:
        made = export_params(checkpoint, to=to)
        write_bytes(open_store(to), CONFIG, to_yaml(config).encode())
    except OSError as error:
        why = error.strerror or str(error)
        raise StateError(f"{to} cannot be written: {why}. Name another place, make room, or give access.") from error
    return made
