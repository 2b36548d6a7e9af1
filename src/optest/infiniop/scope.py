"""What belongs to one case of :func:`test_operator`: its tensors, and a watch on the inputs of every call."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any, Protocol

from optest.clib.ffi.signatures import Prototype
from optest.memory.buffers import Change
from optest.spec import Fault, Reason

__all__ = ["CaseScope", "case_scope", "current_scope", "is_timed", "next_path", "set_seed", "timed", "watched"]


class Watched(Protocol):
    """A tensor whose memory can be compared with itself; ``role`` is what C calls it."""

    role: str

    def data(self) -> int: ...

    def snapshot(self) -> bytes: ...

    def changed(self, before: bytes) -> Change | None: ...


@dataclass(slots=True)
class CaseScope:
    """The tensors of one case, kept until its end, and what the next one draws from: a seed and a number.

    ``calls`` counts those to functions of operators.
    """

    seed: int = 0
    drawn: int = 0
    calls: int = 0
    tensors: list[Any] = field(default_factory=list)


_outside = CaseScope()
"""Of tensors that are made in no case; it keeps none of them."""
_scope: ContextVar[CaseScope | None] = ContextVar("optest_infiniop_case", default=None)


def current_scope() -> CaseScope | None:
    return _scope.get()


@contextmanager
def case_scope(seed: int) -> Iterator[CaseScope]:
    scope = CaseScope(seed=seed)
    token = _scope.set(scope)
    try:
        yield scope
    finally:
        _scope.reset(token)


def set_seed(seed: int) -> None:
    """Start the draws of tensors without a seed of their own again, from ``seed``."""
    scope = _scope.get() or _outside
    scope.seed, scope.drawn = seed, 0


def next_path() -> tuple[int, str]:
    """Seed and argument path for the next tensor: two of the same shape hold different values."""
    scope = _scope.get() or _outside
    scope.drawn += 1
    return scope.seed, f"tensor{scope.drawn - 1}"


_timed: ContextVar[bool] = ContextVar("optest_infiniop_timed", default=False)


def is_timed() -> bool:
    """Whether calls are being timed, and nothing should be done beside them."""
    return _timed.get()


@contextmanager
def timed() -> Iterator[None]:
    """Calls inside are neither watched nor, after the first, checked."""
    token = _timed.set(True)
    try:
        yield
    finally:
        _timed.reset(token)


def watched(prototype: Prototype | None, arguments: Sequence[Any]) -> AbstractContextManager[None]:
    """Within a case, hold a call to the header's ``const``: an input is after it, bit for bit, what it was."""
    scope = _scope.get()
    if scope is None or is_timed() or prototype is None or len(arguments) != len(prototype.parameters):
        return nullcontext()
    inputs = _inputs(prototype, arguments, scope.tensors)
    return _unchanged(prototype.name, inputs) if inputs else nullcontext()


def _inputs(prototype: Prototype, arguments: Sequence[Any], tensors: Sequence[Any]) -> list[tuple[str, Watched]]:
    """The tensors that are passed as pointers to const, and nowhere as others. All of them learn what C calls them."""
    pointers = [
        (parameter, argument)
        for parameter, argument in zip(prototype.parameters, arguments, strict=True)
        if parameter.is_pointer and type(argument) is int
    ]
    written = {argument for parameter, argument in pointers if not parameter.is_const}
    by_address = {tensor.data(): tensor for tensor in tensors}
    for parameter, argument in pointers:
        if argument in by_address:
            by_address[argument].role = by_address[argument].role or parameter.name
    return [
        (parameter.name, by_address[argument])
        for parameter, argument in pointers
        if parameter.is_const and argument in by_address and argument not in written
    ]


@contextmanager
def _unchanged(function: str, inputs: Sequence[tuple[str, Watched]]) -> Iterator[None]:
    before = [tensor.snapshot() for _, tensor in inputs]
    yield
    for (name, tensor), then in zip(inputs, before, strict=True):
        change = tensor.changed(then)
        if change is not None and change.place == "element":
            raise Fault(Reason.INPUT_MUTATED, f"{function} promises const {name}, but {change}")
