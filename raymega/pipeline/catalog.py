"""Schedules by the name that a config calls them by.

    name          file                       alive on stage s of p            bubble share
    gpipe         schedule_gpipe.py          m                                (p - 1) / (m + p - 1)
    1f1b          schedule_1f1b.py           p - s                            (p - 1) / (m + p - 1)
    interleaved   schedule_interleaved.py    2 (p - s - 1) + (v - 1) p + 1    (p - 1) / (v m + p - 1)

for m micro-batches and v chunks a stage, where all stages take as long. A schedule is two functions: the program of a
stage, and the bound on its activations that `check` holds it to.
"""

from dataclasses import dataclass
from typing import Protocol

from raymega.errors import ConfigError
from raymega.pipeline.actions import Program
from raymega.pipeline.schedule_1f1b import one_f_one_b, one_f_one_b_in_flight
from raymega.pipeline.schedule_gpipe import gpipe, gpipe_in_flight
from raymega.pipeline.schedule_interleaved import interleaved, interleaved_in_flight


class ScheduleFn(Protocol):
    """The program of one stage of one replica for the micro-batches routed through it, ascending."""

    def __call__(self, *, stage: int, num_stages: int, microbatches: tuple[int, ...], chunks: int = 1) -> Program: ...


class InFlightFn(Protocol):
    """The most activations alive on a stage that has so many micro-batches."""

    def __call__(self, *, stage: int, num_stages: int, num_microbatches: int, chunks: int = 1) -> int: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Schedule:
    """One row of the catalog.

    Args:
        receives_ahead: receives that must be posted ahead where sends block (see `rendezvous`); None: all of the step.
    """

    name: str
    program: ScheduleFn
    in_flight: InFlightFn
    receives_ahead: int | None = 1


_CATALOG = (
    Schedule(name="gpipe", program=gpipe, in_flight=gpipe_in_flight),
    Schedule(name="1f1b", program=one_f_one_b, in_flight=one_f_one_b_in_flight),
    Schedule(name="interleaved", program=interleaved, in_flight=interleaved_in_flight, receives_ahead=None),
)


def schedule_names() -> tuple[str, ...]:
    """The names that `schedule` knows."""
    return tuple(row.name for row in _CATALOG)


def schedule(name: str) -> Schedule:
    """Look up a schedule.

    Raises: ConfigError naming the known ones.
    """
    for row in _CATALOG:
        if row.name == name:
            return row
    known = ", ".join(schedule_names())
    raise ConfigError(f"There is no schedule {name!r}. Known are {known}. Set parallelism.schedule.", schedule=name)
