import json
import math

import numpy as np
import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from tba_hpc.metrics import MetricsWriter
from tba_hpc.run_dir import RunDir


@pytest.fixture
def writer(tmp_path):
    writer = MetricsWriter(RunDir(tmp_path))
    yield writer
    writer.close()


def lines(tmp_path):
    return [json.loads(line) for line in (tmp_path / "metrics.jsonl").read_text().splitlines()]


def test_each_step_is_on_disk_as_soon_as_it_is_written(writer, tmp_path):
    for step in (1, 2, 3):
        writer.scalars(step, {"a/b": step / 2, "c": 3})
        assert [line["step"] for line in lines(tmp_path)] == list(range(1, step + 1))
    assert lines(tmp_path)[-1].items() >= {"step": 3, "a/b": 1.5, "c": 3}.items()
    assert "time" in lines(tmp_path)[0]


def test_numbers_of_numpy_are_written_too(writer, tmp_path):
    writer.scalars(1, {"a": np.float32(0.5), "b": np.int64(3)})
    assert lines(tmp_path)[0].items() >= {"a": 0.5, "b": 3}.items()


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_what_is_not_finite_is_null_as_json_has_no_word_for_it(writer, tmp_path, value):
    writer.scalars(1, {"a": value, "b": 1.0})
    text = (tmp_path / "metrics.jsonl").read_text()
    assert json.loads(text, parse_constant=pytest.fail)["a"] is None


def test_tensorboard_holds_scalars_histograms_and_texts(writer, tmp_path):
    writer.scalars(4, {"x/y": 0.25})
    writer.histogram(4, "ages", [0, 1, 1, 5])
    writer.text(4, "sample", "**bold**")
    writer.close()
    log = EventAccumulator(str(tmp_path / "tensorboard"))
    log.Reload()
    assert [(event.step, event.value) for event in log.Scalars("x/y")] == [(4, 0.25)]
    assert log.Histograms("ages")[0].histogram_value.num == 4
    assert b"**bold**" in log.Tensors("sample/text_summary")[0].tensor_proto.string_val[0]


def test_of_a_run_that_goes_on_tensorboard_shows_each_step_once(writer, tmp_path):
    """The first attempt died after step 5, and its newest checkpoint was of step 3."""
    for step in range(1, 6):
        writer.scalars(step, {"a": step})
        writer.histogram(step, "ages", [step])
    writer.close()
    second = MetricsWriter(RunDir(tmp_path), steps_done=3)
    for step in range(4, 8):
        second.scalars(step, {"a": -step})
        second.histogram(step, "ages", [step])
    second.close()
    log = EventAccumulator(str(tmp_path / "tensorboard"), size_guidance={"histograms": 0})
    log.Reload()
    assert [(event.step, event.value) for event in log.Scalars("a")] == [
        (1, 1), (2, 2), (3, 3), (4, -4), (5, -5), (6, -6), (7, -7)
    ]  # fmt: skip
    assert [event.step for event in log.Histograms("ages")] == list(range(1, 8))


def test_a_run_that_died_before_its_first_step_was_saved_shows_each_step_once(writer, tmp_path):
    writer.scalars(1, {"a": 1})
    writer.close()
    second = MetricsWriter(RunDir(tmp_path))
    second.scalars(1, {"a": -1})
    second.close()
    log = EventAccumulator(str(tmp_path / "tensorboard"))
    log.Reload()
    assert [(event.step, event.value) for event in log.Scalars("a")] == [(1, -1)]


def test_a_writer_goes_on_where_another_ended(writer, tmp_path):
    writer.scalars(1, {"a": 1})
    second = MetricsWriter(RunDir(tmp_path), steps_done=1)
    second.scalars(2, {"a": 2})
    second.close()
    assert [line["step"] for line in lines(tmp_path)] == [1, 2]
