import numpy as np
import pytest
import torch

from tba_hpc.config import ModelConfig
from tba_hpc.models import load_policy
from tba_hpc.reference import ReferencePolicy
from tba_hpc.trajectory import SampledBatch, Trajectory, TrajectoryBatch

CPU = torch.device("cpu")


def trajectory(serial, length, version):
    tokens = np.array([3 + serial % 10] * length, np.int32)
    logprobs = np.full(length, -serial, np.float32)
    return Trajectory(
        serial, np.array([1, 4], np.int32), tokens, logprobs, logprobs, 0.5, True, True, 1.0, 2, version, 0
    )


def batch_of(*versions):
    """Responses of different lengths, one of them empty; log π_ref is what nobody could have computed."""
    rows = [trajectory(serial, serial % 4, version) for serial, version in enumerate(versions)]
    batch = TrajectoryBatch.from_trajectories(rows)
    batch.reference_logprobs[:] = 99.0
    return batch


def sampled(batch):
    return SampledBatch(batch, np.arange(len(batch), dtype=np.int32), np.zeros(len(batch), bool))


@pytest.fixture
def model(tiny_model):
    return load_policy(str(tiny_model), ModelConfig(path=str(tiny_model)), CPU)


@pytest.fixture
def reference(model):
    return ReferencePolicy(model, 0, 1.0, 1024, 16)


def test_only_what_another_version_has_scored_is_scored_anew(reference):
    reference.version = 4
    stale, fresh = [0, 4, 2, 4, 0, 0, 4], [4] * 7
    expected = reference.score(batch_of(*fresh)).reference_logprobs
    result = reference.current(sampled(batch_of(*stale))).trajectories
    assert result.rows["reference_version"].tolist() == fresh
    is_stale = np.repeat(np.array(stale) != 4, result.rows["response_length"])
    np.testing.assert_allclose(result.reference_logprobs[is_stale], expected[is_stale], atol=1e-6)
    assert set(result.reference_logprobs[~is_stale]) == {99.0}


def test_a_batch_that_is_current_is_left_alone(reference):
    batch = sampled(batch_of(0, 0, 0))
    assert reference.current(batch) is batch
    nothing = sampled(TrajectoryBatch.empty())
    assert reference.current(nothing) is nothing


def test_the_batch_that_was_drawn_is_not_changed(reference):
    batch = batch_of(0, 0, 0)
    reference.version = 1
    reference.current(sampled(batch))
    assert set(batch.rows["reference_version"]) == {0}
    assert set(batch.reference_logprobs) == {99.0}


def test_a_reset_takes_the_weights_as_they_are_now(reference, model, tiny_reference):
    other = load_policy(str(tiny_reference), ModelConfig(path=str(tiny_reference)), CPU)
    batch = batch_of(0, 0, 0, 0)
    before = reference.score(batch).reference_logprobs
    reference.reset(((name, p.detach()) for name, p in other.named_parameters()), 6)
    after = reference.score(batch)
    assert not np.allclose(before, after.reference_logprobs)
    expected = ReferencePolicy(other, 0, 1.0, 1024, 16).score(batch).reference_logprobs
    assert after.reference_logprobs.tolist() == expected.tolist()
    assert set(after.rows["reference_version"]) == {6}
    with torch.no_grad():
        next(other.parameters()).add_(1)  # training goes on
    assert reference.score(batch).reference_logprobs.tolist() == expected.tolist()


def test_weights_of_another_model_are_refused(reference, model):
    with pytest.raises(ValueError, match="weights of the model did not come"):
        reference.reset([], 2)


def test_what_is_copied_for_a_checkpoint_does_not_change_with_the_next_reset(reference, model, tmp_path):
    weights = reference.copied_state()
    batch = batch_of(0, 0, 0, 0)
    before = reference.score(batch).reference_logprobs
    reference.reset([(name, torch.zeros_like(p)) for name, p in model.named_parameters()], 2)
    reference.save_pretrained(tmp_path / "saved", weights)
    saved = load_policy(str(tmp_path / "saved"), ModelConfig(path="saved"), CPU)
    assert ReferencePolicy(saved, 0, 1.0, 1024, 16).score(batch).reference_logprobs.tolist() == before.tolist()
