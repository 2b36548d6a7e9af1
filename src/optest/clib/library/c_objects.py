"""Objects that C wants a pointer to and that are made before a call, by functions of the library or as a struct: as a
mapping states them, and as an operator needs them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import msgspec

from optest.clib.library.arguments import IN_MAKING, PLAIN, Argument, Words, parsed, words_of_tensor, wrong_argument

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
    "problems_of_object",
    "problems_of_tensor",
]

_NAMELESS = (*IN_MAKING, "handle", "null")
_OF_TENSOR = "tensor "
"""The names of what is made of a tensor begin so, which no name in a mapping does."""


class Call(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A function and the roles of its arguments; ``functions`` instead of ``function`` where it is another one for
    each dtype."""

    function: str = ""
    arguments: tuple[str, ...] = ()
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
    fields: Mapping[str, str] = {}
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


def calls_of(made: ObjectEntry) -> Mapping[str, Call]:
    """The calls that make and end an object, by key."""
    ended = {"destroy": made.destroy} if isinstance(made.destroy, Call) else {}
    return {
        **({"create": made.create} if made.create != NO_CALL else {}),
        **{f"set[{index}]": each for index, each in enumerate(made.set)},
        **ended,
    }


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
    ended = made.destroy if isinstance(made.destroy, Call) else Call(function=made.destroy, arguments=("self",))
    return CObject(
        name=name,
        create=None
        if made.create == NO_CALL
        else Step(key=f"{key}.create", call=made.create, arguments=tuple(told(made.create.arguments))),
        set=tuple(
            Step(key=f"{key}.set[{index}]", call=each, arguments=tuple(told(each.arguments)))
            for index, each in enumerate(made.set)
        ),
        destroy=Step(key=f"{key}.destroy", call=ended, arguments=tuple(told(ended.arguments)))
        if made.ended_by or ended.functions
        else None,
        struct=made.struct,
        fields=tuple((field, told((text,))[0]) for field, text in made.fields.items() if told((text,))),
        copies=made.copies,
    )


def problems_of_object(where: str, made: ObjectEntry, words: Words, dtypes: Sequence[str]) -> Iterable[str]:
    """What is wrong with how an object of an operator is made."""
    yield from _wrong_shape(where, made, dtypes)
    yield from _wrong_texts(where, made, replace(words, plain=(*PLAIN, *IN_MAKING)), words)


def problems_of_tensor(where: str, made: ObjectEntry) -> Iterable[str]:
    """What is wrong with the template by which something is made of every tensor."""
    yield from _wrong_shape(where, made, ())
    yield from _wrong_texts(where, made, words_of_tensor(struct=False), words_of_tensor(struct=True))


def _wrong_texts(where: str, made: ObjectEntry, in_calls: Words, in_fields: Words) -> Iterable[str]:
    texts = [
        (f"{key}.arguments[{index}]", text, in_calls)
        for key, call in calls_of(made).items()
        for index, text in enumerate(call.arguments)
    ]
    texts += [(f"fields.{field}", text, in_fields) for field, text in made.fields.items()]
    for key, text, words in texts:
        why = wrong_argument(text, words)
        if why:
            yield f"{where}.{key} is {text!r}, {why}"


def _wrong_shape(where: str, made: ObjectEntry, dtypes: Sequence[str]) -> Iterable[str]:
    is_made, is_struct = made.create != NO_CALL, bool(made.struct)
    if is_made == is_struct:
        yield f"{where} should say how it is made: either `create`, a function, or `struct`, a type of the headers"
    if made.fields and not is_struct:
        yield f"{where}.fields are those of a struct, but no `struct` is named"
    for key, call in calls_of(made).items():
        if bool(call.function) == bool(call.functions):
            yield f"{where}.{key} should name one `function`, or `functions` by dtype"
        missing = [each for each in dtypes if call.functions and each not in call.functions]
        if missing:
            yield f"{where}.{key}.functions has none for {missing[0]}, which the operator has"
