"""What a written value becomes, what is refused, and that everything is refused at once with its place."""

import jsonschema
import pytest
import yaml

from raymega.config.load import load, schema, to_line, to_yaml
from raymega.config.presets import preset_names, preset_text
from raymega.config.schema import Config
from raymega.errors import ConfigError
from raymega.pipeline.catalog import schedule_names


def loaded(text: str, *overrides: str) -> Config:
    return load(text, source="run.yaml", overrides=overrides)


def refusal(text: str, *overrides: str) -> str:
    with pytest.raises(ConfigError) as caught:
        loaded(text, *overrides)
    assert caught.value.exit_code == 2
    return str(caught.value)


def test_an_empty_text_gives_the_defaults():
    assert loaded("") == loaded("model:\n") == loaded("# nothing\n") == Config()


def test_the_shape_that_megatron_users_know_is_taken_as_it_stands():
    config = loaded("""
        model: {hidden_size: 96, num_layers: 10, num_attention_heads: 12}
        parallelism: {tensor_model_parallel_size: 2, pipeline_model_parallel_size: 2, data_parallel_size: 2}
        training: {batch_size: 16, micro_batch_size: 2, optimizer: adamw, lr: 0.0003}
    """)
    assert (config.parallelism.tensor_model_parallel_size, config.training.lr) == (2, 3e-4)


@pytest.mark.parametrize(
    ("written", "value"),
    [("6e-5", 6e-5), ("6.0e5", 6e5), ("1e5", 1e5), ("1E-4", 1e-4), ("'6e-5'", 6e-5), ("6.0e-5", 6e-5), ("1.e-3", 1e-3),
     ("3", 3.0), ("1_000", 1000.0), (".5", 0.5), ("+2", 2.0), ("0", 0.0), ("0.5", 0.5)],
)  # fmt: skip
def test_numbers_are_numbers_however_they_are_written(written: str, value: float):
    lr = loaded(f"training: {{lr: {written}}}").training.lr
    assert (lr, type(lr)) == (value, float)


@pytest.mark.parametrize(("written", "value"), [("4096.0", 4096), ("1e5", 100000), ("1_000", 1000), ("'12'", 12)])
def test_a_whole_number_may_be_written_as_any_number(written: str, value: int):
    steps = loaded(f"training: {{steps: {written}}}").training.steps
    assert (steps, type(steps)) == (value, int)


@pytest.mark.parametrize("key", ["lr", "eps", "weight_decay", "min_lr", "clip_grad"])
def test_the_exponent_form_is_a_number_in_every_number_field(key: str):
    text = f"training: {{lr_schedule: cosine, {key}: 6e-5, betas: [9e-1, 95e-2], warmup_samples: 1e3}}"
    training = loaded(text).training
    assert (getattr(training, key), training.betas, training.warmup_samples) == (6e-5, (0.9, 0.95), 1000)


@pytest.mark.parametrize(
    ("field", "written", "words"),
    [
        ("training.lr", "2**16", "2**16 found; a number of at least 0 is wanted"),
        ("training.steps", "2**16", "Write 65536"),
        ("training.lr", "inf", "inf found; a number"),
        ("training.lr", ".nan", "a number"),
        ("training.lr", "1e400", "a number"),
        ("training.lr", "fast", "fast found; a number"),
        ("training.lr", "true", "true found; a number"),
        ("training.lr", "on", "on found; a number"),
        ("training.lr", "-1", "Write 0 or more"),
        ("training.lr", "~", "nothing found; a number"),
        ("training.lr", "[1]", "a list found; a number"),
        ("training.lr", "{a: 1}", "a section found; a number"),
        ("training.betas", "[0.9]", "a list of 2 entries"),
        ("training.betas", "0.9", "a list of 2 entries"),
        ("training.steps", "4096.5", "Write 4096 or 4097"),
        ("training.steps", "1_.5", "Write 1 or 2"),
        ("training.steps", "-1__0", "Write 1 or more"),
        ("training.steps", f"{'9' * 5000}**2", "Write it out"),
        ("training.steps", "010", "Write 10"),
        ("training.steps", "1:30", "1:30 found; a whole number of at least 1"),
        ("training.steps", "no", "a whole number"),
        ("training.steps", "None", "a whole number"),
        ("training.steps", "0", "Write 1 or more"),
        ("training.steps", "0x10", "a whole number"),
        ("training.steps", "1e19", "a whole number"),
        ("data.seq_len", "1e15", "at least 1 and at most 2147483647 is wanted. Write 2147483647 or less"),
        ("training.optimizer", "adam", "Did you mean adamw?"),
        ("model.dropout", "1", "a number of at least 0 and below 1"),
        ("model.num_key_value_heads", "two", "or null for the default"),
        ("data.shuffle", "maybe", "true or false is wanted"),
        ("data.valid", "no", 'Quote it, as in "no", or write null'),
        ("run.dir", "None", 'Quote it, as in "None"'),
        ("run.dir", "''", "Write some text"),
        ("parallelism.schedule", "1f1bb", "Did you mean 1f1b?"),
        ("parallelism.data_parallel_size", "many", "a whole number of at least 1 or auto is wanted"),
        ("parallelism.layers_per_stage", "[4, 0]", "parallelism.layers_per_stage[1]: 0 found"),
        ("log.trackers", "[wandbb]", "Did you mean wandb?"),
        ("data.train", "[{path: a, weight: 0}]", "data.train[0].weight: 0 found; a number above 0"),
        ("data.train", "[{path: a}]", "data.train[0].weight: missing"),
        ("data.train", "[a]", "a section of keys is wanted"),
        ("model", "3", "a section of keys is wanted"),
    ],
)  # fmt: skip
def test_a_value_of_the_wrong_kind_is_refused_in_a_file_and_in_set(field: str, written: str, words: str):
    section, _, key = field.partition(".")
    text = f"{section}:\n  {key}: {written}\n" if key else f"\n{section}: {written}\n"
    assert (message := refusal(text)).startswith("run.yaml:2: " + field)
    assert words in message
    assert refusal("", f"{field}={written}") == message.replace("run.yaml:2", "--set")


def test_words_for_yes_and_no_are_taken_where_they_are_wanted_and_text_may_be_any_text():
    config = loaded("{data: {shuffle: off, valid: 'no'}, log: {tensorboard: yes}, run: {name: 010, dir: 'None'}}")
    assert (config.data.shuffle, config.data.valid, config.log.tensorboard) == (False, "no", True)
    assert (config.run.name, config.run.dir) == ("010", "None")


ALIASES_OF_ALIASES = "a0: &a0 [1]\n" + "".join(f"a{n}: &a{n} [{', '.join(9 * [f'*a{n - 1}'])}]\n" for n in range(1, 20))


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("training:\n  lr: 1\n  lr: 2\n", "run.yaml:3: training.lr: the key stands twice, first on line 2"),
        ("model: {}\nmodel: {}\n", "run.yaml:2: model: the key stands twice"),
        ("model:\n\thidden_size: 3\n", "run.yaml:2: not YAML"),
        ("model: {hidden_size: 3\n", "not YAML"),
        ("--- {}\n--- {}\n", "expected a single document"),
        ("model: \x00", "not YAML"),
        ("- a\n", "a list found; a section of keys is wanted"),
        ("model: &m {init: *m}\n", "run.yaml: a part holds itself"),
        (ALIASES_OF_ALIASES, "run.yaml: more than 10,000 entries, with aliases written out. Use fewer aliases."),
        ('data: {tokenizer: "a\\0b"}\n', "run.yaml:1: data.tokenizer: a NUL character in it. Leave it out."),
        (
            'run: {dir: "a\\ud83d"}\n',
            "run.yaml:1: run.dir: half a character (a surrogate without its other half) in it.",
        ),
        ("model: " + 9000 * "[", "lies too deep in others"),
        ("model:\n  ? [a, b]\n  : 3\n", "run.yaml:2: model: a list or a section is no key"),
        ("training: {lr: 1e99999999999999999999, steps: 1e99999999999999999999}\n", "run.yaml: 2 faults"),
        ("training: {lr: !!python/name:os.system }\n", "is a YAML tag"),
    ],
)
def test_a_text_that_is_not_a_config_is_refused_with_its_line(text: str, words: str):
    assert words in refusal(text)


@pytest.mark.parametrize(
    ("key", "words"),
    [
        ("model.hidden_sice", "Did you mean model.hidden_size?"),
        ("training.global_batch_size", "Did you mean training.batch_size?"),
        ("parallelism.tensor_paralell_size", "Did you mean parallelism.tensor_model_parallel_size?"),
        ("training.seq_len", "Did you mean data.seq_len?"),
        ("lr", "Did you mean training.lr?"),
        ("modle", "Did you mean model?"),
        ("training.stepz", "Did you mean training.steps?"),
        ("run.zzz", "Known here: name, dir, seed"),
    ],
)
def test_an_unknown_key_is_refused_and_the_nearest_named(key: str, words: str):
    assert f"--set: {key}: unknown key. {words}" in refusal("", f"{key}=1")


def test_all_faults_come_at_once_each_with_its_line():
    text = "model:\n  hidden_sise: 3\n  num_layers: 010\ntraining:\n  lr: 2**16\n  lr: 1\n  batch_size: 10\nrun: 3\n"
    lines = refusal(text, "elastic.lease_s=20", "log").split("\n")
    assert lines[0] == "run.yaml: 8 faults"
    assert [line.split(": ")[0] for line in lines[1:9]] == [
        "run.yaml:6", "--set", "run.yaml:2", "run.yaml:3", "run.yaml:5", "run.yaml:8", "run.yaml:7", "--set",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("text", "override"),
    [
        ("model: {hidden_size: ninety, num_attention_heads: 5}", "run.seed=1"),
        ("model: {hidden_size: 90, hidden_size: 91, num_attention_heads: 5}", "run.seed=1"),
        ("model: 3", "parallelism.tensor_model_parallel_size=3"),
        ("model: {hidden_size: 90", "parallelism.tensor_model_parallel_size=3"),
    ],
)
def test_what_cannot_be_read_does_not_drag_the_rules_that_read_it_along(text: str, override: str):
    assert refusal(text, override).count("\n") == 0


def test_a_section_in_the_place_of_a_value_is_blamed_on_where_it_was_given():
    assert refusal("training: {steps: 3}", "training.steps.x=3").startswith("--set: training.steps: a section found")


def test_set_lays_over_the_file_key_by_key_and_the_last_one_counts():
    text = "model: {hidden_size: 96, init: {std: 0.1}}\ntraining: {lr: 3}\n"
    sets = (
        "model.init.std=0.3",
        "model={num_layers: 2}",
        "training.lr=1e-4",
        "training.lr=2e-4",
        "log.trace_steps=[2,3]",
    )
    config = loaded(text, *sets)
    assert (config.model.hidden_size, config.model.init.std, config.model.num_layers) == (96, 0.3, 2)
    assert (config.training.lr, config.log.trace_steps) == (2e-4, (2, 3))


def test_a_character_that_json_escapes_as_a_pair_is_one():
    assert loaded('run: {dir: "/\\ud83d\\ude00"}\n').run.dir == "/\N{GRINNING FACE}"


@pytest.mark.parametrize("name", preset_names())
def test_every_preset_loads_and_reads_back_from_what_is_written(name: str):
    config = load(preset_text(name), source=name)
    assert load(to_yaml(config), source="config.yaml") == config


@pytest.mark.parametrize("path", ["/a b", "/a: b, [c] #d", "/{x}", "none", "/it's", '/"', "/" + 200 * " long"])
def test_a_section_is_one_line_that_reads_back_whatever_a_path_holds(path: str):
    line = to_line("data", {"train": path, "seq_len": 32})
    assert "\n" not in line
    assert (loaded(line).data.train, loaded(line).data.seq_len) == (path, 32)


def test_what_is_written_has_the_same_numbers_for_other_readers_of_yaml():
    config = loaded("run: {name: '1e5', dir: 'on', seed: 7}\ndata: {train: [{path: None a, weight: 1e-9}]}\n")
    assert loaded(to_yaml(config)) == config
    assert yaml.safe_load(to_yaml(config))["data"]["train"] == [{"path": "None a", "weight": 1e-9}]


def test_every_schedule_that_a_config_may_name_is_in_the_catalog():
    schedules = schema()["$defs"]["ParallelismConfig"]["properties"]["schedule"]["anyOf"][0]["enum"]
    assert set(schedules) <= set(schedule_names())


def test_the_schema_describes_every_field_and_agrees_with_the_loader():
    jsonschema.Draft202012Validator.check_schema(schema())
    validator = jsonschema.Draft202012Validator(schema())
    sections = [section["properties"].values() for section in schema()["$defs"].values()]
    assert all("description" in field or "$ref" in field for fields in sections for field in fields)
    assert validator.is_valid(yaml.safe_load(to_yaml(Config())))
    assert not validator.is_valid({"model": {"hidden_sise": 3}})
