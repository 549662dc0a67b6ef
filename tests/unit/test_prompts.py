from itertools import chain

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tba_hpc.prompts import PromptOrder
from tba_hpc.settings import ConfigError


def shares_of(order: PromptOrder, n: int, taken: list[int] | None = None):
    return [order.share(i, n, t) for i, t in enumerate(taken or [0] * n)]


@given(st.integers(1, 60), st.integers(0, 2**32), st.data())
def test_every_epoch_each_prompt_comes_up_once_on_exactly_one_searcher(size, seed, data):
    n = data.draw(st.integers(1, size))
    streams = shares_of(PromptOrder.of(size, seed), n)
    for _ in range(3):
        sizes = [len(range(i, size, n)) for i in range(n)]
        taken = [stream.take(k) for stream, k in zip(streams, sizes, strict=True)]
        assert sorted(chain(*taken)) == list(range(size))


@given(st.lists(st.integers(0, 30), max_size=10))
def test_how_prompts_are_asked_for_makes_no_difference(sizes):
    one, other = (PromptOrder.of(17, 5).share(1, 2) for _ in range(2))
    assert list(chain(*(one.take(n) for n in sizes))) == other.take(sum(sizes))
    assert one.taken == sum(sizes)


@given(st.integers(2, 20), st.integers(0, 70), st.integers(0, 70))
def test_a_share_goes_on_where_it_was(size, before, after):
    order = PromptOrder.of(size, 5)
    unbroken, resumed = order.share(1, 2), order.share(1, 2, taken=before)
    unbroken.take(before)
    assert unbroken.take(after) == resumed.take(after)
    assert unbroken.taken == resumed.taken


def test_the_order_depends_on_seed_and_epoch():
    first = PromptOrder.of(50, 0).share(0, 1)
    epochs = [first.take(50) for _ in range(2)]
    assert epochs[0] != epochs[1]
    assert epochs[0] != PromptOrder.of(50, 1).share(0, 1).take(50)
    assert epochs[0] == PromptOrder.of(50, 0).share(0, 1).take(50)


@given(st.integers(0, 2**40), st.integers(0, 3))
def test_no_other_part_of_the_run_draws_from_the_same_stream(seed, epoch):
    order = PromptOrder.of(50, seed).share(0, 1).take(50 * (epoch + 1))[50 * epoch :]
    for key in ((seed, epoch), (seed, epoch, 0), (epoch, seed), (seed, 0, epoch)):
        assert order != np.random.default_rng(key).permutation(50).tolist()


def test_too_few_prompts_for_the_searchers_are_refused():
    with pytest.raises(ConfigError, match="3 training prompts are too few for 4 searchers"):
        PromptOrder.of(3, 0).share(0, 4)


@given(st.integers(1, 12), st.lists(st.lists(st.integers(0, 40), min_size=1, max_size=4), min_size=1, max_size=4))
def test_however_often_the_work_is_divided_anew_nothing_is_skipped_or_repeated(size, divisions):
    """Each list is how far the searchers of an attempt got. What all have done together is whole epochs, and of each
    epoch begun a part without repetition."""
    order, done = PromptOrder.of(size, 7), []
    for taken in divisions:
        taken = taken[:size]
        done += chain(*(share.take(n) for share, n in zip(shares_of(order, len(taken)), taken, strict=True)))
        order = order.after(taken)
    # One searcher alone goes on to the end of the epoch that the furthest one had begun.
    done += order.share(0, 1).take(len(order.backlog))
    assert len(done) == order.epoch * size
    assert np.array_equal(np.bincount(done, minlength=size), [order.epoch] * size)


def test_what_is_left_keeps_its_order_and_comes_before_the_next_epoch():
    order = PromptOrder.of(10, 3)
    first_epoch, second_epoch, third_epoch = np.split(np.array(order.share(0, 1).take(30)), 3)
    after = order.after([3, 7])  # searcher 1 has done its half and is 2 prompts into the next epoch
    assert after.backlog.tolist() == [
        *first_epoch[[6, 8]],
        *np.delete(second_epoch, [1, 3]),
    ]
    assert after.division == 1
    assert after.share(0, 1, taken=len(after.backlog)).take(10) == third_epoch.tolist()


def test_work_not_begun_is_divided_anew_as_it_was():
    order = PromptOrder.of(10, 3)
    assert order.after([0, 0]).share(0, 1).take(20) == order.share(0, 1).take(20)
    left = order.after([2, 1])
    assert left.after([0, 0, 0]).backlog.tolist() == left.backlog.tolist()
