"""The words for what goes wrong on purpose: read, printed, and refused with all that is wrong."""

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from raymega.config.chaos import FOR_CONTROLLER, PHASES, VERBS, ChaosOrder, parse, read
from raymega.config.load import load
from raymega.config.proposal import with_values
from raymega.config.rules import faults_of
from raymega.config.schema import Config
from raymega.errors import ConfigError

TARGETS = st.one_of(
    st.just({}),
    st.fixed_dictionaries({"node": st.from_regex(r"[\w.-]+", fullmatch=True)}),
    st.fixed_dictionaries({"stage": st.integers(0, 99), "replica": st.integers(0, 99)}, optional={"tp": st.just(1)}),
)
POINTS = st.one_of(
    st.just({}),
    st.fixed_dictionaries({"action": st.from_regex(r"[FBIW]\d{1,3}", fullmatch=True)}),
    st.fixed_dictionaries({"phase": st.sampled_from(PHASES)}),
    st.fixed_dictionaries({"bucket": st.integers(0, 9)}),
)


@st.composite
def orders(draw: st.DrawFn) -> ChaosOrder:
    verb = draw(st.sampled_from(VERBS))
    target = draw(st.just({"controller": True}) | TARGETS if verb in FOR_CONTROLLER else TARGETS)
    at_once = verb in ("kill", "fill-memory")
    seconds = None if at_once else draw(st.none() | st.sampled_from([0.5, 2.0, 30.0]))
    point = draw(POINTS)
    assume(verb != "fill-memory" or point.get("phase") not in ("apply", "gather"))
    return ChaosOrder(verb=verb, step=draw(st.integers(1, 10**6)), for_s=seconds, **target, **point)


@given(order=orders(), seed=st.randoms(use_true_random=False))
def test_what_is_printed_is_read_back_in_any_order_of_its_words(order: ChaosOrder, seed):
    verb, *words = str(order).split()
    seed.shuffle(words)
    assert parse(" ".join([verb, *words])) == order


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("kil step=4", "kil is no verb. Did you mean kill?"),
        ("", "nothing is no verb. Use kill, stall"),
        ("kill stag=1 replica=0 step=4", "stag=1 is not known. Did you mean stage?"),
        ("kill controler step=4", "Did you mean controller?"),
        ("kill stage=1 replica=0", "step is missing"),
        ("kill step=0", "from 1"),
        ("kill stage=one replica=0 step=4", "stage=one: a whole number is wanted"),
        ("kill stage=1 step=4", "named by stage and replica. Give both"),
        ("kill node=0 controller step=4", "node or controller: one target is wanted"),
        ("kill step=4 action=B1 phase=apply", "action or phase: one point"),
        ("kill step=4 action=G1", "as in B3"),
        ("kill step=4 phase=reduse", "Did you mean reduce?"),
        ("kill step=4 for=3", "what is killed stays dead"),
        ("fill-memory step=4 for=3", "memory is there again for smaller micro-batches"),
        ("fill-memory step=4 phase=apply", "Use an earlier phase"),
        ("fill-memory step=4 phase=gather", "Use an earlier phase"),
        ("stall step=4 for=soon", "as in 2.5"),
        ("drain controller step=4", "kill or stall for it"),
        ("kill step=4 step=5", "step stands twice"),
    ],
)
def test_a_refusal_says_what_is_wrong_and_the_way_out(text: str, said: str):
    with pytest.raises(ConfigError) as refused:
        parse(text)
    assert said in str(refused.value)


def test_all_faults_of_an_order_are_told_at_once():
    assert len(read("kil stag=1 phase=reduse for=x").faults) == 5


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("kill stage=2 replica=0 step=4", "stage=2 is not there; the run has 0 to 1"),
        ("kill stage=0 replica=3 step=4", "replica=3 is not there; the run has 0 to 2"),
        ("kill stage=0 replica=0 tp=1 step=4", "tp=1 is not there; the run has 0 to 0"),
        ("kill step=4 action=F4", "micro-batch 4 is not there; the run has 0 to 3"),
        ("kill step=4 phase=gather", "phase=gather is never reached"),
        ("kill step=101", "step=101 is never done; the run ends after step 100"),
    ],
)
def test_a_place_that_the_run_does_not_have_is_refused_before_anything_starts(text: str, said: str):
    sizes = {"parallelism.data_parallel_size": 3, "parallelism.pipeline_model_parallel_size": 2}
    (fault,) = faults_of(with_values(Config(), sizes | {"elastic.chaos": (text,)}))
    assert fault.key == "elastic.chaos"
    assert said in str(fault)


def test_a_cut_state_has_a_gather_to_die_in():
    changes = {"parallelism.shard_optimizer": "zero1", "elastic.chaos": ("kill step=4 phase=gather",)}
    assert faults_of(with_values(Config(), changes)) == ()


def test_an_axis_that_the_planner_chooses_is_not_held_against_an_order():
    sizes = {"parallelism.data_parallel_size": "auto", "elastic.chaos": ("kill stage=0 replica=7 step=1",)}
    assert faults_of(with_values(Config(), sizes)) == ()


def test_a_config_that_holds_orders_tells_the_faults_of_all_of_them_beside_its_own():
    text = 'elastic: {chaos: [kill step=4, "kil step=400", stall stage=9 replica=0 step=2]}\ntraining: {batch_size: 7}'
    with pytest.raises(ConfigError) as refused:
        load(text, source="run.yaml")
    for said in ("run.yaml:1: elastic.chaos", "kil is no verb", "stage=9 is not there", "training.batch_size"):
        assert said in str(refused.value)


def test_a_proposal_keeps_the_orders_that_can_happen():
    with pytest.raises(ConfigError) as refused:
        load('elastic: {chaos: ["kill step=4", "kill step=400"]}', source="run.yaml")
    assert refused.value.facts["proposal"] == ("elastic.chaos=[kill step=4]",)
    assert load("", source="", overrides=refused.value.facts["proposal"]).elastic.chaos == ("kill step=4",)
