"""`raymega simulate`: what a config would keep of a cluster whose nodes come and go.

goodput 97.3 % of 142.1 worker-hours, 96.1 % of linear, 2,311 tokens/s, $ 4.10 per million tokens
"""

from collections.abc import Iterator
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

from raymega.cli.size import read_prices
from raymega.cli.unused import unused
from raymega.cli.vocabulary import with_vocabulary
from raymega.config.fault import counted
from raymega.config.schema import Config
from raymega.control.loop import Turn
from raymega.driver.records.reading import is_run, read_hardware, run_directory
from raymega.driver.records.replay import heads, told
from raymega.errors import ConfigError, StateError
from raymega.plan.cluster import Cluster
from raymega.plan.hardware import LARGEST, Precision, is_positive
from raymega.sim.calibrated import calibrated
from raymega.sim.drawing import category_lines, drawn, stretch_lines, time_words
from raymega.sim.node_trace import NodeTrace, duration_s, failing, read_trace, steady
from raymega.sim.own_faults import own_faults
from raymega.sim.simulate import Scenario, Simulation, simulate
from raymega.sim.times import SOURCES, Times, times_on


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """The options, as they were typed. `journal`: a run that was measured; `usd_per_hour`: of a device."""

    trace: str | None
    mtbf: str | None
    duration: str
    back: str
    seed: int
    precision: Precision | None = None
    journal: str | None = None
    usd_per_hour: float | None = None

    def __post_init__(self) -> None:
        if self.usd_per_hour is not None and not is_positive(self.usd_per_hour):
            raise ConfigError(
                f"--price is {self.usd_per_hour:g}; dollars of a device-hour are above zero, and at most {LARGEST:g}. "
                "Give a real price."
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulationReport:
    """A simulation, for a person and for a program.

    Args:
        usd_per_hour: of a device; None: not known.
        assumed: what the config does not say.
    """

    done: Simulation
    usd_per_hour: float | None
    assumed: str | None = None

    @property
    def unused(self) -> str | None:
        """That even its largest plan leaves devices idle, if it does."""
        done = self.done
        mesh, devices = done.largest_mesh, done.scenario.trace.most * done.node_devices
        return unused(mesh, devices=devices, config=done.scenario.config) if mesh is not None else None

    @property
    def usd_per_million_tokens(self) -> float | None:
        tokens = self.done.seen.tokens
        if self.usd_per_hour is None or not tokens:
            return None
        return self.usd_per_hour * self.done.device_hours / (tokens / 1e6)

    def __str__(self) -> str:
        done, seen, price = self.done, self.done.seen, self.usd_per_million_tokens
        trace = done.scenario.trace
        cost = "" if price is None else f", $ {price:,.3g} per million tokens"
        lines = [self.unused] if self.unused else []
        lines += [
            f"{time_words(done.duration_s)} on {trace.average:.1f} of {counted(trace.most, noun='node')} of "
            f"{done.node_devices}, "
            f"{counted(trace.changes, noun='change')}; a step of all takes {done.full_step_s:,.3g} s"
            f"{_precision_words(done.scenario)}",
            "",
            drawn(done),
            "",
            f"goodput {seen.goodput.share:.2%} of {done.worker_hours:,.1f} worker-hours, useful "
            f"{seen.goodput.share_of('useful'):.2%}; {done.effective_share:.2%} once it had started",
            f"{done.share_of_linear:.2%} of linear, {done.tokens_per_s:,.0f} tokens/s{cost}",
            f"{counted(seen.steps, noun='step')}, {counted(seen.repairs, noun='repair')} in mid-step, "
            f"{counted(seen.transitions, noun='change')} of plan, {counted(seen.rewinds, noun='rewind')}",
            *category_lines(done),
            "plans:",
            *stretch_lines(done),
            "assumed:",
            *_assumptions(done.scenario.times),
            *([f"  {self.assumed}"] if self.assumed else []),
        ]
        return "\n".join([*lines, *([f"it ended early: {done.ended}"] if done.ended else [])])

    def to_json(self) -> dict[str, Any]:
        """As plain data; times in seconds."""
        done, seen = self.done, self.done.seen
        spent = seen.goodput
        return {
            "duration_s": done.duration_s, "nodes": done.scenario.trace.average, "most_nodes": done.scenario.trace.most,
            "device_hours": done.device_hours, "worker_hours": done.worker_hours, "spare_hours": done.spare_hours,
            "without_nodes_s": spent.without_nodes_s, "goodput": spent.share, "useful": spent.share_of("useful"),
            "effective": done.effective_share, "share_of_linear": done.share_of_linear,
            "shares": {name: spent.share_of(name) for name in spent.seconds}, "tokens_per_s": done.tokens_per_s,
            "samples_per_s": done.samples_per_s, "tokens": seen.tokens, "steps": seen.steps, "repairs": seen.repairs,
            "changes_of_plan": seen.transitions, "rewinds": seen.rewinds, "full_step_s": done.full_step_s,
            "usd_per_million_tokens": self.usd_per_million_tokens, "times": asdict(done.scenario.times),
            "ended": done.ended, "assumed": self.assumed, "unused": self.unused,
        }  # fmt: skip


def _precision_words(scenario: Scenario) -> str:
    """What seconds that were predicted are of; measured ones are of what that run computed in."""
    return f" in {scenario.job.precision}" if scenario.full_step_s is None else ""


def simulation_report(config: Config, *, cluster: str, asked: Asked) -> SimulationReport:
    """Simulate `config` on the cluster that a word or a YAML file describes.

    Raises: ConfigError for a trace, a time or a cluster that is wrong; PlanError if nothing fits it.
    """
    (there, constants), vocabulary = read_hardware(cluster), with_vocabulary(config)
    known = vocabulary.config
    if asked.precision is not None:
        training = known.training.model_copy(update={"precision": asked.precision})
        known = known.model_copy(update={"training": training})
    times = times_on(there, constants=constants)
    measured = calibrated(turns_of(asked.journal) if asked.journal is not None else (), default=times)
    scenario = Scenario(
        config=known,
        cluster=there,
        trace=trace_of(asked, cluster=there),
        times=measured.times,
        constants=constants,
        full_step_s=measured.step_s,
        steps_s=measured.steps_s,
        seed=asked.seed,
    )
    usd = asked.usd_per_hour or read_prices(None).usd_per_device_hour.get(cluster.partition(":")[0])
    return SimulationReport(done=simulate(scenario), usd_per_hour=usd, assumed=vocabulary.assumed)


def turns_of(run: str) -> Iterator[Turn]:
    """The turns of a run, from its journal. Raises: StateError if there is no such run."""
    directory = run_directory(run)
    return (turn for _, turn in told(heads(directory.journal), config=directory.read_config()) if turn is not None)


def faults_of(run: str, *, cluster: Cluster) -> NodeTrace:
    """When the nodes of a run came and went, each as large as the cluster's first. Raises: StateError."""
    directory = run_directory(run)
    known = heads(directory.journal)
    if not known:
        raise StateError(f"{run} has no journal yet, so nobody knows its nodes. Name a run that has trained.")
    turns = (turn for _, turn in told(known, config=directory.read_config()) if turn is not None)
    return own_faults(turns, began_t=known[0][1].t, node_devices=cluster.nodes[0].free)


def trace_of(asked: Asked, *, cluster: Cluster) -> NodeTrace:
    """The trace of a file or of a run, or drawn. Raises: ConfigError; StateError."""
    if asked.trace is not None and asked.mtbf is not None:
        raise ConfigError("--trace and --mtbf both say when nodes go. Give one of them.")
    if asked.trace is not None and not Path(asked.trace).is_file() and is_run(asked.trace):
        return _within(faults_of(asked.trace, cluster=cluster), cluster=cluster, source=asked.trace)
    if asked.trace is not None:
        try:
            text = Path(asked.trace).read_text(encoding="utf-8-sig")
        except (OSError, UnicodeDecodeError) as error:
            why = error.strerror if isinstance(error, OSError) else "it is no text in UTF-8"
            raise ConfigError(
                f"--trace: {asked.trace} cannot be read: {why}. Name a file of lines t_s,n_nodes."
            ) from error
        return _within(read_trace(text, source=asked.trace), cluster=cluster, source=asked.trace)
    nodes, end_s = len(cluster.nodes), duration_s(asked.duration, option="--duration")
    if asked.mtbf is None:
        return steady(nodes=nodes, duration_s=end_s)
    back_s = None if asked.back == "never" else duration_s(asked.back, option="--back")
    mtbf_s = duration_s(asked.mtbf, option="--mtbf")
    return failing(nodes=nodes, mtbf_s=mtbf_s, duration_s=end_s, back_after_s=back_s, seed=asked.seed)


def _within(trace: NodeTrace, *, cluster: Cluster, source: str) -> NodeTrace:
    """`trace`, if the cluster has as many nodes. Raises: ConfigError if not."""
    if trace.most > len(cluster.nodes):
        raise ConfigError(
            f"--trace: {source} has up to {counted(trace.most, noun='node')}; the cluster has "
            f"{len(cluster.nodes):,}, and shares are "
            f"of all of it. Give a --cluster of {counted(trace.most, noun='node')}."
        )
    return trace


def _assumptions(times: Times) -> list[str]:
    return [
        f"  {field.name:<22} {getattr(times, field.name):>9,.3g}   {SOURCES[field.name]}" for field in fields(times)
    ]
