"""Editors of some systems begin a file with a byte order mark: it says nothing, in whatever the user hands in."""

from collections.abc import Callable
from importlib.resources import files
from pathlib import Path

import pytest

from raymega.cli.live import trace_in
from raymega.cli.simulate import Asked, trace_of
from raymega.cli.size import read_prices
from raymega.config.schedule_table import rows_of_table
from raymega.data.tokenizer import load_tokenizer
from raymega.driver.records.reading import config_of, read_hardware
from raymega.errors import ConfigError
from raymega.plan.cluster_presets import cluster_of

TRACE, MARK = "t_s,n_nodes\n0,4\n100,3\n200,4\n", b"\xef\xbb\xbf"
TOKENIZER = (files("raymega") / "corpora" / "shakespeare-2k.json").read_text(encoding="utf-8")


def simulated_trace(path: str) -> object:
    asked = Asked(trace=path, mtbf=None, duration="1h", back="1m", seed=0)
    return trace_of(asked, cluster=cluster_of("cpu:4"))


READERS: dict[str, tuple[str, str, Callable[[str], object]]] = {
    "config": ("c.yaml", "run: {seed: 1}\nmodel: {num_layers: 2}\n", lambda path: config_of(path, overrides=())),
    "cluster": ("c.yaml", "nodes: 2\ndevices: 4\n", read_hardware),
    "prices": ("p.yaml", "date: 2026\nusd_per_device_hour: {aws-p5: 7.0}\n", read_prices),
    "schedule": ("s.csv", "0F0,0B0\n", rows_of_table),
    "tokenizer": ("tokenizer.json", TOKENIZER, lambda path: load_tokenizer(path).vocab_size),
    "trace to simulate": ("t.csv", TRACE, simulated_trace),
    "trace to replay": ("t.csv", TRACE, trace_in),
}


@pytest.mark.parametrize("kind", READERS)
def test_a_file_that_begins_with_a_byte_order_mark_says_what_it_says_without(kind: str, tmp_path: Path) -> None:
    name, text, read = READERS[kind]
    file = tmp_path / name
    file.write_text(text, encoding="utf-8")
    plain = read(str(file))
    file.write_bytes(MARK + text.encode())
    assert read(str(file)) == plain


@pytest.mark.parametrize("read", [trace_in, simulated_trace])
def test_a_trace_that_is_no_text_is_refused(read: Callable[[str], object], tmp_path: Path) -> None:
    file = tmp_path / "t.csv"
    file.write_bytes(b"t_s,n_nodes\n\xff\xfe\n")
    with pytest.raises(ConfigError, match="it is no text in UTF-8"):
        read(str(file))
