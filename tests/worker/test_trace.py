"""A traced step tells every action, and only steps that were asked for are told."""

from raymega.config.schema import LogConfig
from raymega.worker.interface import StepTrace
from tests.worker.rig import thread_run, tiny_config, tiny_plan


def test_a_traced_step_tells_every_action_of_every_worker_in_order():
    config = tiny_config(steps=3).model_copy(update={"log": LogConfig(trace_steps=(2,))})
    plan = tiny_plan(config, dp=1, tp=1, pp=2)
    with thread_run(config, num_workers=2) as run:
        run.assign(plan)
        run.train(plan, until=3)
        first, last = run.wait_for(StepTrace, workers=("w1",), generation=1) + [
            report for name, report in run.reports if isinstance(report, StepTrace) and name == "w0"
        ]
        computed = {row.name for row in (*first.rows, *last.rows) if row.lane == "compute"}
        assert {f"{stage}{kind}{m}" for stage in (0, 1) for kind in "FB" for m in range(4)} <= computed
        assert first.step == last.step == 2
        actions = [row.start_s for row in first.rows if row.lane == "compute"]
        assert actions == sorted(actions)
