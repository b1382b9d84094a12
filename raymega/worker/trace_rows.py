"""A step as the stretches of a picture: actions and phases in one lane each, waits beside them.

compute         | 0F0 | 0F1 |      | 0B0 | ...                | apply |
communication               | wait |           | reduce | decide |
hidden                                  | sums |                           communication under compute
data        | batch |
"""

import time

from raymega.worker.interface import TraceRow
from raymega.worker.step import Done

_LANES = {"reduce": "communication", "decide": "communication", "apply": "compute", "gather": "communication"}


def trace_rows(done: Done, *, waited_from: float, waited_until: float) -> tuple[TraceRow, ...]:
    """Rows of a step; the arguments and the step's stretches are by `time.perf_counter`, rows by unix time."""
    offset_s = time.time() - time.perf_counter()
    stretches = [
        ("batch", waited_from, waited_until, "data"),
        *((str(action), began, end, "compute") for action, began, end in done.work.spans),
        *(("wait", began, end, "communication") for began, end in done.work.waits),
        *((name, began, end, _LANES[name]) for name, began, end in done.phases if name in _LANES),
        *(("sums", began, end, "hidden") for began, end in done.hidden),
    ]
    return tuple(
        TraceRow(name=name, start_s=began + offset_s, duration_s=end - began, lane=lane)
        for name, began, end, lane in stretches
    )
