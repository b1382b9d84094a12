"""A run as its owner hears of it: turn by turn, over any way to ask for its news."""

import time
from collections.abc import Callable

from raymega.control.events import StepCommitted
from raymega.control.loop import Turn
from raymega.driver.news import Ended, News
from tests.waiting import LIMIT_S


class Following:
    """Asks for news until something is so. `news`: what there is after a turn, waiting a while for it."""

    def __init__(self, news: Callable[[int], News], *, saw: Callable[[Turn], None] = lambda turn: None) -> None:
        self._news, self._saw = news, saw
        self.turns: list[Turn] = []
        self.ended: Ended | None = None
        self._num_looked_at = 0

    def until(self, done: Callable[[Turn], bool], *, limit_s: float = LIMIT_S) -> Turn:
        """The first turn for which `done` holds, of those that no call has looked at."""
        limit = time.monotonic() + limit_s
        while time.monotonic() < limit:
            while self._num_looked_at < len(self.turns):
                turn = self.turns[self._num_looked_at]
                self._num_looked_at += 1
                if done(turn):
                    return turn
            assert self.ended is None, self.ended
            self.more()
        raise AssertionError(f"nothing of the kind within {limit_s} s; {self._last()}")

    def until_step(self, step: int) -> Turn:
        return self.until(lambda turn: isinstance(turn.event, StepCommitted) and turn.event.step >= step)

    def end(self, *, limit_s: float = LIMIT_S) -> Ended:
        limit = time.monotonic() + limit_s
        while self.ended is None and time.monotonic() < limit:
            self.more()
        assert self.ended is not None, f"not over within {limit_s} s; {self._last()}"
        return self.ended

    def more(self) -> None:
        news = self._news(self.turns[-1].seq if self.turns else 0)
        for turn in news.turns:
            self._saw(turn)
        self.turns += news.turns
        self.ended = news.ended

    def _last(self) -> str:
        told = [f"{type(turn.event).__name__} {turn.decision.reason}".strip() for turn in self.turns[-5:]]
        return f"the last of {len(self.turns)} turns: {', '.join(told)}"

    def of(self, kind: type) -> list[Turn]:
        return [turn for turn in self.turns if isinstance(turn.event, kind)]
