"""The device under test and its compiler: whether it answered itself, and which random numbers it drew."""

from __future__ import annotations

import re
import sys
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from time import perf_counter
from typing import Any

import torch

from optest.numerics import Array
from optest.spec import Check, CheckState, Fault, Reason
from optest.torch.calls.call import CPU, OperatorsSeen, TorchCall
from optest.torch.cases import FELL_BACK
from optest.torch.tensors import copied


@dataclass(slots=True)
class Compilation:
    """Every compilation of a call, that of its way back too, which begins when the call is over."""

    seconds: float = 0.0
    was_begun: bool = False
    _since: float | None = None
    _backward_failures: list[BaseException] = field(default_factory=list)

    def failed_by(self, error: BaseException) -> bool:
        """Whether the error ended the compilation of a backward graph, which torch does not wrap as it does others."""
        return any(error is each for each in self._backward_failures)

    def _begin(self, _: Any) -> None:
        self.was_begun = True
        self._since = perf_counter()

    def _end(self, arguments: Any) -> None:
        if self._since is not None:
            self.seconds += perf_counter() - self._since
            self._since = None
        error = sys.exc_info()[1]
        if error is not None and arguments.callback_trigger.name == "LAZY_BACKWARD":
            self._backward_failures.append(error)


@contextmanager
def watched(found: Compilation) -> Iterator[None]:
    """Note the compilations within."""
    from torch._dynamo import callback  # which a run that compiles nothing does not wait for

    handler = callback.callback_handler
    handler.register_start_callback(found._begin)
    handler.register_end_callback(found._end)
    try:
        yield
    finally:
        handler.remove_start_callback(found._begin)
        handler.remove_end_callback(found._end)


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

    def fell_back(self, message: str, **details: Any) -> None:
        """Keep a fall-back for the record where it is allowed.

        Raises:
            Fault: FALLBACK where it is not.
        """
        if not self.may_fall_back:
            raise Fault(Reason.FALLBACK, message, details=details)
        self.fallbacks.append(message)

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
    messages = [str(each.message) for each in heard if _SAYS_SO.search(str(each.message))]
    for each in heard:
        if str(each.message) not in messages:
            warnings.warn_explicit(each.message, each.category, each.filename, each.lineno)
    if messages and target.device.type != "cpu":
        target.fell_back(f"{target.device} had the CPU compute: {messages[0].strip().splitlines()[0]}")


def require_on_device(leaf: Any, target: DeviceUnderTest, *, is_for_the_host: bool) -> None:
    """Raise where an output lies elsewhere; ``is_for_the_host`` of a call that itself moves something to the CPU.

    Raises:
        Fault: FALLBACK for the CPU, WRONG_DEVICE for another device.
    """
    if not isinstance(leaf, torch.Tensor) or _place(leaf.device) == _place(target.device):
        return
    if leaf.device.type != "cpu":
        message = f"an output is on {leaf.device}, expected on {target.device}"
        raise Fault(Reason.WRONG_DEVICE, message, details={"device": str(leaf.device)})
    if not is_for_the_host:
        target.fell_back(f"an output came back on the CPU, expected on {target.device}", device=str(leaf.device))


def _place(device: torch.device) -> tuple[str, int]:
    return device.type, device.index or 0


# Random numbers that a call draws though torch's own draws none: what a model draws next is not what it would be.


@contextmanager
def random_numbers_kept(who: str, unless: Callable[[], bool]) -> Iterator[None]:
    """While inside, torch's random numbers may not be drawn, ``unless`` it is in the nature of the call.

    Raises:
        Fault: STATE, where nothing else is raised.
    """
    found = torch.get_rng_state()
    torch.rand(1)  # or who seeds them each time would leave them as the first call did
    before = torch.get_rng_state()
    try:
        yield
        is_kept = torch.equal(before, torch.get_rng_state())
    finally:
        torch.set_rng_state(found)
    if not is_kept and not unless():
        raise Fault(
            Reason.STATE,
            f"{who} drew random numbers of torch, or seeded them, though the call needs none: what a model draws next "
            "is not what it would draw",
        )


def may_draw(call: TorchCall, tensors: Sequence[torch.Tensor]) -> bool:
    """Whether torch makes the call of an operator that draws for some values: ``rrelu`` does so for negative ones."""
    with torch.no_grad(), torch.random.fork_rng(devices=()), OperatorsSeen() as seen:
        call.on([copied(each.detach()).to(CPU) for each in tensors])()
    return any(torch.Tag.nondeterministic_seeded in each.tags for each in seen.operators)
