"""Shows on processor cores that all works together with a real pretrained model: a warm-up and asynchronous TBA on
GSM8K with SmolLM2-135M-Instruct, a few steps of each, then looks at what they left:

    .venv/bin/python tools/real_model_check.py --data FOLDER [--model FOLDER] [--ranks 4] [--folder FOLDER]

`--data` holds gsm8k_train.jsonl and gsm8k_test.jsonl; `--model` is what tools/make_smollm2.py has made, which is done
first when not given. Prints a row a check and one JSON object on the last line; exits with 1 if a check fails. It takes
minutes, 12 GB of memory and 7 GB of disk."""

from __future__ import annotations

import argparse
import json
import math
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from recipe_runs import lines_of
from safetensors.torch import load_file
from transformers import PreTrainedModel

from tba_hpc.checkpoint import Checkpoint, verify_checkpoint
from tba_hpc.checkpoint_folder import list_checkpoints
from tba_hpc.config import RunConfig, load_run_config
from tba_hpc.models import Sequences, load_policy, load_tokenizer, token_logprobs
from tba_hpc.replay.buffer import ReplayBuffer
from tba_hpc.rollout.ending import ResponseEnd
from tba_hpc.rollout.engine import SamplingParams
from tba_hpc.rollout.hf import HFEngine
from tba_hpc.rollout.text import encode_prompts
from tba_hpc.run_dir import RunDir
from tba_hpc.tasks import make_task
from tba_hpc.trajectory import TrajectoryBatch

ROOT = Path(__file__).parents[1]
SFT, TBA = "configs/gsm8k_smollm2_sft_cpu.yaml", "configs/gsm8k_smollm2_cpu.yaml"
TOLERANCE = 2e-4
"""Largest difference of log-probabilities in float32 that is rounding: sums come in another order with other shapes."""
COMPARED = 4
"""Most trajectories of one policy whose log-probabilities are computed again."""
CPU = torch.device("cpu")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--model", type=Path)
    parser.add_argument("--ranks", type=int, default=4)
    parser.add_argument("--folder", type=Path, help="where runs are kept; a temporary one when not given")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory(prefix="real_model_") as temporary:
        folder = (arguments.folder or Path(temporary)).resolve()
        folder.mkdir(parents=True, exist_ok=True)
        runs = Runs(folder, arguments.data.resolve(), arguments.ranks)
        model = arguments.model.resolve() if arguments.model else runs.make_model()
        seconds = runs.run(model)
        found = Findings(model, runs.warm_up, load_run_config(ROOT / TBA, runs.overrides(model)))
        results = found.all()
    for name, (passed, value) in results.items():
        print(f"{'ok    ' if passed else 'FAILED'} {name}: {value}", flush=True)
    values = {name: value for name, (_, value) in results.items()}
    print(json.dumps({"check": "real_model", "passed": all(p for p, _ in results.values()), **values, **seconds}))
    if not all(passed for passed, _ in results.values()):
        sys.exit(1)


class Runs:
    """The commands, as a user would give them; each one's output goes to a file."""

    def __init__(self, folder: Path, data: Path, ranks: int) -> None:
        self._folder, self._ranks = folder, ranks
        self._task = [f"task.options.{split}={data}/gsm8k_{split}.jsonl" for split in ("train", "test")]
        self.warm_up = folder / "warm_up"

    def make_model(self) -> Path:
        model = self._folder / "smollm2"
        self._call("make", [str(ROOT / "tools" / "make_smollm2.py"), str(model)])
        return model

    def run(self, model: Path) -> dict[str, float]:
        """Seconds of each part."""
        words = [*self._task, f"model.path={model}", f"run_dir={self.warm_up}"]
        sft = self._call("warm_up", ["-m", "tba_hpc", "sft", SFT, *words])
        train = ["-m", "tba_hpc", "train", TBA, "--ranks", str(self._ranks), "--overwrite", *self.overrides(model)]
        return {"warm_up_seconds": sft, "tba_seconds": self._call("tba", train)}

    def overrides(self, model: Path) -> list[str]:
        """Of the TBA run, which keeps the policy of every sync for comparison."""
        return [
            *self._task,
            f"model.path={self.warm_up}/final",
            f"model.reference={model}",
            f"run_dir={self._folder}/tba",
            "checkpoint.every_steps=2",
            "checkpoint.keep_last=100",
        ]

    def _call(self, name: str, words: list[str]) -> float:
        """Seconds it took."""
        started, log = time.monotonic(), self._folder / f"{name}.txt"
        environment = os.environ | {"OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": "", "HF_HUB_OFFLINE": "1"}
        with log.open("w") as output:
            process = subprocess.run(
                [sys.executable, *words], cwd=ROOT, env=environment, stdout=output, stderr=output, check=False
            )
        if process.returncode != 0:
            sys.exit(f"{log.read_text(errors='replace')[-5000:]}\n{name} ended with exit code {process.returncode}")
        return round(time.monotonic() - started, 1)


Result = tuple[bool, Any]
"""Whether a check has passed, and what it has found."""


class Findings:
    """What the run left, looked at."""

    def __init__(self, model: Path, warm_up: Path, config: RunConfig) -> None:
        self._model, self._warm_up, self._config = model, warm_up, config
        self._run_dir = RunDir(config.run_dir)
        self._metrics = lines_of(self._run_dir.metrics)
        self._tokenizer = load_tokenizer(config.model.path)
        checkpoints = [verify_checkpoint(path) for path in list_checkpoints(self._run_dir.checkpoints)]
        self._held = held_in(max(checkpoints, key=lambda checkpoint: checkpoint.state().step), config)
        self._policies = {checkpoint.state().step: checkpoint.path / "policy" for checkpoint in checkpoints}
        self._policies[0] = Path(config.model.path)

    def all(self) -> dict[str, Result]:
        results = {
            "warm_up_changed_weights_by": self._changed(self._model, self._warm_up / "final"),
            "tba_changed_weights_by": self._changed(self._warm_up / "final", self._run_dir.final),
            "values_not_finite": self._not_finite(),
            "last_version_by_searcher": self._versions(),
            **self._logprobs(),
            "generated": self._generated(),
        }
        rewards = self._held.rows["reward"]
        return results | {
            "trajectories": (len(rewards) > 0, len(rewards)),
            "mean_reward": (True, float(rewards.mean())),
        }

    def _changed(self, before: Path, after: Path) -> Result:
        """Largest change of a weight."""
        old, new = (load_file(folder / "model.safetensors") for folder in (before, after))
        change = max(float((new[name].float() - old[name].float()).abs().max()) for name in new)
        return old.keys() == new.keys() and 0 < change < math.inf, change

    def _not_finite(self) -> Result:
        """Names of metrics, over all steps of both runs, each of which there has to be."""
        lines = [*lines_of(RunDir(self._warm_up).metrics), *self._metrics]
        bad = sorted({name for line in lines for name, value in line.items() if not math.isfinite(value)})
        complete = [line["step"] for line in self._metrics] == list(range(1, self._config.trainer.steps + 1))
        return not bad and complete, bad

    def _versions(self) -> Result:
        """Optimizer step of the weights that each searcher's last trajectory was sampled with. They may never go back,
        and a searcher must have taken up new ones."""
        rows = self._held.rows
        by_searcher = [rows["policy_version"][rows["searcher"] == i] for i in range(int(rows["searcher"].max()) + 1)]
        forward = all(np.all(np.diff(versions) >= 0) for versions in by_searcher)
        last = [int(versions[-1]) if len(versions) else 0 for versions in by_searcher]
        return forward and max(last) > 0, last

    def _logprobs(self) -> dict[str, Result]:
        """The log-probabilities that searchers' engines sampled with beside those that a trainer computes with the
        weights of the version they say they had. With the weights of the start instead, those of later versions must
        be off by far more than rounding: otherwise this would prove nothing."""
        versions = [v for v in np.unique(self._held.rows["policy_version"]).tolist() if v in self._policies]
        same = {v: self._difference(v, self._policies[v]) for v in versions}
        other = {v: self._difference(v, self._policies[0]) for v in versions if v > 0}
        return {
            "logprob_difference_by_version": (max(versions) > 0 and max(same.values()) < TOLERANCE, same),
            "with_the_weights_of_the_start": (bool(other) and min(other.values()) > 10 * TOLERANCE, other),
        }

    def _difference(self, version: int, policy: Path) -> float:
        """Largest one of a token, among the last trajectories of a version."""
        rows = np.flatnonzero(self._held.rows["policy_version"] == version)[-COMPARED:]
        batch = self._held.select(rows)
        sequences = Sequences.from_trajectories(batch, self._tokenizer.pad_token_id, CPU)
        with torch.no_grad():
            logprobs = token_logprobs(self._load(policy), sequences, self._config.rollout.temperature, 1024)
        computed = logprobs[sequences.response_mask].numpy()
        return float(np.abs(computed - batch.behavior_logprobs).max())

    def _generated(self) -> Result:
        """What the trained policy answers the first held-out problem, greedily."""
        model = self._load(self._run_dir.final)
        engine = HFEngine(model, ResponseEnd.of(model, self._tokenizer))
        prompt = make_task(self._config.task).prompt("test", 0)
        tokens = encode_prompts(self._tokenizer, [prompt], self._config.rollout.max_prompt_tokens)
        [rollouts] = engine.generate(tokens, SamplingParams(samples=1, max_tokens=24, temperature=0.0))
        passed = len(rollouts[0].tokens) > 0 and bool(np.isfinite(rollouts[0].logprobs).all())
        return passed, engine.ending.texts([rollout.tokens for rollout in rollouts])[0]

    def _load(self, folder: Path) -> PreTrainedModel:
        return load_policy(str(folder), self._config.model, CPU)


def held_in(checkpoint: Checkpoint, config: RunConfig) -> TrajectoryBatch:
    """The trajectories in a checkpoint's replay buffer, oldest first."""
    with tempfile.TemporaryDirectory() as folder:
        buffer = ReplayBuffer(config.buffer, Path(folder), config.seed)
        buffer.restore(checkpoint.replay)
        _, trajectories = buffer.contents()
        buffer.close()
    return trajectories


if __name__ == "__main__":
    main()
