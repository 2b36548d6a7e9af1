"""The device under test and its compiler: whether it answered itself, and what it left set for all of torch."""

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

__all__ = [
    "Compilation",
    "DeviceUnderTest",
    "kept_on_device",
    "may_draw",
    "random_numbers_kept",
    "require_on_device",
    "settings_kept",
    "watched",
]


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
        message = f"an output is on {leaf.device}, but should be on {target.device}"
        raise Fault(Reason.WRONG_DEVICE, message, details={"device": str(leaf.device)})
    if not is_for_the_host:
        target.fell_back(f"an output came back on the CPU, but should be on {target.device}", device=str(leaf.device))


def _place(device: torch.device) -> tuple[str, int]:
    return device.type, device.index or 0


# What torch has one of for everybody in the process, as a call left it: defaults, modes, switches. A compiler that
# changes them decides what other calls compute, and by which rule this one is judged: a switch for coarser products
# widens that.


@dataclass(frozen=True, slots=True)
class _Setting:
    name: str
    read: Callable[[], Any]
    put_back: Callable[[Any], Any]


def _set_default_device(device: torch.device) -> None:
    torch.set_default_device(None if device.type == "cpu" else device)


def _matmul_precision() -> str:
    """Torch refuses to say one word where its backends were set each by itself."""
    try:
        return str(torch.get_float32_matmul_precision())
    except RuntimeError:
        return _BY_BACKEND


_BY_BACKEND = "set for each backend"


def _set_matmul_precision(precision: str) -> None:
    if precision != _BY_BACKEND:
        torch.set_float32_matmul_precision(precision)


def _of_backend(name: str) -> Iterator[_Setting]:
    """What one kind of device may do to float32 operands; older versions of torch have no such setting."""
    switch: Any = getattr(getattr(torch.backends, name), "matmul", None)
    if hasattr(switch, "fp32_precision"):
        yield _Setting(
            f"torch.backends.{name}.matmul.fp32_precision",
            lambda: switch.fp32_precision,
            lambda precision: setattr(switch, "fp32_precision", precision),
        )


_SETTINGS = (
    _Setting("torch.get_default_dtype()", torch.get_default_dtype, torch.set_default_dtype),
    _Setting("torch.get_default_device()", torch.get_default_device, _set_default_device),
    _Setting("torch.is_grad_enabled()", torch.is_grad_enabled, torch.set_grad_enabled),
    _Setting("torch.is_anomaly_enabled()", torch.is_anomaly_enabled, torch.autograd.set_detect_anomaly),
    _Setting(
        "torch.get_deterministic_debug_mode()",
        torch.get_deterministic_debug_mode,
        torch.set_deterministic_debug_mode,
    ),
    _Setting("torch.get_num_threads()", torch.get_num_threads, torch.set_num_threads),
    _Setting("torch.get_float32_matmul_precision()", _matmul_precision, _set_matmul_precision),
    *_of_backend("mkldnn"),  # after the word for all of them, which sets these, too
    *_of_backend("cuda"),
)


@contextmanager
def settings_kept(who: str) -> Iterator[None]:
    """While inside, what is set for all of torch has to stay as it is; whatever happens, it is put back.

    Raises:
        Fault: STATE, with what was changed, where nothing else is raised.
    """
    before = [setting.read() for setting in _SETTINGS]
    try:
        yield
    except BaseException:
        _put_back(before)
        raise
    changed = _put_back(before)
    if changed:
        raise Fault(Reason.STATE, f"{who} changed what is set for all of torch: {'; '.join(changed)}")


def _put_back(before: list[Any]) -> list[str]:
    """What is not as it was, in words."""
    now = [setting.read() for setting in _SETTINGS]
    if now == before:
        return []
    for setting, was in zip(_SETTINGS, before, strict=True):
        if setting.read() != was:
            setting.put_back(was)
    return [
        f"{setting.name} was {was}, is {found}"
        for setting, was, found in zip(_SETTINGS, before, now, strict=True)
        if was != found
    ]


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
