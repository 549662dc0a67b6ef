"""The only wiring: config → objects → this rank's loop."""

from __future__ import annotations

import json
import logging
import time
from pathlib import Path
from typing import Any

import torch
from mpi4py import MPI
from torch.distributed import ProcessGroup
from transformers import PreTrainedModel, PreTrainedTokenizerBase
from transformers.utils.logging import disable_progress_bar

from tba_hpc.config import RunConfig, load_run_config, to_yaml
from tba_hpc.distributed.abort import abort_on_error
from tba_hpc.distributed.manifest import Manifest
from tba_hpc.distributed.process_groups import make_group, open_store
from tba_hpc.distributed.searcher_exchange import SearcherExchange
from tba_hpc.distributed.trainer_exchange import TrainerExchange
from tba_hpc.distributed.trainer_group import TrainerGroup
from tba_hpc.distributed.weight_channel import FlatWeights, StagedWeights
from tba_hpc.distributed.world import LEADER, World, broadcast_text, build_world, finish_together
from tba_hpc.evaluator import EvaluationResult, evaluate
from tba_hpc.intake import Intake, SynchronousIntake
from tba_hpc.metrics import MetricsWriter
from tba_hpc.models import load_policy, load_tokenizer
from tba_hpc.monitor import COLUMNS, Monitor
from tba_hpc.objectives import OBJECTIVES
from tba_hpc.optim.torch_engine import TorchEngine
from tba_hpc.preflight import check_inputs
from tba_hpc.progress import ProgressDisplay, make_console, show_error
from tba_hpc.replay.buffer import ReplayBuffer
from tba_hpc.report import RunReport
from tba_hpc.rollout.hf import HFEngine
from tba_hpc.run_dir import RunDir
from tba_hpc.searcher import ReferencePolicy, Searcher
from tba_hpc.settings import ConfigError
from tba_hpc.tasks import Task, make_task
from tba_hpc.trainer import Trainer, follow
from tba_hpc.trajectory import Trajectory

logger = logging.getLogger(__name__)
_START_UP_SECONDS = 600.0  # until the configuration, which has a bound of its own, is known


def run_rank(comm: MPI.Intracomm, config_path: Path, overrides: list[str], overwrite: bool) -> int:
    """What each rank of `tba-hpc train` does; returns the exit code. Errors end the whole job."""
    config = _agree_on_config(comm, config_path, overrides, overwrite)
    if config is None:
        return 2
    world = build_world(comm, config)
    with abort_on_error(comm, world.name):
        RunDir(config.run_dir).log_to_file(comm.rank, world.name)
        disable_progress_bar()  # type: ignore[no-untyped-call]  # one for each model and rank would bury the run's own display
        logger.info("%s of %d ranks on %s, %d threads", world.name, comm.size, world.device, torch.get_num_threads())
        if world.role == "searcher":
            _search(config, world)
        elif world.is_leader:
            _lead(config, world)
        else:
            _follow(config, world)
        finish_together(world, config.distributed.timeout_seconds if world.is_leader else config.patience_seconds)
        logger.info("done")
    return 0


def _agree_on_config(comm: MPI.Intracomm, path: Path, overrides: list[str], overwrite: bool) -> RunConfig | None:
    """The configuration as rank 0 reads it. None, on all ranks, if it cannot be run; rank 0 then says why."""
    text = ""
    if comm.rank == LEADER:
        try:
            config = load_run_config(path, overrides)
            config.check_world(comm.size)
            check_inputs(config, make_task(config.task), comm.size - config.distributed.trainers)
            models = (config.model.path, config.model.reference_path)
            RunDir(config.run_dir).prepare(to_yaml(config), overwrite, models)
            text = config.model_dump_json()
        except ConfigError as error:
            show_error(error)
    text = broadcast_text(comm, text, _START_UP_SECONDS)
    return RunConfig.model_validate_json(text) if text else None


def _search(config: RunConfig, world: World) -> None:
    task = make_task(config.task)
    tokenizer = load_tokenizer(config.model.path)
    policy = load_policy(config.model.path, config.model, world.device)
    engine = HFEngine(policy, _eos(tokenizer), version=-1)
    reference = ReferencePolicy(
        load_policy(config.model.reference_path, config.model, world.device),
        _pad(tokenizer),
        config.rollout.temperature,
        config.model.logprob_chunk_tokens,
        config.trainer.micro_batch_tokens,
    )
    assert world.exchange is not None
    manifest = Manifest.from_json(broadcast_text(world.exchange, None, config.distributed.timeout_seconds))
    manifest.check(Manifest.of(policy.named_parameters()), world.name)
    group = _weight_group(config, world)
    staged = StagedWeights(FlatWeights(manifest, world.device, config.distributed.bucket_bytes))
    exchange = SearcherExchange(world, staged, manifest.fingerprint, group, config.distributed)
    Searcher(config, world.index, world.n_searchers, task, tokenizer, engine, reference, exchange).run()


def _weight_group(config: RunConfig, world: World) -> ProcessGroup:
    """The group of trainer 0 and the searchers on which weights travel. Collective over the exchange.

    Its own bound is the longer one: it does not know whom it waits for, as the exchange does."""
    assert world.exchange is not None
    seconds = config.distributed.timeout_seconds
    store = open_store(world.exchange, world.host, seconds)
    return make_group(store, "weights", world.exchange, world.host, world.device, 2 * seconds)


def _follow(config: RunConfig, world: World) -> None:
    group = TrainerGroup(world, config.distributed.timeout_seconds, config.patience_seconds)
    tokenizer = load_tokenizer(config.model.path)
    policy = load_policy(config.model.path, config.model, world.device)
    follow(config, _optim_engine(config, world, group, policy, tokenizer), group)


def _optim_engine(
    config: RunConfig,
    world: World,
    group: TrainerGroup,
    policy: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
) -> TorchEngine:
    return TorchEngine(
        policy,
        _pad(tokenizer),
        OBJECTIVES[config.objective.name](),
        config.trainer,
        config.model,
        config.rollout.temperature,
        world.device,
        group.all_reduce,
    )


def _lead(config: RunConfig, world: World) -> None:
    started = time.monotonic()
    assert world.exchange is not None
    group = TrainerGroup(world, config.distributed.timeout_seconds, config.patience_seconds)
    task, tokenizer = make_task(config.task), load_tokenizer(config.model.path)
    policy = load_policy(config.model.path, config.model, world.device)
    engine = _optim_engine(config, world, group, policy, tokenizer)
    manifest = Manifest.of(engine.named_parameters())
    broadcast_text(world.exchange, manifest.to_json(), config.distributed.timeout_seconds)
    weight_group = _weight_group(config, world)
    flat = FlatWeights(manifest, world.device, config.distributed.bucket_bytes)
    exchange = TrainerExchange(world, flat, weight_group, config.distributed)

    run_dir = RunDir(config.run_dir)
    buffer = ReplayBuffer(config.buffer, run_dir.segments, config.seed)
    intake = (
        SynchronousIntake(config, exchange, buffer, world.n_searchers)
        if config.synchronous
        else Intake(config, exchange, buffer)
    )
    console = make_console()
    writer = MetricsWriter(run_dir)
    display = ProgressDisplay(console, "step", config.trainer.steps, COLUMNS)
    monitor = Monitor(
        config.logging, config.rollout, writer, display, buffer, intake, lambda t: _render(t, task, tokenizer)
    )
    trainer = Trainer(config, engine, group, buffer, intake, exchange, monitor)

    trainer.begin()
    before = _evaluate(config, policy, task, tokenizer)
    with display:
        train_started = time.monotonic()
        trainer.run()
        train_seconds = time.monotonic() - train_started
    engine.save_pretrained(run_dir.final, tokenizer)
    after = _evaluate(config, policy, task, tokenizer)
    stats = buffer.stats()
    buffer.close()
    writer.close()
    report = RunReport.of(
        config, world, before, after, intake.received, stats, train_seconds, time.monotonic() - started
    )
    run_dir.write_report(json.dumps(report.to_json(), indent=2))
    report.show(console, config.run_dir)


def _evaluate(
    config: RunConfig, policy: PreTrainedModel, task: Task[Any], tokenizer: PreTrainedTokenizerBase
) -> EvaluationResult | None:
    """Greedy accuracy of the trainer's policy on held-out problems; None if the configuration asks for none."""
    settings, rollout = config.evaluation, config.rollout
    if settings.problems == 0:
        return None
    training = policy.training
    result = evaluate(
        HFEngine(policy, _eos(tokenizer)),
        task,
        tokenizer,
        settings.split,
        settings.problems,
        settings.batch_size,
        rollout.max_prompt_tokens,
        rollout.max_response_tokens,
    )
    policy.train(training)
    return result


def _render(trajectory: Trajectory, task: Task[Any], tokenizer: PreTrainedTokenizerBase) -> str:
    prompt = task.prompt("train", trajectory.prompt_id)
    response = tokenizer.decode(trajectory.response_tokens.tolist())
    facts = f"reward {trajectory.reward:.3g}, policy version {trajectory.policy_version}, answer {prompt.answer}"
    return f"```\n{prompt.text}{response}\n```\n{facts}"


def _eos(tokenizer: PreTrainedTokenizerBase) -> int:
    assert isinstance(tokenizer.eos_token_id, int), "load_tokenizer refuses tokenizers without one"
    return tokenizer.eos_token_id


def _pad(tokenizer: PreTrainedTokenizerBase) -> int:
    assert isinstance(tokenizer.pad_token_id, int), "load_tokenizer falls back to the end-of-sequence token"
    return tokenizer.pad_token_id
