"""State that one worker alone holds outlives it, and its node, in the memory of a peer."""

from pathlib import Path

import pytest

from raymega.driver.records.json_lines import read_lines
from tests.programs import told_by


@pytest.mark.ray
@pytest.mark.soak
@pytest.mark.timeout(400)
def test_the_only_holders_of_stages_are_lost_and_a_step_at_most_is_done_again(tmp_path: Path):
    slow_start = {"RAY_raylet_start_wait_time_s": "120"}
    told, _ = told_by("tests.end_to_end.only_holders", tmp_path, limit_s=380.0, env=slow_start)
    print(told)
    assert all(told[loss]["again"] <= 1 for loss in ("killed", "node")), told
    assert told["ended"][0] == 0
    calm, lost = (list(read_lines(tmp_path / name / "metrics.jsonl")) for name in ("calm", "lost"))
    assert [line["step"] for line in lost] == [line["step"] for line in calm]
    for kind in ("loss", "grad_norm"):
        assert [line[kind] for line in lost] == pytest.approx([line[kind] for line in calm], rel=1e-5)
    end = list(read_lines(tmp_path / "lost" / "events.jsonl"))[-1]
    assert end["steps_lost"] == told["killed"]["again"] + told["node"]["again"]
