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
        with suppress(OSError, json.JSONDecodeError):  # it has just gone, is being written, or is not ours to read
            data = json.loads((home / FILE).read_text())
            yield Access(**{**data, "locks": tuple(data["locks"])})
