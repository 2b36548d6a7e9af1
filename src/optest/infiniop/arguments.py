"""The command line of a test script: which devices, profiling, and which case of which seed to run again."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from optest.errors import OptestError, Unavailable, UsageError
from optest.infiniop.devices import InfiniDeviceEnum, InfiniDeviceNames, prepare_device

__all__ = ["Chosen", "as_a_command", "chosen", "get_args", "get_test_devices"]


@dataclass(slots=True)
class Chosen:
    """What the command line says of the cases; ``script`` is empty as long as none was read.

    ``only`` is the number of the one case to run, of the test called ``only_of``, or of each if that is empty.
    """

    script: str = ""
    seed: int = 0
    only: int | None = None
    only_of: str = ""


chosen = Chosen()
"""Of the last :func:`get_args`; the defaults of :func:`test_operator`."""


@contextmanager
def as_a_command() -> Iterator[None]:
    """In a script that read its command line, an error of optest's ends it with a sentence and its exit status, and an
    interruption with 130."""
    try:
        yield
    except KeyboardInterrupt:
        if not chosen.script:
            raise
        raise SystemExit(130) from None
    except OptestError as error:
        if not chosen.script:
            raise
        sys.stderr.write(f"{error}\n")
        raise SystemExit(error.exit_status) from None


def get_args(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """Read the options of a test script; ``arguments`` are those of its command line unless stated."""
    parser = argparse.ArgumentParser(description="Test an operator of libinfiniop")
    parser.add_argument("--profile", action="store_true", help="time the operator too")
    parser.add_argument("--num_prerun", type=_count(0), default=10, help="calls before timing (10)")
    parser.add_argument("--num_iterations", type=_count(1), default=1000, help="calls to time, 1 or more (1000)")
    parser.add_argument("--debug", action="store_true", help="print the elements that are off")
    parser.add_argument("--seed", type=int, default=0, help="which random values (0)")
    parser.add_argument("--only", type=_one, metavar="[TEST:]N", help="run case N of a test alone, from 0")
    for device in InfiniDeviceEnum:
        parser.add_argument(f"--{device.name.lower()}", action="store_true", help=f"on {InfiniDeviceNames[device]}")
    found = parser.parse_args(arguments)
    chosen.script = sys.argv[0] if arguments is None else ""
    chosen.seed = found.seed
    chosen.only_of, chosen.only = found.only or ("", None)
    return found


def _one(text: str) -> tuple[str, int]:
    test, _, number = text.rpartition(":")
    return test, int(number)


def _count(least: int) -> Any:
    def count(text: str) -> int:
        number = int(text)
        if number < least:
            raise argparse.ArgumentTypeError(f"is {number}, but should be {least} or more")
        return number

    return count


def get_test_devices(args: argparse.Namespace) -> list[InfiniDeviceEnum]:
    """The devices that were asked for, the processor if none was; what a device needs is imported now.

    Raises:
        Unavailable: naming the device that this machine lacks, and why.
        UsageError: naming all of them, if it lacks several.
    """
    requested = [device for device in InfiniDeviceEnum if getattr(args, device.name.lower(), False)]
    missing: list[Unavailable] = []
    for device in requested:
        try:
            prepare_device(device)
        except Unavailable as error:  # noqa: PERF203 - each device is asked by itself
            missing.append(error)
    with as_a_command():
        if len(missing) == 1:
            raise missing[0]
        if missing:
            raise UsageError("\n".join(map(str, missing)))
    return requested or [InfiniDeviceEnum.CPU]
