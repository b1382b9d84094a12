"""The Ray in which a run lives, which its LOCK names; whoever asks the run something is connected to that one.

    this process is connected to it           used as it is
    .. to another                             refused with both addresses: a process has one connection
    to none    a local Ray of this user       by what that has left in its directory, whatever RAY_ADDRESS says
               its own address                nobody answers there, or another Ray by now: then RAY_ADDRESS is tried
               RAY_ADDRESS=ray://..           tried first: to who needs that, addresses within the cluster say nothing

A lock of an older version names none; then it is the local Ray that was started for the run, else that of RAY_ADDRESS.
"""

import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from shlex import quote

import ray

from raymega.driver.cluster.connection import Wish
from raymega.driver.cluster.ray_access import MODE_VARIABLE, TOKEN_VARIABLE, Access, access_at, access_to
from raymega.driver.cluster.ray_address import refuse_dead, why_dead
from raymega.driver.cluster.ray_private import apply_auth, signals_left_alone
from raymega.driver.cluster.ray_session import NAMESPACE, OF_THIS_PROCESS, PREFIX, ray_here, shut_down, temp_root
from raymega.driver.records.lock import RayAt, read_owner
from raymega.errors import ClusterError, RayGone


@contextmanager
def ray_of(lock: Path | None) -> Iterator[None]:
    """Connect, for the time of the block, to the Ray in which a run lives that others have started.

    Args:
        lock: the run's LOCK; None: only its name is known, so it is one on a cluster.
    Raises: ClusterError where no Ray is known, or this process is connected to another; RayGone where the run's own
        answers no more.
    """
    there = None if lock is None else _named_by(lock)
    who = "a run of which only the name is known" if lock is None else f"run {lock.parent.name}"
    verb = "" if lock is None else f", as by `raymega stop {quote(str(lock.parent))}`"
    wish = Wish(who=who, ray=there, elsewhere=f"from another process{verb}")
    with OF_THIS_PROCESS.shared(wish, connect=partial(_connect, who=who, there=there)):
        yield


def _named_by(lock: Path) -> RayAt | None:
    owner = read_owner(lock)
    if owner is not None and owner.ray is not None:
        return owner.ray
    access = access_to(lock, homes=_homes())
    return None if access is None else RayAt(address=access.address)


def _homes() -> Iterator[Path]:
    return temp_root().glob(f"{PREFIX}*")


@signals_left_alone()
def _connect(stack: ExitStack, *, who: str, there: RayAt | None) -> None:
    """Connect to `there`, by what way there is."""
    access = None if there is None else access_at(there.address, homes=_homes())
    if access is not None:
        _show_token(stack, access)
    whys = []
    for address in _ways(there, is_local=access is not None):
        why = _join(stack, address, there=there)
        if not why:
            return
        whys.append(why)
    if there is None:
        why = whys[0] if whys else "no Ray is known in which that run could live"
        raise ClusterError(f"{why}. Set RAY_ADDRESS to its cluster.")
    raise RayGone(
        f"{who} lives in the Ray at {there.address}, which is not reached: {'; '.join(whys)}. If that Ray is gone, the "
        "run is over once its lock has lapsed, within seconds, and goes on when it is started again."
    )


def _ways(there: RayAt | None, *, is_local: bool) -> tuple[str, ...]:
    """Addresses to be tried, in order."""
    own = () if there is None else (there.address,)
    named = os.environ.get("RAY_ADDRESS", "local")
    if is_local or named == "local":
        return own
    return tuple(dict.fromkeys((named, *own) if "://" in named else (*own, named)))


def _join(stack: ExitStack, address: str, *, there: RayAt | None) -> str:
    """Connect to the Ray at `address` if it is the one; else why it is not."""
    if why := _why_dead(address, there=there):
        return why
    with ExitStack() as undo:
        undo.callback(shut_down)
        try:
            ray.init(address, namespace=NAMESPACE, log_to_driver=False, configure_logging=False)
        except ConnectionError as error:
            return f"no Ray answers at {address}: {error}"
        here = ray_here()
        if there is None or (here is not None and here.is_same(there)):
            stack.callback(_leave, here)
            undo.pop_all()
            return ""
    return f"at {address} is another Ray"


def _why_dead(address: str, *, there: RayAt | None) -> str:
    """Why no Ray can be met at `address`. Raises: ClusterError, where that is the only one to be asked."""
    if there is not None and address == there.address:
        return why_dead(address, name=address)
    try:
        refuse_dead(address)
    except ClusterError as error:
        if there is None:
            raise
        return error.message
    return ""


def _leave(ours: RayAt | None) -> None:
    """End the connection, unless somebody has ended it meanwhile and made one of their own."""
    if ray_here() == ours:
        shut_down()


def _show_token(stack: ExitStack, access: Access) -> None:
    """Show the token of that Ray, for as long as it is spoken with."""
    before = {variable: os.environ.get(variable) for variable in (MODE_VARIABLE, TOKEN_VARIABLE)}
    stack.callback(_restore, before)
    access.take()
    apply_auth()


def _restore(before: dict[str, str | None]) -> None:
    for variable, value in before.items():
        if value is None:
            os.environ.pop(variable, None)
        else:
            os.environ[variable] = value
    apply_auth()
