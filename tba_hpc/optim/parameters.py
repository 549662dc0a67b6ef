"""The float32 parameters an optimizer works on, and their gradients in a few flat buffers.

Flat gradients are accumulated, reduced over the trainers, measured and clipped without a copy. A model in bfloat16
gets float32 master weights: a step of 1e-5 is far below bfloat16's resolution and would be rounded away.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn import Parameter
from transformers import PreTrainedModel

_BUCKET_ELEMENTS = 2**24


class TrainedParameters:
    """Parameters of the model that require gradients, tied ones once, as float32 leaves with flat gradients."""

    def __init__(self, model: PreTrainedModel) -> None:
        self._models = {name: p for name, p in model.named_parameters() if p.requires_grad}
        self._masters = {name: _master(p) for name, p in self._models.items()}
        self._gradients = _flat_gradients(list(self._masters.values()))
        for name, parameter in self._models.items():
            if parameter is not self._masters[name]:
                hook = _move_gradient_to(self._masters[name])
                parameter.register_post_accumulate_grad_hook(hook)  # type: ignore[no-untyped-call]

    def named(self) -> dict[str, Tensor]:
        """The float32 parameters by their name in the model."""
        return dict(self._masters)

    def zero_gradients(self) -> None:
        for flat in self._gradients:
            flat.zero_()

    def reduce_gradients(self, all_reduce: Callable[[Tensor], None]) -> None:
        """Sums the gradients over the trainers, in place."""
        for flat in self._gradients:
            all_reduce(flat)

    def gradient_norm(self) -> float:
        """Global 2-norm of the gradients."""
        return float(torch.stack([flat.norm() for flat in self._gradients]).norm())

    def scale_gradients(self, factor: float) -> None:
        for flat in self._gradients:
            flat.mul_(factor)

    @torch.no_grad()
    def copy_to_model(self) -> None:
        """Rounds the float32 parameters into the model's, where those are others."""
        for name, parameter in self._models.items():
            if parameter is not self._masters[name]:
                parameter.copy_(self._masters[name])


def _master(parameter: Parameter) -> Tensor:
    if parameter.dtype == torch.float32:
        return parameter
    return parameter.detach().to(torch.float32).requires_grad_()


def _flat_gradients(parameters: list[Tensor]) -> list[Tensor]:
    """Points each parameter's `.grad` into one of a few zeroed buffers of about `_BUCKET_ELEMENTS`, and returns those.
    Backward passes add to a gradient that is there in place, so it stays in its buffer."""
    buckets: list[list[Tensor]] = [[]]
    for parameter in parameters:
        if sum(p.numel() for p in buckets[-1]) >= _BUCKET_ELEMENTS:
            buckets.append([])
        buckets[-1].append(parameter)
    flats = []
    for bucket in buckets:
        flat = torch.zeros(sum(p.numel() for p in bucket), dtype=torch.float32, device=bucket[0].device)
        for parameter, part in zip(bucket, torch.split(flat, [p.numel() for p in bucket]), strict=True):
            parameter.grad = part.view(parameter.shape)
        flats.append(flat)
    return flats


def _move_gradient_to(master: Tensor) -> Callable[[Tensor], None]:
    """A hook that adds a parameter's gradient to the master's and drops it: sums over micro-batches are float32."""

    def hook(parameter: Tensor) -> None:
        assert parameter.grad is not None
        assert master.grad is not None
        master.grad.add_(parameter.grad)
        parameter.grad = None

    return hook
