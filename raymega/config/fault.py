"""One thing wrong with a config: where, which key, what is wrong and the rule, and the way out.

run.yaml:7: parallelism.tensor_model_parallel_size: 4 does not divide model.num_attention_heads 6. Use 1, 2 or 3.
~~~~~~~~~~  ~~~~~~~~~~~ key ~~~~~~~~~~~~~~~~~~~~~~  ~~~~ the values and the rule they break ~~~~~  ~~ way out ~~
"""

import difflib
from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where a value was written: a line of a file, or `--set`."""

    source: str
    line: int | None = None

    def __str__(self) -> str:
        return self.source if self.line is None else f"{self.source}:{self.line}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """What is wrong. `key` is the dotted key it is about; `place` is filled in by whoever knows the text."""

    key: str
    problem: str
    way_out: str
    place: Place | None = None

    def __str__(self) -> str:
        end = "" if self.way_out.endswith("?") else "."
        return ": ".join(str(part) for part in (self.place, self.key, f"{self.problem}. {self.way_out}{end}") if part)


def nearest(word: str, known: Iterable[str]) -> str | None:
    """The known word that `word` was most likely meant to be; capitals count only where nothing else tells.

    >>> nearest("trianing", ("training", "log")), nearest("DEMO", ("demo", "other")), nearest("x", ("demo",))
    ('training', 'demo', None)
    """
    words = list(known)
    folded = {word.casefold(): word for word in reversed(words)}
    close = difflib.get_close_matches(word, words, n=1, cutoff=0.6)
    alike = difflib.get_close_matches(word.casefold(), folded, n=1, cutoff=0.6)
    return next(iter([*close, *(folded[one] for one in alike)]), None)


def one_of(values: Iterable[object]) -> str:
    """Read out choices: `1, 2 or 3`."""
    *first, last = [str(value) for value in values]
    return f"{', '.join(first)} or {last}" if first else last


def at_most(largest: int) -> str:
    """Read out a bound of numbers from 1: `4 or less`, or `1`."""
    return f"{largest} or less" if largest > 1 else f"{largest}"


def counted(number: int, *, noun: str) -> str:
    """Read out a number of things: `1 micro-batch`, `8 micro-batches`, `2 recoveries`."""
    if number == 1:
        return f"{number:,} {noun}"
    if noun.endswith("y") and noun[-2] not in "aeiou":
        return f"{number:,} {noun[:-1]}ies"
    return f"{number:,} {noun}{'es' if noun.endswith(('ch', 'ss')) else 's'}"


def are(number: int) -> str:
    """What so many things do: `1 device is left`, `2 devices are left`."""
    return "is" if number == 1 else "are"


def were(number: int) -> str:
    """The same of what is past: `1 step was skipped`."""
    return "was" if number == 1 else "were"


def have(number: int) -> str:
    """The same of what they have: `1 copy has no place`."""
    return "has" if number == 1 else "have"


def does(number: int, *, verb: str) -> str:
    """The same of any regular verb: `1 worker stays`, `2 workers stay`."""
    return f"{verb}s" if number == 1 else verb
