"""Sets the figures of a run as gauges of `ray.util.metrics`, from which Prometheus and Grafana have them.

    turn ---> loss, goodput, ..       set at once
    tick ---> the same again          Ray forgets a gauge that is not set for 20 s; a run may stand, or take long steps
         `--> memory, busy share      of the workers, since the tick before

A watcher of the loop, in a thread of its own: where Ray cannot take a figure, the run goes on without.
"""

from collections.abc import Callable, Iterable

from ray.util.metrics import Gauge

from raymega.control.loop import Turn
from raymega.driver.records.progress import Progress
from raymega.driver.sinks.live_figures import FIGURES, Sample, Vitals, samples_of, stage_samples


class LiveMetricsSink:
    """The gauges of one run.

    Args:
        vitals: what the workers have told of themselves last.
    """

    def __init__(self, *, run: str, progress: Progress, vitals: Callable[[], Vitals]) -> None:
        self._progress, self._vitals = progress, vitals
        self._known = vitals()
        self._gauges = {
            figure.name: Gauge(
                figure.name, description=figure.words, tag_keys=("run", *figure.labels)
            ).set_default_tags({"run": run})
            for figure in FIGURES
        }  # fmt: skip

    def saw(self, turn: Turn) -> None:
        self._progress = self._progress.after(turn)
        self._set(samples_of(self._progress))

    def tick(self) -> None:
        self._set(samples_of(self._progress))
        plan = self._progress.plan
        if plan is not None:
            now = self._vitals()
            self._set(stage_samples(plan, before=self._known, now=now))
            self._known = now

    def close(self) -> None:
        """The last values stay for Ray's 20 s."""

    def _set(self, samples: Iterable[Sample]) -> None:
        for sample in samples:
            self._gauges[sample.name].set(sample.value, tags=dict(sample.labels))
