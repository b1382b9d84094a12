"""Steps to rows: the pure function that Ray Data maps over the numbers of steps, and how its rows travel.

    steps  [40 41] --order--> positions [40*B .. 42*B) --order--> (source, row) --shards--> a table, one row a sample

    column   type                             sample
    step     int64                            which step it belongs to
    sample   int64                            its position in the endless order, or NO_ROW where it fills up a batch
    ids      fixed_size_list<int32>[T + 1]    inputs ids[:-1], targets ids[1:]
    mask     fixed_size_binary[T / 8]         bit j: target j is trained

A fetch is a plain value and holds no open file: any process can carry it out, and a lost one takes nothing with it.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from raymega.config.fault import counted
from raymega.data.pack import PackedRows
from raymega.data.token_file import TokenSplit, columns_of, mask_bits, pack_mask, unpack_mask
from raymega.errors import RaymegaBug
from raymega.layout.data_order import NO_ROW, BlendOrder, ValidOrder, step_positions

Int64s = NDArray[np.int64]
Block = dict[str, Int64s]  # {"first": [1], "stop": [1]}: the range [first, stop)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class HostBatch:
    """All samples of one step.

    Args:
        step: index of the step from 0, or of the batch in an evaluation.
        samples: [B] int64, positions in the run's endless order; NO_ROW (-1) fills up an evaluation's last batch.
        ids: [B, seq_len + 1] int32; inputs are ids[:, :-1], targets ids[:, 1:].
        mask: [B, seq_len] bool, True where the target is trained; None: all are.
        trained_tokens: how many targets are trained.
    """

    step: int
    samples: Int64s
    ids: NDArray[np.int32]
    mask: NDArray[np.bool_] | None
    trained_tokens: int


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class TrainFetch:
    """Fetches whole training steps of `batch_size` samples from a blend of splits."""

    order: BlendOrder
    splits: tuple[TokenSplit, ...]
    batch_size: int

    @property
    def seq_len(self) -> int:
        return self.splits[0].seq_len

    def block(self, steps: Block) -> pa.Table:
        """The samples of one range of steps."""
        return self.table(np.arange(steps["first"][0], steps["stop"][0]))

    def table(self, steps: Int64s) -> pa.Table:
        """The samples of `steps`, in order."""
        positions = np.concatenate([step_positions(int(step), batch_size=self.batch_size) for step in steps])
        placed = self.order.rows_of(positions)
        ids = np.empty((len(positions), self.seq_len + 1), dtype=np.int32)
        mask = np.empty((len(positions), self.seq_len), dtype=np.bool_)
        for number, split in enumerate(self.splits):
            chosen = placed.source == number
            rows = split.gather(placed.row[chosen])
            ids[chosen], mask[chosen] = rows.ids, rows.mask
        return _table(np.repeat(steps, self.batch_size), positions, rows=PackedRows(ids=ids, mask=mask))


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ValidFetch:
    """Fetches the batches of an evaluation; rows that fill up the last one have id 0 and train nothing."""

    order: ValidOrder
    split: TokenSplit

    @property
    def batch_size(self) -> int:
        return self.order.batch_size

    def table(self, batches: Int64s) -> pa.Table:
        """The samples of `batches`, in order."""
        rows = np.concatenate([self.order.positions(int(batch)) for batch in batches])
        real = rows != NO_ROW
        ids = np.zeros((len(rows), self.split.seq_len + 1), dtype=np.int32)
        mask = np.zeros((len(rows), self.split.seq_len), dtype=np.bool_)
        gathered = self.split.gather(rows[real])
        ids[real], mask[real] = gathered.ids, gathered.mask
        return _table(np.repeat(batches, self.order.batch_size), rows, rows=PackedRows(ids=ids, mask=mask))


def batches_of(table: pa.Table, *, batch_size: int) -> Iterator[HostBatch]:
    """The steps in a table that a fetch made; arrays are copies, so that the table's memory can go."""
    if table.num_rows % batch_size:
        raise RaymegaBug(
            f"{counted(table.num_rows, noun='row')} came for steps of {batch_size}; a step is never short."
        )
    columns = columns_of(table)
    steps = columns["step"].to_numpy().reshape(-1, batch_size)
    samples = columns["sample"].to_numpy().reshape(-1, batch_size)
    ids = columns["ids"].flatten().to_numpy().reshape(len(steps), batch_size, -1)
    seq_len = ids.shape[2] - 1
    masks = unpack_mask(mask_bits(columns["mask"]), seq_len=seq_len).reshape(len(steps), batch_size, seq_len)
    for step, sample, row, mask in zip(steps, samples, ids, masks, strict=True):
        if (step != step[0]).any():
            raise RaymegaBug(f"rows of steps {step.min()} to {step.max()} came as one batch; a batch is one step.")
        trained = int(mask.sum())
        yield HostBatch(
            step=int(step[0]),
            samples=sample.copy(),
            ids=row.copy(),
            mask=None if trained == mask.size else mask.copy(),
            trained_tokens=trained,
        )


def _table(steps: Int64s, samples: Int64s, *, rows: PackedRows) -> pa.Table:
    ids = pa.FixedSizeListArray.from_arrays(pa.array(rows.ids.reshape(-1)), rows.ids.shape[1])
    return pa.table({"step": pa.array(steps), "sample": pa.array(samples), "ids": ids, "mask": pack_mask(rows.mask)})
