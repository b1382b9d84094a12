"""Generate a corpus, prepare it, stream an epoch of it; say what each took and how much memory it held.

python -m workloads.prepare_data --size-gb 2 --tokenizer byte
"""

import argparse
import json
import os
import random
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import psutil
import pyarrow.parquet as pq
import ray

import raymega
from raymega.config.schema import DataConfig
from raymega.data.open_data import open_data
from raymega.driver.cluster.ray_session import ray_session
from raymega.driver.data_prepare import prepare
from raymega.driver.hands.data_stream import train_stream

FILE_BYTES = 256 << 20
SEQ_LEN = 1024
BATCH_SIZE = 64
SAMPLE_S = 0.5


@dataclass(slots=True)
class Peaks:
    """Resident bytes of the largest process of each kind, and the object store's use over time."""

    resident_bytes: dict[str, int] = field(default_factory=dict)
    store_bytes: list[float] = field(default_factory=list)

    def sample(self) -> None:
        me = psutil.Process()
        for process in [me, *me.children(recursive=True)]:
            try:
                kind, resident = kind_of(process), process.memory_info().rss
            except (psutil.NoSuchProcess, psutil.ZombieProcess):
                continue
            self.resident_bytes[kind] = max(resident, self.resident_bytes.get(kind, 0))
        name = "object_store_memory"
        self.store_bytes.append(ray.cluster_resources()[name] - ray.available_resources().get(name, 0.0))

    def lines(self) -> Iterator[str]:
        for kind, resident in sorted(self.resident_bytes.items(), key=lambda item: -item[1]):
            yield f"    {resident / 2**20:7.0f} MiB  {kind}"
        half = len(self.store_bytes) // 2
        early, late = max(self.store_bytes[:half]) / 2**20, max(self.store_bytes[half:]) / 2**20
        yield f"    object store: at most {early:.0f} MiB in the first half, {late:.0f} MiB in the second"


def kind_of(process: psutil.Process) -> str:
    """What a process is: `driver` for this one, else its title without what differs between its like."""
    if process.pid == os.getpid():
        return "driver"
    words = process.cmdline() or [process.name()]
    return "ray::worker" if words[0].startswith("ray::") else Path(words[0]).name + ":" + process.name()


@contextmanager
def watched(what: str, *, size_bytes: int) -> Iterator[None]:
    peaks, ended = Peaks(), threading.Event()

    def watch() -> None:
        while not ended.wait(SAMPLE_S):
            peaks.sample()

    thread = threading.Thread(target=watch)
    thread.start()
    began = time.monotonic()
    yield
    seconds = time.monotonic() - began
    ended.set()
    thread.join()
    peaks.sample()
    print(
        f"{what}: {seconds:.1f} s, {size_bytes / seconds / 1e6:.1f} MB of text/s", *peaks.lines(), sep="\n", flush=True
    )


def generate(folder: Path, *, size_bytes: int) -> None:
    """Files of jsonl with documents of 1 to 100 kB cut from Shakespeare, at random but the same each time."""
    corpus = Path(raymega.__file__).parent / "corpora" / "shakespeare.parquet"
    text = "\n\n".join(pq.read_table(corpus)["text"].to_pylist())
    chance = random.Random(0)
    written = 0
    for number in range(-(-size_bytes // FILE_BYTES)):
        with (folder / f"part-{number:03d}.jsonl").open("w", encoding="utf-8") as file:
            end = min(size_bytes, (number + 1) * FILE_BYTES)
            while written < end:
                start = chance.randrange(len(text) - 100_000)
                written += file.write(
                    json.dumps({"text": text[start : start + chance.randrange(1000, 100_000)]}) + "\n"
                )


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m workloads.prepare_data", description=__doc__.splitlines()[0])
    parser.add_argument("--size-gb", type=float, default=2.0)
    parser.add_argument("--tokenizer", default="byte")
    parser.add_argument("--steps", type=int, default=0, help="steps to stream; default: one epoch")
    asked = parser.parse_args()
    size_bytes = int(asked.size_gb * 1e9)
    with tempfile.TemporaryDirectory() as temp, ray_session(cpus=os.cpu_count() or 1):
        corpus, out = Path(temp) / "corpus", Path(temp) / "prepared"
        corpus.mkdir()
        generate(corpus, size_bytes=size_bytes)
        with watched("prepare", size_bytes=size_bytes):
            prepared = prepare((str(corpus),), out=str(out), tokenizer=asked.tokenizer, seq_len=SEQ_LEN)
        split = prepared.manifest.splits["train"]
        print(f"{split.rows} rows, {split.trained_tokens} tokens in {len(split.shards)} shards", flush=True)
        data = open_data(DataConfig(train=str(out), tokenizer=asked.tokenizer, seq_len=SEQ_LEN), seed=0)
        steps = asked.steps or split.rows // BATCH_SIZE
        share = min(1.0, steps * BATCH_SIZE / split.rows)
        with watched(f"stream {steps} steps", size_bytes=int(size_bytes * share)):
            for _ in train_stream(data, batch_size=BATCH_SIZE, start_step=0, stop_step=steps):
                pass


if __name__ == "__main__":
    main()
