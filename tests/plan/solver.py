"""An independent solver: small mixed-integer programs given to HiGHS."""

from collections.abc import Sequence

import highspy


def least_largest_load(
    num_layers: int, *, layer_s: Sequence[float], extra_s: Sequence[float], most: Sequence[int]
) -> float | None:
    """The smallest largest load of any split of layers over stages; None if there is none."""
    model = _quiet()
    largest = model.addVariable(lb=0, obj=1)
    counts = [model.addIntegral(lb=1, ub=limit) for limit in most]
    model.addConstr(sum(counts[1:], start=counts[0] * 1) == num_layers)
    for count, cost, extra in zip(counts, layer_s, extra_s, strict=True):
        model.addConstr(largest - cost * count >= extra)
    model.run()
    if model.getModelStatus() != highspy.HighsModelStatus.kOptimal:
        return None
    return model.getObjectiveValue()


def fewest_hops(room: Sequence[int], *, dp: int, pp: int) -> float:
    """The fewest neighbouring stages on different nodes of any placement; `room` in teams of each node."""
    model = _quiet()
    nodes = range(len(room))
    sits = {(r, s, n): model.addBinary() for r in range(dp) for s in range(pp) for n in nodes}
    for r in range(dp):
        for s in range(pp):
            model.addConstr(sum((sits[r, s, n] for n in nodes), start=0) == 1)
    for n in nodes:
        model.addConstr(sum((sits[r, s, n] for r in range(dp) for s in range(pp)), start=0) <= room[n])
    for r in range(dp):
        for s in range(pp - 1):
            leaves = model.addVariable(lb=0, obj=1)
            for n in nodes:
                model.addConstr(leaves - sits[r, s, n] + sits[r, s + 1, n] >= 0)
    model.run()
    return model.getObjectiveValue()


def _quiet() -> highspy.Highs:
    """Without output, on one thread, so that small programs do not wait for many."""
    model = highspy.Highs()
    for option, value in (("output_flag", False), ("threads", 1), ("parallel", "off")):
        model.setOptionValue(option, value)
    return model
