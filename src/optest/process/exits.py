"""What foreign code may not do to this process: end it as if optest were done, or leave it in another directory."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NoReturn

from optest.spec import Fault, Reason, Status

__all__ = ["directory_kept", "exits_refused", "leave"]

leave = os._exit
"""End this process at once, whatever foreign code made of ``os._exit``."""


@contextmanager
def exits_refused() -> Iterator[None]:
    """While this lasts, ``os._exit`` raises a fault: exit status 0 in the middle of a run would say that all is well.

    Copies of this process that foreign code forks may still leave by it. An ``exit`` in C cannot be refused.
    """
    before, owner = os._exit, os.getpid()

    def refuse(status: int) -> NoReturn:
        if os.getpid() != owner:
            leave(status)
        raise Fault(
            Reason.EXIT_CODE,
            f"the process was to end with exit status {status} (os._exit), in the middle of the run",
            status=Status.CRASHED,
            details={"exit_code": status},
        )

    os._exit = refuse
    try:
        yield
    finally:
        os._exit = before


@contextmanager
def directory_kept() -> Iterator[None]:
    """Come back to the working directory afterwards; relative paths of a plan and of reports start from it."""
    before = os.getcwd()
    try:
        yield
    finally:
        os.chdir(before)
