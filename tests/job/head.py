"""A head of Ray with its job server; it goes with this process, which ends with its standard input."""

import sys

import ray


def main(dashboard_port: int, temp: str) -> None:
    ray.init(
        address="local", num_cpus=4, include_dashboard=True, dashboard_host="127.0.0.1", dashboard_port=dashboard_port,
        object_store_memory=100 * 2**20, log_to_driver=False, configure_logging=False, _temp_dir=temp,
    )  # fmt: skip
    print(ray.get_runtime_context().gcs_address, flush=True)
    sys.stdin.read()
    ray.shutdown()


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2])
