import doctest
from types import ModuleType

import pytest

from raymega.pipeline import actions, schedule_interleaved
from raymega.plan import cluster


@pytest.mark.parametrize("module", [actions, schedule_interleaved, cluster])
def test_the_examples_in_the_docstrings_are_what_the_code_answers(module: ModuleType) -> None:
    outcome = doctest.testmod(module)
    assert outcome.attempted > 0
    assert outcome.failed == 0
