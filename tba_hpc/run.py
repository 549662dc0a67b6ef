"""The wiring of a rank: config → objects → its loop."""

from __future__ import annotations

import logging
from pathlib import Path

import torch
from mpi4py import MPI
from transformers.utils.logging import disable_progress_bar

from tba_hpc.config import load_run_config
from tba_hpc.distributed.abort import abort_on_error
from tba_hpc.distributed.manifest import Manifest
from tba_hpc.distributed.searcher_exchange import SearcherExchange
from tba_hpc.distributed.trainer_group import TrainerGroup
from tba_hpc.distributed.weight_channel import FlatWeights, StagedWeights
from tba_hpc.distributed.world import LEADER, World, broadcast_text, build_world, finish_together
from tba_hpc.interruption import Interruption
from tba_hpc.models import load_policy, load_tokenizer
from tba_hpc.preflight import check_inputs
from tba_hpc.progress import make_console, show_error
from tba_hpc.resume import Start, prepare_start
from tba_hpc.rollout.emulation import PacedEngine
from tba_hpc.rollout.ending import ResponseEnd
from tba_hpc.rollout.engine import RolloutEngine
from tba_hpc.rollout.hf import HFEngine
from tba_hpc.run_dir import RunDir
from tba_hpc.run_leader import run_leader
from tba_hpc.run_lock import RunLock
from tba_hpc.searcher import Searcher
from tba_hpc.settings import ConfigError
from tba_hpc.tasks import make_task
from tba_hpc.trainer import follow
from tba_hpc.wiring import moving_reference, optim_engine, reference_policy, weight_group

logger = logging.getLogger(__name__)
_START_UP_SECONDS = 1800.0  # until the configuration, which has a bound of its own, is known and a checkpoint verified
_FINISHED = "finished"


def run_rank(
    comm: MPI.Intracomm,
    config_path: Path,
    overrides: list[str],
    overwrite: bool,
    resume: str | None,
    interruption: Interruption,
) -> int:
    """What each rank of `tba-hpc train` does; returns the exit code. Errors end the whole job."""
    start, _lock = _agree_on_start(comm, config_path, overrides, overwrite, resume)
    return start if isinstance(start, int) else _run(comm, start, interruption)


def _run(comm: MPI.Intracomm, start: Start, interruption: Interruption) -> int:
    config = start.config
    world = build_world(comm, config)
    with abort_on_error(comm, world.name):
        RunDir(config.run_dir).log_to_file(comm.rank, world.name, start.attempt)
        disable_progress_bar()  # type: ignore[no-untyped-call]  # one for each model and rank would bury the run's own display
        logger.info("%s of %d ranks on %s, %d threads", world.name, comm.size, world.device, torch.get_num_threads())
        code = 0
        if world.role == "searcher":
            _search(start, world, interruption)
        elif world.is_leader:
            code = run_leader(start, world, interruption)
        else:
            _follow(start, world, interruption)
        finish_together(world, config.distributed.timeout_seconds if world.is_leader else config.patience_seconds)
        logger.info("done")
    return code


def _agree_on_start(
    comm: MPI.Intracomm, path: Path, overrides: list[str], overwrite: bool, resume: str | None
) -> tuple[Start | int, RunLock | None]:
    """How the run begins, as rank 0 finds out. An exit code, on all ranks, if there is nothing to run; rank 0 then says
    why. On rank 0 with what keeps others from the run's folder."""
    text, lock = "", None
    if comm.rank == LEADER:
        try:
            config = load_run_config(path, overrides)
            config.check_world(comm.size)
            task = make_task(config.task)
            check_inputs(config, task, comm.size - config.distributed.trainers)
            lock = RunLock(config.run_dir)
            if RunDir(config.run_dir).config.exists():
                lock.acquire()
            start = prepare_start(config, resume, overwrite, task.size("train"))
            if start:
                lock.acquire()
            else:
                steps = RunDir(config.run_dir).finished_steps()
                make_console().print(f"the run in {config.run_dir} has finished, with {steps} steps", soft_wrap=True)
            text = start.model_dump_json() if start else _FINISHED
        except ConfigError as error:
            show_error(error)
    text = broadcast_text(comm, text, _START_UP_SECONDS)
    if text == _FINISHED:
        return 0, lock
    return Start.model_validate_json(text) if text else 2, lock


def _search(start: Start, world: World, interruption: Interruption) -> None:
    config = start.config
    task = make_task(config.task)
    so_far = start.state(task.size("train"), world.n_searchers).prompts
    prompts = so_far.order(config.seed).share(world.index, world.n_searchers, so_far.taken[world.index])
    tokenizer = load_tokenizer(config.model.path)
    policy = load_policy(config.model.path, config.model, world.device)
    engine: RolloutEngine = HFEngine(policy, ResponseEnd.of(policy, tokenizer, config.rollout.stop), version=-1)
    if (pace := config.rollout.emulate_seconds_per_token) is not None:
        engine = PacedEngine(engine, pace)
    reference = reference_policy(start, tokenizer, world.device)
    assert world.exchange is not None
    manifest = Manifest.from_json(broadcast_text(world.exchange, None, config.distributed.timeout_seconds))
    manifest.check(Manifest.of(policy.named_parameters()), world.name)
    group = weight_group(config, world)
    flat, flat_reference = FlatWeights(manifest, world.device, config.distributed.bucket_bytes), None
    if config.reference.reset_every:
        manifest.check(Manifest.of(reference.named_parameters()), f"the reference policy of {world.name}")
        flat_reference = FlatWeights(manifest, world.device, config.distributed.bucket_bytes)
    staged = StagedWeights(flat, flat_reference)
    exchange = SearcherExchange(world, staged, manifest.fingerprint, group, config.distributed, interruption.has_come)
    Searcher(config, world.index, world.n_searchers, prompts, task, tokenizer, engine, reference, exchange).run()


def _follow(start: Start, world: World, interruption: Interruption) -> None:
    config = start.config
    group = TrainerGroup(world, config.distributed.timeout_seconds, config.patience_seconds)
    tokenizer = load_tokenizer(config.model.path)
    policy = load_policy(config.model.path, config.model, world.device)
    engine = optim_engine(start, world, group, policy, tokenizer)
    reference = moving_reference(start, tokenizer, world.device)
    follow(config, engine, group, reference, interruption.has_come)
