"""Which hardware for this model, budget and deadline? Every kind of machine that has a price, as large as it has to be.

    machine     nodes  layout                      tokens/s    days   device-hours      cost   $ per million tokens
    aws-p5          4  dp=4 tp=8 pp=1, ..           254,000    13.7         10,500    72,300         0.24
    aws-p4d        12  ..                                                                     over the budget

A fleet has as few nodes as hold the model and keep the deadline, within the budget where it can; its layout is the
planner's. Days and cost count the share of time that a run keeps (goodput), which `raymega simulate` finds for a
cluster that loses machines.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from math import ceil
from typing import Any

from raymega.config.fault import counted
from raymega.config.schema import Config, ModelConfig
from raymega.errors import ConfigError, PlanError
from raymega.model_shape import parameter_count
from raymega.plan.cluster import Cluster
from raymega.plan.cluster_presets import MACHINES, cluster_of
from raymega.plan.fitted import PUBLISHED, Constants
from raymega.plan.hardware import LARGEST, Precision, is_positive
from raymega.plan.job import Job, job_of
from raymega.plan.parallel_layout import ParallelLayout
from raymega.plan.search import search
from raymega.plan.space import free_space, runnable

TOKENS_PER_PARAMETER = 20  # Hoffmann et al. 2022 (arXiv 2203.15556), table 3
HEAD_SIZE, VOCABULARY = 128, 51200  # of GPT-3, padded
MOST_NODES = 2048
TRIES = 6
DAY_S, HOUR_S = 86400.0, 3600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Prices:
    """US dollars of a device-hour, by machine."""

    date: str
    source: str
    usd_per_device_hour: Mapping[str, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class Need:
    """What is to be trained, and within what.

    Args:
        days, budget_usd: at most; None: no limit.
        goodput: the share of time that is kept.
    """

    config: Config
    tokens: float
    days: float | None = None
    budget_usd: float | None = None
    goodput: float = 0.95
    precision: Precision = "bf16"

    def __post_init__(self) -> None:
        for name, value in (("--tokens", self.tokens), ("--days", self.days), ("--budget", self.budget_usd)):
            if value is not None and not is_positive(value):
                raise ConfigError(
                    f"{name} is {value:g}; it has to be above zero, and at most {LARGEST:g}. Leave it out for no limit."
                )
        if not (is_positive(self.goodput) and self.goodput <= 1):
            raise ConfigError(f"--goodput is {self.goodput:g}; it is a share of time, above 0 and at most 1. Use 0.95.")

    @property
    def job(self) -> Job:
        return job_of(self.config, precision=self.precision)

    @property
    def parameters(self) -> int:
        return parameter_count(self.config.model, seq_len=self.config.data.seq_len).total


@dataclass(frozen=True, slots=True, kw_only=True)
class Fleet:
    """So many nodes of one machine.

    Args:
        refused: what it does not do; None if it does.
    """

    machine: str
    nodes: int
    devices: int
    layout: ParallelLayout
    tokens_per_s: float
    days: float
    device_hours: float
    cost_usd: float
    usd_per_million_tokens: float
    refused: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Sizing:
    """The fleets that do, cheapest first, then the others; `without`: machines on which the model does not fit."""

    need: Need
    prices: Prices
    fleets: tuple[Fleet, ...]
    without: tuple[tuple[str, str], ...]


def size(need: Need, *, prices: Prices, constants: Constants = PUBLISHED) -> Sizing:
    """Size a fleet of every machine that has a price. Raises: PlanError if the model fits none of them."""
    fleets, without = list[Fleet](), list[tuple[str, str]]()
    for machine, usd in prices.usd_per_device_hour.items():
        found = _fleet(need, machine=machine, usd=usd, constants=constants)
        if isinstance(found, str):
            without.append((machine, found))
        else:
            fleets.append(found)
    if not fleets:
        why = "; ".join(f"{machine}: {reason}" for machine, reason in without)
        raise PlanError(f"This model fits no machine that has a price. {why}. Give prices of larger machines.")
    order = sorted(fleets, key=lambda fleet: (fleet.refused is not None, fleet.cost_usd))
    return Sizing(need=need, prices=prices, fleets=tuple(order), without=tuple(without))


def prices_from(data: Any) -> Prices:  # Any: what YAML gives
    """Read a price list. Raises: ConfigError with the key that is wrong."""
    if not isinstance(data, Mapping) or not isinstance(data.get("usd_per_device_hour"), Mapping):
        raise ConfigError("A price list has the keys date, source and usd_per_device_hour: {MACHINE: DOLLARS}.")
    rows = data["usd_per_device_hour"]
    for machine, usd in rows.items():
        if machine not in MACHINES:
            raise ConfigError(f"usd_per_device_hour: there is no machine {machine}. Known are {', '.join(MACHINES)}.")
        if isinstance(usd, bool) or not isinstance(usd, int | float) or not is_positive(usd):
            raise ConfigError(
                f"usd_per_device_hour.{machine} is {str(usd)[:20]}; a price above zero is wanted, in dollars, up to "
                f"{LARGEST:g}. Give a real one."
            )
    if not rows:
        raise ConfigError("usd_per_device_hour is empty. Give the price of at least one machine.")
    return Prices(date=str(data.get("date", "undated")), source=str(data.get("source", "")), usd_per_device_hour=rows)


def shape_of(parameters: float) -> ModelConfig:
    """A GPT of about so many parameters, about 128 times as wide as deep, as GPT-3's largest; heads in eights.

    >>> shape_of(175e9).num_layers, shape_of(175e9).hidden_size
    (96, 12288)
    """
    depth = (parameters / (12 * HEAD_SIZE**2)) ** (1 / 3)
    heads = 8 * max(1, round(depth / 8))
    width = HEAD_SIZE * heads
    return ModelConfig(
        kind="gpt2",
        num_layers=max(1, round((parameters - VOCABULARY * width) / (12 * width**2))),
        hidden_size=width,
        num_attention_heads=heads,
        num_key_value_heads=heads,
        head_size=HEAD_SIZE,
        ffn_size=4 * width,
        vocab_size=VOCABULARY,
        tie_embeddings=True,
    )


def batch_of(parameters: float) -> int:
    """Samples of 2048 tokens in a step, as Brown et al. 2020 (arXiv 2005.14165), table 2.1, in powers of two."""
    return next(samples for limit, samples in _BATCHES if parameters <= limit)


_BATCHES = ((1.5e9, 256), (3e9, 512), (20e9, 1024), (float("inf"), 2048))


def tier_of(parameters: float) -> str:
    """What hardware such models are usually trained on, in words."""
    return next(words for limit, words in _TIERS if parameters <= limit)


_TIERS = (
    (50e9, "up to 50B: a few nodes with fast links inside; shards within a node, short pipelines, replicas for speed"),
    (500e9, "50B to 500B: tens to hundreds of nodes on InfiniBand; shards of a whole node, pipelines of 4 to 16"),
    (float("inf"), "above 500B: thousands of devices of 80 GB and more; shards of a node, pipelines of 16 to 64"),
)


def _fleet(need: Need, *, machine: str, usd: float, constants: Constants) -> Fleet | str:
    """As few nodes as hold the model and keep the deadline; why not, if none do."""

    def fleet_of(nodes: int) -> Fleet | None:
        found = _fastest(need, machine, nodes, constants)
        return _priced(need, machine=machine, nodes=nodes, usd=usd, found=found) if found is not None else None

    short, nodes, fleet = 0, 1, fleet_of(1)
    while fleet is None and nodes < MOST_NODES:
        short, nodes = nodes, min(MOST_NODES, 2 * nodes)
        fleet = fleet_of(nodes)
    if fleet is None:
        return f"it does not fit {counted(MOST_NODES, noun='node')}"
    for _ in range(TRIES):
        if need.days is None or fleet.days <= need.days or fleet.nodes == MOST_NODES:
            break
        short = fleet.nodes
        more = min(MOST_NODES, max(short + 1, ceil(short * fleet.days / need.days)))
        fleet = fleet_of(more) or fleet
    return _fewest(short, fleet, days=need.days, fleet_of=fleet_of)


def _fewest(short: int, fleet: Fleet, *, days: float | None, fleet_of: Callable[[int], Fleet | None]) -> Fleet:
    """Between `short` nodes, too few, and a fleet that does: halve until they are neighbours; a budget stays kept."""
    if days is not None and fleet.days > days:
        return fleet
    least = fleet
    while least.nodes - short > 1:
        middle = (short + least.nodes) // 2
        tried = fleet_of(middle)
        in_time = tried is not None and (days is None or tried.days <= days)
        if tried is not None and in_time and (tried.refused is None or fleet.refused is not None):
            least = tried
        else:
            short = middle
    return least


def _fastest(need: Need, machine: str, nodes: int, constants: Constants) -> tuple[ParallelLayout, float] | None:
    """The best layout on so many nodes and its tokens a second."""
    cluster: Cluster = cluster_of(f"{machine}:{nodes}")
    space = free_space(need.config, cluster=cluster, features=runnable())
    ranked = search(need.job, space=space, cluster=cluster, constants=constants).ranked
    return (ranked[0].layout, need.job.tokens_per_step / ranked[0].step_s) if ranked else None


def _priced(need: Need, *, machine: str, nodes: int, usd: float, found: tuple[ParallelLayout, float]) -> Fleet:
    layout, tokens_per_s = found
    devices = nodes * MACHINES[machine].devices
    seconds = need.tokens / (tokens_per_s * need.goodput)
    hours = devices * seconds / HOUR_S
    fleet = Fleet(
        machine=machine,
        nodes=nodes,
        devices=devices,
        layout=layout,
        tokens_per_s=tokens_per_s,
        days=seconds / DAY_S,
        device_hours=hours,
        cost_usd=hours * usd,
        usd_per_million_tokens=hours * usd / (need.tokens / 1e6),
        refused=None,
    )
    return replace(fleet, refused=_why_not(need, fleet))


def _why_not(need: Need, fleet: Fleet) -> str | None:
    parts = []
    if need.days is not None and fleet.days > need.days:
        parts.append(f"takes {fleet.days:,.1f} days of {need.days:g}")
    if need.budget_usd is not None and fleet.cost_usd > need.budget_usd:
        parts.append(f"costs $ {fleet.cost_usd:,.0f} of {need.budget_usd:,.0f}")
    return "; ".join(parts) or None
