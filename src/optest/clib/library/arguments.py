"""Arguments of C functions as a mapping writes them: ``input:bias?``, ``attribute:padding as int64_t[2]``."""

from __future__ import annotations

import ctypes
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from typing import Any

from optest.errors import did_you_mean

# A scalar has the dtype of the call; an int is an integer of any width.
NUMBERS = ("scalar", "float", "double", "int", "bool")
# C types of array elements, which headers often hide behind void *.
ELEMENTS: dict[str, Any] = {
    "int": ctypes.c_int,
    "int32_t": ctypes.c_int32,
    "int64_t": ctypes.c_int64,
    "size_t": ctypes.c_size_t,
    "ptrdiff_t": ctypes.c_ssize_t,
    "float": ctypes.c_float,
    "double": ctypes.c_double,
}
_INCREMENTS = ("nonzero", "any", "positive")
_ARRAYS = ("shape", "strides")
_PAIRS = ("layout", "order")
_OF_MATRICES = ("leading", "rows", "columns", *_PAIRS)
_WITH_DIMENSIONS = ("elements", "increment", "stride", *_OF_MATRICES, "ndim", "dtype", *_ARRAYS)
_OF_TENSORS = ("input", "output", "descriptor", *_WITH_DIMENSIONS)
COMPUTED = ("size", *_WITH_DIMENSIONS)  # Kinds computed from the sizes and layouts of tensors.
_ONLY_IN_DIMS = ("increment", "stride", *_OF_MATRICES)  # Kinds that need named dimensions (``dims``) for their tensor.
NAMED = ("constant", "text", "size", "attribute", "count", "scalar", "object", "tensor", *_OF_TENSORS)
PLAIN = ("handle", "workspace", "workspace_size", "stream", "null")
IN_MAKING = ("self", "slot")
_ELEMENTS_OF_TENSOR = ("ndim", "dtype", "data", "elements", "rows", "columns", "leading", "increment", *_ARRAYS)
# input:a as tensor passes the object built by the mapping's tensor template, with the pointer to the elements; input:a
# as descriptor passes one without that pointer.
TENSOR, DESCRIPTOR = "tensor", "descriptor"
_FORMS = {
    "constant": ("constant:NAME", "constant:NUMBER", "constant:NUMBER as scalar"),
    "text": ("text:WORD",),
    "size": ("size:DIMENSION",),
    "attribute": ("attribute:NAME as scalar", "attribute:NAME[0] as int", "attribute:NAME as int64_t[]"),
    "count": ("count:ATTRIBUTE",),
    "scalar": ("scalar:INPUT as float",),
    "object": ("object:NAME",),
    "stride": ("stride:TENSOR[0]",),
    "tensor": ("tensor:ATTRIBUTE",),
    **{kind: (f"{kind}:TENSOR as ONE|OTHER",) for kind in _PAIRS},
    **{kind: (f"{kind}:TENSOR as int64_t[]",) for kind in _ARRAYS},
}
_ARGUMENT = re.compile(
    r"(?P<kind>\w+)(?::(?P<name>[-+\w.]+)(?:\[(?P<index>[0-9]{1,3})\])?(?P<optional>\?)?)?"
    r"(?: as (?P<type>[\w|\[\] ]+))?"
)
_ARRAY = re.compile(r"(?P<element>\w+)\[(?P<length>[0-9]{0,4})\](?P<words>(?: reversed| bytes)*)")
_NAME = re.compile(r"[A-Za-z_]\w*")
_LITERAL = re.compile(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]{1,3})?|[+-]?(?:inf|nan)")


@dataclass(frozen=True, slots=True, kw_only=True)
class ArrayForm:
    """C form of numbers that are passed as an array."""

    element: str  # a key of ELEMENTS
    length: int | None = None  # None: as many as there are
    is_reversed: bool = False  # last dimension first
    in_bytes: bool = False  # strides that count bytes, not elements

    @classmethod
    @lru_cache(maxsize=128)
    def of(cls, text: str) -> ArrayForm | None:
        """Parse ``int64_t[2] reversed bytes``; return None for a text of another form."""
        match = _ARRAY.fullmatch(text)
        if match is None:
            return None
        words = match["words"].split()
        return cls(
            element=match["element"],
            length=int(match["length"]) if match["length"] else None,
            is_reversed="reversed" in words,
            in_bytes="bytes" in words,
        )


@dataclass(frozen=True, kw_only=True)
class Argument:
    """An argument of a C call: its kind, the tensor, dimension or attribute that it names, and its C type."""

    kind: str
    name: str = ""
    optional: bool = False  # NULL if the case omits the input
    type: str = ""  # such as scalar, any or A|B
    index: int | None = None  # of a number in a list attribute, or of one stride

    @cached_property
    def array(self) -> ArrayForm | None:
        """The array form of the argument; None for a single value."""
        return ArrayForm.of(self.type) if self.type else None

    @cached_property
    def object_key(self) -> str:
        """Key of the C object passed as this argument (``object:plan``, ``object:tensor a``); empty if none is."""
        if self.as_descriptor or self.as_tensor:
            return key_of_tensor(self.name)
        return str(self) if self.kind == "object" else ""

    @property
    def key(self) -> str:
        """Key of the argument's memory; a tensor that optest builds from an attribute counts as an input."""
        return f"input:{self.name}" if self.kind == "tensor" else str(self)

    def __str__(self) -> str:
        return f"{self.kind}:{self.name}" if self.name else self.kind

    @property
    def text(self) -> str:
        """The argument as the mapping writes it."""
        index = "" if self.index is None else f"[{self.index}]"
        return f"{self}{index}" + (f" as {self.type}" if self.type not in ("", DESCRIPTOR) else "")

    @property
    def pair(self) -> tuple[str, str]:
        """The two constants of a ``layout`` or an ``order``."""
        first, _, second = self.type.partition("|")
        return first, second

    @property
    def allowed(self) -> str:
        """Allowed steps of an ``increment`` or a ``stride`` (any, nonzero or positive), without the unit."""
        allowed = self.type.removesuffix("bytes").strip()
        return "any" if self.kind == "stride" and allowed in ("", "int") else allowed or "nonzero"

    @property
    def is_input(self) -> bool:
        """Return whether C reads memory through this argument."""
        return self.kind in ("input", "tensor")

    @property
    def as_tensor(self) -> bool:
        """Return whether the argument is an object built by the tensor template, with the pointer to the elements."""
        return self.kind in ("input", "output") and self.type == TENSOR

    @property
    def as_descriptor(self) -> bool:
        """Return whether the argument is an object of the tensor template, without the pointer to the elements."""
        return self.kind == "descriptor" or (self.kind in ("input", "output", "tensor") and self.type == DESCRIPTOR)

    @property
    def is_late(self) -> bool:
        """Return whether the value is known only when the case's memory is allocated."""
        is_memory = self.kind in ("input", "output", "tensor") and self.type not in (TENSOR, DESCRIPTOR)
        return is_memory or self.kind in ("workspace", "workspace_size")


def key_of_tensor(tensor: str) -> str:
    """Return the key of the object that the tensor template builds for a tensor."""
    return f"object:tensor {tensor}"  # unique: names in a mapping contain no space


@lru_cache(maxsize=1024)
def parse_arguments(texts: tuple[str, ...]) -> tuple[Argument, ...]:
    """Return the arguments that the texts describe; skip texts of the wrong form."""
    return tuple(
        Argument(
            kind=x["kind"],
            name=x["name"] or "",
            optional=bool(x["optional"]),
            type=x["type"] or "",
            index=int(x["index"]) if x["index"] else None,
        )
        for x in map(_ARGUMENT.fullmatch, texts)
        if x is not None
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Words:
    """Rules for the arguments allowed at one position of a mapping."""

    named: Sequence[str] = NAMED  # kinds that take a name
    plain: Sequence[str] = PLAIN  # kinds without a name
    dims: Mapping[str, Sequence[str]] = field(default_factory=dict)  # of the operator
    objects: Collection[str] = ()  # created earlier
    has_workspace: bool = True
    noun: str = "role"  # for messages

    @property
    def kinds(self) -> tuple[str, ...]:
        return (*self.named, *self.plain)

    @property
    def dimensions(self) -> list[str]:
        names = {name.removesuffix("...") for dims in self.dims.values() for name in dims}
        return sorted(name for name in names if not name.isdecimal())

    @property
    def forms(self) -> str:
        """Allowed forms, for messages."""
        named = [form for kind in self.named for form in _FORMS.get(kind, (f"{kind}:TENSOR",))]
        plain = [f"{word} as int64_t[]" if word in _ARRAYS else word for word in self.plain]
        return ", ".join((*named, *plain))

    def problems(self, where: str, texts: Sequence[str]) -> Iterator[str]:
        """Yield a message for each text of the list at ``where`` that is no allowed argument."""
        for index, text in enumerate(texts):
            yield from self.problem(f"{where}[{index}]", text)

    def problem(self, where: str, text: str) -> Iterator[str]:
        """Yield a message if the text at ``where`` is no allowed argument."""
        why = wrong_argument(text, self)
        if why:
            yield f"{where} is {text!r}, {why}"


def words_of_tensor(*, struct: bool) -> Words:
    """Return the rules for the tensor template, whose arguments do not name the tensor."""
    making = () if struct else IN_MAKING
    return Words(named=("constant",), plain=(*_ELEMENTS_OF_TENSOR, *making, "handle", "null"), noun="role of a tensor")


def wrong_argument(text: str, words: Words) -> str:
    """Return why ``text`` is not allowed as an argument; empty if it is."""
    match = _ARGUMENT.fullmatch(text)
    kind = match["kind"] if match else re.split(r"\W", text, maxsplit=1)[0]
    if kind not in words.kinds:
        hint = did_you_mean(kind, words.kinds, text="did you mean {}? ")
        return f"which is no {words.noun} here; {hint}known: {words.forms}"
    if match is None or (kind in words.named) != (match["name"] is not None):
        return f"expected one of {words.forms}"
    (argument,) = parse_arguments((text,))
    return _wrong_name(argument, words) or _wrong_type(argument)


def _wrong_name(argument: Argument, words: Words) -> str:
    """Return why the argument's name, index or ``?`` is not allowed; empty if they are."""
    kind, name = argument.kind, argument.name
    if argument.optional and kind not in ("input", "descriptor"):
        return "but only an input is optional (`?`)"
    if kind in ("strides", "stride") and (kind == "stride") == (argument.index is None):
        return f"but one stride is 'stride:{name}[0]', all of them are 'strides:{name} as ptrdiff_t[]'"
    if argument.index is not None and kind not in ("attribute", "stride"):
        return "but only an attribute or a stride takes an index: 'attribute:padding[0] as int', 'stride:a[0]'"
    if kind == "constant":
        is_known = literal(name, argument.type or "int") is not None or _NAME.fullmatch(name)
        return "" if is_known else "but a constant should be a number, or the name of one in the headers"
    if name and kind != "text" and not _NAME.fullmatch(name):
        return f"but {name!r} should be a name of letters, digits and underscores"
    if kind in ("workspace", "workspace_size") and not words.has_workspace:
        return "so the operator should name the function that returns its size, under workspace"
    if kind == "size" and name not in words.dimensions:
        return f"but dims have {', '.join(words.dimensions) or 'none'}"
    if kind == "object" and name not in words.objects:
        hint = did_you_mean(name, words.objects, text="did you mean {}? ")
        return f"but no object of that name is defined above; {hint}defined: {', '.join(words.objects) or 'none'}"
    return _wrong_tensor(argument, words.dims) if name and kind in _OF_TENSORS else ""


def wrong_in_template(arguments: Sequence[Argument], dims: Mapping[str, Sequence[str]]) -> str:
    """Return why the tensor template's arguments do not fit the tensor's dimensions; empty if they do."""
    return next(filter(None, (_wrong_tensor(x, dims) for x in arguments if x.kind in _OF_TENSORS)), "")


def _wrong_tensor(argument: Argument, dims: Mapping[str, Sequence[str]]) -> str:
    """Return why ``dims`` of the tensor do not fit the argument's kind; empty if they do."""
    if argument.name not in dims:
        if not dims and argument.kind not in _ONLY_IN_DIMS:
            return ""  # C receives shapes and strides instead
        hint = " (`[n...]` for any number of them, `[1...]` for a single number)"
        return f"but dims should list the dimensions of {argument.name}{hint}"
    rank = len(dims[argument.name])
    if argument.kind in _OF_MATRICES and rank != 2:
        return f"but {argument.name} should have two dimensions in dims"
    if argument.kind == "stride" and (argument.index or 0) >= rank:
        return f"but {argument.name} has {rank} dimensions in dims, from 0 to {rank - 1}"
    if argument.kind == "increment" and rank != 1:
        return f"but {argument.name} should have one dimension in dims"
    return ""


def _wrong_type(argument: Argument) -> str:
    """Return why the text after ``as`` is not allowed for the argument's kind; empty if it is."""
    kind, type_, array = argument.kind, argument.type, argument.array
    form = str(argument)
    if kind == "attribute":
        is_array = array is not None and array.element in ELEMENTS and argument.index is None and not array.in_bytes
        if is_array and array is not None and array.length == 0:
            return "but an array should have one element or more"
        hint = did_you_mean(type_.partition("[")[0], (*NUMBERS, *ELEMENTS), text=" (did you mean {}?)")
        known = f"'{form} as {'|'.join(NUMBERS)}', or as an array: '{form} as int64_t[]'{hint}"
        return "" if type_ in NUMBERS or is_array else f"but should name its C type: {known}"
    if kind in _PAIRS:
        fits, known = type_.count("|") == 1 and all(argument.pair), f"'{form} as ONE|OTHER'"
    elif kind in _ARRAYS:
        fits = array is not None and array.element in _INTEGERS and (kind == "strides" or not array.in_bytes)
        words = "(with a length for all, `int64_t[4]`; `reversed`; strides also in `bytes`)"
        known = f"'{form} as int64_t[]' {words}"
    elif kind == "stride":
        fits, known = argument.allowed in _INCREMENTS, f"'{form}[0] as int|nonzero|positive', perhaps with bytes"
    elif kind == "increment":
        fits, known = argument.allowed in _INCREMENTS, f"'{form} as {'|'.join(_INCREMENTS)}', perhaps with bytes"
    else:
        types, words = _TYPES.get(kind, (("",), "'{0}' without a type"))
        fits, known = type_ in types, words.format(form)
    return "" if fits else f"expected {known}"


# Types allowed after ``as``, and their description in messages.
_TYPES: Mapping[str, tuple[Sequence[str], str]] = {
    "scalar": (NUMBERS[1:], f"'{{0}} as {'|'.join(NUMBERS[1:])}'"),
    "constant": (("", *NUMBERS), f"'{{0}} as {'|'.join(NUMBERS)}', or an enumerator without a type"),
    **dict.fromkeys(("leading", "size", "elements"), (("", "bytes"), "'{0}' for elements, or '{0} as bytes'")),
    **dict.fromkeys(("input", "output"), (("", DESCRIPTOR, TENSOR), "'{0}', or '{0} as tensor'")),
    "tensor": (("", DESCRIPTOR), "'{0}' without a type"),
}
_INTEGERS = tuple(name for name in ELEMENTS if name not in ("float", "double"))


def literal(text: str, type_: str) -> float | int | None:
    """Return the number that a constant denotes; None for a name from the headers."""
    if not _LITERAL.fullmatch(text):
        return None
    if type_ in ("float", "double", "scalar"):
        return float(text)
    return int(text) if text.lstrip("+-").isdecimal() else None
