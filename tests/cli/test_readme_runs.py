"""The commands of the README, run one after the other in one directory, with fewer and smaller steps."""

import re
import shlex
from glob import glob
from importlib.resources import files
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from tests.house.rooms import ROOT

pytestmark = [pytest.mark.ray, pytest.mark.slow, pytest.mark.timeout(600)]
STEPS = iter([4, 6, 4])
SMALL = ("training.batch_size=8", "training.eval_samples=8")


def commands() -> list[list[str]]:
    """The lines of the README's shell blocks as words, globs expanded as a shell does."""
    blocks = re.findall(r"```sh\n(.*?)```", (ROOT / "README.md").read_text(), flags=re.DOTALL)
    lines = [shlex.split(line) for block in blocks for line in block.splitlines()]
    return [[name for word in words for name in (sorted(glob(word)) or [word])] for words in lines]


def test_what_the_readme_says_can_be_done(raymega, local_ray):
    Path("corpus").mkdir()
    plays = pq.read_table(files("raymega") / "corpora" / "shakespeare.parquet").column("text").to_pylist()
    for number, play in enumerate(plays[:2]):
        Path("corpus", f"{number}.txt").write_text(play)
    said = {}
    for words in commands():
        assert words[0] == "raymega"
        less = (f"training.steps={next(STEPS)}", *SMALL) if words[1] == "train" else ()
        ended = raymega(*words[1:], *(word for one in less for word in ("--set", one)))
        assert ended.code == 0, (words, ended.out[-2000:], ended.err)
        said[" ".join(words[1:3])] = ended.out
    assert "step 4 of 4" in said["status demo"]
    assert "complete" in said["ckpt ls"]
    assert "training goes on after step 4 of 6" in said["train runs/demo/config.yaml"]
    assert "To be, or not to be" in said["sample demo"]
