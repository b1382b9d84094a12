"""A run through the interface of Ray Train, for scripts that have it and for Ray Tune.

    MegaTrainer("nano", run_config=ray.train.RunConfig(name="demo", storage_path="/shared")).fit() -> ray.train.Result

    RunConfig                                       run
    name, storage_path                              run.name, run.dir; of a URI: checkpoint.path below it
    checkpoint_config.num_to_keep                   checkpoint.keep
    failure_config.max_failures                     starts anew from the newest checkpoint, after an end with an error
    failure_config.max_preemption_failures          the same after the run was preempted (exit code 75)
    callbacks                                       told of every step, and of every checkpoint
    ScalingConfig
    num_workers, use_gpu, resources_per_worker      run.devices, run.device, run.cpus_per_worker

What raymega repairs within a run is no failure. What it cannot honour is refused. A name that has a run in its storage
goes on with it, as a Ray Train run does.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow.fs
import ray.train

from raymega.checkpoint.find import published_steps
from raymega.checkpoint.store import join_uri, open_store, write_bytes
from raymega.config.schema import Config
from raymega.control.commands import WriteStep
from raymega.control.events import CheckpointPublished, StopAsked
from raymega.control.loop import Turn
from raymega.driver.finding import end_of
from raymega.driver.preflight import resolved
from raymega.driver.records.reading import Words, config_from
from raymega.driver.records.run_dir import RunDirectory
from raymega.driver.records.steps import all_steps
from raymega.driver.train import train
from raymega.errors import ConfigError, RaymegaError
from raymega.layout.checkpoint_layout import directory_of

PREEMPTED, SIGNALS = 75, ("interrupt", "terminate", "hangup")
TRIED_AGAIN = (1, 4, 5, PREEMPTED)  # what another start may mend: no faulty config, data, loss that is not finite
NOT_OF_SCALING = {
    "placement_strategy": "PACK", "accelerator_type": None, "label_selector": None, "use_tpu": False, "topology": None,
}  # fmt: skip
NOT_OF_FAILURES = {"controller_failure_limit": -1, "relax_collectives_on_preemption": False, "preemption_grace_s": 0.0}
SMALL = ("config.yaml", "metrics.jsonl", "events.jsonl", "summary.txt")  # what is laid into a remote storage at the end


class MegaTrainingFailed(ray.train.TrainingFailedError):
    """The run ended, and not all its steps are committed."""

    def __init__(self, reason: str, exit_code: int) -> None:
        super().__init__(f"raymega ended with exit code {exit_code}: {reason}")
        self.reason, self.exit_code = reason, exit_code

    def __reduce__(self) -> tuple[Any, ...]:  # Any: what pickle wants
        return type(self), (self.reason, self.exit_code)


class MegaTrainer:
    """Trains a config of raymega's, and gives what a trainer of Ray Train gives.

    Args:
        config: a preset, a file, a config, or the sections of one.
        run_config: name, storage, checkpoints, failures, callbacks; default: as `config` says.
        scaling_config: how many workers, and of what kind; default: as `config` says.
        overrides: sections laid over the config: `training={"steps": 50}`.
    Raises: ConfigError for a config that is faulty, or settings that cannot be honoured.
    """

    def __init__(
        self, config: Words = "nano", *, run_config: ray.train.RunConfig | None = None,
        scaling_config: ray.train.ScalingConfig | None = None, **overrides: Any,
    ) -> None:  # fmt: skip
        read = config_from(config, overrides=overrides)
        read = read if scaling_config is None else scaled(read, scaling_config)
        self.config = read if run_config is None else stored(read, run_config)
        self._callbacks = tuple(run_config.callbacks or ()) if run_config is not None else ()
        self._storage = _remote(run_config)
        self._tries = Tries.of(run_config)
        self._run_config = run_config

    def fit(self) -> ray.train.Result:
        """Train to the end, wherever a run of this name stands.

        Raises: MegaTrainingFailed, which is a ray.train.TrainingFailedError, if not all steps could be committed.
        """
        full, run = resolved(self.config)
        watch = Reports(self._callbacks, run_config=self._run_config)
        failure = self._tried(full, run, watch)
        result = result_of(run, full, storage=self._storage, error=failure)
        if failure is None:
            return result
        watch.failed(failure)
        raise failure

    def _tried(self, config: Config, run: RunDirectory, watch: "Reports") -> MegaTrainingFailed | None:
        tries = self._tries
        while True:
            failure = _failure(config, run, watch)
            if failure is None:
                return None
            tries = tries.without(failure.exit_code)
            if tries.are_used_up or failure.exit_code not in TRIED_AGAIN or watch.was_stopped:
                return failure
            print(f"{failure}; the run is started again")


def _failure(config: Config, run: RunDirectory, watch: "Reports") -> MegaTrainingFailed | None:
    """Train; what has gone wrong, if anything."""
    try:
        code = train(config, watch=watch)
    except RaymegaError as error:
        return MegaTrainingFailed(str(error), error.exit_code)
    if code == 0:
        return None
    over = end_of(run)
    return MegaTrainingFailed(str(over["reason"]) if over is not None else "it did not say why", code)


@dataclass(frozen=True, slots=True, kw_only=True)
class Tries:
    """How often a run may be started again, after errors and after preemptions."""

    failures: float = 0
    preemptions: float = math.inf

    @classmethod
    def of(cls, run_config: ray.train.RunConfig | None) -> "Tries":
        """As `failure_config` says; -1 is without a limit."""
        if run_config is None or run_config.failure_config is None:
            return cls()
        told = run_config.failure_config
        failures, preemptions = (
            math.inf if most < 0 else most for most in (told.max_failures, told.max_preemption_failures)
        )
        return cls(failures=failures, preemptions=preemptions)

    def without(self, exit_code: int) -> "Tries":
        """One less of its kind."""
        if exit_code == PREEMPTED:
            return Tries(failures=self.failures, preemptions=self.preemptions - 1)
        return Tries(failures=self.failures - 1, preemptions=self.preemptions)

    @property
    def are_used_up(self) -> bool:
        return min(self.failures, self.preemptions) < 0


def stored(config: Config, run_config: ray.train.RunConfig) -> Config:
    """The config with the name, the storage and the checkpoints of `run_config`. Raises: ConfigError."""
    _refuse(run_config)
    run, remote = config.run.model_copy(update={"name": run_config.name}), _remote(run_config)
    checkpoint, kept = config.checkpoint, run_config.checkpoint_config
    if remote is not None:
        checkpoint = checkpoint.model_copy(update={"path": join_uri(remote, "checkpoints")})
    elif run_config.storage_path is not None:
        place = Path(str(run_config.storage_path).removeprefix("file://")).expanduser()
        run = run.model_copy(update={"dir": str(place.absolute())})
    if kept is not None and kept.num_to_keep is not None:
        checkpoint = checkpoint.model_copy(update={"keep": kept.num_to_keep})
    return config.model_copy(update={"run": run, "checkpoint": checkpoint})


def _refuse(run_config: ray.train.RunConfig) -> None:
    """Refuse what cannot be honoured. Raises: ConfigError."""
    kept = run_config.checkpoint_config
    faults = _unheeded(run_config.failure_config, kind="FailureConfig", usual=NOT_OF_FAILURES)
    if run_config.storage_filesystem is not None:
        faults.append("RunConfig.storage_filesystem is set; raymega finds storages by URI. Give storage_path as one.")
    if run_config.worker_runtime_env:
        faults.append(
            "RunConfig.worker_runtime_env is set; workers have the cluster's environment. Give it to ray.init."
        )
    if kept is not None and kept.checkpoint_score_attribute is not None and kept.num_to_keep is not None:
        faults.append(
            "CheckpointConfig: num_to_keep with checkpoint_score_attribute may remove the newest checkpoint, from "
            "which a run goes on. Leave one out; Result.get_best_checkpoint finds the best of those that are kept."
        )
    if faults:
        raise ConfigError(" ".join(faults))


def _unheeded(told: object, *, kind: str, usual: Mapping[str, object]) -> list[str]:
    """What is set to something else than usual, where nothing can be made of it."""
    wrong = [name for name, value in usual.items() if getattr(told, name, value) != value]
    return [f"{kind}.{name} is set; raymega makes nothing of it. Leave it out." for name in wrong]


def scaled(config: Config, scaling: ray.train.ScalingConfig) -> Config:
    """The config with the workers of `scaling`; a range is from `elastic.min_devices` to `run.devices`.

    Raises: ConfigError for what cannot be honoured.
    """
    asked, resources = scaling.num_workers, scaling.resources_per_worker or {}
    faults = _unheeded(scaling, kind="ScalingConfig", usual=NOT_OF_SCALING)
    least, most = asked if isinstance(asked, tuple) else (config.elastic.min_devices, asked or 1)
    cpus = resources.get("CPU", config.run.cpus_per_worker)
    gpus = resources.get("GPU", int(bool(scaling.use_gpu)))
    if resources.keys() - {"CPU", "GPU"} or cpus < 1 or cpus != int(cpus) or gpus != int(bool(scaling.use_gpu)):
        faults.append(f"ScalingConfig.resources_per_worker is {resources}; ask for whole CPUs, and 1 GPU with use_gpu.")
    if faults:
        raise ConfigError(" ".join(faults))
    run = config.run.model_copy(
        update={"devices": most, "device": "cuda" if scaling.use_gpu else "cpu", "cpus_per_worker": int(cpus)}
    )
    return config.model_copy(
        update={"run": run, "elastic": config.elastic.model_copy(update={"min_devices": least})}
    )  # fmt: skip


def _remote(run_config: ray.train.RunConfig | None) -> str | None:
    """The run's place in a storage that is not a directory."""
    if run_config is None or run_config.storage_path is None:
        return None
    place = str(run_config.storage_path)
    return join_uri(place, str(run_config.name)) if "://" in place and not place.startswith("file://") else None


@dataclass(frozen=True, slots=True, kw_only=True)
class RunContext:
    """What callbacks of Ray Train are told of the run."""

    run_config: ray.train.RunConfig | None

    def get_run_config(self) -> ray.train.RunConfig | None:
        """As it was given."""
        return self.run_config


class Reports:
    """Told of every turn; passes steps and checkpoints on to callbacks. `was_stopped`: by a signal to this process."""

    def __init__(
        self, callbacks: tuple[ray.train.UserCallback, ...], *, run_config: ray.train.RunConfig | None
    ) -> None:
        self._callbacks, self._context, self.was_stopped = callbacks, RunContext(run_config=run_config), False
        self._newest: dict[str, Any] = {}

    def __call__(self, turn: Turn) -> None:
        self.was_stopped |= isinstance(turn.event, StopAsked) and turn.event.by in SIGNALS
        for command in turn.decision.commands:
            if isinstance(command, WriteStep):
                self._newest = command.record.to_json()
                self._report(None)
        if isinstance(turn.event, CheckpointPublished):
            self._report(checkpoint_at(turn.event.uri))

    def failed(self, error: Exception) -> None:
        """The run has failed."""
        for callback in self._callbacks:
            callback.after_exception(self._context, {0: error})

    def _report(self, checkpoint: ray.train.Checkpoint | None) -> None:
        for callback in self._callbacks:
            callback.after_report(self._context, [dict(self._newest)], checkpoint)


def checkpoint_at(uri: str) -> ray.train.Checkpoint:
    """A checkpoint of raymega's as one of Ray Train's: `to_directory` and `as_directory` bring its files."""
    if "://" not in uri:
        return ray.train.Checkpoint(uri, filesystem=pyarrow.fs.LocalFileSystem())
    filesystem, path = pyarrow.fs.FileSystem.from_uri(uri)
    return ray.train.Checkpoint(path, filesystem=filesystem)


def result_of(
    run: RunDirectory, config: Config, *, storage: str | None, error: MegaTrainingFailed | None
) -> ray.train.Result:
    """What a run's directory and its checkpoints tell."""
    steps = list(all_steps(run.metrics))
    by_step = {line["step"]: line for line in steps}
    place = config.checkpoint.path or str(run.checkpoints)
    kept = [
        (checkpoint_at(join_uri(place, directory_of(step))), by_step.get(step, {}))
        for step in published_steps(open_store(place))
    ]
    if storage is not None:
        for name in SMALL:
            if (run.path / name).exists():
                write_bytes(open_store(storage), name, (run.path / name).read_bytes())
    filesystem, path = _place_of(storage, run)
    return ray.train.Result(
        metrics=steps[-1] if steps else None,
        checkpoint=kept[-1][0] if kept else None,
        error=error,
        path=path,
        metrics_dataframe=pd.DataFrame(steps),
        best_checkpoints=kept,
        _storage_filesystem=filesystem,
    )


def _place_of(storage: str | None, run: RunDirectory) -> tuple[pyarrow.fs.FileSystem, str]:
    if storage is None:
        return pyarrow.fs.LocalFileSystem(), str(run.path)
    return pyarrow.fs.FileSystem.from_uri(storage)
