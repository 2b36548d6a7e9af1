"""Scope of one case of :func:`test_operator`: its tensors, and a check of the inputs of every call."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any

from optest.clib.ffi.signatures import Prototype
from optest.spec import Fault, Reason


@dataclass(slots=True)
class CaseScope:
    """Tensors of one case, kept until its end, the state of its random draws, and the number of operator calls."""

    seed: int = 0
    tensor_count: int = 0
    calls: int = 0
    is_case: bool = True
    is_timed: bool = False  # nothing is checked while calls are timed
    tensors: list[Any] = field(default_factory=list)

    def next_path(self) -> tuple[int, str]:
        """Return seed and argument path of the next tensor; two tensors of one shape thus get different values."""
        self.tensor_count += 1
        return self.seed, f"tensor{self.tensor_count - 1}"

    def keep(self, tensor: Any) -> None:
        if self.is_case:
            self.tensors.append(tensor)


# Outside a case this scope applies, which keeps no tensors.
_scope: ContextVar[CaseScope] = ContextVar("optest_infiniop_case", default=CaseScope(is_case=False))  # noqa: B039
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
    """Restart the sequence of values of tensors without their own seed, from ``seed``."""
    scope = current_scope()
    scope.seed, scope.tensor_count = seed, 0


@contextmanager
def timed() -> Iterator[None]:
    """Check no inputs within the block, and arguments only in the first call of each function."""
    scope, torch = current_scope(), sys.modules.get("torch")
    before, scope.is_timed = scope.is_timed, True
    try:
        # Without the mode that watches torch.allclose, whose time would be measured, too.
        with nullcontext() if torch is None else torch._C.DisableTorchFunction():
            yield
    finally:
        scope.is_timed = before


@contextmanager
def watched(prototype: Prototype | None, arguments: Sequence[Any]) -> Iterator[None]:
    """Raise INPUT_MUTATED if the call in the block changes a tensor of this case that the prototype declares const."""
    scope = current_scope()
    inputs: list[tuple[str, Any]] = []
    if not scope.is_timed and prototype is not None and len(arguments) == len(prototype.parameters):
        inputs = _const_tensors(prototype, arguments, scope.tensors)
    originals = [tensor.elements() for _, tensor in inputs]
    yield
    for (promise, tensor), original in zip(inputs, originals, strict=True):
        change = tensor.mutated(original)
        if change is not None and change.place == "element":
            raise Fault(Reason.INPUT_MUTATED, f"{promise}, but {change}")


def _const_tensors(prototype: Prototype, arguments: Sequence[Any], tensors: Sequence[Any]) -> list[tuple[str, Any]]:
    """Return the tensors passed only as pointers to const, each with a message; set the role of all passed tensors."""
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
