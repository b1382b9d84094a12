import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from raymega.cli.app import app
from raymega.errors import ConfigError, PlanError

MEGATRON = """
model: {kind: gpt2, hidden_size: 12288, num_layers: 96, num_attention_heads: 96, vocab_size: 51200}
data: {seq_len: 2048}
parallelism: {data_parallel_size: 2, tensor_model_parallel_size: 8, pipeline_model_parallel_size: 12}
training: {batch_size: 240, micro_batch_size: 10}
"""


def planned(*words: str) -> str:
    done = CliRunner().invoke(app, ["plan", *words], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return done.output


@pytest.fixture
def megatron(tmp_path: Path) -> str:
    file = tmp_path / "megatron.yaml"
    file.write_text(MEGATRON)
    return str(file)


def test_a_layout_that_does_not_fit_is_shown_beside_the_nearest_and_the_best(megatron: str) -> None:
    text = planned(megatron, "--cluster", "dgx-a100:24", "--precision", "bf16", "--explain")
    asked, _, nearest = text.splitlines()[1:4]
    assert asked.startswith("asked    dp=2 tp=8 pp=12, micro-batch 10, 1f1b")
    assert "schedule's bubble  47.8%" in asked
    assert "does not do: stage 0 needs" in text
    assert nearest.startswith("nearest  dp=2 tp=8 pp=12, micro-batch 1, 1f1b")
    assert "layouts estimated" in text


def test_a_layout_that_leaves_devices_idle_is_told_of_in_the_first_line() -> None:
    first, second, *_ = planned("llama-1b", "--cluster", "dgx-a100:2").splitlines()
    assert first.startswith("8 of 16 devices are used by dp=4 tp=2 pp=1; --set parallelism.data_parallel_size=auto")
    assert first.endswith("the best below uses 16")
    assert second.startswith("cluster  16 on 2 nodes")
    for whole in ("local:4", "local:2"):  # all are used; there are too few
        assert planned("nano", "--cluster", whole).startswith("cluster")


def test_the_bubble_of_the_schedule_and_the_one_of_the_step_are_told_apart(megatron: str) -> None:
    words = (megatron, "--cluster", "dgx-a100:24", "--precision", "bf16")
    text, best = planned(*words), json.loads(planned(*words, "--json"))["best"]
    assert f"schedule's bubble {best['bubble_share']:6.1%}" in text
    waits = f"({best['seconds']['bubble_s'] / best['step_s']:.1%}, with waits for slower stages and for messages)"
    assert f"bubble {best['seconds']['bubble_s']:,.3g} {waits}" in text
    assert "with waits" not in planned("nano", "--cluster", "local:1"), "one stage waits for none"


def test_the_number_format_that_seconds_are_of_is_said_whoever_chose_it() -> None:
    for words, kind in (
        ((), "fp32"),
        (("--precision", "bf16"), "bf16"),
        (("--set", "training.precision=bf16"), "bf16"),
    ):
        assert planned("nano", "--cluster", "local:4", *words).splitlines()[0].endswith(f"; computes in {kind}")
        assert json.loads(planned("nano", "--cluster", "local:4", *words, "--json"))["precision"] == kind


def test_the_survivors_of_a_small_cluster_all_have_a_plan() -> None:
    rows = [line for line in planned("nano", "--cluster", "local:4", "--survivors").splitlines() if "of linear" in line]
    assert [row.split()[0] for row in rows] == ["4", "3", "2", "1"]


def test_programs_get_one_document() -> None:
    data = json.loads(planned("nano", "--cluster", "local:4", "--survivors", "--json"))
    assert data["best"]["fits"]
    assert sum(data["best"]["seconds"].values()) == pytest.approx(data["best"]["step_s"])
    assert [row["devices"] for row in data["survivors"]] == [4, 3, 2, 1]


def test_a_cluster_is_read_from_a_file(tmp_path: Path) -> None:
    file = tmp_path / "cluster.yaml"
    file.write_text("nodes: 2\ndevices: 4\ndevice: h200\nlinks: {device: nvlink4, node: infiniband-400}\n")
    assert "8 on 2 nodes; the largest node has 4; h200; NVLink 4 in a node" in planned("nano", "--cluster", str(file))
    file.write_text(
        "nodes: 2\ndevices: 4\ndevice: h200\nlinks: {device: nvlink4, node: {latency_s: 35e-6, bytes_per_s: 1.2e9}}\n"
    )
    assert "NVLink 4 in a node, 1.20 GB/s (35 us) between nodes" in planned("nano", "--cluster", str(file))


def test_a_mesh_without_enough_devices_is_told_and_the_nearest_shown() -> None:
    text = planned("nano", "--cluster", "local:2")
    assert "does not do: Mesh dp=2 tp=1 pp=2 needs 4 devices" in text
    assert "pipeline_model_parallel_size 2 -> 1" in text


@pytest.mark.parametrize(
    ("words", "error", "message"),
    [
        (["nano", "--cluster", "dgx-a100:0"], ConfigError, "at least one node"),
        (["nano", "--cluster", "nowhere.yaml"], ConfigError, r"there is no file nowhere\.yaml"),
        (["nano", "--precision", "int3"], ConfigError, "fp32, bf16 or fp16 is wanted"),
        (["gpt3-175b", "--cluster", "dgx-a100:1"], PlanError, r"No layout of this model fits.* Add \d+ nodes"),
    ],
)
def test_what_cannot_be_planned_is_refused(words: list[str], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        planned(*words)


@pytest.mark.parametrize("verb", [("plan", "--cluster", "dgx-a100:1"), ("size",), ("simulate",)], ids=lambda v: v[0])
def test_a_model_is_planned_before_its_text_is_prepared_with_the_vocabulary_that_is_said(
    verb: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    word, *options = verb
    sets = ("--set", "training.batch_size=8", "--set", "training.micro_batch_size=1")
    done = CliRunner().invoke(app, [word, "small", *options, *sets], catch_exceptions=False)
    assert done.exit_code == 0
    assert "a vocabulary of 50,257, as models of kind gpt2 usually have: there is no prepared/" in done.output


def test_a_tokenizer_that_nobody_knows_by_name_is_refused_and_not_assumed() -> None:
    with pytest.raises(ConfigError, match="neither a file nor built in"):
        planned("nano", "--set", "data.tokenizer=shakespear-2k")
