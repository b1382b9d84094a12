"""How a notebook shows a plan or a simulation: as it is written, whatever the page makes of its own text."""

from raymega.notebook.planning import Shown


def test_a_report_is_in_columns_that_stay_columns():
    shown = Shown(text="stage  layers\n    0  <4>", facts={})
    head, _, rest = shown._repr_html_().partition(">")
    assert rest == "stage  layers\n    0  &lt;4&gt;</pre>"
    for rule in ("font-family:monospace", "white-space:pre", "overflow-x:auto"):
        assert rule in head.split('"')[1].split(";")
