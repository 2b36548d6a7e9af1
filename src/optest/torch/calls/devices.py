"""Whether a call was answered by the device that was asked, not by the CPU in its place."""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch

from optest.spec import Fault, Reason
from optest.torch.calls.under_test import UnderTest

__all__ = ["kept_on_device", "require_on_device"]

_SAYS_SO = re.compile(r"\b(fall(s|ing)?|fell)[ -]?back\b.*\bCPU\b", re.IGNORECASE | re.DOTALL)
"""What torch and its devices warn of when a kernel is missing and the CPU computes in its place."""


@contextmanager
def kept_on_device(asked: UnderTest) -> Iterator[None]:
    """Listen to the warnings within; those that are about something else are passed on.

    Raises:
        Fault: FALLBACK if the device had the CPU compute.
    """
    once = not torch.is_warn_always_enabled()
    torch.set_warn_always(True)  # or only the first case of a process hears of it
    try:
        with warnings.catch_warnings(record=True) as heard:
            warnings.simplefilter("always")
            yield
    finally:
        torch.set_warn_always(not once)
    said = [str(each.message) for each in heard if _SAYS_SO.search(str(each.message))]
    for each in heard:
        if str(each.message) not in said:
            warnings.warn_explicit(each.message, each.category, each.filename, each.lineno)
    with asked.allowing():
        if said and asked.device.type != "cpu":
            raise Fault(Reason.FALLBACK, f"{asked.device} had the CPU compute: {said[0].strip().splitlines()[0]}")


def require_on_device(leaf: Any, asked: UnderTest, *, is_for_the_host: bool) -> None:
    """Raise where an output lies elsewhere; ``is_for_the_host`` of a call that itself moves something to the CPU.

    Raises:
        Fault: FALLBACK for the CPU, WRONG_DEVICE for another device.
    """
    if not isinstance(leaf, torch.Tensor) or _place(leaf.device) == _place(asked.device):
        return
    details = {"device": str(leaf.device)}
    if leaf.device.type != "cpu":
        message = f"an output is on {leaf.device}, but should be on {asked.device}"
        raise Fault(Reason.WRONG_DEVICE, message, details=details)
    if is_for_the_host:
        return
    with asked.allowing():
        message = f"an output came back on the CPU, but should be on {asked.device}"
        raise Fault(Reason.FALLBACK, message, details=details)


def _place(device: torch.device) -> tuple[str, int]:
    return device.type, device.index or 0
