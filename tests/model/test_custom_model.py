from pathlib import Path

import pytest

from raymega.errors import ConfigError
from raymega.model.stage import architecture_of, specs_of
from tests.model.rig import farthest, one_step, rows, tiny

FOLDER = Path(__file__).parents[2] / "workloads" / "own_model"


@pytest.fixture
def own_model(monkeypatch):
    monkeypatch.syspath_prepend(FOLDER)
    return tiny(custom="own_model:build", num_layers=4)


@pytest.mark.parametrize(("tp", "pp"), [(2, 1), (1, 2), (2, 2), (4, 4)])
def test_the_example_trains_alike_on_every_layout(own_model, tp, pp):
    want = one_step(own_model, rows(3))
    got = one_step(own_model, rows(3), tp=tp, pp=pp)
    assert got.loss == pytest.approx(want.loss, rel=1e-6)
    assert farthest(got.grads, want.grads) < (1e-6, "")
    assert all(grad.any() for grad in got.grads.values())


def test_its_loss_and_its_parameters_are_its_own(own_model, monkeypatch):
    with_penalty = one_step(own_model, rows(3)).loss
    monkeypatch.setattr("own_model.HIDDEN_PENALTY", 0.0)
    assert with_penalty > one_step(own_model, rows(3)).loss
    names = {f"layers.3.{part}" for part in ("norm", "value", "out", "scale")}
    assert {spec.name for spec in specs_of(own_model) if spec.owner == 3} == names


def test_the_example_refuses_what_it_cannot_do(monkeypatch):
    monkeypatch.syspath_prepend(FOLDER)
    with pytest.raises(ConfigError, match="sequence_parallel to false"):
        architecture_of(tiny(custom="own_model:build", sequence_parallel=True))


def test_a_fault_inside_of_the_function_is_its_authors_to_see(monkeypatch):
    monkeypatch.syspath_prepend(FOLDER)
    monkeypatch.setattr("own_model.MeanMixer", lambda config: None + 1)
    with pytest.raises(TypeError, match="unsupported operand"):
        architecture_of(tiny(custom="own_model:build"))


@pytest.mark.parametrize(
    ("where", "message"),
    [
        ("own_model", "names a function as `module:function`"),
        (".own_model:build", "names a function as `module:function`"),
        ("own_model:", "names a function as `module:function`"),
        ("no_such_module:build", "cannot be imported: No module named 'no_such_module'"),
        ("math:pi", "'math:pi', which is no function"),
        ("os:system", r"cannot be called with a config: .*Name a function that takes one Config and returns a model"),
        ("builtins:repr", "returned a str without param_specs, embedding, block, head"),
        ("math:build", "cannot be imported: module 'math' has no attribute 'build'"),
    ],
)
def test_a_wrong_name_says_what_is_wrong(where, message):
    with pytest.raises(ConfigError, match=message):
        architecture_of(tiny(custom=where))
