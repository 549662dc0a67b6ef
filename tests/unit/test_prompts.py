from itertools import chain

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tba_hpc.prompts import PromptStream
from tba_hpc.settings import ConfigError


@given(st.integers(1, 60), st.integers(0, 2**32), st.data())
def test_every_epoch_each_prompt_comes_up_once_on_exactly_one_searcher(size, seed, data):
    shares = data.draw(st.integers(1, size))
    streams = [PromptStream(size, seed, i, shares) for i in range(shares)]
    for _ in range(3):
        sizes = [len(range(i, size, shares)) for i in range(shares)]
        taken = [stream.take(n) for stream, n in zip(streams, sizes, strict=True)]
        assert sorted(chain(*taken)) == list(range(size))


@given(st.lists(st.integers(0, 30), max_size=10))
def test_how_prompts_are_asked_for_makes_no_difference(sizes):
    one, other = PromptStream(17, 5, 1, 2), PromptStream(17, 5, 1, 2)
    assert list(chain(*(one.take(n) for n in sizes))) == other.take(sum(sizes))


def test_the_order_depends_on_seed_and_epoch():
    first = PromptStream(50, 0, 0, 1)
    epochs = [first.take(50) for _ in range(2)]
    assert epochs[0] != epochs[1]
    assert epochs[0] != PromptStream(50, 1, 0, 1).take(50)
    assert epochs[0] == PromptStream(50, 0, 0, 1).take(50)


@given(st.integers(0, 2**40), st.integers(0, 3))
def test_no_other_part_of_the_run_draws_from_the_same_stream(seed, epoch):
    order = PromptStream(50, seed, 0, 1).take(50 * (epoch + 1))[50 * epoch :]
    for key in ((seed, epoch), (seed, epoch, 0), (epoch, seed), (seed, 0, epoch)):
        assert order != np.random.default_rng(key).permutation(50).tolist()


def test_too_few_prompts_for_the_searchers_are_refused():
    with pytest.raises(ConfigError, match="3 training prompts are too few for 4 searchers"):
        PromptStream(3, 0, 0, 4)
