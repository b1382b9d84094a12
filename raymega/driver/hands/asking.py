"""What people ask of a run, until the brain has answered it.

    client -- ask(wish) --> Controller -> Desk: request 7 -> DrainAsked(request=7, ..) -> brain
           <-- Answer -----            <- Desk: request 7 <- Answer(request=7, ..) ------

Everything that is asked for is answered once: what nobody can answer any more is refused with the end of the run.
"""

import threading
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import replace
from itertools import count

from raymega.control.commands import Answer
from raymega.control.events import (
    CheckpointAsked,
    DisturbAsked,
    DrainAsked,
    PauseAsked,
    ResizeAsked,
    ResumeAsked,
    RewindAsked,
    SetAsked,
)

Wish = ResizeAsked | DrainAsked | PauseAsked | ResumeAsked | SetAsked | CheckpointAsked | RewindAsked | DisturbAsked
OVER = "the run is over"


class Desk:
    """Gives each wish its number, and each asker the answer; from any thread.

    Args:
        first: number of the first wish; no other controller of the run has given it.
    """

    def __init__(self, tell: Callable[[Wish], None], *, first: int = 1) -> None:
        self._tell, self._numbers = tell, count(first)
        self._waiting: dict[int, Future[Answer]] = {}
        self._lock, self._is_closed = threading.Lock(), False

    def ask(self, wish: Wish) -> Future[Answer]:
        """Put `wish`, whose number is none of the asker's business, before the brain."""
        with self._lock:
            number, answered = next(self._numbers), Future[Answer]()
            if self._is_closed:
                answered.set_result(Answer(request=number, accepted=False, reason=OVER))
                return answered
            self._waiting[number] = answered
        self._tell(replace(wish, request=number))
        return answered

    def answer(self, answer: Answer) -> None:
        """Pass the brain's answer on; one to a question of an earlier controller has nobody waiting."""
        with self._lock:
            waiting = self._waiting.pop(answer.request, None)
        if waiting is not None:
            waiting.set_result(answer)

    def close(self) -> None:
        """Refuse all that was not answered."""
        with self._lock:
            self._is_closed, waiting = True, tuple(self._waiting)
        for number in waiting:
            self.answer(Answer(request=number, accepted=False, reason=OVER))
