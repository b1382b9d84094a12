"""The verbs that a person types, with an example each, and the exit code of every ending.

    0 all steps asked for are committed, or there were none to do        6 the loss or a gradient is not finite
    1 a fault of raymega                                                75 preempted or drained, resumable
    2 usage or config    4 the cluster cannot satisfy it               130 Ctrl-C
    3 data               5 state or checkpoint                         143 SIGTERM without a complete save

Every verb imports what it needs when it is called, so that help and shell completion load neither torch nor ray.
"""

import json
import sys
import time
from typing import Annotated

import typer

from raymega.cli.live_verbs import VERBS
from raymega.cli.planning_verbs import PLANNING_VERBS
from raymega.cli.sending_verbs import SENDING_VERBS
from raymega.cli.words import Json, Run, Sets
from raymega.errors import ConfigError, RaymegaError


def _group(title: str, *examples: str) -> typer.Typer:
    help_text = "\n  ".join([f"{title}\n\n\b\nExamples:", *examples])
    # Help is plain text: drawing it with rich would load markdown and syntax parsers, half a second of them.
    return typer.Typer(help=help_text, no_args_is_help=True, pretty_exceptions_enable=False, rich_markup_mode=None)


app = _group(
    "Train large language models in 3D parallel on Ray, on clusters that lose machines.",
    "raymega train nano --set run.name=demo",
    "raymega train --help",
)
config_app = _group("What a config may say.", "raymega config schema")
ckpt_app = _group("Look at checkpoints.", "raymega ckpt ls demo", "raymega ckpt verify demo")
data_app = _group("Make data to train on.", "raymega data prepare corpus/*.txt --out prepared")
app.add_typer(data_app, name="data")
app.add_typer(config_app, name="config")
app.add_typer(ckpt_app, name="ckpt")


@app.command()
def train(
    config: Annotated[str, typer.Argument(metavar="CONFIG|PRESET", help="A YAML file, or a preset.")] = "nano",
    sets: Sets = [],  # noqa: B006  typer reads it as the default and copies it
    resume: Annotated[str, typer.Option(metavar="auto|STEP|none", help="Which checkpoint to go on from.")] = "auto",
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Check config, data and model, print the config, start nothing.")
    ] = False,
) -> None:
    """Train, or go on training, what a config says.

    \b
    Examples:
      raymega train nano --set training.steps=50
      raymega train run.yaml --set parallelism.data_parallel_size=4 --set training.lr=6e-4
      raymega train runs/quick-otter/config.yaml --resume 200
    """
    from raymega.driver.records.reading import config_of, resume_of

    read, start = config_of(config, overrides=tuple(sets)), resume_of(resume)
    if dry_run:
        from raymega.cli.dry_run import dry_run_text

        typer.echo(dry_run_text(read))
        return
    from raymega.driver.train import train as train_here

    raise typer.Exit(train_here(read, resume=start, sample=True))


@app.command()
def status(
    run: Run,
    cluster: Annotated[
        str | None, typer.Option(metavar="MACHINE:NODES|FILE.yaml", help="What its step is predicted on.")
    ] = None,
    workers: Annotated[bool, typer.Option("--workers", help="Say of each worker where its seconds went.")] = False,
    as_json: Json = False,
) -> None:
    """Say where a run stands and why, and what was predicted of it, from its directory.

    \b
    Examples:
      raymega status quick-otter
      raymega status quick-otter --cluster calibration.yaml
      raymega status quick-otter --workers
    """
    from raymega.driver.records.accounting import progress_of
    from raymega.driver.records.reading import run_directory
    from raymega.driver.records.run_status import status_with
    from raymega.driver.records.worker_times import worker_lines
    from raymega.report.foretold import foretold, foretold_json, foretold_text

    directory = run_directory(run)
    progress = progress_of(directory)
    found = status_with(progress, run=directory, now=time.time())
    pairs = foretold(directory, progress=progress, cluster=cluster)
    if as_json:
        typer.echo(json.dumps(found.to_json() | {"predicted": foretold_json(pairs)}))
    else:
        table = "\n".join(worker_lines(found.workers)) if workers else ""
        typer.echo("\n".join(filter(None, (str(found), table, foretold_text(pairs, cluster=cluster)))))


@app.command()
def report(
    run: Run,
    out: Annotated[str | None, typer.Option(metavar="FILE.html", help="Default: report.html in its directory.")] = None,
    cluster: Annotated[
        str | None, typer.Option(metavar="MACHINE:NODES|FILE.yaml", help="What its step is predicted on.")
    ] = None,
) -> None:
    """Write what a run's directory tells as one page: loss, events, goodput, mesh, a step, predictions, decisions.

    The run may be going on, over, or lost; the page needs no network and no scripts.

    \b
    Examples:
      raymega report quick-otter
      raymega report runs/quick-otter --out otter.html --cluster calibration.yaml
    """
    from pathlib import Path

    from raymega.driver.records.reading import run_directory
    from raymega.report.report import write_report

    typer.echo(write_report(run_directory(run), cluster=cluster, out=Path(out) if out else None))


@app.command()
def dashboard(
    out: Annotated[str | None, typer.Option(metavar="FILE.json", help="Write it there instead.")] = None,
) -> None:
    """Print the Grafana dashboard of what runs tell Prometheus while they train.

    \b
    Examples:
      raymega dashboard > raymega.json
      raymega dashboard --out /var/lib/grafana/dashboards/raymega.json
    """
    from importlib.resources import files

    text = (files("raymega") / "dashboards" / "grafana.json").read_text(encoding="utf-8")
    if out is None:
        typer.echo(text.rstrip())
        return
    from pathlib import Path

    from raymega.driver.records.run_dir import write_whole

    write_whole(Path(out), text)


for verb in (*PLANNING_VERBS, *SENDING_VERBS, *VERBS):
    app.command()(verb)


@app.command()
def sample(
    run: Run,
    text: Annotated[str, typer.Argument(metavar="TEXT", help="What the model is to go on from.")] = "",
    tokens: Annotated[int, typer.Option(min=1, help="Most tokens to draw.")] = 100,
    temperature: Annotated[float, typer.Option(min=0, help="Lower is safer; 0 takes the most likely token.")] = 0.8,
    top_k: Annotated[int, typer.Option(min=0, help="Draw from so many most likely tokens; 0: from all.")] = 50,
    seed: Annotated[int, typer.Option(help="The same seed draws the same text.")] = 0,
    step: Annotated[
        str, typer.Option(metavar="auto|STEP", help="Which checkpoint; auto: the newest whole one.")
    ] = "auto",
) -> None:
    """Let a run's newest checkpoint go on with a text, on this machine.

    Example: raymega sample quick-otter "To be, or not to be" --tokens 60
    """
    from raymega.driver.records.reading import checkpoint_of, run_directory
    from raymega.worker.sample import Draws, sample_text

    found = run_directory(run)
    draws = Draws(num_tokens=tokens, temperature=temperature, top_k=top_k, seed=seed)
    typer.echo(sample_text(found.read_config(), checkpoint=checkpoint_of(found, step=step), prompt=text, draws=draws))


@app.command()
def doctor(
    nccl: Annotated[bool, typer.Option("--nccl", help="Try the groups between this machine's GPUs as well.")] = False,
    as_json: Json = False,
) -> None:
    """Look at this machine: is everything there that a run needs?

    Example: raymega doctor --nccl
    """
    from raymega.cli.doctor import findings
    from raymega.cli.nccl import nccl_findings

    found = (*findings(), *(nccl_findings() if nccl else ()))
    if as_json:
        typer.echo(json.dumps([finding.to_json() for finding in found]))
    else:
        typer.echo("\n".join(str(finding) for finding in found))
    raise typer.Exit(4 if any(finding.standing == "missing" for finding in found) else 0)


@data_app.command("prepare")
def data_prepare(
    inputs: Annotated[
        list[str], typer.Argument(metavar="INPUT", help="txt, jsonl, parquet: files, folders, globs, URIs.")
    ],
    out: Annotated[str, typer.Option(help="A directory that does not exist yet.")],
    tokenizer: Annotated[
        str, typer.Option(metavar="byte|NAME|PATH|train:VOCAB", help="Text to ids.")
    ] = "shakespeare-2k",
    seq_len: Annotated[int, typer.Option(help="Trained positions of a row.")] = 256,
    valid_fraction: Annotated[float, typer.Option(help="Share that becomes the validation split.")] = 0.01,
    eod_token: Annotated[str | None, typer.Option(help="Which token of a tokenizer.json ends a document.")] = None,
    text_field: Annotated[str, typer.Option(help="Field of jsonl, column of parquet.")] = "text",
) -> None:
    """Turn text into rows of ids that a run can read, in parallel, all or nothing.

    \b
    Examples:
      raymega data prepare corpus/*.txt --out prepared --tokenizer train:4096 --seq-len 512
      raymega data prepare s3://bucket/web.jsonl --out prepared --tokenizer llama/tokenizer.json
    """
    from raymega.cli.preparing import prepared_text

    typer.echo(
        prepared_text(
            tuple(inputs), out=out, tokenizer=tokenizer, seq_len=seq_len, valid_fraction=valid_fraction,
            eod_token=eod_token, text_field=text_field,
        )
    )  # fmt: skip


@config_app.command("schema")
def config_schema() -> None:
    """Print the JSON schema of a config, for editors and other programs.

    Example: raymega config schema > raymega.schema.json
    """
    from raymega.config.load import schema

    typer.echo(json.dumps(schema(), indent=2))


@ckpt_app.command("ls")
def ckpt_ls(run: Run, as_json: Json = False) -> None:
    """List the checkpoints of a run, or of a directory or s3:// prefix of checkpoints.

    Example: raymega ckpt ls quick-otter
    """
    from raymega.checkpoint.verify import list_checkpoints
    from raymega.cli.ckpt_table import data, table
    from raymega.driver.records.reading import checkpoints_uri

    rows = list_checkpoints(checkpoints_uri(run))
    typer.echo(json.dumps(data(rows)) if as_json else table(rows))


@ckpt_app.command("verify")
def ckpt_verify(
    run: Run,
    state: Annotated[
        bool, typer.Option("--state", help="Print a fingerprint of each state: equal states, whatever mesh wrote them.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Read every byte of a run's checkpoints and compare the checksums; exit code 5 if one is damaged.

    \b
    Examples:
      raymega ckpt verify quick-otter --state
      raymega ckpt verify runs/quick-otter/checkpoints/step-200
    """
    from raymega.checkpoint.verify import verify
    from raymega.cli.ckpt_table import data, read_in_full
    from raymega.driver.records.reading import checkpoints_uri

    uri = checkpoints_uri(run)
    report = verify(uri)
    rows = report.rows
    if state:
        from raymega.cli.ckpt_state import with_states

        rows = with_states(rows, uri=uri)
    typer.echo(json.dumps(data(rows)) if as_json else read_in_full(rows))
    raise typer.Exit(0 if report.ok else 5)


def main() -> None:
    """Run the command line; ends the process with the exit code of what happened."""
    try:
        app(prog_name="raymega")
    except RaymegaError as error:
        kind = "config" if isinstance(error, ConfigError) else type(error).__name__
        typer.echo(f"raymega: {kind}: {error}", err=True)
        sys.exit(error.exit_code)
