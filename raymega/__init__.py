"""raymega trains large language models on clusters that lose machines.

    run = raymega.launch("nano", background=True)     start a run; raymega.attach("name") finds one
    raymega.plan("nano", cluster="local:4")           what it would take, what would be better
    raymega.simulate("nano", cluster="cpu:4")         what it would keep of a cluster that loses nodes

Each loads what it needs when it is first used.
"""

import importlib as _importlib
from typing import Any as _Any

__version__ = "0.1.0"
__all__ = ["__version__", "attach", "launch", "plan", "simulate"]

_FACES = {"launch": "launching", "attach": "launching", "simulate": "planning"}


def __getattr__(name: str) -> _Any:  # Any: whatever the name stands for
    if name == "plan":
        return _importlib.import_module("raymega.plan")  # which can be called
    if name not in _FACES:
        raise AttributeError(f"module 'raymega' has no attribute {name!r}")
    return getattr(_importlib.import_module(f"raymega.notebook.{_FACES[name]}"), name)
