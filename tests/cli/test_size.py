import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from raymega.cli.app import app
from raymega.cli.size import read_prices
from raymega.errors import ConfigError


def sized(*words: str) -> str:
    done = CliRunner().invoke(app, ["size", *words], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return done.output


@pytest.fixture
def prices(tmp_path: Path) -> str:
    file = tmp_path / "ours.yaml"
    file.write_text("date: 2026-01\nsource: our contract\nusd_per_device_hour: {aws-p5: 2.0}\n")
    return str(file)


def test_a_number_of_parameters_is_enough(prices: str) -> None:
    text = sized("1.3B", "--days", "5", "--prices", prices)
    assert text.startswith("1.32B parameters, 26.35B tokens, within 5 days")
    assert "our contract" in text
    assert "per million tokens" in text


def test_programs_are_given_every_figure(prices: str) -> None:
    found = json.loads(sized("1.3B", "--tokens", "10B", "--prices", prices, "--json"))
    assert found["tokens"] == 10e9
    assert found["fleets"][0]["machine"] == "aws-p5"


def test_the_prices_that_ship_are_dated() -> None:
    prices = read_prices(None)
    assert prices.date > "2025"
    assert prices.usd_per_device_hour["aws-p5"] > 0


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("1.3B", "--tokens", "many"), "--tokens: 'many'"),
        (("1.3B", "--tokens", "inf"), "--tokens is inf"),
        (("1.3B", "--prices", "nowhere.yaml"), "cannot be read"),
        (("10M",), "10M is no size .* from 60M"),
        (("no-such-preset",), "neither a file nor a preset"),
    ],
)
def test_what_makes_no_sense_is_refused(words: tuple[str, ...], says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        sized(*words)
