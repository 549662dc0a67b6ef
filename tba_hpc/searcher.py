"""The searcher: prompts → rollouts → rewards → trajectories → trainer, over and over, with whatever weights came
last."""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from transformers import PreTrainedTokenizerBase

from tba_hpc.accuracy import Accuracy
from tba_hpc.config import RolloutConfig, RunConfig
from tba_hpc.distributed.searcher_exchange import SearcherExchange
from tba_hpc.evaluator import EvaluationStoppedError, answer_problems, number_of_problems
from tba_hpc.prompts import PromptStream
from tba_hpc.reference import ReferencePolicy
from tba_hpc.rollout.engine import Rollout, RolloutEngine, SamplingParams
from tba_hpc.rollout.text import encode_prompts
from tba_hpc.tasks.base import Score, Task
from tba_hpc.trajectory import ROW_DTYPE, Prompt, TrajectoryBatch

logger = logging.getLogger(__name__)


class Searcher:
    """Owns the main thread of a searcher rank."""

    def __init__(
        self,
        config: RunConfig,
        index: int,
        n_searchers: int,
        prompts: PromptStream,
        task: Task[Any],
        tokenizer: PreTrainedTokenizerBase,
        engine: RolloutEngine,
        reference: ReferencePolicy,
        exchange: SearcherExchange,
    ) -> None:
        self._config = config
        self._index = index
        self._task = task
        self._tokenizer = tokenizer
        self._engine = engine
        self._reference = reference
        self._exchange = exchange
        self._prompts = prompts
        self._n_searchers = n_searchers

    def run(self) -> None:
        """Waits for the first weights; from then on for nothing but an outbox that is full, or, in lockstep, for the
        next weights. Returns when trainer 0 ends the run."""
        self._exchange.start()
        self._wait_for_weights(-1)
        if self._config.in_lockstep:
            self._search_in_lockstep()
        else:
            self._search_on()
        self._exchange.join()

    def _search_on(self) -> None:
        """With the newest weights there are."""
        while not self._exchange.stopped():
            waited = self._exchange.outbox.wait_for_room(self._config.distributed.timeout_seconds)
            self._exchange.stats.record_waiting(waited)
            self._commit()
            self._search(self._config.rollout.queries_per_batch)

    def _search_in_lockstep(self) -> None:
        """This searcher's share once with the weights of each sync; with the first, once more for each sync that the
        searchers are to be ahead."""
        trainer = self._config.trainer
        share = self._config.lockstep_queries(self._index, self._n_searchers)
        for _ in range(trainer.lag // trainer.sync_every):
            self._search(share)
        while not self._exchange.stopped():
            self._search(share)
            self._wait_for_weights(self._engine.version)

    def _wait_for_weights(self, beyond: int) -> None:
        started = time.monotonic()
        self._exchange.staged.wait_beyond(beyond, self._exchange.stopped, self._config.patience_seconds)
        self._exchange.stats.record_waiting(time.monotonic() - started)
        while not (self._exchange.stopped() or self._commit()):
            time.sleep(1e-3)

    def _commit(self) -> bool:
        """Takes newer weights into use if some lie ready, and evaluates them if that is asked for."""
        if not self._exchange.staged.commit(self._engine, self._reference):
            return False
        version = self._engine.version
        self._exchange.stats.record_version(version)
        if (due := self._exchange.evaluation_due(version)) is not None:
            self._evaluate(due)
        return True

    def _search(self, n_queries: int) -> None:
        """Works through the next `n_queries` prompts and offers what came of them."""
        per_batch = self._config.rollout.queries_per_batch
        for start in range(0, n_queries, per_batch):
            started = time.monotonic()
            # What is sampled depends on where in the run this is, not on how often the run was interrupted before.
            place = (self._prompts.division, self._index, self._prompts.taken)
            ids = self._prompts.take(min(per_batch, n_queries - start))
            batch = self.collect([self._task.prompt("train", i) for i in ids], place)
            self._exchange.outbox.offer(batch)
            busy = time.monotonic() - started
            self._exchange.stats.record(len(batch), len(batch.response_tokens), busy)

    def _evaluate(self, due: int) -> None:
        """Greedy accuracy on this searcher's share of the held-out problems, as asked for at version `due`."""
        settings, rollout = self._config.evaluation, self._config.rollout
        problems = number_of_problems(self._task, settings.split, settings.problems)
        records = answer_problems(
            self._engine,
            self._task,
            self._tokenizer,
            settings.split,
            range(self._index, problems, self._n_searchers),
            settings.batch_size,
            rollout.max_prompt_tokens,
            rollout.max_response_tokens,
            self._exchange.stopped,
        )
        try:
            correct = [record.correct for record in records]
        except EvaluationStoppedError:
            logger.info("the evaluation of step %d is left out, as the run is ending", due)
            return
        accuracy = Accuracy(sum(correct), len(correct))
        self._exchange.stats.record_evaluation(due, self._engine.version, accuracy)

    def collect(self, prompts: Sequence[Prompt], place: tuple[int, int, int]) -> TrajectoryBatch:
        """Samples, scores and packs S trajectories for each prompt; fewer if the run stops meanwhile. `place` makes the
        seed: division of the work, searcher, prompts taken before these."""
        params = sampling_params(self._config.rollout, np.random.SeedSequence(self._config.seed, spawn_key=place))
        tokens = encode_prompts(self._tokenizer, prompts, self._config.rollout.max_prompt_tokens)
        sampled = self._engine.generate(tokens, params, self._exchange.stopped)
        query = [q for q, group in enumerate(sampled) for _ in group]
        rollouts = [rollout for group in sampled for rollout in group]
        responses = self._engine.ending.texts([rollout.tokens for rollout in rollouts])
        scores = self._task.checked_scores([prompts[q] for q in query], responses)
        batch = self._to_batch(rollouts, scores, np.array([p.id for p in prompts])[query], [tokens[q] for q in query])
        batch.rows["temperature"] = params.temperature
        return self._reference.score(batch)

    def _to_batch(
        self,
        rollouts: Sequence[Rollout],
        scores: Sequence[Score],
        prompt_ids: NDArray[np.int64],
        prompts: Sequence[NDArray[np.int32]],
    ) -> TrajectoryBatch:
        """Trajectories without temperature and without what the reference policy adds."""
        if not rollouts:
            return TrajectoryBatch.empty()
        rows = np.zeros(len(rollouts), ROW_DTYPE)
        rows["prompt_id"] = prompt_ids
        rows["policy_version"] = self._engine.version
        rows["searcher"] = self._index
        rows["prompt_length"] = [len(prompt) for prompt in prompts]
        rows["response_length"] = [len(rollout.tokens) for rollout in rollouts]
        rows["reward"] = [score.reward for score in scores]
        rows["correct"] = [score.correct for score in scores]
        rows["finished"] = [rollout.finished for rollout in rollouts]
        logprobs = np.concatenate([rollout.logprobs for rollout in rollouts])
        return TrajectoryBatch(
            rows,
            np.concatenate(prompts),
            np.concatenate([rollout.tokens for rollout in rollouts]),
            logprobs,
            np.zeros_like(logprobs),
        )


def sampling_params(config: RolloutConfig, seed: np.random.SeedSequence) -> SamplingParams:
    """The run's sampling settings, or now and then those of exploration; a function of the seed alone."""
    random = np.random.default_rng(seed)
    temperature, top_p, explore = config.temperature, config.top_p, config.exploration
    if explore and random.random() < explore.fraction:
        temperature, top_p = random.uniform(*explore.temperature), random.uniform(*explore.top_p)
    return SamplingParams(
        samples=config.samples_per_query,
        max_tokens=config.max_response_tokens,
        temperature=temperature,
        top_p=top_p,
        seed=int(random.integers(2**63)),
    )
