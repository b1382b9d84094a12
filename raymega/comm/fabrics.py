"""Which kind of groups a worker uses: NCCL if it computes on a GPU, gloo if on a CPU."""

import torch

from raymega.comm.gloo import GlooFabric
from raymega.comm.group import Fabric
from raymega.comm.nccl import NcclFabric
from raymega.comm.sockets import Address
from raymega.plan.plan import WorkerId


def fabric_for(
    device: torch.device | str,
    *,
    store: Address,
    me: WorkerId,
    generation: int,
    timeout_s: float = 30.0,
    bind_address: str = "127.0.0.1",
) -> Fabric:
    """Connect the worker `me` of `generation` to its peers.

    Args:
        device: where its tensors lie.
        store: the rendezvous store of the generation.
        timeout_s: limit of every wait, and of building a group.
        bind_address: an address of this node that the peers can reach; NCCL finds its own.
    Raises: ClusterError if the store does not answer.
    """
    device = torch.device(device)
    if device.type == "cuda":
        return NcclFabric.connect(store, me=me, generation=generation, device=device, timeout_s=timeout_s)
    return GlooFabric.connect(store, me=me, generation=generation, timeout_s=timeout_s, bind_address=bind_address)
