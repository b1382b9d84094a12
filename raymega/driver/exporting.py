"""`raymega export`: a run's parameters and its config, for other programs.

PATH/model.safetensors   whole tensors under global names       PATH/raymega.yaml   the config that they were trained by
"""

from raymega.checkpoint.export import Exported, export_params
from raymega.checkpoint.store import open_store, write_bytes
from raymega.config.load import to_yaml
from raymega.driver.reading import checkpoint_of
from raymega.driver.run_dir import RunDirectory

CONFIG = "raymega.yaml"


def export_run(run: RunDirectory, *, to: str, step: str = "auto") -> Exported:
    """Write the parameters of a run's newest whole checkpoint, or of one step, into the directory `to`.

    Raises: StateError while there is none; ConfigError if there is something in `to`.
    """
    config = run.read_config()
    made = export_params(checkpoint_of(run, step=step), to=to)
    write_bytes(open_store(to), CONFIG, to_yaml(config).encode())
    return made
