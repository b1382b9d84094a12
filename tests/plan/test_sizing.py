from functools import cache

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from raymega.config.load import load
from raymega.config.schema import Config
from raymega.errors import ConfigError, PlanError
from raymega.model_shape import parameter_count
from raymega.plan.fitted import Constants
from raymega.plan.parallel_layout import ParallelLayout
from raymega.plan.sizing import Fleet, Need, Prices, Sizing, batch_of, prices_from, shape_of, size, tier_of

USD_PER_DEVICE_HOUR = {"aws-p4d": 3.0, "aws-p5": 7.0}


def model(parameters: float) -> Config:
    loaded = load("", source="x", overrides=("data.seq_len=2048", f"training.batch_size={batch_of(parameters)}"))
    return loaded.model_copy(update={"model": shape_of(parameters)})


@cache
def sized(parameters: float = 1.3e9, *, machines: tuple[str, ...] = ("aws-p4d", "aws-p5"), **limits: float) -> Sizing:
    usd = {machine: USD_PER_DEVICE_HOUR[machine] for machine in machines}
    prices = Prices(date="2025-06", source="tests", usd_per_device_hour=usd)
    return size(Need(config=model(parameters), tokens=26e9, **limits), prices=prices)


def test_a_fleet_that_does_keeps_deadline_and_budget() -> None:
    found = sized(days=2.0, budget_usd=10_000)
    does = [fleet for fleet in found.fleets if fleet.refused is None]
    assert does
    assert all(fleet.days <= 2.0 and fleet.cost_usd <= 10_000 for fleet in does)
    assert [fleet.cost_usd for fleet in does] == sorted(fleet.cost_usd for fleet in does)


def test_a_tighter_deadline_never_takes_fewer_nodes() -> None:
    nodes = [_of(sized(days=days, machines=("aws-p4d",)), "aws-p4d").nodes for days in (10.0, 2.0, 1.0)]
    assert nodes == sorted(nodes)
    assert nodes[0] < nodes[-1]


@given(holds=st.integers(1, 60), keeps=st.integers(1, 60))
@settings(max_examples=30, deadline=None)
def test_a_fleet_has_as_few_nodes_as_hold_the_model_and_keep_the_deadline(holds: int, keeps: int) -> None:
    layout = _of(sized(machines=("aws-p5",)), "aws-p5").layout

    def speed(nodes: int) -> float:
        return nodes * (100 - nodes / 12)

    def fastest(need: Need, machine: str, nodes: int, constants: Constants) -> tuple[ParallelLayout, float] | None:
        return (layout, speed(nodes)) if nodes >= holds else None

    prices = Prices(date="2025-06", source="tests", usd_per_device_hour={"aws-p5": 7.0})
    need = Need(config=model(1.3e9), tokens=speed(keeps) * 0.999 * 86400, days=1.0, goodput=1.0)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("raymega.plan.sizing._fastest", fastest)
        assert _of(size(need, prices=prices), "aws-p5").nodes == max(holds, keeps)


def test_figures_of_a_fleet_belong_together() -> None:
    fleet = _of(sized(days=2.0, budget_usd=10_000), "aws-p5")
    assert fleet.device_hours == pytest.approx(fleet.devices * fleet.days * 24)
    assert fleet.cost_usd == pytest.approx(7.0 * fleet.device_hours)
    assert fleet.usd_per_million_tokens == pytest.approx(fleet.cost_usd / 26_000)


def test_time_that_is_lost_is_paid_for() -> None:
    whole, half = (_of(sized(goodput=share, machines=("aws-p5",)), "aws-p5").cost_usd for share in (1.0, 0.5))
    assert half == pytest.approx(2 * whole)


def test_a_budget_that_does_not_do_is_told_beside_what_it_would_cost() -> None:
    found = sized(budget_usd=10, machines=("aws-p5",))
    assert all(fleet.refused is not None and fleet.refused.startswith("costs $") for fleet in found.fleets)


def test_a_model_that_fits_no_machine_is_refused_with_the_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("raymega.plan.sizing.MOST_NODES", 1)
    with pytest.raises(PlanError, match="it does not fit 1 node"):
        sized(1e12)


@pytest.mark.parametrize("parameters", [1.3e9, 7e9, 13e9, 70e9, 175e9, 1e12])
def test_a_shape_has_about_as_many_parameters_as_asked_for(parameters: float) -> None:
    counted = parameter_count(shape_of(parameters), seq_len=2048).total
    assert counted == pytest.approx(parameters, rel=0.12)


@pytest.mark.parametrize(("parameters", "says"), [(7e9, "up to 50B"), (175e9, "50B to 500B"), (1e12, "above 500B")])
def test_every_size_has_its_tier(parameters: float, says: str) -> None:
    assert tier_of(parameters).startswith(says)


@pytest.mark.parametrize(
    ("data", "says"),
    [
        ([], "keys date, source"),
        ({"usd_per_device_hour": {}}, "is empty"),
        ({"usd_per_device_hour": {"abacus": 1}}, "no machine abacus"),
        ({"usd_per_device_hour": {"aws-p5": -1}}, "aws-p5 is -1"),
        ({"usd_per_device_hour": {"aws-p5": float("inf")}}, "aws-p5 is inf"),
    ],
)
def test_a_price_list_that_is_wrong_is_refused(data: object, says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        prices_from(data)


@pytest.mark.parametrize(
    ("limits", "says"),
    [
        ({"days": 0.0}, "--days is 0"),
        ({"budget_usd": -5.0}, "--budget is -5"),
        ({"goodput": 1.2}, "--goodput is 1.2"),
        ({"tokens": float("inf")}, "--tokens is inf; it has to be above zero, and at most"),
        ({"days": 1e-300}, "--days is 1e-300"),
        ({"budget_usd": float("nan")}, "--budget is nan"),
        ({"goodput": float("nan")}, "--goodput is nan"),
    ],
)
def test_limits_that_make_no_sense_are_refused(limits: dict[str, float], says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        Need(config=model(1.3e9), **{"tokens": 1e9, **limits})


def _of(found: Sizing, machine: str) -> Fleet:
    return next(fleet for fleet in found.fleets if fleet.machine == machine)
