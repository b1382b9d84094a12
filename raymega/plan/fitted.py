"""What is reached of what hardware could do: the fitted constants of the time model, all of them.

    constant         value   unit                          row it came from
    matmul_share     0.838   of the device's FLOP/s        table 4, 22B: forward and backward of one layer
    memory_share     0.815   of its memory bytes/s         table 4, 22B: the same, and what selective recompute adds
    link_share       0.659   of a link's bytes/s           table 4, 22B: the same
    exposed_share    0.634   of a collective's seconds     table 4, 22B: backward with and without sequence parallelism

`exposed_share` is what is seen of a collective that runs beside a matrix product, as in a backward. Table 4 of
Korthikanti et al. 2022 (arXiv 2205.05198): one layer of the 22B shape on 8 A100, ten times, least squares of the
relative errors; the largest is 1 %. None depends on a model. `raymega calibrate` measures them on the cluster at hand.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Constants:
    """Shares of the hardware's ceilings, and what the host adds; all measured, none by a model's name.

    Args:
        pass_s: host's seconds of one forward or backward of a stage that the device does not hide.
        step_s: host's seconds of a step, besides.
    """

    matmul_share: float
    memory_share: float
    link_share: float
    exposed_share: float
    pass_s: float = 0.0
    step_s: float = 0.0


PUBLISHED = Constants(matmul_share=0.838, memory_share=0.815, link_share=0.659, exposed_share=0.634)
