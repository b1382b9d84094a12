import pytest
from hypothesis import given
from hypothesis import strategies as st

from raymega.errors import ConfigError
from raymega.pipeline.actions import WHOLE, Action, Kind, parse, parse_program, show_program, sink, source, work_of_step

actions = st.builds(Action, st.integers(0, 20), st.sampled_from(Kind), st.integers(0, 99))


@given(actions)
def test_an_action_prints_and_is_read_back(action: Action) -> None:
    assert parse(str(action)) == action


def test_a_program_prints_as_one_line_and_is_read_back() -> None:
    program = (Action(2, Kind.F, 0), Action(2, Kind.B, 0))
    assert show_program(program) == "2F0 2B0"
    assert parse_program("2F0 2B0") == program


@pytest.mark.parametrize("text", ["", "F0", "2X0", "2F", "2F0 2B0", "-1F0", "2f0"])
def test_what_is_no_action_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match=r"is no action\. Write stage"):
        parse(text)


def test_a_micro_batch_goes_down_and_its_gradient_comes_back() -> None:
    chain = [parse("0F7")]
    while (following := sink(chain[-1], num_stages=3)) is not None:
        chain.append(following)
    assert show_program(tuple(chain)) == "0F7 1F7 2F7 2B7 1B7 0B7"


@given(actions.filter(lambda action: action.kind in WHOLE))
def test_source_is_the_inverse_of_sink(action: Action) -> None:
    following = sink(action, num_stages=21)
    assert following is None or source(following, num_stages=21) == action


def test_the_work_of_a_step_is_everything_once() -> None:
    assert {str(a) for a in work_of_step(num_stages=2, num_microbatches=1)} == {"0F0", "1F0", "0B0", "1B0"}
    assert len(work_of_step(num_stages=3, num_microbatches=4, kinds=(Kind.F,))) == 12
