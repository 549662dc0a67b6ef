"""Runs that leave and go on. All share one start of four ranks."""

import json
from itertools import chain
from pathlib import Path

import numpy as np
import pytest
import torch
from attempts import planned
from held import SEED, check_nothing_lost_or_doubled, held_in, prompts_by_searcher
from safetensors.torch import load_file
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from written import metrics, steps_of, weights

from tba_hpc.checkpoint import Checkpoint, verify_checkpoint
from tba_hpc.checkpoint_folder import list_checkpoints
from tba_hpc.prompts import PromptOrder

SYNCHRONOUS = ["schedule=synchronous", "task.name=lengths", "trainer.steps=8", "trainer.sync_every=2"]
ASYNCHRONOUS = [
    "trainer.steps=10",
    "buffer.deduplicate=false",
    "buffer.max_per_query=100000",
    "buffer.capacity=10000000",
]
FEW_PROMPTS = ["task.options.max_operand=7"]
COMMON = ["evaluation.problems=4", "checkpoint.keep_last=100"]

RUNS = {
    "unbroken": [(3, SYNCHRONOUS, {})],
    "broken": [(3, SYNCHRONOUS, {"leave_after": 3}), (3, SYNCHRONOUS, {})],
    "broken twice, spilling": [
        (3, [*SYNCHRONOUS, "buffer.memory_limit=2kB"], {"leave_after": 1}),
        (3, [*SYNCHRONOUS, "buffer.memory_limit=2kB"], {"leave_after": 5}),
        (3, SYNCHRONOUS, {}),
    ],
    "fewer trainers": [
        (4, [*SYNCHRONOUS, "distributed.trainers=2"], {"leave_after": 3}),
        (3, SYNCHRONOUS, {}),
    ],
    "asynchronous": [(4, ASYNCHRONOUS, {"leave_after": 5}), (4, ASYNCHRONOUS, {})],
    "fewer searchers": [
        (4, [*ASYNCHRONOUS, *FEW_PROMPTS], {"leave_after": 3}),
        (3, [*ASYNCHRONOUS, *FEW_PROMPTS], {"leave_after": 6}),
        (2, [*ASYNCHRONOUS, *FEW_PROMPTS], {}),
    ],
    "died": [
        (4, [*ASYNCHRONOUS, "checkpoint.every_steps=4"], {}),
        (4, ASYNCHRONOUS, {"resume": "checkpoints/step_00000004"}),
    ],
}
"""By name, the attempts of a run: ranks, settings, and how it is interrupted or resumed."""


@pytest.fixture(scope="module")
def runs(run_mpi, tiny_run, tmp_path_factory):
    """The run_dir of each run."""
    folder = tmp_path_factory.mktemp("resume")
    job = run_mpi("several_runs", 4, tiny_run, json.dumps(planned(RUNS, folder, COMMON)), seconds=280)
    assert job.code == 0, job.output
    return {name: folder / name for name in RUNS}


def checkpoints(run_dir: Path) -> list[Checkpoint]:
    """Oldest first."""
    return [verify_checkpoint(path) for path in reversed(list_checkpoints(run_dir / "checkpoints"))]


def learned(run_dir: Path):
    """What each step learned from and how it went, to the last digit."""
    names = ("objective/loss", "optimizer/grad_norm", "batch/reward", "rollout/reward", "rollout/kl", "buffer/size")
    return [{name: step[name] for name in names} for step in metrics(run_dir)]


@pytest.mark.parametrize("name", ["broken", "broken twice, spilling"])
def test_a_synchronous_run_goes_on_bit_for_bit(runs, name):
    assert learned(runs[name]) == learned(runs["unbroken"])
    expected = weights(runs["unbroken"])
    assert all(torch.equal(tensor, expected[key]) for key, tensor in weights(runs[name]).items())


def test_the_number_of_trainers_may_change(runs):
    for step, expected in zip(metrics(runs["fewer trainers"]), metrics(runs["unbroken"]), strict=True):
        assert step["objective/loss"] == pytest.approx(expected["objective/loss"], rel=1e-3)
    report = json.loads((runs["fewer trainers"] / "report.json").read_text())
    assert (report["trainers"], report["searchers"]) == (1, 2)


@pytest.mark.parametrize("name", RUNS)
def test_every_step_is_written_once_and_the_logs_of_all_attempts_are_kept(runs, name):
    attempts = RUNS[name]
    steps = 8 if attempts[0][1][0] == SYNCHRONOUS[0] else 10
    expected = list(range(1, steps + 1))
    assert steps_of(runs[name]) == expected
    log = EventAccumulator(str(runs[name] / "tensorboard"))
    log.Reload()
    assert [event.step for event in log.Scalars("objective/loss")] == expected
    for number, (ranks, *_) in enumerate(attempts, start=1):
        assert len(list((runs[name] / "logs").glob(f"rank_*.attempt_{number}.log"))) == ranks


def test_the_evaluation_before_training_is_that_of_the_first_attempt(runs):
    reports = [json.loads((runs[name] / "report.json").read_text()) for name in ("unbroken", "broken")]
    assert reports[0]["accuracy_before"] == reports[1]["accuracy_before"]
    assert reports[1]["problems"] == 4


def test_asynchronous_searchers_neither_skip_nor_repeat_a_prompt(runs, tmp_path):
    middle, end = checkpoints(runs["asynchronous"])
    assert (middle.state().step, end.state().step) == (5, 10)
    check_nothing_lost_or_doubled(end, tmp_path / "end")
    taken, before = end.state().prompts.taken, middle.state().prompts.taken
    assert sum(taken) > sum(before) > 0


@pytest.mark.parametrize("name", ["asynchronous", "died"])
def test_every_trajectory_that_was_saved_is_still_there(runs, tmp_path, name):
    before, after = checkpoints(runs[name])[0], checkpoints(runs[name])[-1]
    (old, saved), (new, held) = held_in(before, tmp_path / "before"), held_in(after, tmp_path / "after")
    assert len(new) > len(old) == before.state().received
    assert new[: len(old)].tolist() == old.tolist()
    kept = held.select(np.arange(len(old)))
    assert kept.rows.tobytes() == saved.rows.tobytes()
    assert kept.response_tokens.tolist() == saved.response_tokens.tolist()
    assert kept.behavior_logprobs.tobytes() == saved.behavior_logprobs.tobytes()
    assert len(new) == after.state().received


def test_with_fewer_searchers_the_prompts_that_are_left_are_divided_anew(runs, tmp_path):
    """Saved on 3 searchers, resumed on 2 and on 1, several epochs of few prompts long."""
    states = [checkpoint.state().prompts for checkpoint in checkpoints(runs["fewer searchers"])]
    assert [len(state.taken) for state in states] == [3, 2, 1]
    order, expected = PromptOrder.of(states[0].size, SEED), []
    for state in states:
        shares = [order.share(i, len(state.taken)).take(n) for i, n in enumerate(state.taken)]
        expected += chain(*shares)
        order = order.after(state.taken)
    _, trajectories = held_in(checkpoints(runs["fewer searchers"])[-1], tmp_path / "held")
    assert sorted(chain(*prompts_by_searcher(trajectories, 3))) == sorted(expected)
    assert len(expected) > states[0].size


def test_what_a_run_leaves_behind_when_it_goes_back_is_set_aside(runs):
    """It had ended after step 10 and went on from its checkpoint of step 4."""
    names = sorted(path.name for path in (runs["died"] / "checkpoints").iterdir())
    aside = [name for name in names if name.endswith(".set-aside")]
    assert "step_00000010.set-aside" in aside
    assert sorted(set(names) - set(aside)) == ["step_00000004", "step_00000010"]


def test_a_checkpoint_holds_the_policy_in_hugging_face_format(runs):
    *_, last = checkpoints(runs["broken"])
    saved, final = load_file(last.policy / "model.safetensors"), weights(runs["broken"])
    assert saved.keys() == final.keys()
    assert all(torch.equal(tensor, final[name]) for name, tensor in saved.items())
    assert (last.policy / "tokenizer.json").exists()
