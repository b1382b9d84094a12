"""Nodes go and come, and people ask for other sizes: a run loses no step over it, and none of its losses changes."""

from pathlib import Path

import pytest

from raymega.driver.records.json_lines import read_lines
from tests.programs import told_by

CHANGES = ("left", "grown", "smaller", "other", "drained")


@pytest.mark.ray
@pytest.mark.soak
@pytest.mark.timeout(600)
def test_a_walk_through_clusters_and_sizes_equals_the_run_that_never_moved(tmp_path: Path):
    told, _ = told_by("tests.end_to_end.walk", tmp_path, limit_s=580.0)
    print({change: told[change] for change in CHANGES})
    assert told["left"]["t"] - told["notice_t"] < 20.0, "the spot node is left long before its deadline"
    assert told["drained"]["t"] - told["drain_t"] < 10.0
    assert told["resize"][0] == 0, told
    assert "64 devices are more than the 4 that are there" in told["refused"]
    assert "a pause of " in told["said"]
    assert told["ended"][0] == 0
    calm, walked = (list(read_lines(tmp_path / name / "metrics.jsonl")) for name in ("calm", "walk"))
    assert [line["step"] for line in walked] == [line["step"] for line in calm]
    for kind in ("loss", "grad_norm"):
        assert [line[kind] for line in walked] == pytest.approx([line[kind] for line in calm], rel=1e-5)
    assert list(read_lines(tmp_path / "walk" / "events.jsonl"))[-1]["steps_lost"] == 0
