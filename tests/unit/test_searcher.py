from itertools import permutations
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from tiny import tiny_settings

from tba_hpc.config import ExplorationConfig, ModelConfig, RolloutConfig, RunConfig
from tba_hpc.models import Sequences, load_policy, load_tokenizer, token_logprobs
from tba_hpc.prompts import PromptOrder
from tba_hpc.reference import ReferencePolicy
from tba_hpc.rollout.ending import ResponseEnd
from tba_hpc.rollout.engine import Rollout
from tba_hpc.searcher import Searcher, sampling_params
from tba_hpc.settings import validate
from tba_hpc.tasks.arithmetic import Arithmetic
from tba_hpc.tasks.base import Score

CPU = torch.device("cpu")
TASK = Arithmetic({})


PLACE = (0, 1, 0)


class ScriptedEngine:
    """Samples what it is told to, as many responses as asked for or as time allows."""

    version = 7
    ending = ResponseEnd(TASK.new_tokenizer(), {2})

    def __init__(self, responses=10**6):
        self.responses, self.params = responses, []

    def generate(self, prompts, params, should_stop):
        self.params.append(params)
        groups = []
        for p in range(len(prompts)):
            n = min(params.samples, max(self.responses - p * params.samples, 0))
            groups.append([self.rollout(p, s) for s in range(n)])
        return groups

    def rollout(self, prompt, sample):
        tokens = np.array([3 + prompt, 3 + sample, 2], np.int32)[: 3 - sample % 2]
        return Rollout(tokens, np.full(len(tokens), -prompt - sample / 8, np.float32), finished=sample % 2 == 0)


class Lengths(Arithmetic):
    def score(self, prompts, responses):
        return [Score(len(r) + p.id / 1000, bool(r)) for p, r in zip(prompts, responses, strict=True)]


@pytest.fixture(scope="module")
def model(tiny_model):
    return load_policy(str(tiny_model), ModelConfig(path=str(tiny_model)), CPU)


@pytest.fixture
def make(model, tiny_model):
    def make(engine, task=None):
        config = validate(RunConfig, tiny_settings(tiny_model, "run"), "")
        reference = ReferencePolicy(model, 0, 1.0, 1024, 64)
        exchange = SimpleNamespace(stopped=lambda: False)
        tokenizer = load_tokenizer(str(tiny_model))
        prompts = PromptOrder.of(100, config.seed).share(1, 3)
        return Searcher(config, 1, 3, prompts, task or Lengths({}), tokenizer, engine, reference, exchange)

    return make


def test_a_batch_holds_the_sampled_tokens_with_all_that_belongs_to_them(make, model):
    engine = ScriptedEngine()
    prompts = [TASK.prompt("train", i) for i in (5, 8)]
    batch = make(engine).collect(prompts, PLACE)
    assert batch.rows["prompt_id"].tolist() == [5] * 6 + [8] * 6
    assert set(batch.rows["policy_version"]) == {7}
    assert set(batch.rows["searcher"]) == {1}
    assert set(batch.rows["temperature"]) == {1.0}
    assert batch.rows["finished"].tolist() == [1, 0] * 6
    expected = [engine.rollout(p, s) for p in range(2) for s in range(6)]
    assert batch.response_tokens.tolist() == np.concatenate([r.tokens for r in expected]).tolist()
    assert batch.behavior_logprobs.tolist() == np.concatenate([r.logprobs for r in expected]).tolist()
    np.testing.assert_allclose(batch.rows["reward"], [2 + i / 1000 for i in (5, 8) for _ in range(6)], rtol=1e-6)
    sequences = Sequences.from_trajectories(batch, 0, CPU)
    with torch.no_grad():
        logprobs = token_logprobs(model, sequences, 1.0, 1024)[sequences.response_mask]
    np.testing.assert_allclose(batch.reference_logprobs, logprobs.numpy(), atol=1e-5)


@pytest.mark.parametrize("responses", [0, 1, 7])
def test_a_batch_that_was_cut_short_by_the_end_of_the_run_is_still_whole(make, responses):
    batch = make(ScriptedEngine(responses)).collect([TASK.prompt("train", i) for i in (5, 8)], PLACE)
    assert len(batch) == responses
    assert batch.rows["prompt_id"].tolist() == ([5] * 6 + [8] * 6)[:responses]


class TooFew(Lengths):
    def score(self, prompts, responses):
        return super().score(prompts, responses)[1:]


class NotANumber(Lengths):
    def score(self, prompts, responses):
        return [Score(float("nan"), False) for _ in responses]


class Floats(Lengths):
    def score(self, prompts, responses):
        return [1.0 for _ in responses]


class Nothing(Lengths):
    def score(self, prompts, responses):
        return None


@pytest.mark.parametrize(
    ("task", "message"),
    [
        (TooFew, "task TooFew scored 11 of 12 responses"),
        (NotANumber, "task NotANumber gave the reward nan"),
        (Floats, r"score of task Floats has to return a list of Score; it returned \[1.0"),
        (Nothing, "score of task Nothing has to return a list of Score; it returned None"),
    ],
)
def test_a_task_that_scores_badly_is_named(make, task, message):
    with pytest.raises(ValueError, match=message):
        make(ScriptedEngine(), task({})).collect([TASK.prompt("train", i) for i in (5, 8)], PLACE)


def test_no_two_places_of_a_run_are_sampled_with_the_same_seed(make):
    engine = ScriptedEngine()
    searcher = make(engine)
    places = [*permutations(range(3)), (0, 0, 0), (1, 1, 1)]
    for place in places * 2:
        searcher.collect([TASK.prompt("train", 0)], place)
    first, again = np.split(np.array([params.seed for params in engine.params]), 2)
    assert len(set(first)) == len(places)
    assert first.tolist() == again.tolist()


def sequence(seed, *place):
    return np.random.SeedSequence(seed, spawn_key=place)


ROLLOUT = {"queries_per_batch": 1, "samples_per_query": 4, "max_prompt_tokens": 8, "max_response_tokens": 5}


@given(st.tuples(st.integers(0, 2**31), st.integers(0, 1000), st.integers(0, 10**6)))
def test_sampling_settings_depend_on_the_seed_alone(seed):
    exploration = ExplorationConfig(fraction=0.5, temperature=(1.5, 2.0), top_p=(0.8, 0.9))
    config = RolloutConfig(**ROLLOUT, temperature=0.7, exploration=exploration)
    params = sampling_params(config, sequence(*seed))
    assert params == sampling_params(config, sequence(*seed))
    usual = (params.temperature, params.top_p) == (0.7, 1.0)
    assert usual or (1.5 <= params.temperature <= 2.0 and 0.8 <= params.top_p <= 0.9)


def test_exploration_takes_its_share_of_the_batches():
    exploration = ExplorationConfig(fraction=0.25, temperature=(1.5, 2.0))
    config = RolloutConfig(**ROLLOUT, temperature=0.7, exploration=exploration)
    explored = sum(sampling_params(config, sequence(0, 0, i)).temperature > 1 for i in range(2000))
    assert explored / 2000 == pytest.approx(0.25, abs=0.04)
    without = RolloutConfig(**ROLLOUT, temperature=0.7)
    assert {sampling_params(without, sequence(0, 0, i)).temperature for i in range(50)} == {0.7}
