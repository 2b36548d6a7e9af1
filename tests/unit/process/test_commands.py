"""optest.process.run: ends, tails, deadlines, and nothing left alive."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from survivors import DEADLINES_S, ENVIRONMENT, alive, gone, runaway, wait_until_alive

from optest.errors import InternalError
from optest.process import CannotStart, command, run, signal_name

linux_only = pytest.mark.skipif(sys.platform != "linux", reason="needs subreapers and /proc")


def sh(script: str) -> list[str]:
    return ["sh", "-c", script]


def quick(argv: list[str], tmp_path: Path, timeout_s: float | None = 200, tail_bytes: int = 8192) -> command.Finished:
    return run(argv, cwd=tmp_path, env=ENVIRONMENT, timeout_s=timeout_s, tail_bytes=tail_bytes)


def test_exit_status_and_both_streams(tmp_path: Path) -> None:
    finished = quick(sh("echo out; echo err >&2; exit 42"), tmp_path)
    assert (finished.returncode, finished.signal, finished.timed_out) == (42, None, False)
    assert (finished.stdout_tail, finished.stderr_tail) == ("out\n", "err\n")
    assert (finished.stdout_bytes, finished.stderr_bytes, finished.strays) == (4, 4, 0)


def test_a_signal_is_told_from_an_exit_status(tmp_path: Path) -> None:
    finished = quick(sh("kill -SEGV $$"), tmp_path)
    assert (finished.returncode, finished.signal) == (-signal.SIGSEGV, signal.SIGSEGV)
    assert signal_name(finished.signal or 0) == "SIGSEGV"


def test_no_shell_reads_the_arguments(tmp_path: Path) -> None:
    finished = quick(["printf", "%s|", "a b", "$HOME", "*", "", "ä"], tmp_path)
    assert finished.stdout_tail == "a b|$HOME|*||ä|"


def test_the_environment_is_the_one_that_is_given(tmp_path: Path) -> None:
    finished = run(["env"], cwd=tmp_path, env={"PATH": ENVIRONMENT["PATH"], "A": "x=y z"}, timeout_s=200)
    lines = set(finished.stdout_tail.split("\n")) - {""}
    assert lines == {f"PATH={ENVIRONMENT['PATH']}", "A=x=y z"}


def test_directory_and_empty_input(tmp_path: Path) -> None:
    assert quick(sh("pwd -P; cat; echo end"), tmp_path).stdout_tail == f"{tmp_path.resolve()}\nend\n"


def test_a_broken_pipe_ends_a_writer_quietly(tmp_path: Path) -> None:
    finished = quick(sh("yes | head -n 1"), tmp_path)
    assert (finished.returncode, finished.stdout_tail, finished.stderr_tail) == (0, "y\n", "")


@linux_only
def test_endless_output_is_drained_and_only_the_tails_are_kept(tmp_path: Path) -> None:
    noise = "head -c 200000000 /dev/zero; echo the end; head -c 100000000 /dev/zero >&2; echo last words >&2"
    finished = quick(sh(noise), tmp_path, tail_bytes=100)
    assert finished.stdout_bytes == 200_000_008
    assert finished.stderr_bytes == 100_000_011
    assert len(finished.stdout_tail) == 100
    assert finished.stdout_tail.endswith("the end\n")
    assert finished.stderr_tail.endswith("last words\n")
    guard = command._idle[-1]
    peak_kib = next(line for line in Path(f"/proc/{guard.pid}/status").read_text().splitlines() if "VmHWM" in line)
    assert int(peak_kib.split()[1]) < 64 * 1024


def test_output_that_is_no_text_is_shown_with_replacements(tmp_path: Path) -> None:
    assert quick(["printf", r"\377ok"], tmp_path).stdout_tail == "\ufffdok"


def test_the_deadline_is_kept(tmp_path: Path) -> None:
    for deadline_s in DEADLINES_S:
        began = time.monotonic()
        finished = quick(sh("echo before; exec sleep 600"), tmp_path, timeout_s=deadline_s)
        assert finished.timed_out
        assert finished.signal == signal.SIGKILL
        assert deadline_s <= finished.wall_s <= time.monotonic() - began < deadline_s + 60
        if finished.stdout_tail:
            break
    assert finished.stdout_tail == "before\n"


def test_a_command_that_ends_in_time_is_not_late(tmp_path: Path) -> None:
    assert not quick(sh("sleep 0.05"), tmp_path, timeout_s=100).timed_out
    assert not quick(sh("true"), tmp_path, timeout_s=None).timed_out


WAYS = ["fork", "fork,setsid", "fork,setsid,fork", "fork,setsid,fork,clear", "ignore,fork,setsid", "fork,fork,fork"]


@linux_only
@pytest.mark.parametrize("ways", WAYS)
def test_no_descendant_survives_the_deadline(tmp_path: Path, ways: str) -> None:
    for deadline_s in DEADLINES_S:
        argv, mark = runaway(ways)
        ended = threading.Event()
        seen: list[bool] = []
        watcher = threading.Thread(target=watch, args=(mark, ended, seen))
        watcher.start()
        finished = quick(argv, tmp_path, timeout_s=deadline_s)
        ended.set()
        watcher.join()
        assert finished.timed_out
        assert alive(mark) == []
        if seen:
            break
    assert seen, "nothing ran away"
    assert finished.strays >= 1


def watch(mark: str, ended: threading.Event, seen: list[bool]) -> None:
    """Whether two marked processes are alive before it has ended."""
    while not seen and not ended.wait(0.01):
        if len(alive(mark)) >= 2:
            seen.append(True)


@linux_only
@pytest.mark.parametrize("ways", WAYS)
def test_no_descendant_survives_the_commands_own_end(tmp_path: Path, ways: str) -> None:
    argv, mark = runaway(ways, parent="exit")
    finished = quick(argv, tmp_path)
    assert not finished.timed_out
    assert finished.returncode == 0
    assert finished.strays == 1
    assert alive(mark) == []


@linux_only
def test_a_stray_that_holds_the_output_open_does_not_hold_us_up(tmp_path: Path) -> None:
    finished = quick(sh("(trap '' HUP; sleep 600) & echo done"), tmp_path)
    assert finished.stdout_tail == "done\n"
    assert finished.strays >= 1
    assert not finished.timed_out


@linux_only
def test_one_command_does_not_touch_another_or_our_own_children(tmp_path: Path) -> None:
    own = subprocess.Popen(["sleep", "600"])
    results: dict[str, command.Finished] = {}

    def in_thread(name: str, script: str, timeout_s: float) -> threading.Thread:
        thread = threading.Thread(
            target=lambda: results.update({name: quick(sh(script), tmp_path, timeout_s=timeout_s)})
        )
        thread.start()
        return thread

    try:
        threads = [
            in_thread("long", "(setsid sleep 1; echo slept) & wait", 200),
            in_thread("hung", "setsid sleep 600 & sleep 600", 0.3),
            in_thread("messy", "setsid sleep 600 & exit 7", 200),
        ]
        for thread in threads:
            thread.join()
        assert results["long"].stdout_tail == "slept\n"
        assert (results["long"].returncode, results["long"].strays) == (0, 0)
        assert results["hung"].timed_out
        assert (results["messy"].returncode, results["messy"].strays) == (7, 1)
        assert own.poll() is None
    finally:
        own.kill()
        own.wait()


@linux_only
def test_nothing_survives_when_optest_itself_is_killed(tmp_path: Path) -> None:
    argv, mark = runaway("fork,setsid,fork,clear")
    script = f"from optest.process import run; run({argv!r}, cwd='/', env={ENVIRONMENT!r}, timeout_s=None)"
    victim = subprocess.Popen([sys.executable, "-c", script], env=os.environ | ENVIRONMENT)
    wait_until_alive(mark, 2)
    victim.kill()
    victim.wait()
    assert gone(mark)


@linux_only
def test_ctrl_c_ends_the_command(tmp_path: Path) -> None:
    argv, mark = runaway("fork,setsid")

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    def strike() -> None:
        wait_until_alive(mark, 2)
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGALRM)

    before = signal.signal(signal.SIGALRM, interrupt)
    striker = threading.Thread(target=strike)
    striker.start()
    try:
        with pytest.raises(KeyboardInterrupt):
            quick(argv, tmp_path)
    finally:
        striker.join()
        signal.signal(signal.SIGALRM, before)
    assert gone(mark)


@linux_only
def test_a_command_that_kills_its_guard_is_reported_and_the_next_runs(tmp_path: Path) -> None:
    with pytest.raises(InternalError, match=r"guard process .* died"):
        quick(sh('kill -9 "$PPID"; exec sleep 600'), tmp_path)
    assert quick(sh("echo on"), tmp_path).stdout_tail == "on\n"


def test_the_last_idle_guard_is_taken_by_one_thread_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class JustTaken(list[object]):
        """Another thread takes what is there between the look and the taking."""

        def __bool__(self) -> bool:
            return True

    monkeypatch.setattr(command, "_idle", JustTaken())
    assert quick(sh("echo on"), tmp_path).stdout_tail == "on\n"
    command._idle.pop().close()


def test_a_guard_is_used_again(tmp_path: Path) -> None:
    quick(sh("true"), tmp_path)
    before = command._idle[-1].pid
    quick(sh("exit 1"), tmp_path)
    assert command._idle[-1].pid == before


def write(path: Path, text: str, mode: int = 0o755) -> str:
    path.write_text(text)
    path.chmod(mode)
    return str(path)


def test_what_cannot_be_started_says_why(tmp_path: Path) -> None:
    no_interpreter = write(tmp_path / "orphan", "#!/nowhere/python\n")
    no_program = write(tmp_path / "noise", "\x00\x01\x02")
    no_permission = write(tmp_path / "shy", "#!/bin/sh\n", 0o644)
    for argv, cwd, message in [
        (["no-such-program"], tmp_path, "'no-such-program' does not exist on PATH"),
        (["./missing.sh"], tmp_path, "'./missing.sh' does not exist in"),
        ([no_interpreter], tmp_path, "the interpreter in its first line does not exist"),
        ([no_program], tmp_path, "it is neither a binary"),
        ([no_permission], tmp_path, "is not executable; chmod"),
        (["true"], tmp_path / "missing", "working directory .* cannot be entered"),
        (["echo", "a\0b"], tmp_path, "NUL character"),
    ]:
        with pytest.raises(CannotStart, match=message):
            run(argv, cwd=cwd, env=ENVIRONMENT, timeout_s=50)
    assert quick(sh("echo on"), tmp_path).stdout_tail == "on\n"


def test_a_program_is_found_on_the_path_that_is_given(tmp_path: Path) -> None:
    write(tmp_path / "own-tool", "#!/bin/sh\necho mine\n")
    found = run(["own-tool"], cwd="/", env={"PATH": f"{tmp_path}:{ENVIRONMENT['PATH']}"}, timeout_s=50)
    assert found.stdout_tail == "mine\n"


def test_signal_names() -> None:
    assert signal_name(9) == "SIGKILL"
    assert signal_name(77) == "signal 77"
