"""`raymega data prepare`, from text on the disk to a directory that a config can name."""

import json
from pathlib import Path

import pytest
import ray
import yaml

from raymega.config.load import load
from raymega.data.open_data import open_data


@pytest.mark.ray
def test_what_is_printed_is_the_data_section_of_a_config_that_trains_on_it(raymega):
    was_there = ray.is_initialized()
    documents = [{"text": f"{number}: to be, or not to be, that is the question.\n"} for number in range(400)]
    Path("a.jsonl").write_text("".join(json.dumps(document) + "\n" for document in documents))
    options = ["--out", "made", "--tokenizer", "byte", "--seq-len", "32", "--valid-fraction", "0.1"]
    ended = raymega("data", "prepare", "a.jsonl", *options)
    assert ended.code == 0, ended.err
    section = ended.out.splitlines()[-1]
    config = load(section, source="printed")
    opened = open_data(config.data, seed=1)
    assert (config.data.seq_len, opened.tokenizer.name, opened.valid is not None) == (32, "byte", True)
    assert yaml.safe_load(section)["data"]["train"] == str(Path("made").absolute())
    assert ray.is_initialized() == was_there


def test_an_input_that_is_not_there_is_refused_and_nothing_is_made(raymega):
    ended = raymega("data", "prepare", "none.txt", "--out", "made")
    assert (ended.code, "none.txt" in ended.err, Path("made").exists()) == (3, True, False)
