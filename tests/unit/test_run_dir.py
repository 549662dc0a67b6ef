import logging

import pytest

from tba_hpc.run_dir import RunDir
from tba_hpc.settings import ConfigError


def finished_run(path):
    run_dir = RunDir(path)
    run_dir.prepare("a: 1\n", overwrite=False)
    run_dir.metrics.write_text("{}\n")
    run_dir.write_report("{}")
    for folder in (run_dir.tensorboard, run_dir.segments, run_dir.final):
        folder.mkdir()
        (folder / "file").touch()
    return run_dir


def test_a_new_folder_gets_the_configuration(tmp_path):
    run_dir = RunDir(tmp_path / "some" / "where")
    run_dir.prepare("a: ä\n", overwrite=False)
    assert run_dir.config.read_text(encoding="utf-8") == "a: ä\n"
    assert run_dir.logs.is_dir()


def test_a_run_is_not_overwritten_unasked(tmp_path):
    run_dir = finished_run(tmp_path)
    with pytest.raises(ConfigError, match=r"already holds a run; give another run_dir, or --overwrite"):
        RunDir(tmp_path).prepare("b: 2\n", overwrite=False)
    assert run_dir.config.read_text() == "a: 1\n"
    assert (run_dir.final / "file").exists()


def test_overwriting_removes_what_a_run_wrote_and_nothing_else(tmp_path):
    run_dir = finished_run(tmp_path)
    (tmp_path / "notes.txt").write_text("mine")
    run_dir.prepare("b: 2\n", overwrite=True)
    assert sorted(file.name for file in tmp_path.iterdir()) == ["config.yaml", "logs", "notes.txt"]
    assert run_dir.config.read_text() == "b: 2\n"


def test_a_run_that_did_not_get_as_far_as_metrics_is_in_nobodys_way(tmp_path):
    RunDir(tmp_path).prepare("a: 1\n", overwrite=False)
    RunDir(tmp_path).prepare("b: 2\n", overwrite=False)
    assert RunDir(tmp_path).config.read_text() == "b: 2\n"


@pytest.mark.parametrize("path", ["file", "file/below"])
def test_a_folder_that_cannot_be_made_is_the_users_to_mend(tmp_path, path):
    (tmp_path / "file").touch()
    with pytest.raises(ConfigError, match=r"cannot be written: (File exists|Not a directory)"):
        RunDir(tmp_path / path).prepare("", overwrite=False)


def test_each_rank_logs_to_its_own_file(tmp_path):
    run_dir = RunDir(tmp_path)
    run_dir.prepare("", overwrite=False)
    root, before = logging.getLogger(), logging.getLogger().handlers[:]
    level = root.level
    try:
        run_dir.log_to_file(3, "searcher 2 (rank 3)")
        logging.getLogger("some.module").info("hello")
    finally:
        for handler in [handler for handler in root.handlers if handler not in before]:
            root.removeHandler(handler)
            handler.close()
        root.setLevel(level)
    text = (run_dir.logs / "rank_3.log").read_text()
    assert text.endswith(" searcher 2 (rank 3) INFO some.module: hello\n")
