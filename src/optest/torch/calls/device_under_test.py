"""The device under test and its compiler: detect fall-backs to the CPU or eager torch and draws of random numbers."""

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
from optest.torch.tensors import strided_copy


@dataclass(slots=True)
class Compilation:
    """Record of all compilations of a call, including the backward graph, which torch compiles after the call."""

    seconds: float = 0.0
    was_begun: bool = False
    _since: float | None = None
    _backward_failures: list[BaseException] = field(default_factory=list)

    def failed_by(self, error: BaseException) -> bool:
        """Return whether the error ended the compilation of a backward graph, which torch does not wrap."""
        return any(error is failure for failure in self._backward_failures)

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
def watched(compilation: Compilation) -> Iterator[None]:
    """Record compilations within the block in ``compilation``."""
    from torch._dynamo import callback  # a slow import, needed only by runs that compile

    handler = callback.callback_handler
    handler.register_start_callback(compilation._begin)
    handler.register_end_callback(compilation._end)
    try:
        yield
    finally:
        handler.remove_start_callback(compilation._begin)
        handler.remove_end_callback(compilation._end)


@dataclass(slots=True)
class DeviceUnderTest:
    """Device and compiler for one call of the operator ``name``, with the records of that call.

    ``may_fall_back`` accepts execution by the CPU or eager torch; ``same_strides`` requires the strides that torch on
    the CPU gives. ``compiled`` repeats the compiled call; None without a compiler or after a fall-back. ``further`` are
    repetitions with the first values whose results differ in their bits: a description and the results.
    """

    name: str
    device: torch.device
    compiler: str | None = None
    may_fall_back: bool = False
    synchronize: Callable[[], None] = lambda: None
    same_strides: bool = False
    compilation: Compilation = field(default_factory=Compilation)
    fallbacks: list[str] = field(default_factory=list)
    notes: list[Check] = field(default_factory=list)
    compiled: Callable[[Sequence[torch.Tensor]], list[Any]] | None = None
    further: list[tuple[str, list[Array]]] = field(default_factory=list)

    def fell_back(self, message: str, **details: Any) -> None:
        """Record a fall-back, or raise Fault FALLBACK if it is not allowed."""
        if not self.may_fall_back:
            raise Fault(Reason.FALLBACK, message, details=details)
        self.fallbacks.append(message)

    def checks(self) -> list[Check]:
        """Return the notes on this call: its fall-backs, then its other notes."""
        return [
            *(
                Check(name=FELL_BACK, state=CheckState.NOTE, detail=f"{reason}; --allow-fallback names {self.name}")
                for reason in self.fallbacks
            ),
            *self.notes,
        ]


# The warning of torch and its devices when a kernel is missing and the CPU computes instead.
_CPU_FALLBACK = re.compile(r"\b(fall(s|ing)?|fell)[ -]?back\b.*\bCPU\b", re.IGNORECASE | re.DOTALL)


@contextmanager
def kept_on_device(target: DeviceUnderTest) -> Iterator[None]:
    """Capture warnings within the block, record a fall-back to the CPU in ``target``, and emit the other warnings.

    Raises:
        Fault: FALLBACK if a device other than the CPU warned of one and ``target`` may not fall back.
    """
    was_always = torch.is_warn_always_enabled()
    torch.set_warn_always(True)  # by default torch warns only once per process
    try:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            yield
    finally:
        torch.set_warn_always(was_always)
    messages = [str(w.message) for w in caught if _CPU_FALLBACK.search(str(w.message))]
    for warning in caught:
        if str(warning.message) not in messages:
            warnings.warn_explicit(warning.message, warning.category, warning.filename, warning.lineno)
    if messages and target.device.type != "cpu":
        target.fell_back(f"{target.device} fell back to the CPU: {messages[0].strip().splitlines()[0]}")


def require_on_device(leaf: Any, target: DeviceUnderTest, *, is_for_the_host: bool) -> None:
    """Check that an output is on the target's device, or on the CPU if the call itself moves it there.

    Raises:
        Fault: WRONG_DEVICE if it is on another device, FALLBACK if it is on the CPU and ``target`` may not fall back.
    """
    if not isinstance(leaf, torch.Tensor) or _device_index(leaf.device) == _device_index(target.device):
        return
    if leaf.device.type != "cpu":
        message = f"an output is on {leaf.device}, expected on {target.device}"
        raise Fault(Reason.WRONG_DEVICE, message, details={"device": str(leaf.device)})
    if not is_for_the_host:
        target.fell_back(f"an output came back on the CPU, expected on {target.device}", device=str(leaf.device))


def _device_index(device: torch.device) -> tuple[str, int]:
    return device.type, device.index or 0


@contextmanager
def random_numbers_kept(who: str, unless: Callable[[], bool]) -> Iterator[None]:
    """Check that the block draws no random numbers of torch, unless ``unless()`` is true; restore the generator.

    Raises:
        Fault: STATE, if the block raises nothing itself.
    """
    original = torch.get_rng_state()
    torch.rand(1)  # code that seeds the generator each time would leave the same state as its first call
    before = torch.get_rng_state()
    try:
        yield
        is_kept = torch.equal(before, torch.get_rng_state())
    finally:
        torch.set_rng_state(original)
    if not is_kept and not unless():
        raise Fault(
            Reason.STATE,
            f"{who} drew random numbers of torch or seeded its generator, though the call needs none: later random "
            "numbers of the model change",
        )


def may_draw(call: TorchCall, tensors: Sequence[torch.Tensor]) -> bool:
    """Return whether the call runs an operator that may draw random numbers, as ``rrelu`` for negative values."""
    with torch.no_grad(), torch.random.fork_rng(devices=()), OperatorsSeen() as seen:
        call.on([strided_copy(tensor.detach()).to(CPU) for tensor in tensors])()
    return any(torch.Tag.nondeterministic_seeded in operator.tags for operator in seen.operators)
