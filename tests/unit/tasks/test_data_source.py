import os
import subprocess
import sys

import datasets
import pytest
from pydantic import TypeAdapter

from tba_hpc.settings import ConfigError, Settings, validate
from tba_hpc.tasks.data_source import DataSource

pytestmark = pytest.mark.usefixtures("data_cache")
ROWS = [{"question": "What is 1+1?", "answer": "2"}, {"question": "Was sind 2+2 für Zahlen?", "answer": "4"}]
LOAD = """
import multiprocessing, os, sys
import datasets
from tba_hpc.tasks.data_source import DataSource

def load(barrier):
    barrier.wait(60)
    table = DataSource(path=sys.argv[1]).load("train")
    text = f"{len(table)} {table[len(table) - 1].text('question')}\\n"
    os.write(1, text.encode())  # at once: lines of several processes do not mix

fork = multiprocessing.get_context("fork")  # of a process without threads, once all is imported: quick
barrier = fork.Barrier(3)
jobs = [fork.Process(target=load, args=(barrier,)) for _ in range(3)]
for job in jobs:
    job.start()
for job in jobs:
    job.join()
sys.exit(max(job.exitcode for job in jobs))
"""


class Options(Settings):
    train: DataSource


def source(path, **more):
    return DataSource.model_validate({"path": str(path), **more})


def texts(table):
    return [(table[i].text("question"), table[i].text("answer")) for i in range(len(table))]


def expected():
    return [(row["question"], row["answer"]) for row in ROWS]


def test_a_string_stands_for_a_path():
    assert TypeAdapter(DataSource).validate_python("a.jsonl") == DataSource(path="a.jsonl")


def test_files_of_every_kind_hold_the_same(tmp_path, jsonl):
    rows = datasets.Dataset.from_list(ROWS)
    rows.to_parquet(tmp_path / "rows.parquet")
    rows.to_json(tmp_path / "rows.json", lines=False)
    for path in (jsonl(*ROWS), tmp_path / "rows.parquet", tmp_path / "rows.json"):
        table = source(path).load("test")
        assert texts(table) == expected()
        assert table.columns == ["question", "answer"]


def test_a_folder_laid_out_as_on_the_hub_has_splits(tmp_path):
    rows = datasets.Dataset.from_list(ROWS)
    rows.to_parquet(tmp_path / "hub" / "train-00000-of-00001.parquet")
    rows.select([1]).to_parquet(tmp_path / "hub" / "test-00000-of-00001.parquet")
    assert len(source(tmp_path / "hub").load("train")) == 2
    assert texts(source(tmp_path / "hub").load("test")) == expected()[1:]
    assert texts(source(tmp_path / "hub", split="train[:1]").load("test")) == expected()[:1]
    with pytest.raises(ConfigError, match=r"task\.options\.test: cannot load '.*hub' \(split 'dev'\) .* Unknown split"):
        source(tmp_path / "hub", split="dev").load("test")
    with pytest.raises(ConfigError, match=r"\(configuration 'main', split 'train'\).*'main' not found"):
        source(tmp_path / "hub", config="main").load("train")


def test_a_path_means_what_it_says_whatever_its_characters(tmp_path, jsonl):
    (tmp_path / "[a] *").mkdir()
    assert len(source(jsonl(*ROWS, name="[a] */{0} ?.jsonl")).load("train")) == 2


def test_a_file_that_has_changed_is_read_anew(jsonl):
    path = jsonl(*ROWS)
    assert len(source(path).load("train")) == 2
    jsonl(*ROWS, *ROWS)
    os.utime(path, (0, 0))
    assert len(source(path).load("train")) == 4


def test_numbers_are_texts_too_and_rows_of_both_fit(jsonl):
    table = source(jsonl({"answer": 72}, {"answer": "73"})).load("train")
    assert [table[i].text("answer") for i in range(2)] == ["72", "73"]


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("none.jsonl", "", "none.jsonl has no rows"),
        ("blank.jsonl", "\n\n", "blank.jsonl has no rows"),
        ("none.json", "[]", "none.json has no rows"),
        ("text.jsonl", "2+2\n", "cannot read {path}: JSON parse error"),
        ("cut.jsonl", '{"answer": "1"}\n{"ans', "cannot read {path}: JSON parse error"),
        ("text.parquet", "2+2", "cannot read {path}: Parquet file size is 3 bytes"),
        ("rows.csv", "question,answer\n", "{path} is a file of no known kind: give one of .jsonl, .json, .parquet"),
    ],
)
def test_a_file_that_cannot_be_used_is_named(tmp_path, name, content, message):
    path = tmp_path / name
    path.write_text(content)
    with pytest.raises(ConfigError) as caught:
        source(path).load("train")
    assert str(caught.value).startswith("task.options.train: ")
    assert message.format(path=path) in str(caught.value)


def test_a_missing_file_is_not_looked_for_on_the_hub():
    with pytest.raises(ConfigError, match=r"task\.options\.test: there is no file data/none\.jsonl$"):
        source("data/none.jsonl").load("test")


def test_a_hub_name_that_cannot_be_had_is_named_with_the_option_for_a_file():
    with pytest.raises(ConfigError) as caught:
        source("openai/gsm8k", config="main").load("test")
    message = str(caught.value)
    assert "cannot load 'openai/gsm8k' (configuration 'main', split 'test')" in message
    assert "task.options.test=/data/test.jsonl" in message


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"path": "a.jsonl", "split": "test"}, "a.jsonl is a file, which has no split: leave it out"),
        ({"path": "a.json", "config": "b", "revision": "c"}, "which has no config and no revision: leave it out"),
        ({"name": "openai/gsm8k"}, "task.options.train.path is missing"),
        ({"path": "openai/gsm8k", "subset": "main"}, "task.options.train.subset = 'main': no such setting"),
        ("", "task.options.train.path = '': String should have at least 1 character"),
        (5, "task.options.train = 5: Input should be a valid dictionary"),
    ],
)
def test_mistakes_in_a_source_are_named(values, message):
    with pytest.raises(ConfigError) as caught:
        validate(Options, {"train": values}, "options", "task.options.")
    assert message in str(caught.value)


def test_a_missing_column_is_named_with_those_there_are(jsonl):
    table = source(jsonl({"Question": "1+1?", "answer": "2"})).load("train")
    table.require("answer")
    with pytest.raises(ConfigError, match=r"rows\.jsonl has no column 'question'; did you mean 'Question'\?"):
        table.require("answer", "question")


def test_a_row_that_is_not_utf8_is_named(tmp_path):
    (tmp_path / "rows.jsonl").write_bytes(b'{"answer": "1"}\n{"answer": "\xff"}\n')
    table = source(tmp_path / "rows.jsonl").load("train")
    assert table[0].text("answer") == "1"
    with pytest.raises(ConfigError, match=r"rows\.jsonl: row 2 is not UTF-8: .*0xff"):
        table[1]


@pytest.mark.parametrize("value", [None, "", " \n", True, ["2"], {"value": "2"}])
def test_a_field_without_text_is_named_with_its_row(jsonl, value):
    table = source(jsonl({"answer": value}, {"answer": value})).load("train")
    with pytest.raises(ConfigError, match=r"task\.options\.train: .*rows\.jsonl: row 2: answer is .*, not a text"):
        table[1].text("answer")


def test_an_absent_field_may_be_asked_for(jsonl):
    table = source(jsonl({"answer": "2", "note": None}, {"answer": "", "note": "x"})).load("train")
    assert [(table[i].has("answer"), table[i].has("note"), table[i].has("solution")) for i in range(2)] == [
        (True, False, False),
        (False, True, False),
    ]


def test_many_processes_may_load_a_file_at_the_same_time(tmp_path, jsonl):
    """As the ranks of a node do; none of them shows a progress bar."""
    rows = [{"question": f"What is {i}+{i}?", "answer": str(2 * i)} for i in range(5000)]
    words = [sys.executable, "-c", LOAD, jsonl(*rows)]
    environment = os.environ | {"HF_DATASETS_CACHE": str(tmp_path / "shared"), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(words, env=environment, capture_output=True, text=True, timeout=250)
    assert (done.returncode, done.stdout) == (0, "5000 What is 4999+4999?\n" * 3), done.stderr
    assert "examples/s" not in done.stderr
    assert len(list((tmp_path / "shared").rglob("*.arrow"))) == 1
