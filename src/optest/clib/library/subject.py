"""What is called again and again: an operator's function with what is made for it, and what is done around calls."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from copy import copy
from functools import cache, partial
from typing import Any

from optest.clib.ffi.calls import BadCall, StatusError
from optest.clib.library.c_objects import is_of_a_tensor
from optest.clib.library.calls import Given, PlainCall, PreparedObject
from optest.spec import Fault, TensorSpec, contiguous_strides

__all__ = ["Subject", "other_calls"]

Specs = Mapping[str, TensorSpec]


class Subject:
    """An operator's function with everything but its tensors, which come by role.

    Where the function returns an output, what it returned is written into that output's memory. What lasts for many
    calls (a descriptor, a plan) is made once, by :meth:`renewed`. ``others`` make calls of the same operator, of each
    group the first for which the library makes what it needs.
    """

    def __init__(
        self,
        call: PlainCall,
        *,
        c_objects: Sequence[PreparedObject] = (),
        sized: PlainCall | None = None,
        returns: str = "",
        without: frozenset[str] = frozenset(),
    ) -> None:
        """``sized`` says how large the workspace is; ``without`` are objects that C gets NULL in place of, those of
        tensors in every call."""
        self._call = call
        self._c_objects = [each for each in c_objects if not (is_of_a_tensor(each.name) and each.key in without)]
        self._sized = sized
        self._returns = returns
        self._without = dict.fromkeys(without)
        self._lasting = [each for each in self._c_objects if not each.is_late]
        self._late = [each for each in self._c_objects if each.is_late or each.late_sets]
        self.others: Sequence[Sequence[Other]] = ()
        self._given: dict[str, Any] = {}
        self._alive = ExitStack()

    @property
    def name(self) -> str:
        return self._call.function.name

    @property
    def has_descriptors(self) -> bool:
        """Whether anything is made before a call."""
        return bool(self._c_objects)

    @contextmanager
    def renewed(self, *, forgets: bool = False) -> Iterator[None]:
        """While inside, calls use what was made just now; with ``forgets`` the arrays of sizes and strides were
        overwritten as soon as the functions that got them had returned.

        Raises:
            StatusError: if the library refuses to make it.
        """
        before = self._given, self._alive
        with ExitStack() as alive:
            self._given, self._alive = self._made(alive, forgets=forgets), alive
            try:
                yield
            finally:
                self._given, self._alive = before

    @contextmanager
    def alive_beside(self) -> Iterator[None]:
        """The same, but calls go on using what they used, and nothing ends before."""
        with ExitStack() as alive:
            self._made(alive, keeps=True)
            yield

    @contextmanager
    def apart(self, pointers: Given) -> Iterator[Callable[[], None]]:
        """A call with these pointers that has nothing in common with :meth:`run`, made once, for another thread."""
        own = copy(self)
        with own.renewed():
            own.run(pointers)
            yield lambda: own.run(pointers)

    @contextmanager
    def with_other_descriptors(self) -> Iterator[None]:
        """While inside, other things of the same kind are alive, which were made after those that :meth:`run` uses."""
        lasts = any(not is_of_a_tensor(each.name) for each in self._lasting)
        with ExitStack() as alive:
            for group in self.others if lasts else ():
                for other in group:
                    with suppress(StatusError, BadCall, Fault):
                        subject = other()
                        if subject is not None:
                            alive.enter_context(subject.alive_beside())
                            break
            yield

    def _made(self, alive: ExitStack, *, forgets: bool = False, keeps: bool = False) -> dict[str, Any]:
        given: dict[str, Any] = {}
        with ExitStack() as brief:
            for each in self._lasting:
                copies: list[Any] | None = [] if forgets else None
                given[each.key] = each.made(given, brief if each.is_brief and not keeps else alive, copies)
                for array in copies or ():
                    array[:] = [1] * len(array)  # legal sizes and strides, of other tensors
                if copies:
                    alive.callback(copies.clear)  # as long as C may have their addresses
        return given

    @property
    def workspace_bytes(self) -> int:
        """What the library asks for.

        Raises:
            StatusError: if it refuses to say.
        """
        if self._sized is None:
            return 0
        slot = self._sized.slot
        with ExitStack() as alive:
            given = self._with_late({}, alive)
            if slot is None:
                return int(self._sized(given))
            self._sized({**given, "slot": ctypes.byref(slot)})
            return int(slot.value)

    def run(self, pointers: Given) -> None:
        """Call, and require success if the result is a status.

        Raises:
            StatusError: for any other status.
            BadCall: for a value that does not fit the prototype; C was not called.
        """
        if not self._late:
            result = self._call({**self._given, **pointers, **self._without} if self._c_objects else pointers)
        else:
            with ExitStack() as alive:
                result = self._call({**self._with_late(pointers, alive), **self._without})
        if self._returns:
            pointers[self._returns].array[...] = result

    def ready(self, pointers: Given) -> Callable[[], Any]:
        """The call with these tensors, checked once, for timings; what is made for it ends with what is alive."""
        given = {**self._with_late(pointers, self._alive), **self._without}
        return self._call.function.ready(*self._call.arguments(given))

    def _with_late(self, pointers: Given, alive: ExitStack) -> dict[str, Any]:
        """What is there, with what can only be made or told now."""
        given = {**self._given, **pointers}
        for each in self._late:
            if each.is_late:
                given[each.key] = each.made(given, alive)
            for late in each.late_sets:
                late({**given, "self": given[each.key]})
        return given


CallOf = Callable[[Specs, Mapping[str, Any]], Subject | None]
"""Of the same operator for tensors by role and attributes by name; None where it takes none such."""
Other = Callable[[], Subject | None]


def other_calls(call_of: CallOf, specs: Specs, attributes: Mapping[str, Any]) -> list[list[Other]]:
    """One for other attributes and tensors of twice the sizes, as far as the operator takes them; one for the same
    shapes and other attributes, every second tensor in another layout: what is kept for a shape has to be kept for its
    strides too."""
    other = {name: 2 * value + 1 if type(value) is float else value for name, value in attributes.items()}
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
