import io
import json
from pathlib import Path

import pytest
from rich.console import Console

from tba_hpc.eval_command import EvalOptions, recorded, run_eval
from tba_hpc.evaluator import EvaluationRecord, GradedResponse
from tba_hpc.settings import ConfigError

CHECKPOINT = str(Path(__file__).parents[2] / "configs" / "checkpoints" / "arithmetic_sft")


def options(**changes):
    values = {
        "checkpoint": CHECKPOINT,
        "task": {"name": "arithmetic"},
        "split": "test",
        "problems": 5,
        "batch_size": 8,
        "max_response_tokens": None,
        "stop": [],
        "dtype": "float32",
        "samples": 0,
        "temperature": None,
        "top_p": None,
        "seed": 0,
        "k": None,
        "output": None,
        "overwrite": False,
        "as_json": False,
    }
    return EvalOptions.model_validate(values | changes)


def run(**changes):
    """What the command prints."""
    output = io.StringIO()
    run_eval(options(**changes), Console(file=output), Console(file=io.StringIO()))
    return output.getvalue()


@pytest.mark.parametrize(
    ("changes", "ks"),
    [
        ({}, ()),
        ({"samples": 1}, (1,)),
        ({"samples": 16}, (1, 2, 4, 8, 16)),
        ({"samples": 10}, (1, 2, 4, 8, 10)),
        ({"samples": 10, "k": (5, 3, 5)}, (3, 5)),
    ],
)
def test_k_is_as_asked_for_or_powers_of_two(changes, ks):
    assert options(**changes).ks == ks


def test_without_a_bound_on_responses_a_small_model_keeps_half_of_its_positions_for_the_prompt():
    assert json.loads(run(as_json=True))["max_response_tokens"] == 16


def test_samples_at_a_low_temperature_are_nearly_the_greedy_answers():
    values = json.loads(run(as_json=True, problems=40, batch_size=64, samples=3, temperature=1e-3))
    assert 0 < values["accuracy"] < 1
    for share in (*values["pass_at_k"].values(), *values["majority_at_k"].values()):
        assert share["share"] == values["accuracy"]
        assert share["interval"] == pytest.approx(values["interval"])


def test_the_page_for_people_is_a_line_a_number():
    lines = run(samples=2).splitlines()
    assert [line.split(":")[0] for line in lines[2:]] == ["pass@1", "pass@2", "maj@1", "maj@2"]
    assert lines[0] == "task arithmetic, test split"
    assert "of 5 problems right, greedily" in lines[1]


def test_the_same_seed_gives_the_same_file(tmp_path):
    for name, seed in [("one", 0), ("again", 0), ("other", 1)]:
        run(output=tmp_path / name, problems=2, samples=12, seed=seed)
    one, again, other = ((tmp_path / name).read_text() for name in ("one", "again", "other"))
    assert one == again != other
    first = json.loads(one.splitlines()[0])
    assert (first["id"], len(first["samples"]), len(one.splitlines())) == (0, 12, 2)


def test_a_text_to_stop_at_reaches_the_engine():
    with pytest.raises(ConfigError, match=r"stop = \['\+'\]"):
        run(stop=["+"])


def test_a_file_that_is_there_is_kept_unless_told_otherwise(tmp_path):
    file = tmp_path / "answers.jsonl"
    file.write_text("mine\n" * 9)
    with pytest.raises(ConfigError, match=r"answers.jsonl' exists: give another file, or --overwrite"):
        run(output=file)
    assert file.read_text() == "mine\n" * 9
    run(output=file, overwrite=True)
    assert [json.loads(line)["id"] for line in file.read_text().splitlines()] == [0, 1, 2, 3, 4]


def test_a_mistake_leaves_no_file(tmp_path):
    with pytest.raises(ConfigError, match="leaves no room for a prompt"):
        run(output=tmp_path / "answers.jsonl", max_response_tokens=32)
    with pytest.raises(ConfigError, match="max_prompt_tokens"):
        run(output=tmp_path / "answers.jsonl", max_response_tokens=28)
    assert list(tmp_path.iterdir()) == []


def test_a_record_is_in_the_file_before_the_next_one_is_waited_for(tmp_path):
    """So an evaluation that is killed keeps its lines."""
    file = tmp_path / "answers.jsonl"
    record = EvaluationRecord(3, "π = ", (), "3", GradedResponse("3", 1.0, True, "3", "equal", 1, True))

    def dying():
        yield record
        assert [json.loads(line)["prompt"] for line in file.read_text(encoding="utf-8").splitlines()] == ["π = "]
        raise RuntimeError("killed")

    with pytest.raises(RuntimeError, match="killed"):
        list(recorded(dying(), file))
    assert len(file.read_text(encoding="utf-8").splitlines()) == 1
    assert list(recorded(iter([record]), None)) == [record]
