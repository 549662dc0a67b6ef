"""Synchronous mode, where nothing depends on who was faster. All runs share one start of four ranks."""

import json

import pytest
import torch
from safetensors.torch import load_file
from written import metrics, weights

STEPS = 5
RUNS = {
    "plain": (3, []),
    "again": (3, []),
    "spilling": (3, ["buffer.memory_limit=2kB"]),
    "two trainers": (4, ["distributed.trainers=2"]),
    "long evaluation": (4, ["distributed.trainers=2", "task.name=slow", "evaluation.problems=4"]),
}
COMMON = [
    "schedule=synchronous",
    "task.name=lengths",
    f"trainer.steps={STEPS}",
    "trainer.sync_every=2",
    "evaluation.problems=0",
    "distributed.timeout_seconds=60",
]
IMPATIENT = ["distributed.timeout_seconds=5"]


@pytest.fixture(scope="module")
def runs(run_mpi, tiny_run, tmp_path_factory):
    """The run_dir of each run."""
    folder = tmp_path_factory.mktemp("synchronous")
    plan = [
        {
            "ranks": ranks,
            "run_dir": str(folder / name),
            "overrides": [*COMMON, *overrides, *(IMPATIENT if name == "long evaluation" else [])],
        }
        for name, (ranks, overrides) in RUNS.items()
    ]
    job = run_mpi("several_runs", 4, tiny_run, json.dumps(plan), seconds=200)
    assert job.code == 0, job.output
    return {name: folder / name for name in RUNS}


def same(a, b):
    return a.keys() == b.keys() and all(torch.equal(a[name], b[name]) for name in a)


@pytest.mark.parametrize("name", RUNS)
def test_what_is_learned_from_was_sampled_since_the_last_sync(runs, name):
    steps = metrics(runs[name])
    assert [step["staleness/max"] for step in steps] == [0, 1, 0, 1, 0]
    assert [step["staleness/mean"] for step in steps] == [0, 1, 0, 1, 0]


def test_training_changes_the_weights(runs, tiny_model):
    assert not same(weights(runs["plain"]), load_file(tiny_model / "model.safetensors"))


def test_the_same_configuration_gives_the_same_weights_bit_for_bit(runs):
    assert same(weights(runs["plain"]), weights(runs["again"]))


def test_spilling_to_disk_makes_no_difference(runs):
    assert same(weights(runs["plain"]), weights(runs["spilling"]))
    assert metrics(runs["spilling"])[-1]["buffer/on_disk"] > 0
    assert metrics(runs["plain"])[-1]["buffer/on_disk"] == 0


def test_two_trainers_take_the_step_that_one_would(runs):
    one, two = (metrics(runs[name])[0] for name in ("plain", "two trainers"))
    assert 0 < one["rollout/reward"] == two["rollout/reward"]
    for name in ("objective/loss", "optimizer/grad_norm"):
        assert one[name] == pytest.approx(two[name], rel=1e-4), name
    assert one["optimizer/tokens"] == two["optimizer/tokens"]


def test_an_evaluation_may_take_longer_than_any_other_wait(runs):
    """The other trainer and the searchers wait for it, before training and at the end."""
    report = json.loads((runs["long evaluation"] / "report.json").read_text())
    assert report["problems"] == 4
    assert same(weights(runs["two trainers"]), weights(runs["long evaluation"]))
