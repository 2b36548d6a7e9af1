"""A process that holds thousands of files open, and one that waits for months, are served like any other."""

from __future__ import annotations

import os
import resource
from collections.abc import Iterator

import pytest
from survivors import ENVIRONMENT

from optest.process import Channel, fork_and_run, run

FEW, MANY = 1024, 1100
"""``select`` takes no number above the first."""


@pytest.fixture
def many_open_files() -> Iterator[None]:
    few, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(few, 2 * MANY), most))
    held = [os.open(os.devnull, os.O_RDONLY) for _ in range(MANY)]
    yield
    for each in held:
        os.close(each)
    resource.setrlimit(resource.RLIMIT_NOFILE, (few, most))


@pytest.mark.usefixtures("many_open_files")
def test_a_command_is_waited_for_on_a_pipe_of_a_high_number() -> None:
    assert run(["echo", "on"], cwd="/", env=ENVIRONMENT, timeout_s=200).stdout_tail == "on\n"


@pytest.mark.usefixtures("many_open_files")
def test_a_fork_is_read_on_a_pipe_of_a_high_number() -> None:
    fork = fork_and_run(lambda: b"on")
    assert fork.read_fd > FEW
    assert fork.read(200) == b"on"
    assert fork.end() == (0, None)


@pytest.mark.parametrize("timeout_s", [3e6, 1e12, float("inf")])
def test_a_message_is_waited_for_as_long_as_is_stated(timeout_s: float) -> None:
    """Of one wait the system counts milliseconds in 31 bits."""
    read, write = os.pipe()
    other_read, other_write = os.pipe()
    near, far = Channel(read, other_write), Channel(other_read, write)
    far.send(b"late")
    assert near.receive(timeout_s) == b"late"
    near.close()
    far.close()


def test_a_command_may_take_as_long_as_is_stated() -> None:
    assert run(["true"], cwd="/", env=ENVIRONMENT, timeout_s=1e12).returncode == 0
