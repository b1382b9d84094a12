import multiprocessing
from dataclasses import replace
from pathlib import Path

import pytest
import yaml
from typer.testing import CliRunner

from raymega.cli.app import app
from raymega.driver.measuring import MeasuredLink, fingerprint, measured_device, measured_link, measured_together
from raymega.driver.measuring_passes import Pace
from raymega.plan.calibration import REACHED, calibration_from


def test_a_device_is_measured_with_rates_that_it_can_have() -> None:
    found = measured_device(device="cpu", blocks=2)
    assert 1e8 < found.flops_per_s["fp32"] < 1e13
    assert 1e8 < found.memory_bytes_per_s < 1e12
    assert found.memory_bytes > 1e8


def test_two_processes_are_measured_and_leave_nothing() -> None:
    found = measured_link()
    assert 1e-7 < found.latency_s < 0.1
    assert 1e6 < found.bytes_per_s < 1e12
    assert multiprocessing.active_children() == []


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (("--out", "/nowhere/here.yaml"), "cannot be written"),
        (("--device", "tpu"), "what can be measured is cpu or cuda"),
    ],
)
def test_what_cannot_be_measured_or_kept_is_refused_at_once(options: tuple[str, ...], says: str) -> None:
    done = CliRunner().invoke(app, ["calibrate", *options])
    assert says in str(done.exception)


@pytest.mark.soak
def test_workers_that_compute_together_are_measured_and_leave_nothing() -> None:
    alone, beside = measured_device(device="cpu"), measured_together(2)
    assert 1e8 < beside.flops_per_s["fp32"] <= 1.1 * alone.flops_per_s["fp32"]
    assert multiprocessing.active_children() == []


def test_the_same_hardware_has_the_same_fingerprint() -> None:
    assert fingerprint("a core, 2 cores") == fingerprint("a core, 2 cores") != fingerprint("a core, 4 cores")


def test_what_is_measured_is_kept_for_the_planner(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("raymega.cli.calibrate.measured_link", lambda: MeasuredLink(latency_s=1e-4, bytes_per_s=5e8))
    monkeypatch.setattr("raymega.cli.calibrate.measured_together", lambda _: measured_device(device="cpu", blocks=2))
    pace = Pace(constants=replace(REACHED, matmul_share=0.9), alone=1.25)
    monkeypatch.setattr("raymega.cli.calibrate.measured_pace", lambda *_, workers: pace)
    file = tmp_path / "here.yaml"
    done = CliRunner().invoke(app, ["calibrate", "--out", str(file), "--nodes", "3", "--device", "cpu"])
    assert done.exit_code == 0, done.output
    assert "fingerprint" in done.output
    cluster, constants = calibration_from(yaml.safe_load(file.read_text()))
    assert (len(cluster.nodes), cluster.links.node.bytes_per_s) == (3, 5e8)
    assert (cluster.nodes[0].device.alone, constants) == (1.25, pace.constants)
