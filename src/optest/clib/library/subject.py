"""What is called again and again: an operator with its descriptor, and what can be done around its calls."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from typing import Any

from optest.clib.ffi.calls import BadCall
from optest.clib.ffi.statuses import StatusError
from optest.clib.library.descriptors import BoundCall, Descriptor, Recipe
from optest.clib.library.direct_calls import DirectFunction
from optest.spec import Fault, TensorSpec, contiguous_strides

__all__ = ["Described", "DirectSubject", "Subject"]

Pointers = Mapping[str, Any]
Specs = Mapping[str, TensorSpec | None]
RecipeOf = Callable[[Specs, Pointers], Recipe]
"""Of operator descriptors for tensors by role and the values of further roles."""

Size = Callable[[Descriptor], int]


class Subject:
    """A function that needs nothing but its arguments."""

    has_descriptors = False

    @property
    def workspace_bytes(self) -> int:
        """What a call needs now: it may depend on the number of threads when the descriptor was made."""
        return 0

    def __init__(self, run: Callable[[Pointers], None], name: str = "") -> None:
        """``name`` is the C function's."""
        self._run = run
        self.name = name

    def run(self, pointers: Pointers) -> None:
        self._run(pointers)

    @contextmanager
    def renewed(self, *, forgets: bool = False) -> Iterator[None]:
        """While inside, :meth:`run` uses a descriptor that was made just now; with ``forgets`` the arrays that the
        tensors were described by were overwritten before it was made."""
        del forgets  # nothing is described
        yield

    @contextmanager
    def apart(self, pointers: Pointers) -> Iterator[Callable[[], None]]:
        """A call with these pointers that has nothing in common with :meth:`run`, for another thread."""
        yield lambda: self._run(pointers)

    @contextmanager
    def with_other_descriptors(self) -> Iterator[None]:
        """While inside, other descriptors of the operator are alive, which were made after the one that runs."""
        yield


class Described(Subject):
    """An operator whose descriptor is made from tensors and attributes; it runs while one is :meth:`alive`."""

    has_descriptors = True

    def __init__(self, call: BoundCall, specs: Specs, values: Pointers, recipe_of: RecipeOf, size: Size) -> None:
        """``values`` are those of the roles beside tensors; ``call`` gets them with the pointers. ``size`` asks a
        descriptor for its workspace.
        """
        self._call = call
        self.name = call.function.name
        self._specs = specs
        self._values = values
        self._recipe_of = recipe_of
        self._size = size
        self._recipe = recipe_of(specs, values)
        self._others: list[Recipe] = []
        self._descriptor: Descriptor | None = None
        self._told: tuple[Pointers, list[Any]] = ({}, [])
        self._places = [index for index, key in enumerate(call.keys) if key == "descriptor"]

    @contextmanager
    def alive(self, *, forgets: bool = False) -> Iterator[Descriptor]:
        """While inside, :meth:`run` uses a descriptor that was made just now."""
        before = self._descriptor
        with self._recipe.made(forgets=forgets) as made:
            self._descriptor = made
            try:
                yield made
            finally:
                self._descriptor = before

    @property
    def workspace_bytes(self) -> int:
        assert self._descriptor is not None
        return self._size(self._descriptor)

    def run(self, pointers: Pointers) -> None:
        """Call with pointers by role; the same mapping once more is what was checked before."""
        descriptor = self._descriptor
        assert descriptor is not None
        known, told = self._told
        if known is pointers:
            for index in self._places:
                told[index] = descriptor.address
            self._call.function.again(told)
            return
        passed = {**self._values, "descriptor": descriptor, **pointers}
        self._call(passed)
        self._told = (pointers, self._call.told(passed))

    @contextmanager
    def renewed(self, *, forgets: bool = False) -> Iterator[None]:
        with self.alive(forgets=forgets):
            yield

    @contextmanager
    def apart(self, pointers: Pointers) -> Iterator[Callable[[], None]]:
        with self._recipe.made() as made:
            passed = {**self._values, "descriptor": made, **pointers}
            self._call(passed)
            told = self._call.told(passed)
            yield lambda: self._call.function.again(told)

    @contextmanager
    def with_other_descriptors(self) -> Iterator[None]:
        """One has other attributes and tensors of twice the sizes, as far as the library takes them, one the same
        shapes and other attributes, every second tensor in another layout: what is kept for a shape has to be kept
        for its strides too.

        Their tensor descriptors stay alive, in the memory that those of the first one left.
        """
        *larger, relaid = self._others or self._other_recipes()
        with ExitStack() as alive:
            for recipe in larger:
                with suppress(StatusError, BadCall, Fault):
                    alive.enter_context(recipe.made(keeps_tensors=True))
                    break
            with suppress(StatusError, BadCall, Fault):
                alive.enter_context(relaid.made(keeps_tensors=True))
            yield

    def _other_recipes(self) -> Sequence[Recipe]:
        twice = {role: None if spec is None else _twice(spec) for role, spec in self._specs.items()}
        other = {role: _another(role, value) for role, value in self._values.items()}
        relaid = {
            role: spec if spec is None or index % 2 == 0 else _relaid(spec)  # all of them alike are walked alike
            for index, (role, spec) in enumerate(self._specs.items())
        }
        pairs = ((twice, other), (twice, self._values), (self._specs, other), (relaid, other))
        self._others = [self._recipe_of(specs, values) for specs, values in pairs]
        return self._others


class DirectSubject(Subject):
    """What lasts for many calls (a plan, a context) is made once and made anew when it is asked for; it runs while its
    function is alive."""

    def __init__(self, function: DirectFunction, other: Callable[[], DirectFunction | None]) -> None:
        """``other`` is the same operator for tensors of other sizes, None where it takes none."""
        super().__init__(function)
        self.name = function.function.name
        self._function = function
        self._other = other

    @property
    def has_descriptors(self) -> bool:  # type: ignore[override]
        return self._function.has_objects

    @property
    def workspace_bytes(self) -> int:
        return self._function.workspace_bytes

    @contextmanager
    def renewed(self, *, forgets: bool = False) -> Iterator[None]:
        with self._function.alive(forgets=forgets):
            yield

    @contextmanager
    def apart(self, pointers: Mapping[str, Any]) -> Iterator[Callable[[], None]]:
        """A call with these pointers and objects of its own, for another thread."""
        own = self._function.copied()
        with own.alive():
            yield lambda: own(pointers)

    @contextmanager
    def with_other_descriptors(self) -> Iterator[None]:
        """Things of the same kind are alive, made later for tensors of other sizes, or for the same where it takes no
        others."""
        with ExitStack() as alive:
            if self._function.lasting:
                with suppress(StatusError, BadCall, Fault):
                    alive.enter_context((self._other() or self._function).alive_beside())
            yield


def _twice(spec: TensorSpec) -> TensorSpec:
    return TensorSpec(dtype=spec.dtype, shape=tuple(2 * size for size in spec.shape))


def _relaid(spec: TensorSpec) -> TensorSpec:
    """The same shape in other strides: what is dense lies by columns, or with gaps, everything else dense."""
    strides = None
    if spec.is_plain:
        columns = contiguous_strides(spec.shape[::-1])[::-1]
        strides = columns if columns != contiguous_strides(spec.shape) else tuple(2 * each for each in columns)
    return TensorSpec(dtype=spec.dtype, shape=spec.shape, strides=strides)


def _another(role: str, value: Any) -> Any:
    return 2 * value + 1 if role.startswith("attribute:") and type(value) is float else value
