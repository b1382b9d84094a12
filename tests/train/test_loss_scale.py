from hypothesis import given
from hypothesis import strategies as st

from raymega.config.schema import TrainingConfig
from raymega.train.loss_scale import (
    LossScale,
    first_scale,
    has_no_answer,
    next_scale,
    scale_after,
    scale_of_scalars,
)


def fp16(**fields: object) -> TrainingConfig:
    return TrainingConfig.model_validate({"precision": "fp16", **fields})


def scales(training: TrainingConfig, story: str) -> list[float]:
    """The scale after each step of a story: `.` clean, `!` overflow."""
    now, found = first_scale(training), []
    for step in story:
        now = next_scale(now, overflow=step == "!", training=training)
        found.append(now.scale)
    return found


def test_a_scripted_sequence_gives_the_reference_table():
    story = "....!.!!...!....."
    table = [1, 1, 1, 2, 2, 2, 1, 0.5, 0.5, 0.5, 0.5, 0.25, 0.25, 0.25, 0.25, 0.5, 0.5]
    found = scales(fp16(loss_scale_window=4, min_loss_scale=2**-8), story)
    assert found == [65536 * factor for factor in table]


def test_an_overflow_in_between_does_not_refill_hysteresis():
    assert scales(fp16(hysteresis=3), "!.!.!.!")[::2] == [65536, 65536, 32768, 16384]


def test_sixteen_halvings_lead_to_the_floor_and_the_next_overflow_has_no_answer():
    training = fp16(hysteresis=1)
    now, halvings = first_scale(training), 0
    while not has_no_answer(now, training=training):
        now, halvings = next_scale(now, overflow=True, training=training), halvings + 1
    assert (halvings, now.scale) == (16, 1.0)


def test_a_scale_that_is_given_and_that_of_other_formats_never_change():
    assert set(scales(fp16(loss_scale=512.0), "!.!!...")) == {512.0}
    assert set(scales(TrainingConfig(precision="bf16"), "!.!!...")) == {1.0}


@given(st.text(".!", max_size=60), st.integers(0, 60))
def test_it_is_found_again_from_a_checkpoint_and_the_record_of_skipped_steps(story, saved):
    training = fp16(loss_scale_window=5)
    bad = {step for step, what in enumerate(story, 1) if what == "!"}
    saved = min(saved, len(story))
    first, now = (
        scale_after(first_scale(training), steps=range(1, end + 1), overflowed=bad, training=training)
        for end in (saved, len(story))
    )
    loaded = scale_of_scalars(first.to_scalars(), training=training)
    assert scale_after(loaded, steps=range(saved + 1, len(story) + 1), overflowed=bad, training=training) == now
    assert LossScale.of_words(now.to_words()) == now
