"""Schedules by the name that a config calls them by.

    name          file                       alive on stage s of p            bubble share
    gpipe         schedule_gpipe.py          m                                (p - 1) / (m + p - 1)
    1f1b          schedule_1f1b.py           p - s                            (p - 1) / (m + p - 1)
    interleaved   schedule_interleaved.py    2 (p - s - 1) + (v - 1) p + 1    (p - 1) / (v m + p - 1)
    zb-h1         schedule_zero_bubble.py    p                                (p - 1) / (3 m + p - 1)
    zb-h2         the same                   2 p - 1                          the same, until all stages decide together
    zb-v          schedule_zb_v.py           2 p                              (p - 1) / (6 m + p - 1)
    FILE.csv      schedule_file.py           as its table has it

for m micro-batches and v chunks a stage, where all stages and, in zb, all three passes take as long. A schedule is two
functions: the program of a stage, and the bound on its activations that `check` holds it to.
"""

from dataclasses import dataclass
from functools import partial
from typing import Protocol

from raymega.errors import ConfigError
from raymega.pipeline.actions import SPLIT, WHOLE, Kind, Program
from raymega.pipeline.schedule_1f1b import one_f_one_b, one_f_one_b_in_flight
from raymega.pipeline.schedule_file import Rows, Table, read_table
from raymega.pipeline.schedule_gpipe import gpipe, gpipe_in_flight
from raymega.pipeline.schedule_interleaved import interleaved, interleaved_in_flight
from raymega.pipeline.schedule_zb_v import zb_v, zb_v_in_flight
from raymega.pipeline.schedule_zero_bubble import zb_h1, zb_h1_in_flight, zb_h2, zb_h2_in_flight


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
        splits: backwards run in two parts.
        folds: virtual stages lie on the stages as a V (see `placing`).
        chunks: the only number of chunks a stage that it runs; None: any.
    """

    name: str
    program: ScheduleFn
    in_flight: InFlightFn
    receives_ahead: int | None = 1
    splits: bool = False
    folds: bool = False
    chunks: int | None = None

    @property
    def kinds(self) -> tuple[Kind, ...]:
        return SPLIT if self.splits else WHOLE


_CATALOG = (
    Schedule(name="gpipe", program=gpipe, in_flight=gpipe_in_flight),
    Schedule(name="1f1b", program=one_f_one_b, in_flight=one_f_one_b_in_flight, chunks=1),
    Schedule(name="interleaved", program=interleaved, in_flight=interleaved_in_flight, receives_ahead=None),
    Schedule(name="zb-h1", program=zb_h1, in_flight=zb_h1_in_flight, splits=True, chunks=1),
    Schedule(name="zb-h2", program=zb_h2, in_flight=zb_h2_in_flight, receives_ahead=2, splits=True, chunks=1),
    Schedule(
        name="zb-v", program=zb_v, in_flight=zb_v_in_flight, receives_ahead=None, splits=True, folds=True, chunks=2
    ),
)


def schedule_names() -> tuple[str, ...]:
    """The names that `schedule` knows by itself."""
    return tuple(row.name for row in _CATALOG)


def schedule(name: str, *, rows: Rows = ()) -> Schedule:
    """Look up a schedule, or make one of a table.

    Args:
        rows: of the table, if `name` is the name of its file.
    Raises: ConfigError naming the known ones, or what is wrong with the table.
    """
    if rows:
        return _from_table(read_table(rows, name=name), name=name)
    for row in _CATALOG:
        if row.name == name:
            return row
    known = ", ".join(schedule_names())
    raise ConfigError(f"There is no schedule {name!r}. Known are {known}. Set parallelism.schedule.", schedule=name)


def _from_table(table: Table, *, name: str) -> Schedule:
    return Schedule(
        name=name,
        program=partial(_row_of, table),
        in_flight=partial(_alive_in_row, table),
        receives_ahead=None,
        splits=table.splits,
        folds=table.folds,
        chunks=table.chunks,
    )


def _row_of(table: Table, *, stage: int, num_stages: int, microbatches: tuple[int, ...], chunks: int = 1) -> Program:
    assert (num_stages, chunks) == (len(table.programs), table.chunks), "a plan has as many stages as its table"
    return table.program(stage, microbatches=microbatches)


def _alive_in_row(table: Table, *, stage: int, num_stages: int, num_microbatches: int, chunks: int = 1) -> int:
    return table.in_flight(stage)
