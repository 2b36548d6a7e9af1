"""A journal survives its writer: torn lines, a second writer, a full disk, newer versions."""

from __future__ import annotations

import errno
import json
import os
import re
import subprocess
import sys
import zlib
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from texts import refusal

from optest.errors import UsageError
from optest.spec import CaseResult, Evidence, Reason, RunInfo, RunSummary, Status, Verdict
from optest.store import Journal, JournalError, JournalWriter, read_journal

INFO = RunInfo(run_id="r", started_at="2026-01-31T00:00:00+00:00", total=3, target="numpy", seed=0)


def a_result(name: str, **changes: Any) -> CaseResult:
    verdict = Verdict(status=Status.PASSED, evidence=Evidence.RAISED_AS_EXPECTED)
    return CaseResult(
        id=name, key="k1:0", operator="add", target="numpy", reference="numpy", mode="forward", seed=0,
        **{"verdict": verdict, **changes},
    )  # fmt: skip


RESULTS = tuple(a_result(f"case {number} é\n") for number in range(3))
SUMMARY = RunSummary.of(RESULTS, total=3, duration_s=0.5)


def write(path: Path) -> bytes:
    with JournalWriter(path) as writer:
        writer.start(INFO)
        for result in RESULTS:
            writer.result(result)
        writer.end(SUMMARY)
    return path.read_bytes()


def append(path: Path, *results: CaseResult, info: RunInfo | None = None) -> None:
    with JournalWriter(path) as writer:
        if info is not None:
            writer.start(info)
        for result in results:
            writer.result(result)


def without_checksums(data: bytes) -> bytes:
    """As an older optest wrote it."""
    return re.sub(rb',"crc32":\d+\}\n', b"}\n", data)


def summed(data: bytes) -> bytes:
    """The lines with the checksums of what they hold now."""
    bodies = [line[:-1] for line in without_checksums(data).splitlines()]
    return b"".join(b'%s,"crc32":%d}\n' % (body, zlib.crc32(body)) for body in bodies)


def test_what_was_written_is_read(tmp_path: Path) -> None:
    write(tmp_path / "j")
    assert read_journal(tmp_path / "j") == Journal(info=INFO, results=RESULTS, summary=SUMMARY, starts=1)


def test_every_line_is_on_disk_before_the_next(tmp_path: Path) -> None:
    with JournalWriter(tmp_path / "j") as writer:
        writer.start(INFO)
        for count, result in enumerate(RESULTS, 1):
            writer.result(result)
            assert len(read_journal(tmp_path / "j").results) == count


def test_journal_cut_at_any_byte_is_repaired(tmp_path: Path) -> None:
    data = write(tmp_path / "whole")
    ends = [place + 1 for place, byte in enumerate(data) if byte == ord("\n")]
    for cut in range(len(data) + 1):
        path = tmp_path / "j"
        path.write_bytes(data[:cut])
        whole = sum(end <= cut for end in ends)
        found = read_journal(path)
        kept = RESULTS[: max(0, min(3, whole - 1))]
        assert found.results == kept
        assert found.torn == (cut not in (0, *ends))
        append(path, a_result("after"))
        again = read_journal(path)
        assert again.results == (*kept, a_result("after"))
        assert not again.torn


@given(noise=st.binary(min_size=1, max_size=40))
@settings(max_examples=60, deadline=None)
def test_garbled_last_line_is_removed(noise: bytes, tmp_path_factory: pytest.TempPathFactory) -> None:
    path = tmp_path_factory.mktemp("noise") / "j"
    write(path)
    with path.open("ab") as file:
        file.write(noise.replace(b"\n", b"") + b"?\n")
    assert read_journal(path).torn
    assert read_journal(path).results == RESULTS
    append(path, info=INFO)
    assert read_journal(path) == Journal(info=INFO, results=RESULTS, summary=None, starts=2)


def test_long_torn_line_is_removed(tmp_path: Path) -> None:
    path = tmp_path / "j"
    append(path, RESULTS[0], a_result("x" * 200_000))
    path.write_bytes(path.read_bytes()[:-5])
    append(path, RESULTS[1])
    assert read_journal(path).results == RESULTS[:2]


@pytest.mark.parametrize(
    "garbled",
    [
        b"",
        b"not json",
        b'{"type":"result"}',
        b'{"type":"other","schema_version":1}',
        b'{"type":"result","schema_version":1}',
        b'{"type":"result","schema_version":1,"result":{"id":1}}',
        b'{"type":"result","schema_version":1,"result":{"attributes":{"$float":"x"}}}',
        b"\xff\xfe",
    ],
)
def test_garbled_inner_line_is_refused_with_its_number(garbled: bytes, tmp_path: Path) -> None:
    lines = write(tmp_path / "j").split(b"\n")
    lines[2] = garbled
    (tmp_path / "j").write_bytes(b"\n".join(lines))
    with pytest.raises(UsageError, match=r"journal line is garbled: .*\n  at .*/j:3\n"):
        read_journal(tmp_path / "j")


@pytest.mark.parametrize(
    "order", [(0, 1, 3, 4), (0, 1, 2, 4), (1, 2, 3, 4), (0, 1, 1, 2, 3, 4), (0, 2, 1, 3, 4), (0, 1, 2, 3, 4, 4)]
)
def test_missing_doubled_and_moved_lines_are_told(order: tuple[int, ...], tmp_path: Path) -> None:
    lines = write(tmp_path / "j").splitlines(keepends=True)
    (tmp_path / "j").write_bytes(b"".join(lines[each] for each in order))
    with refusal(UsageError, "store.lines_are_missing_doubled"):
        read_journal(tmp_path / "j")
    (tmp_path / "j").write_bytes(b"".join(lines[:2]))
    assert read_journal(tmp_path / "j").summary is None
    with JournalWriter(tmp_path / "j") as writer:  # as a resumed run does
        writer.results_at_once(RESULTS[1:])
    assert read_journal(tmp_path / "j").results == RESULTS


def test_a_newer_journal_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "j"
    path.write_bytes(summed(write(path).replace(b'"schema_version":1', b'"schema_version":2')))
    with refusal(UsageError, "store.schema_version_but_should"):
        read_journal(path)
    with pytest.raises(UsageError, match="schema_version 2"):
        JournalWriter(path)
    assert b'"schema_version":2' in path.read_bytes()


def test_unknown_fields_are_ignored(tmp_path: Path) -> None:
    path = tmp_path / "j"
    path.write_bytes(summed(write(path).replace(b'"key":"k1:0"', b'"key":"k1:0","news":[1]')))
    assert read_journal(path).results == RESULTS


def test_a_journal_without_checksums_is_read_and_resumed(tmp_path: Path) -> None:
    path = tmp_path / "j"
    path.write_bytes(without_checksums(write(path)))
    assert read_journal(path) == Journal(info=INFO, results=RESULTS, summary=SUMMARY, starts=1)
    append(path, a_result("after"), info=INFO)
    assert read_journal(path).results == (*RESULTS, a_result("after"))


@given(data=st.data())
@settings(max_examples=100, deadline=None)
def test_corrupt_bytes_never_change_a_result(data: st.DataObject, tmp_path_factory: pytest.TempPathFactory) -> None:
    path = tmp_path_factory.mktemp("corrupt") / "j"
    whole = write(path)
    at = data.draw(st.integers(0, len(whole) - 1))
    length = data.draw(st.integers(1, 64))
    replaced = data.draw(st.sampled_from(["flip", "byte", "delete", "repeat", "noise"]))
    piece = whole[at : at + length]
    changed = {
        "flip": bytes([whole[at] ^ 1 << data.draw(st.integers(0, 7))]) + piece[1:],
        "byte": data.draw(st.binary(min_size=1, max_size=1)) + piece[1:],
        "delete": b"",
        "repeat": piece + piece,
        "noise": data.draw(st.binary(min_size=length, max_size=length)),
    }[replaced]
    path.write_bytes(whole[:at] + changed + whole[at + length :])
    try:
        found = read_journal(path)
    except UsageError:
        return
    assert found.info in (INFO, None)
    assert found.results == RESULTS[: len(found.results)]
    assert len(found.results) == len(RESULTS) or found.torn
    assert found.summary in (SUMMARY, None)


def test_resumed_run_has_no_summary_yet(tmp_path: Path) -> None:
    write(tmp_path / "j")
    with JournalWriter(tmp_path / "j") as writer:
        writer.start(INFO)
        assert read_journal(tmp_path / "j").summary is None
        writer.end(SUMMARY)
    found = read_journal(tmp_path / "j")
    assert (found.starts, found.summary) == (2, SUMMARY)


_HOLDER = """
import sys, time
from pathlib import Path
from optest.store import JournalWriter
writer = JournalWriter(Path(sys.argv[1]))
print("ready", flush=True)
time.sleep(60)
"""


def test_there_is_one_writer_over_all_processes(tmp_path: Path) -> None:
    path = tmp_path / "j"
    with subprocess.Popen([sys.executable, "-c", _HOLDER, str(path)], stdout=subprocess.PIPE) as other:
        try:
            assert other.stdout is not None
            assert other.stdout.readline() == b"ready\n"
            with refusal(UsageError, "store.is_being_written_by"):
                JournalWriter(path)
        finally:
            other.kill()  # as kill -9: the lock goes with the process
        other.wait(20)
        JournalWriter(path).close()


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_a_full_disk_is_said_in_one_sentence() -> None:
    with JournalWriter(Path("/dev/full")) as writer:
        with refusal(JournalError, "store.no_space_left_on") as caught:
            writer.start(INFO)
        assert caught.value.errno == errno.ENOSPC
        assert caught.value.exit_status == 3
        with pytest.raises(JournalError):
            writer.result(RESULTS[0])


def test_partial_line_is_removed_from_full_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "j"
    with JournalWriter(path) as writer:
        writer.start(INFO)
        writer.result(RESULTS[0])
        room = [100]
        real = os.write

        def short(file: int, data: Any) -> int:
            if not room[0]:
                raise OSError(errno.ENOSPC, "No space left on device")
            count = real(file, bytes(data)[: room[0]])
            room[0] -= count
            return count

        with monkeypatch.context() as patch:
            patch.setattr(os, "write", short)
            with pytest.raises(JournalError):
                writer.result(RESULTS[1])
        assert not read_journal(path).torn
        writer.result(RESULTS[2])  # there is room again
    assert read_journal(path).results == (RESULTS[0], RESULTS[2])


def test_short_writes_are_finished(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = os.write
    monkeypatch.setattr(os, "write", lambda file, data: real(file, bytes(data)[:7]))
    write(tmp_path / "j")
    assert read_journal(tmp_path / "j").results == RESULTS


def test_unopenable_journal_is_refused(tmp_path: Path) -> None:
    with refusal(UsageError, "store.cannot_be_written_no"):
        JournalWriter(tmp_path / "no" / "j")
    with pytest.raises(UsageError, match="cannot be read"):
        read_journal(tmp_path / "no")


def test_a_nan_in_the_journal_is_strict_json(tmp_path: Path) -> None:
    failed = Verdict(status=Status.ERROR, reason=Reason.RAISED, details={"x": float("nan")})
    append(tmp_path / "j", a_result("a", verdict=failed))

    def refuse(word: str) -> None:
        raise AssertionError(word)

    json.loads((tmp_path / "j").read_text(), parse_constant=refuse)
    value = read_journal(tmp_path / "j").results[0].verdict.details["x"]
    assert value != value


def test_results_at_once_are_lines_like_any_other(tmp_path: Path) -> None:
    write(tmp_path / "j")
    with JournalWriter(tmp_path / "k") as writer:
        writer.start(INFO)
        writer.results_at_once(RESULTS)
        writer.results_at_once([])
        writer.end(SUMMARY)
    assert (tmp_path / "k").read_bytes() == (tmp_path / "j").read_bytes()
