"""Trackers of experiments, behind one small protocol: wandb and mlflow, each only if it is installed.

A tracker has a thread of its own: one that is slow or does not answer holds up nothing and loses nothing but itself.
"""

import importlib
import importlib.util
from collections.abc import Callable, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any, Protocol

from raymega.config.schema import Config
from raymega.control.commands import Finish
from raymega.control.loop import Turn
from raymega.driver.process.by_name import loading
from raymega.driver.records.progress import Progress, figures_of, records_of
from raymega.errors import ConfigError


class Tracker(Protocol):
    """Where a run's figures go."""

    def begin(self, *, name: str, config: dict[str, Any], folder: Path) -> None:
        """The run begins, or goes on; `config` as resolved."""

    def log(self, *, step: int, figures: dict[str, float]) -> None: ...
    def end(self, *, exit_code: int) -> None: ...


class WandbTracker:
    """Weights & Biases; its own `WANDB_*` variables say where and how (`WANDB_MODE=offline` for no network)."""

    def __init__(self) -> None:
        with loading():
            self._wandb: Any = importlib.import_module("wandb")  # Any: an optional package without types
        self._run: Any = None

    def begin(self, *, name: str, config: dict[str, Any], folder: Path) -> None:
        self._run = self._wandb.init(name=name, id=name, resume="allow", config=config, dir=str(folder))

    def log(self, *, step: int, figures: dict[str, float]) -> None:
        self._run.log(figures, step=step)

    def end(self, *, exit_code: int) -> None:
        self._run.finish(exit_code=exit_code)


class MlflowTracker:
    """MLflow; its own `MLFLOW_TRACKING_URI` says where."""

    def __init__(self) -> None:
        with loading():
            self._mlflow: Any = importlib.import_module("mlflow")  # Any: an optional package without types

    def begin(self, *, name: str, config: dict[str, Any], folder: Path) -> None:
        self._mlflow.start_run(run_name=name)
        self._mlflow.log_dict(config, "config.yaml")

    def log(self, *, step: int, figures: dict[str, float]) -> None:
        self._mlflow.log_metrics(figures, step=step)

    def end(self, *, exit_code: int) -> None:
        self._mlflow.end_run(status="FINISHED" if exit_code == 0 else "FAILED")


TRACKERS: dict[str, type[WandbTracker] | type[MlflowTracker]] = {"wandb": WandbTracker, "mlflow": MlflowTracker}


def check_trackers(names: Iterable[str]) -> None:
    """Are the trackers that a config asks for installed? Raises: ConfigError naming those that are not."""
    missing = [name for name in names if importlib.util.find_spec(name) is None]
    if missing:
        packages = " ".join(missing)
        raise ConfigError(
            f"log.trackers: {', '.join(missing)} is not installed here. Run pip install {packages}, or take it out "
            "of log.trackers"
        )


def open_trackers(names: Iterable[str]) -> tuple[Tracker, ...]:
    """The trackers by name. Raises: ConfigError for one that is not installed."""
    asked = tuple(names)
    check_trackers(asked)
    return tuple(TRACKERS[name]() for name in asked)


class TrackerSink:
    """A watcher of the loop that passes a run's figures to a tracker, in the tracker's own thread.

    Args:
        warn: told, once, if the tracker fails; it is left alone from then on.
    """

    def __init__(
        self, tracker: Tracker, *, name: str, config: Config, folder: Path, t: float, warn: Callable[[str], None]
    ) -> None:
        self._tracker, self._warn, self._progress = tracker, warn, Progress.begin(t)
        self._has_failed = False
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="tracker")
        whole = config.model_dump(mode="json")
        self._do(partial(tracker.begin, name=name, config=whole, folder=folder))

    def saw(self, turn: Turn) -> None:
        self._progress = self._progress.after(turn)
        for record in records_of(turn):
            self._do(partial(self._tracker.log, step=record.step, figures=figures_of(record, self._progress)))
        for command in turn.decision.commands:
            if isinstance(command, Finish):
                self._do(partial(self._tracker.end, exit_code=command.exit_code))

    def close(self) -> None:
        """Wait until the tracker has taken what it was given."""
        self._thread.shutdown()

    def _do(self, call: Callable[[], None]) -> None:
        self._thread.submit(lambda: None if self._has_failed else call()).add_done_callback(self._ended)

    def _ended(self, done: "Future[None]") -> None:
        error = done.exception()
        if error is not None:
            self._has_failed = True
            self._warn(f"{type(self._tracker).__name__} failed and is left alone: {type(error).__name__}: {error}")
