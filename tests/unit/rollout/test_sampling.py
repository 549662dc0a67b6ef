import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from tba_hpc.rollout.sampling import restrict_to_nucleus, sample

LOGITS = torch.tensor([2.0, 1.0, 0.0, -1.0, -torch.inf])


def draw(temperature, top_p, n=20_000):
    return sample(LOGITS.expand(n, -1), temperature, top_p, torch.Generator().manual_seed(0))


@pytest.mark.parametrize("temperature", [0.5, 1.0, 2.0])
def test_frequencies_and_logprobs_are_those_of_the_tempered_softmax(temperature):
    tokens, logprobs = draw(temperature, top_p=1.0)
    expected = (LOGITS / temperature).softmax(-1)
    frequencies = torch.bincount(tokens, minlength=len(LOGITS)) / len(tokens)
    torch.testing.assert_close(frequencies, expected, atol=0.015, rtol=0)
    torch.testing.assert_close(logprobs.exp(), expected[tokens])


def test_top_p_samples_only_the_nucleus_and_renormalises():
    tokens, logprobs = draw(temperature=1.0, top_p=0.8)  # probabilities .64 .24 .09 .03 0
    expected = LOGITS[:2].softmax(-1)
    assert set(tokens.tolist()) == {0, 1}
    torch.testing.assert_close(logprobs.exp(), expected[tokens])


def test_temperature_zero_is_greedy_with_logprobs_at_temperature_one():
    tokens, logprobs = draw(temperature=0.0, top_p=0.5, n=3)
    assert tokens.tolist() == [0, 0, 0]
    torch.testing.assert_close(logprobs, LOGITS.log_softmax(-1)[tokens])


def test_half_precision_logits_give_float32_logprobs():
    logits = LOGITS[:4].to(torch.bfloat16).expand(2, -1)
    _, logprobs = sample(logits, 0.7, 1.0, torch.Generator().manual_seed(0))
    assert logprobs.dtype == torch.float32


def nucleus_by_hand(probabilities, top_p):
    """Most likely first, until the mass reaches top_p."""
    kept, mass = [], 0.0
    for i in sorted(range(len(probabilities)), key=lambda i: -probabilities[i]):
        if mass >= top_p:
            break
        kept.append(i)
        mass += probabilities[i]
    return {i: probabilities[i] / mass for i in kept}


@given(arrays(np.float32, st.integers(1, 12), elements=st.floats(-8, 8, width=32), unique=True), st.floats(1e-6, 1.0))
def test_nucleus_matches_the_obvious_loop(logits, top_p):
    logprobs = torch.from_numpy(logits)[None].log_softmax(-1)
    expected = nucleus_by_hand(logprobs[0].exp().tolist(), top_p)
    restricted = restrict_to_nucleus(logprobs, top_p)[0].exp()
    kept = {i: p for i, p in enumerate(restricted.tolist()) if p > 0}
    # One token more or less where the mass meets top_p within rounding.
    if set(kept) == set(expected):
        assert kept == pytest.approx(expected, rel=1e-4)
    else:
        (edge,) = set(kept) ^ set(expected)
        before = sum(p for p in logprobs[0].exp().tolist() if p > logprobs[0, edge].exp().item())
        assert before == pytest.approx(top_p, abs=1e-5)
