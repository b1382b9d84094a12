"""What is said of a run from its directory alone."""

import json
import os
import time
from pathlib import Path

import pytest

from raymega.config.load import load, to_yaml
from raymega.data.tokenizer import load_tokenizer
from raymega.driver.records.lock import RunLock
from tests.checkpoint.worlds import plan_of, save
from tests.driver.test_forking import CONFIG
from tests.driver.written import events, steps

STEP = {"step": 3, "tokens_per_s": 1234.5, "tokens_total": 900}


@pytest.fixture
def demo(tmp_path) -> Path:
    """A run directory with three steps, as it lies there while nobody writes to it."""
    run = tmp_path / "runs" / "demo"
    run.mkdir(parents=True)
    (run / "config.yaml").write_text(to_yaml(load("run: {name: demo}\ntraining: {steps: 9}", source="x")))
    lines = [{**STEP, "t": time.time() - 5}, {**STEP, "t": time.time(), "step": 4, "val_loss": 6.25}]
    (run / "metrics.jsonl").write_text(steps(*lines) + '{"step": 5')
    return run


def happen(run: Path, **event: object) -> None:
    with (run / "events.jsonl").open("a") as file:
        file.write(events({"t": time.time(), "reason": "w2 is lost", **event}))


def status(raymega, word: str) -> dict[str, object]:
    return json.loads(raymega("status", word, "--json").out)


def test_a_run_that_said_how_it_ended_has_ended(raymega, demo):
    happen(demo, event="RunEnded", state="Failed", exit_code=6)
    found = status(raymega, "demo")
    assert (found["standing"], found["exit_code"], found["step"], found["steps"]) == ("ended", 6, 4, 9)
    assert (found["loss"], found["val_loss"], found["reason"]) == (6.5, 6.25, "w2 is lost")


def test_a_run_whose_writer_is_gone_without_a_word_is_lost(raymega, demo):
    happen(demo, event="WorkersReady", state="Training")
    assert (status(raymega, "demo")["standing"], status(raymega, "demo")["exit_code"]) == ("lost", None)


def test_a_run_whose_writer_lives_stands_where_its_controller_stands(raymega, demo):
    happen(demo, event="WorkersReady", state="Training")
    lock = RunLock.acquire(demo / "LOCK", controller="raymega:demo")
    try:
        assert status(raymega, str(demo))["standing"] == "training"
    finally:
        lock.release()


def test_status_is_a_few_lines_for_people(raymega, demo):
    happen(demo, event="RunEnded", state="Finished", exit_code=0)
    first, speed, reason, place = raymega("status", "demo").out.splitlines()
    assert first == (
        "demo  ended with exit code 0  step 4 of 9  loss 6.5000  val_loss 6.2500  generation 7  dp=2 tp=1 pp=2"
    )
    assert speed.startswith("1,234 tokens/s  900 tokens  last line ")
    assert (reason, place) == ("last: w2 is lost", str(demo))


def test_a_run_that_has_no_step_yet_can_be_asked(raymega, demo):
    (demo / "metrics.jsonl").unlink()
    assert status(raymega, "demo")["step"] == 0
    assert raymega("status", "demo").out.startswith("demo  lost  step 0 of 9\n")


def test_an_unknown_run_is_refused_with_the_nearest(raymega, demo):
    ended = raymega("status", "dmo")
    assert ended.code == 5
    assert "Did you mean demo?" in ended.err


def test_checkpoints_are_listed_with_what_is_wrong_with_them(raymega, demo):
    os.makedirs(demo / "checkpoints" / "step-3")
    assert raymega("ckpt", "ls", "demo").out.splitlines()[0].split() == ["step-3", "unpublished"]
    assert json.loads(raymega("ckpt", "ls", "demo", "--json").out)[0]["step"] == 3
    assert raymega("ckpt", "verify", str(demo / "checkpoints")).code == 5


def test_a_run_without_a_checkpoint_has_nothing_to_sample_from(raymega, demo):
    ended = raymega("sample", "demo", "To be")
    assert ended.code == 5
    assert "has no checkpoint yet" in ended.err


@pytest.mark.parametrize("step", ["auto", "2"])
def test_a_sample_comes_from_the_checkpoint_that_was_asked_for(raymega, demo, monkeypatch, step: str):
    for number in (2, 10):
        save(demo / "checkpoints", step=number)
    asked = []
    monkeypatch.setattr(
        "raymega.worker.sample.sample_text", lambda config, **how: asked.append(how) or "To be, my lord"
    )
    assert raymega("sample", "demo", "To be", "--step", step, "--tokens", "7").out == "To be, my lord\n"
    assert (asked[0]["prompt"], asked[0]["draws"].num_tokens) == ("To be", 7)
    assert asked[0]["checkpoint"].endswith("step-10" if step == "auto" else "step-2")


def test_whole_checkpoints_verify(raymega, demo):
    save(demo / "checkpoints", step=2)
    ended = raymega("ckpt", "verify", "demo")
    assert ended.out.split()[:2] == ["step-2", "complete"]
    assert "every byte of 1 complete checkpoint was read (" in ended.out.splitlines()[-1]
    assert ended.code == 0


def test_one_state_has_one_fingerprint_whatever_mesh_wrote_it(raymega, demo, tmp_path):
    save(demo / "checkpoints", step=2, plan=plan_of(dp=2))
    save(tmp_path / "other", step=2, plan=plan_of(tp=2, pp=3))
    save(tmp_path / "other", step=3, plan=plan_of(tp=2, pp=3))
    mine, other = (
        json.loads(raymega("ckpt", "verify", str(where), "--state", "--json").out)
        for where in (demo, tmp_path / "other")
    )
    assert mine[0]["checksum"] != other[0]["checksum"]
    assert mine[0]["state"] == other[0]["state"] != other[1]["state"]
    one = raymega("ckpt", "verify", str(tmp_path / "other" / "step-3"), "--state")
    assert one.out.splitlines()[0].endswith(f"state {other[1]['state']}")


def test_a_run_is_forked_and_says_how_the_fork_goes_on(raymega, demo):
    (demo / "config.yaml").write_text(to_yaml(load(json.dumps(CONFIG), source="x")))
    save(demo / "checkpoints", step=3, tokenizer=load_tokenizer("byte").fingerprint)
    forked = raymega("fork", "demo", "hot", "--set", "training.lr=1e-4")
    assert (forked.code, forked.out.startswith("hot: forked from demo after step 3 of 20, in ")) == (0, True)
    assert raymega("status", "hot").out.startswith("hot  forked  step 3 of 20")
    assert f"something in {demo.parent}/hot already" in raymega("fork", "demo", "hot").err
    assert raymega("fork", "dmo", "hot").code == 5
