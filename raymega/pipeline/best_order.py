"""Which order is shorter, that of trains or that by the clock? Either has passed the same check as schedules.

    by the clock | F0--- F2---       B0--------- F4--- B2---------       B4---      24: taken, if it is legal
    trains       | F0---          B0--------- F2---          B2--------- ..         30: never stand still

Both are functions of the same arguments, so every rank that asks finds the same order.
"""

from collections.abc import Collection, Mapping

from raymega.errors import RaymegaBug
from raymega.pipeline.actions import Action, Programs
from raymega.pipeline.by_clock import by_clock
from raymega.pipeline.check import faults
from raymega.pipeline.running_order import Durations
from raymega.pipeline.timeline import finish_s
from raymega.pipeline.trains import Timetable, timetable


def best_order(
    team_of: Mapping[Action, str],
    *,
    durations: Durations,
    num_stages: int,
    limits: Mapping[str, int],
    held: Mapping[str, int],
    forwards_only: Collection[Action] = (),
) -> Timetable:
    """Order what each team has to run. Arguments as for `trains.timetable`.

    Args:
        durations: of every (virtual stage, kind) that occurs, in any unit.
    """

    def wrong(programs: Programs, in_flight: Mapping[str, int]) -> tuple[str, ...]:
        return faults(
            programs, num_stages=num_stages, work=team_of.keys(), in_flight=in_flight, held=held,
            forwards_only=forwards_only,
        )  # fmt: skip

    def end(programs: Programs) -> float:
        return finish_s(programs, durations=durations, num_stages=num_stages)

    trains = timetable(team_of, num_stages=num_stages, limits=limits, held=held, forwards_only=forwards_only)
    found = by_clock(
        team_of, durations=durations, num_stages=num_stages, limits=limits, held=held, forwards_only=forwards_only
    )
    if found is not None and end(found) < end(trains.programs) and not wrong(found, limits):
        return Timetable(programs=found, in_flight=limits)
    if told := wrong(trains.programs, trains.in_flight):
        raise RaymegaBug("These programs do not do the work. " + "; ".join(told) + ".", faults=told)
    return trains
