"""Files for clusters: valid where a schema ships, and with the fields that make a run outlive its machines."""

import json
import re
from importlib.resources import files
from pathlib import Path

import jsonschema
import pytest
import yaml

from raymega.config.load import load
from raymega.config.presets import preset_text
from raymega.plan.cluster import MARKET_LABEL
from tests.house.rooms import ROOT

DEPLOY = ROOT / "workloads" / "deploy"
LAUNCHERS = ("cluster-aws-spot.yaml", "cluster-gcp-spot.yaml")
CONFIGS = sorted(path.parent.name for path in (ROOT / "workloads").glob("*/config.yaml") if path.parent.name != "bench")


def read(name: str) -> dict:
    return yaml.safe_load((DEPLOY / name).read_text())


@pytest.mark.parametrize("name", LAUNCHERS)
def test_a_cluster_of_the_launcher_fits_rays_schema_and_its_head_stays(name: str):
    schema = json.loads((files("ray") / "autoscaler" / "ray-schema.json").read_text())
    cluster = read(name)
    jsonschema.validate(cluster, schema)
    kinds = cluster["available_node_types"]
    assert kinds[cluster["head_node_type"]]["labels"] == {MARKET_LABEL: "on-demand"}
    assert "SPOT" not in json.dumps(kinds[cluster["head_node_type"]]["node_config"]).upper()
    assert kinds["spot"]["labels"] == {MARKET_LABEL: "spot"}
    assert "SPOT" in json.dumps(kinds["spot"]["node_config"]).upper()
    assert kinds["spot"]["max_workers"] <= cluster["max_workers"]


def test_rays_schema_would_refuse_a_key_that_is_none():
    schema = json.loads((files("ray") / "autoscaler" / "ray-schema.json").read_text())
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(read(LAUNCHERS[0]) | {"max_worker": 8}, schema)


def test_a_job_of_kuberay_lets_runs_leave_before_the_grace_is_over():
    spec = read("rayjob.yaml")["spec"]
    cluster, pins = spec["rayClusterSpec"], (ROOT / "constraints.txt").read_text()
    (workers,) = cluster["workerGroupSpecs"]
    pod = workers["template"]["spec"]
    *command, deadline = pod["containers"][0]["lifecycle"]["preStop"]["exec"]["command"]
    assert command == ["raymega", "drain", "--self", "--deadline"]
    assert float(deadline) < pod["terminationGracePeriodSeconds"]
    assert workers["minReplicas"] <= workers["replicas"] <= workers["maxReplicas"]
    assert (workers["labels"], cluster["headGroupSpec"]["labels"][MARKET_LABEL]) == (
        {MARKET_LABEL: "spot"},
        "on-demand",
    )
    assert f"ray=={cluster['rayVersion']}" in pins
    assert re.fullmatch(r"python -m raymega\.job nano( --set \S+=\S+)+", spec["entrypoint"])


@pytest.mark.parametrize("name", ["sky.yaml", "raymega.dstack.yml"])
def test_nodes_that_a_tool_starts_say_that_they_are_spot_and_hold_sigterm_back(name: str):
    text = (DEPLOY / name).read_text()
    assert "RAY_NODE_MARKET_TYPE=spot" in text
    assert "raymega node -- ray start --block" in text
    assert "raymega submit nano --address http://127.0.0.1:8265 --set run.dir=/runs --set run.name=nano" in text


def test_each_tool_is_asked_for_spot_machines():
    sky, dstack = read("sky.yaml"), read("raymega.dstack.yml")
    assert (sky["num_nodes"], sky["resources"]["use_spot"], sky["file_mounts"]["/runs"]["mode"]) == (4, True, "MOUNT")
    assert (dstack["type"], dstack["nodes"], dstack["spot_policy"]) == ("task", 4, "spot")
    assert "interruption" in dstack["retry"]["on_events"]


def test_the_image_installs_the_pinned_package_and_what_it_copies_is_there():
    lines = (DEPLOY / "Dockerfile").read_text().splitlines()
    copied = [word for line in lines if line.startswith("COPY") for word in line.split()[1:-1]]
    assert all((ROOT / word).exists() for word in copied)
    assert {"raymega", "workloads", "constraints.txt"} <= set(copied)
    assert any("-c constraints.txt" in line for line in lines)


@pytest.mark.parametrize("file", sorted(DEPLOY.iterdir()), ids=lambda file: file.name)
def test_images_come_from_no_host_of_ours(file: Path):
    images = re.findall(r"(?:^FROM|image:) +(\S+)", file.read_text(), flags=re.MULTILINE)
    assert all("." not in image.split("/")[0] or "/" not in image for image in images)


@pytest.mark.parametrize("name", CONFIGS)
def test_every_workload_has_a_readme_and_a_config_that_loads(name: str):
    folder = ROOT / "workloads" / name
    load((folder / "config.yaml").read_text(), source=name)
    assert (folder / "README.md").exists()


def test_the_workloads_that_begin_with_a_config_are_there():
    assert {"nano", "prepare_data", "continue_pretrain", "chaos_demo"} <= set(CONFIGS)
    assert (ROOT / "workloads" / "bench" / "config.yaml").exists()


def test_nano_as_a_file_says_what_the_preset_says():
    assert load((ROOT / "workloads" / "nano" / "config.yaml").read_text(), source="f") == load(
        preset_text("nano"), source="preset"
    )
