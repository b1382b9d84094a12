"""Who watches the loop of a run, in the order in which they are told: the journal first, before anything is sent."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from raymega.config.schema import Config
from raymega.control.loop import Watcher
from raymega.driver.beginning import Beginning
from raymega.driver.process.by_name import loading
from raymega.driver.process.in_thread import InThread, Sink
from raymega.driver.records.events_sink import EventsSink
from raymega.driver.records.metrics_sink import MetricsSink
from raymega.driver.records.progress import Facts
from raymega.driver.records.run_dir import RunDirectory
from raymega.driver.records.snapshot import Snapshots
from raymega.driver.records.summary import SummaryFile
from raymega.driver.sinks.live_figures import Vitals
from raymega.driver.sinks.live_metrics_sink import LiveMetricsSink
from raymega.driver.sinks.trackers import TrackerSink, open_trackers


@contextmanager
def watchers(
    beginning: Beginning, *, run_dir: RunDirectory, config: Config, facts: Facts, vitals: Callable[[], Vitals]
) -> Iterator[tuple[Watcher, ...]]:
    """All that a config asks for, open for the time of the block; what an earlier controller missed is caught up.

    Args:
        vitals: what the workers have told of themselves last.
    """
    t, step = beginning.t, beginning.state.story.committed
    progress = beginning.history.progress
    assert progress is not None, "a launch has begun"
    with ExitStack() as open_ones:
        metrics = MetricsSink(run_dir.metrics, step=step)
        metrics.catch_up(beginning.turns)
        events = EventsSink.inherit(run_dir.events, turns=beginning.turns)
        sinks: list[MetricsSink | EventsSink | InThread | TrackerSink] = [metrics, events]
        sinks.append(InThread(lambda: LiveMetricsSink(run=facts.name, progress=progress, vitals=vitals)))
        if config.log.tensorboard:
            sinks.append(InThread(lambda: _tensorboard(run_dir.tensorboard, step=step, t=t)))
        for tracker in open_trackers(config.log.trackers):
            sinks.append(
                TrackerSink(tracker, name=facts.name, config=config, folder=run_dir.path, t=t, warn=_to_the_log)
            )
        for sink in sinks:
            open_ones.callback(sink.close)
        snapshots = Snapshots(beginning.tenure, history=beginning.history)
        summary = SummaryFile(run_dir.summary, facts=facts, progress=progress)
        open_ones.callback(summary.close)
        yield (beginning.journal, snapshots, *sinks, summary)


def _tensorboard(folder: Path, *, step: int, t: float) -> Sink:
    with loading():
        from raymega.driver.sinks.tensorboard_sink import TensorBoardSink  # loads tensorboardX, and that torch: seconds

    return TensorBoardSink(folder, step=step, t=t)


def _to_the_log(text: str) -> None:
    print(text, flush=True)
