"""A cell that trains in the foreground is interrupted in a real kernel; the next cell has all that it held."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from jupyter_client.manager import KernelManager, start_new_kernel

from raymega.driver.records.json_lines import read_lines
from tests.waiting import eventually

LIMIT_S = 250
TINY = (
    'import raymega; raymega.launch("nano", run={{"name": "{name}", "device": "cpu"}}, log={{"every_steps": 1000}}, '
    'model={{"hidden_size": 48}}, parallelism={{"pipeline_model_parallel_size": 1}}, training={{"steps": {steps}}})'
)


def reply(client: Any, asked: str, *, limit_s: float) -> dict[str, Any]:
    """What became of a cell."""
    while (told := client.get_shell_msg(timeout=limit_s))["parent_header"].get("msg_id") != asked:
        pass
    return told["content"]


@pytest.fixture
def kernel(tmp_path: Path) -> Iterator[tuple[KernelManager, Any]]:
    manager, client = start_new_kernel(cwd=str(tmp_path))
    yield manager, client
    client.stop_channels()
    manager.shutdown_kernel(now=True)


@pytest.mark.ray
@pytest.mark.soak
@pytest.mark.timeout(600)
@pytest.mark.filterwarnings("default")  # of kernels and their sockets
def test_an_interrupted_cell_saves_its_run_and_leaves_the_machine_to_the_next(kernel, tmp_path: Path):
    manager, client = kernel
    asked, run = client.execute(TINY.format(name="first", steps=100_000)), tmp_path / "runs" / "first"
    eventually(lambda: len(list(read_lines(run / "metrics.jsonl"))) >= 3, limit_s=LIMIT_S, look_s=0.2)
    manager.interrupt_kernel()
    assert reply(client, asked, limit_s=60)["ename"] == "KeyboardInterrupt"
    steps = len(list(read_lines(run / "metrics.jsonl")))
    assert (run / "checkpoints" / f"step-{steps}" / "manifest.json").exists()
    assert not (run / "LOCK").exists()
    again = client.execute(TINY.format(name="second", steps=3))
    assert reply(client, again, limit_s=LIMIT_S)["status"] == "ok"
    assert len(list(read_lines(tmp_path / "runs" / "second" / "metrics.jsonl"))) == 3
