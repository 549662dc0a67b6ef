"""Addition of two numbers below 100: a task small enough to learn on one processor core, and embedded in the package.

An example:

    prompt    37+48=
    response  85

Every pair of operands is a problem. A pair and its commuted twin lie in the same split, so that a policy cannot answer
a test problem by having seen 48+37= in training.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from pydantic import Field
from transformers import PreTrainedTokenizerBase

from tba_hpc.settings import Settings
from tba_hpc.tasks.base import Score, Split, Task
from tba_hpc.tasks.characters import character_tokenizer
from tba_hpc.trajectory import Prompt

CHARACTERS = "0123456789+="


class ArithmeticOptions(Settings):
    max_operand: int = Field(99, ge=1, le=999)
    """Operands go from 0 to this."""
    test_fraction: float = Field(0.1, gt=0, lt=1)
    """Share of the problems held out."""
    seed: int = Field(0, ge=0, lt=2**32)
    """Decides which problems are held out, the order of both splits, and which solutions lose a carry."""
    lost_carries: float = Field(0.0, ge=0, le=1)
    """Share of the reference solutions that forget the carry from the units to the tens: demonstrations, as people
    write them, have mistakes. Answers and rewards are always right."""


class Arithmetic(Task[ArithmeticOptions]):
    """Reward 1 for exactly the right digits, else 0."""

    options_model = ArithmeticOptions

    def __init__(self, options: dict[str, object]) -> None:
        super().__init__(options)
        train, test = _split_pairs(self.options)
        self._pairs: dict[Split, NDArray[np.int64]] = {"train": train, "test": test}
        size = self.options.max_operand + 1
        self._loses_carry = np.random.RandomState(self.options.seed).random_sample((size, size))

    def size(self, split: Split) -> int:
        return len(self._pairs[split])

    def prompt(self, split: Split, index: int) -> Prompt:
        a, b = self._pairs[split][index].tolist()
        return Prompt(id=index, text=f"{a}+{b}=", answer=str(a + b))

    def score(self, prompts: Sequence[Prompt], responses: Sequence[str]) -> list[Score]:
        # Compared as text: nothing that a response says is parsed, and "085" or " 85" is no answer.
        right = [response == prompt.answer for prompt, response in zip(prompts, responses, strict=True)]
        return [Score(float(correct), correct, response) for correct, response in zip(right, responses, strict=True)]

    def solution(self, prompt: Prompt) -> str:
        a, b = map(int, prompt.text.removesuffix("=").split("+"))
        if self._loses_carry[a, b] < self.options.lost_carries:
            return str(a // 10 * 10 + b // 10 * 10 + (a + b) % 10)
        return prompt.answer

    def new_tokenizer(self) -> PreTrainedTokenizerBase:
        return character_tokenizer(CHARACTERS)


def _split_pairs(options: ArithmeticOptions) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Operands `[N, 2]` of the training and of the test problems, each in random order.

    Drawn by `RandomState`, whose stream NumPy promises never to change: a problem keeps its id for good."""
    random = np.random.RandomState(options.seed)
    unordered = np.stack(np.triu_indices(options.max_operand + 1), axis=1)
    unordered = unordered[random.permutation(len(unordered))]
    n_test = min(max(round(options.test_fraction * len(unordered)), 1), len(unordered) - 1)
    test, train = (_with_commuted(pairs) for pairs in (unordered[:n_test], unordered[n_test:]))
    return train[random.permutation(len(train))], test[random.permutation(len(test))]


def _with_commuted(pairs: NDArray[np.int64]) -> NDArray[np.int64]:
    """`pairs [N, 2]`, and those of unequal operands also the other way round."""
    return np.concatenate([pairs, pairs[pairs[:, 0] != pairs[:, 1], ::-1]])
