"""A calendar that cannot be followed is refused by one clear error, before anything is started."""

import pytest

from raymega.config.load import load, to_yaml
from raymega.config.rules_calendar import entries_of
from raymega.errors import ConfigError


def text(*entries: tuple[str, int], **more: object) -> str:
    told = ", ".join(f'{{from: "{time}", devices: {devices}}}' for time, devices in entries)
    rest = "".join(f", {key}: {value}" for key, value in more.items())
    return f"elastic: {{calendar: [{told}]{rest}}}"


def test_a_calendar_is_read_and_written_back():
    config = load(text(("08:00", 12), ("22:00", 4), timezone="Europe/Berlin"), source="x")
    assert entries_of(config) == (("08:00", 12), ("22:00", 4))
    assert load(to_yaml(config), source="y") == config


def test_a_time_without_quotes_is_the_same():
    assert entries_of(load("elastic: {calendar: [{from: 08:00, devices: 3}]}", source="x")) == (("08:00", 3),)


@pytest.mark.parametrize(
    ("told", "words"),
    [
        (text(("22:00", 4), ("08:00", 12)), "22:00, 08:00 are not in order, each once"),
        (text(("08:00", 4), ("08:00", 12)), "Use 08:00."),
        (text(("8:00", 4)), '8:00 is no time of day. Use two digits each, as "08:00"'),
        (text(("24:00", 4)), "24:00 is no time of day"),
        (text(("08:00", 4), ("22:00", 1), min_devices=2) + "\nrun: {devices: 4}\nparallelism: {data_parallel_size: 4}",
         "1 from 22:00 is below elastic.min_devices 2"),
        (text(("08:00", 9)) + "\nrun: {devices: 4}", "9 from 08:00 is above run.devices 4. Use 4 or less"),
        (text(("08:00", 4), timezone="Europe/Berln"), "Europe/Berln is no time zone of this system. Use Europe/Berlin"),
        (text(("08:00", 4), timezone="Nowhere"), "Use UTC, or a name as Europe/Berlin"),
        ("elastic: {calendar: [{form: '08:00', devices: 4}]}", "Did you mean elastic.calendar[0].from?"),
        ("elastic: {calendar: [{from: '08:00', devices: 0}]}", "elastic.calendar[0].devices"),
    ],
)  # fmt: skip
def test_what_cannot_be_followed_is_refused(told: str, words: str):
    with pytest.raises(ConfigError) as refused:
        load(told, source="run.yaml")
    assert words in str(refused.value)
    assert str(refused.value).count("elastic.calendar:") <= 1
