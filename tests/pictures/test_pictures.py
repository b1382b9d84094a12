"""Pictures of runs: whole SVG, without scripts, with what they are to show."""

import doctest
from dataclasses import replace
from xml.etree import ElementTree

import pytest

from raymega.control.goodput import CATEGORIES, GOOD
from raymega.mesh import Mesh
from raymega.pictures import colors, scale
from raymega.pictures.losses import MOST_POINTS, Curve, Mark, loss_picture, thinned
from raymega.pictures.meshes import MOST_ROWS, Doing, Stay, mesh_history_picture, mesh_picture
from raymega.pictures.pairs import Compared, pairs_picture
from raymega.pictures.shares import shares_picture
from raymega.pictures.steps import Bar, Row, step_picture
from tests.control.examples import PLAN, SEATS

NODES = {seat.worker: seat.node for seat in SEATS}
STAY = Stay(worker="w0", node="n0", stage=0, begin_s=0.0, end_s=10.0, words="stage 0, replica 0")


def shapes(text: str, kind: str) -> list[ElementTree.Element]:
    return ElementTree.fromstring(text).findall(f"{{http://www.w3.org/2000/svg}}{kind}")


def fills(text: str) -> list[str]:
    return [str(shape.get("fill")) for shape in shapes(text, "rect")]


def test_the_examples_of_the_scales_hold():
    assert doctest.testmod(scale).attempted > 3
    assert doctest.testmod(scale).failed == 0


def test_a_mesh_shows_every_worker_with_its_node_and_a_colour_for_each_stage():
    text = mesh_picture(PLAN, nodes=NODES).text
    used = [fill for fill in fills(text) if fill in colors.STAGES]
    assert len(used) == PLAN.mesh.size
    assert len(set(used)) == PLAN.mesh.pp
    assert all(worker in text and node in text for worker, node in NODES.items())


def test_a_worker_on_a_node_that_may_be_taken_back_is_marked():
    spot = NODES[PLAN.workers[0]]
    text = mesh_picture(PLAN, nodes=NODES, spot={spot}).text
    marked = [shape.text for shape in shapes(text, "text")].count("spot")
    assert 0 < marked == list(NODES.values()).count(spot) < PLAN.mesh.size
    assert text.count("a spot node") == marked
    assert "spot" not in mesh_picture(PLAN, nodes=NODES).text


def test_the_place_of_a_team_that_is_gone_is_nobodys():
    routes = tuple((first, 0) for first, _ in PLAN.routes)
    gap = replace(PLAN, lost=frozenset({(1, 1)}), routes=routes, workers=(*PLAN.workers[:-1], "none3"))
    text = mesh_picture(gap, nodes=NODES).text
    assert ">nobody<" in text
    assert ">others do its part<" in text
    assert ">none3<" not in text


def test_of_a_mesh_of_thousands_the_first_replicas_are_drawn_and_the_rest_is_counted():
    mesh = Mesh(dp=500, pp=PLAN.mesh.pp, tp=1)
    many = replace(PLAN, mesh=mesh, workers=tuple(f"w{rank}" for rank in range(mesh.size)))
    text = mesh_picture(many, nodes={}).text
    assert len(text) < 60_000
    assert "replicas more" in text


def test_losses_lie_on_one_scale_with_a_mark_for_what_happened():
    first = Curve(label="a", points=((1, 5.0), (2, 4.0), (3, 3.0)))
    marks = [Mark(step=2, kind="worker lost", words="<w1> is lost")]
    text = loss_picture([first, Curve(label="b", points=first.points, dashed=True)], marks=marks).text
    one, other = shapes(text, "polyline")
    assert one.get("points") == other.get("points")
    assert len(shapes(text, "circle")) == 1
    assert "worker lost, step 2: &lt;w1&gt; is lost" in text


def test_of_ten_thousand_marks_those_are_drawn_that_can_be_told_apart():
    marks = [Mark(step=step, kind="checkpoint", words="saved") for step in range(1, 10_001)]
    text = loss_picture([Curve(label="a", points=((1, 5.0), (10_000, 4.0)))], marks=marks).text
    assert "checkpoint (10000)" in text
    assert len(shapes(text, "circle")) < 700


@pytest.mark.parametrize("points", [(), ((1, float("nan")),)])
def test_a_run_without_a_loss_says_so(points):
    assert "no step is committed yet" in loss_picture([Curve(label="a", points=points)]).text


def test_a_loss_that_is_not_finite_is_left_out():
    text = loss_picture([Curve(label="a", points=((1, 5.0), (2, float("nan")), (3, 3.0)))]).text
    assert str(shapes(text, "polyline")[0].get("points")).count(",") == 2


def test_a_long_curve_is_thinned_and_keeps_its_peaks():
    points = [(step, 1.0 if step != 54_321 else 9.0) for step in range(1, 100_001)]
    kept = thinned(points)
    assert len(kept) <= MOST_POINTS + 2
    assert (54_321, 9.0) in kept
    assert kept == sorted(kept)


def test_every_category_of_seconds_has_a_colour_and_its_width_is_its_share():
    assert set(colors.CATEGORIES) >= {*CATEGORIES, "validation"}
    text = shares_picture({"useful": 3.0, "idle": 1.0}, workers={}, good=GOOD).text
    bars = [shape for shape in shapes(text, "rect") if shape.get("height") == "30.0"]
    useful, idle = (float(str(bar.get("width"))) for bar in bars)
    assert useful == pytest.approx(3 * idle, abs=0.2)
    assert "goodput 75.0%" in text


def test_a_run_that_has_spent_no_second_yet_says_so():
    assert "no time is known of yet" in shares_picture({}, workers={}, good=GOOD).text


def test_a_stay_is_as_long_as_it_was_and_a_lost_worker_is_crossed():
    stays = (STAY, replace(STAY, worker="w1", stage=1, end_s=5.0, lost=True))
    text = mesh_history_picture(stays, doings=(Doing(what="training", begin_s=0.0, end_s=10.0),)).text
    whole, half = (shape for shape in shapes(text, "rect") if shape.get("fill") in colors.STAGES)
    assert float(str(half.get("width"))) == pytest.approx(float(str(whole.get("width"))) / 2, abs=0.2)
    assert text.count("\u2715") == 1


def test_of_many_workers_the_first_have_a_row():
    stays = [replace(STAY, worker=f"w{number}") for number in range(MOST_ROWS + 60)]
    assert "and 60 workers more" in mesh_history_picture(stays, doings=()).text


def test_a_step_has_a_box_for_each_action_and_a_thin_one_for_what_goes_on_beside():
    bars = (Bar(name="0F0", begin_s=0.0, end_s=0.1), Bar(name="wait", begin_s=0.1, end_s=0.2, beside=True))
    text = step_picture([Row(label="w0", bars=bars)]).text
    assert colors.ACTIONS["F"] in fills(text)
    assert colors.PHASES["wait"] in fills(text)
    assert "forward 0F0: 100 ms from 0 s" in text


def test_pairs_of_one_kind_are_on_one_scale_and_their_ratio_is_told():
    rows = [Compared(what="repair", of="of step 3", predicted_s=1.0, measured_s=2.0)]
    text = pairs_picture(rows).text
    assert "\u00d7 2.00" in text
    assert "2 s" in text
