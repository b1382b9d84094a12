"""Does a layout do on a cluster? Its prediction, or the sentence why it is refused.

fits      tokens/s, seconds, bytes of the fullest device
refused   "stage 0 needs 588.9 GB of 75.2 GB a device; activations take most, 533.1 GB"
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import floor

from raymega.plan.cost import embedding_seconds, head_seconds, layer_seconds
from raymega.plan.job import Job
from raymega.plan.memory import StageMemory, memory_by_stage
from raymega.plan.parallel_layout import ParallelLayout
from raymega.plan.passes import Ground
from raymega.plan.predict import StepPrediction
from raymega.plan.stages import balanced_counts, balanced_layers, layers_of_counts


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """A layout and what it takes.

    Args:
        peak_bytes: of the fullest device.
        refused: why it does not do; None if it does.
    """

    layout: ParallelLayout
    step_s: float
    peak_bytes: float
    refused: str | None

    def __str__(self) -> str:
        head = f"{self.layout}: {self.step_s:,.3g} s a step, {self.peak_bytes / 1e9:,.3g} GB"
        return head if self.refused is None else f"{head}; {self.refused}"


def judge(found: StepPrediction) -> Verdict:
    """Say whether a predicted layout fits."""
    return Verdict(
        layout=found.layout,
        step_s=found.step_s,
        peak_bytes=found.peak_bytes,
        refused=why_not(found.memory, found.usable_bytes),
    )


def why_not(memory: tuple[StageMemory, ...], usable_bytes: tuple[float, ...]) -> str | None:
    """The stage that lacks most, and what takes most there; None if all fit."""
    lacks = [need.total - have for need, have in zip(memory, usable_bytes, strict=True)]
    stage = max(range(len(lacks)), key=lambda at: lacks[at])
    if lacks[stage] <= 0:
        return None
    need = memory[stage]
    kind = need.largest_kind
    takes = "take" if kind.endswith("s") else "takes"
    return (
        f"stage {stage} needs {need.total / 1e9:,.1f} GB of {usable_bytes[stage] / 1e9:,.1f} GB a device; "
        f"{kind} {takes} most, {need.by_kind[kind.replace(' ', '_')] / 1e9:,.1f} GB"
    )


def split(layout: ParallelLayout, *, ground: Ground) -> ParallelLayout:
    """`layout` with layers cut by speed: embedding, loss and slow stages counted, no stage fuller than its memory.

    Where no cut fits, the one that is fastest.
    """
    pp, num_layers = layout.mesh.pp, layout.layers[-1][1]
    sites = [ground.site(stage) for stage in range(pp)]
    known = {(site.device, site.ring): site for site in sites}  # stages are mostly alike
    by_kind = {at: layer_seconds(site, recompute=layout.recompute_of(0)).total_s for at, site in known.items()}
    layer_s = [by_kind[site.device, site.ring] for site in sites]
    extra_s = [0.0] * pp
    extra_s[0] += embedding_seconds(sites[0]).total_s
    extra_s[-1] += head_seconds(sites[-1]).total_s
    if layout.num_chunks > 1:
        layers = balanced_layers(
            num_layers,
            num_stages=len(layout.layers),
            embedding_weight=extra_s[0] / layer_s[0],
            loss_weight=extra_s[-1] / layer_s[-1],
        )
        return replace(layout, layers=layers)
    most = most_layers(layout, job=ground.job, usable_bytes=[seat.least_bytes for seat in ground.seats])
    counts = balanced_counts(num_layers, layer_s=layer_s, extra_s=extra_s, most=most)
    counts = counts or balanced_counts(num_layers, layer_s=layer_s, extra_s=extra_s)
    assert counts is not None, "there are as many layers as stages"
    return replace(layout, layers=layers_of_counts(counts))


def most_layers(layout: ParallelLayout, *, job: Job, usable_bytes: Sequence[float]) -> tuple[int, ...]:
    """How many layers each stage's memory holds, where a stage has one chunk; below one: not even one.

    Bytes grow evenly with them.
    """
    one, two = (bytes_with(count, layout, job=job) for count in (1, 2))
    rows = zip(usable_bytes, one, two, strict=True)
    return tuple(1 + floor((usable - least) / (more - least)) for usable, least, more in rows)


def bytes_with(count: int, layout: ParallelLayout, *, job: Job) -> tuple[float, ...]:
    """What each stage of `layout` needs, had it `count` layers."""
    alike = replace(layout, layers=layers_of_counts((count,) * layout.mesh.pp))
    return tuple(need.total for need in memory_by_stage(job, alike))
