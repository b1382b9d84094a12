import io
import re
from collections.abc import Iterable
from dataclasses import replace

import pytest
from rich.console import Console as RichConsole

from raymega.config.schema import Config, LogConfig, ModelConfig, TrainingConfig
from raymega.control.events import ResizeAsked
from raymega.control.loop import Turn
from raymega.driver.records.progress import Facts, Memory
from raymega.driver.sinks.console import LineConsole, Repeats, transition_text
from raymega.driver.sinks.live_view import LiveConsole, curve, open_console
from tests.control.fake_hands import moving_brain
from tests.driver.runs import turns_of
from tests.driver.test_retelling import played
from tests.driver.test_sinks import RESIZED

STEP = re.compile(
    r"step: \d+  loss: \d+\.\d{4}  grad_norm: \d+\.\d{4}  memory: 2\.65GiB\(2\.79%\)  tps: [\d,]+  tflops: \d+\.\d\d  "
    r"mfu: -  mesh: dp=2 tp=1 pp=2  bubble: \d+\.\d\d%  goodput: \d+\.\d\d%"
)


def facts(*, every: int = 1) -> Facts:
    config = Config(
        training=TrainingConfig(steps=20), log=LogConfig(every_steps=every), model=ModelConfig(vocab_size=2000)
    )
    return Facts(
        name="quick-otter", run_dir="/runs/quick-otter", config=config, flops_per_token=10**8, unigram_entropy=5.9432
    )


def lines_of(turns: Iterable[Turn], *, every: int = 1) -> list[str]:
    out = io.StringIO()
    console = LineConsole(facts(every=every), t=1000.0, out=out)
    console.remember(Memory(used_bytes=int(2.65 * 2**30), total_bytes=95 * 2**30))
    for turn in turns:
        console.saw(turn)
    console.close()
    return out.getvalue().splitlines()


def test_a_quiet_run_is_a_plan_a_line_a_step_and_a_summary():
    text = lines_of(turns_of())
    assert [line for line in text if STEP.fullmatch(line)] == [
        line for line in text if line.startswith("step: ") and "driver" not in line
    ]
    assert sum(bool(STEP.fullmatch(line)) for line in text) == 20
    assert "run quick-otter   /runs/quick-otter" in text
    assert "  stage 1   layers 2-3   w1 on n0   w3 on n0" in text
    assert "  loss           6.9000 at step 1 -> 5.0000 at step 20" in text
    assert "  to compare     ln(vocab) 7.6009, unigram entropy 5.9432" in text
    assert text[-1] == "  to train on    raymega train /runs/quick-otter/config.yaml --set training.steps=40"


def test_what_is_to_be_typed_next_can_be_typed_where_a_path_has_spaces():
    out = io.StringIO()
    console = LineConsole(replace(facts(), run_dir="/my runs/a"), t=1000.0, out=out)
    for turn in turns_of():
        console.saw(turn)
    console.close()
    assert out.getvalue().endswith("raymega train '/my runs/a/config.yaml' --set training.steps=40\n")


def test_a_run_that_never_began_ends_without_a_word():
    out = io.StringIO()
    LineConsole(facts(), t=1000.0, out=out).close()
    LiveConsole(facts(), t=1000.0, screen=RichConsole(file=out)).close()
    assert out.getvalue() == ""


def test_a_line_every_ten_steps_and_for_the_first_and_the_last():
    steps = [line.split()[1] for line in lines_of(turns_of(), every=8) if STEP.fullmatch(line)]
    assert steps == ["1", "8", "16", "20"]


def test_what_happens_to_a_run_is_told_by_the_driver_with_the_step():
    text = lines_of(turns_of(kill_once={13: 2}), every=100)
    lost = next(line for line in text if "w2 is lost" in line or "w3 left" in line)
    assert lost.startswith("step: 12  driver: ")
    assert sum(line.startswith("plan dp=2") for line in text) == 2, "each plan is shown when it is made"
    assert any("2 lost, 1 recovery" in line for line in text)


def test_the_goodput_table_adds_up_to_all_of_it():
    text = lines_of(turns_of(kill_once={13: 2}))
    shares = [
        float(line.rsplit(maxsplit=1)[1].rstrip("%")) for line in text if line.startswith("    ") and " s " in line
    ]
    assert sum(shares) == pytest.approx(100.0, abs=0.5)


def test_a_run_that_ends_early_says_how_it_can_be_resumed():
    text = lines_of(turns_of(kill_at={9: 0}))
    assert any("ended with exit code 4" in line for line in text)
    assert "raymega train /runs/quick-otter/config.yaml   (goes on after step 5)" in text[-1]


def test_no_line_has_a_control_character_and_none_is_said_over_and_over():
    text = lines_of(turns_of(kill_once=dict.fromkeys(range(2, 20, 2), 1), save_s=0.01), every=10)
    assert not re.search(r"[\x00-\x08\x0b-\x1f]", "\n".join(text))
    assert len(text) < 150


def test_a_sign_of_life_comes_at_least_every_minute():
    out, turns = io.StringIO(), turns_of()
    console = LineConsole(facts(), t=1000.0, out=out)
    for turn in turns[:6]:
        console.saw(turn)
    said = len(out.getvalue().splitlines())
    for t in range(0, 600, 5):
        console.tick(turns[5].t + t)
    signs = out.getvalue().splitlines()[said:]
    assert len(signs) == 9
    assert re.fullmatch(r"step: \d+  driver: Training for [\d,]+ s", signs[0])


def test_the_same_thing_is_said_once_ten_times_a_hundred_times():
    repeats = Repeats()
    said = [repeats.worth(f"worker {n} is slow: {n / 7:.2f} s") for n in range(150)]
    assert [index + 1 for index, text in enumerate(said) if text] == [1, 10, 100]
    assert said[9] == "worker 9 is slow: 1.29 s (10 times so far)"
    assert list(repeats.summed()) == ["150 times, the last: worker 149 is slow: 21.29 s"]


def test_a_terminal_gets_a_live_view_and_a_file_gets_lines():
    assert isinstance(open_console(facts(), t=0.0, out=io.StringIO()), LineConsole)
    out = io.StringIO()
    screen = RichConsole(file=out, force_terminal=True, width=120)
    console = LiveConsole(facts(), t=1000.0, screen=screen)
    for turn in turns_of(kill_once={13: 2}):
        console.saw(turn)
    with screen.capture() as drawn:
        screen.print(console._view())
    console.close()
    assert "step 20 of 20" in drawn.get()
    assert "goodput" in drawn.get()
    assert "ended with exit code 0" in out.getvalue()


@pytest.mark.parametrize(
    ("losses", "drawn"), [([], ""), ([3.0], "▁"), ([7.0, 0.0], "█▁"), ([7.0, float("nan"), 3.5, 0.0], "█ ▅▁")]
)
def test_the_curve_of_the_loss(losses, drawn):
    assert curve(losses) == drawn


def test_a_repair_is_told_and_the_plan_names_who_is_lost():
    text = lines_of(turns_of(work=True, kill_once={13: 2}))
    assert any("driver: step 13 is repaired" in line for line in text)
    assert "  stage 0   layers 0-1   w0 on n0   lost: replica 1" in text
    assert any("20 of 20 committed, 0 lost, 1 recovery" in line for line in text)


def test_a_change_that_was_asked_for_is_no_recovery():
    asked = played((5.0, ResizeAsked(request=1, devices=2)), mind=moving_brain())
    both = played((5.0, ResizeAsked(request=1, devices=2)), mind=moving_brain(), kill_once={3: 2})
    assert any("0 lost, 0 recoveries, 1 change of plan" in line for line in lines_of(asked))
    assert any(re.search(r"\d lost, 1 recovery, 1 change of plan", line) for line in lines_of(both))


def test_a_change_of_the_plan_is_told_with_its_pause():
    assert transition_text(RESIZED) == (
        "after step 12 dp=2 tp=1 pp=2 has become dp=1 tp=1 pp=2, with a pause of 0.30 s (0.20 s predicted), 0 bytes "
        "moved: n1 goes"
    )
    assert "dp=2 tp=1 pp=2 goes on with other workers" in transition_text(replace(RESIZED, after=RESIZED.before))
    assert transition_text(replace(RESIZED, certified=False)) == (
        "dp=1 tp=1 pp=2 is given up and dp=2 tp=1 pp=2 goes on, after 0.30 s: it moved"
    )
