"""`raymega size`: which hardware for this model, budget and deadline.

175.2B parameters, 300B tokens; 50B to 500B: tens to hundreds of nodes on InfiniBand; ..
aws-p5      64 nodes   dp=16 tp=8 pp=4, ..    412,000 tokens/s    8.9 days   109,000 device-hours   $ 751,000   $ 2.50
"""

import re
from dataclasses import asdict, dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any

import yaml

from raymega.cli.vocabulary import Known, with_vocabulary
from raymega.config.fault import counted
from raymega.config.load import load
from raymega.driver.records.reading import config_of
from raymega.errors import ConfigError
from raymega.plan.sizing import (
    TOKENS_PER_PARAMETER,
    Fleet,
    Need,
    Prices,
    Sizing,
    batch_of,
    prices_from,
    shape_of,
    size,
    tier_of,
)

_NUMBER = re.compile(r"(\d+(?:\.\d+)?)\s*([KMBT]?)", re.IGNORECASE)
_TIMES = {"": 1.0, "K": 1e3, "M": 1e6, "B": 1e9, "T": 1e12}
SEQ_LEN = 2048
LEAST_PARAMETERS, MOST_PARAMETERS = 60e6, 1e15  # an embedding of GPT-3's vocabulary is as large as the least


@dataclass(frozen=True, slots=True, kw_only=True)
class SizeReport:
    """A sizing, for a person and for a program; `assumed`: what the config does not say."""

    sizing: Sizing
    assumed: str | None = None

    def __str__(self) -> str:
        need, prices = self.sizing.need, self.sizing.prices
        limits = [f"{need.days:g} days" if need.days else "", f"$ {need.budget_usd:,.0f}" if need.budget_usd else ""]
        within = f", within {' and '.join(filter(None, limits))}" if any(limits) else ""
        lines = [
            f"{need.parameters / 1e9:,.3g}B parameters, {need.tokens / 1e9:,.4g}B tokens{within}",
            f"tier  {tier_of(need.parameters)}",
            *map(_row, self.sizing.fleets),
            *(f"{machine:<18} {reason}" for machine, reason in self.sizing.without),
            "assumed:",
            f"  prices of {prices.date}: {prices.source}",
            f"  {need.precision}, steps of {counted(need.job.batch_size, noun='sample')} of {need.job.seq_len} tokens",
            f"  {need.goodput:.0%} of the time is kept; `raymega simulate` tells for a cluster that loses machines",
            "  speeds are predicted with constants that were fitted on published runs of A100",
            *([f"  {self.assumed}"] if self.assumed else []),
        ]
        return "\n".join(lines)

    def to_json(self) -> dict[str, Any]:
        """As plain data."""
        need, prices = self.sizing.need, self.sizing.prices
        return {
            "parameters": need.parameters, "tokens": need.tokens, "days": need.days, "budget_usd": need.budget_usd,
            "tier": tier_of(need.parameters), "goodput": need.goodput, "precision": need.precision,
            "assumed": self.assumed,
            "prices": asdict(prices) | {"usd_per_device_hour": dict(prices.usd_per_device_hour)},
            "fleets": [_data(fleet) for fleet in self.sizing.fleets], "without": dict(self.sizing.without),
        }  # fmt: skip


def size_report(
    word: str,
    *,
    overrides: tuple[str, ...],
    tokens: str | None,
    days: float | None,
    budget_usd: float | None,
    prices: str | None,
    goodput: float,
) -> SizeReport:
    """Size fleets for a config, a preset, or a number of parameters as 13B.

    Raises: ConfigError for what cannot be read; PlanError if the model fits no machine.
    """
    known = _config(word, overrides=overrides)
    config = known.config
    need = Need(config=config, tokens=1.0, days=days, budget_usd=budget_usd, goodput=goodput)
    many = TOKENS_PER_PARAMETER * need.parameters if tokens is None else amount(tokens, option="--tokens")
    need = Need(config=config, tokens=many, days=days, budget_usd=budget_usd, goodput=goodput)
    return SizeReport(sizing=size(need, prices=read_prices(prices)), assumed=known.assumed)


def read_prices(path: str | None) -> Prices:
    """The prices that ship, or a file's."""
    try:
        text = (
            (files("raymega") / "plan" / "prices.yaml").read_text(encoding="utf-8")
            if path is None
            else Path(path).read_text(encoding="utf-8-sig")
        )
        return prices_from(yaml.safe_load(text))
    except OSError as error:
        raise ConfigError(f"--prices: {path} cannot be read: {error.strerror}. Name a YAML file.") from error
    except (yaml.YAMLError, ValueError) as error:
        raise ConfigError(f"--prices: {path} is not YAML: {error}. Mend it.") from error


def amount(word: str, *, option: str) -> float:
    """Read `300B`, `1.4T`, `5e9`.

    >>> amount("300B", option="--tokens")
    300000000000.0
    """
    found = _NUMBER.fullmatch(word.strip())
    if found is not None:
        return float(found[1]) * _TIMES[found[2].upper()]
    try:
        return float(word)
    except ValueError as error:
        raise ConfigError(f"{option}: {word!r} found; a number is wanted, as 300B, 1.4T or 5e9.") from error


def _config(word: str, *, overrides: tuple[str, ...]) -> Known:
    """A config as given, or one of a model of so many parameters."""
    found = _NUMBER.fullmatch(word.strip())
    if found is None or not found[2] or Path(word).exists():
        return with_vocabulary(config_of(word, overrides=overrides))
    many = amount(word, option="PARAMETERS")
    if not LEAST_PARAMETERS <= many <= MOST_PARAMETERS:
        raise ConfigError(
            f"{word} is no size of a model that can be planned; from 60M to 1000T can. Give a size as 13B, or a config."
        )
    batch = (f"data.seq_len={SEQ_LEN}", f"training.batch_size={batch_of(many)}", "training.micro_batch_size=1")
    loaded = load("", source=word, overrides=(*batch, *overrides))
    return Known(config=loaded.model_copy(update={"model": shape_of(many)}), assumed=None)


def _row(fleet: Fleet) -> str:
    tail = f"   {fleet.refused}" if fleet.refused else ""
    return (
        f"{fleet.machine:<18} {counted(fleet.nodes, noun='node'):>11}  {fleet.layout!s:<64} "
        f"{fleet.tokens_per_s:>12,.0f} tokens/s {fleet.days:>9,.1f} days {fleet.device_hours:>12,.0f} device-hours  "
        f"$ {fleet.cost_usd:>12,.0f}  $ {fleet.usd_per_million_tokens:,.3g} per million tokens{tail}"
    )


def _data(fleet: Fleet) -> dict[str, Any]:
    return {
        "machine": fleet.machine, "nodes": fleet.nodes, "devices": fleet.devices, "layout": str(fleet.layout),
        "tokens_per_s": fleet.tokens_per_s, "days": fleet.days, "device_hours": fleet.device_hours,
        "cost_usd": fleet.cost_usd, "usd_per_million_tokens": fleet.usd_per_million_tokens, "refused": fleet.refused,
    }  # fmt: skip
