"""A run of fake workers, followed turn by turn."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from raymega.config.schema import Config
from raymega.driver.controller import Controller
from raymega.driver.hands.publishing import Imprint
from raymega.driver.launch import Launch
from raymega.driver.records.progress import Facts
from raymega.driver.records.run_dir import RunDirectory
from tests.driver.following import Following


class Rig:
    """Launches of one run directory, and its workers' processes."""

    def __init__(self, path: Path) -> None:
        self.name = path.name
        self.run_dir = RunDirectory(path=path / self.name)
        self.run_dir.create()

    def launch(
        self, *, dp: int = 2, pp: int = 1, steps: int = 10, every_steps: int = 0, lease_s: float = 5.0,
        orphan_lease_s: float = 15.0, **changes: Any,
    ) -> Launch:  # fmt: skip
        """Leases are long unless it is about them: a busy machine lets processes wait for a second."""
        config = Config.model_validate(
            {
                "run": {"name": self.name, "seed": 1, "device": "cpu"},
                "parallelism": {"data_parallel_size": dp, "pipeline_model_parallel_size": pp},
                "training": {"steps": steps, "batch_size": 8, "micro_batch_size": 2},
                "elastic": {"lease_s": lease_s, "orphan_lease_s": orphan_lease_s},
                "checkpoint": {"every_steps": every_steps},
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

    @contextmanager
    def held(self, *, after: int) -> Iterator[None]:
        """No step is committed after this one, for the time of the block."""
        file = self.run_dir.path / f"hold-{after}"
        file.touch()
        yield
        file.unlink()

    def pid(self, worker: str) -> int:
        return int((self.run_dir.path / f"pid-{worker}").read_text())

    def living_workers(self) -> list[int]:
        pids = [int(file.read_text()) for file in self.run_dir.path.glob("pid-*")]
        return [pid for pid in pids if is_alive(pid)]


class Run(Following):
    """A controller in this process, and what it has told so far."""

    def __init__(self, controller: Controller) -> None:
        super().__init__(lambda since: controller.news(since, 1.0))
        self.controller = controller

    @classmethod
    def begin(cls, launch: Launch) -> "Run":
        run = cls(Controller(launch))
        run.controller.start()
        return run

    @classmethod
    def taking_over(cls, launch: Launch) -> "Run":
        """A controller in the place of an earlier one of the same launch."""
        run = cls(Controller(launch))
        run.controller.take_over()
        return run


def is_alive(pid: int) -> bool:
    """Whether a process runs; one that is dead and not yet collected does not."""
    try:
        os.kill(pid, 0)
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in {"Z", "X"}
    except (ProcessLookupError, FileNotFoundError):
        return False
