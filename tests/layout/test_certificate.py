"""A transition from two stages to two shards: what was told is certified, and each planted fault is named."""

from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest

from raymega.config.schema import ModelConfig
from raymega.layout.certificate import Certified, Fingerprint, Refused, StatePart, certify, held_by
from raymega.layout.param_layout import param_specs
from raymega.layout.reshard import Layout
from raymega.mesh import Mesh
from raymega.plan.plan import Plan, straight_routes
from raymega.plan.transition import Transition

MODEL = ModelConfig(
    hidden_size=8, num_layers=2, num_attention_heads=2, num_key_value_heads=2, head_size=4, ffn_size=6, vocab_size=11
)
SPECS = param_specs(MODEL, seq_len=4)
KINDS = ("param", "exp_avg", "exp_avg_sq")
STEP, SKIPPED, LR = 12, 2, 0.1
Parts = dict[str, StatePart]


def plan_of(workers: str, *, dp: int = 1, tp: int = 1, pp: int = 1, lost: frozenset = frozenset()) -> Plan:
    mesh = Mesh(dp=dp, pp=pp, tp=tp)
    cuts = [round(stage * MODEL.num_layers / pp) for stage in range(pp + 1)]
    return Plan(
        mesh=mesh, workers=tuple(workers.split()), layers=tuple(pairwise(cuts)),
        routes=((0,) * pp, (0,) * pp) if lost else straight_routes(num_microbatches=2, mesh=mesh),
        microbatch_size=4, lost=lost,
    )  # fmt: skip


OLD = plan_of("w0 w1 w2 w3", dp=2, pp=2, lost=frozenset({(1, 1)}))  # w3 is gone
NEW = plan_of("w1 w4", tp=2)
TRANSITION = Transition(old=OLD, senders=("w0", "w1", "w2"), node_of={f"w{i}": "n0" for i in range(5)})


def hashes(name: str, kind: str) -> np.ndarray:
    """A number for each element, as a hash of its bits would be."""
    spec = next(spec for spec in SPECS if spec.name == name)
    seed = [KINDS.index(kind), SPECS.index(spec)]
    return np.random.default_rng(seed).integers(0, 1 << 63, size=spec.shape, dtype=np.uint64)


def prints(layout: Layout, worker: str) -> tuple[Fingerprint, ...]:
    found = []
    for held in layout.get(worker, ()):
        for kind in KINDS:
            part = hashes(held.name, kind)[tuple(map(slice, held.box.offsets, held.box.ends))]
            found.append(Fingerprint(name=held.name, kind=kind, box=held.box, value=int(part.sum(dtype=np.uint64))))
    return tuple(found)


def right_parts() -> Parts:
    old = held_by(OLD, specs=SPECS, workers=TRANSITION.senders)
    new = held_by(NEW, specs=SPECS, workers=NEW.living)
    return {
        name: StatePart(
            worker=name, step=STEP, skipped=SKIPPED, position=STEP * 8, lr=LR, updates=STEP - SKIPPED,
            before=prints(old, name), after=prints(new, name),
        )
        for name in ("w0", "w1", "w2", "w4")
    }  # fmt: skip


def verdict(parts: Parts, *, new: Plan = NEW) -> Certified | Refused:
    return certify(specs=SPECS, kinds=KINDS, transition=TRANSITION, new=new, step=STEP, parts=parts)


def with_after(parts: Parts, worker: str, change: Callable[[list[Fingerprint]], list[Fingerprint]]) -> Parts:
    return parts | {worker: replace(parts[worker], after=tuple(change(list(parts[worker].after))))}


def changed(name: str, kind: str, value: Callable[[int], int]) -> Callable[[list[Fingerprint]], list[Fingerprint]]:
    def change(told: list[Fingerprint]) -> list[Fingerprint]:
        return [replace(o, value=value(o.value)) if (o.name, o.kind) == (name, kind) else o for o in told]

    return change


def test_a_move_that_kept_every_bit_is_certified_and_its_bytes_are_counted():
    found = verdict(right_parts())
    assert isinstance(found, Certified), found
    shard = sum(h.box.num_elements for h in held_by(NEW, specs=SPECS, workers=("w4",))["w4"])
    kept = {h.name for h in held_by(OLD, specs=SPECS, workers=("w1",))["w1"]}
    lacked = sum(h.box.num_elements for h in held_by(NEW, specs=SPECS, workers=("w1",))["w1"] if h.name not in kept)
    assert found.bytes_moved == (shard + lacked) * 12
    assert "12 steps is whole on dp=1 tp=2 pp=1" in found.reason


def test_a_missing_box_is_named():
    parts = with_after(right_parts(), "w4", lambda told: told[1:])
    assert "w4 lacks embed.tokens 6:11,0:8 (param) after the move" in verdict(parts).faults


def test_a_doubled_box_is_named():
    parts = with_after(right_parts(), "w1", lambda told: [*told, told[0]])
    assert verdict(parts).faults == ("w1 holds twice embed.tokens 0:6,0:8 (param) after the move",)


def test_a_box_of_another_shard_is_named():
    parts = right_parts()
    parts["w4"] = replace(parts["w4"], after=(*parts["w4"].after, parts["w1"].after[0]))
    assert "w4 holds, and should not, embed.tokens 0:6,0:8 (param) after the move" in verdict(parts).faults


def test_stale_moments_are_named():
    parts = with_after(right_parts(), "w4", changed("layers.1.mlp.up", "exp_avg_sq", lambda value: value - 99))
    assert verdict(parts).faults == (
        "layers.1.mlp.up (exp_avg_sq) has other bits after the move than before; w1, w4 hold it now",
    )


def test_swapped_segments_are_named():
    parts = right_parts()
    of = {one.name: one.value for one in parts["w1"].after if one.kind == "param"}
    for name, other in (("wq", "wk"), ("wk", "wq")):
        value = of[f"layers.0.attn.{other}"]
        parts = with_after(parts, "w1", changed(f"layers.0.attn.{name}", "param", lambda _, value=value: value))
    assert [fault.split(" has ")[0] for fault in verdict(parts).faults] == [
        "layers.0.attn.wq (param)", "layers.0.attn.wk (param)",
    ]  # fmt: skip


def test_a_flipped_bit_in_one_of_several_copies_is_named_with_its_holder():
    parts = with_after(right_parts(), "w4", changed("final_norm.weight", "param", lambda value: value ^ 4))
    assert "w4 held other bits of final_norm.weight 0:8 (param) than w1 after the move" in verdict(parts).faults


def test_senders_that_differ_are_named():
    parts = right_parts()
    before = tuple(changed("embed.tokens", "param", lambda value: value + 1)(list(parts["w2"].before)))
    parts["w2"] = replace(parts["w2"], before=before)
    assert "w2 held other bits of embed.tokens 0:11,0:8 (param) than w0 before the move" in verdict(parts).faults


@pytest.mark.parametrize(
    ("field", "value", "fault"),
    [
        ("lr", 0.2, "w4 has the rate 0.2 where others have 0.1"),
        ("position", 95, "w4 would go on at sample 95; 12 steps end before sample 96"),
        ("step", 11, "w4 holds the state of step 11, not of step 12"),
        ("skipped", 1, "w4 counts 1 skipped steps where others count 2"),
        ("updates", 12, "w4 has made 12 updates; 12 steps, 2 skipped, make 10"),
    ],
)
def test_a_wrong_counter_is_named(field: str, value: float, fault: str):
    parts = right_parts()
    parts["w4"] = replace(parts["w4"], **{field: value})
    assert verdict(parts).faults == (fault,)


def test_who_says_nothing_is_named():
    parts = right_parts()
    del parts["w2"]
    assert verdict(parts) == Refused(faults=("w2 has not said what it holds",))


def test_a_tensor_without_a_sender_is_named():
    transition = replace(TRANSITION, senders=("w0", "w2"))
    parts = {name: part for name, part in right_parts().items() if name != "w1"}
    found = certify(specs=SPECS, kinds=KINDS, transition=transition, new=plan_of("w2"), step=STEP, parts=parts)
    assert "final_norm.weight 0:8 has no holder before the move" in found.faults
