"""What people's words stand for, typed or in Python: a config, a step to resume at, a run's directory, a cluster."""

import json
import os
import reprlib
from numbers import Integral, Real
from pathlib import Path, PurePath
from typing import Any

import yaml

from raymega.config.fault import nearest
from raymega.config.load import load, to_yaml
from raymega.config.presets import preset_names, preset_text
from raymega.config.schema import Config
from raymega.driver.records.run_dir import RunDirectory
from raymega.errors import ConfigError, StateError
from raymega.plan.calibration import calibration_from, is_calibration
from raymega.plan.cluster import Cluster
from raymega.plan.cluster_presets import cluster_from, cluster_of
from raymega.plan.fitted import PUBLISHED, Constants

RUNS = Path("runs")
STEP_DIGITS = 19  # of the largest number of steps that a config may ask for
Resume = int | str
"""A step, `auto` or `none`."""
Words = str | Config | dict[str, Any]
"""A preset, a file, a config, or the sections of one."""


def config_of(word: str, *, overrides: tuple[str, ...]) -> Config:
    """The config that a file or a preset says, with `--set` laid over it.

    Raises: ConfigError if there is neither, it cannot be read, or it is faulty.
    """
    if word in preset_names() and not os.path.exists(word):
        return load(preset_text(word), source=f"preset {word}", overrides=overrides)
    return load(_text_of(Path(word)), source=word, overrides=overrides)


def config_from(config: Words, *, overrides: dict[str, Any]) -> Config:
    """The config that `config` stands for, with `overrides` laid over it. Raises: ConfigError."""
    sets = tuple(sets_of(overrides))
    if isinstance(config, str):
        return config_of(config, overrides=sets)
    text = to_yaml(config) if isinstance(config, Config) else yaml.safe_dump(plain(config, key="config"))
    return load(text, source="config", overrides=sets)


def plain(value: Any, *, key: str) -> Any:
    """A value of a config as YAML and JSON know it: numbers, text and paths of other libraries become Python's.

    Raises: ConfigError naming the key of one that is nothing of these.
    """
    match value:
        case None | bool():
            return value
        case str() | PurePath():
            return str(value)
        case Integral():
            return int(value)
        case Real():
            return float(value)
        case dict():
            return {str(name): plain(inner, key=f"{key}.{name}") for name, inner in value.items()}
        case list() | tuple():
            return [plain(inner, key=key) for inner in value]
    raise ConfigError(
        f"{key}: {reprlib.repr(value)} found; numbers, text, lists and sections make a config. Write one of these."
    )


def sets_of(overrides: dict[str, Any], prefix: str = "") -> list[str]:
    """`a.b=value` for each value of nested sections."""
    found: list[str] = []
    for key, value in overrides.items():
        if isinstance(value, dict):
            found += sets_of(value, f"{prefix}{key}.")
        else:
            found.append(f"{prefix}{key}={json.dumps(plain(value, key=f'{prefix}{key}'))}")
    return found


def _text_of(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8-sig")
    except FileNotFoundError as error:
        near = nearest(str(file), preset_names())
        hint = f"Did you mean the preset {near}?" if near else f"Presets are {', '.join(preset_names())}."
        raise ConfigError(f"{file} is neither a file nor a preset. {hint}") from error
    except IsADirectoryError as error:
        raise ConfigError(f"{file} is a directory; a config is a file. Did you mean {file / 'config.yaml'}?") from error
    except PermissionError as error:
        raise ConfigError(f"{file} may not be read by this user. Give read permission to it.") from error
    except OSError as error:
        raise ConfigError(f"{file} cannot be read: {error.strerror}. Name a YAML file, or a preset.") from error
    except UnicodeDecodeError as error:
        raise ConfigError(
            f"{file} is not UTF-8 text: {error.reason} at byte {error.start}. Save it as UTF-8."
        ) from error


def resume_of(word: str, *, option: str = "--resume") -> Resume:
    """Read which checkpoint is meant. Raises: ConfigError if it is no step, `auto` or `none`."""
    if word in ("auto", "none"):
        return word
    if word.isascii() and word.isdigit() and len(word) <= STEP_DIGITS:
        return int(word)
    near = nearest(word[:STEP_DIGITS], ("auto", "none"))
    said = word if len(word) <= 40 else f"{word[:40]}..."
    raise ConfigError(
        f"{option}: {said} found; auto, none or a step is wanted. "
        + (f"Did you mean {near}?" if near else "`raymega ckpt ls RUN` lists the steps that are kept.")
    )


def run_directory(word: str) -> RunDirectory:
    """The directory of the run that has this name below ./runs, or this path. Raises: StateError if there is none."""
    for path in (Path(word), RUNS / word):
        run = RunDirectory(path=path)
        if any(map(os.path.isfile, (run.config, run.launched, run.lock))):  # no error for what can be no path
            return RunDirectory(path=path.resolve())
    known = sorted(path.parent.name for path in RUNS.glob("*/config.yaml"))
    near = nearest(Path(word).name, known)
    hint = f"Did you mean {near}?" if near else f"Runs here: {', '.join(known[:10]) or 'none'}."
    raise StateError(f"{word} is no run: neither {word} nor {RUNS / word} has a config.yaml. {hint}")


def is_run(word: str) -> bool:
    """Whether `run_directory` finds a run."""
    return any(os.path.isfile(path / "config.yaml") for path in (Path(word), RUNS / word))


def checkpoints_uri(word: str) -> str:
    """Where the checkpoints of a run lie; a URI or a directory that is no run stands for itself."""
    if "://" in word or (os.path.isdir(word) and not os.path.isfile(Path(word) / "config.yaml")):
        return word
    return _checkpoints_of(run_directory(word))


def _checkpoints_of(run: RunDirectory) -> str:
    return run.read_config().checkpoint.path or str(run.checkpoints)


def checkpoint_of(run: RunDirectory, *, step: str) -> str:
    """The directory of a run's checkpoint: of a step, or `auto`. Raises: StateError if there is none that is whole."""
    from raymega.checkpoint.find import at_step, newest_complete

    start, uri = resume_of(step, option="step"), _checkpoints_of(run)
    found = at_step(uri, step=start) if isinstance(start, int) else newest_complete(uri)
    if found is None:
        raise StateError(f"{uri} has no checkpoint yet. Wait for one, or set checkpoint.every_steps lower.")
    return found.uri


def read_hardware(word: str) -> tuple[Cluster, Constants]:
    """`dgx-a100:16`, or the path of a YAML file: of a cluster, or of a calibration, which has its own constants."""
    path = Path(word)
    if path.suffix not in (".yaml", ".yml"):
        return cluster_of(word), PUBLISHED
    try:
        data = yaml.safe_load(path.read_text(encoding="utf-8-sig"))
    except FileNotFoundError as error:
        raise ConfigError(
            f"--cluster: there is no file {word}. Give a YAML file, or a machine as dgx-a100:16."
        ) from error
    except OSError as error:
        raise ConfigError(f"--cluster: {word} cannot be read: {error.strerror}. Name a YAML file.") from error
    except (yaml.YAMLError, ValueError) as error:
        raise ConfigError(f"--cluster: {word} is not YAML: {error}. Mend it.") from error
    return calibration_from(data) if is_calibration(data) else (cluster_from(data), PUBLISHED)
