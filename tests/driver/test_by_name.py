"""What is loaded late is loaded by one thread at a time."""

import sys
import threading
from pathlib import Path
from types import SimpleNamespace

import pytest

from raymega.driver.process.by_name import named
from tests.waiting import LIMIT_S

FIRST = """
import shared_by_both as both
both.first_begins.set()
both.second_begins.wait(0.3)  # which it does not, as long as this is being loaded
both.order.append("first is whole")
thing = print
"""
SECOND = """
import shared_by_both as both
both.order.append("second begins")
both.second_begins.set()
thing = print
"""


def test_a_second_thread_loads_only_once_the_first_is_through(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    both = SimpleNamespace(first_begins=threading.Event(), second_begins=threading.Event(), order=[])
    monkeypatch.setitem(sys.modules, "shared_by_both", both)
    monkeypatch.syspath_prepend(tmp_path)
    threads = []
    for name, text in {"loaded_first": FIRST, "loaded_second": SECOND}.items():
        (tmp_path / f"{name}.py").write_text(text)
        threads.append(threading.Thread(target=named, args=(f"{name}:thing",)))
        threads[-1].start()
        assert both.first_begins.wait(LIMIT_S)
    for thread in threads:
        thread.join(LIMIT_S)
    assert both.order == ["first is whole", "second begins"]
    for name in ("loaded_first", "loaded_second"):
        del sys.modules[name]
