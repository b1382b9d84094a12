from dataclasses import replace

import pytest

from raymega.errors import ConfigError
from raymega.plan.calibration import REACHED, Calibration, calibration_from, fitted, is_calibration
from raymega.plan.fitted import Constants

CLUSTER = {
    "nodes": 2, "devices": 4,
    "device": {"name": "core", "memory_bytes": 4e9, "memory_bytes_per_s": 5e9, "flops_per_s": {"fp32": 2e10}},
    "links": {"device": {"latency_s": 1e-4, "bytes_per_s": 5e8}},
}  # fmt: skip
MADE = Calibration(fingerprint="3f9c", hardware="a core", measured="2026-11-29", cluster=CLUSTER)


def test_a_calibration_reads_back_as_a_cluster_whose_rates_are_reached() -> None:
    cluster, constants = calibration_from(MADE.to_data())
    assert (cluster.devices, cluster.links.device.bytes_per_s) == (8, 5e8)
    assert constants == REACHED


def test_a_plain_cluster_is_no_calibration() -> None:
    assert is_calibration(MADE.to_data())
    assert not is_calibration(CLUSTER)


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"constants": {"matmul_share": -1.0}}, "constants.matmul_share is -1.0"),
        ({"constants": {"matmul_share": float("nan")}}, "constants.matmul_share is nan"),
        ({"constants": {"step_s": float("inf")}}, "constants.step_s is inf"),
        ({"constants": {"luck": 2}}, "numbers for exposed_share"),
        ({"colour": "red"}, "Make it anew"),
        ({"cluster": {**CLUSTER, "devices": 0}}, "at least one device"),
        ({"cluster": {**CLUSTER, "links": {"device": {"bytes_per_s": -1.0}}}}, "hardware has a positive one"),
    ],
)
def test_a_calibration_that_is_wrong_is_refused(changes: dict[str, object], says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        calibration_from(MADE.to_data() | changes)


def test_constants_are_found_again_from_what_they_predict() -> None:
    true = replace(REACHED, matmul_share=0.37, pass_s=0.004)

    def predict_s(constants: Constants) -> list[float]:
        return [work / constants.matmul_share + passes * constants.pass_s for work, passes in ((0.1, 8), (0.4, 16))]

    found = fitted(REACHED, names=("matmul_share", "pass_s"), measured_s=predict_s(true), predict_s=predict_s)
    assert found.matmul_share == pytest.approx(0.37, rel=0.02)
    assert found.pass_s == pytest.approx(0.004, rel=0.1)
