from pathlib import Path

import pytest

from tba_hpc.launch.sweep import sweep_points
from tba_hpc.settings import ConfigError

PARENT = Path("/runs/x")


def run_dirs(grid):
    return [str(Path(point["run_dir"]).relative_to(PARENT)) for point in sweep_points(grid, PARENT)]


def test_every_combination_comes_up_in_order():
    points = sweep_points({"trainer.steps": [5, 6], "seed": [1, 2]}, PARENT)
    assert [(point["trainer.steps"], point["seed"]) for point in points] == [(5, 1), (5, 2), (6, 1), (6, 2)]


def test_a_folder_is_named_after_its_settings():
    grid = {"trainer.learning_rate.peak": [1.5e-4], "objective.beta": [{"kind": "constant", "value": 0.05}]}
    assert run_dirs(grid) == ["peak=0.00015,beta=kind_constant_value_0.05"]


def test_settings_of_one_name_are_told_apart_by_their_path():
    assert run_dirs({"model.path": ["a/b"], "task.path": ["c"]}) == ["model.path=a_b,task.path=c"]


@pytest.mark.parametrize(
    ("grid", "message"),
    [
        ({}, "the grid of a sweep is empty"),
        ({"seed": []}, r"grid seed = \[\]: give a list of at least one value"),
        ({"task.name": "ab"}, "grid task.name = 'ab': give a list"),
        ({"run_dir": ["a"]}, "grid run_dir: each run of a sweep has a run_dir of its own"),
        ({"seed": [1, 2, 1]}, "two runs of the sweep would share run_dir = '/runs/x/seed=1'"),
        ({"model.path": ["a/b", "a b"]}, "would share run_dir = '/runs/x/path=a_b'"),
    ],
)
def test_a_grid_that_makes_no_sense_is_refused(grid, message):
    with pytest.raises(ConfigError, match=message):
        sweep_points(grid, PARENT)
