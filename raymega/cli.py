"""What a person types: the verbs, their examples, and the exit code of each ending.

    0 all steps asked for are committed    3 data       6 non-finite                    130 Ctrl-C
    1 a fault of raymega                   4 cluster    75 preempted, resumable         143 SIGTERM without a complete save
    2 usage or config                      5 state or checkpoint

Every verb imports what it needs when it is called, so that help and shell completion load neither torch nor ray.
"""

import json
import sys

import typer

from raymega.errors import RaymegaError

app = typer.Typer(
    name="raymega",
    help="Train large language models in 3D parallel on Ray, on clusters that lose machines.",
    no_args_is_help=True,
    add_completion=True,
    pretty_exceptions_enable=False,
    suggest_commands=True,
)
config_app = typer.Typer(help="What a config may say.", no_args_is_help=True)
app.add_typer(config_app, name="config")


@config_app.command("schema")
def config_schema() -> None:
    """Print the JSON schema of a config, for editors and other programs.

    Example: raymega config schema > raymega.schema.json
    """
    from raymega.config.load import schema

    typer.echo(json.dumps(schema(), indent=2))


def main() -> None:
    """Run the command line; ends the process with the exit code of what happened."""
    try:
        app()
    except RaymegaError as error:
        typer.echo(f"{type(error).__name__}: {error}", err=True)
        sys.exit(error.exit_code)
