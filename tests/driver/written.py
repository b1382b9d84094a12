"""Lines as a run writes them, with what a test wants in them."""

import json
from typing import Any

STEP: dict[str, Any] = {
    "step": 1, "loss": 6.5, "grad_norm": 1.0, "lr": 1e-3, "tokens": 300, "tokens_total": 300, "first_sample": 0,
    "samples": 8, "step_s": 0.5, "tokens_per_s": 600.0, "mesh": "dp=2 tp=1 pp=2", "generation": 7, "skipped": False,
    "loss_scale": 1.0, "t": 1.0,
}  # fmt: skip
EVENT: dict[str, Any] = {
    "t": 1.0, "seq": 1, "generation": 7, "step": 1, "event": "WorkersReady", "state": "Training", "commands": [],
    "reason": "",
}  # fmt: skip


def written(*lines: dict[str, Any]) -> str:
    return "".join(json.dumps(line) + "\n" for line in lines)


def steps(*facts: dict[str, Any]) -> str:
    """Lines of metrics."""
    return written(*(STEP | line for line in facts))


def events(*facts: dict[str, Any]) -> str:
    """Lines of events."""
    return written(*(EVENT | line for line in facts))
