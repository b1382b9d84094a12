"""A schedule of one's own, from a table of actions: a row a stage, a cell an action, empty cells for idle time.

    0F0,0F1,0F2,   ,0B0,0B1,0B2          stage 0
       ,1F0,1B0,1F1,1B1,1F2,1B2          stage 1

Stages in a cell are virtual; what stands in a row lives on that row's stage. A backward is B, or I and W as two cells;
where some are in two parts all are run so, a whole one as I and W right after each other. Micro-batches count those of
one replica, from 0. The compute-only tables of torch.distributed.pipelining are such files.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache

from raymega.config.fault import counted
from raymega.errors import ConfigError
from raymega.pipeline.actions import SPLIT, WHOLE, Action, Kind, Program, alive_after, parse, work_of_step
from raymega.pipeline.check import faults
from raymega.pipeline.placing import virtual_stages_on

Rows = tuple[str, ...]
"""The program of each stage of one replica, as `show_program` prints it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """A checked table."""

    programs: tuple[Program, ...]
    chunks: int
    folds: bool
    splits: bool

    @property
    def num_microbatches(self) -> int:
        return 1 + max(action.microbatch for program in self.programs for action in program)

    def program(self, stage: int, *, microbatches: tuple[int, ...]) -> Program:
        """The row of `stage`, for as many micro-batches as the table is of, or none."""
        if not microbatches:
            return ()
        if len(microbatches) != self.num_microbatches:
            raise ConfigError(
                f"The schedule's table is of {counted(self.num_microbatches, noun='micro-batch')} a replica; here are "
                f"{len(microbatches)}. Set batch_size, or the table, so that every replica has as many.",
                microbatches=len(microbatches),
            )
        return tuple(Action(a.stage, a.kind, microbatches[a.microbatch]) for a in self.programs[stage])

    def in_flight(self, stage: int) -> int:
        return max(alive_after(self.programs[stage]), default=0)


@cache
def read_table(rows: Rows, *, name: str) -> Table:
    """Read and check a table.

    Args:
        name: the file's, for complaints.
    Raises:
        ConfigError: naming the cell that is no action, or every fault of the programs.
    """
    programs = tuple(_program(row, where=f"{name}, row {number}") for number, row in enumerate(rows, start=1))
    if not any(programs):
        raise ConfigError(f"{name} has no actions. Write a row a stage: 0F0,0F1,0B0,0B1.", file=name)
    splits = any(action.kind in (Kind.I, Kind.W) for program in programs for action in program)
    if splits:
        programs = tuple(tuple(_in_parts(program)) for program in programs)
    chunks, folds = _placing(programs, name=name)
    table = Table(programs=programs, chunks=chunks, folds=folds, splits=splits)
    found = _faults(table)
    if found:
        raise ConfigError(f"{name} is no schedule of a step: {'; '.join(found)}. Mend the table.", faults=found)
    return table


def _program(row: str, *, where: str) -> Program:
    cells = [cell.strip() for cell in row.replace(",", " ").split(" ")]
    try:
        return tuple(parse(cell) for cell in cells if cell)
    except ConfigError as error:
        raise ConfigError(f"{where}: {error}", row=row) from error


def _in_parts(program: Program) -> Iterable[Action]:
    for action in program:
        kinds = (Kind.I, Kind.W) if action.kind is Kind.B else (action.kind,)
        yield from (Action(action.stage, kind, action.microbatch) for kind in kinds)


def _placing(programs: tuple[Program, ...], *, name: str) -> tuple[int, bool]:
    """Chunks a stage, and whether they fold. Raises: ConfigError if the rows are neither."""
    held = [tuple(sorted({action.stage for action in program})) for program in programs]
    chunks = max(map(len, held))
    for folds in (False, True):
        wanted = [
            virtual_stages_on(stage, num_stages=len(held), chunks=chunks, folds=folds) for stage in range(len(held))
        ]
        if held == wanted:
            return chunks, folds
    told = "; ".join(f"row {number} has {list(stages)}" for number, stages in enumerate(held, start=1))
    raise ConfigError(
        f"{name}: {told}. Virtual stage v stands in row v modulo {len(held)}, or, folded to a V, in that row counted "
        "from the other end in every second round.",
        file=name,
    )


def _faults(table: Table) -> tuple[str, ...]:
    programs = {f"row {number}": program for number, program in enumerate(table.programs, start=1)}
    num_stages = len(programs) * table.chunks
    work = work_of_step(
        num_stages=num_stages, num_microbatches=table.num_microbatches, kinds=SPLIT if table.splits else WHOLE
    )
    return faults(programs, num_stages=num_stages, work=work, receives_ahead=None)
