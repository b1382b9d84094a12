"""A run of fake workers, followed turn by turn."""

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from raymega.config.schema import Config
from raymega.control.loop import Turn
from raymega.driver.controller import Controller, Launch
from raymega.driver.news import Ended
from raymega.driver.progress import Facts
from raymega.driver.publishing import Imprint
from raymega.driver.run_dir import RunDirectory

LIMIT_S = 60.0


class Rig:
    """Launches of one run directory, and its workers' processes."""

    def __init__(self, path: Path) -> None:
        self.name = path.name
        self.run_dir = RunDirectory(path=path / self.name)
        self.run_dir.create()

    def launch(self, *, dp: int = 2, pp: int = 1, steps: int = 10, **changes: Any) -> Launch:
        config = Config.model_validate(
            {
                "run": {"name": self.name, "seed": 1, "device": "cpu"},
                "parallelism": {"data_parallel_size": dp, "pipeline_model_parallel_size": pp},
                "training": {"steps": steps, "batch_size": 8, "micro_batch_size": 2},
                "elastic": {"lease_s": 1.0, "orphan_lease_s": changes.pop("orphan_lease_s", 3.0), "min_devices": 1},
                "checkpoint": {"every_steps": changes.pop("every_steps", 0)},
            }
        )
        return Launch(
            config=config,
            run_dir=self.run_dir,
            checkpoint_dir=str(self.run_dir.checkpoints),
            device="cpu",
            imprint=Imprint(run_id="r", config_digest="c", tokenizer="t", tensors="tests.driver.fake_data:no_tensors"),
            facts=Facts(name=self.name, run_dir=str(self.run_dir.path), config=config, flops_per_token=1),
            sources="tests.driver.fake_data:sources",
            factory=changes.pop("factory", "tests.driver.fake_worker:FakeWorker"),
            **changes,
        )

    def pid(self, worker: str) -> int:
        return int((self.run_dir.path / f"pid-{worker}").read_text())

    def living_workers(self) -> list[int]:
        pids = [int(file.read_text()) for file in self.run_dir.path.glob("pid-*")]
        return [pid for pid in pids if is_alive(pid)]


class Run:
    """A controller in this process, and what it has told so far."""

    def __init__(self, launch: Launch) -> None:
        self._follow(Controller(launch))
        self.controller.start()

    @classmethod
    def taking_over(cls, launch: Launch) -> "Run":
        """A controller in the place of an earlier one of the same launch."""
        run = cls.__new__(cls)
        run._follow(Controller(launch))
        run.controller.take_over()
        return run

    def _follow(self, controller: Controller) -> None:
        self.controller = controller
        self.turns: list[Turn] = []
        self.ended: Ended | None = None

    def until(self, done: Callable[[Turn], bool]) -> Turn:
        """The first turn, of those that come now, for which `done` holds."""
        limit = time.monotonic() + LIMIT_S
        while time.monotonic() < limit:
            for turn in self.more():
                if done(turn):
                    return turn
            assert self.ended is None, self.ended
        raise AssertionError(f"nothing of the kind within {LIMIT_S} s; last: {self.turns[-1:]}")

    def end(self) -> Ended:
        limit = time.monotonic() + LIMIT_S
        while self.ended is None and time.monotonic() < limit:
            self.more()
        assert self.ended is not None, f"not over within {LIMIT_S} s; last: {self.turns[-1:]}"
        return self.ended

    def more(self) -> list[Turn]:
        news = self.controller.news(self.turns[-1].seq if self.turns else 0, 1.0)
        self.turns += news.turns
        self.ended = news.ended
        return list(news.turns)

    def of(self, kind: type) -> list[Turn]:
        return [turn for turn in self.turns if isinstance(turn.event, kind)]


def is_alive(pid: int) -> bool:
    """Whether a process runs; one that is dead and not yet collected does not."""
    try:
        os.kill(pid, 0)
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in {"Z", "X"}
    except (ProcessLookupError, FileNotFoundError):
        return False


def wait_for(holds: Callable[[], bool], *, limit_s: float = LIMIT_S) -> float:
    """Seconds until `holds`."""
    began = time.monotonic()
    while not holds():
        assert time.monotonic() - began < limit_s, f"not so within {limit_s} s"
        time.sleep(0.01)
    return time.monotonic() - began
