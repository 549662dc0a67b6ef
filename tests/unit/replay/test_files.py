"""Second names of files, and copies where there are none. What else `files.py` does, the tests of segments see."""

from __future__ import annotations

import errno
import os

import pytest

from tba_hpc.replay.files import link_or_copy

CODES = ["EPERM", "EOPNOTSUPP", "EXDEV", "EMLINK", "ENOSYS"]


def refuse_links(monkeypatch, code: int) -> None:
    def refuse(*_args: object, **_kwargs: object) -> None:
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(os, "link", refuse)


def test_a_link_is_the_same_file(tmp_path):
    (tmp_path / "a").write_bytes(b"content")
    link_or_copy(tmp_path / "a", tmp_path / "b")
    assert (tmp_path / "a").samefile(tmp_path / "b")


@pytest.mark.parametrize("code", CODES)
def test_without_hard_links_it_is_a_copy(tmp_path, monkeypatch, code):
    refuse_links(monkeypatch, getattr(errno, code))
    (tmp_path / "a").write_bytes(b"content" * 10**6)
    link_or_copy(tmp_path / "a", tmp_path / "b")
    assert not (tmp_path / "a").samefile(tmp_path / "b")
    assert (tmp_path / "b").read_bytes() == b"content" * 10**6


@pytest.mark.parametrize("links", [True, False])
def test_nothing_is_overwritten(tmp_path, monkeypatch, links):
    if not links:
        refuse_links(monkeypatch, errno.EXDEV)
    (tmp_path / "a").write_bytes(b"content")
    (tmp_path / "b").write_bytes(b"other")
    with pytest.raises(FileExistsError):
        link_or_copy(tmp_path / "a", tmp_path / "b")
    assert (tmp_path / "b").read_bytes() == b"other"


def test_a_full_disk_and_a_missing_file_are_errors(tmp_path, monkeypatch):
    with pytest.raises(FileNotFoundError):
        link_or_copy(tmp_path / "a", tmp_path / "b")
    (tmp_path / "a").write_bytes(b"content")
    refuse_links(monkeypatch, errno.ENOSPC)
    with pytest.raises(OSError, match="No space"):
        link_or_copy(tmp_path / "a", tmp_path / "b")
