from hypothesis import given, settings
from hypothesis import strategies as st

from raymega.layout.parcels import Parcel, Part, pair_of, parcels, rounds_of
from raymega.layout.reshard import Move
from raymega.layout.shard_box import Box

KINDS = ("param", "exp_avg")
WORKERS = [f"w{i}" for i in range(5)]
LIMIT = 10


def move(source: str, receiver: str, name: str, rows: int) -> Move:
    return Move(source=source, receiver=receiver, name=name, box=Box((1, 0), (rows, 3)))


def of_all(found: list[Move]) -> list[Parcel]:
    """The parcels of all, each as its source has it."""
    own = [parcels(found, me=worker, kinds=KINDS, max_elements=LIMIT) for worker in WORKERS]
    return [parcel for worker, mine in zip(WORKERS, own, strict=True) for parcel in mine if parcel.source == worker]


@st.composite
def moves_between(draw: st.DrawFn) -> list[Move]:
    found = []
    for i in range(draw(st.integers(0, 12))):
        source, receiver = draw(st.permutations(WORKERS))[:2]
        found.append(move(source, receiver, f"t{i}", draw(st.integers(1, 9))))
    return found


@settings(max_examples=50, deadline=None)
@given(moves_between())
def test_every_element_of_every_kind_travels_once_in_bounded_parcels(found: list[Move]):
    packed = of_all(found)
    assert all(0 < parcel.num_elements <= LIMIT for parcel in packed)
    for one in found:
        for kind in KINDS:
            mine = [p for p in packed if (p.source, p.receiver) == (one.source, one.receiver)]
            boxes = [part.box for p in mine for part in p.parts if (part.name, part.kind) == (one.name, kind)]
            assert sum(box.num_elements for box in boxes) == one.box.num_elements
            assert not any(a.overlap(b) for i, a in enumerate(boxes) for b in boxes[:i])
    assert sum(parcel.num_elements for parcel in packed) == 2 * sum(one.box.num_elements for one in found)


@settings(max_examples=50, deadline=None)
@given(moves_between(), st.integers(1, 3))
def test_workers_that_handle_their_own_in_order_all_get_through(found: list[Move], window: int):
    """Nothing is buffered: a parcel passes only when both ends have begun it."""
    packed = of_all(found)
    todo = {w: list(parcels(found, me=w, kinds=KINDS, max_elements=LIMIT)) for w in WORKERS}
    passed = set()
    while any(todo.values()):
        begun = {w: todo[w][:window] for w in WORKERS}
        now = [p for p in packed if p in begun[p.source] and p in begun[p.receiver] and p not in passed]
        assert now, "somebody waits for ever"
        passed.update(now)
        for w in WORKERS:
            while todo[w] and todo[w][0] in passed:
                todo[w].pop(0)


@given(st.sets(st.tuples(st.sampled_from(WORKERS), st.sampled_from(WORKERS)).filter(lambda pair: pair[0] < pair[1])))
def test_no_worker_is_in_two_pairs_of_a_round(pairs: set[tuple[str, str]]):
    rounds = rounds_of(pairs)
    assert set(rounds) == pairs
    for turn in rounds.values():
        busy = [worker for pair, at in rounds.items() if at == turn for worker in pair]
        assert len(set(busy)) == len(busy)


def test_small_boxes_share_a_parcel_in_all_kinds():
    both = [move("w3", "w1", "wq", 1), move("w3", "w1", "wk", 1)]
    (parcel,) = parcels(both, me="w1", kinds=KINDS, max_elements=12)
    box = Box((1, 0), (1, 3))
    assert parcel.parts == tuple(Part(name=name, kind=kind, box=box) for name in ("wq", "wk") for kind in KINDS)
    assert parcel.pair == pair_of("w3", "w1") == ("w1", "w3")
