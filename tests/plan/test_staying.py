from raymega.plan.staying import staying
from tests.plan.plans import make_plan

ONE = dict.fromkeys((f"w{n}" for n in range(8)), "n0")


def test_whoever_holds_a_stage_keeps_it_when_replicas_come():
    old, new = make_plan(dp=1, pp=2), make_plan(dp=2, pp=2).with_workers(("w2", "w0", "w3", "w1"))
    assert staying(new, old=old, node_of=ONE).workers == ("w0", "w1", "w2", "w3")


def test_nobody_leaves_its_node():
    old, new = make_plan(dp=1, pp=2), make_plan(dp=1, pp=2).with_workers(("w1", "w0"))
    assert staying(new, old=old, node_of={"w0": "n0", "w1": "n1"}).workers == ("w1", "w0")


def test_shards_go_to_those_who_hold_most_of_them():
    old, new = make_plan(tp=2), make_plan(dp=2, tp=1).with_workers(("w1", "w0"))
    assert set(staying(new, old=old, node_of=ONE).workers) == {"w0", "w1"}
    wider = make_plan(tp=4).with_workers(("w3", "w2", "w1", "w0"))
    assert staying(wider, old=old, node_of=ONE).workers.index("w0") in (0, 1)
    assert staying(wider, old=old, node_of=ONE).workers.index("w1") in (2, 3)
