"""An agent on a real node: the cloud's notice reaches Ray's table, and a node that is left goes before its deadline."""

import pytest

from raymega.driver.spot.agent import is_used
from raymega.driver.spot.agents import watched
from raymega.plan.cluster import MARKET_LABEL
from tests.driver.spot.spot_node import WARNING_S
from tests.driver.test_small import row
from tests.programs import told_by


def test_agents_are_where_the_config_wants_them():
    spot = row("2") | {"Labels": {MARKET_LABEL: "spot"}}
    rows = [row("1"), spot, row("3", alive=False) | {"Labels": {MARKET_LABEL: "spot"}}]
    assert watched(rows, notices="auto") == {"2"}
    assert watched(rows, notices="off") == set()
    assert watched(rows, notices="gcp") == {"1", "2"}


def test_a_node_is_used_as_long_as_one_of_its_processes_does_something():
    agents = ("ray::IDLE", "ray::DashboardAgent", "/usr/bin/python log_monitor.py", "ray::SpotAgent.asks")
    assert not is_used(agents)
    assert is_used((*agents, "ray::WorkerActor.pulse"))


@pytest.mark.ray
@pytest.mark.slow
def test_a_notice_reaches_rays_table_and_the_cloud_hears_when_the_node_is_left():
    told, _ = told_by("tests.driver.spot.spot_node", limit_s=280.0)
    print(told)
    assert told["heard_s"] < 10.0
    assert 0.0 < told["left_s"] - WARNING_S < told["heard_s"] + 1.0
    assert told["gone_s"] < WARNING_S, "a node that is left does not wait for its deadline"
    assert told["by_others_s"] < WARNING_S, "nor one that somebody else has had drained, without a word of the cloud"
    assert (told["early"], told["posted"]) == (0, [{"StartRequests": [{"EventId": "602d9444"}]}])
