"""`run.metrics()`: a run's steps as a table, before the first of them too.

step  loss    grad_norm  lr  ..  val_loss
1     7.6123  1.2        ..      null        not evaluated
2     null    null       ..      6.5021      not finite
"""

from dataclasses import fields

import pyarrow as pa

from raymega.driver.records.json_lines import read_lines
from raymega.driver.records.run_dir import RunDirectory
from raymega.metrics import StepRecord


def metrics_of(run: RunDirectory) -> pa.Table:
    """One row a committed step, a column for whatever is known of some."""
    rows = list(read_lines(run.metrics))
    names = dict.fromkeys([*(known.name for known in fields(StepRecord)), *(name for row in rows for name in row)])
    return pa.table({name: [row.get(name) for row in rows] for name in names})
