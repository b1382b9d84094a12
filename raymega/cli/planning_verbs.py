"""The verbs that predict before anything runs; `cli.app` has the others."""

import json
from typing import Annotated

import typer

from raymega.cli.words import Json, Sets


def plan(
    config: Annotated[str, typer.Argument(metavar="CONFIG|PRESET", help="A YAML file, or a preset.")] = "nano",
    cluster: Annotated[
        str, typer.Option(metavar="MACHINE:NODES|FILE.yaml", help="dgx-a100:16, aws-p5:4, local:8, or a YAML file.")
    ] = "local:4",
    sets: Sets = [],  # noqa: B006  as above
    precision: Annotated[
        str | None, typer.Option(metavar="fp32|bf16|fp16", help="Instead of the config's number format.")
    ] = None,
    explain: Annotated[bool, typer.Option("--explain", help="List what else was looked at, and why not.")] = False,
    survivors: Annotated[bool, typer.Option("--survivors", help="The plan for every number of devices left.")] = False,
    as_json: Json = False,
) -> None:
    """Predict what a config takes on a cluster, and find the layout that is best there.

    \b
    Examples:
      raymega plan nano --cluster local:4
      raymega plan gpt3-175b --cluster dgx-a100:192 --precision bf16 --explain
    """
    from raymega.cli.plan import plan_report, precision_of
    from raymega.driver.records.reading import config_of

    read = config_of(config, overrides=tuple(sets))
    report = plan_report(read, cluster=cluster, precision=precision_of(precision), survivors=survivors)
    typer.echo(json.dumps(report.to_json()) if as_json else report.text(explain=explain))


def size(
    config: Annotated[
        str, typer.Argument(metavar="CONFIG|PRESET|PARAMETERS", help="A YAML file, a preset, or a size as 13B.")
    ] = "7B",
    tokens: Annotated[str | None, typer.Option(metavar="300B", help="Default: twenty for each parameter.")] = None,
    days: Annotated[float | None, typer.Option(help="The deadline.")] = None,
    budget: Annotated[float | None, typer.Option(metavar="USD", help="Most that it may cost.")] = None,
    prices: Annotated[str | None, typer.Option(metavar="FILE.yaml", help="Instead of the prices that ship.")] = None,
    goodput: Annotated[float, typer.Option(help="The share of time that is kept.")] = 0.95,
    sets: Sets = [],  # noqa: B006  as above
    as_json: Json = False,
) -> None:
    """Say which hardware a model needs, for a budget and a deadline.

    \b
    Examples:
      raymega size 13B --tokens 300B --days 30
      raymega size llama-8b --budget 200000 --prices ours.yaml --json
    """
    from raymega.cli.size import size_report

    report = size_report(
        config, overrides=tuple(sets), tokens=tokens, days=days, budget_usd=budget, prices=prices, goodput=goodput
    )
    typer.echo(json.dumps(report.to_json()) if as_json else str(report))


def simulate(
    config: Annotated[str, typer.Argument(metavar="CONFIG|PRESET", help="A YAML file, or a preset.")] = "nano",
    cluster: Annotated[
        str, typer.Option(metavar="MACHINE:NODES|FILE.yaml", help="dgx-a100:16, aws-p5:4, local:8, or a YAML file.")
    ] = "cpu:4",
    trace: Annotated[
        str | None,
        typer.Option(metavar="FILE|RUN", help="Lines t_s,n_nodes: how many nodes, when; or as in a run that was made."),
    ] = None,
    mtbf: Annotated[
        str | None, typer.Option(metavar="10m", help="Instead: draw failures, so far apart in the whole cluster.")
    ] = None,
    duration: Annotated[str, typer.Option(metavar="24h", help="How long, without a trace.")] = "24h",
    back: Annotated[
        str, typer.Option(metavar="10m|never", help="When there is another node for a failed one.")
    ] = "10m",
    seed: Annotated[int, typer.Option(help="The same seed draws the same failures.")] = 0,
    precision: Annotated[
        str | None, typer.Option(metavar="fp32|bf16|fp16", help="Instead of the config's number format.")
    ] = None,
    journal: Annotated[
        str | None, typer.Option(metavar="RUN", help="Take times and speed from a run that was made.")
    ] = None,
    price: Annotated[
        float | None, typer.Option(metavar="USD", help="Of a device-hour, instead of the list that ships.")
    ] = None,
    sets: Sets = [],  # noqa: B006  as above
    as_json: Json = False,
) -> None:
    """Simulate a config on a cluster that loses nodes, by the decisions that a run would make.

    \b
    Examples:
      raymega simulate nano --cluster cpu:4 --mtbf 10m --duration 2h
      raymega simulate gpt3-175b --cluster dgx-a100:96 --precision bf16 --trace spot.csv --json
      raymega simulate nano --cluster cpu:4 --journal quick-otter --trace calm-lark
    """
    from raymega.cli.plan import precision_of
    from raymega.cli.simulate import Asked, simulation_report
    from raymega.driver.records.reading import config_of

    read = config_of(config, overrides=tuple(sets))
    asked = Asked(
        trace=trace, mtbf=mtbf, duration=duration, back=back, seed=seed, precision=precision_of(precision),
        journal=journal, usd_per_hour=price,
    )  # fmt: skip
    report = simulation_report(read, cluster=cluster, asked=asked)
    typer.echo(json.dumps(report.to_json()) if as_json else str(report))


def calibrate(
    out: Annotated[str, typer.Option(metavar="FILE.yaml", help="Where it is kept.")] = "calibration.yaml",
    nodes: Annotated[int, typer.Option(min=1, help="Nodes like this one that the cluster has.")] = 1,
    device: Annotated[str, typer.Option(metavar="auto|cpu|cuda", help="What workers compute on.")] = "auto",
) -> None:
    """Measure products, memory and messages here, for plan and simulate to predict with.

    \b
    Examples:
      raymega calibrate
      raymega plan nano --cluster calibration.yaml
    """
    from raymega.cli.calibrate import calibrated_here, kept, place_for

    place = place_for(out)
    typer.echo(kept(calibrated_here(device=device, nodes=nodes), out=place))


PLANNING_VERBS = (plan, size, simulate, calibrate)
