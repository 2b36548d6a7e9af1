"""How a C library is called, as data: a YAML file that maps operators to functions and arguments to roles."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any, Literal

import msgspec

from optest.clib.library.c_objects import NO_CALL, NO_OBJECT, Call, ObjectEntry
from optest.clib.library.direct import DirectCall
from optest.clib.library.roles import Role, StartsAs
from optest.errors import nearest
from optest.spec import OperatorDescriptor, UnfitArguments

__all__ = [
    "LAYOUTS",
    "NO_CALL",
    "NO_OBJECT",
    "NO_PROTOCOL",
    "PLAIN_STATUSES",
    "RANK",
    "REFUSALS",
    "SIZE",
    "Call",
    "LibraryMapping",
    "ObjectEntry",
    "OperatorMapping",
    "Protocol",
    "StatusWords",
    "unknown_names",
]

REFUSALS = {
    "dtype": "a dtype that the operator does not have, or tensors of several",
    "shape": "tensors whose shapes do not fit one another, or of a rank that the operator does not have",
    "stride-0-output": "an output with several elements at one place",
    "overlap": "an output that overlaps an input, and is not that input with its layout",
    "null": "NULL in place of data, a workspace or an operator descriptor",
    "null-descriptor": "NULL in place of a handle or a tensor descriptor",
    "workspace": "a workspace that is too short",
    "index": "an index that a tensor does not have",
}
"""Kinds of wrong calls."""
LAYOUTS = {
    "dense": "row-major, without gaps",
    "rows": "the innermost stride is 1",
    "matrix": "one of the two innermost strides is 1, as in BLAS",
}
"""What a library may need of the layout of a tensor."""
SIZE = re.compile(r"(?P<name>[A-Za-z_]\w*)(?:\[(?P<dim>-?[0-9]{1,2})\]|\.dtype)")
"""A size of a tensor, or its dtype."""

RANK = re.compile(r"(?P<name>[A-Za-z_]\w*)-(?P<fewer>[0-9])")
"""A number of dimensions: so many fewer than another tensor has."""


class Protocol(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Names of an operator's four functions; ``{name}`` is the operator's."""

    create: str
    workspace: str
    run: str
    destroy: str


PLAIN_STATUSES = ("int", "bool")
"""Types of a status that is no enum of the headers."""


class StatusWords(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a status means beyond its type: which are no errors, numbers or names of the headers (0 where none are
    stated, true for a bool), and the function that returns a text for one, or for the latest error."""

    success: tuple[int | str, ...] = ()
    message: Call | None = None


class Threads(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What sets the number of threads: functions of the library, and variables that it reads with each descriptor.

    ``callers`` is one where only one thread of a program may call the library at a time.
    """

    functions: tuple[str, ...] = ()
    environment: tuple[str, ...] = ()
    callers: Literal["any", "one"] = "any"


class Counting(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Positions 0, 1, 2 … in place of an input that is left out: as many as ``of`` has in dimension ``dim``."""

    of: str
    dim: int
    dtype: str


class OperatorMapping(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One operator: ``broadcasts`` where C wants operands of the output's shape, which strides of 0 give them.

    What the library says that it has: ``dtypes`` that all tensors share (() for every one of the library's), but those
    in ``dtypes_of``, each with its own list, in which ``same`` is the shared one; ``ranks`` by tensor, with
    ``input-2`` for two less than another has. ``layouts`` is how a tensor has to lie in memory (:data:`LAYOUTS`);
    ``in_place`` are the inputs that an output may be, with the same layout; ``refuses`` what it promises to refuse,
    where that is not what the library promises; ``indexes`` says of which tensor's dimension an input holds indices
    (``{position_ids: "cos[0]"}``).

    Where C differs: ``choices`` are C's numbers (or names of them in the headers) for an attribute's values;
    ``left_out`` what is passed for an attribute that is none, perhaps by the first input's dtype (``other`` is the
    rest); ``implied`` the only values of attributes that are not passed, such as a size (``[input[-1]]``) or a dtype
    (``out.dtype``) of tensors;
    ``always`` attributes by which optest's operator gives all outputs that C has; ``arange`` positions for an input
    that is left out; ``swapped`` two dimensions of a tensor that C has the other way round, or the attribute
    by which its last two are.
    """

    name: str
    create: tuple[str, ...]
    run: tuple[str, ...]
    broadcasts: bool = False
    workspace: bool = True
    starts_as: StartsAs | None = None
    dtypes: tuple[str, ...] = ()
    dtypes_of: Mapping[str, tuple[str, ...]] = {}
    ranks: Mapping[str, tuple[int | str, ...]] = {}
    in_place: tuple[str, ...] = ()
    layouts: Mapping[str, Literal["dense", "rows", "matrix"]] = {}
    refuses: tuple[str, ...] | None = None
    indexes: Mapping[str, str] = {}
    choices: Mapping[str, Mapping[Any, bool | int | float | str]] = {}
    left_out: Mapping[str, int | float | str | Mapping[str, int | float | str]] = {}
    implied: Mapping[str, Any] = {}
    always: Mapping[str, Any] = {}
    arange: Mapping[str, Counting] = {}
    swapped: Mapping[str, tuple[int, int] | str] = {}

    def roles(self) -> tuple[Role, ...]:
        """Those of both functions, in order."""
        return _parsed((*self.create, *self.run))


@lru_cache(maxsize=256)
def _parsed(roles: tuple[str, ...]) -> tuple[Role, ...]:
    return tuple(map(Role.parse, roles))


NO_PROTOCOL = Protocol(create="", workspace="", run="", destroy="")


class LibraryMapping(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A whole file. ``unsupported`` names statuses by which the library says that it does not have a kernel.

    ``status`` is what functions return: an enum of the headers, ``int`` or ``bool``; a file states ``statuses`` under
    the same key, as a map with the ``type``.

    ``setup`` are functions that are called once, before anything else, for operators of one function.

    ``operators`` are those that a descriptor is made for; ``direct`` those of one function, which a file states among
    ``operators`` as well, one or a list of them. ``headers`` are looked for by the compiler where no folder is stated.
    ``negative_increments`` says where the pointer of a vector points that is walked backwards: at its first element,
    or at its lowest address, as in BLAS.

    ``refuses`` are the kinds of wrong calls (:data:`REFUSALS`) for which the library promises a status; a check asks
    for them. ``synchronize`` returns when all work on the device is done; timings wait with it.
    ``get_device`` says which device is selected: one that was refused must not be. ``threads`` is what
    sets their number. ``numerics`` says by device what is
    declared of its arithmetic, in fields of :class:`optest.spec.Numerics`. ``alignment`` is what the pointers
    to tensors have to be multiples of, in bytes, beyond what their elements need.
    """

    version: Literal[1]
    name: str
    library: tuple[str, ...]
    headers: tuple[str, ...] = ()
    status: str = ""
    statuses: StatusWords = StatusWords()
    dtypes: Mapping[str, str] = {}
    devices: Mapping[str, int] = msgspec.field(default_factory=lambda: {"cpu": 0})
    set_device: Call = NO_CALL
    setup: tuple[Call, ...] = ()
    handle: ObjectEntry = NO_OBJECT
    tensor: ObjectEntry = NO_OBJECT
    protocol: Protocol = NO_PROTOCOL
    operators: Mapping[str, OperatorMapping] = {}
    direct: Mapping[str, tuple[DirectCall, ...]] = {}
    negative_increments: Literal["first", "lowest"] = "first"
    unsupported: tuple[int | str, ...] = ()
    refuses: tuple[str, ...] = ()
    synchronize: Call | None = None
    numerics: Mapping[str, Mapping[str, Any]] = {}
    alignment: int = 1
    get_device: Call | None = None
    threads: Threads = Threads()

    def entry(self, descriptor: OperatorDescriptor) -> OperatorMapping | None:
        """What the mapping says of an operator, under its name or an alias; None if nothing."""
        key = self.key(descriptor)
        return None if key is None else self.operators[key]

    def key(self, descriptor: OperatorDescriptor) -> str | None:
        """The name under which the mapping has an operator."""
        return next((name for name in (descriptor.name, *descriptor.aliases) if name in self.operators), None)

    def promised(self, entry: OperatorMapping | DirectCall) -> tuple[str, ...]:
        """The kinds of wrong calls that an operator refuses."""
        return self.refuses if entry.refuses is None else entry.refuses

    @property
    def names(self) -> tuple[str, ...]:
        """The operators that can be called, in either way."""
        return (*self.operators, *self.direct)


# msgspec gets to know a type when it is first used, and crashes where two threads do so at once
msgspec.json.Decoder(LibraryMapping)


def unknown_names(operator: OperatorMapping, descriptor: OperatorDescriptor) -> list[str]:
    """What a mapping names and optest's operator does not have."""
    inputs = [each.name for each in descriptor.tensors.inputs]
    outputs, attributes = list(descriptor.tensors.outputs), [each.name for each in descriptor.attributes]
    tensors = [*inputs, *outputs]
    known = {"input": inputs, "scalar": inputs, "output": outputs, "tensor": attributes, "attribute": attributes}
    start = operator.starts_as
    named = [(role.kind, role.name, known[role.kind]) for role in operator.roles() if role.kind in known]
    named += [("input", name, inputs) for name in (*operator.in_place, *operator.arange)]
    named += [("input", counting.of, inputs) for counting in operator.arange.values()]
    named += [
        ("tensor", name, tensors)
        for name in (*operator.dtypes_of, *operator.ranks, *operator.layouts, *operator.swapped)
    ]
    named += [("tensor", rule["name"], tensors) for rule in _rules_of_ranks(operator) if rule]
    if start is not None:
        named += [("output", start.output, outputs), ("input", start.input, inputs)]
        named += [("attribute", name, attributes) for name in start.without]
    named += [("attribute", name, attributes) for name in operator.swapped.values() if isinstance(name, str)]
    stated = (*operator.choices, *operator.left_out, *operator.implied, *operator.always)
    named += [("attribute", name, attributes) for name in stated]
    for rule in operator.implied.values():
        texts = [each for each in (rule if isinstance(rule, list) else [rule]) if isinstance(each, str)]
        named += [("tensor", size["name"], tensors) for size in map(SIZE.fullmatch, texts) if size]
    wrong = dict.fromkeys((kind, name, tuple(having)) for kind, name, having in named if name not in having)
    told = [_unknown(descriptor.name, *each) for each in wrong]
    return told or list(_unfit_attributes(operator, descriptor))


def _unfit_attributes(operator: OperatorMapping, descriptor: OperatorDescriptor) -> Iterator[str]:
    told = (_unfit(descriptor, name, value) for name, value in operator.always.items())
    if not all(_rules_of_ranks(operator)):
        yield "ranks: a number of dimensions should be a number, or another tensor's less some, as in input-2"
    yield from (f"always: {why}" for why in told if why)


def _rules_of_ranks(operator: OperatorMapping) -> list[re.Match[str] | None]:
    """Numbers of dimensions that follow from another tensor's, None for what says nothing."""
    return [RANK.fullmatch(each) for ranks in operator.ranks.values() for each in ranks if isinstance(each, str)]


def _unfit(descriptor: OperatorDescriptor, name: str, value: Any) -> str:
    try:
        descriptor.attribute(name).read(value)
    except UnfitArguments as error:
        return str(error)
    return ""


def _unknown(operator: str, kind: str, name: str, known: Sequence[str]) -> str:
    near = nearest(name, known)
    hint = f"did you mean {near}? " if near else ""
    what = "attribute" if kind == "tensor" and not known else kind
    return f"{operator} has no {what} {name!r}; {hint}it has {', '.join(dict.fromkeys(known)) or 'none'}"
