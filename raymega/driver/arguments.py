"""What people give to the verbs of a live run, as plain numbers; what is none is refused before anything is sent.

    np.int64(3)   3.0   a number out of pandas     3
    0, -1, 1.5, nan, "3", None                     refused, with what is wanted

A controller writes down all that it is asked: what JSON cannot hold would end it, or its journal could be read no more.
"""

import reprlib
from math import inf, nan
from numbers import Integral, Real

from raymega.errors import ConfigError

MOST = 10**18
MOST_S = 1e9


def whole(value: object, *, name: str, least: int = 1) -> int:
    """A whole number from `least`. Raises: ConfigError."""
    found = int(value) if isinstance(value, Integral) else _real(value)
    if least <= found < MOST and found == int(found):
        return int(found)
    raise _unlike(value, name=name, wanted=f"a whole number from {least}")


def whole_or_none(value: object, *, name: str, least: int = 1) -> int | None:
    """The same, where nothing need be said."""
    return None if value is None else whole(value, name=name, least=least)


def seconds(value: object, *, name: str) -> float:
    """So many seconds from now. Raises: ConfigError."""
    found = _real(value)
    if 0 <= found <= MOST_S:
        return found
    raise _unlike(value, name=name, wanted=f"seconds from 0 to {MOST_S:g}")


def rate(value: object, *, name: str) -> float:
    """A rate to train with. Raises: ConfigError."""
    found = _real(value)
    if 0 < found < inf:
        return found
    raise _unlike(value, name=name, wanted="a number above 0")


def _real(value: object) -> float:
    """A number as Python's own; nan for what is none, or too large for one."""
    try:
        return float(value) if isinstance(value, Real) else nan
    except OverflowError:
        return nan


def _unlike(value: object, *, name: str, wanted: str) -> ConfigError:
    return ConfigError(f"{name}={reprlib.repr(value)} found; {wanted} is wanted.")
