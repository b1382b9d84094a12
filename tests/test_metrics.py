"""The console's line, and that no percentage is guessed."""

from dataclasses import replace

import pytest

from raymega.metrics import Gauges, StepRecord, device_peak, flops_per_s, step_line

RECORD = StepRecord(
    step=10, loss=7.12344, grad_norm=1.23451, lr=1e-3, tokens=4096, tokens_total=40960, first_sample=288,
    samples=32, step_s=2.311, tokens_per_s=1772.4, mesh="dp=2 tp=1 pp=2", generation=1_000_001, skipped=False,
    loss_scale=1.0, t=0.0,
)  # fmt: skip
GAUGES = Gauges(
    flops_per_s=0.1301e12, peak_flops_per_s=989e12, memory_bytes=int(2.65 * 2**30), memory_total_bytes=95 * 2**30,
    bubble=0.1234, goodput=0.931,
)  # fmt: skip


def test_a_step_is_one_plain_line():
    assert step_line(RECORD, gauges=GAUGES) == (
        "step: 10  loss: 7.1234  grad_norm: 1.2345  memory: 2.65GiB(2.79%)  tps: 1,772  tflops: 0.13  mfu: 0.01%  "
        "mesh: dp=2 tp=1 pp=2  bubble: 12.34%  goodput: 93.10%"
    )


def test_what_is_not_known_is_a_dash():
    line = step_line(RECORD, gauges=replace(GAUGES, peak_flops_per_s=None, bubble=None, goodput=None))
    assert "mfu: -  mesh: dp=2 tp=1 pp=2  bubble: -  goodput: -" in line


def test_an_evaluated_or_skipped_step_says_so():
    assert "loss: 7.1234  val_loss: 6.5000  grad_norm" in step_line(replace(RECORD, val_loss=6.5), gauges=GAUGES)
    assert step_line(replace(RECORD, skipped=True, loss=float("nan")), gauges=GAUGES).endswith("skipped")


@pytest.mark.parametrize(
    ("name", "bf16"),
    [("NVIDIA H100 80GB HBM3", 989e12), ("NVIDIA H100 PCIe", 756e12), ("NVIDIA A100-SXM4-80GB", 312e12),
     ("NVIDIA H200", 989e12), ("AMD EPYC 7B13", None), ("cpu", None), ("NVIDIA GeForce RTX 3060", None)],
)  # fmt: skip
def test_only_known_devices_have_a_peak(name: str, bf16: float | None):
    peak = device_peak(name)
    assert (peak and peak.bf16) == bf16


def test_flops_per_second_are_of_one_device():
    assert flops_per_s(tokens_per_s=1000.0, flops_per_token=6_000_000, devices=4) == 1.5e9
