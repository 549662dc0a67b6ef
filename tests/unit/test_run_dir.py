import logging

import pytest
import yaml

from tba_hpc.run_dir import RunDir
from tba_hpc.settings import ConfigError

PIECES = {
    "checkpoint": "checkpoints/step_00000010/state.json",
    "set aside": "checkpoints/step_00000020.set-aside/state.json",
    "metrics": "metrics.jsonl",
    "report": "report.json",
    "final": "final/config.json",
    "tensorboard": "tensorboard/events.out.tfevents.1.host",
    "buffer": "buffer/attempt_1/segment-00000000.h5",
    "log": "logs/rank_0.attempt_1.log",
}
RESULTS = ("checkpoint", "metrics", "report", "final", "buffer")


def write(folder, *pieces):
    for piece in pieces:
        file = folder / PIECES[piece]
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("{}")


def earlier_run(folder, *pieces):
    """A run that left so much; returns what is then in the folder."""
    RunDir(folder).prepare("a: 1\n", overwrite=False)
    write(folder, *pieces)
    return contents(folder)


def contents(folder):
    return {str(f.relative_to(folder)): f.read_text() for f in folder.rglob("*") if f.is_file()}


def settings_in(folder):
    return yaml.safe_load((folder / "config.yaml").read_text(encoding="utf-8"))


def test_a_new_folder_gets_the_configuration(tmp_path):
    run_dir = RunDir(tmp_path / "some" / "where")
    run_dir.prepare("a: ä\n", overwrite=False)
    assert settings_in(run_dir.path) == {"a": "ä"}
    assert run_dir.logs.is_dir()


@pytest.mark.parametrize("piece", RESULTS)
def test_results_are_not_overwritten_unasked(tmp_path, piece):
    before = earlier_run(tmp_path, piece)
    name = PIECES[piece].split("/")[0]
    with pytest.raises(
        ConfigError, match=rf"already holds a run \({name}\); --resume auto goes on with it, --overwrite"
    ):
        RunDir(tmp_path).prepare("b: 2\n", overwrite=False)
    assert contents(tmp_path) == before


def test_overwriting_removes_what_a_run_wrote_and_nothing_else(tmp_path):
    earlier_run(tmp_path, *PIECES)
    mine = ("notes.txt", "logs/mine.log", "tensorboard/notes.txt", "buffer/overflow.py", "checkpoints/notes.txt")
    for name in mine:
        (tmp_path / name).write_text("mine")
    RunDir(tmp_path).prepare("b: 2\n", overwrite=True)
    assert contents(tmp_path).keys() == {"config.yaml", *mine}
    assert settings_in(tmp_path) == {"b": 2}


def test_overwriting_leaves_no_empty_folders(tmp_path):
    earlier_run(tmp_path, *PIECES)
    RunDir(tmp_path).prepare("b: 2\n", overwrite=True)
    assert sorted(file.name for file in tmp_path.iterdir()) == ["config.yaml", "logs"]


@pytest.mark.parametrize("overwrite", [False, True])
@pytest.mark.parametrize("piece", RESULTS)
def test_what_no_run_has_written_is_never_deleted(tmp_path, piece, overwrite):
    """Such as the checkpoint of a fine-tuning, which leaves no configuration."""
    write(tmp_path, piece)
    with pytest.raises(ConfigError, match=rf"holds {PIECES[piece].split('/')[0]}, not written by a training run"):
        RunDir(tmp_path).prepare("", overwrite)
    assert contents(tmp_path) == {PIECES[piece]: "{}"}


@pytest.mark.parametrize("overwrite", [False, True])
def test_the_users_own_configuration_is_kept(tmp_path, overwrite):
    (tmp_path / "config.yaml").write_text("mine: 1\n")
    write(tmp_path, "log")
    with pytest.raises(ConfigError, match=r"holds config\.yaml, not written by a training run"):
        RunDir(tmp_path).prepare("", overwrite)
    assert contents(tmp_path) == {"config.yaml": "mine: 1\n", PIECES["log"]: "{}"}


def test_logs_in_a_folder_without_a_run_are_kept(tmp_path):
    write(tmp_path, "log", "tensorboard")
    RunDir(tmp_path).prepare("", overwrite=True)
    assert {PIECES["log"], PIECES["tensorboard"]} < contents(tmp_path).keys()


def test_a_run_that_did_not_get_as_far_as_results_is_in_nobodys_way(tmp_path):
    earlier_run(tmp_path, "log", "tensorboard")
    RunDir(tmp_path).prepare("b: 2\n", overwrite=False)
    assert settings_in(tmp_path) == {"b": 2}
    assert contents(tmp_path).keys() == {"config.yaml"}


@pytest.mark.parametrize(
    "inside", ["final", "final/deeper", "buffer/x", "checkpoints/step_00000010/policy", "../run/final", "link"]
)
def test_a_run_does_not_delete_the_model_it_starts_from(tmp_path, inside):
    folder = tmp_path / "run"
    before = earlier_run(folder, "final")
    (tmp_path / "run" / "link").symlink_to("final")
    model = str(folder / inside)
    with pytest.raises(ConfigError, match="belongs to the run that would start from it"):
        RunDir(folder).prepare("", True, ["some/model", model])
    assert before.items() <= contents(folder).items()


def test_a_model_beside_the_files_of_the_run_may_stay_there(tmp_path):
    RunDir(tmp_path).prepare("", False, [str(tmp_path), str(tmp_path / "model"), "final"])


@pytest.mark.parametrize("path", ["file", "file/below"])
def test_a_folder_that_cannot_be_made_is_the_users_to_mend(tmp_path, path):
    (tmp_path / "file").touch()
    with pytest.raises(ConfigError, match=r"cannot be written: (File exists|Not a directory)"):
        RunDir(tmp_path / path).prepare("", overwrite=False)


def test_each_rank_logs_to_its_own_file_in_a_folder_that_it_may_be_the_first_to_see(tmp_path):
    run_dir = RunDir(tmp_path / "run")
    root, before = logging.getLogger(), logging.getLogger().handlers[:]
    level = root.level
    try:
        run_dir.log_to_file(3, "searcher 2 (rank 3)", attempt=2)
        logging.getLogger("some.module").info("hello")
    finally:
        for handler in [handler for handler in root.handlers if handler not in before]:
            root.removeHandler(handler)
            handler.close()
        root.setLevel(level)
    text = (run_dir.logs / "rank_3.attempt_2.log").read_text()
    assert text.endswith(" searcher 2 (rank 3) INFO some.module: hello\n")


METRICS = "".join(f'{{"step": {step}, "a": 1}}\n' for step in range(1, 6))


def test_a_run_that_goes_on_loses_what_came_after_its_checkpoint(tmp_path):
    earlier_run(tmp_path, *PIECES)
    (tmp_path / "metrics.jsonl").write_text(METRICS)
    RunDir(tmp_path).go_on("b: 2\n", steps_done=3)
    kept = {PIECES[piece] for piece in ("checkpoint", "set aside", "tensorboard", "log")}
    assert contents(tmp_path).keys() == {"config.yaml", "metrics.jsonl", *kept}
    assert contents(tmp_path)["metrics.jsonl"] == "".join(METRICS.splitlines(keepends=True)[:3])
    assert settings_in(tmp_path) == {"b": 2}


@pytest.mark.parametrize("cut_off", ['{"step": 3, "a"', '{"step": 3}', '{"step"', "\0\0\0", '{"st\n'])
def test_a_line_of_metrics_that_was_cut_off_goes(tmp_path, cut_off):
    run_dir = RunDir(tmp_path)
    earlier_run(tmp_path)
    run_dir.metrics.write_text(METRICS + cut_off)
    run_dir.go_on("", steps_done=9)
    assert run_dir.metrics.read_text() == METRICS


def test_a_start_without_a_checkpoint_keeps_the_logs_of_the_attempts_before(tmp_path):
    earlier_run(tmp_path, "metrics", "tensorboard", "log")
    run_dir = RunDir(tmp_path)
    run_dir.prepare("b: 2\n", overwrite=True, keep_logs=True)
    assert contents(tmp_path).keys() == {"config.yaml", PIECES["log"]}
    assert run_dir.latest_attempt == 1


def test_attempts_are_numbered_from_one(tmp_path):
    run_dir = RunDir(tmp_path)
    assert run_dir.latest_attempt == 0
    assert [run_dir.begin_attempt(), run_dir.begin_attempt()] == [1, 2]
    for name in ("rank_3.attempt_10.log", "rank_0.log", "notes.log"):
        (run_dir.logs / name).touch()
    assert run_dir.latest_attempt == 10
    assert run_dir.begin_attempt() == 11


def test_no_two_attempts_have_segments_in_the_same_place(tmp_path):
    run_dir = RunDir(tmp_path)
    assert run_dir.segments_of(1) != run_dir.segments_of(2)
    assert run_dir.segments_of(1).parent == run_dir.segments
