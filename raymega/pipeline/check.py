"""Are programs legal? Every fault at once, each by the name of the team and the action.

    1  work        every action of the step stands in exactly one program, exactly once
    2  order       a backward stands after its forward, in the same program
    3  messages    what one team sends another in one direction is taken in, in the order in which it was sent
    4  in flight   a team never holds more activations than its schedule promises
    5  progress    they run to the end with unbuffered sends; otherwise the circle of waits is named

Schedules, repaired steps and programs read from a file all pass through here.
"""

from collections import Counter
from collections.abc import Collection, Iterator, Mapping

from raymega.errors import RaymegaBug
from raymega.pipeline.actions import WHOLE, Action, Kind, Programs, alive_after, source, work_of_step
from raymega.pipeline.rendezvous import wait_cycle


def check(
    programs: Programs,
    *,
    num_stages: int,
    num_microbatches: int,
    kinds: tuple[Kind, ...] = WHOLE,
    in_flight: Mapping[str, int] | None = None,
    receives_ahead: int | None = 1,
) -> None:
    """Hold the programs of a training step to the five rules.

    Args:
        programs: of all teams, by name.
        num_stages: virtual stages.
        kinds: in which every micro-batch passes each of them.
        in_flight: the most activations of each team; None: no limit.
        receives_ahead: actions ahead of the one at hand for which receives are posted; None: all.
    Raises:
        RaymegaBug: with every fault; `facts["faults"]` has them one by one.
    """
    found = faults(
        programs,
        num_stages=num_stages,
        work=work_of_step(num_stages=num_stages, num_microbatches=num_microbatches, kinds=kinds),
        in_flight=in_flight,
        receives_ahead=receives_ahead,
    )
    if found:
        raise RaymegaBug("These programs cannot run. " + "; ".join(found) + ".", faults=found)


def faults(
    programs: Programs,
    *,
    num_stages: int,
    work: Collection[Action],
    in_flight: Mapping[str, int] | None = None,
    receives_ahead: int | None = 1,
    held: Mapping[str, int] | None = None,
    forwards_only: Collection[Action] = (),
) -> tuple[str, ...]:
    """What is wrong with `programs` if they are to do just `work`; empty if nothing is.

    An input that no program makes is taken from a log, as in a repair; whether it is there is not judged here.

    Args:
        held: activations that a team holds to begin with.
        forwards_only: forwards whose activations are not kept.
    """
    found = (
        *_work_faults(programs, frozenset(work)),
        *_order_faults(programs),
        *_message_faults(programs, num_stages),
        *_in_flight_faults(programs, in_flight or {}, held=held or {}, dropped=frozenset(forwards_only)),
    )
    # Only complete work that feeds itself in order can be asked whether it stands still.
    return found or _progress_faults(programs, num_stages, receives_ahead)


def _work_faults(programs: Programs, work: frozenset[Action]) -> Iterator[str]:
    teams: dict[Action, list[str]] = {}
    for team, program in programs.items():
        for action in program:
            teams.setdefault(action, []).append(team)
    for action in sorted(work - teams.keys()):
        yield f"{action} is missing"
    for action, where in sorted(teams.items()):
        if action not in work:
            yield f"{action} in {where[0]} is not part of the step"
        elif len(where) > 1:
            times = ", ".join(f"{count} times in {team}" for team, count in Counter(where).items())
            yield f"{action} stands {times}"


def _order_faults(programs: Programs) -> Iterator[str]:
    all_actions = {action: team for team, program in programs.items() for action in program}
    for team, program in programs.items():
        index = {action: i for i, action in enumerate(program)}
        for action, i in index.items():
            forward = Action(action.stage, Kind.F, action.microbatch)
            if action.kind is Kind.F or forward not in all_actions:
                continue
            if forward not in index:
                yield f"{action} stands in {team}, its {forward} in {all_actions[forward]}"
            elif index[forward] > i:
                yield f"{action} stands before {forward} in {team}"


def _message_faults(programs: Programs, num_stages: int) -> Iterator[str]:
    """Compare, for each sender, receiver and direction, the order of sending with the order of taking in."""
    place = {action: (team, i) for team, program in programs.items() for i, action in enumerate(program)}
    taken_in: dict[tuple[str, str, Kind], list[Action]] = {}
    for receiver, program in programs.items():
        for action in program:
            made = source(action, num_stages=num_stages)
            if made in place and place[made][0] != receiver:
                taken_in.setdefault((place[made][0], receiver, made.kind), []).append(made)
    for (sender, receiver, _), messages in taken_in.items():
        sent = sorted(messages, key=lambda made: place[made][1])
        for first_sent, first_taken in zip(sent, messages, strict=True):
            if first_sent != first_taken:
                yield f"{sender} sends {first_sent} before {first_taken}, {receiver} takes in {first_taken} first"
                break


def _in_flight_faults(
    programs: Programs, limits: Mapping[str, int], *, held: Mapping[str, int], dropped: Collection[Action]
) -> Iterator[str]:
    for team, limit in limits.items():
        program = tuple(action for action in programs[team] if action not in dropped)
        for action, more in zip(program, alive_after(program), strict=True):
            alive = held.get(team, 0) + more
            if alive > limit:
                yield f"{team} has {alive} activations alive after {action}, its limit is {limit}"
                break


def _progress_faults(programs: Programs, num_stages: int, receives_ahead: int | None) -> tuple[str, ...]:
    circle = wait_cycle(programs, num_stages=num_stages, receives_ahead=receives_ahead)
    return (f"deadlock: {', and '.join(circle)}",) if circle else ()
