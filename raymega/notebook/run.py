"""A run to be driven from a notebook, a script or a terminal, whoever has started it.

    run.wait(step=20)     run.metrics()    run.events()     run.logs(rank=1)     run.status      from its directory
    run.resize(dp=1)      run.drain(..)    run.stop() ..    messages to its controller, each answered with its reason

Verbs find the controller anew each time: it may have been replaced, or the kernel restarted.
"""

import math
import subprocess
import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa

from raymega.control.commands import Answer
from raymega.driver.arguments import whole
from raymega.driver.live_run import LiveRun
from raymega.driver.records.accounting import progress_of
from raymega.driver.records.json_lines import read_lines
from raymega.driver.records.line_shapes import EVENT_LINE
from raymega.driver.records.lock import read_owner
from raymega.driver.records.rank_log import log_of_rank
from raymega.driver.records.reading import checkpoint_of, sets_of
from raymega.driver.records.run_dir import RunDirectory
from raymega.driver.records.run_status import RunStatus, status_of
from raymega.driver.records.steps import newest_step
from raymega.errors import ClusterError, ConfigError
from raymega.notebook.controls import controls_of
from raymega.notebook.plans import ShownPlan
from raymega.notebook.reaching import drained, how_it_ended, mesh_asked, order_to_kill, reached
from raymega.notebook.showing import Drawn, plot_of, run_html
from raymega.notebook.tables import metrics_of
from raymega.notebook.timelines import timeline_of
from raymega.notebook.waiting import committed_of, wait_for, wait_until_back
from raymega.pictures.svg import Svg
from raymega.report.report import write_report


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Run:
    """A run by its directory. `keeper`: the process that keeps it, where this one has started it."""

    name: str
    directory: RunDirectory
    keeper: "subprocess.Popen[bytes] | None" = field(default=None, compare=False)

    @classmethod
    def at(cls, directory: RunDirectory) -> "Run":
        """The run in `directory`."""
        return cls(name=directory.path.name, directory=directory)

    # What its directory tells.

    @property
    def status(self) -> RunStatus:
        """Where it stands. Raises: StateError before it has begun."""
        return status_of(self.directory)

    @property
    def committed(self) -> int:
        """Committed steps."""
        return committed_of(self.directory)

    @property
    def plan(self) -> ShownPlan | None:
        """The plan in force, or the last one, which shows itself; None before the first."""
        progress = progress_of(self.directory)
        return ShownPlan.of(progress) if progress is not None else None

    def metrics(self) -> pa.Table:
        """One row a committed step, null where nothing is known; `.to_pandas()` where pandas is wanted."""
        return metrics_of(self.directory)

    def events(self) -> list[dict[str, Any]]:
        """What happened, and why what was done, oldest first."""
        return list(read_lines(self.directory.events, shape=EVENT_LINE))

    def logs(self, *, rank: int) -> str:
        """What the worker of this rank of the plan in force has printed. Raises: ConfigError if there is none."""
        return log_of_rank(self.directory, rank=rank).read_text(encoding="utf-8", errors="replace")

    def loss_plot(self, *, beside: "Run | None" = None) -> Svg:
        """The loss over steps, with what happened; `beside`: another run's, dashed."""
        return plot_of(self.directory, beside=None if beside is None else beside.directory)

    def timeline(self, *, step: int | None = None) -> Drawn:
        """What each worker did: over the time that the run was up, and in a step that was traced (the newest)."""
        return timeline_of(self.directory, step=step)

    def controls(self) -> Any:  # Any: ipywidgets has no types
        """Buttons for what can be asked of it. Raises: ConfigError where ipywidgets is not installed."""
        plan, config = self.plan, self.directory.read_config()
        return controls_of(self, lr=config.training.lr, devices=plan.mesh.size if plan is not None else 1)

    def report(self, *, cluster: str | None = None) -> Path:
        """Write all that its directory tells as one page of HTML into it; returns the file."""
        return write_report(self.directory, cluster=cluster)

    def _repr_html_(self) -> str:
        return run_html(self.directory)

    def sample(self, text: str = "", *, tokens: int = 60, seed: int = 0) -> str:
        """Let the newest checkpoint go on with `text`. Raises: StateError while there is none."""
        from raymega.worker.sample import Draws, sample_text

        checkpoint = checkpoint_of(self.directory, step="auto")
        draws = Draws(num_tokens=whole(tokens, name="tokens"), seed=whole(seed, name="seed", least=0))
        return sample_text(self.directory.read_config(), checkpoint=checkpoint, prompt=str(text), draws=draws)

    def export(self, path: str | Path, *, step: int | str = "auto") -> str:
        """Write the newest checkpoint's parameters as safetensors into the directory `path`; what was written."""
        from raymega.driver.records.exporting import export_run

        return str(export_run(self.directory, to=str(path), step=str(step)))

    def fork(self, name: str, *, step: int | str = "auto", **overrides: Any) -> "Run":
        """Lay down a run `name` beside it that goes on from one of its checkpoints: `raymega.launch(run.fork("hot"))`.

        Args:
            step: auto: the newest whole one.
            overrides: sections laid over its config: `training={"lr": 1e-3}`.
        """
        from raymega.driver.forking import fork_run

        forked = fork_run(self.directory, name=name, step=str(step), overrides=tuple(sets_of(overrides)))
        print(f"run {name} is forked from {forked.of} after step {forked.step}: {forked.run.path}")
        return Run.at(forked.run)

    def wait(self, *, step: int | None = None, saved: int | None = None, limit_s: float = math.inf) -> "Run":
        """Block until `step` steps are committed, or the run is over; an interrupt leaves the run as it is.

        Args:
            saved: instead, until the checkpoint of that step is complete.
        Raises: StateError if it is over before that; ClusterError if it takes longer than `limit_s`.
        """
        wait_for(self.directory, step=step, saved=saved, limit_s=limit_s, is_over=self.is_over)
        return self

    def is_over(self) -> bool:
        """Whether nobody leads it any more; a run that is only starting is not over, nor one that others go on with."""
        if self.keeper is not None and self.keeper.poll() is None:
            return False
        owner = read_owner(self.directory.lock)
        return owner is None or owner.is_over(time.time())

    # What its controller is asked; it takes effect at the next boundary that all workers share.

    def pause(self, *, after_step: int | None = None) -> str:
        """Stand at that boundary, or later, after so many steps, until `resume` or `step`."""
        return self._asked(lambda live: live.pause(after_step=after_step))

    def resume(self) -> str:
        """Go on."""
        return self._asked(LiveRun.resume)

    def step(self, steps: int = 1) -> str:
        """Go on for so many steps, and stand again."""
        return self._asked(lambda live: live.step(steps))

    def set(self, *, lr: float) -> str:
        """Train with `lr` in the place of `training.lr`; the schedule scales it as before."""
        return self._asked(lambda live: live.set(lr=lr))

    def checkpoint(self) -> str:
        """Save that boundary's next step."""
        return self._asked(LiveRun.checkpoint)

    def rewind(self, *, step: int) -> str:
        """Go back to the checkpoint of `step`, which is still kept, and train on from there; returns once it is there.

        Raises: StateError naming the checkpoints that are kept. A run that is over goes back as it is started again:
            `launch(run, resume=step)`.
        """
        reason = self._asked(lambda live: live.rewind(step))
        wait_until_back(self.directory, is_over=self.is_over)
        return reason

    def resize(
        self, *, devices: int | None = None, dp: int | None = None, tp: int | None = None, pp: int | None = None
    ) -> str:
        """Go on with so many devices, or as this mesh, from a boundary on; an axis that is not named has one rank."""
        mesh = mesh_asked(dp=dp, tp=tp, pp=pp)
        if (devices is None) == (mesh is None):
            raise ConfigError("resize wants to know one thing: either devices=N or some of dp=, tp=, pp=.")
        return self._asked(lambda live: live.resize(devices=devices, mesh=mesh))

    def drain(self, node: str, *, deadline_s: float = 30.0) -> str:
        """Leave `node` (its id or its beginning, host, or address) before it is gone."""
        return self._asked(lambda live: drained(live, node, deadline_s=deadline_s))

    def kill(self, *, worker: int) -> str:
        """Have the worker of this rank end itself by SIGKILL within a step that is near."""
        plan = self.plan
        with self._live() as live:
            last = newest_step(self.directory.metrics)  # only now: connecting takes steps
            order = order_to_kill(worker, plan=plan, last=last)
            live.chaos((order,))
        return order

    def chaos(self, *orders: str, without: Mapping[int, int] | None = None) -> str:
        """Have things go wrong on purpose, each at its point: `run.chaos("kill stage=1 step=40")`.

        Args:
            without: how many devices of which nodes, by number, it does without from now on: `{0: 2}`; `{}`: of none.
        """
        with self._live() as live:
            live.chaos(orders, without=without)
        said = [f"at its point: {'; '.join(orders)}"] if orders else []
        return "; ".join(said if without is None else [*said, f"without devices of nodes: {dict(without) or 'none'}"])

    def stop(self, *, grace_s: float | None = None) -> str:
        """End after the next step, saved; waits for the end. One that is over is left alone."""
        if self.is_over():
            return f"it is over already: {how_it_ended(self.directory)}"
        with self._live() as live:
            ended = live.stop(grace_s=grace_s)
        if self.keeper is not None:
            self.keeper.wait()
        return ended.reason if ended is not None else how_it_ended(self.directory)

    def _asked(self, ask: Callable[[LiveRun], Answer]) -> str:
        with self._live() as live:
            answer = ask(live)
        if not answer.accepted:
            raise ClusterError(f"run {self.name} goes on as it is: {answer.reason}")
        return answer.reason

    def _live(self) -> AbstractContextManager[LiveRun]:
        return reached(self.name, self.directory, is_over=self.is_over)

    def __repr__(self) -> str:
        return str(self)

    def __str__(self) -> str:
        return str(self.status) if self.directory.is_known() else f"{self.name}  starting"
