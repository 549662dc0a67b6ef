"""The measurements of recipes, on runs that never were."""

import json

import measure_countdown
import pytest
from recipe_runs import RecipeRun, parser, print_summary


@pytest.fixture
def runs(tmp_path):
    """Two finished runs; every third step nothing arrived."""
    made = []
    for seed in (3, 4):
        run_dir = tmp_path / f"seed{seed}"
        run_dir.mkdir()
        lines = [{"step": i, "time": 100.0 + i / 2, "rollout/accuracy": i / 30} for i in range(1, 31)]
        for line in lines[::3]:
            del line["rollout/accuracy"]
        lines[1]["rollout/accuracy"] = None
        (run_dir / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
        report = {"accuracy_before": 0.5, "accuracy_after": 0.5 + seed / 20, "train_seconds": 10.0 * seed}
        made.append(RecipeRun(seed, run_dir, report))
    return made


def test_the_summary_is_one_line_of_json(runs, capsys):
    print_summary("name", runs)
    summary = json.loads(capsys.readouterr().out)
    assert (summary["benchmark"], summary["seeds"]) == ("name", [3, 4])
    expected = {"gain_points/mean": 17.5, "gain_points/min": 15, "train_seconds/mean": 35}
    assert summary["metrics"] == pytest.approx(expected)


def test_overrides_may_stand_among_the_options():
    words = parser(None, "runs/there").parse_intermixed_args(["trainer.steps=5", "--seeds", "7", "--ranks", "2"])
    assert (words.seeds, words.ranks, words.overrides, str(words.folder)) == ([7], 2, ["trainer.steps=5"], "runs/there")


def test_a_curve_has_the_steps_in_which_responses_arrived(runs):
    steps, seconds, accuracy = measure_countdown.rollout_accuracy(runs[0].run_dir)
    assert steps == [i for i in range(3, 31) if i % 3 != 1]
    assert seconds == [(i - 3) / 2 for i in steps]
    assert accuracy == [i / 30 for i in steps]


def test_smoothing_is_the_mean_of_the_last_values():
    assert measure_countdown.smoothed([4.0, 8.0]) == [4, 6]
    assert measure_countdown.smoothed([9.0] + [0.0] * 9)[-2:] == [1, 0]


def test_a_plot_is_a_picture(runs, tmp_path):
    measure_countdown.plot(runs, tmp_path / "plot.png")
    assert (tmp_path / "plot.png").read_bytes().startswith(b"\x89PNG")
