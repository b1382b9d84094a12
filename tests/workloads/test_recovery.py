"""What a kill has cost is counted alike on every side, and the peer goes on from its checkpoint."""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from tests.house.rooms import ROOT
from workloads.recovery.sides import wait_for
from workloads.recovery.toy import REPLICAS, Commit, cost_of, job_of_peer, read_commits, steps_in_a_row

ALONE = {"RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "0", "GLOO_SOCKET_IFNAME": "lo"}


def commits(*steps: int, t: float, workers: int = REPLICAS, told_by: int = 7) -> list[Commit]:
    """A step a second."""
    return [Commit(t=t + number, step=step, workers=workers, told_by=told_by) for number, step in enumerate(steps)]


def test_a_step_that_is_finished_by_those_who_are_left_costs_what_it_takes_longer():
    told = [*commits(1, 2, 3, t=0.0), *commits(4, t=3.4, workers=2), *commits(5, t=5.0)]
    cost = cost_of(told, killed_t=2.5, split={})
    assert cost is not None
    assert (cost.step_s, cost.redone, cost.next_workers) == (1.0, 0, 2)
    assert (cost.next_s, cost.whole_s) == pytest.approx((-0.1, 1.5))


def test_steps_that_were_committed_before_are_redone_and_are_no_progress():
    told = [*commits(*range(1, 14), t=0.0), *commits(11, 12, 13, 14, t=20.0, told_by=8)]
    cost = cost_of(told, killed_t=12.5, split={})
    assert cost is not None
    assert (cost.redone, cost.next_s, cost.whole_s) == (3, pytest.approx(9.5), pytest.approx(9.5))


def test_there_is_no_cost_before_everyone_is_back():
    told = [*commits(1, 2, 3, t=0.0), *commits(4, t=3.4, workers=2)]
    assert cost_of(told, killed_t=2.5, split={}) is None


def test_steps_in_a_row_begin_anew_with_another_process_and_with_fewer_workers():
    told = [*commits(1, 2, t=0.0), *commits(2, 3, t=9.0, told_by=8)]
    assert [steps_in_a_row(told[:length]) for length in range(5)] == [0, 1, 2, 1, 2]
    assert steps_in_a_row([*told, *commits(4, t=11.0, workers=2, told_by=8)]) == 0


@contextmanager
def peer(folder: Path) -> Iterator[subprocess.Popen[bytes]]:
    command = [sys.executable, "-m", "workloads.recovery.peer", str(folder)]
    with subprocess.Popen(command, cwd=ROOT, env={**os.environ, **ALONE}) as process:
        yield process
        process.kill()


@pytest.mark.soak
def test_a_peer_that_was_killed_goes_on_from_its_newest_checkpoint(tmp_path: Path):
    job = job_of_peer()
    small = replace(job.sizes, layers=(0, 1), seq_len=16, vocab=64)
    replace(job, sizes=small, batch_size=2, save_every=4).write(tmp_path)
    with peer(tmp_path):
        wait_for(lambda: len(read_commits(tmp_path / "commits")) >= 6, what="six steps")
    before = read_commits(tmp_path / "commits")
    with peer(tmp_path):
        wait_for(lambda: len(read_commits(tmp_path / "commits")) > len(before), what="a step after the kill")
    again = read_commits(tmp_path / "commits")[len(before)]
    assert again.step == before[-1].step // 4 * 4 + 1
    assert (again.workers, again.told_by == before[-1].told_by) == (1, False)
