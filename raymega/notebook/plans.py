"""The plan of a run as it shows itself: who has which place, on which node.

    plan dp=2 tp=1 pp=2, 4 workers, schedule 1f1b, 8 micro-batches of 4 samples
      stage 0   layers 0-1   w0 on 70e46674   w2 on 70e46674
      stage 1   layers 2-3   w1 on 70e46674   w3 on 70e46674

In a notebook a box for each worker stands below the first line. Else it is the plan that it shows.
"""

import html
from collections.abc import Mapping
from dataclasses import dataclass, field, fields

from raymega.driver.records.progress import Progress
from raymega.driver.records.summary import plan_lines
from raymega.notebook.showing import MESH, SPOT, captioned, page
from raymega.pictures.meshes import mesh_picture
from raymega.plan.plan import Plan


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class ShownPlan(Plan):
    """A plan of a run.

    Args:
        lines: what it is.
        nodes: worker -> its node.
        spot: nodes that may be taken back at any time.
    """

    lines: tuple[str, ...] = field(compare=False)
    nodes: Mapping[str, str] = field(compare=False)
    spot: frozenset[str] = field(compare=False)

    @classmethod
    def of(cls, progress: Progress) -> "ShownPlan | None":
        """The newest plan of a run; None before the first."""
        if progress.plan is None:
            return None
        values = {one.name: getattr(progress.plan, one.name) for one in fields(progress.plan) if one.init}
        nodes = {seat.worker: seat.node for seat in progress.seats}
        return cls(**values, lines=tuple(plan_lines(progress.plan, progress)), nodes=nodes, spot=progress.spot)

    def __str__(self) -> str:
        return "\n".join(self.lines)

    def __repr__(self) -> str:
        return str(self)

    def _repr_html_(self) -> str:
        drawn = mesh_picture(self, nodes=self.nodes, spot=self.spot)
        return page(f"<b>{html.escape(self.lines[0])}</b>", captioned(drawn, f"{MESH}{SPOT if self.spot else ''}"))
