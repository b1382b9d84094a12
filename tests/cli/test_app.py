"""Usage, help and exit codes of the command line."""

import json
import re
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
import typer.main

from raymega.cli.app import app
from raymega.cli.doctor import findings
from raymega.config.load import load
from raymega.config.presets import preset_text
from raymega.errors import ClusterError, ConfigError, DataError, NonFiniteError, RaymegaBug, RaymegaError, StateError


def commands(group, path=()):
    for name, command in group.commands.items():
        deeper = getattr(command, "commands", None)
        yield from commands(command, (*path, name)) if deeper else [((*path, name), command)]


def test_every_verb_has_an_example_that_names_it():
    for path, command in commands(typer.main.get_command(app)):
        assert f"raymega {' '.join(path)}" in (command.help or ""), path


def test_the_program_and_every_group_of_verbs_has_an_example_of_a_verb():
    program = typer.main.get_command(app)
    groups = {name: group for name, group in program.commands.items() if getattr(group, "commands", None)}
    assert groups.keys() >= {"ckpt", "config", "data"}
    for name, group in {"": program, **groups}.items():
        shown = re.findall(rf"^ *raymega {name} ?(\w+)", group.help, flags=re.MULTILINE)
        assert shown, name
        assert set(shown) <= group.commands.keys(), name


def test_every_mistyped_verb_and_option_is_answered_with_the_nearest(raymega):
    for path, command in commands(typer.main.get_command(app)):
        verb = path[-1]
        assert f"Did you mean '{verb}'" in raymega(*path[:-1], f"{verb}x").err
        for option in (name for parameter in command.params for name in parameter.opts if name.startswith("--")):
            assert re.search(rf"No such option: .*: .*{option}\b", raymega(*path, f"{option}x").err), (path, option)


def test_usage_says_once_what_may_be_repeated(raymega):
    for path, _ in commands(typer.main.get_command(app)):
        assert "...}" not in raymega(*path, "--help").out, path


@pytest.mark.parametrize(
    ("words", "hint"),
    [
        (["trian"], "Did you mean 'train'"),
        (["ckpt", "verfy"], "Did you mean 'verify'?"),
        (["train", "--resum", "auto"], "--resume"),
        (["train", "nanoo"], "Did you mean the preset nano?"),
        (["train", "--resume", "atuo"], "Did you mean auto?"),
        (["train", "--set", "model.hidden_sice=3"], "Did you mean model.hidden_size?"),
        (["train", "--set", "training.lr"], "this is no assignment"),
        (["submit", "nanoo"], "Did you mean the preset nano?"),
        (["submit", "nano"], "run.dir: runs is relative; under a Ray job"),
        (["drain"], "RUN and NODE, or RUN and --self, or --self alone"),
        (["drain", "demo", "n1", "--self"], "RUN and NODE, or RUN and --self, or --self alone"),
    ],
)
def test_what_is_mistyped_is_refused_with_the_nearest(raymega, words: list[str], hint: str):
    ended = raymega(*words)
    assert (ended.code, hint in ended.err) == (2, True), ended.err


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda path: None, "neither a file nor a preset"),
        (lambda path: path.mkdir(), "is a directory"),
        (lambda path: path.write_bytes(b"a: \xff"), "not UTF-8 text"),
        (
            lambda path: path.write_text("model: {hidden_size: 5, hidden_size: 6}"),
            "run.yaml:1: model.hidden_size: the key",
        ),
    ],
)
def test_a_config_that_cannot_be_read_is_refused(raymega, make, words: str):
    make(Path("run.yaml"))
    ended = raymega("train", "run.yaml")
    assert (ended.code, words in ended.err) == (2, True), ended.err


def test_a_dry_run_prints_the_config_as_it_would_run_and_starts_nothing(raymega):
    ended = raymega("train", "nano", "--dry-run", "--set", "training.steps=7")
    assert ended.code == 0
    assert "steps: 7\n" in ended.out
    assert "vocab_size: 2048\n" in ended.out
    assert "# mesh: dp=2 tp=1 pp=2\n" in ended.out
    assert "# drawn at the start: run.name, run.seed\n" in ended.out
    assert (load(ended.out, source="-").run.name, load(ended.out, source="-").run.seed) == (None, None)
    assert not list(Path().iterdir())


@pytest.mark.parametrize(
    ("kind", "code"),
    [(ConfigError, 2), (DataError, 3), (ClusterError, 4), (StateError, 5), (NonFiniteError, 6), (RaymegaBug, 1)],
)
def test_an_error_ends_with_the_exit_code_of_whose_fault_it_is(
    raymega, monkeypatch, kind: type[RaymegaError], code: int
):
    def fail(word: str) -> None:
        raise kind("what, rule, way out")

    monkeypatch.setattr("raymega.driver.records.reading.run_directory", fail)
    ended = raymega("status", "demo")
    assert (ended.code, "what, rule, way out" in ended.err) == (code, True)


def test_the_schema_is_printed_as_json(raymega):
    assert "model" in json.loads(raymega("config", "schema").out)["properties"]


def test_the_doctor_finds_everything_here(raymega):
    ended = raymega("doctor", "--json")
    standings = {finding["subject"]: finding["standing"] for finding in json.loads(ended.out)}
    assert (ended.code, standings["torch"], standings["ray"]) == (0, "ok", "ok")


def test_the_doctor_names_what_is_missing(raymega, monkeypatch):
    monkeypatch.setattr("raymega.cli.doctor.PACKAGES", ("no_such_package",))
    ended = raymega("doctor")
    assert ended.code == 4
    assert "missing  no_such_package" in ended.out
    assert "pip install -c constraints.txt" in ended.out


def test_the_doctor_says_what_would_be_compiled_by_every_worker(raymega, monkeypatch, tmp_path):
    (tmp_path / "uncompiled.py").touch()
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr("raymega.cli.doctor.COMPILED", ("uncompiled", "absent"))
    ended = raymega("doctor")
    assert ended.code == 0
    assert "warning  byte code    of uncompiled is missing" in ended.out
    assert "-m compileall" in ended.out


@pytest.mark.parametrize(
    ("flags", "says"),
    [
        ("flags\t: fpu avx512f avx512_bf16 amx_bf16 amx_tile", "cores have amx_bf16 (AMX), avx512_bf16 (vdpbf16ps)"),
        ("Features\t: asimd svebf16 bf16", "cores have bf16 (bfdot)"),
        ("flags\t: fpu avx2 svebf16", "cores have no products of their own for it"),
    ],
)
def test_the_doctor_says_what_multiplies_bf16(monkeypatch, tmp_path, flags: str, says: str):
    (tmp_path / "cpuinfo").write_text(f"processor\t: 0\n{flags}\n")
    monkeypatch.setattr("raymega.cli.doctor.CPU_INFO", tmp_path / "cpuinfo")
    monkeypatch.setattr("raymega.cli.doctor.PACKAGES", ())
    (found,) = (finding for finding in findings() if finding.subject == "bf16")
    assert (found.standing, found.detail.startswith(says)) == ("ok", True)


def stub(monkeypatch, train) -> None:
    """Stand in for the driver, which would start Ray."""
    monkeypatch.setitem(sys.modules, "raymega.driver.train", SimpleNamespace(train=train))


def test_the_exit_code_is_the_runs_own_and_resume_and_set_reach_it(raymega, monkeypatch):
    called = []
    stub(monkeypatch, lambda config, *, resume, sample: called.append((config.training.steps, resume)) or 75)
    codes = [raymega("train", "nano", "--set", "training.steps=7", *more).code for more in ([], ["--resume", "40"])]
    assert (codes, called) == ([75, 75], [(7, "auto"), (7, 40)])


def test_the_default_run_is_nano(raymega, monkeypatch):
    called = []
    stub(monkeypatch, lambda config, **how: called.append(config) or 0)
    assert raymega("train").code == 0
    assert called == [load(preset_text("nano"), source="nano")]


def test_an_interrupt_ends_with_130(raymega, monkeypatch):
    def interrupted(config, **how):
        raise KeyboardInterrupt

    stub(monkeypatch, interrupted)
    assert raymega("train").code == 130
