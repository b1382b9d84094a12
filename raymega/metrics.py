"""What is known of a committed step: one line of `metrics.jsonl`.

Loss in nats per trained token over the global batch; times in seconds. A value that is not finite is written as null.
"""

import math
from dataclasses import dataclass, fields
from typing import Any

GENERATIONS = 1_000_000  # of one controller


@dataclass(frozen=True, slots=True, kw_only=True)
class StepRecord:
    """One committed step. The keys of the line are the fields' names, in this order.

    Args:
        step: committed steps after it, from 1.
        grad_norm: before clipping.
        generation: the membership that made it: GENERATIONS * controller + its number.
        tokens: trained tokens of this step; `tokens_total`: of all steps up to it.
        first_sample: position of the step's first sample from 0, never reset by epochs.
        mesh: as `dp=2 tp=2 pp=2`.
        val_loss: where the step was evaluated; absent from the line elsewhere.
        t: unix time of the commit.
    """

    step: int
    loss: float
    grad_norm: float
    lr: float
    tokens: int
    tokens_total: int
    first_sample: int
    samples: int
    step_s: float
    tokens_per_s: float
    mesh: str
    generation: int
    skipped: bool
    loss_scale: float
    t: float
    val_loss: float | None = None

    def to_json(self) -> dict[str, Any]:
        """The line as plain data."""
        line = {field.name: _finite(getattr(self, field.name)) for field in fields(self)}
        if self.val_loss is None:
            del line["val_loss"]
        return line

    @classmethod
    def from_json(cls, line: dict[str, Any]) -> "StepRecord":
        """Read a line back; null where a number belongs is not-a-number."""
        numbers = ("loss", "grad_norm", "val_loss")
        known: dict[str, Any] = {**line, **{key: math.nan for key in numbers if line.get(key, 0.0) is None}}
        return cls(**known)


def generation_words(generation: int) -> str:
    """A generation, which is (controller, number) as one growing integer, for people.

    >>> generation_words(1_000_003), generation_words(2_000_004)
    ('generation 3', 'generation 4 of controller 2')
    """
    controller, number = divmod(generation, GENERATIONS)
    return f"generation {number}" + (f" of controller {controller}" if controller > 1 else "")


def _finite(value: object) -> object:
    return None if isinstance(value, float) and not math.isfinite(value) else value


@dataclass(frozen=True, slots=True, kw_only=True)
class DevicePeak:
    """Dense matrix products a device can do, in FLOP/s, without sparsity (NVIDIA's data sheets)."""

    fp32: float
    bf16: float


_PEAKS: tuple[tuple[tuple[str, ...], DevicePeak], ...] = (
    (("B200",), DevicePeak(fp32=75e12, bf16=2250e12)),
    (("H200",), DevicePeak(fp32=67e12, bf16=989e12)),
    (("H100", "PCIe"), DevicePeak(fp32=51e12, bf16=756e12)),
    (("H100", "NVL"), DevicePeak(fp32=60e12, bf16=835e12)),
    (("H100",), DevicePeak(fp32=67e12, bf16=989e12)),
    (("A100",), DevicePeak(fp32=19.5e12, bf16=312e12)),
    (("L40S",), DevicePeak(fp32=91.6e12, bf16=362e12)),
)


def device_peak(name: str) -> DevicePeak | None:
    """The peak of a device by the name its driver gives; None for one that is not known, a CPU among them."""
    return next((peak for words, peak in _PEAKS if all(word in name for word in words)), None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Gauges:
    """What the console shows beside a step's record.

    Args:
        flops_per_s: model FLOPs per second of one device (model_shape.token_flops, trained tokens, devices).
        peak_flops_per_s: what the device could do; None where it is not known.
        memory_bytes: of the worker that holds most, on its device, or (CPU) in all its process with its libraries.
        memory_total_bytes: what its device (or machine) has.
        bubble: share of the step in which the average worker waited for a neighbour.
        goodput: share of worker-seconds since this launch that went into committed steps, by the controller's clock.
    """

    flops_per_s: float
    peak_flops_per_s: float | None
    memory_bytes: int
    memory_total_bytes: int
    bubble: float | None
    goodput: float | None

    @property
    def mfu(self) -> float | None:
        """Model FLOPs utilisation (Chowdhery et al. 2022, arXiv 2204.02311); None on a device that is not known."""
        return None if self.peak_flops_per_s is None else self.flops_per_s / self.peak_flops_per_s


def flops_per_s(*, tokens_per_s: float, flops_per_token: int, devices: int) -> float:
    """Model FLOPs per second of one device; `flops_per_token` is forward and backward."""
    return tokens_per_s * flops_per_token / devices


def step_line(record: StepRecord, *, gauges: Gauges) -> str:
    """One plain line. `tps` is of the whole mesh, `tflops` and `mfu` of one device; a dash is a thing not known."""
    memory = f"{gauges.memory_bytes / 2**30:.2f}GiB({_percent(gauges.memory_bytes / gauges.memory_total_bytes)})"
    parts = [
        f"step: {record.step}",
        f"loss: {record.loss:.4f}",
        f"grad_norm: {record.grad_norm:.4f}",
        f"memory: {memory}",
        f"tps: {record.tokens_per_s:,.0f}",
        f"tflops: {gauges.flops_per_s / 1e12:.2f}",
        f"mfu: {_percent(gauges.mfu)}",
        f"mesh: {record.mesh}",
        f"bubble: {_percent(gauges.bubble)}",
        f"goodput: {_percent(gauges.goodput)}",
    ]
    if record.val_loss is not None:
        parts.insert(2, f"val_loss: {record.val_loss:.4f}")
    return "  ".join([*parts, "skipped"] if record.skipped else parts)


def _percent(share: float | None) -> str:
    return "-" if share is None else f"{share:.2%}"
