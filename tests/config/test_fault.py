import pytest

from raymega.config.fault import are, counted


@pytest.mark.parametrize(
    ("number", "noun", "said"),
    [
        (0, "rewind", "0 rewinds are"),
        (1, "recovery", "1 recovery is"),
        (2, "recovery", "2 recoveries are"),
        (1, "device", "1 device is"),
        (1024, "device", "1,024 devices are"),
        (3, "micro-batch", "3 micro-batches are"),
        (2, "day", "2 days are"),
    ],
)
def test_one_thing_is_and_several_are(number: int, noun: str, said: str) -> None:
    assert f"{counted(number, noun=noun)} {are(number)}" == said
