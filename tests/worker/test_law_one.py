"""Law 1: the plan does not occur in the result. Law 2 is held by the workers themselves, batch by batch."""

from functools import lru_cache

import pytest

from raymega.plan.plan import Plan
from raymega.plan.uneven import uneven_plan
from tests.worker.rig import LAYOUTS, ONE, Result, relative, run_layout

CALM = {"steps": 4, "lr": 0.02}
"""For models in which a rate of 0.1 blows every rounding up: what is asked of them is the same."""
OTHERS = [layout for layout in LAYOUTS if layout != ONE]


def assert_same(mine: Result, other: Result) -> None:
    """Loss and norm step by step, weights at the end, to the tolerances of law 1."""
    for a, b in zip(mine.reports, other.reports, strict=True):
        limit = 1e-6 if a.step == 1 else 1e-5
        assert a.loss == pytest.approx(b.loss, rel=limit)
        assert a.grad_norm == pytest.approx(b.grad_norm, rel=limit)
    for name, weight in mine.weights.items():
        assert relative(weight, other.weights[name]) < 1e-5, name


@lru_cache
def one_worker(**kwargs: object) -> Result:
    return run_layout(ONE, **kwargs)


@pytest.mark.parametrize("clip_grad", [0.0, 0.5])
@pytest.mark.parametrize("accumulation", [1, 4])
@pytest.mark.parametrize("layout", OTHERS, ids=str)
def test_loss_norm_and_weights_do_not_depend_on_the_layout(layout, accumulation, clip_grad):
    size = 8 // (accumulation * layout[0])
    mine = run_layout(layout, micro_batch_size=size, clip_grad=clip_grad)
    assert_same(mine, one_worker(micro_batch_size=2, clip_grad=clip_grad))


@pytest.mark.parametrize("layout", [(2, 1, 2), (1, 2, 2)], ids=str)
def test_unequal_numbers_of_trained_tokens_are_divided_once(layout):
    assert_same(run_layout(layout, masked=True, **CALM), one_worker(masked=True, **CALM))


VARIANTS = {
    "tied": {"tie_embeddings": True},
    "gpt2": {"kind": "gpt2", "num_key_value_heads": None},
    "gpt2 tied": {"kind": "gpt2", "num_key_value_heads": None, "tie_embeddings": True},
    "q/k norm": {"qk_norm": True},
    "one kv head": {"num_key_value_heads": 1},
    "dropout": {"dropout": 0.1},
}


@pytest.mark.parametrize("layout", [(1, 2, 2), (2, 1, 2)], ids=str)
@pytest.mark.parametrize("model", VARIANTS.values(), ids=VARIANTS)
def test_every_kind_of_model_is_the_same_on_every_layout(layout, model):
    items = tuple(model.items())
    assert_same(run_layout(layout, model=items, **CALM), one_worker(model=items, **CALM))


@pytest.mark.parametrize(
    "model", [{}, {"qk_norm": True, "dropout": 0.1}, {"kind": "gpt2", "num_key_value_heads": None}]
)
def test_a_cut_sequence_changes_nothing(model):
    items = tuple(model.items())
    cut = run_layout((1, 2, 2), model=items, sequence_parallel=True, **CALM)
    assert_same(cut, one_worker(model=items, **CALM))


def test_uneven_stages_and_uneven_quotas_change_nothing():
    assert_same(run_layout((3, 1, 3), steps=4), one_worker(steps=4))


def test_all_forwards_first_gives_the_same_bits_as_1f1b():
    late, early = (run_layout((1, 1, 2), steps=3, schedule=name) for name in ("gpipe", "1f1b"))
    assert [r.loss for r in late.reports] == [r.loss for r in early.reports]
    assert all(relative(late.weights[name], early.weights[name]) == 0 for name in late.weights)


def test_routes_across_replicas_change_nothing():
    def crossed(plan: Plan) -> dict[str, object]:
        return {"routes": tuple((m % 2, (m // 2) % 2) for m in range(plan.num_microbatches))}

    assert_same(run_layout((2, 1, 2), steps=3, change=crossed), one_worker(steps=3))


def test_uneven_stages_by_the_clock_change_nothing_and_run_with_unbuffered_sends():
    def uneven(plan: Plan) -> dict[str, object]:
        found = uneven_plan(plan, kept=[place for place in plan.teams if place != (2, 0)], more=())
        assert found is not None
        assert found.in_flight == (3, 1), "stage 0 of two teams begins one more than 1F1B lets it"
        return {name: getattr(found, name) for name in ("lost", "routes", "layers", "in_flight")}

    training = {"steps": 2, "micro_batch_size": 1}
    assert_same(run_layout((3, 1, 2), change=uneven, unbuffered=True, **training), one_worker(**training))


def test_adam_is_the_same_on_eight_workers():
    settings = {"optimizer": "adamw", "lr": 1e-3, "weight_decay": 0.1, "clip_grad": 1.0}
    mine, other = run_layout((2, 2, 2), steps=3, **settings), one_worker(steps=3, **settings)
    assert [r.loss for r in mine.reports] == pytest.approx([r.loss for r in other.reports], rel=1e-5)


def test_the_same_plan_gives_the_same_bits():
    first, second = (run_layout((2, 1, 2), steps=3) for _ in range(2))
    assert [(r.loss, r.grad_norm) for r in first.reports] == [(r.loss, r.grad_norm) for r in second.reports]
    assert all(relative(first.weights[name], second.weights[name]) == 0 for name in first.weights)


def test_programs_that_wait_for_every_send_do_not_deadlock():
    assert_same(run_layout((2, 1, 4), steps=2, unbuffered=True), one_worker(steps=2))


@pytest.mark.parametrize("lost", [{(1, 0)}, {(0, 1)}, {(0, 0), (1, 1)}], ids=str)
@pytest.mark.parametrize("tied", [False, True], ids=["untied", "tied"])
def test_lost_teams_and_routes_round_them_change_nothing(lost, tied):
    def around(plan: Plan) -> dict[str, object]:
        living = [[r for r in range(2) if (r, s) not in lost] for s in range(2)]
        return {"lost": frozenset(lost), "routes": tuple(
            tuple(living[s][m % len(living[s])] for s in range(2)) for m in range(plan.num_microbatches)
        )}  # fmt: skip

    model = (("tie_embeddings", tied),)
    assert_same(run_layout((2, 1, 2), change=around, model=model, **CALM), one_worker(model=model, **CALM))
