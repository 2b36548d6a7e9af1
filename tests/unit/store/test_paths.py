"""Paths of a plan: where they lead, and what an untrusted one may not reach."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from optest.store import PathError, read_regular, resolve_path


@pytest.mark.parametrize(
    "text", ["../x", "/etc/passwd", "link/x", "a/../../x", "dangling", "fifo", "/dev/null", "a\0b"]
)
def test_untrusted_paths_stay_below(tmp_path: Path, text: str) -> None:
    own = tmp_path / "own"
    own.mkdir()
    (own / "link").symlink_to("..")
    (own / "dangling").symlink_to("../not_there")
    os.mkfifo(own / "fifo")
    with pytest.raises(PathError):
        resolve_path(own, text, (str(own),))


@pytest.mark.parametrize("text", ["x", "a/b/x", "inner/x", "a/../x", "."])
def test_untrusted_paths_below(tmp_path: Path, text: str) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "inner").symlink_to("a")
    assert resolve_path(tmp_path, text, (str(tmp_path),)).is_relative_to(tmp_path)


def test_trusted_paths_lead_anywhere(tmp_path: Path) -> None:
    assert resolve_path(tmp_path, "/etc/passwd") == Path("/etc/passwd")
    assert resolve_path(tmp_path, "x") == tmp_path / "x"


def test_reading_is_bounded(tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(b"12345")
    assert read_regular(tmp_path / "x", 5) == b"12345"
    with pytest.raises(PathError):
        read_regular(tmp_path / "x", 4)
