"""Things that are named rather than passed, so that they are loaded in the process that uses them."""

import importlib
from collections.abc import Callable
from typing import Any


def named(path: str) -> Callable[..., Any]:  # Any: whatever the name stands for
    """The callable that `module:name` means."""
    module, _, name = path.partition(":")
    found: Callable[..., Any] = getattr(importlib.import_module(module), name)
    return found
