"""Pictures of runs: whole SVG, without scripts, with what they are to show."""

from xml.etree import ElementTree

from raymega.notebook.drawing import Curve, loss_picture, mesh_picture, page
from tests.control.examples import PLAN, SEATS

NODES = {seat.worker: seat.node for seat in SEATS}


def shapes(text: str, kind: str) -> list[ElementTree.Element]:
    return ElementTree.fromstring(text).findall(f"{{http://www.w3.org/2000/svg}}{kind}")


def test_a_mesh_shows_every_worker_with_its_node_and_a_colour_for_each_stage():
    text = mesh_picture(PLAN, nodes=NODES).text
    boxes = shapes(text, "rect")
    assert len(boxes) == PLAN.mesh.size
    assert len({box.get("fill") for box in boxes}) == PLAN.mesh.pp
    assert all(worker in text and node in text for worker, node in NODES.items())


def test_losses_lie_on_one_scale_with_a_bar_for_each_loss_of_a_worker():
    events = [{"event": "WorkerLost", "step": 2, "reason": "<w1> is lost"}, {"event": "StopAsked", "step": 3}]
    first = Curve(label="a", points=((1, 5.0), (2, 4.0), (3, 3.0)))
    text = loss_picture([first, Curve(label="b", points=first.points, dashed=True)], events=events).text
    one, other = shapes(text, "polyline")
    assert one.get("points") == other.get("points")
    assert len(shapes(text, "line")) == 1
    assert "&lt;w1&gt; is lost" in text


def test_a_loss_that_is_not_finite_is_left_out():
    text = loss_picture([Curve(label="a", points=((1, 5.0), (2, float("nan")), (3, 3.0)))]).text
    assert shapes(text, "polyline")[0].get("points").count(",") == 2


def test_a_page_has_no_scripts_and_shows_its_text_as_it_is():
    text = page("a <b>", mesh_picture(PLAN, nodes=NODES))
    assert "<script" not in text
    assert "a &lt;b&gt;" in text
