"""Does Ray answer where RAY_ADDRESS points? Asked first, since Ray itself would go on trying for a quarter of an hour.

    http://head:8265     a dashboard, which takes jobs: refused
    head                 no address: refused
    head:6379            nobody listens there, or somebody who speaks no gRPC: refused within `LIMIT_S`
    auto, ray://head:10001                                            left to Ray, which knows soon

A gRPC server answers the opening of HTTP/2 with its settings (RFC 9113, 3.4).
"""

import os
import socket

from raymega.errors import ClusterError

LIMIT_S = 10.0
OPENING = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes([0, 0, 0, 4, 0, 0, 0, 0, 0])  # and settings, of which none
FRAME_HEAD, KIND, SETTINGS = 9, 3, 4
WAY_OUT = "Start that cluster, or unset RAY_ADDRESS to have a local Ray started."


def refuse_dead(address: str, *, limit_s: float = LIMIT_S) -> None:
    """Refuse a value of RAY_ADDRESS at which no Ray can be met. Raises: ClusterError."""
    if address.startswith(("http://", "https://")):
        raise ClusterError(
            f"RAY_ADDRESS={address} is a dashboard, which takes jobs; this speaks with Ray itself. Set RAY_ADDRESS to "
            "HOST:6379, and RAY_API_SERVER_ADDRESS to the dashboard."
        )
    if address in ("", "auto", "local") or "://" in address:
        return
    host, colon, port = address.rpartition(":")
    if not (host and colon and port.isdecimal() and 0 < int(port) < 2**16):
        raise ClusterError(f"RAY_ADDRESS={address} is no address of a cluster. Set it to HOST:PORT, as in head:6379.")
    why = why_dead(address, name=f"RAY_ADDRESS={address}", limit_s=limit_s)
    if why:
        raise ClusterError(f"{why}. {WAY_OUT}")


def why_dead(address: str, *, name: str, limit_s: float = LIMIT_S) -> str:
    """Why no Ray can be met at HOST:PORT, as in "nobody answers at NAME: timed out"; empty if one can."""
    host, _, port = address.rpartition(":")
    try:
        with socket.create_connection((host.strip("[]"), int(port)), timeout=limit_s) as connection:
            return "" if _speaks_grpc(connection) else f"who answers at {name} is no Ray"
    except OSError as error:
        return f"nobody answers at {name}: {error}"


def _speaks_grpc(connection: socket.socket) -> bool:
    if os.environ.get("RAY_USE_TLS", "0") not in ("", "0"):
        return True  # what it says cannot be read without its certificates
    connection.sendall(OPENING)
    head = b""
    while len(head) < FRAME_HEAD and (more := connection.recv(FRAME_HEAD - len(head))):
        head += more
    return len(head) == FRAME_HEAD and head[KIND] == SETTINGS
