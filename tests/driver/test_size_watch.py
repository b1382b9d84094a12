"""Several runs on one cluster: what each is told, and that they come to rest without one taking what another has."""

from dataclasses import replace

import pytest

from raymega.config.schema import Config
from raymega.control.events import ResizeAsked
from raymega.control.sharing import Claim
from raymega.control.states import NodeDevices
from raymega.driver.cluster.node_watch import cluster_of, usable
from raymega.driver.cluster.size_watch import SizeWatch, target, wanted
from raymega.plan.cluster import Cluster, Node
from raymega.plan.hardware import DEVICES

NODES = Cluster(nodes=(Node(id="n0", devices=4), Node(id="n1", devices=4)))


def config(**changes: object) -> Config:
    return Config.model_validate(
        {
            "run": {"devices": changes.pop("devices", None)},
            "parallelism": {"data_parallel_size": changes.pop("dp", 2), "pipeline_model_parallel_size": 2},
            "elastic": changes,
        }
    )


def test_a_run_wants_what_its_config_says_or_what_its_calendar_gives():
    assert wanted(config(), now=0.0, devices=8).devices == 4
    assert wanted(config(devices=6), now=0.0, devices=8).devices == 6
    assert wanted(config(dp="auto"), now=0.0, devices=8).devices == 8
    given = wanted(config(calendar=[{"from": "08:00", "devices": 7}]), now=0.0, devices=8)
    assert (given.devices, given.cause) == (7, "the calendar gives 7 devices from 08:00 to 08:00 (UTC)")


def test_what_a_device_holds_is_told_where_it_is_known():
    def row(node: str, kind: str) -> dict[str, object]:
        return {"NodeID": node, "Alive": True, "Resources": {"CPU": 8.0, "GPU": 2.0, f"accelerator_type:{kind}": 1.0}}

    rows = [row("n0", "H200"), row("n1", "A100")]  # of the second there are two sizes
    for device, known in (("cuda", [DEVICES["h200"].usable_bytes, None]), ("cpu", [None, None])):
        told = usable(cluster_of(rows, device=device, cpus_per_worker=1), taken=({}, {}), least=1)
        assert [node.usable_bytes for node in told] == known


def test_what_other_runs_have_is_not_for_this_one_but_its_own_seats_are():
    assert usable(NODES, taken=({"n0": 3, "n1": 4}, {}), least=1) == (NodeDevices(node="n0", devices=1),)
    held = usable(NODES, taken=({"n0": 4}, {"n0": 1}), least=1)
    assert [(node.node, node.devices) for node in held] == [("n0", 1), ("n1", 4)]


def test_a_run_that_others_leave_too_little_waits_for_more():
    assert usable(NODES, taken=({"n0": 3, "n1": 4}, {}), least=2) == ()
    assert len(usable(NODES, taken=({"n0": 3, "n1": 4}, {"n0": 1}), least=2)) == 1
    assert len(usable(NODES, taken=({}, {}), least=9)) == 2, "that there is too little at all is told, and ends the run"


def test_a_run_never_gives_more_than_it_can():
    low = Claim(run="low", priority=0, wanted=4, least=2, seats=(("n0", 4),))
    high = Claim(run="high", priority=5, wanted=8, least=1)
    found = target(low, others=(high,), devices=8, cause="what the config asks for")
    assert found.devices == 2
    assert found.cause.startswith("elastic.priority 0: 2 of 8 devices; beside it high (priority 5) 6")


@pytest.mark.parametrize(("changes", "devices"), [({}, []), ({"calendar": [{"from": "00:00", "devices": 2}]}, [2])])
def test_a_run_that_is_alone_is_told_only_what_its_calendar_gives(monkeypatch, changes: dict, devices: list[int]):
    monkeypatch.setattr("raymega.driver.cluster.size_watch.claims_beside", lambda run, known: {})
    told: list[ResizeAsked] = []
    watch = SizeWatch(config(**changes), run="a", devices=8, tell=told.append)
    assert [event.devices for event in told] == devices
    assert all(event.request is None and event.cause for event in told)
    watch.close()


def test_a_run_beside_one_that_goes_first_begins_with_what_is_left(monkeypatch):
    first = Claim(run="b", priority=1, wanted=6, least=1, seats=(("n0", 4), ("n1", 2)))
    monkeypatch.setattr("raymega.driver.cluster.size_watch.claims_beside", lambda run, known: {"raymega:b": first})
    told: list[ResizeAsked] = []
    watch = SizeWatch(config(), run="a", devices=8, tell=told.append)
    assert [event.devices for event in told] == [2]
    assert watch.taken() == ({"n0": 4, "n1": 2}, {})


def after(claims: list[Claim], number: int, *, devices: int) -> Claim:
    """One run after it has looked: it shrinks at once, and grows onto what nobody has."""
    own, others = claims[number], tuple(claim for claim in claims if claim is not claims[number])
    most = target(own, others=others, devices=devices, cause="").devices
    free = devices - sum(claim.held for claim in claims)
    return replace(own, seats=(("n0", min(most, own.held + max(0, free))),))


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 1, 0), (1, 2, 0)])
def test_runs_that_look_one_after_the_other_come_to_rest_and_never_have_more_than_there_is(order: tuple[int, ...]):
    claims = [
        Claim(run="low", priority=0, wanted=8, least=1, seats=(("n0", 8),)),
        Claim(run="high", priority=5, wanted=4, least=2),
        Claim(run="next", priority=1, wanted=3, least=1),
    ]
    for _ in range(4):
        for number in order:
            claims[number] = after(claims, number, devices=8)
            assert sum(claim.held for claim in claims) <= 8
    assert [claim.held for claim in claims] == [1, 4, 3]
    claims[1] = replace(claims[1], wanted=2)  # its night
    for number in (*order, *order):
        claims[number] = after(claims, number, devices=8)
    assert [claim.held for claim in claims] == [3, 2, 3]
