"""Which devices of a cluster a layout leaves idle, in one line that comes first.

8 of 32 devices are used by dp=4 tp=2 pp=1; --set parallelism.data_parallel_size=auto takes what it can of all, and
raymega plan names the best layout.
"""

from raymega.config.fault import are, counted
from raymega.config.schema import Config
from raymega.mesh import Mesh

ALL_OF_THEM = "--set parallelism.data_parallel_size=auto takes what it can of all"
BEST = "raymega plan names the best layout"


def unused(mesh: Mesh, *, devices: int, config: Config, ways: tuple[str, ...] = (BEST,)) -> str | None:
    """Say what `mesh` uses of so many devices, and how to use more; None where it uses all of them.

    Args:
        config: that asks for it; where it leaves the replicas to the planner, no more of them fit.
        ways: besides.
    """
    if mesh.size >= devices:
        return None
    fixed = config.parallelism.data_parallel_size != "auto"
    out = ", and ".join((ALL_OF_THEM, *ways) if fixed else ways)
    return f"{mesh.size:,} of {counted(devices, noun='device')} {are(mesh.size)} used by {mesh}; {out}"
