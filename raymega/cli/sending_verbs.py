"""The verbs that send something away: a run to a cluster, its state or story to another, its weights to programs."""

import sys
from typing import Annotated

import typer

from raymega.cli.words import Run, Sets, Step


def submit(
    config: Annotated[str, typer.Argument(metavar="CONFIG|PRESET", help="A YAML file, or a preset.")] = "nano",
    sets: Sets = [],  # noqa: B006  typer reads it as the default and copies it
    address: Annotated[
        str | None,
        typer.Option(metavar="URL", help="The dashboard, http://HOST:8265."),
    ] = None,
    follow: Annotated[bool, typer.Option("--follow", help="Print what it prints, and exit as the run does.")] = False,
    resume: Annotated[str, typer.Option(metavar="auto|STEP|none", help="Which checkpoint to go on from.")] = "auto",
    python: Annotated[
        str | None, typer.Option(metavar="PATH", help="The interpreter on the cluster; default: the one of its Ray.")
    ] = None,
    py_module: Annotated[
        list[str], typer.Option("--py-module", metavar="DIR", help="A package of your own that travels; repeatable.")
    ] = [],  # noqa: B006  as above
) -> None:
    """Train as a job of a Ray cluster; the same run.name again goes on where the run was saved.

    \b
    Examples:
      raymega submit nano --address http://head:8265 --set run.dir=/shared/runs --set run.name=demo --follow
      raymega submit run.yaml --set run.dir=/shared/runs --set checkpoint.path=s3://bucket/demo
    """
    from raymega.cli.submitting import submitted
    from raymega.driver.records.reading import config_of, resume_of

    read = config_of(config, overrides=tuple(sets))
    job = submitted(
        read,
        address=address,
        resume=str(resume_of(resume)),
        python=python,
        py_modules=tuple(py_module),
        tell=typer.echo,
    )
    if follow:
        try:
            raise typer.Exit(job.follow(lambda text: typer.echo(text, nl=False)))
        except KeyboardInterrupt:
            typer.echo(f"the job goes on; to stop it: ray job stop --address {job.address} {job.id}", err=True)
            raise


def export(
    run: Run,
    path: Annotated[str, typer.Argument(metavar="PATH", help="A directory that holds nothing yet, or s3://..")],
    step: Step = "auto",
) -> None:
    """Write a run's parameters as safetensors: whole tensors under global names, whatever mesh trained them.

    \b
    Examples:
      raymega export quick-otter weights
      raymega export runs/quick-otter s3://bucket/weights --step 200
    """
    from raymega.driver.records.exporting import export_run
    from raymega.driver.records.reading import run_directory

    typer.echo(str(export_run(run_directory(run), to=path, step=step)))


def fork(
    run: Run,
    name: Annotated[str, typer.Argument(metavar="NAME", help="Of the new run.")],
    step: Step = "auto",
    sets: Annotated[
        list[str], typer.Option("--set", metavar="KEY=VALUE", help="Lay a value over its config; repeatable.")
    ] = [],  # noqa: B006  typer reads it as the default and copies it
) -> None:
    """Lay down a new run that goes on from a checkpoint of another, with another config where that is wanted.

    The other run is only read: it may be going on, or over. Model, seed, batch and tokenizer stay as they are.

    \b
    Examples:
      raymega fork quick-otter hot --set training.lr=1e-3
      raymega fork quick-otter longer --step 120 --set training.steps=5000 --set parallelism.data_parallel_size=4
    """
    from raymega.driver.forking import fork_run
    from raymega.driver.records.reading import run_directory

    typer.echo(str(fork_run(run_directory(run), name=name, step=step, overrides=tuple(sets))))


def replay(
    run: Run,
    go: Annotated[bool, typer.Option("--go", help="Do it: launch that run, and ask it all of this.")] = False,
    name: Annotated[str | None, typer.Option(metavar="NAME", help="Of the other run; default: RUN-again.")] = None,
    out: Annotated[str | None, typer.Option(metavar="FILE.py", help="Write the script there.")] = None,
) -> None:
    """Print what a run was asked while it trained, as a script that asks another run the same after the same steps.

    The other run has the same config. It is halted wherever something took effect, so its losses are the same; what
    cannot be asked for again, as the loss of a node, is a comment.

    \b
    Examples:
      raymega replay quick-otter
      raymega replay quick-otter --name otter --out otter.py
      raymega replay quick-otter --go
    """
    from raymega.cli.replaying import gone_through, retold, written
    from raymega.driver.process.outlasting import outlasting
    from raymega.driver.records.reading import run_directory

    found = run_directory(run)
    told = retold(found, name=name or f"{found.path.name}-again")
    if out is not None:
        typer.echo(written(told, out=out))
    elif not go:
        typer.echo(told.text, nl=False)
    if go:
        here = outlasting(sys.stdout, follow=f"raymega attach {told.run.path}")
        raise typer.Exit(gone_through(told, tell=lambda text: print(text, file=here, flush=True)))


SENDING_VERBS = (submit, fork, export, replay)
