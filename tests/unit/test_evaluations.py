import numpy as np

from tba_hpc.accuracy import Accuracy
from tba_hpc.distributed.round import HEADER
from tba_hpc.evaluations import Evaluation, Evaluations


def headers(*searchers):
    """(asked for at, made with, correct, problems) of each."""
    result = np.zeros(len(searchers), HEADER)
    names = ("evaluation", "evaluation_version", "evaluation_correct", "evaluation_problems")
    for row, values in zip(result, searchers, strict=True):
        for name, value in zip(names, values, strict=True):
            row[name] = value
    return result


NONE = (0, 0, 0, 0)


def test_the_shares_of_all_searchers_add_up():
    evaluations = Evaluations()
    assert evaluations.update(headers(NONE, NONE)) == []
    assert evaluations.update(headers((4, 4, 3, 5), NONE)) == []
    found = evaluations.update(headers((4, 4, 3, 5), (4, 6, 1, 4)))
    assert found == [Evaluation(4, Accuracy(4, 9), late=2)]
    assert found[0].to_json()["accuracy"] == 4 / 9
    assert evaluations.update(headers((4, 4, 3, 5), (4, 6, 1, 4))) == [], "told once"


def test_a_searcher_that_is_ahead_takes_nothing_away():
    evaluations = Evaluations()
    evaluations.update(headers((4, 4, 3, 5), NONE))
    assert evaluations.update(headers((8, 8, 5, 5), (4, 4, 0, 4))) == [Evaluation(4, Accuracy(3, 9), late=0)]
    assert evaluations.update(headers((8, 8, 5, 5), (8, 8, 4, 4))) == [Evaluation(8, Accuracy(9, 9), late=0)]


def test_one_that_was_passed_over_is_given_up_with_a_warning(caplog):
    evaluations = Evaluations()
    evaluations.ask(4)
    evaluations.ask(8)
    evaluations.update(headers((4, 4, 3, 5), NONE))
    assert evaluations.update(headers((8, 8, 5, 5), (8, 8, 4, 4))) == [Evaluation(8, Accuracy(9, 9), late=0)]
    assert evaluations.update(headers((8, 8, 5, 5), (4, 4, 0, 4))) == []
    assert caplog.messages == ["the evaluation of step 4 was passed over, as the next one was due already"]


def test_what_the_end_of_the_run_cuts_off_is_said(caplog):
    evaluations = Evaluations()
    for step in (4, 8, 12):
        evaluations.ask(step)
    evaluations.update(headers((4, 4, 3, 5), (4, 4, 1, 4)))
    evaluations.update(headers((8, 8, 5, 5), (4, 4, 1, 4)))
    evaluations.give_up()
    assert caplog.messages == [f"the evaluation of step {step} was not finished when the run ended" for step in (8, 12)]
