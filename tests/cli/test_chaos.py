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


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], "chaos wants to know what: orders"),
        (["--trace", "/nosuch/trace.csv"], "/nosuch/trace.csv cannot be read"),
    ],
)
def test_chaos_without_orders_or_with_a_trace_that_is_none_is_refused(words, said):
    result = CliRunner().invoke(app, ["chaos", "nosuch", *words])
    assert said in str(result.exception)


def test_a_trace_that_is_no_trace_is_refused_with_its_line(tmp_path):
    (tmp_path / "trace.csv").write_text("t_s,n_nodes\n0,4\n9,many\n")
    result = CliRunner().invoke(app, ["chaos", "nosuch", "--trace", str(tmp_path / "trace.csv")])
    assert "line 3: '9,many'" in str(result.exception)
