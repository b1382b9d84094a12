"""The verbs that change a run while it trains; `cli.app` has the others."""

import sys
from typing import Annotated

import typer

from raymega.errors import ConfigError

Run = Annotated[str, typer.Argument(metavar="RUN", help="A run's name (below ./runs, or on RAY_ADDRESS) or directory.")]

MOST_S = 1e6  # more than any machine gives notice
CLEAR = "\x1b[2J\x1b[H"  # of a terminal


def resize(
    run: Run,
    devices: Annotated[int | None, typer.Option(min=1, metavar="N", help="Go on with so many devices.")] = None,
    plan: Annotated[str | None, typer.Option(metavar="dp=2,tp=2,pp=1", help="Go on as this mesh.")] = None,
) -> None:
    """Go on with more or fewer devices, or as another mesh, from the next step on; nothing is lost.

    \b
    Examples:
      raymega resize quick-otter --devices 8
      raymega resize quick-otter --plan dp=2,tp=2,pp=1
    """
    from raymega.cli.live import resized

    typer.echo(resized(run, devices=devices, plan=plan))


def rewind(
    run: Run,
    step: Annotated[int, typer.Option(min=1, metavar="STEP", help="Of a checkpoint that is kept: raymega ckpt ls.")],
) -> None:
    """Have a live run go back to a checkpoint and train on from there; later steps and checkpoints are void.

    A run that is over goes back as it is started again: raymega train RUN/config.yaml --resume STEP.

    \b
    Examples:
      raymega rewind quick-otter --step 120
      raymega ckpt ls quick-otter
    """
    from raymega.cli.live import rewound

    typer.echo(rewound(run, step=step))


def drain(
    run: Annotated[
        str, typer.Argument(metavar="[RUN]", help="A run's name or directory; with --self none: every run leaves.")
    ] = "",
    node: Annotated[str, typer.Argument(metavar="NODE", help="A node's id or its beginning, host, or address.")] = "",
    deadline: Annotated[
        float, typer.Option(min=0, max=MOST_S, metavar="S", help="Seconds until the node is gone.")
    ] = 30.0,
    itself: Annotated[bool, typer.Option("--self", help="The node that this is typed on.")] = False,
) -> None:
    """Have a run leave a node between two steps, before the node is gone; nothing is lost.

    Without RUN, as in a preStop hook, it waits until the node of Ray on this machine is left.

    \b
    Examples:
      raymega drain quick-otter 4c1f --deadline 30
      raymega drain quick-otter --self
      raymega drain --self --deadline 25
    """
    if not run and itself:
        from raymega.driver.cluster.node_wrapper import leave_here

        raise typer.Exit(leave_here(deadline_s=deadline))
    if not run or itself == bool(node):
        raise ConfigError("drain wants to know one thing: RUN and NODE, or RUN and --self, or --self alone.")
    from raymega.cli.live import drained

    typer.echo(drained(run, node=node or None, deadline_s=deadline))


def chaos(
    run: Run,
    orders: Annotated[
        list[str] | None, typer.Argument(metavar="[ORDER...]", help="VERB [WHERE] step=K [POINT] [for=SECONDS]")
    ] = None,
    trace: Annotated[
        str | None, typer.Option(metavar="FILE", help="Lose and give back nodes as a file of t_s,n_nodes says.")
    ] = None,
    speed: Annotated[
        float, typer.Option(min=1e-3, max=MOST_S, metavar="X", help="Seconds of the trace in one second.")
    ] = 1.0,
    least: Annotated[int, typer.Option(min=1, metavar="N", help="Devices that a trace leaves the run.")] = 1,
    seed: Annotated[int, typer.Option(metavar="N", help="Which nodes a trace takes.")] = 0,
) -> None:
    """Have things go wrong in a live run, on purpose: each order once, at its point; the nodes of a trace in its time.

    \b
    Verbs: kill, stall, slow, cut, drain, fill-disk, fill-memory.
    Examples:
      raymega chaos quick-otter "kill stage=1 replica=0 step=40 action=B3"
      raymega chaos quick-otter "stall stage=0 replica=1 step=50 for=5" "drain node=1 step=60 for=30"
      raymega chaos quick-otter --trace spot.csv --speed 100 --least 2
    """
    from raymega.cli.live import disturbed

    typer.echo(disturbed(run, orders=tuple(orders or ()), trace=trace, speed=speed, least=least, seed=seed))


def stop(
    run: Run,
    grace: Annotated[
        float | None,
        typer.Option(min=0, max=MOST_S, metavar="S", help="End after so many seconds even if it is not saved."),
    ] = None,
) -> None:
    """End a run after the next step, saved; exits as the run does.

    Example: raymega stop quick-otter
    """
    from raymega.cli.live import stopped

    text, exit_code = stopped(run, grace_s=grace)
    typer.echo(text)
    raise typer.Exit(exit_code)


def node(
    command: Annotated[
        list[str], typer.Argument(metavar="COMMAND", help="After --: starts Ray on this node and stays.")
    ],
    deadline: Annotated[
        float,
        typer.Option(min=3, max=MOST_S, metavar="S", help="Seconds from SIGTERM until this machine is taken away."),
    ] = 25.0,
) -> None:
    """Start Ray on this node so that a SIGTERM first lets every run leave it.

    Example: raymega node --deadline 25 -- ray start --block --address=head:6379
    """
    from raymega.driver.cluster.node_wrapper import run_node

    raise typer.Exit(run_node(command, deadline_s=deadline))


def attach(run: Run) -> None:
    """Follow a run that others have started; Ctrl-C leaves it as it is.

    Example: raymega attach quick-otter
    """
    from raymega.cli.watching import followed

    for line in followed(run):
        typer.echo(line)


def logs(
    run: Run,
    rank: Annotated[int, typer.Option(min=0, metavar="N", help="Whose, in the plan in force.")] = 0,
) -> None:
    """Print what the worker of a rank has printed so far.

    Example: raymega logs quick-otter --rank 3
    """
    from raymega.cli.watching import log_text

    text = log_text(run, rank=rank, tell=lambda note: typer.echo(note, err=True))
    typer.echo(text, nl=bool(text))


def top(
    run: Run,
    every: Annotated[float, typer.Option(min=0.5, max=MOST_S, metavar="S", help="Seconds between two looks.")] = 2.0,
) -> None:
    """Show where a run stands, anew every few seconds, until it is over.

    Example: raymega top quick-otter
    """
    from raymega.cli.watching import standings

    anew = CLEAR if sys.stdout.isatty() else ""
    for text in standings(run, every_s=every):
        typer.echo(f"{anew}{text}")


VERBS = (attach, logs, top, resize, rewind, drain, chaos, stop, node)
