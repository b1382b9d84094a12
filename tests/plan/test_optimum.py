"""The splits and placements found here against those of an independent solver: the same optimum."""

import random

import pytest

from raymega.mesh import Mesh
from raymega.plan.cluster import Cluster, Node
from raymega.plan.joining import joined
from raymega.plan.placement import hops_between_nodes, place
from raymega.plan.stages import balanced_counts
from tests.plan.solver import fewest_hops, least_largest_load

CASES = 200


def test_a_split_of_layers_has_the_solver_s_optimum_in_200_random_cases() -> None:
    draw = random.Random(0)
    for _ in range(CASES):
        stages = draw.randint(1, 6)
        layer_s = [draw.choice([1.0, 1.0, 1.5, 2.0, 3.25]) for _ in range(stages)]
        extra_s = [draw.choice([0.0, 0.0, 0.5, 2.0, 7.0]) for _ in range(stages)]
        most = [draw.randint(1, 12) for _ in range(stages)]
        layers = draw.randint(stages, 30)
        counts = balanced_counts(layers, layer_s=layer_s, extra_s=extra_s, most=most)
        optimum = least_largest_load(layers, layer_s=layer_s, extra_s=extra_s, most=most)
        if counts is None:
            assert optimum is None
            continue
        loads = (extra + cost * count for count, cost, extra in zip(counts, layer_s, extra_s, strict=True))
        assert sum(counts) == layers
        assert max(loads) == pytest.approx(optimum)


def test_a_placement_leaves_nodes_as_seldom_as_the_solver_s_in_200_random_cases() -> None:
    draw = random.Random(0)
    done = 0
    while done < CASES:
        mesh = Mesh(dp=draw.randint(1, 3), pp=draw.randint(2, 4), tp=draw.choice([1, 2]))
        room = [draw.randint(0, 5) for _ in range(draw.randint(1, 4))]
        if sum(room) < mesh.dp * mesh.pp:
            continue
        cluster = Cluster(nodes=tuple(Node(id=f"n{i}", devices=teams * mesh.tp) for i, teams in enumerate(room)))
        hops = hops_between_nodes(mesh, nodes=place(mesh, cluster=cluster))
        assert hops == pytest.approx(fewest_hops(room, dp=mesh.dp, pp=mesh.pp)), (mesh, room)
        done += 1


def test_many_odd_nodes_are_joined_too_if_not_always_at_best() -> None:
    left = {f"n{i}": 1 + i % 3 for i in range(60)}
    groups = joined(left, size=4, wanted=20)
    assert sum(sum(left[node] for node in group) // 4 for group in groups) >= 20
    assert len({node for group in groups for node in group}) == sum(map(len, groups))
