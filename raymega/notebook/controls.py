"""`run.controls()`: buttons for a live run, by ipywidgets where they are installed.

    [look] [pause] [resume] [step] [checkpoint] [stop]     lr [0.001] [set]     devices [2] [resize]
    all workers pause after step 41                        what the run answered, or why it refuses
    demo . training . step 41 of 200 ..                    the run, as it shows itself

Each button asks what the verb of its name asks, and waits for the answer.
"""

import html
import importlib
from collections.abc import Callable
from typing import Any, Protocol

from raymega.errors import ConfigError, RaymegaError


class Steered(Protocol):
    """A run, as far as buttons reach."""

    def pause(self) -> str: ...
    def resume(self) -> str: ...
    def step(self) -> str: ...
    def checkpoint(self) -> str: ...
    def stop(self) -> str: ...
    def set(self, *, lr: float) -> str: ...
    def resize(self, *, devices: int) -> str: ...
    def _repr_html_(self) -> str: ...


def controls_of(run: Steered, *, lr: float, devices: int) -> Any:  # Any: ipywidgets has no types
    """Buttons, the last answer, and the run.

    Args:
        lr, devices: what the fields begin with.
    Raises: ConfigError where ipywidgets is not installed.
    """
    widgets = _ipywidgets()
    answer, shown = widgets.HTML(), widgets.HTML(value=run._repr_html_())
    rate = widgets.FloatText(value=lr, description="lr", step=lr / 10)
    number = widgets.BoundedIntText(value=devices, min=1, max=1_000_000, description="devices")

    def asks(ask: Callable[[], str]) -> Callable[[object], None]:
        def clicked(_: object) -> None:
            answer.value = html.escape(_answered(ask))
            shown.value = run._repr_html_()

        return clicked

    def button(words: str, ask: Callable[[], str]) -> Any:
        made = widgets.Button(description=words, layout=widgets.Layout(width="auto"))
        made.on_click(asks(ask))
        return made

    verbs = (
        button("look", lambda: ""), button("pause", run.pause), button("resume", run.resume),
        button("step", run.step), button("checkpoint", run.checkpoint), button("stop", run.stop),
    )  # fmt: skip
    fields = (
        rate, button("set", lambda: run.set(lr=rate.value)),
        number, button("resize", lambda: run.resize(devices=number.value)),
    )  # fmt: skip
    return widgets.VBox([widgets.HBox(verbs), widgets.HBox(fields), answer, shown])


def _answered(ask: Callable[[], str]) -> str:
    try:
        return ask()
    except RaymegaError as error:
        return str(error)


def _ipywidgets() -> Any:
    try:
        return importlib.import_module("ipywidgets")
    except ImportError as error:
        raise ConfigError(
            "run.controls() needs ipywidgets, which is not installed here: pip install ipywidgets. "
            "Without it every button has its verb: run.pause(), run.resume(), run.step(), run.stop() .."
        ) from error
