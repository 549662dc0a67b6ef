import io
import math

import pytest
import yaml
from comparison_cases import write_run
from rich.console import Console
from tiny import tiny_settings

from tba_hpc.compare.plan import plan, variants
from tba_hpc.compare.results import Point, read_result
from tba_hpc.compare.summary import Mean, default_target, summarise, table, to_json


@pytest.fixture
def results(tmp_path):
    """Two seeds; the synchronous runs take four times as long, and one of them does not reach 0.6."""
    settings = tiny_settings("model", "run")
    settings["evaluation"]["every_steps"] = 2
    (tmp_path / "run.yaml").write_text(yaml.safe_dump(settings))
    compared = variants(["tb_vargrad"], ["asynchronous", "synchronous"])
    runs = plan(tmp_path / "run.yaml", compared, [0, 1], tmp_path / "runs", 4, [])
    curves = [{0: 0.2, 2: 0.4, 4: 0.8}, {0: 0.2, 2: 0.4, 4: 0.6}, {0: 0.2, 2: 0.6, 4: 0.7}, {0: 0.2, 2: 0.3, 4: 0.5}]
    for run, curve in zip(runs, curves, strict=True):
        write_run(run, curve, 4.0 if run.variant.schedule == "synchronous" else 1.0)
    return [read_result(run) for run in runs]


def test_a_curve_goes_from_before_the_first_step_to_after_the_last(results):
    assert results[0].curve == (Point(0, 0.0, 0, 0.2), Point(2, 2.0, 20, 0.4), Point(4, 4.0, 40, 0.8))
    assert results[1].curve[-1] == Point(4, 16.0, 40, 0.6)
    assert (results[0].tokens, results[0].kl, results[0].unique_share) == (5e6, 0.5, 0.75)


@pytest.mark.parametrize(
    ("target", "seconds"), [(0.1, 0.0), (0.2, 0.0), (0.3, 1.0), (0.4, 2.0), (0.6, 3.0), (0.8, 4.0), (0.81, None)]
)
def test_the_time_to_a_target_lies_on_the_lines_between_evaluations(results, target, seconds):
    assert results[0].seconds_to(target) == (seconds if seconds is None else pytest.approx(seconds))


def test_variants_are_summed_up_over_seeds(results):
    first, second = summarise(results, 0.55)
    assert first.variant.schedule == "asynchronous"
    assert (first.seeds, first.reached, second.reached) == (2, 2, 1)
    assert first.accuracy.value == pytest.approx(0.75)
    assert second.seconds_to_target is None
    assert first.seconds_to_target.value == pytest.approx((2.75 + 1.75) / 2)
    # Student's t with one degree of freedom: 12.706 · s / √2, s = 0.05 · √2
    assert first.accuracy.half_width == pytest.approx(12.706 * 0.05, rel=1e-6)


def test_the_target_is_what_the_least_accurate_variant_ends_with(results):
    assert default_target(results) == pytest.approx(0.55)


def test_a_single_seed_has_no_interval():
    assert Mean.of([3.0]) == Mean(3.0, None)
    assert Mean.of([3.0]).show(".1f") == "3.0"
    assert Mean.of([1.0] * 30 + [2.0] * 30).half_width == pytest.approx(1.96 * 0.504219 / math.sqrt(60), rel=1e-4)


def test_the_table_and_the_file_tell_the_same(results):
    summaries = summarise(results, 0.55)
    output = io.StringIO()
    Console(file=output, width=160).print(table(summaries, 0.55))
    text = output.getvalue()
    for words in ("seconds to 55.0%", "75.0 ± 63.5", "reached by 1 of 2", "synchronous", "2 seeds"):
        assert words in text, text
    values = to_json(summaries, results, 0.55)
    assert values["variants"]["tb_vargrad:asynchronous"]["accuracy"]["value"] == pytest.approx(0.75)
    assert values["variants"]["tb_vargrad:synchronous"]["seconds_to_target"] is None
    assert len(values["runs"]) == 4
    assert values["runs"][0]["curve"][1]["seconds"] == 2.0
