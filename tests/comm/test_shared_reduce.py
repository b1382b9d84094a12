"""Reductions through shared memory: the same sums, in parts, in flight, and not where memory cannot be shared."""

import os

import pytest
import torch

from raymega.comm import shared_memory, shared_reduce
from raymega.comm.group import Group
from raymega.comm.shared_memory import share
from tests.comm.worlds import GlooWorld, at_once, on_group, spec, workers


@pytest.fixture
def small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shared_reduce, "LEAST_BYTES", 64)
    monkeypatch.setattr(shared_reduce, "MOST_BYTES", 1000)


@pytest.fixture
def no_common_node(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shared_memory, "_node", lambda: os.urandom(8).hex())


def values(rank: int, numel: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.randn(numel, generator=torch.Generator().manual_seed(rank)).to(dtype)


def rank_order_sum(size: int, numel: int, dtype: torch.dtype) -> torch.Tensor:
    total = values(0, numel, dtype)
    for rank in range(1, size):
        total = total + values(rank, numel, dtype)
    return total


@pytest.mark.usefixtures("small_parts")
@pytest.mark.parametrize("size", [2, 3])
@pytest.mark.parametrize("numel", [64, 251, 1003])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_sums_are_in_rank_order_however_many_parts(size: int, numel: int, dtype: torch.dtype) -> None:
    def body(group: Group) -> torch.Tensor:
        x = values(group.rank, numel, dtype)
        group.all_reduce(x)
        return x

    assert all(torch.equal(x, rank_order_sum(size, numel, dtype)) for x in on_group(GlooWorld(), size, body))


@pytest.mark.usefixtures("small_parts")
def test_maxima_and_growing_sizes() -> None:
    def body(group: Group) -> list[float]:
        seen = []
        for numel in (20, 30, 400, 25):
            x = torch.full((numel,), float(numel * (group.rank + 1)))
            group.all_reduce(x, "max")
            seen.append(float(x[-1]))
        return seen

    assert on_group(GlooWorld(), 3, body) == [[60.0, 90.0, 1200.0, 75.0]] * 3


@pytest.mark.usefixtures("small_parts")
def test_several_may_be_in_flight_and_other_calls_between() -> None:
    def body(group: Group) -> list[torch.Tensor]:
        xs = [values(group.rank + 10 * i, 700) for i in range(3)]
        works = [group.start_all_reduce(x) for x in xs]
        group.barrier()
        for work in works:
            work.wait()
        return xs

    first, second = on_group(GlooWorld(), 2, body)
    for i, (x, y) in enumerate(zip(first, second, strict=True)):
        assert torch.equal(x, y)
        assert torch.equal(x, values(10 * i, 700) + values(10 * i + 1, 700))


@pytest.mark.usefixtures("no_common_node")
def test_members_of_different_nodes_fall_back_to_gloo() -> None:
    def body(group: Group) -> tuple[torch.Tensor, bool]:
        x = torch.ones(600_000)
        group.all_reduce(x)
        group.all_reduce(x)
        return x, group._shared._impossible

    assert all(float(x.sum()) == 2_400_000 and fell_back for x, fell_back in on_group(GlooWorld(), 2, body))


def test_it_counts_as_one_all_reduce() -> None:
    world = GlooWorld()
    fabrics = [world.fabric(me) for me in workers(2)]
    at_once([lambda f=f: f.group(spec(2)).all_reduce(torch.ones(600_000)) for f in fabrics])
    assert fabrics[0].traffic.by_op() == {"all_reduce": 1}
    assert fabrics[0].traffic.num_bytes() == 2_400_000
    for fabric in fabrics:
        fabric.close()
    world.close()


def test_an_area_without_its_token_is_not_used() -> None:
    def gather(payload: bytes) -> list[bytes]:
        if payload in (b"y", b"n"):
            return [payload, b"y"]
        node, pid, number, token = payload.decode().split()
        return [payload, f"{node} {pid} {number} {token[::-1]}".encode()]

    files = len(os.listdir("/proc/self/fd"))
    assert share(1000, rank=0, gather=gather) is None
    assert len(os.listdir("/proc/self/fd")) == files


def test_no_memory_means_no_sharing_for_everybody(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "posix_fallocate", lambda fd, start, size: (_ for _ in ()).throw(OSError("full")))
    assert share(1000, rank=0, gather=lambda payload: [payload, payload]) is None


@pytest.mark.parametrize("most", [1000, 1 << 20])
def test_sums_may_go_elsewhere_and_several_are_in_flight(monkeypatch: pytest.MonkeyPatch, most: int) -> None:
    monkeypatch.setattr(shared_reduce, "LEAST_BYTES", 64)
    monkeypatch.setattr(shared_reduce, "MOST_BYTES", most)

    def body(group: Group) -> list[torch.Tensor]:
        sums = []
        for _ in range(2):  # the second time there is room for all of them at once
            xs = [values(group.rank + 10 * i, 100 + 150 * i) for i in range(4)]
            sums = [torch.empty_like(x) for x in xs]
            works = [group.start_all_reduce(x, out=out) for x, out in zip(xs, sums, strict=True)]
            works[0].wait()
            for work in works:
                work.wait()
            assert all(torch.equal(x, values(group.rank + 10 * i, x.numel())) for i, x in enumerate(xs))
        return sums

    for sums in on_group(GlooWorld(), 3, body):
        for i, found in enumerate(sums):
            first, *others = (values(rank + 10 * i, found.numel()) for rank in range(3))
            assert torch.equal(found, first + others[0] + others[1])
