"""Who else is told a run's figures: TensorBoard files and trackers, as its config says."""

from collections.abc import Callable
from typing import Protocol

from raymega.config.schema import Config
from raymega.control.loop import Watcher
from raymega.driver.run_dir import RunDirectory
from raymega.driver.trackers import TrackerSink, open_trackers


class Sink(Watcher, Protocol):
    """A watcher of the loop that has something to finish."""

    def close(self) -> None: ...


def figure_sinks(
    config: Config, run_dir: RunDirectory, *, step: int, t: float, warn: Callable[[str], None]
) -> tuple[Sink, ...]:
    """The sinks that `config.log` asks for.

    Args:
        step: the step that the run goes on from.
        warn: told if a tracker fails.
    Raises: ConfigError for a tracker that is not installed.
    """
    assert config.run.name is not None, "a resolved config has a name"
    sinks: list[Sink] = [
        TrackerSink(tracker, name=config.run.name, config=config, folder=run_dir.path, t=t, warn=warn)
        for tracker in open_trackers(config.log.trackers)
    ]
    if config.log.tensorboard:
        from raymega.driver.tensorboard_sink import TensorBoardSink  # loads torch

        sinks.append(TensorBoardSink(run_dir.tensorboard, step=step, t=t))
    return tuple(sinks)
