"""An operator's entry in a mapping: its C function, the objects created before the call, and promises of the
library."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Literal, TypeAlias

import msgspec

from optest.clib.library.arguments import COMPUTED, IN_MAKING, Argument, parse_arguments
from optest.clib.library.mapping_words import Dimension, DimensionOf, DtypeName, DtypeOrSame, Rank, Refusal, Word

_NAMELESS = (*IN_MAKING, "handle", "null")
_TENSOR_PREFIX = "tensor "  # Name prefix of objects built from tensors; names in a mapping contain no space.


class Call(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A C function and the roles of its arguments."""

    function: str = ""
    arguments: tuple[Word, ...] = ()
    functions: Mapping[str, str] = {}  # by dtype, in place of function

    def named(self, dtype: str) -> str:
        """Return the function for a dtype."""
        return self.functions.get(dtype, self.function)

    @property
    def parsed(self) -> tuple[Argument, ...]:
        return parse_arguments(self.arguments)


NO_CALL = Call()


class ObjectEntry(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """An opaque object that functions create, configure and destroy, or a struct of the headers."""

    create: Call = NO_CALL
    set: tuple[Call, ...] = ()  # calls that configure it
    destroy: str | Call = ""  # a function gets only the object
    struct: str = ""
    fields: Mapping[str, Word] = {}  # of the struct; others are 0, or set by set
    copies: bool = False  # tensor descriptors may be destroyed after its creation

    @property
    def destructor(self) -> str:
        """Name of the function that destroys the object."""
        return self.destroy if isinstance(self.destroy, str) else self.destroy.function

    def calls(self) -> dict[str, Call]:
        """Return the calls that create, configure and destroy the object, by key; omit those that are not set."""
        destroy = self.destroy
        if isinstance(destroy, str):
            destroy = Call(function=destroy, arguments=(Word("self"),)) if destroy else NO_CALL
        sets = {f"set[{index}]": call for index, call in enumerate(self.set)}
        calls = {"create": self.create, **sets, "destroy": destroy}
        return {key: call for key, call in calls.items() if call != NO_CALL}

    def parsed_fields(self) -> list[tuple[str, Argument]]:
        return [(field, arg) for field, text in self.fields.items() for arg in parse_arguments((text,))]


NO_OBJECT = ObjectEntry()


@dataclass(frozen=True, kw_only=True)
class CObject:
    """An object that exists during a call."""

    name: str  # unique among the objects of an entry
    made: ObjectEntry

    @property
    def key(self) -> str:
        """Key of the object among a call's arguments."""
        return f"object:{self.name}"

    @property
    def place(self) -> str:
        """Key of the object in the operator's entry."""
        return "tensor" if is_of_a_tensor(self.name) else f"objects.{self.name}"

    @cached_property
    def calls(self) -> dict[str, Call]:
        """Calls that create, configure and destroy the object, by key."""
        return self.made.calls()

    @cached_property
    def arguments(self) -> tuple[Argument, ...]:
        """All arguments of creating the object, in order."""
        calls = (call for key, call in self.calls.items() if key != "destroy")
        return (*(arg for call in calls for arg in call.parsed), *(arg for _, arg in self.made.parsed_fields()))


def is_of_a_tensor(name: str) -> bool:
    """Return whether an object is built from a tensor, not declared by the operator."""
    return name.startswith(_TENSOR_PREFIX)


def object_of_tensor(argument: Argument, template: ObjectEntry) -> CObject:
    """Return the template with the tensor's name in its arguments and fields; create nothing in C."""

    def named(call: Call) -> Call:
        return msgspec.structs.replace(call, arguments=tuple(_for_tensor(x, argument) for x in call.arguments))

    filled = msgspec.structs.replace(
        template,
        create=named(template.create),
        set=tuple(map(named, template.set)),
        destroy=template.destroy if isinstance(template.destroy, str) else named(template.destroy),
        fields={field: _for_tensor(text, argument) for field, text in template.fields.items()},
    )
    return CObject(name=_TENSOR_PREFIX + argument.name, made=filled)


def _for_tensor(text: Word, argument: Argument) -> Word:
    """Return a template argument for a tensor: ``shape as int[]`` becomes ``shape:a as int[]``."""
    kind, space, form = text.partition(" ")
    if kind == "data":
        return Word(f"{argument}?" if argument.optional else str(argument))
    return text if kind in _NAMELESS or ":" in kind else Word(f"{kind}:{argument.name}{space}{form}")


LAST = "last"  # In when: the last dimension, -1 or the rank less 1.


Circumstance: TypeAlias = Literal["any", "strided", "not rows", "not matrix"] | tuple[DtypeName, ...]
# Statuses that report a missing kernel: for any call, or for calls with a strided tensor, another layout (a word of
# layouts) or some dtypes.
Unsupported: TypeAlias = tuple[int | str, ...] | Mapping[int | str, Circumstance]


class StartsAs(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """An output that initially holds an input's values."""

    output: str
    input: str
    without: Mapping[str, float] = {}  # attribute values if the case omits the input


class Counting(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Positions 0, 1, 2 … in place of an omitted input."""

    of: str  # a tensor
    dim: int  # whose size is the number of positions
    dtype: DtypeName


class OperatorMapping(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, dict=True):
    """C form of an operator and the library's promises; docs/c-libraries/mapping.md describes the keys."""

    functions: Mapping[str, str] = {}
    dims: Mapping[str, tuple[Dimension, ...]] = {}
    call: tuple[Word, ...]
    function: str = ""
    returns: str = ""
    objects: Mapping[str, ObjectEntry] = {}
    tensor: ObjectEntry = NO_OBJECT
    workspace: Call | None = None
    name: str = ""  # in C, for functions named by the file's protocol
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
        """Convert dtype words to plain str, since cases store them."""
        msgspec.structs.force_setattr(self, "dtypes", tuple(str(x) for x in self.dtypes))
        of = {tensor: tuple(str(x) for x in names) for tensor, names in self.dtypes_of.items()}
        msgspec.structs.force_setattr(self, "dtypes_of", of)

    @property
    def starts(self) -> tuple[StartsAs, ...]:
        """Outputs that initially hold an input's values."""
        return (self.starts_as,) if isinstance(self.starts_as, StartsAs) else self.starts_as

    @property
    def any_function(self) -> str:
        """Name of a function, for messages that hold for all dtypes."""
        return self.function or next(iter(self.functions.values()), "")

    def function_of(self, dtype: str) -> str:
        return self.functions.get(dtype) or self.any_function

    @cached_property
    def read(self) -> Reading:
        """The parsed texts of the entry, cached."""
        return Reading(self)


@dataclass(frozen=True)
class Reading:
    """Parsed arguments of an entry, and the objects created for them."""

    entry: OperatorMapping

    @cached_property
    def arguments(self) -> tuple[Argument, ...]:
        """Arguments of the call, in order."""
        return parse_arguments(self.entry.call)

    @cached_property
    def c_objects(self) -> tuple[CObject, ...]:
        """Objects created before the call: of tensors, then the operator's."""
        declared = [CObject(name=name, made=template) for name, template in self.entry.objects.items()]
        everywhere = (*self.arguments, *(arg for obj in declared for arg in obj.arguments), *self._size_arguments)
        tensors: dict[str, Argument] = {}
        for arg in everywhere:
            if arg.as_tensor or (arg.as_descriptor and arg.name not in tensors):
                tensors[arg.name] = arg
        return (*(object_of_tensor(tensor, self.entry.tensor) for tensor in tensors.values()), *declared)

    @property
    def _size_arguments(self) -> tuple[Argument, ...]:
        return () if self.entry.workspace is None else self.entry.workspace.parsed

    @cached_property
    def passed(self) -> tuple[Argument, ...]:
        """Arguments of all calls, without duplicates."""
        of_objects = (arg for obj in self.c_objects for arg in obj.arguments)
        return tuple(dict.fromkeys((*self.arguments, *of_objects, *self._size_arguments)))

    def passes(self, kind: str) -> bool:
        return any(arg.kind == kind for arg in self.passed)

    @cached_property
    def computed(self) -> tuple[Argument, ...]:
        """Arguments computed from sizes and layouts."""
        return tuple(arg for arg in self.passed if arg.kind in COMPUTED)

    @cached_property
    def late_objects(self) -> frozenset[str]:
        """Keys of the objects that can be created only after the memory is allocated."""
        late: set[str] = set()
        for obj in self.c_objects:
            made_of = (*obj.made.create.parsed, *(field for _, field in obj.made.parsed_fields()))
            if any(arg.is_late or arg.object_key in late for arg in made_of):
                late.add(obj.key)
        return frozenset(late)

    @cached_property
    def brief_objects(self) -> frozenset[str]:
        """Keys of the tensor objects that are destroyed once the operator's objects exist."""
        later = {arg.object_key for arg in (*self.arguments, *self._size_arguments)}
        of_tensors = {obj.key for obj in self.c_objects if is_of_a_tensor(obj.name)}
        is_copied = any(obj.made.copies for obj in self.c_objects)
        return frozenset(of_tensors - later - self.late_objects) if is_copied else frozenset()

    @cached_property
    def kinds(self) -> frozenset[tuple[str, str]]:
        """Pairs of an argument kind (``strides``, ``dtype``) and the tensor that it describes."""
        return frozenset((arg.kind, arg.name) for arg in self.passed)

    @cached_property
    def attributes(self) -> tuple[Argument, ...]:
        """Passed attributes, once for each form in which they are passed."""
        return tuple(arg for arg in self.passed if arg.kind == "attribute")

    @cached_property
    def made_tensors(self) -> tuple[str, ...]:
        """Attributes that are passed as tensors."""
        return tuple(dict.fromkeys(arg.name for arg in self.passed if arg.kind == "tensor"))

    @cached_property
    def roles(self) -> tuple[Argument, ...]:
        """Tensors, attributes and workspace that the calls pass, without their C types; optional if any use is."""
        by_text: dict[str, Argument] = {}
        for arg in self.passed:
            if arg.kind in ("input", "output", "tensor", "attribute", "scalar", "workspace"):
                plain = Argument(kind=arg.kind, name=arg.name, optional=arg.optional)
                known = by_text.setdefault(str(plain), plain)
                if arg.optional and not known.optional:
                    by_text[str(plain)] = replace(known, optional=True)
        if self.entry.returns:
            by_text[f"output:{self.entry.returns}"] = Argument(kind="output", name=self.entry.returns)
        return tuple(by_text.values())

    @cached_property
    def inputs(self) -> Mapping[str, bool]:
        """Inputs that the entry takes, and whether each is optional."""
        optional = {role.name: role.optional for role in self.roles if role.kind in ("input", "scalar")}
        for start in self.entry.starts:
            optional.setdefault(start.input, bool(start.without))
        return optional

    @cached_property
    def known_attributes(self) -> frozenset[str]:
        """Attributes that the entry mentions."""
        entry = self.entry
        swapping = (name for name in entry.swapped.values() if isinstance(name, str))
        passed = (role.name for role in self.roles if role.kind in ("attribute", "tensor"))
        named = (*entry.when, *entry.ignores, *entry.choices, *entry.left_out, *entry.implied, *entry.always)
        return frozenset((*passed, *swapping, *named))
