"""Files of lines are read from their end, a block at a time, whatever becomes of them meanwhile."""

import json
import os
from pathlib import Path

import pytest

from raymega.driver.records import json_lines
from raymega.driver.records.json_lines import newest_lines


@pytest.mark.parametrize("block_bytes", [1, 40, 2**16])
def test_the_newest_lines_come_first_whatever_is_read_at_once(tmp_path: Path, monkeypatch, block_bytes: int):
    monkeypatch.setattr(json_lines, "BLOCK_BYTES", block_bytes)
    file = tmp_path / "metrics.jsonl"
    lines = [{"step": step, **({"val_loss": 1.0} if step % 3 == 0 else {}), "x": "y" * step * 7} for step in range(9)]
    file.write_text("".join(json.dumps(line) + "\n" for line in lines) + '{"torn": "val_loss')
    assert list(newest_lines(file)) == lines[::-1]
    assert list(newest_lines(file, having="val_loss")) == [lines[6], lines[3], lines[0]]


def test_a_file_that_shrinks_while_it_is_read_ends_what_is_read_and_not_the_process(tmp_path: Path):
    file = tmp_path / "metrics.jsonl"
    file.write_text("".join(json.dumps({"step": step, "x": "y" * 4096}) + "\n" for step in range(100)))
    lines = newest_lines(file)
    assert next(lines)["step"] == 99
    os.truncate(file, 0)
    assert len(list(lines)) < 99
