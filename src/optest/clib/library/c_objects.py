"""Objects that C wants a pointer to and that are made before a call, by functions of the library or as a struct: as a
mapping states them, and as an operator needs them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import msgspec

from optest.clib.library.arguments import IN_MAKING, Argument, parsed
from optest.clib.library.mapping_words import Word

__all__ = ["NO_CALL", "NO_OBJECT", "CObject", "Call", "ObjectEntry", "is_of_a_tensor", "object_of_tensor"]

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
        return self.functions.get(dtype, self.function)

    @property
    def parsed(self) -> tuple[Argument, ...]:
        return parsed(self.arguments)


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
        return self.destroy if isinstance(self.destroy, str) else self.destroy.function

    def calls(self) -> dict[str, Call]:
        """The calls that make and end it, by key; a function alone ends it with ``self``."""
        destroy = self.destroy
        if isinstance(destroy, str):
            destroy = Call(function=destroy, arguments=(Word("self"),)) if destroy else NO_CALL
        sets = {f"set[{index}]": each for index, each in enumerate(self.set)}
        return {
            key: call for key, call in {"create": self.create, **sets, "destroy": destroy}.items() if call != NO_CALL
        }

    def parsed_fields(self) -> list[tuple[str, Argument]]:
        return [(field, each) for field, text in self.fields.items() for each in parsed((text,))]


NO_OBJECT = ObjectEntry()


@dataclass(frozen=True, kw_only=True)
class CObject:
    """Something that is made before a call and ended after it, with its name among all that are made."""

    name: str
    made: ObjectEntry

    @property
    def key(self) -> str:
        """Under which calls find it."""
        return f"object:{self.name}"

    @property
    def place(self) -> str:
        """Where an operator's entry states it."""
        return "tensor" if is_of_a_tensor(self.name) else f"objects.{self.name}"

    @cached_property
    def calls(self) -> dict[str, Call]:
        """Those that make and end it, by key."""
        return self.made.calls()

    @cached_property
    def arguments(self) -> tuple[Argument, ...]:
        """All that is passed to make it, in order."""
        calls = (call for key, call in self.calls.items() if key != "destroy")
        return (*(each for call in calls for each in call.parsed), *(each for _, each in self.made.parsed_fields()))


def is_of_a_tensor(name: str) -> bool:
    """Whether an object is what is made of a tensor, not one of the operator."""
    return name.startswith(_OF_TENSOR)


def object_of_tensor(argument: Argument, template: ObjectEntry) -> CObject:
    """What the template makes of the tensor that an argument names, of its data too if the argument says so."""

    def named(call: Call) -> Call:
        return msgspec.structs.replace(call, arguments=tuple(_named(text, argument) for text in call.arguments))

    made = msgspec.structs.replace(
        template,
        create=named(template.create),
        set=tuple(map(named, template.set)),
        destroy=template.destroy if isinstance(template.destroy, str) else named(template.destroy),
        fields={field: _named(text, argument) for field, text in template.fields.items()},
    )
    return CObject(name=_OF_TENSOR + argument.name, made=made)


def _named(text: Word, of: Argument) -> Word:
    """An argument of a template, said of this tensor: ``shape:a as int[]``."""
    kind, space, form = text.partition(" ")
    if kind == "data":
        return Word(f"{of}?" if of.optional else str(of))
    return text if kind in _NAMELESS or ":" in kind else Word(f"{kind}:{of.name}{space}{form}")
