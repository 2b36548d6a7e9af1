"""The device under test and its compiler, and whether it answered a call itself or fell back to the CPU."""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch

from optest.numerics import Array
from optest.spec import Check, CheckState, Fault, Reason
from optest.torch.calls.compiler import Compilation
from optest.torch.cases import FELL_BACK

__all__ = ["DeviceUnderTest", "kept_on_device", "require_on_device"]


@dataclass(slots=True)
class DeviceUnderTest:
    """The device and compiler for one call of ``name``; ``may_fall_back`` lets it be answered otherwise."""

    name: str
    device: torch.device
    compiler: str | None = None
    may_fall_back: bool = False
    synchronize: Callable[[], None] = lambda: None
    same_strides: bool = False
    """Whether results have to have the strides that torch on the CPU gives them."""

    compilation: Compilation = field(default_factory=Compilation)
    fallbacks: list[str] = field(default_factory=list)
    notes: list[Check] = field(default_factory=list)
    compiled: Callable[[Sequence[torch.Tensor]], list[Any]] | None = None
    """What has been compiled, to be called again; None where no compiler is asked, or where it fell back."""

    further: list[tuple[str, list[Array]]] = field(default_factory=list)
    """How it was called again with the first values, and what it yielded: where its bits are not those of the first."""

    @contextmanager
    def allowing(self) -> Iterator[None]:
        """Keep a fall-back for the record where it is allowed.

        Raises:
            Fault: FALLBACK where it is not, and whatever else is raised within.
        """
        try:
            yield
        except Fault as fault:
            if fault.reason is not Reason.FALLBACK or not self.may_fall_back:
                raise
            self.fallbacks.append(fault.message)

    def checks(self) -> list[Check]:
        """What there is to be told beside the values."""
        return [
            *(
                Check(name=FELL_BACK, state=CheckState.NOTE, detail=f"{each}; --allow-fallback names {self.name}")
                for each in self.fallbacks
            ),
            *self.notes,
        ]


# Whether a call was answered by the device that was asked, not by the CPU in its place.

_SAYS_SO = re.compile(r"\b(fall(s|ing)?|fell)[ -]?back\b.*\bCPU\b", re.IGNORECASE | re.DOTALL)
"""What torch and its devices warn of when a kernel is missing and the CPU computes in its place."""


@contextmanager
def kept_on_device(target: DeviceUnderTest) -> Iterator[None]:
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
    with target.allowing():
        if said and target.device.type != "cpu":
            raise Fault(Reason.FALLBACK, f"{target.device} had the CPU compute: {said[0].strip().splitlines()[0]}")


def require_on_device(leaf: Any, target: DeviceUnderTest, *, is_for_the_host: bool) -> None:
    """Raise where an output lies elsewhere; ``is_for_the_host`` of a call that itself moves something to the CPU.

    Raises:
        Fault: FALLBACK for the CPU, WRONG_DEVICE for another device.
    """
    if not isinstance(leaf, torch.Tensor) or _place(leaf.device) == _place(target.device):
        return
    details = {"device": str(leaf.device)}
    if leaf.device.type != "cpu":
        message = f"an output is on {leaf.device}, but should be on {target.device}"
        raise Fault(Reason.WRONG_DEVICE, message, details=details)
    if is_for_the_host:
        return
    with target.allowing():
        message = f"an output came back on the CPU, but should be on {target.device}"
        raise Fault(Reason.FALLBACK, message, details=details)


def _place(device: torch.device) -> tuple[str, int]:
    return device.type, device.index or 0
