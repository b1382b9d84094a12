import pytest

from raymega.pipeline.team_stop import Progress, TeamStop, team_stop


@pytest.mark.parametrize(
    ("shards", "stop"),
    [
        ([(5, 5), (3, 5)], TeamStop(finished=5, abandons=False)),
        ([(5, 5), (3, 4)], TeamStop(finished=4, abandons=True)),
        ([(3, 3), (3, 3)], TeamStop(finished=3, abandons=False)),
        ([(3, 9), (3, 8)], TeamStop(finished=3, abandons=False)),
        ([(0, 0), (0, 1)], TeamStop(finished=0, abandons=False)),
        ([(1, 1), (0, 0)], TeamStop(finished=0, abandons=True)),
    ],
)
def test_shards_stop_at_the_furthest_action_that_all_can_finish(shards, stop: TeamStop) -> None:
    assert team_stop([Progress(started=started, supplied=supplied) for started, supplied in shards]) == stop
