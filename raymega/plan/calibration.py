"""What was measured of a cluster, as a file that plans and simulations read in the place of a cluster.

    fingerprint: 3f9c1b2e  AMD EPYC 7R13, 2 cores, torch 2.13.0      of the hardware it holds for
    measured: 2026-11-29
    cluster: {nodes: 1, devices: 2, device: {flops_per_s: {fp32: ..}, ..}, links: {device: {latency_s, bytes_per_s}}}
    constants: {matmul_share: 1.0, ..}         rates were reached, so they are no ceilings any more

Least squares of relative errors fits what micro-benchmarks do not show (`fitted`): shares, and the host's seconds.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from raymega.errors import ConfigError
from raymega.plan.cluster import Cluster
from raymega.plan.cluster_presets import cluster_from
from raymega.plan.fitted import Constants
from raymega.plan.hardware import LARGEST

REACHED = Constants(matmul_share=1.0, memory_share=1.0, link_share=1.0, exposed_share=1.0)
ROUNDS = 60
SMALL, FARTHEST = 1e-5, 12.0
FloatArray = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Calibration:
    """See above. `hardware`: in words."""

    fingerprint: str
    hardware: str
    measured: str
    cluster: Mapping[str, Any]
    constants: Constants = REACHED

    def to_data(self) -> dict[str, Any]:
        """As plain data, for YAML."""
        return asdict(self) | {"cluster": dict(self.cluster)}


def is_calibration(data: Any) -> bool:  # Any: what YAML gives
    """Whether this is such a file, not a plain cluster."""
    return isinstance(data, Mapping) and "fingerprint" in data


def calibration_from(data: Any) -> tuple[Cluster, Constants]:
    """The cluster and the constants of a calibration. Raises: ConfigError with the key that is wrong."""
    known = {field.name for field in fields(Calibration)}
    unknown = sorted(set(data) - known)
    if unknown or "cluster" not in data:
        raise ConfigError(
            f"This calibration has {', '.join(map(str, data))}; {', '.join(sorted(known))} are wanted. "
            "Make it anew with raymega calibrate."
        )
    return cluster_from(data["cluster"]), _constants(data.get("constants", {}))


def fitted(
    start: Constants,
    *,
    names: Sequence[str],
    measured_s: Sequence[float],
    predict_s: Callable[[Constants], Sequence[float]],
) -> Constants:
    """Move the constants `names` until what they predict is nearest to what was measured.

    Least squares of relative errors by damped Gauss-Newton steps, over the logarithms of shares and the roots of
    seconds, which thus stay positive. Deterministic. Sources: Levenberg 1944, Marquardt 1963.

    Args:
        measured_s: seconds of each layout.
        predict_s: of the same layouts, with other constants.
    """
    scale_s, damping = min(measured_s) / 100, 1e-3

    def made(point: FloatArray) -> Constants:
        return replace(start, **{name: _value(name, x, scale_s) for name, x in zip(names, point, strict=True)})

    def errors(point: FloatArray) -> FloatArray:
        found: FloatArray = np.asarray(predict_s(made(point))) / np.asarray(measured_s) - 1
        return found

    best = np.array([_coordinate(name, getattr(start, name), scale_s) for name in names])
    now = errors(best)
    for _ in range(ROUNDS):
        slopes = np.stack([(errors(best + SMALL * axis) - now) / SMALL for axis in np.eye(len(names))], axis=1)
        normal = slopes.T @ slopes
        step = np.linalg.solve(
            normal + damping * (np.diag(np.diag(normal)) + SMALL * np.eye(len(names))), -slopes.T @ now
        )
        tried = np.clip(best + step, -FARTHEST, FARTHEST)
        found = errors(tried)
        if found @ found < now @ now:
            best, now, damping = tried, found, damping / 3
        else:
            damping *= 4
    return made(best)


def _coordinate(name: str, value: float, scale_s: float) -> float:
    """Where the search for `name` begins; a second that is not known yet begins at a hundredth of the shortest."""
    return max(1.0, math.sqrt(value / scale_s)) if name.endswith("_s") else math.log(value)


def _value(name: str, x: float, scale_s: float) -> float:
    return float(scale_s * x * x) if name.endswith("_s") else float(math.exp(x))


def _constants(data: Any) -> Constants:
    known = {field.name for field in fields(Constants)}
    if not isinstance(data, Mapping) or not set(data) <= known:
        raise ConfigError(f"constants: {data!r} found; numbers for {', '.join(sorted(known))} are wanted.")
    for name, value in data.items():
        least = 0.0 if name.endswith("_s") else 1e-9
        if isinstance(value, bool) or not isinstance(value, int | float) or not least <= value <= LARGEST:
            raise ConfigError(f"constants.{name} is {value!r}; a positive number is wanted. Make it anew.")
    return replace(REACHED, **data)
