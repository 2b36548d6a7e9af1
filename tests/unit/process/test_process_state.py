"""What C code changed of the things that a process has one of is told in words and put back."""

from __future__ import annotations

import ctypes
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from optest.process.state import OF_C, QUICK, THOROUGH, ProcessState

_LIBC = ctypes.CDLL(None)


@pytest.fixture(autouse=True)
def everything_put_back(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    """Whatever a test that fails would leave to the others."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("OPTEST_TRIES_THIS", "before")
    state = ProcessState()
    yield
    state.changes()
    _LIBC.unsetenv(b"OPTEST_TRIES_THAT")


CHANGES = {
    "the working directory: ": lambda: os.chdir("/"),
    "what happens at SIGINT: it is ignored": lambda: _LIBC.signal(int(signal.SIGINT), ctypes.c_void_p(1)),
    "the thread's signal mask: it blocks SIGTERM": lambda: signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM}),
    "a timer or alarm is running": lambda: _LIBC.alarm(1000),
    "the environment: OPTEST_TRIES_THIS=before became OPTEST_TRIES_THIS=after": lambda: _LIBC.setenv(
        b"OPTEST_TRIES_THIS", b"after", 1
    ),
    "the environment: OPTEST_TRIES_THIS was removed": lambda: _LIBC.unsetenv(b"OPTEST_TRIES_THIS"),
}


@pytest.fixture
def _interrupts() -> Iterator[None]:
    """Whoever starts the tests in the background has them ignored from the beginning."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("_interrupts")
@pytest.mark.parametrize("words", CHANGES)
def test_a_change_is_told_and_put_back(words: str) -> None:
    state = ProcessState()
    assert state.changes() == []
    CHANGES[words]()
    found = state.changes()
    assert [each.is_harmful for each in found] == [True]
    assert found[0].said.startswith(words)
    assert state.changes() == []


def test_a_new_variable_is_worth_a_note() -> None:
    state = ProcessState()
    _LIBC.setenv(b"OPTEST_TRIES_THAT", b"1", 1)
    assert [(each.said, each.is_harmful) for each in state.changes()] == [
        ("the environment: OPTEST_TRIES_THAT is new", False)
    ]


@pytest.mark.parametrize("is_ignored", [False, True])
@pytest.mark.parametrize("watched", [OF_C, (*QUICK, *THOROUGH)])
def test_a_handler_that_a_compiler_installs_is_worth_a_note_in_python(
    watched: tuple[str, ...], is_ignored: bool
) -> None:
    handler = ctypes.CFUNCTYPE(None, ctypes.c_int)(lambda _: None)
    state = ProcessState(watched)
    _LIBC.signal(int(signal.SIGUSR2), ctypes.c_void_p(1) if is_ignored else handler)
    assert [each.is_harmful for each in state.changes()] == [watched is OF_C or is_ignored]
    assert state.changes() == []


def test_standard_input_that_was_closed_is_opened_again() -> None:
    kept = os.dup(0)
    try:
        state = ProcessState()
        os.close(0)
        assert [each.said for each in state.changes()] == ["standard input: it was closed"]
        assert state.changes() == []
    finally:
        os.dup2(kept, 0)
        os.close(kept)
