"""A member dies or stops for real: everybody else learns of it at once, whatever it is waiting for."""

import signal
import time
from collections.abc import Callable, Generator, Iterator
from typing import Any

import pytest
import torch

from raymega.comm.gloo import GlooFabric
from raymega.comm.gloo_sends import PATIENCE_S
from raymega.comm.group import Group
from raymega.comm.store import RendezvousStore
from raymega.errors import CollectiveTimeout, GroupBroken, RaymegaError
from tests.comm.processes import Party, end_forkserver
from tests.comm.worlds import spec, start

pytestmark = pytest.mark.alone  # it measures how soon eight processes of the machine are awake
WITHIN_S = 1.0  # the rule; on an idle machine it is about 0.03 s


@pytest.fixture(scope="module", autouse=True)
def forkserver() -> Iterator[None]:
    yield
    end_forkserver()


@pytest.fixture
def party() -> Iterator[Party]:
    store = RendezvousStore.open()
    made = Party(store.address)
    yield made
    made.end()
    store.close()


def chain(group: Group) -> None:
    """Each waits for the next: only the last but one waits for the victim itself."""
    group.start_recv(torch.zeros(4), src=group.rank + 1).wait()


def send_much(group: Group) -> None:
    group.start_send(torch.zeros(1_000_000), dst=group.rank + 1).wait()


OPS = {
    "all_reduce": lambda g: g.all_reduce(torch.zeros(4)),
    "large all_reduce": lambda g: g.all_reduce(torch.zeros(1_000_000)),
    "all_gather": lambda g: g.all_gather(torch.zeros(g.size, 100), torch.zeros(100)),
    "reduce_scatter": lambda g: g.reduce_scatter(torch.zeros(100), torch.zeros(g.size * 100)),
    "broadcast": lambda g: g.broadcast(torch.zeros(1000), src=g.size - 1),
    "all_gather_bytes": lambda g: g.all_gather_bytes(b"abc"),
    "barrier": lambda g: g.barrier(),
    "recv": chain,
    "send": send_much,
}


Story = Generator[None, None, Any]


def join_all_but_the_last(group: Group, fabric: GlooFabric) -> Story:
    """Run every operation at once, each on a group of its own; the last member comes to none of them.

    Returns: operation -> (error, when).
    """
    groups = {op: fabric.group(spec(group.size, f"g1/{op}")) for op in OPS}
    if group.rank == group.size - 1:
        yield
        signal.pause()
    threads = {op: start(lambda op=op: timed(lambda: OPS[op](groups[op]))) for op in OPS}
    yield
    return {op: thread.join().result for op, thread in threads.items()}


def timed(call: Callable[[], None]) -> tuple[RaymegaError | None, float]:
    try:
        call()
    except RaymegaError as error:
        return error, time.monotonic()
    return None, time.monotonic()


def repeat_all_reduce(group: Group, fabric: GlooFabric) -> Story:
    yield
    while True:
        group.all_reduce(torch.zeros(600_000))


def repeat_all_to_all(group: Group, fabric: GlooFabric) -> Story:
    """Messages so large that somebody is in the middle of one at any time."""
    x, sizes = torch.zeros(group.size * 4_000_000), [4_000_000] * group.size
    yield
    while True:
        group.start_all_to_all(torch.empty_like(x), x, out_sizes=sizes, in_sizes=sizes).wait()


def build_another(group: Group, fabric: GlooFabric) -> Story:
    """The last member announces itself and then does not connect."""
    yield
    if group.rank == group.size - 1:
        fabric._rendezvous.meet(spec(group.size, "g1/other"), rank=group.rank, here="127.0.0.1 1")
        signal.pause()
    fabric.group(spec(group.size, "g1/other"))


def test_a_death_wakes_all_survivors_from_every_operation(party: Party) -> None:
    *survivors, victim = party.start(join_all_but_the_last, size=4)
    killed_s = victim.signal(signal.SIGKILL)
    for survivor in survivors:
        for op, (error, at_s) in survivor.outcome().result.items():
            assert isinstance(error, GroupBroken), op
            assert at_s - killed_s < WITHIN_S, op


def test_a_death_amid_running_collectives_wakes_all_survivors(party: Party) -> None:
    *survivors, victim = party.start(repeat_all_reduce, size=4)
    killed_s = victim.signal(signal.SIGKILL)
    outcomes = [survivor.outcome() for survivor in survivors]
    assert [type(outcome.error) for outcome in outcomes] == [GroupBroken] * 3
    latest_s = max(outcome.at_s for outcome in outcomes) - killed_s
    print(f"all survivors out after {1000 * latest_s:.0f} ms")
    assert latest_s < WITHIN_S


@pytest.mark.parametrize("size", [2, 3])
def test_a_death_amid_large_messages_wakes_all_survivors(party: Party, size: int) -> None:
    *survivors, victim = party.start(repeat_all_to_all, size=size)
    victim.signal(signal.SIGSTOP)  # it reads no more: what is sent to it fills the wire
    killed_s = victim.signal(signal.SIGKILL)
    outcomes = [survivor.outcome() for survivor in survivors]
    assert [type(outcome.error) for outcome in outcomes] == [GroupBroken] * (size - 1)
    assert max(outcome.at_s for outcome in outcomes) - killed_s < PATIENCE_S + WITHIN_S  # gloo may forget one


def test_a_death_while_a_group_is_built_is_named_at_the_limit(party: Party) -> None:
    *survivors, victim = party.start(build_another, size=3, timeout_s=1.0)
    victim.signal(signal.SIGKILL)
    for survivor in survivors:
        error = survivor.outcome().error
        assert isinstance(error, CollectiveTimeout)
        assert error.facts["missing"] == ("w2",)


def test_a_stopped_member_is_named_when_the_limit_is_reached(party: Party) -> None:
    *waiting, stopped = party.start(join_all_but_the_last, size=3, timeout_s=2.0)
    stopped.signal(signal.SIGSTOP)
    outcomes = [member.outcome().result for member in waiting]
    for op in OPS:
        errors = [outcome[op][0] for outcome in outcomes]
        late = [error for error in errors if isinstance(error, CollectiveTimeout)]
        assert late, op
        assert all(isinstance(error, CollectiveTimeout | GroupBroken) for error in errors), op
        if op not in ("recv", "send"):  # those wait for one peer, and name it
            assert {error.facts["missing"] for error in late} == {("w2",)}, op
