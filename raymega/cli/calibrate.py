"""`raymega calibrate`: measure the planner's constants here, and keep them with the hardware's fingerprint.

AMD EPYC 7R13, 2 cores, 8 GiB, torch 2.13.0   fingerprint 3f9c1b2e4d5a
products  fp32 61.2 GFLOP/s, bf16 55.0   memory 11.2 GB/s   messages 48 us, 2.1 GB/s
passes    88 % of products, 140 % of memory, 60 us each; alone 1.06 times as fast
kept in calibration.yaml: raymega plan CONFIG --cluster calibration.yaml
"""

import os
import time
from pathlib import Path
from typing import Any

import yaml

from raymega.driver.measuring import fingerprint, hardware_words, measured_device, measured_link, measured_together
from raymega.driver.measuring_passes import Pace, measured_pace
from raymega.errors import ConfigError
from raymega.plan.calibration import Calibration


def place_for(out: str) -> str:
    """`out`, if a file can be written there. Raises: ConfigError, before anything is measured."""
    folder = Path(out).parent
    if Path(out).is_dir() or not os.access(folder, os.W_OK):
        raise ConfigError(f"--out: {out} cannot be written: {folder} is no folder to write to. Name a file in one.")
    return out


def calibrated_here(*, device: str, nodes: int) -> Calibration:
    """Measure this machine, and take the cluster to be `nodes` of it."""
    import torch

    if device not in ("auto", "cpu", "cuda"):
        raise ConfigError(f"--device is {device}; what can be measured is cpu or cuda. Use one of them, or auto.")
    if device == "auto":
        device = "cuda" if torch.cuda.is_available() else "cpu"
    cores = os.cpu_count() or 1
    found = measured_together(cores) if device == "cpu" else measured_device(device=device)
    pace = measured_pace(found, workers=cores) if device == "cpu" else Pace()
    link, words = measured_link(), hardware_words(device)
    way = {"latency_s": link.latency_s, "bytes_per_s": link.bytes_per_s}
    cluster: dict[str, Any] = {
        "nodes": nodes,
        "devices": torch.cuda.device_count() if device == "cuda" else cores,
        "device": {
            "name": found.name, "flops_per_s": found.flops_per_s, "memory_bytes": found.memory_bytes,
            "memory_bytes_per_s": found.memory_bytes_per_s, "alone": pace.alone,
        },
        "links": {"device": way, "node": dict(way)},
    }  # fmt: skip
    return Calibration(
        fingerprint=fingerprint(words),
        hardware=words,
        measured=time.strftime("%Y-%m-%d"),
        cluster=cluster,
        constants=pace.constants,
    )


def kept(calibration: Calibration, *, out: str) -> str:
    """Write it, and say what was measured."""
    Path(out).write_text(yaml.safe_dump(calibration.to_data(), sort_keys=False), encoding="utf-8")
    device, way = calibration.cluster["device"], calibration.cluster["links"]["device"]
    constants = calibration.constants
    rates = ", ".join(f"{name} {rate / 1e9:,.1f} GFLOP/s" for name, rate in device["flops_per_s"].items())
    return "\n".join(
        (
            f"{calibration.hardware}   fingerprint {calibration.fingerprint}",
            f"products  {rates}   memory {device['memory_bytes_per_s'] / 1e9:,.1f} GB/s",
            f"passes    {constants.matmul_share:.0%} of products, {constants.memory_share:.0%} of memory, "
            f"{constants.pass_s * 1e6:,.0f} us each; alone {device['alone']:.2f} times as fast",
            f"messages  {way['latency_s'] * 1e6:,.0f} us, {way['bytes_per_s'] / 1e9:,.2f} GB/s between two processes",
            f"kept in {out}: raymega plan CONFIG --cluster {out}",
        )
    )
