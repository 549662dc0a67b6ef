"""`tba-hpc train` from end to end: two runs side by side, of 1 trainer with 3 searchers and of 2 with 2."""

import json
import math
import re
import sys

import pytest
import torch
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from transformers import AutoModelForCausalLM, AutoTokenizer

from tba_hpc.config import load_run_config

STEPS = 6
AWKWARD = 'a run\'s $HOME "quoted" & 1;2'
EVALUATED = 8


def command(config, *words):
    return [sys.executable, "-m", "tba_hpc", "train", str(config), *map(str, words)]


@pytest.fixture(scope="module")
def finished(start, tiny_run, tiny_reference, tmp_path_factory):
    """(job, run_dir) by number of trainers."""
    folder = tmp_path_factory.mktemp("runs")
    common = ["--ranks", 4, f"model.reference={tiny_reference}", f"trainer.steps={STEPS}"]
    plan = {1: (folder / AWKWARD, []), 2: (folder / "two", ["distributed.trainers=2", "trainer.max_reuse=4"])}
    jobs = {
        trainers: (start(command(tiny_run, *common, f"run_dir={json.dumps(str(run_dir))}", *overrides)), run_dir)
        for trainers, (run_dir, overrides) in plan.items()
    }
    return {trainers: (job.result(180), run_dir) for trainers, (job, run_dir) in jobs.items()}


@pytest.fixture(params=[1, 2], ids=["1 trainer", "2 trainers"])
def run_dir(request, finished):
    job, run_dir = finished[request.param]
    assert job.code == 0, job.output
    return run_dir


def metrics_of(run_dir):
    return [json.loads(line) for line in (run_dir / "metrics.jsonl").read_text().splitlines()]


def test_report_tells_what_the_run_was(run_dir, finished):
    report = json.loads((run_dir / "report.json").read_text())
    trainers = next(n for n, (_, folder) in finished.items() if folder == run_dir)
    assert (report["trainers"], report["searchers"]) == (trainers, 4 - trainers)
    assert (report["steps"], report["problems"]) == (STEPS, EVALUATED)
    assert report["trajectories_received"] >= 48
    for when in ("before", "after"):
        low, high = report[f"interval_{when}"]
        assert 0 <= low <= report[f"accuracy_{when}"] <= high <= 1
    assert 0 < report["train_seconds"] <= report["total_seconds"]


def test_the_outcome_is_printed(finished):
    for job, run_dir in finished.values():
        assert f"step {STEPS}/{STEPS}" in job.stdout
        assert f"final model, metrics and logs: {run_dir}" in job.stdout
        assert "Traceback" not in job.output


EXPECTED_KEYS = """
    step time batch/reward batch/recent staleness/mean staleness/max objective/loss schedule/beta schedule/learning_rate
    optimizer/grad_norm optimizer/tokens buffer/size buffer/on_disk rollout/reward rollout/accuracy
    rollout/response_tokens throughput/trajectories_per_second searcher/busy trainer/busy trainer/sync_seconds
"""


def test_metrics_are_complete_finite_and_in_order(run_dir):
    steps = metrics_of(run_dir)
    assert [step["step"] for step in steps] == list(range(1, STEPS + 1))
    assert [step["time"] for step in steps] == sorted(step["time"] for step in steps)
    for step in steps:
        assert set(EXPECTED_KEYS.split()) <= step.keys()
        assert all(isinstance(value, int | float) and math.isfinite(value) for value in step.values()), step
        assert 0 <= step["staleness/mean"] <= step["staleness/max"] < step["step"]
        assert step["buffer/size"] <= step["buffer/received"]


def test_learning_from_a_trajectory_more_often_than_max_reuse_allows_makes_the_trainer_wait(finished):
    _, run_dir = finished[2]
    for step in metrics_of(run_dir):
        assert step["buffer/received"] >= step["step"] * 16 / 4


def test_tensorboard_shows_the_same_numbers(run_dir):
    log = EventAccumulator(str(run_dir / "tensorboard"), size_guidance={"scalars": 0, "histograms": 0, "tensors": 0})
    log.Reload()
    steps = metrics_of(run_dir)
    for name in steps[-1].keys() - {"step", "time"}:
        events = {event.step: event.value for event in log.Scalars(name)}
        expected = {step["step"]: step[name] for step in steps if name in step}
        assert events == pytest.approx(expected, rel=1e-5), name
    assert [event.step for event in log.Histograms("staleness")] == [2, 4, 6]
    assert {"samples/0/text_summary", "samples/1/text_summary"} <= set(log.Tags()["tensors"])


def test_the_configuration_that_was_used_loads_again(run_dir, tiny_run):
    config = load_run_config(run_dir / "config.yaml", [])
    assert config.run_dir == run_dir
    assert config.trainer.steps == STEPS
    trainers = config.distributed.trainers
    reference = f"model.reference={config.model.reference}"
    reuse = ["trainer.max_reuse=4"] if trainers == 2 else []
    again = [f"run_dir={json.dumps(str(run_dir))}", f"distributed.trainers={trainers}", reference, *reuse]
    assert config == load_run_config(tiny_run, again)


def test_the_final_model_loads_and_has_learned(run_dir, tiny_model):
    model = AutoModelForCausalLM.from_pretrained(run_dir / "final")
    tokenizer = AutoTokenizer.from_pretrained(run_dir / "final")
    assert tokenizer("1+2=")["input_ids"] == AutoTokenizer.from_pretrained(tiny_model)("1+2=")["input_ids"]
    start = dict(AutoModelForCausalLM.from_pretrained(tiny_model).named_parameters())
    moved = {name: (value - start[name]).abs().max().item() for name, value in model.named_parameters()}
    assert all(torch.isfinite(value).all() for value in model.parameters())
    assert min(moved.values()) > 0
    assert max(moved.values()) < 10 * STEPS * 0.001


def test_every_rank_has_a_log_of_its_own(run_dir):
    logs = sorted(file.name for file in (run_dir / "logs").iterdir())
    assert logs == [f"rank_{rank}.attempt_1.log" for rank in range(4)]
    for rank, name in enumerate(logs):
        text = (run_dir / "logs" / name).read_text()
        assert re.search(rf"(trainer|searcher) \d \(rank {rank}\) INFO", text)
        assert text.rstrip().endswith("done")


def test_a_second_run_into_the_same_folder_is_refused(start, tiny_run, finished):
    _, run_dir = finished[1]
    before = (run_dir / "metrics.jsonl").read_text()
    job = start(command(tiny_run, "--ranks", 2, f"run_dir={json.dumps(str(run_dir))}")).result(120)
    assert job.code == 2
    assert job.output.count(f"run_dir = {str(run_dir)!r} already holds a run") == 1
    assert "--overwrite" in job.output
    assert "Traceback" not in job.output
    assert (run_dir / "metrics.jsonl").read_text() == before
