"""`python -m workloads.bench.predicted_goodput [FOLDER]`: from one run's journal, what another run keeps of its time.

first    nano, nodes leave and come    -> its journal -> times of hands, seconds of steps
second   nano, other nodes, otherwise  -> its journal -> its own faults, as a trace      -> simulated with them
         the goodput that was measured, category by category, beside the one that was simulated

A device of the local Ray stands for a node: its worker kills itself, and it is withheld until the trace gives it back.
With FOLDER, runs that lie there are read, not made again.
"""

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from raymega.cli.simulate import Asked, simulation_report
from raymega.control.goodput import CATEGORIES
from raymega.driver.records.accounting import progress_of
from raymega.driver.records.json_lines import read_lines
from raymega.driver.records.run_dir import RunDirectory

DEVICES = 6  # of the local Ray: the mesh has four, and what feeds it the rest
GOAL = 0.03
LIMIT_S, LOOK_S = 400.0, 0.2
TRACES = {
    "first": ((0, 6), (14, 3), (30, 6), (46, 3), (60, 6), (90, 6)),
    "second": ((0, 6), (8, 3), (20, 6), (30, 2), (50, 6), (64, 3), (75, 6), (90, 6)),
}
KILLS = {"first": "kill stage=0 replica=1 step=8 action=B1", "second": "kill stage=1 replica=0 step=12 action=B3"}
SETS = (
    "training.steps=100000", "training.eval_every=0", "training.warmup_samples=0", "training.lr_schedule=constant",
    "training.min_lr=0", "checkpoint.every_steps=5", "elastic.steady_s=2", "elastic.max_restarts=20", "run.device=cpu",
    "run.seed=1234", "log.tensorboard=false",
)  # fmt: skip
RAYMEGA = str(Path(sys.executable).with_name("raymega"))


def main(words: list[str]) -> int:
    """Make both runs, or read them; 0 if the second one's goodput is predicted within `GOAL`."""
    with tempfile.TemporaryDirectory(prefix="rm-") as folder:
        place = Path(words[0] if words else folder).resolve()
        place.mkdir(exist_ok=True)
        runs = [_run(name, folder=place) for name in TRACES]
        return 0 if _compared(*runs) else 1


def _run(name: str, *, folder: Path) -> RunDirectory:
    """The run `name` below `folder`, made if it is not there."""
    run = RunDirectory(path=folder / name)
    if not run.config.exists():
        _made(run)
    return run


def _made(run: RunDirectory) -> None:
    """Train, and let the nodes of its trace leave and come. Raises: RuntimeError with the end of the log."""
    name, folder = run.path.name, run.path.parent
    trace, log_file = folder / f"{name}.csv", folder / f"{name}.log"
    trace.write_text("t_s,n_nodes\n" + "".join(f"{t},{nodes}\n" for t, nodes in TRACES[name]))
    keys = (*SETS, f"run.dir={folder}", f"run.name={name}", f"elastic.chaos=[{KILLS[name]}]")
    sets = [word for key in keys for word in ("--set", key)]
    with log_file.open("w") as log:
        process = subprocess.Popen(
            [RAYMEGA, "train", "nano", *sets], stdout=log, stderr=subprocess.STDOUT,
            env={**os.environ, "COLUMNS": "200"},
        )  # fmt: skip
        try:
            _wait_for_steps(run, process)
            chaos = [RAYMEGA, "chaos", str(run.path), "--trace", str(trace), "--least", "2"]
            subprocess.run(chaos, check=True, stdout=log, stderr=subprocess.STDOUT, timeout=LIMIT_S)
            time.sleep(TRACES[name][-1][0])
            subprocess.run([RAYMEGA, "stop", str(run.path)], stdout=log, stderr=subprocess.STDOUT, timeout=LIMIT_S)
            code = process.wait(LIMIT_S)
        finally:
            process.terminate()
            process.wait(LIMIT_S)
    if code:
        raise RuntimeError(f"the run ended with {code}:\n{log_file.read_text()[-4000:]}")


def _wait_for_steps(run: RunDirectory, process: "subprocess.Popen[bytes]") -> None:
    until = time.monotonic() + LIMIT_S
    while process.poll() is None and time.monotonic() < until:
        if run.metrics.exists() and run.metrics.stat().st_size:
            return
        time.sleep(LOOK_S)
    raise RuntimeError(f"{run.path.name} commits no step; see {run.path.parent / run.path.name}.log")


def _compared(first: RunDirectory, second: RunDirectory) -> bool:
    """Print both; whether they are as near as they should be."""
    config, real = second.read_config(), progress_of(second)
    assert real is not None, "it has trained"
    asked = Asked(trace=str(second.path), mtbf=None, duration="1h", back="never", seed=0, journal=str(first.path))
    done = simulation_report(config, cluster=f"cpu:{DEVICES}", asked=asked).done
    spent, guess = real.goodput, done.seen.goodput
    print(f"{'':<12}  simulated  measured   worker-seconds of {second.path.name}, with times of {first.path.name}")
    for name in CATEGORIES:
        print(f"  {name:<10} {guess.share_of(name):>10.1%} {spent.share_of(name):>9.1%}")
    away = guess.share - spent.share
    print(f"  goodput    {guess.share:>10.1%} {spent.share:>9.1%}   {100 * away:+.1f} points")
    print(f"  steps      {done.seen.steps:>10} {len(list(read_lines(second.metrics))):>9}")
    ok = abs(away) <= GOAL
    print(f"within {100 * GOAL:.0f} points: goal {'met' if ok else 'not met'}", flush=True)
    return ok


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
