"""How good a policy is: problems answered greedily (pass@1), and by several samples each (pass@k, maj@k)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from transformers import PreTrainedTokenizerBase

from tba_hpc.accuracy import Accuracy
from tba_hpc.config import EvaluationConfig
from tba_hpc.rollout.engine import Rollout, RolloutEngine, SamplingParams
from tba_hpc.rollout.text import encode_prompts
from tba_hpc.settings import ConfigError
from tba_hpc.tasks.base import Score, Split, Task
from tba_hpc.trajectory import Message, Prompt


@dataclass(frozen=True, slots=True)
class GradedResponse:
    """One response, and what the task thinks of it."""

    response: str
    reward: float
    correct: bool
    extracted: str | None
    """The answer that was read out of the response; None if there is none."""
    why: str
    """For people: what speaks for the reward."""
    tokens: int
    """Length, the end-of-sequence token included."""
    finished: bool
    """Whether it ended before it was cut at the token limit."""


@dataclass(frozen=True, slots=True)
class EvaluationRecord:
    """One problem and what the policy made of it; its fields are the columns of a JSONL file."""

    id: int
    """Of the problem, in its split."""
    prompt: str
    messages: tuple[Message, ...]
    """The conversation that the policy read in place of `prompt`, if there is any."""
    answer: str
    greedy: GradedResponse
    samples: tuple[GradedResponse, ...] = ()
    """Empty where nothing was sampled."""

    @property
    def correct(self) -> bool:
        """Of the greedy response."""
        return self.greedy.correct


@dataclass(frozen=True, slots=True)
class EvaluationResult:
    records: tuple[EvaluationRecord, ...]
    """One a problem, in the order of the split; at least one."""

    @property
    def accuracy(self) -> Accuracy:
        return Accuracy(sum(record.correct for record in self.records), len(self.records))


class EvaluationStoppedError(Exception):
    """The run was asked to leave before the last answer."""


def evaluate(
    engine: RolloutEngine,
    task: Task[Any],
    tokenizer: PreTrainedTokenizerBase,
    settings: EvaluationConfig,
    max_prompt_tokens: int,
    max_response_tokens: int,
    should_stop: Callable[[], bool] = lambda: False,
) -> EvaluationResult:
    """Greedy answers to the first `settings.problems` of a split, or to all of it if that is 0 or more than it has.
    Raises as `answer_problems` and `number_of_problems` do."""
    indices = range(number_of_problems(task, settings.split, settings.problems))
    records = answer_problems(
        engine,
        task,
        tokenizer,
        settings.split,
        indices,
        settings.batch_size,
        max_prompt_tokens,
        max_response_tokens,
        should_stop,
    )
    return EvaluationResult(tuple(records))


def number_of_problems(task: Task[Any], split: Split, problems: int) -> int:
    """How many problems an evaluation on the first `problems` of a split answers; 0 stands for all there are. Raises
    `ConfigError` for a split without any."""
    size = task.size(split)
    if size == 0:
        raise ConfigError(f"the {split} split of task {type(task).__name__} has no problems to evaluate on")
    return min(problems or size, size)


def answer_problems(
    engine: RolloutEngine,
    task: Task[Any],
    tokenizer: PreTrainedTokenizerBase,
    split: Split,
    indices: Sequence[int],
    batch_size: int,
    max_prompt_tokens: int,
    max_response_tokens: int,
    should_stop: Callable[[], bool] = lambda: False,
    sampling: SamplingParams | None = None,
) -> Iterator[EvaluationRecord]:
    """Answers the problems `indices` of a split greedily, and with `sampling`, by so many samples each, too. Gives the
    records in the order of `indices`, each as soon as its batch is done. No more than `batch_size` sequences are
    generated at a time; the same problems, seed and batch size give the same samples.

    Raises `EvaluationStoppedError` once `should_stop` is true; `ConfigError`, before the first answer, for a prompt
    that is too long."""
    greedy = SamplingParams(samples=1, max_tokens=max_response_tokens, temperature=0.0)
    prompts = [task.prompt(split, index) for index in indices]
    tokens = encode_prompts(tokenizer, prompts, max_prompt_tokens)
    examiner = _Examiner(engine, task, batch_size, should_stop)
    for batch in _slices(len(prompts), batch_size):
        records = [
            EvaluationRecord(prompt.id, prompt.text, prompt.messages, prompt.answer, only)
            for prompt, (only,) in zip(prompts[batch], examiner.ask(prompts[batch], tokens[batch], greedy), strict=True)
        ]
        if sampling is None:
            yield from records
        else:
            yield from examiner.add_samples(records, prompts[batch], tokens[batch], sampling)


@dataclass(frozen=True, slots=True)
class _Examiner:
    """Puts prompts to a policy and grades what it says."""

    engine: RolloutEngine
    task: Task[Any]
    batch_size: int
    """Most sequences in flight."""
    should_stop: Callable[[], bool]

    def ask(
        self, prompts: Sequence[Prompt], tokens: Sequence[NDArray[np.int32]], params: SamplingParams
    ) -> list[tuple[GradedResponse, ...]]:
        """`params.samples` responses to each of the prompts, of which there are few enough for one batch, unless it is
        a single one with more samples than that."""
        groups: list[list[Rollout]] = [[] for _ in prompts]
        for part in _slices(params.samples, self.batch_size):
            seeds = np.random.SeedSequence(params.seed, spawn_key=(prompts[0].id, part.start))
            seed = int(np.random.default_rng(seeds).integers(2**63))
            some = replace(params, samples=part.stop - part.start, seed=seed)
            new = self.engine.generate(tokens, some, self.should_stop)
            if self.should_stop():
                raise EvaluationStoppedError
            for group, rollouts in zip(groups, new, strict=True):
                group += rollouts
        return self._grade(prompts, groups)

    def add_samples(
        self,
        records: Sequence[EvaluationRecord],
        prompts: Sequence[Prompt],
        tokens: Sequence[NDArray[np.int32]],
        params: SamplingParams,
    ) -> Iterator[EvaluationRecord]:
        """The records with samples to their prompts, as many at a time as fit into a batch."""
        for some in _slices(len(prompts), max(self.batch_size // params.samples, 1)):
            for record, samples in zip(records[some], self.ask(prompts[some], tokens[some], params), strict=True):
                yield replace(record, samples=samples)

    def _grade(
        self, prompts: Sequence[Prompt], groups: Sequence[Sequence[Rollout]]
    ) -> list[tuple[GradedResponse, ...]]:
        rollouts = [rollout for group in groups for rollout in group]
        asked = [prompt for prompt, group in zip(prompts, groups, strict=True) for _ in group]
        texts = self.engine.ending.texts([rollout.tokens for rollout in rollouts])
        scores = self.task.checked_scores(asked, texts)
        graded = iter([_graded(*one) for one in zip(texts, rollouts, scores, strict=True)])
        return [tuple(next(graded) for _ in group) for group in groups]


def _graded(text: str, rollout: Rollout, score: Score) -> GradedResponse:
    return GradedResponse(
        response=text,
        reward=score.reward,
        correct=score.correct,
        extracted=score.extracted,
        why=score.why,
        tokens=len(rollout.tokens),
        finished=rollout.finished,
    )


def _slices(n: int, size: int) -> Iterator[slice]:
    """0 … n − 1 in runs of at most `size`."""
    return (slice(start, min(start + size, n)) for start in range(0, n, size))
