"""How one operator is called in C, as data: its function, the objects that C wants a pointer to and that are made
before a call, by functions of the library or as a struct, and what the library promises."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Literal, TypeAlias

import msgspec

from optest.clib.library.arguments import COMPUTED, IN_MAKING, Argument, parsed
from optest.clib.library.mapping_words import Dimension, DimensionOf, DtypeName, DtypeOrSame, Rank, Refusal, Word

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


LAST = "last"
"""In ``when``: the last dimension, -1 or the rank less 1."""


Circumstance: TypeAlias = Literal["any", "strided", "not rows", "not matrix"] | tuple[DtypeName, ...]
Unsupported: TypeAlias = tuple[int | str, ...] | Mapping[int | str, Circumstance]
"""Statuses by which a library reports that it has no such kernel: for any call, or for calls with a tensor that is
strided, lies in another layout (a word of ``layouts``) or has one of some dtypes."""


class StartsAs(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """An output that holds an input's values when the call begins; ``without`` are attributes of cases without it."""

    output: str
    input: str
    without: Mapping[str, float] = {}


class Counting(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Positions 0, 1, 2 … in place of an input that is left out: as many as ``of`` has in dimension ``dim``."""

    of: str
    dim: int
    dtype: DtypeName


class OperatorMapping(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, dict=True):
    """How the cases of an operator that it can express are called, what is made for that, what the library promises,
    and where C differs from optest's operator; docs/c-libraries/mapping.md says what each key means.

    ``name`` is the operator's in C, where the file's ``protocol`` made the names of the functions.
    """

    functions: Mapping[str, str] = {}
    dims: Mapping[str, tuple[Dimension, ...]] = {}
    call: tuple[Word, ...]
    function: str = ""
    returns: str = ""
    objects: Mapping[str, ObjectEntry] = {}
    tensor: ObjectEntry = NO_OBJECT
    workspace: Call | None = None
    name: str = ""
    least: Mapping[str, int] = {}
    same_layout: tuple[str, ...] = ()
    when: Mapping[str, Any] = {}
    ignores: tuple[str, ...] = ()
    dtypes: tuple[DtypeName, ...] = ()
    dtypes_of: Mapping[str, tuple[DtypeOrSame, ...]] = {}
    ranks: Mapping[str, tuple[Rank, ...]] = {}
    layouts: Mapping[str, Literal["dense", "rows", "matrix"]] = {}
    in_place: tuple[str, ...] = ()
    refuses: tuple[Refusal, ...] | None = None
    unsupported: Unsupported | None = None
    indexes: Mapping[str, DimensionOf] = {}
    repeats: tuple[DimensionOf, ...] = ()
    starts_as: StartsAs | tuple[StartsAs, ...] = ()
    broadcasts: bool = False
    choices: Mapping[str, Mapping[Any, bool | int | float | str]] = {}
    left_out: Mapping[str, int | float | str | Mapping[str, int | float | str]] = {}
    implied: Mapping[str, Any] = {}
    always: Mapping[str, Any] = {}
    arange: Mapping[str, Counting] = {}
    swapped: Mapping[str, str | bool | tuple[int, int]] = {}

    def __post_init__(self) -> None:
        """Dtypes go into cases, which hold plain texts."""
        msgspec.structs.force_setattr(self, "dtypes", tuple(str(each) for each in self.dtypes))
        of = {tensor: tuple(str(each) for each in names) for tensor, names in self.dtypes_of.items()}
        msgspec.structs.force_setattr(self, "dtypes_of", of)

    @property
    def starts(self) -> tuple[StartsAs, ...]:
        """Outputs that hold an input's values when the call begins."""
        return (self.starts_as,) if isinstance(self.starts_as, StartsAs) else self.starts_as

    @property
    def any_function(self) -> str:
        """For messages that hold for all dtypes."""
        return self.function or next(iter(self.functions.values()), "")

    def function_of(self, dtype: str) -> str:
        return self.functions.get(dtype) or self.any_function

    @cached_property
    def read(self) -> Reading:
        """What its texts say, read once."""
        return Reading(self)


@dataclass(frozen=True)
class Reading:
    """The arguments of an operator, and what is made for them."""

    entry: OperatorMapping

    @cached_property
    def arguments(self) -> tuple[Argument, ...]:
        """Those of the call, in order."""
        return parsed(self.entry.call)

    @cached_property
    def c_objects(self) -> tuple[CObject, ...]:
        """What is made before the call: of tensors, then the operator's objects."""
        own = [CObject(name=name, made=made) for name, made in self.entry.objects.items()]
        everywhere = (*self.arguments, *(each for c_object in own for each in c_object.arguments), *self._of_size)
        tensors: dict[str, Argument] = {}
        for each in everywhere:
            if each.as_tensor or (each.as_descriptor and each.name not in tensors):
                tensors[each.name] = each
        return (*(object_of_tensor(each, self.entry.tensor) for each in tensors.values()), *own)

    @property
    def _of_size(self) -> tuple[Argument, ...]:
        return () if self.entry.workspace is None else self.entry.workspace.parsed

    @cached_property
    def passed(self) -> tuple[Argument, ...]:
        """The arguments of all calls, each once."""
        made = (each for c_object in self.c_objects for each in c_object.arguments)
        return tuple(dict.fromkeys((*self.arguments, *made, *self._of_size)))

    def passes(self, kind: str) -> bool:
        return any(each.kind == kind for each in self.passed)

    @cached_property
    def computed(self) -> tuple[Argument, ...]:
        """What follows from sizes and layouts."""
        return tuple(each for each in self.passed if each.kind in COMPUTED)

    @cached_property
    def late_objects(self) -> frozenset[str]:
        """The keys of objects that can only be made when memory is there."""
        found: set[str] = set()
        for each in self.c_objects:
            made_of = (*each.made.create.parsed, *(field for _, field in each.made.parsed_fields()))
            if any(one.is_late or one.made_as in found for one in made_of):
                found.add(each.key)
        return frozenset(found)

    @cached_property
    def brief_objects(self) -> frozenset[str]:
        """The keys of what is made of tensors and is not needed any more when the operator's objects are made."""
        later = {each.made_as for each in (*self.arguments, *self._of_size)}
        made = {each.key for each in self.c_objects if is_of_a_tensor(each.name)}
        is_copied = any(each.made.copies for each in self.c_objects)
        return frozenset(made - later - self.late_objects) if is_copied else frozenset()

    @cached_property
    def kinds(self) -> frozenset[tuple[str, str]]:
        """What C learns of which tensor (``strides``, ``dtype``)."""
        return frozenset((each.kind, each.name) for each in self.passed)

    @cached_property
    def attributes(self) -> tuple[Argument, ...]:
        """The attributes that are passed, in each way in which they are."""
        return tuple(each for each in self.passed if each.kind == "attribute")

    @cached_property
    def made_tensors(self) -> tuple[str, ...]:
        """The attributes that optest makes a tensor of."""
        return tuple(dict.fromkeys(each.name for each in self.passed if each.kind == "tensor"))

    @cached_property
    def roles(self) -> tuple[Argument, ...]:
        found: dict[str, Argument] = {}
        for each in self.passed:
            if each.kind in ("input", "output", "tensor", "attribute", "scalar", "workspace"):
                plain = Argument(kind=each.kind, name=each.name, optional=each.optional)
                known = found.setdefault(str(plain), plain)
                if each.optional and not known.optional:
                    found[str(plain)] = replace(known, optional=True)
        if self.entry.returns:
            found[f"output:{self.entry.returns}"] = Argument(kind="output", name=self.entry.returns)
        return tuple(found.values())

    @cached_property
    def inputs(self) -> Mapping[str, bool]:
        """The inputs that are taken, and whether they may be left out."""
        found = {each.name: each.optional for each in self.roles if each.kind in ("input", "scalar")}
        for start in self.entry.starts:
            found.setdefault(start.input, bool(start.without))
        return found

    @cached_property
    def known_attributes(self) -> frozenset[str]:
        """The attributes of which the entry says anything."""
        entry = self.entry
        swapping = (name for name in entry.swapped.values() if isinstance(name, str))
        passed = (each.name for each in self.roles if each.kind in ("attribute", "tensor"))
        stated = (*entry.when, *entry.ignores, *entry.choices, *entry.left_out, *entry.implied, *entry.always)
        return frozenset((*passed, *swapping, *stated))
