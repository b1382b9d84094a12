"""`raymega chaos` refuses what is no order before it looks for a run."""

import pytest
from typer.testing import CliRunner

from raymega.cli.app import app
from raymega.errors import ConfigError


def test_an_order_that_cannot_be_read_is_refused_with_the_nearest_word():
    result = CliRunner().invoke(app, ["chaos", "nosuch", "kil stage=1 replica=0 step=4"])
    assert isinstance(result.exception, ConfigError)
    with pytest.raises(ConfigError, match=r"kil is no verb\. Did you mean kill\?"):
        raise result.exception
