"""What ranks of several roles are made of."""

from __future__ import annotations

import torch
from torch.distributed import ProcessGroup
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from tba_hpc.config import RunConfig
from tba_hpc.distributed.process_groups import make_group, open_store
from tba_hpc.distributed.trainer_group import TrainerGroup
from tba_hpc.distributed.world import World
from tba_hpc.models import load_policy
from tba_hpc.objectives import OBJECTIVES
from tba_hpc.optim.torch_engine import TorchEngine
from tba_hpc.reference import ReferencePolicy
from tba_hpc.resume import Start


def weight_group(config: RunConfig, world: World) -> ProcessGroup:
    """The group of trainer 0 and the searchers on which weights travel. Collective over the exchange.

    Its own bound is the longer one: it does not know whom it waits for, as the exchange does."""
    assert world.exchange is not None
    seconds = config.distributed.timeout_seconds
    store = open_store(world.exchange, world.host, seconds)
    return make_group(store, "weights", world.exchange, world.host, world.device, 2 * seconds)


def optim_engine(
    start: Start,
    world: World,
    group: TrainerGroup,
    policy: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
) -> TorchEngine:
    """A trainer's engine, in the state of the checkpoint if the run goes on from one."""
    config = start.config
    engine = TorchEngine(
        policy,
        pad_id(tokenizer),
        OBJECTIVES[config.objective.name](config.objective),
        config.trainer,
        config.model,
        config.rollout.temperature,
        world.device,
        group.all_reduce,
    )
    if checkpoint := start.open():
        engine.load_state(checkpoint.tensors())
    return engine


def reference_policy(start: Start, tokenizer: PreTrainedTokenizerBase, device: torch.device) -> ReferencePolicy:
    """π_ref as this attempt of the run begins."""
    config, checkpoint = start.config, start.open()
    version = checkpoint.state().reference_version if checkpoint else 0
    path = str(checkpoint.reference) if checkpoint and version else config.model.reference_path
    return ReferencePolicy(
        load_policy(path, config.model, device),
        pad_id(tokenizer),
        config.rollout.temperature,
        config.model.logprob_chunk_tokens,
        config.trainer.micro_batch_tokens,
        version,
    )


def moving_reference(start: Start, tokenizer: PreTrainedTokenizerBase, device: torch.device) -> ReferencePolicy | None:
    """A trainer's copy of π_ref, if trajectories that other versions have scored may reach it."""
    checkpoint = start.open()
    moved = checkpoint is not None and checkpoint.state().reference_version > 0
    if start.config.reference.reset_every is None and not moved:
        return None
    return reference_policy(start, tokenizer, device)


def pad_id(tokenizer: PreTrainedTokenizerBase) -> int:
    assert isinstance(tokenizer.pad_token_id, int), "load_tokenizer falls back to the end-of-sequence token"
    return tokenizer.pad_token_id
