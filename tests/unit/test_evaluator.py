import json
from dataclasses import asdict, replace

import numpy as np
import pytest

from tba_hpc.accuracy import Accuracy
from tba_hpc.config import EvaluationConfig
from tba_hpc.evaluator import EvaluationStoppedError, answer_problems, evaluate, number_of_problems
from tba_hpc.rollout.ending import ResponseEnd
from tba_hpc.rollout.engine import Rollout, SamplingParams
from tba_hpc.settings import ConfigError
from tba_hpc.tasks.arithmetic import Arithmetic
from tba_hpc.tasks.base import Score
from tba_hpc.trajectory import Message

TASK = Arithmetic({"max_operand": 20})
TOKENIZER = TASK.new_tokenizer()
SIZE = TASK.size("test")


class ScriptedEngine:
    """Adds rightly, except that it says 7 where the first operand is odd, and stops without an end below 10. Samples
    are the numbers 0, 1, … of the call."""

    version = 0
    ending = ResponseEnd(TOKENIZER, {TOKENIZER.eos_token_id})

    def __init__(self):
        self.batches, self.params = [], []

    def generate(self, prompts, params, should_stop=lambda: False):
        texts = [TOKENIZER.decode(prompt.tolist()).removeprefix("<bos>") for prompt in prompts]
        self.batches.append(texts)
        self.params.append(params)
        if params.temperature > 0:
            return [[rollout(str(i)) for i in range(params.samples)] for _ in texts]
        return [[self.respond(text)] for text in texts]

    def respond(self, text):
        a, b = operands(text)
        return rollout(str(a + b if a % 2 == 0 else 7), finished=a >= 10)


def rollout(text, finished=True):
    tokens = TOKENIZER(text, add_special_tokens=False)["input_ids"]
    tokens = np.array(tokens + [TOKENIZER.eos_token_id] * finished, np.int32)
    return Rollout(tokens, np.zeros(len(tokens), np.float32), finished)


def operands(text):
    a, b = text.removesuffix("=").split("+")
    return int(a), int(b)


def run(engine, problems=0, batch_size=4, should_stop=lambda: False):
    settings = EvaluationConfig(problems=problems, batch_size=batch_size)
    return evaluate(engine, TASK, TOKENIZER, settings, 10, 5, should_stop)


def answers(engine, indices, batch_size=4, samples=None, task=TASK, **params):
    sampling = SamplingParams(samples, max_tokens=5, **params) if samples else None
    return answer_problems(engine, task, TOKENIZER, "test", indices, batch_size, 10, 5, sampling=sampling)


def test_counts_lengths_and_records():
    result = run(ScriptedEngine())
    prompts = [TASK.prompt("test", i) for i in range(SIZE)]
    pairs = [operands(prompt.text) for prompt in prompts]
    right = [a % 2 == 0 or a + b == 7 for a, b in pairs]
    ended = [a >= 10 for a, _ in pairs]
    lengths = [len(str(a + b)) if a % 2 == 0 else 1 for a, b in pairs]
    assert [record.correct for record in result.records] == right
    assert [record.id for record in result.records] == list(range(SIZE))
    assert [record.prompt for record in result.records] == [prompt.text for prompt in prompts]
    assert [record.answer for record in result.records] == [prompt.answer for prompt in prompts]
    assert all((record.greedy.response == record.answer) == record.correct for record in result.records)
    assert [record.greedy.finished for record in result.records] == ended
    assert [record.greedy.tokens for record in result.records] == [n + e for n, e in zip(lengths, ended, strict=True)]
    assert result.accuracy == Accuracy(sum(right), SIZE)


@pytest.mark.parametrize(("problems", "expected"), [(0, SIZE), (5, 5), (10**6, SIZE)])
def test_the_first_problems_are_answered_greedily_in_batches(problems, expected):
    engine = ScriptedEngine()
    assert run(engine, problems).accuracy.problems == expected
    assert [text for batch in engine.batches for text in batch] == [
        TASK.prompt("test", i).text for i in range(expected)
    ]
    assert max(map(len, engine.batches)) == 4
    assert {(p.temperature, p.samples, p.max_tokens) for p in engine.params} == {(0.0, 1, 5)}


def test_any_problems_can_be_asked_for_in_any_order():
    records = list(answers(ScriptedEngine(), [7, 2, 9, 4, 30], batch_size=2))
    assert [record.id for record in records] == [7, 2, 9, 4, 30]
    assert [record.prompt for record in records] == [TASK.prompt("test", i).text for i in (7, 2, 9, 4, 30)]
    assert not any(record.samples for record in records)
    assert list(answers(ScriptedEngine(), [])) == []


def test_an_evaluation_that_is_asked_to_stop_does_so_after_the_batch_it_is_at():
    engine = ScriptedEngine()
    with pytest.raises(EvaluationStoppedError):
        run(engine, should_stop=lambda: len(engine.batches) == 2)
    assert len(engine.batches) == 2


def test_what_was_answered_before_the_stop_is_there():
    engine = ScriptedEngine()
    records = answer_problems(engine, TASK, TOKENIZER, "test", range(9), 4, 10, 5, lambda: len(engine.batches) == 2)
    assert [next(records).id for _ in range(4)] == [0, 1, 2, 3]
    with pytest.raises(EvaluationStoppedError):
        next(records)


def test_a_split_without_problems_is_the_users_to_mend():
    class NoProblems(Arithmetic):
        def size(self, split):
            return 0

    with pytest.raises(ConfigError, match="the test split of task NoProblems has no problems to evaluate on"):
        number_of_problems(NoProblems({}), "test", 5)


def test_a_prompt_that_is_too_long_shows_before_the_first_answer():
    engine = ScriptedEngine()
    lengths = [len(TASK.prompt("test", i).text) for i in range(SIZE)]
    longest = max(lengths)
    assert min(lengths[:4]) < longest
    with pytest.raises(ConfigError, match="max_prompt_tokens"):
        next(answer_problems(engine, TASK, TOKENIZER, "test", range(SIZE), 1, longest, 5))
    assert engine.batches == []


@pytest.mark.parametrize("batch_size", [1, 3, 4, 5, 8, 100])
@pytest.mark.parametrize("samples", [1, 4, 11])
def test_no_more_than_a_batch_is_in_flight_and_every_problem_gets_its_samples(batch_size, samples):
    engine = ScriptedEngine()
    records = list(answers(engine, range(10), batch_size, samples, temperature=0.8, top_p=0.9))
    in_flight = [len(batch) * params.samples for batch, params in zip(engine.batches, engine.params, strict=True)]
    assert max(in_flight) <= batch_size
    assert [len(record.samples) for record in records] == [samples] * 10
    sampling = [params for params in engine.params if params.temperature > 0]
    assert {(p.temperature, p.top_p, p.max_tokens) for p in sampling} == {(0.8, 0.9, 5)}
    assert len({params.seed for params in sampling}) == len(sampling)
    assert [replace(record, samples=()) for record in records] == list(answers(ScriptedEngine(), range(10)))


def test_the_seed_decides_the_samples():
    seeds = []
    for seed in (3, 3, 4):
        engine = ScriptedEngine()
        list(answers(engine, range(6), 4, samples=2, seed=seed))
        seeds.append([params.seed for params in engine.params if params.temperature > 0])
    assert seeds[0] == seeds[1]
    assert set(seeds[0]).isdisjoint(seeds[2])


def test_records_come_as_their_samples_are_done():
    engine = ScriptedEngine()
    records = answers(engine, range(8), 4, samples=2)
    next(records)
    assert [params.temperature for params in engine.params] == [0.0, 1.0]
    next(records)
    next(records)
    assert [params.temperature for params in engine.params] == [0.0, 1.0, 1.0]


class Conversation(Arithmetic):
    """With something to read in every column; responses of one prompt are scored together with those of others."""

    def prompt(self, split, index):
        return replace(super().prompt(split, index), messages=(Message("user", "add"),) if index == 1 else ())

    def score(self, prompts, responses):
        return [
            Score(len(r) / 4, r == "2", f"={r}" if r != "0" else None, f"{p.text}{r}")
            for p, r in zip(prompts, responses, strict=True)
        ]


def test_a_record_is_a_line_of_json():
    first, second = answers(ScriptedEngine(), [0, 2], samples=3, task=Conversation({"max_operand": 20}))
    prompt = TASK.prompt("test", 2)
    line = json.loads(json.dumps(asdict(second)))
    assert list(line) == ["id", "prompt", "messages", "answer", "greedy", "samples"]
    assert (line["id"], line["prompt"], line["messages"], line["answer"]) == (2, prompt.text, [], prompt.answer)
    none, *_, two = line["samples"]
    assert none == {
        "response": "0",
        "reward": 0.25,
        "correct": False,
        "extracted": None,
        "why": f"{prompt.text}0",
        "tokens": 2,
        "finished": True,
    }
    assert (two["response"], two["correct"], two["extracted"]) == ("2", True, "=2")
    assert first.samples[0].why == f"{TASK.prompt('test', 0).text}0"


def test_the_conversation_that_a_policy_read_is_recorded(monkeypatch):
    monkeypatch.setattr(TOKENIZER, "chat_template", "{{ '1+1=' }}")
    (record,) = answers(ScriptedEngine(), [1], task=Conversation({"max_operand": 20}))
    assert json.loads(json.dumps(asdict(record)))["messages"] == [{"role": "user", "content": "add"}]
    assert record.greedy.response == "7"


def test_a_task_that_scores_too_few_responses_is_named():
    class Forgetful(Arithmetic):
        def score(self, prompts, responses):
            return super().score(prompts, responses)[:-1]

    with pytest.raises(ValueError, match="task Forgetful scored 3 of 4 responses"):
        next(answers(ScriptedEngine(), range(4), task=Forgetful({"max_operand": 20})))
