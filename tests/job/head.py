"""A head of Ray with its job server; it goes with this process, which ends with its standard input."""

import functools
import sys

import ray
from ray._private.parameter import RayParams


def main(dashboard_port: int, temp: str) -> None:
    # ray.init has no word for it: the agent that takes jobs has one port, which another Ray of this machine may hold
    RayParams.__init__ = functools.partialmethod(RayParams.__init__, dashboard_agent_listen_port=0)
    ray.init(
        address="local", num_cpus=4, include_dashboard=True, dashboard_host="127.0.0.1", dashboard_port=dashboard_port,
        object_store_memory=100 * 2**20, log_to_driver=False, configure_logging=False, _temp_dir=temp,
    )  # fmt: skip
    print(ray.get_runtime_context().gcs_address, flush=True)
    sys.stdin.read()
    ray.shutdown()


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2])
