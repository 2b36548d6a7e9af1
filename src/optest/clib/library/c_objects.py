"""Objects that C wants a pointer to and that are made before a call, by functions of the library or as a struct: as a
mapping states them, and as an operator needs them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import msgspec

from optest.clib.library.arguments import IN_MAKING, Argument, parsed
from optest.clib.library.mapping_words import Word

__all__ = [
    "NO_CALL",
    "NO_OBJECT",
    "CObject",
    "Call",
    "ObjectEntry",
    "Step",
    "calls_of",
    "is_of_a_tensor",
    "object_of",
    "object_of_tensor",
]

_NAMELESS = (*IN_MAKING, "handle", "null")
_OF_TENSOR = "tensor "
"""The names of what is made of a tensor begin so, which no name in a mapping does."""


class Call(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A function and the roles of its arguments; ``functions`` instead of ``function`` where it is another one for
    each dtype."""

    function: str = ""
    arguments: tuple[Word, ...] = ()
    functions: Mapping[str, str] = {}

    def named(self, dtype: str) -> str:
        """The function for a dtype."""
        return self.functions.get(dtype, self.function)


NO_CALL = Call()


class ObjectEntry(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Something opaque: how it is made, what is told it then (``set``), and the function that ends it, to which it is
    passed alone unless that is a call with arguments of its own. Or a ``struct`` of the headers, whose ``fields`` are
    filled in; those that are not named are 0, or what ``set`` made of them.

    One that ``copies`` what it is made of needs the descriptors of tensors no longer: they end when it is made.
    """

    create: Call = NO_CALL
    set: tuple[Call, ...] = ()
    destroy: str | Call = ""
    struct: str = ""
    fields: Mapping[str, Word] = {}
    copies: bool = False

    @property
    def ended_by(self) -> str:
        """The name of the function that ends it."""
        return self.destroy if isinstance(self.destroy, str) else self.destroy.function


NO_OBJECT = ObjectEntry()


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """A call of a function on the way: ``key`` is where the mapping states it."""

    key: str
    call: Call
    arguments: tuple[Argument, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class CObject:
    """Something that is made before a call and ended after it; a struct has ``fields``, everything else ``create``."""

    name: str
    create: Step | None = None
    set: tuple[Step, ...] = ()
    destroy: Step | None = None
    struct: str = ""
    fields: tuple[tuple[str, Argument], ...] = ()
    copies: bool = False

    @property
    def key(self) -> str:
        """Under which calls find it."""
        return f"object:{self.name}"

    def arguments(self) -> tuple[Argument, ...]:
        """All that is told to make it, in order."""
        steps = [each for each in (self.create, *self.set) if each is not None]
        return (*(each for step in steps for each in step.arguments), *(each for _, each in self.fields))

    def steps(self) -> tuple[Step, ...]:
        return tuple(each for each in (self.create, *self.set, self.destroy) if each is not None)


def is_of_a_tensor(name: str) -> bool:
    """Whether an object is what is made of a tensor, not one of the operator."""
    return name.startswith(_OF_TENSOR)


def object_of(name: str, made: ObjectEntry) -> CObject:
    """An object of an operator."""
    return _c_object(name, f"objects.{name}", made, parsed)


def calls_of(made: ObjectEntry) -> dict[str, Call]:
    """The calls that make and end an object, by key; a function alone ends it with ``self``."""
    destroy = made.destroy
    if isinstance(destroy, str):
        destroy = Call(function=destroy, arguments=(Word("self"),)) if destroy else NO_CALL
    calls = {
        "create": made.create,
        **{f"set[{index}]": each for index, each in enumerate(made.set)},
        "destroy": destroy,
    }
    return {key: call for key, call in calls.items() if call != NO_CALL}


def object_of_tensor(argument: Argument, template: ObjectEntry) -> CObject:
    """What the template makes of the tensor that an argument names, of its data too if the argument says so."""

    def told(texts: tuple[str, ...]) -> tuple[Argument, ...]:
        return tuple(_of_tensor(each, argument) for each in parsed(texts))

    return _c_object(_OF_TENSOR + argument.name, "tensor", template, told)


def _of_tensor(one: Argument, of: Argument) -> Argument:
    if one.kind == "data":
        return Argument(kind=of.kind, name=of.name, optional=of.optional)
    return replace(one, name=of.name) if one.kind not in _NAMELESS and not one.name else one


def _c_object(name: str, key: str, made: ObjectEntry, told: Callable[[tuple[str, ...]], Sequence[Argument]]) -> CObject:
    steps = {
        place: Step(key=f"{key}.{place}", call=call, arguments=tuple(told(call.arguments)))
        for place, call in calls_of(made).items()
    }
    return CObject(
        name=name,
        create=steps.pop("create", None),
        destroy=steps.pop("destroy", None),
        set=tuple(steps.values()),
        struct=made.struct,
        fields=tuple((field, each) for field, text in made.fields.items() for each in told((text,))),
        copies=made.copies,
    )
