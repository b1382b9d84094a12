"""The whole story on one machine: `python -m workloads.story [KEY=VALUE ...]`, which is what `make train` does.

    head 3, other 1      dp=2 pp=2     four workers train `nano`
    head 3               smaller       the other machine is told that it goes in 30 s, and is left between two steps
    head 3                             a worker dies within a step; the others finish it, and a new one comes
    head 3, other 1      dp=2 pp=2     the other machine is back; the run grows onto it

No step is lost on the way, and the loss is that of a run that nothing happens to. The report shows it all.
"""

import sys
import threading
import time
from collections import Counter
from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass

import ray

from raymega.cli.plan import plan_report
from raymega.driver.cluster.ray_session import ray_session
from raymega.driver.preflight import resolved
from raymega.driver.records.accounting import progress_of
from raymega.driver.records.reading import config_of
from raymega.driver.train import train
from raymega.errors import ClusterError, RaymegaError
from raymega.notebook.run import Run
from raymega.plan.plan import Plan
from raymega.report.foretold import foretold, foretold_text
from raymega.report.report import write_report
from workloads.story.machine import Machine

HEAD, OTHER = 3, 1  # workers
LEAVES, DIES, RETURNS = 0.25, 0.5, 0.65  # of the steps
NOTICE_S = 30.0
CALM = ("elastic.steady_s=2", "log.every_steps=10")  # a node that is back need not prove itself for long
LOOK_S, JOIN_LIMIT_S = 0.2, 60.0


def main(overrides: list[str]) -> int:
    """Train `nano` with `overrides`, and let the story happen to it."""
    config, run_dir = resolved(config_of("nano", overrides=(*CALM, *overrides)))
    print(plan_report(config, cluster=f"local:{HEAD + OTHER}", precision=None, survivors=True).text(explain=False))
    with ray_session(cpus=HEAD, leftovers=(run_dir.lock,)) as session:
        print(f"the head is up after {session.start_s:.1f} s; another machine joins it", flush=True)
        stage = Stage(address=ray.get_runtime_context().gcs_address, marks=session.marks)
        with closing(stage.machine()) as other:
            wait_for_machines(2)
            story = Story(run=Run.at(run_dir), steps=config.training.steps, stage=stage, other=other)
            with closing(story):
                code = train(config, sample=True)
    print(foretold_text(foretold(run_dir, progress=progress_of(run_dir), cluster=None), cluster=None))
    print(f"report  {write_report(run_dir)}")
    return code


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    """Where machines join."""

    address: str
    marks: Mapping[str, str]

    def machine(self) -> Machine:
        return Machine(address=self.address, cpus=OTHER, marks=self.marks, notice_s=NOTICE_S)


class Story:
    """What happens to a run, in a thread of its own, until the run is over."""

    def __init__(self, *, run: Run, steps: int, stage: Stage, other: Machine) -> None:
        self._run, self._steps, self._stage, self._other = run, steps, stage, other
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._play, name="story")
        self._thread.start()

    def close(self) -> None:
        self._over.set()
        self._thread.join()

    def _play(self) -> None:
        if self._reaches(LEAVES):
            tell(f"the other machine is told that it goes in {NOTICE_S:.0f} s")
            code = self._other.leave()
            tell("it is gone, and was left before" if code == 0 else "it is gone, and was not left in time")
        if self._reaches(DIES):
            tell(f"a worker is to die: {self._run.kill(worker=rank_with_a_twin(self._run.plan))}")
        if self._reaches(RETURNS):
            tell("the other machine comes back")
            with closing(self._stage.machine()) as back:
                while not self._over.wait(LOOK_S):
                    if back.has_ended():
                        tell("it did not come up, see above; the run goes on without it")
                        return

    def _reaches(self, part: float) -> bool:
        """Wait until so much of the run is committed; False if the run ended before."""
        while self._run.committed < part * self._steps:
            if self._over.wait(LOOK_S):
                return False
        return True


def rank_with_a_twin(plan: Plan) -> int:
    """A worker whose stage another replica holds as well, so that the step can be finished without it."""
    held = Counter(stage for _, stage in plan.teams)
    replica, stage = max(plan.teams, key=lambda team: (held[team[1]], team))
    return plan.team(replica, stage)[0]


def wait_for_machines(wanted: int) -> None:
    """Return once so many are known to Ray. Raises: ClusterError if they do not come."""
    until = time.monotonic() + JOIN_LIMIT_S
    while sum(row["Alive"] for row in ray.nodes()) < wanted:
        if time.monotonic() > until:
            raise ClusterError(f"no second machine joined within {JOIN_LIMIT_S:.0f} s. See what keeps this one busy.")
        time.sleep(LOOK_S)


def tell(text: str) -> None:
    print(f"story: {text}", flush=True)


if __name__ == "__main__":
    try:
        code = main(sys.argv[1:])
    except RaymegaError as error:
        print(f"error: {error}", file=sys.stderr)
        code = error.exit_code
    sys.exit(code)
