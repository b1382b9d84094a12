"""What was predicted of a run, beside what was measured: its step, its repairs, its changes of plan.

predicted and measured, on local:4
  step           0.364 s   0.412 s   dp=2 tp=1 pp=2
  repair         1.9 s     2.1 s     of step 41
  change         0.6 s     0.7 s     dp=2 tp=1 pp=2 -> dp=1 tp=1 pp=2 after step 60
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from statistics import median
from typing import Any

from raymega.config.fault import counted
from raymega.config.schema import Config
from raymega.driver.records.json_lines import read_lines
from raymega.driver.records.line_shapes import EVENT_LINE, Line
from raymega.driver.records.progress import Progress
from raymega.driver.records.reading import read_hardware
from raymega.driver.records.run_dir import RunDirectory
from raymega.driver.records.steps import recent_steps
from raymega.errors import ConfigError
from raymega.plan.cluster import Cluster
from raymega.plan.fitted import Constants
from raymega.plan.job import job_of
from raymega.plan.parallel_layout import recompute_of
from raymega.plan.plan import Plan
from raymega.plan.predict import predict


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    """One prediction and what came of it, in seconds."""

    kind: str
    predicted_s: float
    measured_s: float
    of: str

    def __str__(self) -> str:
        seconds = (f"{value:,.3g} s" for value in (self.predicted_s, self.measured_s))
        return f"  {self.kind:<8} " + " ".join(f"{words:>11}" for words in seconds) + f"   {self.of}"


def foretold(run: RunDirectory, *, progress: Progress | None, cluster: str | None) -> tuple[Pair, ...]:
    """All pairs of a run, its newest step first; what nothing was foretold of is left out.

    Args:
        progress: as its journals tell it.
        cluster: as for `raymega plan`; None: as many CPU workers on this machine as the plan has.
    Raises: ConfigError if there is no such cluster.
    """
    steps, events = recent_steps(run.metrics), read_lines(run.events, shape=EVENT_LINE)
    return foretold_of(progress, steps=steps, events=events, config=run.read_config(), cluster=cluster)


def foretold_of(
    progress: Progress | None, *, steps: Sequence[Line], events: Iterable[Line], config: Config, cluster: str | None
) -> tuple[Pair, ...]:
    """The same, of a run that was read already; `steps`: the newest of them."""
    pairs = list[Pair]()
    if steps:
        mesh = steps[-1]["mesh"]
        alike = [line["step_s"] for line in steps if line["mesh"] == mesh]
        plan = progress.plan if progress is not None else None
        guess = _predicted_s(config, plan, cluster=cluster)
        if guess is not None and alike:
            pairs.append(Pair(kind="step", predicted_s=guess, measured_s=median(alike), of=mesh))
    return (*pairs, *_of_events(events))


def foretold_text(pairs: tuple[Pair, ...], *, cluster: str | None) -> str:
    """The table; empty if there is nothing to compare."""
    where = f"on {cluster}" if cluster is not None else "on CPU cores as assumed; raymega calibrate measures them"
    return "\n".join([f"predicted and measured, {where}", *map(str, pairs)]) if pairs else ""


def foretold_json(pairs: tuple[Pair, ...]) -> list[dict[str, Any]]:
    """As plain data."""
    return [asdict(pair) for pair in pairs]


def _of_events(events: Iterable[Line]) -> Iterator[Pair]:
    """What repairs and changes of plan took; those of which nothing was foretold are left out."""
    for line in events:
        if line["event"] not in ("StepRepaired", "Resized") or not line["predicted_s"]:
            continue
        repaired = line["event"] == "StepRepaired"
        step, before, after = f"step {line['step']}", line.get("before"), line.get("after")
        change = f"{before} -> {after}" if before != after else f"{after}, other workers,"
        of = f"of {step}" if repaired else f"{change} after {step}"
        kind = "repair" if repaired else "change"
        yield Pair(kind=kind, predicted_s=line["predicted_s"], measured_s=line["actual_s"], of=of)


def hardware_of(config: Config, plan: Plan | None, *, cluster: str | None) -> tuple[Cluster, Constants] | None:
    """What a step of `plan` is predicted on; None if its model is not known here, or it is not whole.

    Raises: ConfigError for a cluster that is too small.
    """
    if plan is None or plan.lost or config.model.custom is not None or config.model.vocab_size is None:
        return None
    there, constants = read_hardware(cluster or f"local:{plan.mesh.size}")
    if there.free < plan.mesh.size:
        raise ConfigError(
            f"--cluster {cluster} has {counted(there.free, noun='device')}, the run's {plan.mesh} "
            f"{plan.mesh.size}. Name a larger one."
        )
    return there, constants


def _predicted_s(config: Config, plan: Plan | None, *, cluster: str | None) -> float | None:
    """A step of the newest plan."""
    hardware = hardware_of(config, plan, cluster=cluster)
    if plan is None or hardware is None:
        return None
    there, constants = hardware
    return predict(plan, job=job_of(config), cluster=there, recompute=recompute_of(config), constants=constants).step_s
