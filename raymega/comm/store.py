"""Where the members of a generation find each other: a key-value server that the controller hosts.

    store = RendezvousStore.open("10.0.0.7")        listens on a free port of that address only
    store.address                                   ("10.0.0.7", 40213): goes into every Assignment
    store.close()

Only building a group asks it; groups that are built do not need it. The port is chosen by the kernel and never let go
between choosing and using, so nobody else can take it.
"""

import socket
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import torch.distributed as dist

from raymega.comm.sockets import Address

_torch: Any = dist


@dataclass(slots=True, kw_only=True)
class RendezvousStore:
    """A running server."""

    address: Address
    _server: Any  # a dist.TCPStore, which torch exports without types

    @classmethod
    def open(cls, host: str = "127.0.0.1", *, timeout_s: float = 30.0) -> "RendezvousStore":
        """Listen on a free port of `host`, an address of this node, and on no other address."""
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        listener = socket.create_server((host, 0), family=family, backlog=2048)
        port = listener.getsockname()[1]
        server = _torch.TCPStore(
            host,
            port,
            is_master=True,
            wait_for_workers=False,
            timeout=timedelta(seconds=timeout_s),
            master_listen_fd=listener.detach(),
        )
        return cls(address=(host, port), _server=server)

    def close(self) -> None:
        """Stop listening and drop all clients. Idempotent."""
        self._server = None
