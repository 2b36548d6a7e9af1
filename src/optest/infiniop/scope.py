"""What belongs to one case of :func:`test_operator`: its tensors, and a watch on the inputs of every call."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any

from optest.clib.ffi.signatures import Prototype
from optest.spec import Fault, Reason


@dataclass(slots=True)
class CaseScope:
    """The tensors of one case, kept until its end, and what the next one draws from: a seed and a number.

    ``calls`` counts those to functions of operators. While calls are timed, nothing is done beside them.
    """

    seed: int = 0
    drawn: int = 0
    calls: int = 0
    is_case: bool = True
    is_timed: bool = False
    tensors: list[Any] = field(default_factory=list)

    def next_path(self) -> tuple[int, str]:
        """Seed and argument path for the next tensor: two of the same shape hold different values."""
        self.drawn += 1
        return self.seed, f"tensor{self.drawn - 1}"

    def keep(self, tensor: Any) -> None:
        if self.is_case:
            self.tensors.append(tensor)


_scope: ContextVar[CaseScope] = ContextVar("optest_infiniop_case", default=CaseScope(is_case=False))  # noqa: B039
"""What is made in no case belongs to one that keeps nothing."""
current_scope = _scope.get


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
    scope = current_scope()
    scope.seed, scope.drawn = seed, 0


@contextmanager
def timed() -> Iterator[None]:
    """Calls inside are neither watched nor, after the first, checked."""
    scope = current_scope()
    before, scope.is_timed = scope.is_timed, True
    try:
        yield
    finally:
        scope.is_timed = before


@contextmanager
def watched(prototype: Prototype | None, arguments: Sequence[Any]) -> Iterator[None]:
    """Within a case, hold a call to the header's ``const``: an input is after it, bit for bit, what it was."""
    scope = current_scope()
    inputs: list[tuple[str, Any]] = []
    if not scope.is_timed and prototype is not None and len(arguments) == len(prototype.parameters):
        inputs = _inputs(prototype, arguments, scope.tensors)
    before = [tensor.elements() for _, tensor in inputs]
    yield
    for (promise, tensor), then in zip(inputs, before, strict=True):
        change = tensor.mutated(then)
        if change is not None and change.place == "element":
            raise Fault(Reason.INPUT_MUTATED, f"{promise}, but {change}")


def _inputs(prototype: Prototype, arguments: Sequence[Any], tensors: Sequence[Any]) -> list[tuple[str, Any]]:
    """The tensors that are passed as pointers to const, and nowhere as others, after what is promised of each. All of
    them learn what C calls them."""
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
        (f"{prototype.name} promises const {parameter.name}", by_address[argument])
        for parameter, argument in pointers
        if parameter.is_const and argument in by_address and argument not in written
    ]
