"""What a local Ray leaves in its directory so that another process of the same user can speak with it.

    <temp>/raymega-x7/access.json    address, mode, token, and the locks of the runs that it was started for

A local Ray has a token and an address of its own. The directory can be entered by its user only, and goes with it.
"""

import json
import os
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path

FILE = "access.json"
MODE_VARIABLE, TOKEN_VARIABLE = "RAY_AUTH_MODE", "RAY_AUTH_TOKEN"


@dataclass(frozen=True, slots=True, kw_only=True)
class Access:
    """The way into a local Ray.

    Args:
        locks: LOCK files of the runs that it was started for.
    """

    address: str
    mode: str
    token: str
    locks: tuple[str, ...]

    def leave_in(self, home: Path) -> None:
        """Write it down for those who may enter `home`."""
        handle = os.open(home / FILE, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600)
        with os.fdopen(handle, "w") as file:
            json.dump(asdict(self), file)

    def take(self) -> None:
        """Let this process show its token from now on."""
        os.environ[MODE_VARIABLE] = self.mode
        if self.token:
            os.environ[TOKEN_VARIABLE] = self.token


def access_to(lock: Path, *, homes: Iterable[Path]) -> Access | None:
    """The local Ray that was started for the run with this lock; None if there is none, or it is another user's."""
    return next((access for access in _left_in(homes) if str(lock) in access.locks), None)


def access_at(address: str, *, homes: Iterable[Path]) -> Access | None:
    """The local Ray of this user that answers there; None if there is none."""
    return next((access for access in _left_in(homes) if access.address == address), None)


def _left_in(homes: Iterable[Path]) -> Iterator[Access]:
    for home in homes:
        with suppress(OSError):  # it has just gone, or is not ours to read
            access = _access_in((home / FILE).read_bytes())
            if access is not None:
                yield access


def _access_in(text: bytes) -> Access | None:
    """What the text of a file says; None where it is being written, damaged, or of a version that says less."""
    try:
        told = dict(json.loads(text))
        locks = tuple(map(str, list(told["locks"])))
        return Access(address=str(told["address"]), mode=str(told["mode"]), token=str(told["token"]), locks=locks)
    except (ValueError, TypeError, KeyError, RecursionError):
        return None
