import time

import numpy as np

from tba_hpc.rollout.emulation import PacedEngine
from tba_hpc.rollout.ending import ResponseEnd
from tba_hpc.rollout.engine import Rollout, SamplingParams
from tba_hpc.tasks.arithmetic import Arithmetic

PARAMS = SamplingParams(samples=2, max_tokens=8)


class QuickEngine:
    version = 4
    ending = ResponseEnd(Arithmetic({}).new_tokenizer(), {2})

    def __init__(self, lengths):
        self.lengths, self.loaded = lengths, []

    def generate(self, prompts, params, should_stop=lambda: False):
        return [[Rollout(np.zeros(n, np.int32), np.zeros(n, np.float32), True) for n in self.lengths] for _ in prompts]

    def load_weights(self, weights, version):
        self.loaded.append((list(weights), version))


def seconds(engine, prompts, should_stop=lambda: False):
    started = time.monotonic()
    groups = engine.generate(prompts, PARAMS, should_stop)
    return time.monotonic() - started, groups


def test_the_longest_response_of_a_batch_sets_the_time():
    engine = PacedEngine(QuickEngine([2, 5]), 0.04)
    taken, groups = seconds(engine, [np.zeros(1, np.int32)] * 3)
    assert [[len(r.tokens) for r in group] for group in groups] == [[2, 5]] * 3
    assert taken >= 0.2
    assert seconds(engine, [])[0] < 0.2


def test_a_run_that_stops_does_not_wait():
    engine = PacedEngine(QuickEngine([8]), 100.0)
    polls = iter([False, False, True])
    assert seconds(engine, [np.zeros(1, np.int32)], lambda: next(polls))[0] < 10


def test_all_else_is_the_engines_own():
    inner = QuickEngine([1])
    engine = PacedEngine(inner, 0.01)
    engine.load_weights([("a", None)], 7)
    assert inner.loaded == [([("a", None)], 7)]
    assert (engine.version, engine.ending) == (inner.version, inner.ending)
