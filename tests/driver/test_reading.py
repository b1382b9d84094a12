"""What people's words in Python stand for: a config out of numbers of other libraries, or of what is none."""

from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest

from raymega.driver.records.reading import config_from, run_directory
from raymega.driver.records.run_dir import RunDirectory
from raymega.errors import ConfigError, StateError

LR = np.float32(1e-3)


def test_a_run_in_capitals_is_told_the_name_that_it_has(tmp_path: Path, monkeypatch):
    for name in ("demo", "other", "quick-otter"):
        RunDirectory(path=tmp_path / "runs" / name).create()
        (tmp_path / "runs" / name / "config.yaml").touch()
    monkeypatch.chdir(tmp_path)
    for said, meant in (("DEMO", "demo"), ("Quick-Oter", "quick-otter")):
        with pytest.raises(StateError, match=rf"Did you mean {meant}\?"):
            run_directory(said)


@pytest.mark.parametrize("as_overrides", [True, False])
def test_numbers_and_paths_of_other_libraries_make_the_config_that_pythons_make(as_overrides: bool):
    given = {"training": {"steps": np.int64(50), "lr": LR, "clip_grad": Fraction(1, 2)}, "run": {"dir": Path("a/b")}}
    told = {"training": {"steps": 50, "lr": float(LR), "clip_grad": 0.5}, "run": {"dir": "a/b"}}
    made, same = (
        config_from("nano", overrides=said) if as_overrides else config_from(said, overrides={})
        for said in (given, told)
    )  # fmt: skip
    assert made == same


@pytest.mark.parametrize("as_overrides", [True, False])
@pytest.mark.parametrize("value", [object(), {1, 2}, np.arange(3), b"x", 1j])
def test_what_a_config_cannot_say_is_refused_by_its_key(as_overrides: bool, value: object):
    said = {"training": {"lr": value}}
    with pytest.raises(ConfigError, match=r"training\.lr: .* found; numbers, text, lists and sections"):
        config_from(*(("nano",) if as_overrides else (said,)), overrides=said if as_overrides else {})
