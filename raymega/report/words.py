"""What a newcomer is told beside the pictures of the report."""

LEADS = {
    "loss": (
        "The loss of each committed step, in nats a token over the whole batch: lower is better. Below it stands what "
        "happened, each mark at its step; rest the pointer on one to read why."
    ),
    "goodput": (
        "Every second of every worker is in one category. Goodput is the share that went into steps which were "
        "committed; what lies right of the black line did not."
    ),
    "mesh": (
        "A model is cut into <b>stages</b> (some of its layers each), each stage into <b>shards</b>, and all of it "
        "is there as several <b>replicas</b>, which share the batch. A worker is one process on one device and holds "
        "one such place. A red cross: it was lost. A dashed line: the run was started again; the time between is "
        "left out."
    ),
    "step": (
        "F3 is the forward pass of micro-batch 3, B3 its backward pass. White gaps are bubbles: a stage waits for its "
        "neighbour. The thin line below the boxes is what goes on beside the computing."
    ),
    "pairs": "Seconds that were predicted before, and what it took: of a step, of repairs, of changes of the plan.",
    "decisions": "What the controller met, what it made of it, and its reason, oldest first.",
}
CATEGORY_WORDS = {
    "useful": "computing steps that were committed",
    "bubble": "waiting for a neighbouring stage",
    "exchange": "summing gradients between replicas",
    "data": "waiting for a batch",
    "start": "starting Ray and the workers, loading",
    "validation": "computing validation losses",
    "checkpoint": "held up by a snapshot, and the last save",
    "detect": "somebody was gone and nobody knew yet",
    "repair": "from then until training went on",
    "move": "state on its way between workers",
    "replay": "steps done again, and what a broken step lost",
    "idle": "the rest",
}
