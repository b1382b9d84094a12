"""What a controller tells of its run: its turns until they were read, and how it ended."""

import threading
import time
from dataclasses import dataclass, field

from raymega.control.loop import Turn


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """How a run ended. `details`: what else is to be told of it; a traceback where a program is wrong."""

    exit_code: int
    reason: str
    details: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class News:
    """What has happened since the owner last asked. `memory_bytes`: of the worker that holds most."""

    turns: tuple[Turn, ...]
    ended: Ended | None
    t: float  # the controller's clock
    memory_bytes: int = 0


@dataclass(slots=True)
class Told:
    """The turns that are not read yet; a watcher of the loop."""

    turns: list[Turn] = field(default_factory=list)
    ended: Ended | None = None
    changed: threading.Condition = field(default_factory=threading.Condition)

    def saw(self, turn: Turn) -> None:
        with self.changed:
            self.turns.append(turn)
            self.changed.notify_all()

    def end(self, ended: Ended) -> None:
        with self.changed:
            self.ended = ended
            self.changed.notify_all()

    def since(self, seq: int, *, wait_s: float) -> News:
        with self.changed:
            self.turns = [turn for turn in self.turns if turn.seq > seq]
            self.changed.wait_for(lambda: bool(self.turns) or self.ended is not None, timeout=wait_s)
            return News(turns=tuple(self.turns), ended=self.ended, t=time.time())
