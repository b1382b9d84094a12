"""Which sources an agent asks on its node: what the config says, or the cloud that the machine belongs to. Pure.

elastic.notices: auto     "Amazon EC2" | "Google" | "Microsoft Corporation" on the machine's board, or an address
                          of a metadata server in the environment
                 aws | gcp | azure
RAYMEGA_LEAVE_FILE        a file, besides
"""

from collections.abc import Mapping
from pathlib import Path

from raymega.driver.spot.sources import (
    AWS_BASE,
    AZURE_BASE,
    GCP_BASE,
    AwsSource,
    AzureSource,
    FileSource,
    Source,
    gcp_sources,
)

BOARD = Path("/sys/class/dmi/id/sys_vendor")
VENDORS = {"Amazon EC2": "aws", "Google": "gcp", "Microsoft Corporation": "azure"}
AWS_VARIABLE = "AWS_EC2_METADATA_SERVICE_ENDPOINT"  # AWS's own tools read it
GCP_VARIABLE = "GCE_METADATA_HOST"  # Google's own libraries read it: host, or host:port
AZURE_VARIABLE = "RAYMEGA_AZURE_METADATA"
FILE_VARIABLE = "RAYMEGA_LEAVE_FILE"
HINTS_VARIABLE = "RAYMEGA_LEAVE_ON_HINTS"
VARIABLES = {"aws": AWS_VARIABLE, "gcp": GCP_VARIABLE, "azure": AZURE_VARIABLE}


def sources_of(notices: str, *, env: Mapping[str, str], vendor: str) -> tuple[Source, ...]:
    """The sources of this node.

    Args:
        notices: `elastic.notices`.
        env: the node's environment.
        vendor: what the machine's board says; empty: nothing.
    """
    cloud = _cloud(env, vendor=vendor) if notices == "auto" else notices
    found: tuple[Source, ...] = ()
    if cloud == "aws":
        base = env.get(AWS_VARIABLE, AWS_BASE).rstrip("/")
        found = (AwsSource(base=base, hints=env.get(HINTS_VARIABLE) == "1"),)
    elif cloud == "gcp":
        found = gcp_sources(f"http://{env[GCP_VARIABLE]}" if GCP_VARIABLE in env else GCP_BASE)
    elif cloud == "azure":
        found = (AzureSource(base=env.get(AZURE_VARIABLE, AZURE_BASE).rstrip("/")),)
    return (*found, FileSource(path=Path(env[FILE_VARIABLE]))) if FILE_VARIABLE in env else found


def _cloud(env: Mapping[str, str], *, vendor: str) -> str:
    named = next((cloud for cloud, variable in VARIABLES.items() if variable in env), "")
    return named or VENDORS.get(vendor.strip(), "")


def vendor_here(board: Path = BOARD) -> str:
    """What this machine's board says of its maker."""
    try:
        return board.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
