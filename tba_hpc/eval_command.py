"""`tba-hpc eval`: how good a checkpoint is, problem by problem and in all."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Literal

import torch
from pydantic import Field, NonNegativeFloat, model_validator
from rich.console import Console
from transformers import PretrainedConfig

from tba_hpc.config import ModelConfig, StopTexts, TaskConfig
from tba_hpc.evaluator import EvaluationRecord, answer_problems, number_of_problems
from tba_hpc.models import load_model_config, load_policy, load_tokenizer, room_for_prompt
from tba_hpc.progress import Columns, ProgressDisplay
from tba_hpc.rollout.ending import ResponseEnd
from tba_hpc.rollout.engine import SamplingParams
from tba_hpc.rollout.hf import HFEngine
from tba_hpc.settings import ConfigError, Integer, PositiveInt, Settings
from tba_hpc.tally import Summary, Tally
from tba_hpc.tasks import make_task
from tba_hpc.tasks.base import Split

USUAL_RESPONSE_TOKENS = 512
"""Enough for a worked solution of a word problem."""
COLUMNS: Columns = (("accuracy", "accuracy", ".1%"),)


class EvalOptions(Settings):
    """The options of the command, which says what they mean."""

    checkpoint: str
    task: TaskConfig
    split: Split
    problems: Integer = Field(ge=0)
    batch_size: PositiveInt
    max_response_tokens: PositiveInt | None
    stop: StopTexts
    dtype: Literal["float32", "bfloat16"]
    samples: Integer = Field(ge=0)
    temperature: NonNegativeFloat | None
    top_p: float | None = Field(gt=0, le=1)
    seed: Integer = Field(ge=0)
    k: tuple[Annotated[int, Field(gt=0)], ...] | None
    output: Path | None
    overwrite: bool
    as_json: bool

    @model_validator(mode="after")
    def _consistent(self) -> EvalOptions:
        if not self.samples:
            for name in ("temperature", "top_p", "k"):
                if getattr(self, name) is not None:
                    raise ValueError(f"{name} is of use with samples only: give --samples N, too")
        elif self.temperature == 0:
            raise ValueError("temperature = 0 would give the same response in all samples: choose one above 0")
        if max(self.k or (0,)) > self.samples:
            raise ValueError(f"k = {max(self.k or (0,))} is more than samples = {self.samples}")
        return self

    @property
    def ks(self) -> tuple[int, ...]:
        """In ascending order. Powers of two and the number of samples itself, where `k` does not say."""
        powers = (2**i for i in range(self.samples.bit_length()))
        return tuple(sorted(set(self.k or (*powers, self.samples)) if self.samples else ()))

    def sampling(self, max_tokens: int) -> SamplingParams | None:
        """None where only greedy answers are asked for."""
        if not self.samples:
            return None
        return SamplingParams(self.samples, max_tokens, self.temperature or 1.0, self.top_p or 1.0, self.seed)


def run_eval(options: EvalOptions, console: Console, progress: Console) -> None:
    """Evaluates a model in this process alone; the model's positions bound its prompts. Writes `options.output` while
    it goes on, a line a problem, and the result to `console` at the end.

    Raises `ConfigError` for an output file that is there already or cannot be written, an unknown task, a path without
    a model, too long a prompt, or tokens of a response that leave no positions for a prompt."""
    if options.output:
        _check_output(options.output, options.overwrite)
    task, tokenizer = make_task(options.task), load_tokenizer(options.checkpoint)
    n_problems = number_of_problems(task, options.split, options.problems)
    model_config = load_model_config(options.checkpoint)
    max_tokens = options.max_response_tokens or _usual_tokens(model_config)
    room = room_for_prompt(model_config, max_tokens)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    model = load_policy(options.checkpoint, ModelConfig(path=options.checkpoint, dtype=options.dtype), device)
    records = answer_problems(
        HFEngine(model, ResponseEnd.of(model, tokenizer, options.stop)),
        task,
        tokenizer,
        options.split,
        range(n_problems),
        options.batch_size,
        room,
        max_tokens,
        sampling=options.sampling(max_tokens),
    )
    display = ProgressDisplay(progress, "problem", n_problems, COLUMNS)
    summary = _tally(recorded(records, options.output), options.ks, display)
    _show(options, max_tokens, summary, console)


def _usual_tokens(config: PretrainedConfig) -> int:
    """Half of the model's positions, if there are fewer than twice the usual."""
    positions = getattr(config, "max_position_embeddings", None) or 2 * USUAL_RESPONSE_TOKENS
    return max(min(USUAL_RESPONSE_TOKENS, positions // 2), 1)


def _check_output(output: Path, overwrite: bool) -> None:
    existing = output if output.exists() else output.parent
    if not output.parent.is_dir() or output.is_dir() or not os.access(existing, os.W_OK):
        raise ConfigError(f"--output {str(output)!r} cannot be written: give a file in a folder that exists")
    if output.exists() and not overwrite:
        raise ConfigError(f"--output {str(output)!r} exists: give another file, or --overwrite to write it anew")


def recorded(records: Iterator[EvaluationRecord], output: Path | None) -> Iterator[EvaluationRecord]:
    """The same records, each of which has reached the file when the next one is asked for. There is a file once there
    is a record: a mistake that shows before leaves none."""
    file = None
    with ExitStack() as stack:
        for record in records:
            if output:
                file = file or stack.enter_context(output.open("w", encoding="utf-8"))
                file.write(json.dumps(asdict(record), ensure_ascii=False) + "\n")
                file.flush()
            yield record


def _tally(records: Iterator[EvaluationRecord], ks: Sequence[int], display: ProgressDisplay) -> Summary:
    tally = Tally(ks)
    with display:
        for done, record in enumerate(records, start=1):
            tally.add(record)
            display.update(done, {"accuracy": tally.accuracy.share})
    return tally.summary()


def _show(options: EvalOptions, max_tokens: int, summary: Summary, console: Console) -> None:
    if options.as_json:
        asked = options.model_dump(mode="json", include={"checkpoint", "split", "stop", "samples", "seed", "dtype"})
        drawn = options.sampling(max_tokens)
        asked |= {"task": options.task.name, "task_options": options.task.options, "max_response_tokens": max_tokens}
        asked |= {"temperature": drawn.temperature, "top_p": drawn.top_p} if drawn else {}
        console.file.write(json.dumps(asked | summary.to_json(), ensure_ascii=False) + "\n")
        return
    console.print(f"task {options.task.name}, {options.split} split", soft_wrap=True, highlight=False, markup=False)
    for line in summary.lines():
        console.print(line, soft_wrap=True, highlight=False, markup=False)
