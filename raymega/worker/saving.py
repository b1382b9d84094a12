"""A worker's saves: what it writes of a checkpoint, and how it tells of it."""

from raymega.checkpoint.save import FilesWritten, Saver, SaveResult
from raymega.checkpoint.shard_writer import Commit
from raymega.checkpoint.snapshot import items_to_write
from raymega.checkpoint.store import open_store
from raymega.layout.checkpoint_layout import Share
from raymega.worker.interface import SaveFailed, ShardsSaved, WorkerSettings
from raymega.worker.reports import Reports
from raymega.worker.state import TrainState, shares_of
from raymega.worker.world import World


class Saves:
    """Lives as long as the worker: a save that is underway outlasts its generation."""

    def __init__(self, *, settings: WorkerSettings, reports: Reports) -> None:
        self._settings, self._reports = settings, reports
        self._saver: Saver | None = None
        self._world: World | None = None
        self._shares: tuple[Share, ...] | None = None

    def prepare(self, state: TrainState, *, world: World, is_awaited: bool) -> None:
        """What is saved from here on is this worker's part under the plan of `world`.

        The memory of the copies is taken now, or by the first save where a step that broke waits for this worker.
        """
        self._world, self._shares = world, None
        if not is_awaited:
            self._opened().reserve(items_to_write(state.items(), self._part))

    @property
    def _part(self) -> tuple[Share, ...]:
        if self._shares is None:
            assert self._world is not None, "a generation begins before it saves"
            self._shares = shares_of(self._settings.config, world=self._world)
        return self._shares

    def save(self, state: TrainState, *, generation: int) -> float:
        """Copy the state and write it in the background; returns the seconds that the copy took."""
        state.check_sent(before="before a save")
        config = self._settings.config
        return self._opened().start(
            items_to_write(state.items(), self._part),
            commit=Commit(run_id=config.run.name or "", step=state.committed, generation=generation),
            wait_s=config.checkpoint.timeout_s,
        )

    def finish(self) -> None:
        """Wait until nothing is being written."""
        if self._saver is not None:
            self._saver.wait(self._settings.config.checkpoint.timeout_s)

    def _opened(self) -> Saver:
        if self._saver is None:
            store = open_store(self._settings.checkpoint_dir)
            self._saver = Saver(worker=self._settings.worker, store=store, report=self._report)
        return self._saver

    def _report(self, result: SaveResult) -> None:
        commit = result.commit
        if isinstance(result, FilesWritten):
            self._reports.add(
                ShardsSaved(
                    step=commit.step,
                    generation=commit.generation,
                    files=result.files,
                    stall_s=result.stall_s,
                    write_s=result.write_s,
                )
            )
        else:
            self._reports.add(SaveFailed(step=commit.step, generation=commit.generation, reason=result.reason))
