"""Gradients stay in their flat buffers."""

from __future__ import annotations

import torch
from engine_cases import make_model
from torch import Tensor

from tba_hpc.optim.parameters import TrainedParameters


def test_flat_gradients_are_the_gradients_and_frozen_parameters_have_none() -> None:
    model = make_model()
    model.get_input_embeddings().requires_grad_(False)
    parameters = TrainedParameters(model)
    assert set(parameters.named()) == {n for n, p in model.named_parameters() if "embed" not in n}

    ids = torch.arange(8)[None]
    for _ in range(2):
        model(ids).logits.square().sum().backward()
    expected = torch.autograd.grad(2 * model(ids).logits.square().sum(), list(parameters.named().values()))
    reduced: list[Tensor] = []
    parameters.reduce_gradients(reduced.append)
    torch.testing.assert_close(torch.cat(reduced), torch.cat([g.flatten() for g in expected]), rtol=1e-4, atol=1e-4)
    assert abs(parameters.gradient_norm() - float(torch.cat(reduced).norm())) < 1e-3

    parameters.scale_gradients(0.5)
    first = next(iter(parameters.named().values()))
    torch.testing.assert_close(first.grad, expected[0] / 2, rtol=1e-4, atol=1e-4)
    parameters.zero_gradients()
    assert all((p.grad == 0).all() for p in parameters.named().values())
