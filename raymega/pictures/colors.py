"""What is drawn in which colour; white letters are readable on those of stages, dark ones on paper beside all.

stages       one after the other, again from the ninth on
kinds        of events, in the order in which their rows stand under a plot
categories   of worker-seconds: greens and blues entered a committed step, the others did not
"""

STAGES = ("#3b6fa8", "#b85a0c", "#3c7d3a", "#8c4f86", "#b8373a", "#2a7a74", "#86690a", "#6f5240")
LOST = "#c9c9c9"
STANDBY = "#e6e2d3"

EVENTS = {
    "worker lost": "#d62728",
    "step repaired": "#7b3fa0",
    "back to a checkpoint": "#8c1c13",
    "node to leave": "#e07b00",
    "plan changed": "#1f77b4",
    "change given up": "#5c3c00",
    "controller replaced": "#b0287a",
    "checkpoint": "#2e7d32",
    "asked by people": "#555555",
    "started again": "#111111",
    "forked": "#0b7285",
}

CATEGORIES = {
    "useful": "#2e7d32",
    "bubble": "#8fc18f",
    "exchange": "#2f6fb0",
    "data": "#8ab4de",
    "start": "#9e9e9e",
    "validation": "#b39ddb",
    "checkpoint": "#7e57c2",
    "detect": "#ffab91",
    "repair": "#d62728",
    "move": "#f08c00",
    "replay": "#8c1c13",
    "idle": "#dedede",
}

ACTIONS = {"F": "#3b6fa8", "B": "#3c7d3a", "I": "#3c7d3a", "W": "#86a83b"}
PHASES = {"reduce": "#e08a1e", "decide": "#c2571a", "apply": "#7b3fa0", "wait": "#d9d9d9", "batch": "#8ab4de"}

DOING = {
    "training": "#2e7d32",
    "starting": "#9e9e9e",
    "repairing": "#d62728",
    "moving state": "#f08c00",
    "saving": "#7e57c2",
}


def stage_color(stage: int) -> str:
    """The colour of a stage."""
    return STAGES[stage % len(STAGES)]
