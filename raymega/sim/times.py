"""What the hands take beside the steps: times of detection, regrouping, starts, moves and saves, each with its source.

    a death --detect--> heard of --answer--> survivors have answered --regroup--> the step is finished
    a boundary --switch + bytes / bytes a second--> the new plan counts

The defaults were measured on the elastic runtime on one machine of two cores, with gloo; a journal of a run on the
cluster at hand gives its own (`sim.calibrated`).
"""

from dataclasses import dataclass, fields

from raymega.plan.cluster import Cluster
from raymega.plan.fitted import PUBLISHED, Constants
from raymega.plan.hardware import check_positive


@dataclass(frozen=True, slots=True, kw_only=True)
class Times:
    """Times in seconds.

    Args:
        detect_s: a process or node is gone until a peer's broken connection is heard of.
        answer_s: a survivor is told to leave until it has answered.
        regroup_s: everyone knows the next plan until its groups stand.
        switch_s: a plan is ordered at a boundary until all hold its state, moved bytes left out.
        first_s: the first workers are ordered until they train, all of them at once.
        start_s: a fresh worker is ordered until it is up, beside a run.
        move_bytes_per_s: that one worker receives or sends in a transition.
        save_bytes_per_s, load_bytes_per_s: of one worker, to and from storage.
        snapshot_bytes_per_s: of a step held up by a copy of its state.
        publish_s: all parts of a checkpoint are there until it is published.
        gap_s: between two steps, accounted for by no worker.
    """

    detect_s: float = 0.03
    answer_s: float = 0.05
    regroup_s: float = 0.5
    switch_s: float = 0.5
    first_s: float = 8.5
    start_s: float = 8.0
    move_bytes_per_s: float = 1e9
    save_bytes_per_s: float = 2e8
    load_bytes_per_s: float = 2e8
    snapshot_bytes_per_s: float = 5e9
    publish_s: float = 0.1
    gap_s: float = 1e-3

    def __post_init__(self) -> None:
        for field in fields(self):
            check_positive(field.name, getattr(self, field.name))


SOURCES = {
    "detect_s": "kill -9 of a member: 8 to 13 ms until gloo's peers err, 10 ms until the controller hears",
    "answer_s": "a woken survivor answers between two actions; measured in repairs of four workers",
    "regroup_s": "repairs and moves of four workers on two cores: 0.1 s bare, 0.3 to 0.8 s with its messages",
    "switch_s": "the same: groups, buffers and fingerprints of what moved",
    "first_s": "four processes that load torch at once, and their first groups",
    "start_s": "a process that loads torch on two busy cores: 5 to 9 s",
    "move_bytes_per_s": "the network of a device between nodes, by the share of it that collectives reach",
    "save_bytes_per_s": "a guess: a disk shared by all",
    "load_bytes_per_s": "a guess: the same",
    "snapshot_bytes_per_s": "a guess: half of a core's memory bandwidth",
    "publish_s": "a manifest on a local disk",
    "gap_s": "runs of four workers that are ahead of their leave: below a millisecond",
}
"""Where each default comes from."""


def times_on(cluster: Cluster, *, constants: Constants = PUBLISHED) -> Times:
    """The defaults, with moves over the network of `cluster`, shared out over its devices, as full as rings make it."""
    return Times(move_bytes_per_s=cluster.links.node.bytes_per_s * constants.link_share)
