import json

import pytest

from tba_hpc.accuracy import Accuracy, MeanShare
from tba_hpc.evaluator import EvaluationRecord, GradedResponse
from tba_hpc.tally import Tally


def response(correct, extracted="7", tokens=3, finished=True):
    return GradedResponse("text", float(correct), correct, extracted, "", tokens, finished)


def record(greedy, *samples):
    return EvaluationRecord(0, "prompt", (), "7", greedy, samples)


def tally(ks, *records):
    tally = Tally(ks)
    for one in records:
        tally.add(one)
    return tally


RIGHT, WRONG, NONE = response(True), response(False, "8"), response(False, None)


def test_greedy_answers_are_counted():
    summary = tally((), record(RIGHT), record(WRONG), record(response(True, tokens=9, finished=False))).summary()
    assert summary.accuracy == Accuracy(2, 3)
    assert summary.mean_response_length == 5
    assert summary.finished_fraction == pytest.approx(2 / 3)
    assert (summary.pass_at, summary.majority_at) == ({}, {})
    assert len(summary.lines()) == 1
    assert summary.lines()[0].startswith("66.7% of 3 problems right, greedily (95% interval 20.8% to 93.9%)")


def test_samples_are_averaged_over_problems():
    """Greedy answers are not among them."""
    summary = tally(
        (1, 2, 4),
        record(WRONG, RIGHT, WRONG, NONE, RIGHT),
        record(RIGHT, WRONG, WRONG, RIGHT, NONE),
        record(RIGHT, NONE, NONE, NONE, NONE),
    ).summary()
    assert summary.accuracy == Accuracy(2, 3)
    assert summary.pass_at == {
        1: MeanShare.of([1 / 2, 1 / 4, 0]),
        2: MeanShare.of([1 - 1 / 6, 1 - 3 / 6, 0]),
        4: MeanShare.of([1, 1, 0]),
    }
    assert summary.majority_at == {
        1: MeanShare.of([1 / 2, 1 / 4, 0]),
        2: MeanShare.of([1, 1 / 2, 0]),
        4: MeanShare.of([1, 0, 0]),
    }


def test_without_answers_to_vote_for_there_is_no_majority():
    summary = tally((1, 2), record(RIGHT, NONE, NONE), record(RIGHT, response(True, None), NONE)).summary()
    assert summary.majority_at == {}
    assert summary.pass_at[2].share == 0.5


def test_the_summary_for_people_and_the_one_for_programs_say_the_same():
    summary = tally((1, 2), record(RIGHT, RIGHT, WRONG), record(RIGHT, RIGHT, RIGHT)).summary()
    values = json.loads(json.dumps(summary.to_json()))
    assert list(values["pass_at_k"]) == list(values["majority_at_k"]) == ["1", "2"]
    assert values["pass_at_k"]["1"] == {"share": 0.75, "interval": list(summary.pass_at[1].interval)}
    assert (values["accuracy"], values["interval"]) == (1.0, list(summary.accuracy.interval))
    assert (values["problems"], values["mean_response_tokens"], values["finished_fraction"]) == (2, 3.0, 1.0)
    low, high = summary.pass_at[1].interval
    assert summary.lines()[1:] == [
        f"pass@1: 75.0% (95% interval {low:.1%} to {high:.1%})",
        "pass@2: 100.0% (95% interval 34.2% to 100.0%)",
        f"maj@1: 75.0% (95% interval {low:.1%} to {high:.1%})",
        "maj@2: 100.0% (95% interval 34.2% to 100.0%)",
    ]
