"""What a run was asked is told again as a script: each verb where it took effect, and nothing that nobody asked for."""

import ast
from dataclasses import replace

from raymega.config.schema import CheckpointConfig
from raymega.control.events import (
    CheckpointAsked,
    DisturbAsked,
    DrainAsked,
    Event,
    PauseAsked,
    ResizeAsked,
    ResumeAsked,
    RewindAsked,
    SetAsked,
    StopAsked,
)
from raymega.control.loop import Turn, run
from raymega.control.states import Checkpoint, first_state
from raymega.driver.records.journal import Inherited, JournalHead
from raymega.driver.records.retelling import script_of
from raymega.driver.records.script import script_text
from tests.control.fake_hands import RULES, FakeHands, brain, moving_brain, nodes
from tests.driver.runs import Turns
from tests.driver.test_accounting import CONFIG

HEAD = JournalHead(epoch=1, t=1000.0, rules=RULES, checkpoint=None, config=CONFIG)
PAUSE, RESUME, RATE = PauseAsked(request=1), ResumeAsked(request=2), SetAsked(request=3, lr=1e-4)
SAVE, BACK = CheckpointAsked(request=4), RewindAsked(request=5, to=Checkpoint(step=5, uri="mem://5"), newest=10)
LAUNCHED = "run = raymega.launch('runs/demo/config.yaml', run={'name': 'new'}, background=True)"


def played(*asked: tuple[float, Event], mind=None, checkpoint: Checkpoint | None = None, **world) -> list[Turn]:
    """20 steps of 0.3 s after a start; saves after 5, 10, .."""
    hands, turns = FakeHands(nodes=nodes(2, 2), step_s=0.3, **world), Turns()
    for after_s, event in asked:
        hands.tell(after_s, event)
    run(first_state(epoch=1, checkpoint=checkpoint), brain=mind or brain(), hands=hands, watchers=[turns])
    return turns


def lines(*launches: tuple[JournalHead, list[Turn]], config=CONFIG) -> list[str]:
    told = [(head, turn) for head, turns in launches for turn in (None, *turns)]
    return [str(line) for line in script_of(told, config=config, directory="runs/demo", name="new")]


def calls(*asked: tuple[float, Event], **world) -> list[str]:
    """Without the launch and the comments."""
    first, *rest = lines((HEAD, played(*asked, **world)))
    assert first == LAUNCHED
    return [line for line in rest if not line.startswith("#")]


def leave(turns: list[Turn], event: Event) -> int:
    """Steps that there was leave for when that was asked."""
    return next(turn.before.granted for turn in turns if turn.event == event)


def test_a_run_that_was_asked_nothing_is_launched_and_waited_for():
    assert calls() == ["run.wait()"]


def test_each_verb_comes_where_it_took_effect_and_not_where_it_was_asked():
    asked = (5.0, RATE), (7.0, SAVE)
    first, then = (leave(played(*asked), event) for event in (RATE, SAVE))
    assert calls(*asked) == [
        f"run.pause(after_step={first})", f"run.wait(step={first})", "run.set(lr=0.0001)",
        f"run.step({then - first})", f"run.wait(step={then})", "run.checkpoint()", "run.resume()", "run.wait()",
    ]  # fmt: skip
    assert f"# lr is 0.0001 after step {first}" in lines((HEAD, played(*asked)))


def test_a_run_that_stood_stands_there_again_and_what_was_asked_meanwhile_is_asked_there():
    asked = (1.0, replace(PAUSE, after_step=7)), (30.0, RATE), (31.0, ResumeAsked(request=6, steps=3)), (60.0, RESUME)
    assert calls(*asked) == [
        "run.pause(after_step=7)", "run.wait(step=7)", "run.set(lr=0.0001)", "run.step(3)", "run.wait(step=10)",
        "run.resume()", "run.wait()",
    ]  # fmt: skip


def test_a_rewind_waits_for_all_that_is_saved_by_then_and_goes_on_from_its_checkpoint():
    asked = (6.0, BACK), (7.0, SAVE)
    turns = played(*asked)
    step = next(turn.before.story.committed for turn in turns if turn.event == BACK)
    then = leave(turns, SAVE)
    assert (step > 10, then < 20) == (True, True)
    assert calls(*asked) == [
        f"run.pause(after_step={step})", f"run.wait(step={step})", "run.wait(saved=10)", "run.rewind(step=5)",
        f"run.step({then - 5})", f"run.wait(step={then})", "run.checkpoint()", "run.resume()", "run.wait()",
    ]  # fmt: skip


def test_a_rate_that_was_replaced_before_it_held_is_not_set():
    asked = (5.0, RATE), (5.01, SetAsked(request=8, lr=2e-4))
    assert [line for line in calls(*asked) if "set" in line] == ["run.set(lr=0.0002)"]


def test_what_was_refused_is_not_asked_again():
    assert calls((5.0, SetAsked(request=3, lr=-1.0)), (5.1, replace(BACK, to=Checkpoint(step=9, uri="")))) == [
        "run.wait()"
    ]


def test_a_resize_is_asked_for_right_before_the_boundary_at_which_it_came():
    turns = played((5.0, ResizeAsked(request=3, devices=2)), mind=moving_brain())
    (move,) = [turn for turn in turns if any(type(c).__name__ == "WriteTransition" for c in turn.decision.commands)]
    step = move.before.story.committed - 1
    told = calls((5.0, ResizeAsked(request=3, devices=2)), mind=moving_brain())
    assert told[:3] == [f"run.pause(after_step={step})", f"run.wait(step={step})", "run.resize(devices=2)"]
    assert told[3:] == ["run.resume()", "run.wait()"]


def test_losses_and_drains_are_comments_with_their_reason():
    drain = DrainAsked(request=3, node="n1", by_t=1060.0, cause="raymega drain")
    turns = played((6.0, drain), mind=moving_brain(), kill_once={4: 1}, work=True)
    _, lost, drained, *rest = lines((HEAD, turns))
    assert lost.startswith("# step 3: w1 is lost: SIGKILL (node n0); ")
    assert ("n1 is to go: raymega drain" in drained, drained.endswith("(not asked for here)")) == (True, True)
    assert rest == ["run.wait()"]


def test_faults_on_purpose_are_asked_for_again_before_their_point():
    order = "kill stage=1 replica=0 step=15"
    turns = played((5.0, DisturbAsked(request=3, orders=(order,))))
    step = next(turn.before.story.committed for turn in turns if isinstance(turn.event, DisturbAsked))
    asked = [f"run.pause(after_step={step})", f"run.wait(step={step})", f"run.chaos('{order}')"]
    assert calls((5.0, DisturbAsked(request=3, orders=(order,))))[:3] == asked


def test_devices_that_were_withheld_are_withheld_again_after_the_same_steps():
    asked = (5.0, DisturbAsked(request=3, without=((0, 2),))), (6.0, DisturbAsked(request=4, without=()))
    at = [turn.before.story.committed for turn in played(*asked) if isinstance(turn.event, DisturbAsked)]
    assert 0 < at[0] < at[1]
    told = [line for line in calls(*asked) if not line.startswith("run.wait(step")]
    assert told == [
        f"run.pause(after_step={at[0]})", "run.chaos(without={0: 2})",
        f"run.step({at[1] - at[0]})", "run.chaos(without={})", "run.resume()", "run.wait()",
    ]  # fmt: skip


def test_a_stop_comes_one_step_before_the_one_that_it_saved():
    turns = played((6.0, StopAsked(by="user")))
    last = turns[-1].decision.state.story.committed
    assert calls((6.0, StopAsked(by="user"))) == [
        f"run.pause(after_step={last - 1})",
        f"run.wait(step={last - 1})",
        "run.stop()",
    ]


def test_a_run_that_is_going_on_is_told_so_far():
    turns = played((5.0, RATE))
    told = lines((HEAD, turns[: len(turns) // 2]))
    assert told[-3].startswith("# step ")
    assert "it was not over" in told[-3]
    assert told[-2:] == ["run.resume()", "run.wait()"]


def test_a_launch_that_went_on_goes_on_with_its_own_config():
    first = played((6.0, StopAsked(by="user")))
    step = first[-1].decision.state.story.committed
    more = CONFIG.model_copy(update={"training": CONFIG.training.model_copy(update={"steps": 40})})
    kept = Checkpoint(step=step, uri="mem://x")
    again = replace(HEAD, epoch=2, checkpoint=kept, config=more)
    told = lines((HEAD, first), (again, played(checkpoint=kept)), config=more)
    begun, *rest = [line for line in told if not line.startswith("#")]
    assert begun == LAUNCHED.replace("run={", "training={'steps': 20}, run={")
    assert rest[-3:] == ["run.stop()", LAUNCHED[:-1] + f", resume={step})", "run.wait()"]


def test_another_controller_of_a_launch_is_no_launch():
    turns = played((5.0, RATE))
    taken = replace(HEAD, epoch=2, takes_over=Inherited(epoch=1, seq=9))
    assert lines((HEAD, turns[:9]), (taken, turns[9:])) == lines((HEAD, turns))


def test_a_run_that_began_with_the_state_of_another_is_forked_from_there():
    kept = Checkpoint(step=5, uri="mem://5")
    needs, begun, *_ = lines((replace(HEAD, checkpoint=kept), played(checkpoint=kept)))
    assert needs.endswith("has to be there still: raymega ckpt ls runs/demo")
    assert begun == "run = raymega.launch(raymega.attach('runs/demo').fork('new', step=5), background=True)"


def test_checkpoints_in_a_place_of_their_own_are_not_mixed_with_those_of_the_other_run():
    config = CONFIG.model_copy(update={"checkpoint": CheckpointConfig(path="s3://bucket/demo")})
    (begun, *_) = lines((replace(HEAD, config=config), played()), config=config)
    assert "checkpoint={'path': None}" in begun


def test_the_script_is_python_and_says_what_it_is_of():
    told = [(HEAD, turn) for turn in (None, *played((5.0, RATE), (8.0, BACK)))]
    text = script_text(script_of(told, config=CONFIG, directory="runs/demo", name="new"), of="demo")
    assert "made by `raymega replay demo`" in ast.get_docstring(ast.parse(text))
    assert text.count("raymega.launch(") == 1
