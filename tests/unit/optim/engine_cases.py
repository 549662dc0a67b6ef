"""Tiny policies, batches with everything awkward in them, and trainers simulated by threads."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import torch
from torch import Tensor
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedModel

from tba_hpc.config import ModelConfig, TBVarGradConfig, TrainerConfig
from tba_hpc.objectives import Objective
from tba_hpc.objectives.tb_vargrad import TBVarGrad
from tba_hpc.optim.torch_engine import TorchEngine
from tba_hpc.schedules import Constant
from tba_hpc.trajectory import SampledBatch, Trajectory, TrajectoryBatch

VOCAB, EOS, CPU = 23, 2, torch.device("cpu")
TEMPERATURE = 0.7
TB = TBVarGrad(TBVarGradConfig(beta=Constant(value=0.5)))


def make_model(tied: bool = False, dtype: torch.dtype = torch.float32) -> PreTrainedModel:
    torch.manual_seed(0)
    model = LlamaForCausalLM(
        LlamaConfig(
            vocab_size=VOCAB,
            hidden_size=16,
            intermediate_size=24,
            num_hidden_layers=2,
            num_attention_heads=2,
            initializer_range=0.3,
            tie_word_embeddings=tied,
            pad_token_id=EOS,
            eos_token_id=EOS,
            bos_token_id=1,
        )
    )
    model.to(dtype)
    return model.eval()


def make_trajectory(prompt: int, response: int, reward: float, seed: int) -> Trajectory:
    rng = np.random.default_rng(seed)
    return Trajectory(
        prompt_id=seed,
        prompt_tokens=rng.integers(0, VOCAB, prompt).astype(np.int32),
        response_tokens=rng.integers(0, VOCAB, response).astype(np.int32),
        behavior_logprobs=-rng.exponential(1.0, response).astype(np.float32),
        reference_logprobs=-rng.exponential(3.0, response).astype(np.float32),
        reward=reward,
        correct=False,
        finished=bool(seed % 2),
        temperature=TEMPERATURE,
        policy_version=0,
        reference_version=0,
        searcher=0,
    )


def make_batch() -> SampledBatch:
    """Groups of 4, 2, 4 and 3: with an empty response, of equal rewards, long, and short."""
    rows = [
        *((0, 5, response, reward) for response, reward in [(6, 1.0), (0, 0.0), (3, 0.0), (1, 1.0)]),
        *((1, 2, response, 0.5) for response in (4, 4)),
        *((2, 9, response, reward) for response, reward in [(20, 1.0), (17, 0.0), (20, 0.2), (2, -1.0)]),
        *((3, 1, response, reward) for response, reward in [(2, 0.0), (1, 0.0), (3, 1.0)]),
    ]
    trajectories = [make_trajectory(p, r, reward, seed) for seed, (_, p, r, reward) in enumerate(rows)]
    return SampledBatch(
        TrajectoryBatch.from_trajectories(trajectories),
        np.array([group for group, *_ in rows], np.int32),
        np.zeros(len(rows), bool),
    )


def make_engine(
    model: PreTrainedModel,
    micro_batch_tokens: int = 10_000,
    max_grad_norm: float = 1e9,
    gradient_checkpointing: bool = False,
    objective: Objective = TB,
    **kwargs: Any,
) -> TorchEngine:
    trainer = TrainerConfig(
        steps=1,
        batch_size=13,
        samples_per_query=2,
        sync_every=1,
        learning_rate=Constant(value=1e-3),
        max_grad_norm=max_grad_norm,
        micro_batch_tokens=micro_batch_tokens,
    )
    config = ModelConfig(path="unused", gradient_checkpointing=gradient_checkpointing, logprob_chunk_tokens=7)
    return TorchEngine(model, EOS, objective, trainer, config, TEMPERATURE, CPU, **kwargs)


class SummingThreads:
    """An all-reduce among `n` threads."""

    def __init__(self, n: int) -> None:
        self._barrier = threading.Barrier(n, timeout=60)
        self._parts: list[Tensor] = []
        self._lock = threading.Lock()

    def all_reduce(self, tensor: Tensor) -> None:
        with self._lock:
            self._parts.append(tensor.clone())
        self._barrier.wait()
        total = torch.stack(self._parts).sum(0)
        if self._barrier.wait() == 0:
            self._parts.clear()
        self._barrier.wait()
        tensor.copy_(total)


def as_trainers(n: int, role: Callable[[int, Callable[[Tensor], None]], Any]) -> list[Any]:
    """What `role(index, all_reduce)` returns for each of `n` trainers that run at the same time."""
    group = SummingThreads(n)
    with ThreadPoolExecutor(n) as pool:
        return [f.result() for f in [pool.submit(role, i, group.all_reduce) for i in range(n)]]
