"""What each line of a run's files has at least, whichever version of raymega wrote it, so that it can be shown.

    {"step": 13, "loss": 7.12, "mesh": "dp=2 tp=1 pp=2", ..}                a step; null where a loss is not finite
    {"t": .., "seq": 7, "event": "RunEnded", "exit_code": 0, ..}            an event; some have more than others
    {"seq": 7, "t": .., "event": {..}, "state": "Training", ..}             a turn of a journal

Keys that are not named here may be there or not: readers take what is known.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import NoneType
from typing import Any

Line = dict[str, Any]  # Any: JSON
Kinds = tuple[type, ...]
WHOLE: Kinds = (int,)
NUMBER: Kinds = (int, float)
NUMBER_OR_NULL: Kinds = (int, float, NoneType)
WORDS: Kinds = (str,)
TRUTH: Kinds = (bool,)
LIST: Kinds = (list,)
SECTION: Kinds = (dict,)
SECTION_OR_NULL: Kinds = (dict, NoneType)
CALLED = {
    WHOLE: "a whole number", NUMBER: "a number", NUMBER_OR_NULL: "a number or null", WORDS: "text",
    TRUTH: "true or false", LIST: "a list", SECTION: "an object", SECTION_OR_NULL: "an object or null",
}  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """What a line has.

    Args:
        needs: key -> what its value may be.
        more: the same of lines of one `event`, beside `needs`.
    """

    needs: Mapping[str, Kinds] = field(default_factory=dict)
    more: Mapping[str, Mapping[str, Kinds]] = field(default_factory=dict)

    def fault_in(self, line: Line) -> str | None:
        """What is wrong with `line`, as words after its place; None: nothing."""
        fault = _fault(line, self.needs)
        return fault or (_fault(line, self.more.get(line["event"], {})) if self.more else None)


def _fault(line: Line, needs: Mapping[str, Kinds]) -> str | None:
    for key, kinds in needs.items():
        if key not in line:
            return f'has no "{key}"'
        if not isinstance(line[key], kinds):
            return f'has a "{key}" that is not {CALLED[kinds]}'
    return None


ANYTHING = Shape()
STEP_LINE = Shape(
    needs={
        "step": WHOLE, "loss": NUMBER_OR_NULL, "tokens_per_s": NUMBER, "tokens_total": WHOLE, "mesh": WORDS,
        "step_s": NUMBER, "skipped": TRUTH, "t": NUMBER,
    }
)  # fmt: skip
EVENT_LINE = Shape(
    needs={
        "t": NUMBER, "seq": WHOLE, "step": WHOLE, "event": WORDS, "state": WORDS, "commands": LIST, "reason": WORDS,
    },
    more={
        "RunEnded": {"exit_code": WHOLE},
        "StepRepaired": {"predicted_s": NUMBER_OR_NULL, "actual_s": NUMBER},
        "Resized": {"predicted_s": NUMBER_OR_NULL, "actual_s": NUMBER},
    },
)  # fmt: skip
HEAD_LINE = Shape(needs={"epoch": WHOLE, "t": NUMBER, "rules": SECTION, "checkpoint": SECTION_OR_NULL})
TURN_LINE = Shape(
    needs={"seq": WHOLE, "t": NUMBER, "event": SECTION, "state": WORDS, "commands": LIST, "reason": WORDS}
)
