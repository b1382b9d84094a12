"""The entry point of a Ray job: as `raymega train`, for a process that Ray may end within seconds.

    ray job submit .. -- python workloads/train.py CONFIG      raymega submit CONFIG
      -> the controller of the run before still saves: wait for that
      -> driver.train                    SIGTERM: hands the run over to its controller
      -> exit code                       0: SUCCEEDED; any other: FAILED, with the code; stopped: STOPPED

It needs no address: Ray sets RAY_ADDRESS for it.
"""

import signal
import sys
from types import FrameType
from typing import Annotated

import typer

from raymega.driver.records.reading import config_of, resume_of
from raymega.driver.resubmitting import wait_for_the_run_before
from raymega.driver.train import train
from raymega.errors import ConfigError, RaymegaError


def run(
    config: Annotated[str, typer.Argument(metavar="CONFIG|PRESET", help="A YAML file, or a preset.")] = "nano",
    sets: Annotated[list[str], typer.Option("--set", metavar="KEY=VALUE", help="Lay a value over the config.")] = [],  # noqa: B006
    resume: Annotated[str, typer.Option(metavar="auto|STEP|none", help="Which checkpoint to go on from.")] = "auto",
) -> None:
    """Train what a config says, as the entry point of a Ray job.

    \b
    Examples:
      python workloads/train.py workloads/nano/config.yaml --set run.dir=/shared/runs --set run.name=demo
      ray job submit --working-dir . -- python workloads/train.py nano --set run.dir=/shared/runs
    """
    read, start = config_of(config, overrides=tuple(sets)), resume_of(resume)
    wait_for_the_run_before(read)
    raise typer.Exit(train(read, resume=start))


def main() -> None:
    """Read the command line and train; ends the process with the exit code of the run."""
    signal.signal(signal.SIGTERM, _terminate)  # until Ray is connected, which answers it in its own way
    app = typer.Typer(add_completion=False, pretty_exceptions_enable=False, rich_markup_mode=None)
    app.command()(run)
    try:
        app(prog_name="train.py")
    except RaymegaError as error:
        kind = "config" if isinstance(error, ConfigError) else type(error).__name__
        print(f"raymega: {kind}: {error}", file=sys.stderr)
        sys.exit(error.exit_code)


def _terminate(number: int, frame: FrameType | None) -> None:
    sys.exit(128 + number)
