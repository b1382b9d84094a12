"""Bad input ends with its exit code and a clear message before any Ray is started, and no file of the user is lost."""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import asdict
from pathlib import Path
from types import MappingProxyType

import numpy as np
import psutil
import pytest
import ray
import xxhash
import yaml

from raymega.data.manifest import MANIFEST
from raymega.data.pack import PackedRows
from raymega.data.token_file import open_shard, write_shard
from raymega.driver import (
    data_prepare,  # noqa: F401  loaded while it may be: some tests give up the right to
    train,
)
from raymega.driver.cluster.ray_session import RaySession
from raymega.driver.launch import Launch
from raymega.driver.records.lock import Owner, RunLock, read_owner
from raymega.errors import ClusterError
from tests.checkpoint.worlds import save
from tests.data.corpora import prepare_here
from tests.driver.test_small import row
from tests.house.rooms import ROOT

MESH, MODEL, TRAINING = "parallelism", "model", "training"
CONFIG = MappingProxyType(
    {
        "run": {"name": "demo", "device": "cpu", "seed": 1},
        "model": {"hidden_size": 32, "num_layers": 2, "num_attention_heads": 2},
        "data": {"train": "made", "tokenizer": "byte", "seq_len": 8},
        "training": {"steps": 100, "batch_size": 8, "micro_batch_size": 4},
    }
)
RUN = Path("runs/demo")
SHARD = Path("made/train-00000.arrow")


@pytest.fixture(autouse=True)
def workplace(raymega, monkeypatch) -> None:
    """A config, prepared data and a run with two checkpoints, where no Ray can be started."""
    monkeypatch.setattr(ray, "init", lambda *_, **__: pytest.fail("a Ray was started"))
    Path("run.yaml").write_text(yaml.safe_dump(dict(CONFIG)))
    Path("text.txt").write_text("To be, or not to be, that is the question.\n" * 9)
    prepare_here(["text.txt"], Path("made"), seq_len=8)
    RUN.mkdir(parents=True)
    (RUN / "config.yaml").write_text(yaml.safe_dump(dict(CONFIG)))
    for step in (10, 20):
        save(RUN / "checkpoints", step=step)


def contents() -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in sorted(Path().rglob("*")) if path.is_file()}


def refused(raymega: Callable, *words: str) -> tuple[int, str]:
    """Run a command that is to fail: its exit code and message, after a look at whether anything is lost."""
    before = contents()
    ended = raymega(*words)
    assert contents() == before, "every file is as it was, and there is none besides"
    assert "Traceback" not in ended.err
    return ended.code, ended.err


@pytest.mark.parametrize(
    ("sets", "words"),
    [
        (["training.batch_sise=8"], ["training.batch_sise: unknown key", "Did you mean training.batch_size?"]),
        (["model.num_attention_heads=4", "parallelism.tensor_model_parallel_size=3"], ["whole heads", "Use 1, 2 or 4"]),
        (["parallelism.pipeline_model_parallel_size=3"], ["3 stages for 2 layers", "Use 2 or less"]),
        (["training.batch_size=10"], ["10 is not a multiple of micro_batch_size 4", "Use 8"]),
        (["parallelism.data_parallel_size=3"], ["3 replicas, but only 2 micro-batches", "Use 2 or less"]),
        (["training.steps=many"], ["training.steps", "many"]),
    ],
)
def test_a_config_that_breaks_a_rule(raymega, sets: list[str], words: list[str]):
    code, told = refused(raymega, "train", "run.yaml", *(word for one in sets for word in ("--set", one)))
    assert (code, [word for word in words if word not in told]) == (2, []), told


def truncate() -> None:
    os.truncate(SHARD, SHARD.stat().st_size // 2)


def rewrite_shard(change: Callable[[np.ndarray], object], *, is_told: bool) -> None:
    """Write the shard again with other ids of the same size; `is_told`: the manifest goes along with it."""
    shard = open_shard(SHARD, seq_len=8)
    ids = np.array(shard.ids)
    change(ids)
    info = write_shard(SHARD, PackedRows(ids=ids, mask=shard.mask_of(np.arange(len(ids)))), dtype="uint16")
    if is_told:
        content = json.loads(Path("made", MANIFEST).read_text())
        content["splits"]["train"]["shards"][0] |= info.model_dump()
        del content["checksum"]
        checksum = xxhash.xxh3_64_hexdigest(json.dumps(content, sort_keys=True).encode())
        Path("made", MANIFEST).write_text(json.dumps(content | {"checksum": checksum}))


def large_id(ids: np.ndarray) -> None:
    ids[2, 3] = 999


def another_id(ids: np.ndarray) -> None:
    ids[2, 3] ^= 1


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (truncate, ["train-00000.arrow has", "the manifest says", "truncated", "prepare the data again"]),
        (lambda: rewrite_shard(large_id, is_told=True), ["has ids from", "to 999; the vocabulary has 257"]),
        (lambda: rewrite_shard(large_id, is_told=False), ["row 2 has ids outside the vocabulary of 257"]),
        (lambda: rewrite_shard(another_id, is_told=False), ["is not the file that was written", "Copy it again"]),
        (lambda: Path("made", MANIFEST).write_text('{"format": 1,'), ["manifest.json is corrupt", "Restore it"]),
        (lambda: SHARD.unlink(), ["train-00000.arrow is in the manifest but cannot be found", "Restore it"]),
        (lambda: Path("made").rename("moved"), ["made is not a prepared data set", "raymega data prepare"]),
    ],
)
def test_data_that_is_damaged_or_gone(raymega, damage: Callable[[], object], words: list[str]):
    damage()
    code, told = refused(raymega, "train", "run.yaml")
    assert (code, [word for word in words if word not in told]) == (3, []), told


def test_a_file_that_is_not_there(raymega):
    assert refused(raymega, "train", "runn.yaml")[0] == 2
    code, told = refused(raymega, "train", "run.yaml", "--set", "data.tokenizer=none.json")
    assert (code, "none.json" in told) == (2, True), told


def test_a_second_run_in_a_directory_in_use(raymega):
    other = psutil.Process(os.getppid())
    owner = Owner.of(other, controller="raymega:demo", until=4e9)
    (RUN / "LOCK").write_text(json.dumps(asdict(owner)).ljust(512))
    code, told = refused(raymega, "train", "run.yaml")
    words = ["runs/demo is in use by raymega:demo", f"process {other.pid}", "choose another run.name"]
    assert (code, [word for word in words if word not in told]) == (2, []), told


def flip(step: int) -> None:
    file = min((RUN / "checkpoints" / f"step-{step}").glob("*.safetensors"))
    content = bytearray(file.read_bytes())
    content[-1] ^= 1
    file.write_bytes(content)


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["train", "run.yaml", "--set", f"run.dir={'a' * 300}"], 2, "run.dir: aaa"),
        (["train", "run.yaml", "--set", f"data.tokenizer={'a' * 300}", "--dry-run"], 2, "data.tokenizer: aaa"),
        (["train", "run.yaml", "--set", f"checkpoint.path={'a' * 300}"], 2, "checkpoint.path: aaa"),
        (["train", "run.yaml", "--set", "run.dir=s3://bucket/runs"], 2, "is a URI"),
        (["train", "run.yaml", "--resume", "9" * 5000], 2, "999... found; auto, none or a step is wanted"),
        (["status", "a" * 300], 5, "is no run"),
        (["ckpt", "ls", "a" * 300], 5, "is no run"),
        (["data", "prepare", "text.txt", "--out", "~no-such-user/x"], 2, "--out: ~no-such-user/x begins with a home"),
        (["data", "prepare", "text.txt", "--out", "o", "--tokenizer", "a" * 300], 3, "cannot be read"),
    ],
)
def test_a_word_that_can_be_no_path_and_no_step(raymega, words: list[str], code: int, said: str):
    ended, told = refused(raymega, *words)
    assert (ended, said in told) == (code, True), told


@pytest.mark.parametrize(
    ("damaged", "resume", "words"),
    [
        ([20], "20", ["step-20", ".safetensors is corrupt", "checksum"]),
        ([10, 20], "auto", ["no checkpoint in", "step 20 is passed over", "step 10 is passed over", "--resume none"]),
        ([], "15", ["has no checkpoint of step 15; there are: 10, 20"]),
    ],
)
def test_a_checkpoint_that_is_damaged_or_not_there(raymega, damaged: list[int], resume: str, words: list[str]):
    for step in damaged:
        flip(step)
    code, told = refused(raymega, "train", "run.yaml", "--resume", resume)
    assert (code, [word for word in words if word not in told]) == (5, []), told


def test_a_checkpoint_of_another_model_is_refused_before_the_config_is_written_over(raymega):
    code, told = refused(raymega, "train", "run.yaml", "--set", "model.vocab_size=300")
    assert (code, "the checkpoint at step 20 is of another config" in told) == (2, True), told


def have(monkeypatch, session: Callable[[], object]) -> None:
    """Stand in for Ray: what comes of asking for one, and a cluster of one core. Any checkpoint fits the run here."""
    monkeypatch.setattr("raymega.driver.preflight.refuse_unlike", lambda *_, **__: None)
    monkeypatch.setattr(train, "ray_session", lambda **_: session())
    monkeypatch.setattr(ray, "nodes", lambda: [row("1", CPU=1.0)])


def test_a_run_that_has_the_steps_already_says_how_many_more_are_more(raymega, monkeypatch):
    have(monkeypatch, lambda: pytest.fail("a Ray was asked for"))
    ended = raymega("train", "run.yaml", "--set", "training.steps=15")
    assert (ended.code, "step 20 is saved" in ended.out, "--set training.steps=40." in ended.out) == (0, True, True)
    assert "choose another run.name" in ended.out


@pytest.mark.parametrize("name", ["demo", "fresh"])
def test_a_cluster_that_is_too_small_is_refused_before_a_run_is_changed_or_made(raymega, monkeypatch, name: str):
    have(monkeypatch, lambda: nullcontext(RaySession(owned=False, start_s=0.0)))
    words = ["--resume", "10"] if name == "demo" else []
    two = ["--set", f"run.name={name}", "--set", "parallelism.data_parallel_size=2"]
    code, told = refused(raymega, "train", "run.yaml", *words, *two)
    assert (code, "needs 2" in told, Path("runs/fresh").exists()) == (4, True, False), told


def test_a_resume_that_is_accepted_sets_later_checkpoints_aside_and_hands_the_lock_over(raymega, monkeypatch):
    have(monkeypatch, lambda: nullcontext(RaySession(owned=False, start_s=0.0)))
    found = []

    def begin(launch: Launch) -> None:
        controller = RunLock.acquire((RUN / "LOCK").absolute(), controller="raymega:demo", heir_of=launch.heir_of)
        found.extend([launch.checkpoint.step, read_owner(RUN / "LOCK").controller])
        controller.release()
        raise ClusterError("it ends here")

    monkeypatch.setattr(train.RunHandle, "begin", begin)
    ended = raymega("train", "run.yaml", "--resume", "10")
    assert (ended.code, found, (RUN / "LOCK").exists()) == (4, [10, "raymega:demo"], False)
    assert "later checkpoints are set aside: 20" in ended.out
    assert not (RUN / "checkpoints" / "step-20" / "manifest.json").exists()


@pytest.mark.parametrize(("sent", "code"), [(KeyboardInterrupt, 130), (lambda: SystemExit(15), 15)])
def test_an_interrupt_while_ray_comes_up_says_how_to_resume(raymega, monkeypatch, sent: Callable, code: int):
    def interrupted() -> None:
        raise sent()

    have(monkeypatch, interrupted)
    before, ended = contents(), raymega("train", "run.yaml")
    assert (ended.code, contents()) == (code, before)
    assert ended.out.endswith(f"to resume: raymega train {RUN.absolute()}/config.yaml\n")


@pytest.mark.parametrize(
    ("key", "code", "words"),
    [
        ("data.train=nowhere", 3, "nowhere is not a prepared data set"),
        ("data.seq_len=9", 3, "seq_len"),
        ("data.tokenizer=prepared/tokenizer.json", 2, "raymega data prepare"),
        ("training.eval_every=5", 3, "there is no validation data"),
        ("model.custom=nope", 2, "names a function as `module:function`"),
        ("model.custom=nope:build", 2, "No module named 'nope'"),
        ("model.custom=math:pi", 2, "is no function"),
    ],
)
@pytest.mark.parametrize("dry", [["--dry-run"], []])
def test_data_and_models_that_are_not_there(raymega, key: str, code: int, words: str, dry: list[str]):
    ended, told = refused(raymega, "train", "run.yaml", "--resume", "none", "--set", key, *dry)
    assert (ended, words in told) == (code, True), told


def test_an_empty_corpus(raymega):
    Path("empty.txt").write_text("")
    code, told = refused(raymega, "data", "prepare", "empty.txt", "--out", "new", "--tokenizer", "byte")
    assert (code, "nothing in the input is trained" in told) == (3, True), told


@contextmanager
def as_nobody(workplace: Path) -> Iterator[None]:
    for folder in (workplace, *workplace.parents[:3]):
        folder.chmod(0o755)
    os.seteuid(65534)
    try:
        yield
    finally:
        os.seteuid(0)


@pytest.mark.skipif(os.geteuid() != 0, reason="takes the identity of a user without permission")
@pytest.mark.parametrize(
    ("closed", "words", "code", "told"),
    [
        ("run.yaml", ["train", "run.yaml"], 2, "run.yaml may not be read by this user"),
        ("made/manifest.json", ["train", "run.yaml"], 3, "manifest.json cannot be read: Permission denied"),
        ("runs", ["train", "run.yaml"], 2, "cannot be entered: Permission denied. Set run.dir"),
        ("text.txt", ["data", "prepare", "text.txt", "--out", "new"], 3, "text.txt may not be read by this user"),
    ],
)
def test_a_missing_permission(raymega, tmp_path: Path, closed: str, words: list[str], code: int, told: str):
    for path in (Path("runs"), *Path("runs").rglob("*")):
        path.chmod(0o777 if path.is_dir() else 0o666)
    Path(closed).chmod(0o700 if Path(closed).is_dir() else 0o600)
    with as_nobody(tmp_path):
        ended = raymega(*words)
    assert (ended.code, told in ended.err) == (code, True), ended.err


NAMESPACE = ["unshare", "--mount"] if os.geteuid() == 0 else ["unshare", "--mount", "--map-root-user"]


def test_a_full_disk(tmp_path: Path):
    if subprocess.run([*NAMESPACE, "true"], capture_output=True).returncode != 0:
        pytest.skip("this machine permits no mount namespace, so no disk of limited size")
    command = [*NAMESPACE, sys.executable, "-m", "tests.cli.on_full_disk", str(tmp_path)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120, check=True)
    ends = json.loads(done.stdout)
    assert [(end["code"], end["changed"], "Traceback" in end["told"]) for end in ends.values()] == 2 * [(5, [], False)]
    for word in ("runs/demo", "cannot be written: No space left on device", "Make room"):
        assert word in ends["nothing"]["told"]
    assert "a checkpoint has" in ends["little"]["told"]
    assert "bytes free. Make room, or set checkpoint.path" in ends["little"]["told"]
