from dataclasses import asdict

import numpy as np
import pytest

from tba_hpc.accuracy import Accuracy
from tba_hpc.config import EvaluationConfig
from tba_hpc.evaluator import EvaluationStoppedError, evaluate, number_of_problems
from tba_hpc.rollout.engine import Rollout
from tba_hpc.settings import ConfigError
from tba_hpc.tasks.arithmetic import Arithmetic

TASK = Arithmetic({"max_operand": 20})
TOKENIZER = TASK.new_tokenizer()
SIZE = TASK.size("test")


class ScriptedEngine:
    """Adds rightly, except that it says 7 where the first operand is odd, and stops without an end below 10."""

    version = 0

    def __init__(self):
        self.batches, self.params = [], []

    def generate(self, prompts, params, should_stop=lambda: False):
        texts = [TOKENIZER.decode(prompt.tolist()).removeprefix("<bos>") for prompt in prompts]
        self.batches.append(texts)
        self.params.append(params)
        return [[self.respond(text)] for text in texts]

    def respond(self, text):
        a, b = operands(text)
        tokens = TOKENIZER(str(a + b if a % 2 == 0 else 7), add_special_tokens=False)["input_ids"]
        finished = a >= 10
        tokens = np.array(tokens + [TOKENIZER.eos_token_id] * finished, np.int32)
        return Rollout(tokens, np.zeros(len(tokens), np.float32), finished)


def operands(text):
    a, b = text.removesuffix("=").split("+")
    return int(a), int(b)


def run(engine, problems=0, batch_size=4, should_stop=lambda: False):
    settings = EvaluationConfig(problems=problems, batch_size=batch_size)
    return evaluate(engine, TASK, TOKENIZER, settings, 10, 5, should_stop)


def test_counts_lengths_and_records():
    result = run(ScriptedEngine())
    prompts = [TASK.prompt("test", i) for i in range(SIZE)]
    pairs = [operands(prompt.text) for prompt in prompts]
    right = [a % 2 == 0 or a + b == 7 for a, b in pairs]
    lengths = [len(str(a + b)) if a % 2 == 0 else 1 for a, b in pairs]
    ended = [a >= 10 for a, _ in pairs]
    assert [record.correct for record in result.records] == right
    assert [record.prompt for record in result.records] == [prompt.text for prompt in prompts]
    assert [record.answer for record in result.records] == [prompt.answer for prompt in prompts]
    assert all((record.response == record.answer) == record.correct for record in result.records)
    assert result.accuracy == Accuracy(sum(right), SIZE)
    assert result.mean_response_length == pytest.approx(np.mean(lengths) + np.mean(ended))
    assert result.finished_fraction == pytest.approx(np.mean(ended))
    assert list(asdict(result.records[0])) == ["prompt", "response", "answer", "correct"]


@pytest.mark.parametrize(("problems", "expected"), [(0, SIZE), (5, 5), (10**6, SIZE)])
def test_the_first_problems_are_answered_greedily_in_batches(problems, expected):
    engine = ScriptedEngine()
    assert run(engine, problems).accuracy.problems == expected
    assert [text for batch in engine.batches for text in batch] == [
        TASK.prompt("test", i).text for i in range(expected)
    ]
    assert max(map(len, engine.batches)) == 4
    assert {(p.temperature, p.samples, p.max_tokens) for p in engine.params} == {(0.0, 1, 5)}


def test_an_evaluation_that_is_asked_to_stop_does_so_after_the_batch_it_is_at():
    engine = ScriptedEngine()
    with pytest.raises(EvaluationStoppedError):
        run(engine, should_stop=lambda: len(engine.batches) == 2)
    assert len(engine.batches) == 2


def test_a_split_without_problems_is_the_users_to_mend():
    class NoProblems(Arithmetic):
        def size(self, split):
            return 0

    with pytest.raises(ConfigError, match="the test split of task NoProblems has no problems to evaluate on"):
        number_of_problems(NoProblems({}), "test", 5)
