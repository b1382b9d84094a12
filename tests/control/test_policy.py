import pytest
from hypothesis import given
from hypothesis import strategies as st

from raymega.config.schema import Config, TrainingConfig
from raymega.control.policy import Rules, back_off_s, eval_steps, granted_until, save_steps, stop_exit_code
from tests.control.fake_hands import RULES


def test_the_first_leave_is_two_steps_ahead():
    assert granted_until(committed=0, granted=0, recent_step_s=(), steps=100) == 2


@pytest.mark.parametrize(("step_s", "ahead"), [(10.0, 1), (9.9, 2), (0.5, 2), (0.1, 8), (0.01, 75), (0.0, 1000)])
def test_the_leave_is_about_three_quarters_of_a_second(step_s, ahead):
    assert granted_until(committed=50, granted=50, recent_step_s=(step_s,) * 8, steps=10_000) == 50 + ahead


def test_short_steps_cost_no_message_each():
    granted, messages = 0, 0
    for committed in range(1000):
        until = granted_until(committed=committed, granted=granted, recent_step_s=(0.01,), steps=1000)
        messages += until != granted
        granted = until
    assert messages < 1000 / 30


@given(
    committed=st.integers(0, 50), ahead=st.integers(0, 50), steps=st.integers(1, 60),
    recent=st.lists(st.floats(0.0, 100.0), max_size=8),
)  # fmt: skip
def test_the_leave_never_shrinks_ends_at_the_last_step_and_leaves_a_step_to_do(committed, ahead, steps, recent):
    committed = min(committed, steps)
    granted = min(committed + ahead, steps)
    until = granted_until(committed=committed, granted=granted, recent_step_s=tuple(recent), steps=steps)
    assert granted <= until <= steps
    assert until > committed or committed == steps


def test_every_nth_step_and_the_last_are_saved():
    assert save_steps(RULES, after=3, until=20) == (5, 10, 15, 20)
    assert save_steps(Rules.of(Config(), validates=True), after=0, until=100) == (100,)


def test_no_step_is_evaluated_unless_asked_for():
    assert eval_steps(RULES, after=0, until=20) == ()


def test_every_nth_step_and_the_last_are_evaluated_where_there_is_something_to_evaluate_on():
    config = Config(training=TrainingConfig(steps=10, eval_every=4))
    assert eval_steps(Rules.of(config, validates=True), after=0, until=10) == (4, 8, 10)
    assert eval_steps(Rules.of(config, validates=False), after=0, until=10) == ()


def test_the_back_off_doubles_up_to_half_a_minute():
    assert [back_off_s(n) for n in (0, 1, 2, 3, 4, 20)] == [0.0, 0.0, 0.5, 1.0, 2.0, 30.0]


@pytest.mark.parametrize(
    ("by", "saved", "code"),
    [
        ("user", True, 0), ("user", False, 75), ("interrupt", True, 130), ("interrupt", False, 130),
        ("terminate", True, 75), ("terminate", False, 143), ("hangup", True, 75), ("hangup", False, 143),
        ("client_gone", True, 75), ("client_gone", False, 75), ("deadline", True, 75), ("deadline", False, 75),
    ],
)  # fmt: skip
def test_what_a_stop_exits_with(by, saved, code):
    assert stop_exit_code(by, saved=saved) == code
