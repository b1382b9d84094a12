"""Which layout a run takes on which devices, and what a step of it costs.

The room can be called too, since `raymega.plan` is promised as a function: `raymega.plan("nano", cluster="local:4")`.
"""

import importlib
import sys
from types import ModuleType
from typing import Any


class _Callable(ModuleType):
    """A module that can be called; what it calls is a face, loaded then."""

    def __call__(self, config: Any = "nano", **options: Any) -> Any:  # Any: as of `raymega.notebook.planning.plan`
        return importlib.import_module("raymega.notebook.planning").plan(config, **options)


sys.modules[__name__].__class__ = _Callable
