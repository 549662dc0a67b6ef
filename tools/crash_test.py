"""Kills a random rank of a run at a random moment, again and again, and looks whether the run always goes on and
whether anything is lost that a checkpoint had confirmed:

    .venv/bin/python tools/crash_test.py --rounds 20

Every second kill is in the middle of a save, every fourth while the run is starting or going on. After each the newest
checkpoint must be at least as new as the newest that was complete before, and hold every trajectory of it; metrics must
have no step left out or written twice. The last line is a JSON object with what was counted."""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import yaml

from tba_hpc.checkpoint import Checkpoint, newest_checkpoint
from tba_hpc.config import RunConfig, load_run_config
from tba_hpc.launch.command import rank_command
from tba_hpc.launch.local import local_environment, mpiexec_words
from tba_hpc.models import fresh_llama
from tba_hpc.replay.buffer import ReplayBuffer, response_hashes
from tba_hpc.run_dir import RunDir
from tba_hpc.tasks.arithmetic import Arithmetic

RANKS = 4
START_SECONDS = 180.0
END_SECONDS = 90.0
MOMENTS = ("training", "saving", "starting", "saving")
SIZES = {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 2}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="crash_test_") as folder:
        crash_test = CrashTest(write_config(Path(folder)), random.Random(arguments.seed))
        for number in range(arguments.rounds):
            crash_test.round(number, MOMENTS[number % len(MOMENTS)])
        crash_test.finish()
    print(json.dumps(crash_test.counts))


def write_config(folder: Path) -> Path:
    """A run of a tiny model that would take hours, saves every few steps and keeps every trajectory."""
    tokenizer = Arithmetic({}).new_tokenizer()
    fresh_llama({**SIZES, "max_position_embeddings": 64}, tokenizer, seed=0).save_pretrained(folder / "model")
    tokenizer.save_pretrained(folder / "model")
    settings = {
        "run_dir": str(folder / "run"),
        "model": {"path": str(folder / "model")},
        "task": {"name": "arithmetic"},
        "rollout": {"queries_per_batch": 2, "samples_per_query": 4, "max_prompt_tokens": 16, "max_response_tokens": 6},
        "buffer": {
            "most_on_policy": 0.5,
            "deduplicate": False,
            "max_per_query": 10**6,
            "capacity": 10**7,
            "start_size": 32,
            "memory_limit": "20kB",
            "segment_bytes": "200kB",
        },
        "objective": {"beta": {"kind": "constant", "value": 0.5}},
        "trainer": {
            "steps": 10**6,
            "batch_size": 16,
            "samples_per_query": 4,
            "sync_every": 2,
            "max_reuse": 1.0,
            "learning_rate": {"kind": "constant", "value": 1e-3},
        },
        "distributed": {"timeout_seconds": 60, "pending_bytes": 0},
        "evaluation": {"problems": 0},
        "checkpoint": {"every_steps": 5},
    }
    path = folder / "config.yaml"
    path.write_text(yaml.safe_dump(settings))
    return path


class CrashTest:
    """One run and all its attempts."""

    def __init__(self, config: Path, choice: random.Random) -> None:
        self._path, self._config, self._random = config, load_run_config(config, []), choice
        self._run_dir = RunDir(self._config.run_dir)
        self._held = np.empty((0, 2), np.uint64)
        self._start_seconds = 10.0
        self.counts = {"rounds": 0, "killed_during_a_start": 0, "killed_during_a_save": 0, "checkpoints_lost": 0}
        self.counts |= {"trajectories_confirmed": 0, "trajectories_lost": 0, "steps": 0, "steps_missing_or_doubled": 0}
        self.counts["longest_end_seconds"] = 0.0

    def round(self, number: int, moment: str) -> None:
        """Starts the run, or goes on with it, kills a rank at one of `MOMENTS`, and looks at what is left."""
        rank, steps, job = self._random.randrange(RANKS), len(self._steps()), self._start([])
        self._wait(job, lambda: pid_of_rank(rank, self._path) is not None, START_SECONDS, f"process of rank {rank}")
        if moment == "starting":
            time.sleep(self._random.uniform(0, self._start_seconds))
        else:
            started = time.monotonic()
            self._wait(job, lambda: len(self._steps()) > steps, START_SECONDS, "first new step")
            self._start_seconds = time.monotonic() - started
            time.sleep(self._random.uniform(0, 4))
        pid, confirmed = pid_of_rank(rank, self._path), self._confirmed_step()
        if moment == "saving":
            self._wait(job, self._saving, START_SECONDS, "save")
        during_a_save = moment != "starting" and self._saving()  # before, what is left of an earlier one lies there
        if pid is None:
            sys.exit(f"rank {rank} was gone before it was killed")
        os.kill(pid, signal.SIGKILL)
        seconds = self._end(job)
        self._compare(confirmed)
        self.counts["rounds"] += 1
        self.counts["killed_during_a_start"] += moment == "starting"
        self.counts["killed_during_a_save"] += during_a_save
        self.counts["longest_end_seconds"] = round(max(self.counts["longest_end_seconds"], seconds), 1)
        print(f"round {number + 1}: rank {rank} killed, {moment}, over in {seconds:.1f} s; {self.counts}", flush=True)

    def finish(self) -> None:
        """Lets the run come to its end."""
        confirmed = self._confirmed_step()
        job = self._start([f"trainer.steps={confirmed + 10}"])
        if job.wait(START_SECONDS) != 0 or not self._run_dir.report.exists():
            sys.exit("the run did not come to its end")
        self._compare(confirmed)

    def _start(self, overrides: list[str]) -> subprocess.Popen[bytes]:
        command = rank_command(self._path, overrides, resume="auto")
        environment = {**local_environment(os.environ), "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""}
        words = [*mpiexec_words(None), "-n", str(RANKS), *command]
        output = (self._path.parent / "output.txt").open("ab")
        return subprocess.Popen(words, env=environment, stdout=output, stderr=output, start_new_session=True)

    def _wait(self, job: subprocess.Popen[bytes], done: Callable[[], bool], seconds: float, what: str) -> None:
        deadline = time.monotonic() + seconds
        while not done():
            if job.poll() is not None or time.monotonic() > deadline:
                output = (self._path.parent / "output.txt").read_text(errors="replace")
                sys.exit(f"{output[-5000:]}\nno {what} within {seconds:.0f} s, exit code {job.poll()}")
            time.sleep(2e-3)

    def _end(self, job: subprocess.Popen[bytes]) -> float:
        """Waits for the launcher to notice. Returns the seconds it took."""
        started = time.monotonic()
        try:
            job.wait(END_SECONDS)
        except subprocess.TimeoutExpired:
            os.killpg(job.pid, signal.SIGKILL)
            sys.exit(f"the job went on for {END_SECONDS:.0f} s without one of its ranks")
        return time.monotonic() - started

    def _saving(self) -> bool:
        return any(self._run_dir.checkpoints.glob("*.tmp"))

    def _newest(self) -> Checkpoint | None:
        return newest_checkpoint(self._run_dir.checkpoints)

    def _confirmed_step(self) -> int:
        """Of the newest complete checkpoint; 0 if there is none."""
        newest = self._newest()
        return newest.state().step if newest else 0

    def _steps(self) -> list[int]:
        if not self._run_dir.metrics.exists():
            return []
        lines = self._run_dir.metrics.read_text().splitlines(keepends=True)
        return [json.loads(line)["step"] for line in lines if line.endswith("\n")]

    def _compare(self, confirmed: int) -> None:
        """What is there now with what was there before, when a checkpoint of step `confirmed` was complete."""
        steps, newest = self._steps(), self._newest()
        self.counts["steps"] = len(steps)
        self.counts["steps_missing_or_doubled"] += steps != list(range(1, len(steps) + 1))
        if newest is None:
            self.counts["checkpoints_lost"] += confirmed > 0
            return
        self.counts["checkpoints_lost"] += newest.state().step < confirmed
        held = held_in(newest, self._config)
        self.counts["trajectories_confirmed"] = len(held)
        self.counts["trajectories_lost"] += not np.array_equal(held[: len(self._held)], self._held)
        self.counts["trajectories_lost"] += newest.state().received != len(held)
        self._held = held


def held_in(checkpoint: Checkpoint, config: RunConfig) -> np.ndarray:
    """`[N, 2]` sequence number and hash of the tokens of every trajectory in a checkpoint, oldest first."""
    with tempfile.TemporaryDirectory() as folder:
        buffer = ReplayBuffer(config.buffer, Path(folder), config.seed)
        buffer.restore(checkpoint.replay)
        sequences, trajectories = buffer.contents()
        buffer.close()
    return np.stack([sequences.astype(np.uint64), response_hashes(trajectories)], axis=1)


def pid_of_rank(rank: int, config: Path) -> int | None:
    """Of the process that trains with this configuration; None as long as there is none."""
    for process in Path("/proc").glob("[0-9]*"):
        try:
            words = (process / "cmdline").read_bytes().split(b"\0")
            variables = (process / "environ").read_bytes().split(b"\0")
        except OSError:
            continue  # it has ended meanwhile, or is not ours
        if str(config).encode() in words and f"PMI_RANK={rank}".encode() in variables:
            return int(process.name)
    return None


if __name__ == "__main__":
    main()
