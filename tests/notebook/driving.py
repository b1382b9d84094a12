"""What somebody does with a run that others have launched: a program, since a process has one connection to Ray.

python -m tests.notebook.driving FOLDER tiny            drives FOLDER/runs/tiny to its end
python -m tests.notebook.driving FOLDER tiny NUMBER     asks it this and that, beside others, once it is told to
"""

import contextlib
import io
import json
import os
import re
import subprocess
import sys
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import ray

import raymega
from raymega.checkpoint.find import published_steps
from raymega.checkpoint.store import open_store
from raymega.cli.replaying import gone_through, retold
from raymega.errors import ConfigError, RaymegaError, StateError
from raymega.notebook.run import Run
from tests.house.rooms import ROOT
from tests.waiting import eventually

LIMIT_S = 200.0
LR = 1e-4
TINY: dict[str, Any] = {
    "run": {"name": "tiny", "device": "cpu"},
    "model": {"hidden_size": 32, "num_layers": 2, "num_attention_heads": 2},
    "data": {"tokenizer": "byte", "seq_len": 32},
    "parallelism": {"data_parallel_size": 2},
    "training": {"steps": 100_000, "batch_size": 8, "micro_batch_size": 4},
    "checkpoint": {"keep": 20},
    "log": {"tensorboard": False},
}


def drive(found: Run) -> None:
    """Ask it everything, from its first steps to its end."""
    attaches_by_launching_again(found)
    assert "as asked for, 1 device" in found.resize(devices=1)
    found.wait(step=found.committed + 20, limit_s=LIMIT_S)
    assert found.metrics().column("mesh")[-1].as_py() == "dp=1 tp=1 pp=1"
    assert "all workers pause after step" in found.pause()
    assert f"lr is {LR} after step" in found.set(lr=LR)
    before = found.committed
    found.step(3)
    assert "is saved" in found.checkpoint()
    assert "training goes on" in found.resume()
    found.wait(step=before + 20, limit_s=LIMIT_S)
    assert found.metrics().column("lr")[-1].as_py() == LR
    found.pause()
    is_asked_by_many_at_once(found)
    goes_back(found)
    assert "stopped and saved" in found.stop()
    assert found.is_over()
    for verb in (found.pause, found.resume, found.step, lambda: found.set(lr=1.0), lambda: found.resize(devices=1)):
        with pytest.raises(ConfigError, match="does not train: it is over"):
            verb()
    assert "over already" in found.stop()
    is_told_again(found)


def attaches_by_launching_again(run: Run) -> None:
    with contextlib.redirect_stdout(io.StringIO()) as told:
        again = raymega.launch(TINY, background=True)
    assert (again, "attached" in told.getvalue()) == (run, True)
    with pytest.raises(ConfigError, match=r"alive with another config \(training.lr\); its owner is raymega:tiny"):
        raymega.launch(TINY, background=True, training={"lr": 0.5})


def is_asked_by_many_at_once(run: Run) -> None:
    """Two threads of this process and two other processes; each answer is clean, and each wish is on record."""
    words = [sys.executable, "-m", "tests.notebook.driving", str(Path.cwd()), run.name]
    pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    before = Counter(event["event"] for event in run.events())
    with ThreadPoolExecutor(2) as threads, contextlib.ExitStack() as ends:
        others = [ends.enter_context(subprocess.Popen([*words, str(number)], cwd=ROOT, **pipes)) for number in (2, 3)]
        assert [other.stdout.readline() for other in others] == ["ready\n"] * 2
        for other in others:
            other.stdin.write("go\n")
            other.stdin.flush()
        ours = [threads.submit(asked, run, number=number) for number in (0, 1)]
        answers = [one.result(LIMIT_S) for one in ours]
        answers += [json.loads(other.communicate(timeout=LIMIT_S)[0]) for other in others]
    assert all(re.search(words, said) for told in answers for words, said in told.items()), answers
    assert not ray.is_initialized(), "whoever left last has ended the connection"
    after = Counter(event["event"] for event in run.events())
    assert after - before >= Counter({f"{verb}Asked": 4 for verb in ("Pause", "Set", "Checkpoint", "Resume")})
    run.resume()  # the last of all may have been a pause


def asked(run: Run, *, number: int) -> dict[str, str]:
    """What is to be said -> what was; each asks in another order."""
    verbs = [
        ("all workers pause after step", run.pause),
        (f"lr is {LR:g} after step", lambda: run.set(lr=LR)),
        ("is saved", run.checkpoint),
        ("training goes on|the run is not paused", run.resume),
    ]
    answers = {words: verb() for words, verb in (*verbs[number:], *verbs[:number])}
    steps = run.metrics().column("step").to_pylist()
    assert steps == list(range(1, len(steps) + 1))
    return answers


def goes_back(run: Run) -> None:
    """To its first checkpoint, from where each step is done again as it was, whatever was asked meanwhile."""
    kept = min(published_steps(open_store(str(run.directory.checkpoints))))
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


def main(folder: str, name: str, *number: str) -> None:
    os.chdir(folder)
    run = raymega.attach(name)
    if not number:
        drive(run)
        print(json.dumps({"steps": run.committed}))
        return
    print("ready", flush=True)
    sys.stdin.readline()
    print(json.dumps(asked(run, number=int(number[0]))))


if __name__ == "__main__":
    main(*sys.argv[1:])
