"""`raymega plan`: what a config would take on a cluster, what would be better, and why.

cluster  1536 on 192 nodes, a100-80g; NVLink 3 in a node, InfiniBand 200 Gbit/s between nodes; computes in bf16
asked    dp=16 tp=8 pp=12, micro-batch 10, 1f1b                  27.7 s   schedule's bubble 47.8%   315.1 of 80.7 GB
         does not fit: stage 0 needs 315.1 GB of 80.7 GB a device; activations take most, 265.8 GB
nearest  micro_batch_size 10 -> 1                                17.2 s   schedule's bubble  8.4%    76.5 of 80.7 GB
best     dp=12 tp=8 pp=16, micro-batch 1, 1f1b, sequence ..      16.8 s   schedule's bubble  8.6%    42.9 of 80.7 GB
"""

from dataclasses import dataclass
from typing import Any

from raymega.cli.unused import unused
from raymega.cli.vocabulary import with_vocabulary
from raymega.config.fault import counted
from raymega.config.schema import Config
from raymega.driver.records.reading import read_hardware
from raymega.errors import ConfigError
from raymega.plan.advice import Advice, advise
from raymega.plan.cluster import Cluster
from raymega.plan.hardware import Precision
from raymega.plan.predict import StepPrediction
from raymega.plan.survivors import Survivors, survivor_plans
from raymega.plan.verdict import Verdict

SHOWN = 12


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanReport:
    """What `raymega plan` found.

    Args:
        survivors: where they were asked for.
        assumed: what the config does not say.
        unused: that the layout asked for leaves devices idle, while the best is sought on all.
    """

    advice: Advice
    survivors: tuple[Survivors, ...]
    assumed: str | None = None
    unused: str | None = None

    def text(self, *, explain: bool) -> str:
        """For a person."""
        advice = self.advice
        lines = [self.unused] if self.unused else []
        lines.append(f"cluster  {_cluster_words(advice.cluster)}; computes in {advice.job.precision}")
        lines += [f"assumed  {self.assumed}"] if self.assumed else []
        if advice.wish is not None:
            lines.append(f"asked    {_row(advice.asked) if advice.asked is not None else advice.wish}")
            lines += [f"         does not do: {advice.refused}"] if advice.refused else []
        if advice.nearest is not None:
            lines.append(f"nearest  {_row(advice.nearest)}")
            lines.append(f"         {', '.join(advice.changed)}")
        lines += [f"best     {_row(advice.best)}", *_parts(advice.best)]
        return "\n".join([*lines, *(_explained(advice) if explain else []), *map(_survivor_row, self.survivors)])

    def to_json(self) -> dict[str, Any]:
        """For a program."""
        advice = self.advice
        return {
            "cluster": str(advice.cluster),
            "precision": advice.job.precision,
            "assumed": self.assumed,
            "unused": self.unused,
            "asked": _data(advice.asked) if advice.asked is not None else None,
            "refused": advice.refused,
            "nearest": _data(advice.nearest) if advice.nearest is not None else None,
            "changed": list(advice.changed),
            "best": _data(advice.best),
            "considered": advice.found.considered,
            "is_proven": advice.found.is_proven,
            "candidates": [_verdict_data(v) for v in (*advice.found.ranked, *advice.found.refused)],
            "survivors": [
                {**_data(row.prediction), "devices": row.devices, "share_of_linear": row.share_of_linear}
                for row in self.survivors
            ],
        }


def plan_report(config: Config, *, cluster: str, precision: Precision | None, survivors: bool) -> PlanReport:
    """Plan `config` on the cluster that a word or a YAML file describes.

    Raises: ConfigError if there is no such cluster; PlanError if nothing fits it.
    """
    vocabulary = with_vocabulary(config)
    known, (there, constants) = vocabulary.config, read_hardware(cluster)
    advice = advise(known, cluster=there, precision=precision, constants=constants)
    rows = survivor_plans(known, job=advice.job, cluster=there, constants=constants) if survivors else ()
    return PlanReport(advice=advice, survivors=rows, assumed=vocabulary.assumed, unused=_unused(advice, config=known))


def _unused(advice: Advice, *, config: Config) -> str | None:
    """What the layout asked for leaves idle, and what the best takes instead."""
    if advice.asked is None:
        return None
    best, devices = advice.best.layout.mesh, advice.cluster.free
    ways = (f"the best below uses {best.size:,}",) if best.size > advice.asked.layout.mesh.size else ()
    return unused(advice.asked.layout.mesh, devices=devices, config=config, ways=ways)


def precision_of(word: str | None) -> Precision | None:
    """Read `--precision`. Raises: ConfigError if it is no number format."""
    known: dict[str, Precision] = {"fp32": "fp32", "bf16": "bf16", "fp16": "fp16"}
    if word is None or word in known:
        return known[word] if word is not None else None
    raise ConfigError(f"--precision: {word} found; fp32, bf16 or fp16 is wanted.")


def _cluster_words(cluster: Cluster) -> str:
    devices = ", ".join(sorted({node.device.name for node in cluster.nodes}))
    return f"{cluster}; {devices}; {cluster.links.device.name} in a node, {cluster.links.node.name} between nodes"


def _row(found: StepPrediction) -> str:
    return (
        f"{found.layout!s:<72} {found.step_s:>9,.4g} s a step  schedule's bubble {found.schedule_bubble():6.1%}  "
        f"{found.peak_bytes / 1e9:,.1f} of {min(found.usable_bytes) / 1e9:,.1f} GB  {found.tokens_per_s:,.0f} tokens/s"
    )


def _parts(found: StepPrediction) -> list[str]:
    fullest = max(range(len(found.memory)), key=lambda stage: found.memory[stage].total)
    layers = " ".join(str(end - first) for first, end in found.layout.layers)
    waits = f" ({found.seconds.bubble_s / found.step_s:.1%}, with waits for slower stages and for messages)"
    seconds = ", ".join(
        f"{name.removesuffix('_s')} {value:,.3g}{waits if name == 'bubble_s' and value else ''}"
        for name, value in found.seconds.by_part.items()
    )
    kinds = ", ".join(
        f"{name.replace('_', ' ')} {value / 1e9:,.3g}" for name, value in found.memory[fullest].by_kind.items() if value
    )
    lines = [f"         layers {layers}", f"         seconds: {seconds}", f"         GB of stage {fullest}: {kinds}"]
    copies = max(need.host_copies for need in found.memory)
    return [*lines, f"         GB of host memory a device: peer copies {copies / 1e9:,.3g}"] if copies else lines


def _explained(advice: Advice) -> list[str]:
    """What else was looked at."""
    found = advice.found
    proven = ", no other can be faster" if found.is_proven else ""
    lines = [f"{counted(found.considered, noun='layout')} estimated, {len(found.ranked)} timed{proven}; fastest first:"]
    lines += [f"  {verdict}" for verdict in found.ranked[:SHOWN]]
    if found.refused:
        lines.append("refused, though their estimates were as good:")
    return lines + [f"  {verdict}" for verdict in found.refused[:SHOWN]]


def _survivor_row(row: Survivors) -> str:
    tail = f"  does not fit: {row.refused}" if row.refused else ""
    speed = f"{row.prediction.step_s:>9,.4g} s  {row.share_of_linear:6.1%} of linear"
    return f"{counted(row.devices, noun='device'):>14}  {row.choice.plan.mesh!s:<22} {speed}{tail}"


def _data(found: StepPrediction) -> dict[str, Any]:
    layout, mesh = found.layout, found.layout.mesh
    return {
        "mesh": str(mesh), "layers_per_stage": [end - first for first, end in layout.layers],
        "micro_batch_size": layout.microbatch_size, "schedule": layout.schedule, "chunks": layout.num_chunks,
        "sequence_parallel": layout.sequence_parallel, "step_s": found.step_s, "tokens_per_s": found.tokens_per_s,
        "seconds": found.seconds.by_part, "bubble_share": found.schedule_bubble(), "fits": found.fits,
        "bytes_by_stage": [need.by_kind for need in found.memory], "usable_bytes": list(found.usable_bytes),
        "host_bytes_by_stage": [need.host_copies for need in found.memory],
    }  # fmt: skip


def _verdict_data(verdict: Verdict) -> dict[str, Any]:
    return {
        "layout": str(verdict.layout), "step_s": verdict.step_s, "peak_bytes": verdict.peak_bytes,
        "refused": verdict.refused,
    }  # fmt: skip
