"""Channels, guarded children and forks."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from survivors import ENVIRONMENT, alive, gone, runaway, wait_until_alive

from optest.process import Channel, Child, ForkServer, fork_and_run, guard_program, start_child
from optest.process import guard as guard_module

WORKER = """
import os, signal, subprocess, sys, time
from optest.process import Channel
channel = Channel(int(sys.argv[-2]), int(sys.argv[-1]))
while (message := channel.receive()) is not None:
    word, _, rest = message.decode().partition(" ")
    if word == "echo":
        channel.send(rest.encode())
    elif word == "die":
        os.kill(os.getpid(), int(rest))
    elif word == "exit":
        os._exit(int(rest))
    elif word == "say":
        print(rest, flush=True)
        print("error " + rest, file=sys.stderr, flush=True)
        channel.send(b"said")
    elif word == "noise":
        for _ in range(int(rest)):
            sys.stdout.write("x" * 999_999 + chr(10))
        sys.stdout.flush()
        channel.send(b"done")
    elif word == "spawn":
        subprocess.Popen(eval(rest))
        channel.send(b"spawned")
    elif word == "hang":
        time.sleep(600)
"""


def run_worker(arguments: list[str]) -> None:
    sys.stdout, sys.stderr = (open(fd, "w", closefd=False) for fd in (1, 2))  # those of pytest are others
    sys.argv = arguments
    exec(WORKER, {})


ALL_VARIABLES = os.environ | ENVIRONMENT


def start(log: Path, forks: ForkServer | None = None, script: str = WORKER) -> Child:
    return start_child([sys.executable, "-c", script], env=ALL_VARIABLES, stderr_path=log, forks=forks)


@pytest.fixture
def server():
    made = ForkServer(lambda: None, run_worker, ALL_VARIABLES)
    yield made
    made.close()


@pytest.fixture(
    params=["program", pytest.param("fork", marks=pytest.mark.skipif(sys.platform != "linux", reason="Linux"))]
)
def child(request: pytest.FixtureRequest, tmp_path: Path):
    forks = request.getfixturevalue("server") if request.param == "fork" else None
    with start(tmp_path / "log", forks) as started:
        yield started


def exchange(child: Child, request: str, reply: str) -> None:
    child.send(request.encode())
    assert child.receive(200) == reply.encode()


def end_by(child: Child, request: str, end: tuple[int, int | None]) -> None:
    child.send(request.encode())
    assert child.receive(200) is None
    assert child.wait(200) == end


KILLED = (-signal.SIGKILL, signal.SIGKILL)


@pytest.mark.skipif(sys.platform != "linux", reason="Linux")
def test_forked_children_end_with_their_parent_and_outlive_their_server(server: ForkServer, tmp_path: Path) -> None:
    children = [start(tmp_path / f"{number}", server) for number in range(2)]
    end_by(children[0], "die 9", KILLED)
    server.close()
    exchange(children[1], "echo there", "there")
    with start(tmp_path / "3", server) as program:
        exchange(program, "echo a program", "a program")
    children[1].close()
    assert not Path(f"/proc/{children[1].pid}").exists()


def pair() -> tuple[Channel, Channel]:
    a_in, b_out = os.pipe()
    b_in, a_out = os.pipe()
    return Channel(a_in, a_out), Channel(b_in, b_out)


@given(st.lists(st.binary(max_size=3000), max_size=15))
def test_messages_arrive_whole_and_in_order(messages: list[bytes]) -> None:
    one, other = pair()
    for message in messages:
        one.send(message)
    assert [other.receive(10) for _ in messages] == messages
    with pytest.raises(TimeoutError):
        other.receive(0)
    one.close()
    assert other.receive(10) is None
    other.close()


def test_a_message_larger_than_the_pipe() -> None:
    one, other = pair()
    big = os.urandom(3_000_000)
    sender = threading.Thread(target=one.send, args=(big,))
    sender.start()
    assert other.receive(100) == big
    sender.join()
    one.close()
    other.close()


def test_half_a_message_is_kept_until_the_rest_comes_and_lost_with_the_sender() -> None:
    read, write = os.pipe()
    spare = os.open(os.devnull, os.O_WRONLY)
    channel = Channel(read, spare)
    os.write(write, b"\x05\x00\x00\x00\xfa\xff\xff\xffhe")
    with pytest.raises(TimeoutError, match="no message came"):
        channel.receive(0.01)
    os.write(write, b"llo\x02\x00")
    assert channel.receive(10) == b"hello"
    os.close(write)
    assert channel.receive(10) is None
    channel.close()


def test_foreign_bytes_in_a_pipe_are_not_waited_for() -> None:
    read, write = os.pipe()
    channel = Channel(read, os.open(os.devnull, os.O_WRONLY))
    os.write(write, b"x" * 8)
    with pytest.raises(ValueError, match="no message"):
        channel.receive(10)
    os.close(write)
    channel.close()


def test_a_child_answers_and_ends_when_it_is_closed(child: Child) -> None:
    exchange(child, "echo hello", "hello")
    child.close()
    assert child.wait() == KILLED
    assert not Path(f"/proc/{child.pid}").exists()


def test_what_a_child_prints_does_not_get_into_the_messages(child: Child) -> None:
    exchange(child, "say something", "said")
    end_by(child, "exit 3", (3, None))
    assert child.stderr_tail() == "something\nerror something\n"
    assert child.stderr_tail(5) == "hing\n"


def test_a_childs_log_stays_small(child: Child) -> None:
    exchange(child, "noise 20", "done")
    exchange(child, "say end", "said")
    child.kill()
    assert child.stderr_tail().endswith("end\nerror end\n")
    assert child.stderr_path.stat().st_size <= 1 << 20


def test_a_childs_death_is_seen_at_once(child: Child) -> None:
    end_by(child, "die 11", (-signal.SIGSEGV, signal.SIGSEGV))
    with pytest.raises(BrokenPipeError):
        child.send(b"echo x")


def test_a_hanging_child_is_killed_with_what_it_started(child: Child) -> None:
    argv, mark = runaway("fork,setsid,fork,clear")
    exchange(child, f"spawn {argv!r}", "spawned")
    wait_until_alive(mark, 2)
    child.send(b"hang")
    with pytest.raises(TimeoutError):
        child.receive(0.05)
    with pytest.raises(TimeoutError):
        child.wait(0.05)
    assert child.kill() == KILLED
    assert alive(mark) == []
    assert child.strays >= 1
    assert child.kill() == KILLED


def test_what_a_dead_child_started_does_not_survive_it(child: Child) -> None:
    argv, mark = runaway("fork,setsid")
    exchange(child, f"spawn {argv!r}", "spawned")
    wait_until_alive(mark, 2)
    end_by(child, "die 9", KILLED)
    assert gone(mark)


def test_every_thread_that_waits_is_told_of_the_end(child: Child, monkeypatch: pytest.MonkeyPatch) -> None:
    """One lane finds its worker dead while the run that stops early ends it; the guard answers only once."""
    read = guard_program._read_exactly

    def read_in_turns(fd: int, size: int) -> bytes | None:
        time.sleep(0.01)
        return read(fd, size)

    monkeypatch.setattr(guard_program, "_read_exactly", read_in_turns)
    ends: list[tuple[int, int | None]] = []
    waiting = [threading.Thread(target=lambda: ends.append(child.wait()), daemon=True) for _ in range(3)]
    os.kill(child.pid, signal.SIGKILL)
    for each in waiting:
        each.start()
    for each in waiting:
        each.join(timeout=200)
    assert ends == [KILLED] * 3


def test_a_child_that_ends_while_another_thread_kills_it_is_only_dead(
    child: Child, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between the look at the child and the order to its guard its pipe is closed, and its number given away."""
    order = child._guard.kill
    files = []

    def late() -> None:
        assert child.wait(200) == KILLED
        files.extend(tmp_path.joinpath(f"file{number}").open("wb") for number in range(8))
        order()

    monkeypatch.setattr(child._guard, "kill", late)
    os.kill(child.pid, signal.SIGKILL)
    try:
        assert child.kill() == KILLED
    finally:
        for file in files:
            file.close()
    assert [Path(file.name).read_bytes() for file in files] == [b""] * 8


def test_ctrl_c_in_the_middle_of_what_a_guard_says_leaves_no_child(
    child: Child, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was read is lost, and nobody can make sense of the rest."""

    def broken_off(fd: int) -> None:
        assert os.read(fd, 4)
        raise KeyboardInterrupt

    os.kill(child.pid, signal.SIGKILL)
    with monkeypatch.context() as patch:
        patch.setattr(guard_module, "read_fields", broken_off)
        with pytest.raises(KeyboardInterrupt):
            child.wait(200)
    closer = threading.Thread(target=child.close, daemon=True)
    closer.start()
    closer.join(200)
    assert not closer.is_alive()
    assert child.wait(0) == KILLED


def test_a_guard_is_not_closed_in_the_middle_of_an_order(monkeypatch: pytest.MonkeyPatch) -> None:
    guard = guard_module.Guard()
    is_told, goes_on = threading.Event(), threading.Event()

    def slowly(fd: int, message: bytes) -> None:
        is_told.set()
        assert goes_on.wait(200)
        os.write(fd, message)

    monkeypatch.setattr(guard_module, "write_all", slowly)
    errors: list[BaseException] = []

    def order() -> None:
        try:
            guard.kill()
        except OSError as error:
            errors.append(error)

    killer = threading.Thread(target=order, daemon=True)
    closer = threading.Thread(target=guard.close, daemon=True)
    killer.start()
    assert is_told.wait(200)
    closer.start()
    closer.join(0.2)
    goes_on.set()
    killer.join(200)
    closer.join(200)
    assert not closer.is_alive()
    assert errors == []


def test_a_forked_copy_lets_go_of_a_guard_that_is_just_being_asked() -> None:
    guard = guard_module.Guard()
    with guard._closing:
        assert outcome(lambda: guard.close() or b"let go") == (b"let go", (0, None))
    assert guard.is_alive
    guard.close()


def test_a_traceback_that_comes_late_is_waited_for(tmp_path: Path) -> None:
    """On a busy machine a child may have no processor for a while."""
    slow = "import signal, sys, time; from optest.process import Channel, TRACEBACK_SIGNAL\n"
    slow += "def told(*_):\n    time.sleep(0.6); print('here', file=sys.stderr, flush=True)\n"
    slow += "signal.signal(TRACEBACK_SIGNAL, told); Channel(*map(int, sys.argv[-2:])).send(b'ready'); time.sleep(600)"
    with start(tmp_path / "log", script=slow) as child:
        assert child.receive(200) == b"ready"
        child.write_traceback()
        assert child.stderr_tail() == "here\n"


def test_two_children_are_independent(tmp_path: Path) -> None:
    with start(tmp_path / "a") as one, start(tmp_path / "b") as other:
        one.send(b"hang")
        one.kill()
        exchange(other, "echo still here", "still here")


def test_a_child_of_before_keeps_its_own_log(tmp_path: Path) -> None:
    """The guard of a run that was killed may live on while that run is resumed."""
    with start(tmp_path / "log") as before, start(tmp_path / "log") as now:
        exchange(before, "say something", "said")
        before.close()
        assert now.stderr_tail() == ""


def outcome(function: Callable[[], bytes]) -> tuple[bytes, tuple[int, int | None]]:
    """Return the output of a fork that runs ``function``, and its end."""
    fork = fork_and_run(function)
    return fork.read(200), fork.end()


def test_a_fork_gives_back_what_its_function_returns() -> None:
    data = os.urandom(300_000)
    assert outcome(lambda: data) == (data, (0, None))


def test_a_fork_that_raises_exits_with_1_and_says_why(capfd: pytest.CaptureFixture[str]) -> None:
    def broken() -> bytes:
        raise ValueError("no luck")

    assert outcome(broken) == (b"", (1, None))
    assert "ValueError: no luck" in capfd.readouterr().err


def test_a_fork_that_dies_or_hangs() -> None:
    died = (-signal.SIGUSR1, signal.SIGUSR1)
    assert outcome(lambda: os.kill(os.getpid(), signal.SIGUSR1) or b"") == (b"", died)
    fork = fork_and_run(lambda: time.sleep(600) or b"")
    with pytest.raises(TimeoutError, match="did not end"):
        fork.read(0.05)
    assert fork.end() == KILLED


def test_a_child_of_a_fork_that_holds_the_pipe_does_not_hold_us_up() -> None:
    def leave_one() -> bytes:
        sleeper = os.fork()
        if sleeper == 0:
            time.sleep(300)
            os._exit(0)
        return str(sleeper).encode()

    fork = fork_and_run(leave_one)
    began = time.monotonic()
    sleeper = int(fork.read())
    took_s = time.monotonic() - began
    assert fork.end() == (0, None)
    if took_s < 200:  # later it may be over, and its number another process's
        os.kill(sleeper, signal.SIGKILL)
    assert took_s < 200


def test_what_a_fork_leaves_behind_ends_with_end_children() -> None:
    """In a process of its own, since ending all children is nothing for a test runner."""
    argv, mark = runaway("fork,setsid")
    script = f"""
import os, subprocess, sys
sys.path.insert(0, {str(Path(__file__).parent)!r})
from survivors import wait_until_alive
from optest.process import adopt_orphans, end_children, fork_and_run
adopt_orphans()
kept = subprocess.Popen(["sleep", "600"])
def leave():
    subprocess.Popen({argv!r}, start_new_session=True)
    wait_until_alive({mark!r}, 2)
    return b"left"
fork = fork_and_run(leave)
assert fork.read(200) == b"left"
assert fork.end() == (0, None)
killed, clean = end_children(frozenset([kept.pid]))
assert clean and killed == 2, (killed, clean)
assert kept.poll() is None
assert end_children() == (1, True)
assert end_children() == (0, True)
"""

    subprocess.run([sys.executable, "-c", script], check=True, timeout=600)
    assert alive(mark) == []
