"""How many passes a program holds at once, told apart by what is kept of them.

    F0 F1 I0 F2 W0 ..     after F1: 2 open           open: its forward is done, nothing of its backward
                          after I0: 1 open, 1 owed   owed: the weights' part of its backward is to come
                          after F2: 2 open, 1 owed

What an owed pass keeps is not what an open one does, so no single number bounds both.
"""

from raymega.pipeline.actions import Kind, Program

STEPS = {Kind.F: (1, 0), Kind.B: (-1, 0), Kind.I: (-1, 1), Kind.W: (0, -1)}


def most_held(program: Program) -> tuple[tuple[int, int], ...]:
    """(open, owed) after each action; only those of which no other has as many of both."""
    num_open, num_owed, most = 0, 0, dict[int, int]()  # open -> owed at most
    for action in program:
        more_open, more_owed = STEPS[action.kind]
        num_open, num_owed = num_open + more_open, num_owed + more_owed
        most[num_open] = max(most.get(num_open, 0), num_owed)
    found: list[tuple[int, int]] = []
    for at in sorted(most.items(), reverse=True):
        if not found or at[1] > found[-1][1]:
            found.append(at)
    return tuple(reversed(found))
