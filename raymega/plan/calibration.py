"""What was measured of a cluster, as a file that plans and simulations read in the place of a cluster.

    fingerprint: 3f9c1b2e  AMD EPYC 7R13, 2 cores, torch 2.13.0      of the hardware it holds for
    measured: 2026-11-29
    cluster: {nodes: 1, devices: 2, device: {flops_per_s: {fp32: ..}, ..}, links: {device: {latency_s, bytes_per_s}}}
    constants: {matmul_share: 1.0, ..}         rates were reached, so they are no ceilings any more

Least squares of relative errors fits what micro-benchmarks do not show (`fitted`): shares, and the host's seconds.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from typing import Any

from raymega.errors import ConfigError
from raymega.plan.cluster import Cluster
from raymega.plan.cluster_presets import cluster_from
from raymega.plan.fitted import Constants
from raymega.plan.hardware import LARGEST

REACHED = Constants(matmul_share=1.0, memory_share=1.0, link_share=1.0, exposed_share=1.0)
ROUNDS = 60


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

    Coordinate by coordinate, with steps that halve; sums of squared relative errors. Deterministic.

    Args:
        measured_s: seconds of each layout.
        predict_s: of the same layouts, with other constants.
    """

    def error(constants: Constants) -> float:
        pairs = zip(predict_s(constants), measured_s, strict=True)
        return sum((guess / real - 1) ** 2 for guess, real in pairs)

    best, best_error = start, error(start)
    sizes = {name: 0.5 for name in names}
    scale_s = min(measured_s) / 100
    for _ in range(ROUNDS):
        for name in names:
            moves = _moves(best, name, size=sizes[name], scale_s=scale_s)
            tried = min(((error(one), index, one) for index, one in enumerate(moves)), default=None)
            if tried is not None and tried[0] < best_error:
                best_error, _, best = tried
            else:
                sizes[name] /= 2
    return best


def _moves(constants: Constants, name: str, *, size: float, scale_s: float) -> list[Constants]:
    """One step up and one down: shares by a factor, seconds by an amount."""
    value = getattr(constants, name)
    if name.endswith("_s"):
        values = [value + size * scale_s, max(0.0, value - size * scale_s)]
    else:
        values = [value * (1 + size), value / (1 + size)]
    return [replace(constants, **{name: one}) for one in values]


def _constants(data: Any) -> Constants:
    known = {field.name for field in fields(Constants)}
    if not isinstance(data, Mapping) or not set(data) <= known:
        raise ConfigError(f"constants: {data!r} found; numbers for {', '.join(sorted(known))} are wanted.")
    for name, value in data.items():
        least = 0.0 if name.endswith("_s") else 1e-9
        if isinstance(value, bool) or not isinstance(value, int | float) or not least <= value <= LARGEST:
            raise ConfigError(f"constants.{name} is {value!r}; a positive number is wanted. Make it anew.")
    return replace(REACHED, **data)
