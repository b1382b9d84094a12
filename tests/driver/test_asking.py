"""What is asked of a run is answered once, whatever becomes of the run."""

from raymega.control.commands import Answer
from raymega.control.events import DrainAsked, ResizeAsked
from raymega.driver.hands.asking import OVER, Desk

DRAIN = DrainAsked(request=0, node="n1", by_t=1030.0, cause="asked for")


def test_each_asker_gets_the_answer_to_its_own_wish():
    told: list[DrainAsked | ResizeAsked] = []
    desk = Desk(told.append)
    first, second = desk.ask(DRAIN), desk.ask(ResizeAsked(request=0, devices=3))
    assert [(type(wish), wish.request) for wish in told] == [(DrainAsked, 1), (ResizeAsked, 2)]
    desk.answer(Answer(request=2, accepted=True, reason="so be it"))
    assert (second.result(timeout=0).reason, first.done()) == ("so be it", False)


def test_an_answer_to_a_question_of_an_earlier_controller_does_no_harm():
    desk = Desk(lambda wish: None)
    desk.answer(Answer(request=7, accepted=True, reason="so be it"))


def test_what_was_not_answered_is_refused_with_the_end_of_the_run():
    desk = Desk(lambda wish: None)
    before = desk.ask(DRAIN)
    desk.close()
    for answer in (before.result(timeout=0), desk.ask(DRAIN).result(timeout=0)):
        assert (answer.accepted, answer.reason) == (False, OVER)
