"""What is said at the start of a run and at its end.

run quick-otter   /home/me/runs/quick-otter
plan dp=2 tp=1 pp=2, 4 workers, schedule 1f1b, 4 micro-batches of 4 samples
  stage 0   layers 0-1   w0 on n1   w2 on n1
  stage 1   layers 2-3   w1 on n1   w3 on n1
"""

from collections.abc import Iterator
from math import log
from pathlib import Path
from shlex import quote

from raymega.config.fault import counted
from raymega.control.loop import Turn
from raymega.driver.records.progress import Facts, Progress
from raymega.driver.records.run_dir import RunDirectory, write_whole
from raymega.driver.records.worker_times import all_of, by_worker, goodput_of, goodput_words, read_times, table_lines
from raymega.plan.plan import Plan

NODE_LETTERS = 8  # of the 56 that Ray names a node with
TOLD_SHARE = 0.0005  # less than this is written as 0.0%


def banner(progress: Progress, *, facts: Facts) -> str:
    """The run and its first plan, as text."""
    plan = progress.plan
    lines = [f"run {facts.name}   {facts.run_dir}"]
    return "\n".join([*lines, *plan_lines(plan, progress)] if plan is not None else lines)


def plan_lines(plan: Plan, progress: Progress) -> Iterator[str]:
    """The plan, one line a stage: its layers, and who holds it in each replica."""
    batch = f"{counted(plan.num_microbatches, noun='micro-batch')} of {counted(plan.microbatch_size, noun='sample')}"
    yield f"plan {plan.mesh}, {counted(len(plan.living), noun='worker')}, schedule {plan.schedule}, {batch}"
    node = {seat.worker: seat.node[:NODE_LETTERS] for seat in progress.seats}
    for stage in range(plan.mesh.pp):
        held = [plan.layers[virtual] for virtual in plan.chunks_of(stage)]
        layers = ", ".join(f"{first}-{end - 1}" if end > first else "none" for first, end in held)
        teams = [plan.team(replica, stage) for replica in range(plan.mesh.dp)]
        held_by = [f"{w} on {node.get(w, '-')}" for team in teams for w in (plan.workers[rank] for rank in team)]
        lost = [f"lost: replica {replica}" for replica, at in sorted(plan.lost) if at == stage]
        yield f"  stage {stage}   layers {layers}   " + "   ".join([*held_by, *lost])


def summary(progress: Progress, *, facts: Facts) -> str:
    """How a run ended, what it brought, where the time went, and how it can go on."""
    finish, story = progress.finish, progress.story
    assert finish is not None, "only a run that has ended has a summary"
    assert story is not None, "and it has a story by then"
    lines = [f"run {facts.name} ended with exit code {finish.exit_code}: {finish.reason}"]
    lines.extend(_losses(progress, facts))
    done = f"{story.committed:,} of {facts.config.training.steps:,} committed"
    changes = f", {counted(progress.changes, noun='change')} of plan" if progress.changes else ""
    recoveries = counted(progress.recoveries, noun="recovery")
    lines.append(f"  steps          {done}, {story.steps_lost} lost, {recoveries}{changes}")
    if progress.last is not None:
        lines.append(f"  tokens         {story.tokens_total:,}, {progress.last.tokens_per_s:,.0f} a second at the end")
    lines.extend(goodput_lines(progress, facts=facts))
    if story.checkpoint is not None:
        lines.append(f"  checkpoint     {story.checkpoint.uri}")
    lines.append(f"  run directory  {facts.run_dir}")
    lines.append(f"  {_way_on(progress, facts)}")
    return "\n".join(lines)


def goodput_lines(progress: Progress, *, facts: Facts) -> Iterator[str]:
    """Where the worker-seconds went, in one table that adds up to all of them; as the status tells it.

    By the workers' own clocks, over all launches of the run. The lines of steps tell their launch alone, by the clock
    of its controller: what it knew then.
    """
    workers = by_worker(read_times(RunDirectory(path=Path(facts.run_dir)).workers))
    spent = all_of(workers) if workers else progress.goodput.seconds
    if goodput_of(spent) > 0:
        yield f"  goodput        {goodput_words(spent)}"
    elif sum(spent.values()) > 0:
        yield f"  time           {sum(spent.values()):,.1f} worker-seconds, none of them in a committed step"
    yield from table_lines(spent)
    if workers:
        yield "    of all launches, by the workers' clocks; a step's line tells of its own, by the controller's"
    exposure = progress.exposure
    if exposure.of_steps >= TOLD_SHARE:
        waits = f"  waits          {exposure.of_steps:.1%} of the steps for sums of gradients and gathered weights"
        hidden = f"; a backward hides {1 - exposure.of_sums:.1%} of the sums' time" if exposure.of_sums > 0 else ""
        yield waits + hidden


class SummaryFile:
    """A watcher of the loop: writes the summary to a file when the run ends, whoever is there to read the console."""

    def __init__(self, file: Path, *, facts: Facts, progress: Progress) -> None:
        self._file, self._facts, self._progress = file, facts, progress
        self._write()

    def saw(self, turn: Turn) -> None:
        self._progress = self._progress.after(turn)
        self._write()

    def close(self) -> None:
        """The hands are gone by now, and have written down the last of the workers' seconds."""
        self._write()

    def _write(self) -> None:
        if self._progress.finish is not None:
            write_whole(self._file, summary(self._progress, facts=self._facts) + "\n")


def _losses(progress: Progress, facts: Facts) -> Iterator[str]:
    first, last, validated = progress.first, progress.last, progress.validated
    if first is None or last is None:
        return
    yield f"  loss           {first.loss:.4f} at step {first.step} -> {last.loss:.4f} at step {last.step}"
    if validated is not None:
        yield f"  validation     {validated.val_loss:.4f} after step {validated.step}"
    marks = []
    if facts.config.model.vocab_size is not None:
        marks.append(f"ln(vocab) {log(facts.config.model.vocab_size):.4f}")
    if facts.unigram_entropy is not None:
        marks.append(f"unigram entropy {facts.unigram_entropy:.4f}")
    if marks:
        yield f"  to compare     {', '.join(marks)}"


def _way_on(progress: Progress, facts: Facts) -> str:
    config = quote(f"{facts.run_dir}/config.yaml")
    assert progress.finish is not None, "only a run that ended can go on"
    if progress.finish.resume_step is None:
        more = 2 * facts.config.training.steps
        return f"to train on    raymega train {config} --set training.steps={more}"
    return f"to resume      raymega train {config}   (goes on after step {progress.finish.resume_step})"
