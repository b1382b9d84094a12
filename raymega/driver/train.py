"""One run in the foreground, from its config to its summary: the path behind `raymega train`.

resolve -> lock -> prepare                  refused here: nothing was started
  -> Ray: the cluster's, or a local one     refused here: what the cluster can never give
    -> config.yaml                          until here the run's directory is as it was
    -> controller --> workers               followed until the end; Ctrl-C and SIGTERM end it in order
  <- summary, exit code; where someone reads along and all steps are committed, a sample of text
"""

import math
import sys
import time
from collections.abc import Callable, Iterable
from contextlib import ExitStack, closing, suppress
from dataclasses import replace
from shlex import quote
from typing import NoReturn, TextIO

import psutil
import ray

from raymega.checkpoint.find import newest_complete
from raymega.config.schema import Config
from raymega.control.loop import Turn
from raymega.driver.client import RunHandle, follow, signals
from raymega.driver.cluster.in_a_job import leave, leaves_after_s
from raymega.driver.cluster.node_watch import Device, Row, cluster_of, device_of
from raymega.driver.cluster.ray_session import ray_session, starts_ray
from raymega.driver.going_on import kept_of
from raymega.driver.hands.publishing import Imprint
from raymega.driver.launch import Launch, launcher_name
from raymega.driver.news import Ended, News
from raymega.driver.preflight import Prepared, Resume, prepare, resolved, set_later_aside, write_config
from raymega.driver.process.outlasting import outlasting, tell
from raymega.driver.records.lock import Owner, RunLock
from raymega.driver.records.progress import Facts, Memory
from raymega.driver.sinks.console import Console
from raymega.driver.sinks.live_view import open_console
from raymega.driver.sinks.trackers import check_trackers
from raymega.model_shape import token_flops
from raymega.plan.host_room import refuse_copies_without_room
from raymega.plan.job import job_of
from raymega.plan.mesh_choice import wish
from raymega.plan.planner import first_plan

SPARE_CPUS = 2  # of a local Ray, for tasks of the data pipeline
TERM_GRACE_S = 20.0
HANDED_OVER = 143
Watch = Callable[[Turn], None] | None
PROMPT, SAMPLE_TOKENS = "\n\nKING HENRY.\n", 60


def train(
    config: Config, *, resume: Resume = "auto", watch: Watch = None, sample: bool = False, lock: RunLock | None = None
) -> int:
    """Run `config` to its end and return the exit code.

    Args:
        resume: auto (the newest whole checkpoint), none, or a step.
        watch: told of every turn, as the console is.
        sample: for one who reads along: end with a sample of text, if the run is not stopped before its last step.
        lock: the run's, where the caller has it; it is given up at the end as any other.
    Raises: RaymegaError for what cannot start.
    """
    began_t = time.time()
    full, run_dir = resolved(config)
    check_trackers(full.log.trackers)
    out = outlasting(sys.stdout, follow=f"raymega attach {quote(str(run_dir.path))}")
    with ExitStack() as on_refusal:
        if not run_dir.path.exists():
            on_refusal.callback(run_dir.remove_if_unused)
        run_dir.create()
        lock = lock or RunLock.acquire(run_dir.lock, controller=launcher_name(str(full.run.name)))
        on_refusal.pop_all()
    try:
        prepared = prepare(full, run_dir, resume=resume)
        if prepared.checkpoint is not None and prepared.checkpoint.step >= full.training.steps:
            print(_nothing_to_do(prepared))
            return 0
        ended, committed = _run(prepared, lock=lock, began_t=began_t, watch=watch, out=out)
        if ended.details:
            tell(ended.details)
        if sample and ended.exit_code == 0 and committed >= full.training.steps:
            _show_sample(prepared, out=out)
        return ended.exit_code
    except (KeyboardInterrupt, SystemExit):  # Ctrl-C or SIGTERM while there is no run to stop
        if run_dir.is_begun():
            print(f"to resume: raymega train {quote(str(run_dir.config))}")
        raise
    finally:
        lock.release()
        if not run_dir.is_begun():
            run_dir.remove_if_unused()


def _run(prepared: Prepared, *, lock: RunLock, began_t: float, watch: Watch, out: TextIO) -> tuple[Ended, int]:
    """How it ended, and the committed steps."""
    with closing(open_console(facts_of(prepared), t=began_t, out=out)) as console:
        for warning in prepared.warnings:
            console.note(warning)
        shown = Shown(console, began_t=began_t, watch=watch)
        ended = _followed(prepared, lock=lock, console=console, began_t=began_t, shown=shown)
    return ended, shown.committed


def _followed(prepared: Prepared, *, lock: RunLock, console: Console, began_t: float, shown: "Shown") -> Ended:
    """Have Ray, the run, and its end. The controller takes `lock` once nothing can be refused any more."""
    config = prepared.config
    cpus = (devices_wanted(config) + config.elastic.standbys) * config.run.cpus_per_worker + SPARE_CPUS
    if starts_ray():
        console.note(f"starting a local Ray with {cpus} CPUs")
    limit_s = leaves_after_s()
    with (
        ray_session(cpus=cpus, leftovers=(prepared.run_dir.lock,)) as session,
        signals(term_grace_s=TERM_GRACE_S if limit_s is None else None) as wishes,
    ):
        if session.owned:
            console.note(f"it is up after {session.start_s:.1f} s")
        device = refuse_if_too_small_for(ray.nodes(), config)
        write_config(prepared)
        for text in set_later_aside(prepared):
            console.note(text)
        launch = launch_of(prepared, facts=facts_of(prepared), device=device)
        run = RunHandle.begin(replace(launch, began_t=began_t, heir_of=lock.id))
        lock.release()
        with ExitStack() as on_end:
            on_end.callback(run.close)
            ended = follow(run, wishes=wishes, saw=shown, leaves_after_s=limit_s)
            if ended is None:
                on_end.pop_all()  # nothing of the run is to be ended here: its controller saves it
                _hand_over(prepared, console=console)
        return ended


class Shown:
    """Passes news on to the console, and to whoever else watches. `committed`: steps, as far as was told."""

    def __init__(self, console: Console, *, began_t: float, watch: Watch) -> None:
        self._console, self._began_t, self._has_step = console, began_t, False
        self._watch, self.committed = watch, 0
        self._memory_total = psutil.virtual_memory().total

    def __call__(self, news: News) -> None:
        self._console.remember(Memory(used_bytes=news.memory_bytes, total_bytes=self._memory_total))
        for turn in news.turns:
            self._console.saw(turn)
            self.committed = turn.decision.state.story.committed
            if self._watch is not None:
                self._watch(turn)
            if not self._has_step and turn.decision.state.story.committed > turn.before.story.committed:
                self._has_step = True
                self._console.note(f"the first step is done after {turn.t - self._began_t:.1f} s")
        self._console.tick(news.t)


def devices_wanted(config: Config) -> int:
    """Devices that the run starts with; an axis that is left to the planner counts once."""
    return config.run.devices or wish(config).size


def refuse_if_too_small_for(rows: Iterable[Row], config: Config) -> Device:
    """Refuse what this cluster can never give, else say what its devices are.

    Raises: PlanError with what is asked, and what there is.
    """
    rows = list(rows)
    device = device_of(config, rows)
    cluster = cluster_of(rows, device=device, cpus_per_worker=config.run.cpus_per_worker)
    plan = first_plan(config, cluster=cluster).plan
    if config.elastic.copies_every and config.model.custom is None:
        seats = [node.id for node in cluster.nodes for _ in range(node.free)]
        node_of = {f"w{index}": node for index, node in enumerate(seats)}
        host_bytes = {row["NodeID"]: row["Resources"]["memory"] for row in rows if "memory" in row["Resources"]}
        refuse_copies_without_room(plan, job=job_of(config), node_of=node_of, host_bytes=host_bytes)
    return device


def facts_of(prepared: Prepared) -> Facts:
    """What the console and the summary quote of a run."""
    config = prepared.config
    return Facts(
        name=str(config.run.name),
        run_dir=str(prepared.run_dir.path),
        config=config,
        flops_per_token=token_flops(config.model, seq_len=config.data.seq_len).total,
        unigram_entropy=prepared.data.unigram_entropy,
    )


def launch_of(prepared: Prepared, *, facts: Facts, device: Device) -> Launch:
    """What the controller of a prepared run is told."""
    return Launch(
        config=prepared.config,
        run_dir=prepared.run_dir,
        checkpoint_dir=prepared.checkpoint_dir,
        device=device,
        imprint=Imprint(
            run_id=facts.name,
            config_digest=prepared.digest,
            tokenizer=prepared.data.tokenizer.fingerprint,
            kept=kept_of(prepared.config, sources=prepared.data.sources),
        ),
        facts=facts,
        eval_batches=prepared.eval_batches,
        checkpoint=prepared.checkpoint,
        owner=Owner.of(psutil.Process(), controller=launcher_name(facts.name), until=math.inf),
    )


def _hand_over(prepared: Prepared, *, console: Console) -> NoReturn:
    """Say that the run is not saved yet and that this process must go; and go, before Ray ends it."""
    config = quote(str(prepared.run_dir.config))
    console.note(
        f"SIGTERM: run {prepared.config.run.name} is handed over to its controller, which saves the next step and ends "
        f"it. To go on: submit it again, or raymega train {config}"
    )
    leave(HANDED_OVER)


def _nothing_to_do(prepared: Prepared) -> str:
    assert prepared.checkpoint is not None, "only a run that has trained has nothing to do"
    config, run_dir, step = prepared.config, prepared.run_dir, prepared.checkpoint.step
    return (
        f"run {config.run.name} is finished: step {step} is saved in {run_dir.path}, and training.steps="
        f"{config.training.steps} asks for no more. To train on: raymega train {quote(str(run_dir.config))} --set "
        f"training.steps={2 * step}. To begin another run, choose another run.name: this one is in use by it."
    )


def _show_sample(prepared: Prepared, *, out: TextIO) -> None:
    found = newest_complete(prepared.checkpoint_dir)
    if found is not None:
        print("sample", flush=True, file=out)
        with suppress(KeyboardInterrupt):  # the run is over: there is nothing left to break off
            print(_sample(prepared.config, checkpoint=found.uri), file=out)


def _sample(config: Config, *, checkpoint: str) -> str:
    from raymega.worker.sample import Draws, sample_text  # loads torch, which the client needs for nothing else

    return sample_text(config, checkpoint=checkpoint, prompt=PROMPT, draws=Draws(num_tokens=SAMPLE_TOKENS))
