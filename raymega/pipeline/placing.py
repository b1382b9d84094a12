"""On which stage does a virtual stage live, when every stage holds several?

    wrap   0 1 2 3 | 0 1 2 3        the last stage's output goes round to the first
    fold   0 1 2 3 | 3 2 1 0        a V: the middle is handed on within one stage, and both ends are on the first

Source of the fold: Qi et al. 2024, Pipeline Parallelism with Controllable Memory (arXiv 2405.15362), section 3.
"""


def stage_of(virtual_stage: int, *, num_stages: int, folds: bool = False) -> int:
    """The stage of the mesh.

    Args:
        num_stages: of the mesh.

    >>> [stage_of(v, num_stages=3, folds=True) for v in range(6)]
    [0, 1, 2, 2, 1, 0]
    """
    chunk, stage = divmod(virtual_stage, num_stages)
    return num_stages - 1 - stage if folds and chunk % 2 else stage


def virtual_stages_on(stage: int, *, num_stages: int, chunks: int, folds: bool = False) -> tuple[int, ...]:
    """The virtual stages on `stage`, ascending.

    >>> virtual_stages_on(0, num_stages=3, chunks=2, folds=True)
    (0, 5)
    """
    return tuple(
        chunk * num_stages + (num_stages - 1 - stage if folds and chunk % 2 else stage) for chunk in range(chunks)
    )
