import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from raymega.errors import PlanError
from raymega.layout.param_spec import ParamSpec
from raymega.layout.tp_split import has_partial_grad, is_counted, local_box, local_shape, replicas


def spec(cut, shape, **facts):
    return ParamSpec(name="w", shape=shape, cut=cut, owner=0, init="normal", **facts)


@given(
    cut=st.sampled_from(["none", "rows", "columns", "vocab", "q_heads", "kv_heads"]),
    tp=st.sampled_from([1, 2, 4, 8]),
    rows=st.integers(1, 5),
)
@settings(max_examples=100, deadline=None)
def test_counted_boxes_cover_every_element_once(cut, tp, rows):
    length = rows * 7 + 2 if cut == "vocab" else 8 * rows
    one = spec(cut, (length, 16), head_size=rows)
    covered = set()
    for shard in range(tp):
        if is_counted(one, tp=tp, shard=shard):
            box = local_box(one, tp=tp, shard=shard)
            cells = {(r, c) for r in range(box.offsets[0], box.ends[0]) for c in range(box.offsets[1], box.ends[1])}
            assert not cells & covered
            covered |= cells
    assert len(covered) == length * 16


def test_kv_heads_fewer_than_shards_are_replicated_on_neighbours():
    wk = spec("kv_heads", (2 * 8, 96), head_size=8)
    assert [local_box(wk, tp=4, shard=s).offsets[0] for s in range(4)] == [0, 0, 8, 8]
    assert [is_counted(wk, tp=4, shard=s) for s in range(4)] == [True, False, True, False]
    assert replicas(wk, tp=4) == 2


def test_a_prime_vocabulary_is_cut_with_a_short_last_part_and_padded_in_memory_only():
    tokens = spec("vocab", (97, 96))
    assert [local_box(tokens, tp=4, shard=s).sizes[0] for s in range(4)] == [25, 25, 25, 22]
    assert local_shape(tokens, tp=4) == (32, 96)


def test_a_vocabulary_that_ends_early_leaves_an_empty_uncounted_box():
    tokens = spec("vocab", (5, 3))
    assert [local_box(tokens, tp=4, shard=s).num_elements for s in range(4)] == [6, 6, 3, 0]
    assert not is_counted(tokens, tp=4, shard=3)


@pytest.mark.parametrize(("cut", "tp"), [("rows", 3), ("columns", 5), ("q_heads", 3), ("kv_heads", 3)])
def test_what_does_not_divide_is_refused_by_name(cut, tp):
    with pytest.raises(PlanError, match="w cannot be cut over its team"):
        local_box(spec(cut, (16, 16), head_size=8), tp=tp, shard=0)


def test_partial_gradients_are_those_of_shared_parameters_that_see_a_part_of_the_work():
    norm, qk_norm = spec("none", (96,)), spec("none", (8,), grad_parts="always")
    one_kv, two_kv = spec("kv_heads", (8, 96), head_size=8), spec("kv_heads", (16, 96), head_size=8)

    def partial(one, *, sequence, tp=2):
        return has_partial_grad(one, tp=tp, sequence_parallel=sequence)

    assert [partial(s, sequence=False) for s in (norm, qk_norm, one_kv, two_kv)] == [False, True, True, False]
    assert [partial(s, sequence=True) for s in (norm, qk_norm, one_kv, two_kv)] == [True, True, True, False]
    assert not any(partial(s, sequence=True, tp=1) for s in (norm, qk_norm, one_kv, two_kv))
