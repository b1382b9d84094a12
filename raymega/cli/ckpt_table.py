"""Checkpoints as a table for people, and as data for programs."""

from collections.abc import Iterable
from dataclasses import asdict
from typing import Any

from raymega.checkpoint.verify import CheckpointRow
from raymega.config.fault import counted


def table(rows: Iterable[CheckpointRow]) -> str:
    """One line a checkpoint, and one for each of its faults."""
    lines: list[str] = []
    for row in rows:
        step = f"step-{row.step}" if row.step is not None else row.place
        samples = counted(row.samples, noun="sample") if row.samples is not None else ""
        size = f"{row.size_bytes / 1e6:,.1f} MB" if row.size_bytes is not None else ""
        state = f"  state {row.state}" if row.state is not None else ""
        lines.append(f"{step:<14}{row.standing:<13}{samples:>20}{size:>14}{state}".rstrip())
        lines.extend(f"    {fault}" for fault in row.faults)
    return "\n".join(lines) or "no checkpoints"


def read_in_full(rows: Iterable[CheckpointRow]) -> str:
    """The table, and what a full read has shown of those that are whole."""
    rows = tuple(rows)
    whole = [row for row in rows if row.standing == "complete"]
    if not whole:
        return table(rows)
    size = f"{sum(row.size_bytes or 0 for row in whole) / 1e6:,.1f} MB"
    read = f"every byte of {counted(len(whole), noun='complete checkpoint')} was read"
    return f"{table(rows)}\n{read} ({size}) and agrees with its checksum"


def data(rows: Iterable[CheckpointRow]) -> list[dict[str, Any]]:
    """One object a checkpoint."""
    return [asdict(row) for row in rows]
