"""Runs whose reference policy moves, with and without a fixed lag. All share one start of four ranks."""

import json

import pytest
import torch
from attempts import planned
from written import metrics, weights

from tba_hpc.checkpoint import verify_checkpoint
from tba_hpc.checkpoint_folder import list_checkpoints

STEPS, RESET = 10, 4
COMMON = [
    "task.name=lengths",
    f"trainer.steps={STEPS}",
    "trainer.sync_every=2",
    "trainer.learning_rate.value=0.01",
    "evaluation.problems=8",
    "checkpoint.keep_last=100",
]
MOVING = [f"reference.reset_every={RESET}"]
SYNCHRONOUS = [*MOVING, "schedule=synchronous"]
LAG = [*MOVING, "schedule=fixed_lag", "trainer.lag=4", "evaluation.every_steps=4"]
DROP = [*MOVING, "reference.stale=drop", "buffer.start_size=24"]
BOUNDS = ["objective.importance_ratio=[0, 8]", "objective.log_ratio_limit=10"]
RUNS = {
    "fixed": [(3, [], {})],
    "synchronous": [(3, SYNCHRONOUS, {})],
    "broken": [(3, SYNCHRONOUS, {"leave_after": 6}), (3, SYNCHRONOUS, {})],
    "asynchronous": [(3, [*MOVING, "evaluation.every_steps=4"], {"leave_after": 7}), (4, MOVING, {})],
    "two trainers": [(4, [*MOVING, "distributed.trainers=2"], {})],
    "drop": [(3, DROP, {})],
    "lag": [(4, [*LAG, *BOUNDS], {})],
    "evaluated": [(3, [*LAG, "trainer.steps=14"], {})],
    "lag, broken": [(3, LAG, {"leave_after": 6}), (4, LAG, {})],
}


@pytest.fixture(scope="module")
def runs(run_mpi, tiny_run, tmp_path_factory):
    """The run_dir of each run."""
    folder = tmp_path_factory.mktemp("moving")
    job = run_mpi("several_runs", 4, tiny_run, json.dumps(planned(RUNS, folder, COMMON)), seconds=280)
    assert job.code == 0, job.output
    return {name: folder / name for name in RUNS}


def evaluations(run_dir):
    file = run_dir / "evaluations.jsonl"
    return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []


@pytest.mark.parametrize("name", [name for name in RUNS if name not in ("fixed", "evaluated")])
def test_right_after_a_reset_the_loss_sees_no_difference_between_policy_and_reference(runs, name):
    """They are the same then, whoever sampled the batch and scored it at first: any older log π_ref would show."""
    ratios = {line["step"]: abs(line["objective/log_ratio"]) for line in metrics(runs[name])}
    after = [step for step in ratios if step > 1 and (step - 1) % RESET == 0]
    assert after == [5, 9]
    assert max(ratios[step] for step in after) < 1e-4
    assert min(ratios[step] for step in ratios if step > 1 and step not in after) > 1e-3
    assert [line["reference/version"] for line in metrics(runs[name])] == [0] * 4 + [4] * 4 + [8] * 2


def test_a_reference_that_stays_is_left_behind(runs):
    assert all(abs(line["objective/log_ratio"]) > 1e-3 for line in metrics(runs["fixed"])[1:])
    assert "reference/version" not in metrics(runs["fixed"])[0]


def test_searchers_score_with_the_new_reference_from_its_sync_on(runs):
    """In synchronous mode there is then nothing to score anew; with a lag, what the searchers were ahead."""
    assert {line["reference/rescored"] for line in metrics(runs["synchronous"])} == {0}
    rescored = [line["reference/rescored"] for line in metrics(runs["lag"])]
    assert rescored == [0, 0, 0, 0, 1, 1, 1, 1, 1, 1]


def test_dropping_leaves_nothing_to_score_anew(runs):
    lines = metrics(runs["drop"])
    assert {line["reference/rescored"] for line in lines} == {0}
    emptied = [line["step"] for line in lines if line["buffer/size"] == 0]
    assert emptied == [4, 8], "as the step ends; the next one waits for new data"


def test_a_run_goes_on_bit_for_bit_with_the_reference_it_had(runs):
    """Saved after step 6 with the policy of step 4 for a reference."""
    states = [verify_checkpoint(path).state() for path in list_checkpoints(runs["broken"] / "checkpoints")]
    assert [(state.step, state.reference_version) for state in states] == [(10, 8), (6, 4)]
    expected = weights(runs["synchronous"])
    assert all(torch.equal(tensor, expected[name]) for name, tensor in weights(runs["broken"]).items())


def test_with_a_fixed_lag_every_batch_is_exactly_so_stale(runs):
    """After a start the searchers have but one set of weights to be ahead with."""
    for name, expected in {
        "lag": [0, 1, 2, 3, 4, 5, 4, 5, 4, 5],
        "lag, broken": [0, 1, 2, 3, 4, 5, 0, 1, 2, 3],
    }.items():
        lines = metrics(runs[name])
        assert [line["staleness/mean"] for line in lines] == [line["staleness/max"] for line in lines] == expected


def test_searchers_evaluate_the_weights_of_the_steps_that_are_due(runs):
    """A run may be over before the last ones are done. In lockstep one is done before newer weights are in use, for
    which the trainer waits at the sync after that."""
    for name in ("lag", "asynchronous"):
        found = evaluations(runs[name])
        assert {line["step"] for line in found} <= {4, 8}
        assert all(line["problems"] == 8 and 0 <= line["accuracy"] <= 1 for line in found)
    assert [(line["step"], line["late"]) for line in evaluations(runs["evaluated"])][:2] == [(4, 0), (8, 0)]
