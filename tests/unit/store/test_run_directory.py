"""Where runs lie, how they are found again, and how whole files are written."""

from __future__ import annotations

import os
from datetime import datetime, timedelta, timezone
from pathlib import Path

import pytest

from optest.api.earlier_runs import runs
from optest.errors import UnknownName, UsageError
from optest.spec import RunInfo, RunSummary
from optest.store import JournalWriter, RunDirectory, check_writable, write_atomically

NOW = datetime(2026, 1, 31, 23, 59, 58, tzinfo=timezone.utc)


def make(root: Path, token: str, seconds: int = 0) -> RunDirectory:
    return RunDirectory.create(root, now=NOW + timedelta(seconds=seconds), token=token)


def test_run_name_has_time_and_token(tmp_path: Path) -> None:
    run = make(tmp_path / ".optest" / "runs", "ab12")
    assert run.path == tmp_path / ".optest" / "runs" / "20260131T235958Z-ab12"
    assert (run.path / "artifacts").is_dir()
    assert run.journal_path == run.path / "journal.jsonl"


def test_the_time_is_utc_whatever_the_zone(tmp_path: Path) -> None:
    zone = timezone(timedelta(hours=2))
    run = RunDirectory.create(tmp_path / "r", now=NOW.astimezone(zone), token="a")
    assert run.id == "20260131T235958Z-a"
    with pytest.raises(UsageError, match="no time zone"):
        RunDirectory.create(tmp_path / "r", now=NOW.replace(tzinfo=None), token="b")


def test_git_ignores_runs_and_nothing_of_the_user(tmp_path: Path) -> None:
    for root, ignored in ((tmp_path / ".optest" / "runs", tmp_path / ".optest"), (tmp_path / "new", tmp_path / "new")):
        make(root, "a")
        assert (ignored / ".gitignore").read_text() == "*\n"
        assert not (tmp_path / ".gitignore").exists()
    (tmp_path / ".optest" / ".gitignore").write_text("mine\n")
    make(tmp_path / ".optest" / "runs", "b")
    assert (tmp_path / ".optest" / ".gitignore").read_text() == "mine\n"
    (tmp_path / "mine").mkdir()
    make(tmp_path / "mine", "a")
    assert not (tmp_path / "mine" / ".gitignore").exists()


def test_runs_are_opened_by_id_prefix_or_path(tmp_path: Path) -> None:
    root = tmp_path / "runs"
    old, new = make(root, "zz"), make(root, "aa", seconds=1)
    new.journal_path.touch()
    for word in (new.id, "20260131T235959", str(new.path), str(new.journal_path), "latest"):
        assert RunDirectory.open(root, word).path.resolve() == new.path.resolve()
    assert RunDirectory.open(root, old.id) == old


def test_latest_tells_runs_of_one_second_apart(tmp_path: Path) -> None:
    first, second = make(tmp_path, "zz"), make(tmp_path, "aa")
    info = RunInfo(run_id="x", started_at="", total=0, target="numpy", seed=0)
    for place, run in enumerate((first, second)):
        run.write_info(info)
        os.utime(run.info_path, ns=(place, place))
    first.artifact_dir("k1:0")
    assert RunDirectory.open(tmp_path, "latest") == second


def test_unknown_or_ambiguous_run_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UnknownName, match="unknown run 'latest'"):
        RunDirectory.open(tmp_path / "none", "latest")
    made = [make(tmp_path, token) for token in ("a", "b")]
    with pytest.raises(UsageError, match="matches 2 runs"):
        RunDirectory.open(tmp_path, "2026")
    with pytest.raises(UnknownName, match=made[0].id):
        RunDirectory.open(tmp_path, "20260131T235958Z-c")
    with pytest.raises(UnknownName):
        RunDirectory.open(tmp_path, "")


def test_a_run_that_cannot_be_made_says_so(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(UsageError, match=r"cannot be created.*\n.*--runs-dir"):
        make(tmp_path / "file" / "runs", "a")
    make(tmp_path, "a")
    with pytest.raises(UsageError, match="File exists"):
        make(tmp_path, "a")


def test_info_comes_back(tmp_path: Path) -> None:
    info = RunInfo(run_id="r", started_at="x", total=1, target="t", seed=3, notes=("a",), host={"x": float("inf")})
    run = make(tmp_path, "a")
    run.write_info(info)
    assert run.read_info() == info
    run.info_path.write_text("{")
    with pytest.raises(UsageError, match="garbled"):
        run.read_info()


@pytest.mark.parametrize("key", ["k1:0f", "../../x", "..", "a/b", ""])
def test_artifacts_stay_inside_the_run(key: str, tmp_path: Path) -> None:
    run = make(tmp_path, "a")
    assert run.artifact_dir(key).resolve().parent == (run.path / "artifacts").resolve()


def test_atomic_write_keeps_permissions(tmp_path: Path) -> None:
    path = tmp_path / "report.json"
    path.write_text("old")
    path.chmod(0o640)
    write_atomically(path, b"new")
    assert path.read_bytes() == b"new"
    assert path.stat().st_mode & 0o777 == 0o640
    assert os.listdir(tmp_path) == ["report.json"]


def test_prune_keeps_runs_in_use(tmp_path: Path) -> None:
    made = [make(tmp_path, f"ab{seconds}", seconds) for seconds in range(4)]
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "run.json").write_text("{}")
    with JournalWriter(made[0].journal_path) as writer:
        writer.end(RunSummary(total=5, finished=5, duration_s=1.0, by_status={"passed": 5}))
        told = list(runs({"runs_dir": str(tmp_path)}, keep=1))
    assert told[0].startswith("deleted 2 runs")
    assert str(made[0].path) in told[1]
    assert [each.id for each in RunDirectory.all(tmp_path) if each.path.name != "mine"] == [made[0].id, made[3].id]
    assert [line.split()[0] for line in told[-3:]] == [made[0].id, made[3].id, "mine"]
    assert "5 passed" in told[-3]
    assert RunDirectory.open(tmp_path, "latest").path.exists()


def test_a_link_is_written_through(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real" / "r.json")
    write_atomically(tmp_path / "link", b"x")
    assert (tmp_path / "real" / "r.json").read_bytes() == b"x"
    assert (tmp_path / "link").is_symlink()


def test_unwritable_paths_are_named_before_the_run(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="is a directory"):
        check_writable(tmp_path)
    with pytest.raises(UsageError, match=r"cannot be written: (Not a directory|File exists)"):
        check_writable(Path(__file__) / "r.json")
    check_writable(tmp_path / "r.json")
    check_writable(Path(os.devnull))
    assert os.listdir(tmp_path) == []


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_a_write_that_fails_is_a_usage_error() -> None:
    with pytest.raises(UsageError, match="No space left"):
        write_atomically(Path("/dev/full"), b"x" * 10)
