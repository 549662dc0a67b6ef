"""A model under training: AdamW over its float32 parameters, and all that the two are, to be saved and loaded."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

import torch
from safetensors import SafetensorError
from torch import Tensor
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from tba_hpc.optim.parameters import TrainedParameters

_WEIGHTS = "weights"  # what the float32 parameters are called in the state, beside the optimizer's own terms


class TrainedModel:
    """Changes the model it is given."""

    def __init__(
        self, model: PreTrainedModel, weight_decay: float, adam_betas: tuple[float, float] = (0.9, 0.999)
    ) -> None:
        self._model = model
        self.parameters = TrainedParameters(model)
        self._optimizer = torch.optim.AdamW(
            self.parameters.named().values(),
            lr=0.0,  # set at each step
            betas=adam_betas,
            weight_decay=weight_decay,
        )

    def update(self, learning_rate: float) -> None:
        """One step of AdamW along the gradients as they are."""
        for group in self._optimizer.param_groups:
            group["lr"] = learning_rate
        self._optimizer.step()
        self.parameters.copy_to_model()

    def state(self) -> dict[str, Tensor]:
        """Weights and optimizer state by name. Refers to the live tensors."""
        tensors = {}
        for name, parameter in self.parameters.named().items():
            tensors[f"{_WEIGHTS}/{name}"] = parameter.detach()
            for key, value in self._optimizer.state.get(parameter, {}).items():
                tensors[f"{key}/{name}"] = value
        return tensors

    def load_state(self, state: Mapping[str, Tensor]) -> None:
        """Goes back to a `state`. Raises `ValueError` for that of another model."""
        own = self.parameters.named()
        saved = {name: tensor for key, name, tensor in _split_keys(state) if key == _WEIGHTS}
        if {name: p.shape for name, p in own.items()} != {name: p.shape for name, p in saved.items()}:
            raise ValueError("the saved training state is of a model with other parameters than this one")
        with torch.no_grad():
            for name, parameter in own.items():
                parameter.copy_(saved[name])
        self._load_optimizer(state, {name: number for number, name in enumerate(own)})
        self.parameters.copy_to_model()

    def _load_optimizer(self, state: Mapping[str, Tensor], numbers: Mapping[str, int]) -> None:
        """`numbers`: the optimizer's own names of the parameters. Copies: what was read from a file may be a view of
        it."""
        moments: dict[int, dict[str, Tensor]] = {}
        for key, name, tensor in _split_keys(state):
            if key != _WEIGHTS:
                moments.setdefault(numbers[name], {})[key] = tensor.clone()
        self._optimizer.load_state_dict({**self._optimizer.state_dict(), "state": moments})

    def save_pretrained(
        self, path: Path, tokenizer: PreTrainedTokenizerBase, state: Mapping[str, Tensor] | None = None
    ) -> None:
        """Writes model and tokenizer in Hugging Face format into the folder `path`: the model of `state`, by default as
        it is now. With a copy of the state it may run beside training. Raises `OSError`."""
        try:
            self._model.save_pretrained(path, state_dict=None if state is None else self._model_state(state))
        except SafetensorError as error:
            raise OSError(f"the policy cannot be written to {path}: {error}") from error
        tokenizer.save_pretrained(path)

    def _model_state(self, state: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """The model's `state_dict` with the parameters of `state`. Tied ones share a tensor, as in the model."""
        saved = {
            id(parameter): state[f"{_WEIGHTS}/{name}"].to(parameter.dtype)
            for name, parameter in self._model.named_parameters()
            if f"{_WEIGHTS}/{name}" in state
        }
        live = self._model.state_dict(keep_vars=True)
        return {name: saved.get(id(tensor), tensor.detach()) for name, tensor in live.items()}


def _split_keys(state: Mapping[str, Tensor]) -> Iterator[tuple[str, str, Tensor]]:
    """What a tensor of `TrainedModel.state` is, the parameter it belongs to, and itself."""
    for full_name, tensor in state.items():
        key, _, name = full_name.partition("/")
        yield key, name, tensor
