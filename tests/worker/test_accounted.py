"""Workers as threads: what they say of their seconds adds up to the wall clock."""

import time

from tests.worker.rig import thread_run, tiny_config, tiny_plan
from tests.worker.test_time_sheet import total


def test_workers_account_for_every_second_of_a_run_in_which_one_dies():
    config = tiny_config(elastic={"boundary_log": "host"})
    plan, began = tiny_plan(config, dp=2, tp=1, pp=2), time.perf_counter()
    with thread_run(config, num_workers=4) as run:
        born_s = time.perf_counter() - began
        run.assign(plan)
        run.train(plan, until=3)
        found = run.recover(plan, dead={"w3"}, generation=2)
        run.train(found.plan, generation=2, first=found.step, until=5)
        for name in found.plan.living:
            spent, lived_s = run.workers[name].pulse(0, 0.0).spent, time.perf_counter() - began
            assert lived_s - born_s - 0.01 < total(spent) < lived_s
            assert all(seconds >= 0 for seconds in spent.seconds.values())
            assert all(spent.seconds[name] > 0 for name in ("start", "useful", "exchange", "data", "repair"))
