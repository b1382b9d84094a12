"""What a config would take on a cluster, and what it would keep of one that loses nodes; both can be shown as they are.

raymega.plan("nano", cluster="dgx-a100:4")                    as `raymega plan`
raymega.simulate("nano", cluster="cpu:4", mtbf="10m")         as `raymega simulate`
"""

import html
import importlib
from dataclasses import dataclass
from typing import Any

from raymega.driver.records.reading import Words, config_from

AS_WRITTEN = "font-family:monospace;white-space:pre;overflow-x:auto"  # a page's own style of <pre> may be any


@dataclass(frozen=True, slots=True, kw_only=True)
class Shown:
    """A report that prints itself, and shows itself in a notebook. `facts`: the same as plain data."""

    text: str
    facts: dict[str, Any]

    def __str__(self) -> str:
        return self.text

    def __repr__(self) -> str:
        return self.text

    def _repr_html_(self) -> str:
        return f'<pre style="{AS_WRITTEN}">{html.escape(self.text)}</pre>'


def plan(
    config: Words = "nano", *, cluster: str = "local:4", precision: str | None = None, explain: bool = False,
    survivors: bool = False, **overrides: Any,
) -> Shown:  # fmt: skip
    """Predict what `config` takes on `cluster`, and find the layout that is best there.

    Args:
        cluster: a machine and how many, as dgx-a100:16, or a YAML file.
        explain: list what else was looked at.
        survivors: the plan for every number of devices left.

    Raises: ConfigError, PlanError.
    """
    found = _of("plan")
    report = found.plan_report(
        config_from(config, overrides=overrides),
        cluster=cluster,
        precision=found.precision_of(precision),
        survivors=survivors,
    )
    return Shown(text=report.text(explain=explain), facts=report.to_json())


def simulate(
    config: Words = "nano", *, cluster: str = "cpu:4", trace: str | None = None, mtbf: str | None = None,
    duration: str = "24h", back: str = "10m", seed: int = 0, precision: str | None = None, **overrides: Any,
) -> Shown:  # fmt: skip
    """Simulate `config` on `cluster` whose nodes come and go, by the decisions that a run would make.

    Args:
        trace: a file of lines t_s,n_nodes.
        mtbf: instead: failures are drawn, so far apart in the whole cluster, as 10m.
        back: when there is another node for a failed one; never.

    Raises: ConfigError, PlanError.
    """
    found = _of("simulate")
    asked = found.Asked(
        trace=trace, mtbf=mtbf, duration=duration, back=back, seed=seed,
        precision=_of("plan").precision_of(precision),
    )  # fmt: skip
    report = found.simulation_report(config_from(config, overrides=overrides), cluster=cluster, asked=asked)
    return Shown(text=str(report), facts=report.to_json())


def _of(verb: str) -> Any:  # Any: faces do not import each other; both show what the command line says
    return importlib.import_module(f"raymega.cli.{verb}")
