"""`run.metrics()`: a run's steps as a table, before the first of them too.

step  loss    grad_norm  lr  ..  val_loss
1     7.6123  1.2        ..      null        not evaluated
2     null    null       ..      6.5021      not finite
"""

from dataclasses import fields
from pathlib import Path
from typing import Any

import pyarrow as pa

from raymega.driver.records.json_lines import read_lines
from raymega.driver.records.run_dir import RunDirectory
from raymega.errors import StateError
from raymega.metrics import StepRecord


def metrics_of(run: RunDirectory) -> pa.Table:
    """One row a committed step, a column for whatever is known of some."""
    rows = list(read_lines(run.metrics))
    names = dict.fromkeys([*(known.name for known in fields(StepRecord)), *(name for row in rows for name in row)])
    return pa.table({name: _column(name, [row.get(name) for row in rows], file=run.metrics) for name in names})


def _column(name: str, values: list[Any], *, file: Path) -> pa.Array:  # Any: JSON
    try:
        return pa.array(values)
    except (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError) as error:
        raise StateError(
            f'{file}: the values of "{name}" are not of one kind ({error}): a line is damaged, or of another version '
            "of raymega. Put it back as it was, or take it out"
        ) from error
