"""How long saving a run holds its training up: the stall when a save begins, beside the copy of the state alone and
beside a save that training waits for; and a training step while a save is being written, beside one without.

    .venv/bin/python tools/bench_checkpoint.py [--quick]

Prints a row a repetition, and one JSON object on the last line. Ratios are medians over the repetitions."""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
import yaml

from tba_hpc.checkpoint import CheckpointState, PromptState
from tba_hpc.checkpoint_folder import list_checkpoints
from tba_hpc.checkpointer import Checkpointer
from tba_hpc.config import RunConfig, load_run_config
from tba_hpc.models import fresh_llama
from tba_hpc.objectives import OBJECTIVES
from tba_hpc.optim.torch_engine import TorchEngine
from tba_hpc.prompts import PromptOrder
from tba_hpc.replay.buffer import ReplayBuffer
from tba_hpc.run_snapshot import RunSnapshots
from tba_hpc.tasks.arithmetic import Arithmetic
from tba_hpc.trajectory import ROW_DTYPE, SampledBatch, TrajectoryBatch

PROMPT, RESPONSE, PER_QUERY = 16, 200, 20


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true")
    quick = parser.parse_args().quick
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory(prefix="bench_checkpoint_") as folder:
        bench = Bench(Path(folder), hidden=256 if quick else 512, trajectories=10_000 if quick else 50_000)
        rows = [bench.repetition() for _ in range(3 if quick else 7)]
        size = bench.checkpoint_bytes
    metrics = {
        "parameters": bench.parameters,
        "checkpoint_bytes": size,
        "copy_seconds": statistics.median(row["copy"] for row in rows),
        "stall_over_copy": statistics.median(row["stall"] / row["copy"] for row in rows),
        "stall_over_waiting_for_the_save": statistics.median(row["stall"] / row["waited for"] for row in rows),
        "step_while_saving_over_step": statistics.median(row["step while saving"] / row["step"] for row in rows),
    }
    versions = {"python": platform.python_version(), "torch": torch.__version__}
    machine = {"cores": os.cpu_count(), "architecture": platform.machine()}
    print(json.dumps({"benchmark": "checkpoint", "machine": machine, "versions": versions, "metrics": metrics}))


class Bench:
    def __init__(self, folder: Path, hidden: int, trajectories: int) -> None:
        config, model = write_config(folder), fresh_llama(sizes(hidden), Arithmetic({}).new_tokenizer(), seed=0)
        self.parameters = sum(parameter.numel() for parameter in model.parameters())
        self._engine = TorchEngine(
            model, 0, OBJECTIVES["tb_vargrad"](config.objective), config.trainer, config.model, 1.0, torch.device("cpu")
        )
        self._buffer = ReplayBuffer(config.buffer, folder / "buffer", seed=0)
        for arrival in range(10):
            self._buffer.add(random_batch(trajectories // 10, arrival), arrival)
        self._folder, self._step = folder / "checkpoints", 0
        start = CheckpointState.of_new_run(PromptState.of(PromptOrder.of(10**6, 0), [0]))
        tokenizer = Arithmetic({}).new_tokenizer()
        snapshots = RunSnapshots(
            config, self._engine, tokenizer, self._buffer, lambda step: start.model_copy(update={"step": step})
        )
        self._saver = Checkpointer(config.checkpoint, self._folder, snapshots.take, first_step=0)
        self._train()  # the first step makes the optimizer's state

    @property
    def checkpoint_bytes(self) -> int:
        return sum(file.stat().st_size for file in list_checkpoints(self._folder)[0].rglob("*") if file.is_file())

    def repetition(self) -> dict[str, float]:
        """Seconds of everything once."""
        row = {"copy": seconds(self._copy), "step": self._steps_for(2.0)}
        row["waited for"] = seconds(lambda: self._saver.save_last(self._step))
        row["stall"] = seconds(lambda: self._saver.step_done(self._step + 1))
        row["step while saving"] = self._steps_for(60.0, until=lambda: not self._saver.saving)
        print(" | ".join(f"{name} {value:.3f} s" for name, value in row.items()), flush=True)
        return row

    def _copy(self) -> None:
        """What a save copies before training goes on."""
        copies = [tensor.to("cpu", copy=True) for tensor in self._engine.state().values()]
        self._buffer.snapshot().release()
        del copies

    def _train(self) -> None:
        self._step += 1
        batch: SampledBatch = self._buffer.sample(2, 4, self._step)
        self._engine.step(batch, len(batch), 0.5, 1e-4)

    def _steps_for(self, longest: float, until: Callable[[], bool] = lambda: False) -> float:
        """Mean duration of a step, over so many seconds at most."""
        durations: list[float] = []
        while sum(durations) < longest and not (durations and until()):
            durations.append(seconds(self._train))
            self._saver.step_done(0)  # begins no save, but sees whether one has been written
        return statistics.mean(durations)


def seconds(action: Callable[[], None]) -> float:
    started = time.perf_counter()
    action()
    return time.perf_counter() - started


def sizes(hidden: int) -> dict[str, int]:
    return {
        "hidden_size": hidden,
        "intermediate_size": 4 * hidden,
        "num_hidden_layers": 8,
        "num_attention_heads": 8,
        "max_position_embeddings": 256,
    }


def write_config(folder: Path) -> RunConfig:
    settings = {
        "run_dir": str(folder / "run"),
        "model": {"path": "none"},
        "task": {"name": "arithmetic"},
        "rollout": {
            "queries_per_batch": 1,
            "samples_per_query": 4,
            "max_prompt_tokens": 16,
            "max_response_tokens": 200,
        },
        "buffer": {"most_on_policy": 0.5, "max_per_query": 10**6, "capacity": 10**7, "start_size": 1},
        "objective": {"beta": {"kind": "constant", "value": 0.5}},
        "trainer": {
            "steps": 10**6,
            "batch_size": 8,
            "samples_per_query": 4,
            "sync_every": 1,
            "learning_rate": {"kind": "constant", "value": 1e-4},
        },
        "checkpoint": {"every_steps": 1, "keep_last": 1},
    }
    path = folder / "config.yaml"
    path.write_text(yaml.safe_dump(settings))
    return load_run_config(path, [])


def random_batch(n: int, arrival: int) -> TrajectoryBatch:
    random, rows = np.random.default_rng(arrival), np.zeros(n, ROW_DTYPE)
    rows["prompt_id"] = np.arange(n) // PER_QUERY + arrival * n
    rows["prompt_length"], rows["response_length"] = PROMPT, RESPONSE
    rows["reward"], rows["temperature"] = random.random(n), 1.0
    prompts = random.integers(3, 10, n * PROMPT, np.int32)
    responses = random.integers(3, 10, n * RESPONSE, np.int32)
    logprobs = -random.random(n * RESPONSE, np.float32)
    return TrajectoryBatch(rows, prompts, responses, logprobs, logprobs)


if __name__ == "__main__":
    main()
