"""What is called again and again: an operator's function with what is made for it, and what is done around calls."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from functools import cache, partial
from typing import Any

from optest.clib.ffi.calls import BadCall
from optest.clib.ffi.statuses import StatusError
from optest.clib.library.calls import OperatorCall
from optest.spec import Fault, TensorSpec, contiguous_strides

__all__ = ["Subject", "other_calls"]

Pointers = Mapping[str, Any]
Specs = Mapping[str, TensorSpec]
CallOf = Callable[[Specs, Mapping[str, Any]], OperatorCall | None]
"""Of the same operator for tensors by role and attributes by name; None where it takes none such."""
Other = Callable[[], OperatorCall | None]


class Subject:
    """What lasts for many calls (a descriptor, a plan) is made once and made anew when it is asked for; it runs while
    its call is alive."""

    def __init__(self, call: OperatorCall, others: Sequence[Sequence[Other]] = ()) -> None:
        """``others`` make calls of the same operator, of each group the first for which the library makes what it
        needs."""
        self._call = call
        self._others = others
        self.name = call.function.name
        self.run: Callable[[Pointers], None] = call

    @property
    def has_descriptors(self) -> bool:
        """Whether anything is made before a call."""
        return self._call.has_objects

    @property
    def workspace_bytes(self) -> int:
        """What a call needs now: it may depend on the number of threads when the descriptor was made."""
        return self._call.workspace_bytes

    @contextmanager
    def renewed(self, *, forgets: bool = False) -> Iterator[None]:
        """While inside, :meth:`run` uses what was made just now; with ``forgets`` the arrays of sizes and strides were
        overwritten as soon as the functions that got them had returned."""
        with self._call.alive(forgets=forgets):
            yield

    @contextmanager
    def apart(self, pointers: Pointers) -> Iterator[Callable[[], None]]:
        """A call with these pointers that has nothing in common with :meth:`run`, for another thread; it was made
        once."""
        own = self._call.copied()
        with own.alive():
            own(pointers)
            yield lambda: own(pointers)

    @contextmanager
    def with_other_descriptors(self) -> Iterator[None]:
        """While inside, other things of the same kind are alive, which were made after those that :meth:`run` uses."""
        with ExitStack() as alive:
            for group in self._others if self._call.lasting else ():
                for other in group:
                    with suppress(StatusError, BadCall, Fault):
                        call = other()
                        if call is not None:
                            alive.enter_context(call.alive_beside())
                            break
            yield


def other_calls(call_of: CallOf, specs: Specs, attributes: Mapping[str, Any]) -> list[list[Other]]:
    """One for other attributes and tensors of twice the sizes, as far as the operator takes them; one for the same
    shapes and other attributes, every second tensor in another layout: what is kept for a shape has to be kept for its
    strides too."""
    other = {name: _another(value) for name, value in attributes.items()}
    twice = {
        key: TensorSpec(dtype=spec.dtype, shape=tuple(2 * size for size in spec.shape)) for key, spec in specs.items()
    }
    relaid = {
        key: spec if index % 2 == 0 else _relaid(spec)  # all of them alike are walked alike
        for index, (key, spec) in enumerate(specs.items())
    }
    groups = (((twice, other), (twice, attributes), (specs, other)), ((relaid, other),))
    return [[cache(partial(call_of, *pair)) for pair in group] for group in groups]


def _relaid(spec: TensorSpec) -> TensorSpec:
    """The same shape in other strides: what is dense lies by columns, or with gaps, everything else dense."""
    strides = None
    if spec.is_plain:
        columns = contiguous_strides(spec.shape[::-1])[::-1]
        strides = columns if columns != contiguous_strides(spec.shape) else tuple(2 * each for each in columns)
    return TensorSpec(dtype=spec.dtype, shape=spec.shape, strides=strides)


def _another(value: Any) -> Any:
    return 2 * value + 1 if type(value) is float else value
