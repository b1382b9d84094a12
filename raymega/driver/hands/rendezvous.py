"""The rendezvous store of a controller, opened while the workers load their libraries."""

from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING

from raymega.driver.process.by_name import loading

if TYPE_CHECKING:
    from raymega.comm.store import RendezvousStore


class Rendezvous:
    """Opens in the background, since torch takes seconds to load; `address` waits until it is open."""

    def __init__(self, host: str) -> None:
        self._opener = ThreadPoolExecutor(1, thread_name_prefix="rendezvous")
        self._store: Future[RendezvousStore] = self._opener.submit(_open, host)

    @property
    def address(self) -> tuple[str, int]:
        return self._store.result().address

    def close(self) -> None:
        self._store.result().close()
        self._opener.shutdown()


def _open(host: str) -> "RendezvousStore":
    with loading():
        from raymega.comm.store import RendezvousStore  # loads torch: not before it is needed

    return RendezvousStore.open(host)
