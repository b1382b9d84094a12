"""A run that is driven from Python: launched in the background, found again, asked, and ended; on a real local Ray."""

import contextlib
import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

import raymega
from raymega.checkpoint.find import published_steps
from raymega.checkpoint.store import open_store
from raymega.cli.replaying import gone_through, retold
from raymega.driver.records.run_dir import RunDirectory
from raymega.errors import ConfigError, RaymegaError, StateError
from raymega.notebook.run import Run
from tests.waiting import eventually

LIMIT_S = 200.0
TINY: dict[str, Any] = {
    "run": {"name": "tiny", "device": "cpu"},
    "model": {"hidden_size": 32, "num_layers": 2, "num_attention_heads": 2},
    "data": {"tokenizer": "byte", "seq_len": 32},
    "parallelism": {"data_parallel_size": 2},
    "training": {"steps": 100_000, "batch_size": 8, "micro_batch_size": 4},
    "log": {"tensorboard": False},
}


@pytest.fixture
def here(tmp_path: Path, monkeypatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


LAUNCHER = """
import json, sys, threading, raymega
print("keeper", raymega.launch(json.loads(sys.argv[1]), background=True).keeper.pid, flush=True)
threading.Event().wait()
"""


@pytest.fixture
def run(here: Path) -> Iterator[Run]:
    """A run in the background whose launching process was killed; it ends with the test, and leaves nothing."""
    words = [sys.executable, "-c", LAUNCHER, json.dumps(TINY)]
    launcher = subprocess.Popen(words, stdout=subprocess.PIPE, text=True, start_new_session=True)
    assert launcher.stdout is not None
    told = next(line for line in launcher.stdout if line.startswith("keeper"))
    keeper = psutil.Process(int(told.split()[1]))
    launcher.kill()
    assert launcher.wait(timeout=LIMIT_S) == -signal.SIGKILL
    found = Run.at(RunDirectory(path=here / "runs" / "tiny"))
    eventually(lambda: found.directory.is_begun() and found.committed >= 2, limit_s=LIMIT_S, look_s=0.2)
    yield found
    family = keeper.children(recursive=True) if keeper.is_running() else []
    with contextlib.suppress(RaymegaError):
        found.stop()
    assert not psutil.wait_procs([keeper, *family], timeout=LIMIT_S)[1]
    assert not found.directory.lock.exists()


@pytest.mark.ray
@pytest.mark.slow
def test_a_run_in_the_background_is_driven_by_whoever_finds_it(run: Run, capsys):
    again = raymega.launch(TINY, background=True)
    assert again == run
    assert "attached" in capsys.readouterr().out
    with pytest.raises(ConfigError, match=r"alive with another config \(training.lr\); its owner is raymega:tiny"):
        raymega.launch(TINY, background=True, training={"lr": 0.5})
    found = raymega.attach("tiny")
    assert "as asked for, 1 device" in found.resize(devices=1)
    found.wait(step=found.committed + 50, limit_s=LIMIT_S)
    assert found.metrics().column("mesh")[-1].as_py() == "dp=1 tp=1 pp=1"
    assert "all workers pause after step" in found.pause()
    assert "lr is 0.0001 after step" in found.set(lr=1e-4)
    before = found.committed
    found.step(3)
    assert "is saved" in found.checkpoint()
    assert "training goes on" in found.resume()
    found.wait(step=before + 100, limit_s=LIMIT_S)
    assert found.metrics().column("lr")[-1].as_py() == 1e-4
    goes_back(found)
    assert "stopped and saved" in run.stop()
    assert run.is_over()
    for verb in (found.pause, found.resume, found.step, lambda: found.set(lr=1.0), lambda: found.resize(devices=1)):
        with pytest.raises(ConfigError, match="does not train: it is over"):
            verb()
    assert "over already" in found.stop()
    is_told_again(found)


def is_told_again(run: Run) -> None:
    """Another run that is asked the same after the same steps has the same losses."""
    told = retold(run.directory, name="again")
    assert {line.verb for line in told.lines} >= {"resize", "set", "checkpoint", "rewind", "stop"}
    try:
        assert gone_through(told, tell=print) == 0
    finally:
        with contextlib.suppress(RaymegaError):
            Run.at(told.run).stop()
    ours, theirs = (one.metrics().select(["step", "loss", "lr", "mesh"]).to_pylist() for one in (run, Run.at(told.run)))
    assert theirs == ours


def goes_back(run: Run) -> None:
    """To its only checkpoint, from where each step is done again as it was."""
    (kept,) = published_steps(open_store(str(run.directory.checkpoints)))
    with pytest.raises(StateError, match=f"no checkpoint of step {kept + 1}; there are: {kept}"):
        run.rewind(step=kept + 1)
    before = run.metrics().column("loss").to_pylist()
    assert f"back to the checkpoint of step {kept}, as asked" in run.rewind(step=kept)
    rewound = next(event for event in run.events() if event["event"] == "RewindAsked")
    eventually(lambda: any("Rewind" in event["commands"] for event in run.events()), limit_s=LIMIT_S, look_s=0.1)
    run.wait(step=rewound["step"] + 1, limit_s=LIMIT_S)
    table = run.metrics()
    assert table.column("step").to_pylist() == list(range(1, len(table) + 1))
    assert table.column("loss").to_pylist()[: len(before)] == before


def test_an_unknown_run_is_refused_with_what_there_is(here: Path):
    with pytest.raises(StateError, match="nope is no run"):
        raymega.attach("nope")
