"""The wiring of trainer 0, which owns the replay buffer, the exchange, and whatever the run writes."""

from __future__ import annotations

import json
import logging
import os
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import numpy as np
from rich.console import Console
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from tba_hpc.accuracy import Accuracy
from tba_hpc.checkpoint import CheckpointState
from tba_hpc.checkpointer import Checkpointer
from tba_hpc.config import RunConfig
from tba_hpc.departure import Departure
from tba_hpc.distributed.manifest import Manifest
from tba_hpc.distributed.trainer_exchange import TrainerExchange
from tba_hpc.distributed.trainer_group import TrainerGroup
from tba_hpc.distributed.weight_channel import FlatWeights
from tba_hpc.distributed.world import World, broadcast_text
from tba_hpc.evaluator import EvaluationStoppedError, evaluate
from tba_hpc.intake import Arrived, Intake, LockstepIntake
from tba_hpc.interruption import SAVED_EXIT_CODE, Interruption, job_deadline
from tba_hpc.metrics import MetricsWriter
from tba_hpc.models import load_policy, load_tokenizer
from tba_hpc.monitor import COLUMNS, Monitor
from tba_hpc.optim.engine import OptimEngine
from tba_hpc.progress import ProgressDisplay, make_console
from tba_hpc.record import RunRecord
from tba_hpc.reference import ReferencePolicy
from tba_hpc.replay.buffer import ReplayBuffer
from tba_hpc.report import RunReport
from tba_hpc.resume import Start
from tba_hpc.rollout.ending import ResponseEnd
from tba_hpc.rollout.hf import HFEngine
from tba_hpc.run_dir import RunDir
from tba_hpc.run_snapshot import RunSnapshots
from tba_hpc.tasks import Task, make_task
from tba_hpc.trainer import Trainer
from tba_hpc.trajectory import Trajectory
from tba_hpc.wiring import moving_reference, optim_engine, weight_group

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class _Parts:
    """What trainer 0 consists of."""

    config: RunConfig
    world: World
    run_dir: RunDir
    task: Task[Any]
    tokenizer: PreTrainedTokenizerBase
    policy: PreTrainedModel
    group: TrainerGroup
    engine: OptimEngine
    reference: ReferencePolicy | None
    """π_ref, if it moves."""
    buffer: ReplayBuffer
    exchange: TrainerExchange
    intake: Intake
    state: CheckpointState
    """Where the run stands as this attempt begins."""
    record: RunRecord
    attempt: int


def run_leader(start: Start, world: World, interruption: Interruption) -> int:
    """Trainer 0 from start to end. Returns the exit code."""
    console = make_console()
    if start.checkpoint:
        console.print(f"going on from {start.checkpoint}", soft_wrap=True, highlight=False, markup=False)
        logger.info("going on from %s", start.checkpoint)
    parts = _make_parts(start, world)
    launch = parts.config.launch
    deadline = job_deadline(interruption, launch.walltime_seconds, launch.save_before_end, os.environ)
    departure = Departure(interruption, parts.exchange, parts.group, deadline)
    parts.exchange.start()
    parts.exchange.publish(parts.state.step, parts.engine.named_parameters())  # with which the searchers begin
    steps, reason = _train(parts, departure, console)
    if reason is None:
        reason = _finish(parts, departure, console)
    parts.buffer.close()
    if reason:
        console.print(f"saved after step {steps} ({reason}); --resume auto goes on", soft_wrap=True, markup=False)
    return SAVED_EXIT_CODE if reason else 0


def _make_parts(start: Start, world: World) -> _Parts:
    """Collective over all ranks, as their wiring is."""
    config, run_dir = start.config, RunDir(start.config.run_dir)
    group = TrainerGroup(world, config.distributed.timeout_seconds, config.patience_seconds)
    task, tokenizer = make_task(config.task), load_tokenizer(config.model.path)
    policy = load_policy(config.model.path, config.model, world.device)
    engine = optim_engine(start, world, group, policy, tokenizer)
    reference = moving_reference(start, tokenizer, world.device)
    buffer = ReplayBuffer(config.buffer, run_dir.segments_of(start.attempt), config.seed)
    checkpoint = start.open()
    if checkpoint:
        buffer.restore(checkpoint.replay)
    exchange = _exchange(config, world, engine, syncs=buffer.latest_arrival or 0)
    state = start.state(task.size("train"), world.n_searchers)
    arrived = Arrived(np.array(state.prompts.taken), state.received, state.duplicates)
    if config.in_lockstep:
        intake: Intake = LockstepIntake(config, exchange, buffer, arrived, state.reference_version, state.step)
    else:
        intake = Intake(config, exchange, buffer, arrived, state.reference_version)
    return _Parts(
        config=config,
        world=world,
        run_dir=run_dir,
        task=task,
        tokenizer=tokenizer,
        policy=policy,
        group=group,
        engine=engine,
        reference=reference,
        buffer=buffer,
        exchange=exchange,
        intake=intake,
        state=state,
        record=RunRecord(state, arrived, reference),
        attempt=start.attempt,
    )


def _exchange(config: RunConfig, world: World, engine: OptimEngine, syncs: int) -> TrainerExchange:
    assert world.exchange is not None
    manifest = Manifest.of(engine.named_parameters())
    broadcast_text(world.exchange, manifest.to_json(), config.distributed.timeout_seconds)
    group = weight_group(config, world)
    flat = FlatWeights(manifest, world.device, config.distributed.bucket_bytes)
    return TrainerExchange(world, flat, group, config.distributed, syncs)


def _train(parts: _Parts, departure: Departure, console: Console) -> tuple[int, str | None]:
    """Evaluates the policy before its first step, and trains. Returns the optimizer steps of the run so far, and why it
    has to leave, if it has to."""
    config, steps_done = parts.config, parts.state.step
    if steps_done == 0 and parts.state.accuracy_before is None:
        with suppress(EvaluationStoppedError):  # training will see the reason, too
            parts.record.accuracy_before = _evaluate(parts, departure)
    writer = MetricsWriter(parts.run_dir, steps_done)
    display = ProgressDisplay(console, "step", config.trainer.steps, COLUMNS, steps_done)
    monitor = Monitor(
        config.logging, config.rollout, writer, display, parts.buffer, parts.intake, lambda t: _render(t, parts)
    )
    snapshots = RunSnapshots(config, parts.engine, parts.tokenizer, parts.buffer, parts.record.state, parts.reference)
    checkpointer = Checkpointer(
        config.checkpoint,
        parts.run_dir.checkpoints,
        snapshots.take,
        steps_done,
        parts.state.save_seconds,
        is_superseded=lambda: parts.run_dir.latest_attempt > parts.attempt,
    )
    trainer = Trainer(
        config,
        parts.engine,
        parts.group,
        parts.buffer,
        parts.intake,
        parts.exchange,
        monitor,
        checkpointer,
        departure,
        parts.reference,
        steps_done,
    )
    parts.record.begin_training()
    with display:
        trainer.run()
    writer.close()
    return trainer.steps_done, trainer.reason_to_leave


def _finish(parts: _Parts, departure: Departure, console: Console) -> str | None:
    """Saves the trained policy and reports on it. Returns why the run has to leave before that, if it has to."""
    config, run_dir = parts.config, parts.run_dir
    trained = parts.record.state(config.trainer.steps)
    parts.engine.save_pretrained(run_dir.final, parts.tokenizer)
    try:
        after = _evaluate(parts, departure)
    except EvaluationStoppedError:
        return departure.reason(save_seconds=0)
    total_seconds = parts.record.state(config.trainer.steps).total_seconds
    report = RunReport.of(parts.world, trained, after, parts.buffer.stats(), total_seconds)
    run_dir.write_report(json.dumps(report.to_json(), indent=2))
    report.show(console, config.run_dir)
    return None


def _evaluate(parts: _Parts, departure: Departure) -> Accuracy | None:
    """Greedy accuracy of the trainer's policy on held-out problems; None if the configuration asks for none. Raises
    `EvaluationStoppedError` if the run has to leave meanwhile."""
    settings, rollout, policy = parts.config.evaluation, parts.config.rollout, parts.policy
    if settings.problems == 0:
        return None
    training = policy.training
    result = evaluate(
        HFEngine(policy, ResponseEnd.of(policy, parts.tokenizer, rollout.stop)),
        parts.task,
        parts.tokenizer,
        settings,
        rollout.max_prompt_tokens,
        rollout.max_response_tokens,
        should_stop=lambda: departure.reason(save_seconds=0) is not None,
    )
    policy.train(training)
    return result.accuracy


def _render(trajectory: Trajectory, parts: _Parts) -> str:
    prompt = parts.task.prompt("train", trajectory.prompt_id)
    response = parts.tokenizer.decode(trajectory.response_tokens.tolist())
    facts = f"reward {trajectory.reward:.3g}, policy version {trajectory.policy_version}, answer {prompt.answer}"
    return f"```\n{prompt.text}{response}\n```\n{facts}"
