"""What every kind of group must do: the same tests for threads and for gloo."""

from collections.abc import Iterator

import pytest
import torch

from raymega.comm.group import Group, GroupSpec
from raymega.comm.solo import SoloGroup
from raymega.errors import CollectiveTimeout, GroupBroken
from tests.comm.worlds import WORLDS, World, at_once, on_group, spec, start, workers
from tests.waiting import eventually


@pytest.fixture(params=WORLDS)
def world(request: pytest.FixtureRequest) -> Iterator[World]:
    made = WORLDS[request.param]()
    yield made
    made.close()


def ramp(rank: int, size: int = 6) -> torch.Tensor:
    return torch.arange(size, dtype=torch.float32) + 10 * rank


def test_all_reduce_adds_up(world: World) -> None:
    def body(group: Group) -> torch.Tensor:
        x = ramp(group.rank)
        group.all_reduce(x)
        return x

    for x in on_group(world, 3, body):
        assert torch.equal(x, 3 * ramp(0) + 30)


def test_all_reduce_finds_the_maximum(world: World) -> None:
    def body(group: Group) -> torch.Tensor:
        x = ramp(group.rank).to(torch.int64) * (-1) ** group.rank
        group.all_reduce(x, "max")
        return x

    assert all(torch.equal(x, ramp(2).to(torch.int64)) for x in on_group(world, 3, body))


@pytest.mark.parametrize("numel", [1, 7, 1000, 600_001])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_all_members_get_the_same_bits(world: World, numel: int, dtype: torch.dtype) -> None:
    def body(group: Group) -> list[torch.Tensor]:
        x = torch.randn(numel, generator=torch.Generator().manual_seed(group.rank)).to(dtype)
        results = []
        for _ in range(3):
            results.append(x.clone())
            group.all_reduce(results[-1])
        return results

    first, *rest = [x for results in on_group(world, 3, body) for x in results]
    assert all(torch.equal(first, x) for x in rest)


def test_reductions_may_be_in_flight_together(world: World) -> None:
    def body(group: Group) -> list[float]:
        xs = [torch.full((200_000,), float(group.rank + i)) for i in range(4)]
        works = [group.start_all_reduce(x) for x in xs]
        for work in works:
            work.wait()
        return [float(x[-1]) for x in xs]

    assert on_group(world, 2, body) == [[1.0, 3.0, 5.0, 7.0]] * 2


def test_each_member_gets_its_part_of_everyones(world: World) -> None:
    sizes = [2, 0, 3]

    def body(group: Group) -> torch.Tensor:
        x, out = ramp(group.rank)[:5].clone(), torch.empty(3 * sizes[group.rank])
        group.start_all_to_all(out, x, out_sizes=[sizes[group.rank]] * 3, in_sizes=sizes).wait()
        return out

    first, second, third = on_group(world, 3, body)
    assert torch.equal(first, torch.cat([ramp(r)[:2] for r in range(3)]))
    assert second.numel() == 0
    assert torch.equal(third, torch.cat([ramp(r)[2:5] for r in range(3)]))


def test_all_gather_puts_ranks_in_order(world: World) -> None:
    def body(group: Group) -> tuple[torch.Tensor, torch.Tensor]:
        stacked, joined = torch.empty(3, 2, 3), torch.empty(6, 3)
        group.all_gather(stacked, ramp(group.rank).view(2, 3))
        group.all_gather(joined, ramp(group.rank).view(2, 3))
        return stacked, joined

    expected = torch.stack([ramp(r).view(2, 3) for r in range(3)])
    for stacked, joined in on_group(world, 3, body):
        assert torch.equal(stacked, expected)
        assert torch.equal(joined, expected.view(6, 3))


def test_reduce_scatter_gives_each_its_piece(world: World) -> None:
    def body(group: Group) -> tuple[torch.Tensor, torch.Tensor]:
        x, out = ramp(group.rank), torch.empty(2)
        group.reduce_scatter(out, x)
        return out, x

    whole = (3 * ramp(0) + 30).view(3, 2)
    for rank, (out, x) in enumerate(on_group(world, 3, body)):
        assert torch.equal(out, whole[rank])
        assert torch.equal(x, ramp(rank)), "the input is left as it was"


def test_broadcast_copies_the_source(world: World) -> None:
    def body(group: Group) -> torch.Tensor:
        x = ramp(group.rank)
        group.broadcast(x, src=1)
        return x

    assert all(torch.equal(x, ramp(1)) for x in on_group(world, 3, body))


def test_bytes_of_any_length_are_gathered(world: World) -> None:
    payloads = [b"", b"abc", b"x" * 5000]
    assert on_group(world, 3, lambda g: g.all_gather_bytes(payloads[g.rank])) == [payloads] * 3


def test_messages_are_matched_by_tag_and_order(world: World) -> None:
    def body(group: Group) -> list[float] | None:
        if group.rank == 0:
            works = [group.start_send(torch.tensor([v]), dst=1, tag=tag) for v, tag in ((1.0, 5), (2.0, 6), (3.0, 5))]
            for work in works:
                work.wait()
            return None
        xs = [torch.zeros(1) for _ in range(3)]
        works = [group.start_recv(x, src=0, tag=tag) for x, tag in zip(xs, (6, 5, 5), strict=True)]
        for work in works:
            work.wait()
        return [float(x) for x in xs]

    assert on_group(world, 2, body)[1] == [2.0, 1.0, 3.0]


def test_two_groups_of_the_same_pair_do_not_mix(world: World) -> None:
    fabrics = [world.fabric(me) for me in workers(2)]

    def sends() -> None:
        one, two = (fabrics[0].group(spec(2, key)) for key in ("g1/a", "g1/b"))
        works = [two.start_send(torch.tensor([2.0]), dst=1), one.start_send(torch.tensor([1.0]), dst=1)]
        for work in works:
            work.wait()

    def receives() -> list[float]:
        xs = [torch.zeros(1), torch.zeros(1)]
        one, two = (fabrics[1].group(spec(2, key)) for key in ("g1/a", "g1/b"))
        for work in [one.start_recv(xs[0], src=0), two.start_recv(xs[1], src=0)]:
            work.wait()
        return [float(x) for x in xs]

    threads = at_once([sends, receives])
    assert [t.error for t in threads] == [None, None]
    assert threads[1].result == [1.0, 2.0]
    for fabric in fabrics:
        fabric.close()


def test_generations_live_side_by_side(world: World) -> None:
    old = [world.fabric(me, generation=1) for me in workers(3)]
    new = [world.fabric(me, generation=2) for me in workers(2)]
    at_once([lambda f=f: f.group(spec(3)) for f in old])
    at_once([lambda f=f: f.group(spec(2)) for f in new])
    for fabric in old:
        fabric.abort()
    xs = [torch.ones(4), torch.ones(4)]
    threads = at_once([lambda f=f, x=x: f.group(spec(2)).all_reduce(x) for f, x in zip(new, xs, strict=True)])
    assert [t.error for t in threads] == [None, None]
    assert all(torch.equal(x, torch.full((4,), 2.0)) for x in xs)
    for fabric in [*old, *new]:
        fabric.close()


OPS = {
    "all_reduce": lambda g: g.all_reduce(torch.zeros(4)),
    "large all_reduce": lambda g: g.all_reduce(torch.zeros(1_000_000)),
    "all_gather": lambda g: g.all_gather(torch.zeros(2, 4), torch.zeros(4)),
    "reduce_scatter": lambda g: g.reduce_scatter(torch.zeros(4), torch.zeros(8)),
    "broadcast": lambda g: g.broadcast(torch.zeros(4), src=1 - g.rank),
    "all_gather_bytes": lambda g: g.all_gather_bytes(b"abc"),
    "recv": lambda g: g.start_recv(torch.zeros(4), src=1 - g.rank).wait(),
    "barrier": lambda g: g.barrier(),
}


@pytest.mark.parametrize("op", OPS)
def test_abort_wakes_a_blocked_member(world: World, op: str) -> None:
    fabrics = [world.fabric(me) for me in workers(2)]
    groups = [t.result for t in at_once([lambda f=f: f.group(spec(2)) for f in fabrics])]
    blocked = start(lambda: OPS[op](groups[0]))
    eventually(lambda: fabrics[0].traffic.calls() == 1, limit_s=5.0)
    fabrics[0].abort()
    assert isinstance(blocked.join(1.0).error, GroupBroken)
    with pytest.raises(GroupBroken, match="g1/dp/0"):
        groups[0].barrier()
    assert isinstance(start(lambda: OPS[op](groups[1])).join(1.0).error, GroupBroken), "the peer learns of it"
    fabrics[1].close()


def test_abort_frees_a_member_that_builds(world: World) -> None:
    fabric = world.fabric("w0")
    building = start(lambda: fabric.group(spec(2)))
    fabric.abort()
    assert isinstance(building.join(1.0).error, GroupBroken)
    with pytest.raises(GroupBroken):
        fabric.group(spec(2, "g1/other"))


def test_building_names_who_never_came(world: World) -> None:
    fabrics = [world.fabric(me, timeout_s=0.5) for me in ("w0", "w2")]
    for thread in at_once([lambda f=f: f.group(spec(4)) for f in fabrics]):
        assert isinstance(thread.error, CollectiveTimeout)
        assert thread.error.facts["missing"] == ("w1", "w3")
        assert "w1, w3 never came" in str(thread.error)
    for fabric in fabrics:
        fabric.close()


@pytest.mark.parametrize("op", ["all_reduce", "large all_reduce", "barrier", "recv"])
def test_a_wait_that_reaches_its_limit_names_who_is_missing(world: World, op: str) -> None:
    fabrics = [world.fabric(me, timeout_s=0.5) for me in workers(2)]
    groups = [t.result for t in at_once([lambda f=f: f.group(spec(2)) for f in fabrics])]
    with pytest.raises(CollectiveTimeout) as caught:
        OPS[op](groups[0])
    assert caught.value.facts["missing"] == ("w1",)
    with pytest.raises(GroupBroken):
        groups[0].barrier()
    for fabric in fabrics:
        fabric.close()


def test_a_group_is_built_once(world: World) -> None:
    fabrics = [world.fabric(me) for me in workers(2)]
    threads = at_once([lambda f=f: f.group(spec(2)) is f.group(spec(2)) for f in fabrics])
    assert [t.result for t in threads] == [True, True]
    for fabric in fabrics:
        fabric.close()


def test_a_group_of_one_does_nothing_and_counts_nothing(world: World) -> None:
    fabric = world.fabric("w0")
    group = fabric.group(GroupSpec(key="g1/tp/0", members=("w0",)))
    x, out = torch.ones(3), torch.zeros(1, 3)
    group.all_reduce(x)
    group.all_gather(out, x)
    group.barrier()
    assert isinstance(group, SoloGroup)
    assert torch.equal(out[0], torch.ones(3))
    assert group.all_gather_bytes(b"a") == [b"a"]
    assert fabric.traffic.calls() == 0
    fabric.close()


def test_traffic_is_counted_by_operation(world: World) -> None:
    fabrics = [world.fabric(me) for me in workers(2)]

    def body(rank: int) -> None:
        group = fabrics[rank].group(spec(2))
        group.all_reduce(torch.zeros(5))
        group.barrier()
        x = torch.zeros(3)
        (group.start_send(x, dst=1) if rank == 0 else group.start_recv(x, src=0)).wait()

    at_once([lambda: body(0), lambda: body(1)])
    traffic = fabrics[0].traffic
    assert traffic.by_op() == {"all_reduce": 1, "barrier": 1, "send": 1}
    assert (traffic.collectives, traffic.messages) == (2, 1)
    assert traffic.num_bytes("all_reduce", group="dp") == 20
    for fabric in fabrics:
        fabric.close()
