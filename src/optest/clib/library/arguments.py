"""One argument of a C function, as a mapping writes it: ``input:bias?``, ``attribute:padding as int64_t[2]``."""

from __future__ import annotations

import ctypes
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from typing import Any

from optest.errors import did_you_mean

NUMBERS = ("scalar", "float", "double", "int", "bool")
"""How a number goes over: a ``scalar`` has the dtype of the call, an ``int`` is an integer of any width."""
ELEMENTS: dict[str, Any] = {
    "int": ctypes.c_int,
    "int32_t": ctypes.c_int32,
    "int64_t": ctypes.c_int64,
    "size_t": ctypes.c_size_t,
    "ptrdiff_t": ctypes.c_ssize_t,
    "float": ctypes.c_float,
    "double": ctypes.c_double,
}
"""C types of the elements of an array, which headers often hide behind ``void *``."""
_INCREMENTS = ("nonzero", "any", "positive")
_ARRAYS = ("shape", "strides")
_PAIRS = ("layout", "order")
_OF_MATRICES = ("leading", "rows", "columns", *_PAIRS)
_WITH_DIMENSIONS = ("elements", "increment", "stride", *_OF_MATRICES, "ndim", "dtype", *_ARRAYS)
_OF_TENSORS = ("input", "output", "descriptor", *_WITH_DIMENSIONS)
COMPUTED = ("size", *_WITH_DIMENSIONS)
"""What follows from the sizes and layouts of tensors."""
_ONLY_IN_DIMS = ("increment", "stride", *_OF_MATRICES)
"""What can only be passed of a tensor whose dimensions have names."""
NAMED = ("constant", "text", "size", "attribute", "count", "scalar", "object", "tensor", *_OF_TENSORS)
PLAIN = ("handle", "workspace", "workspace_size", "stream", "null")
IN_MAKING = ("self", "slot")
_ELEMENTS_OF_TENSOR = ("ndim", "dtype", "data", "elements", "rows", "columns", "leading", "increment", *_ARRAYS)
TENSOR, DESCRIPTOR = "tensor", "descriptor"
"""``input:a as tensor``: what the mapping's ``tensor`` makes of it, the pointer to its elements included; ``input:a as
descriptor``: without that pointer."""
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
    """How numbers go over as an array: type of the elements in C; ``length`` of them, where it is given; the last
    one first (``reversed``); counted in bytes and not in elements (``bytes``)."""

    element: str
    length: int | None = None
    is_reversed: bool = False
    in_bytes: bool = False

    @classmethod
    @lru_cache(maxsize=128)
    def of(cls, text: str) -> ArrayForm | None:
        """None for a text that is no array."""
        found = _ARRAY.fullmatch(text)
        if found is None:
            return None
        words = found["words"].split()
        return cls(
            element=found["element"],
            length=int(found["length"]) if found["length"] else None,
            is_reversed="reversed" in words,
            in_bytes="bytes" in words,
        )


@dataclass(frozen=True, kw_only=True)
class Argument:
    """One argument: its kind, of which tensor, dimension or attribute, and how (``scalar``, ``any``, ``A|B``).

    ``index`` is the place of a number in an attribute that lists several; ``optional`` is NULL where the case leaves
    the input out.
    """

    kind: str
    name: str = ""
    optional: bool = False
    type: str = ""
    index: int | None = None

    @cached_property
    def array(self) -> ArrayForm | None:
        """What it is as an array; None if it is a single value."""
        return ArrayForm.of(self.type) if self.type else None

    @cached_property
    def made_as(self) -> str:
        """What is made before a call and passed here: ``object:plan``, ``object:tensor a``; empty for all else."""
        if self.as_descriptor or self.as_tensor:
            return key_of_tensor(self.name)
        return str(self) if self.kind == "object" else ""

    @property
    def key(self) -> str:
        """What its memory is found under. A tensor that optest makes is one input more."""
        return f"input:{self.name}" if self.kind == "tensor" else str(self)

    def __str__(self) -> str:
        return f"{self.kind}:{self.name}" if self.name else self.kind

    @property
    def text(self) -> str:
        """As it stands in the mapping."""
        place = "" if self.index is None else f"[{self.index}]"
        return f"{self}{place}" + (f" as {self.type}" if self.type not in ("", DESCRIPTOR) else "")

    @property
    def pair(self) -> tuple[str, str]:
        """The two constants of a ``layout`` or an ``order``."""
        one, _, other = self.type.partition("|")
        return one, other

    @property
    def allowed(self) -> str:
        """Return which steps an ``increment`` or a ``stride`` may have, whether it counts elements or bytes."""
        allowed = self.type.removesuffix("bytes").strip()
        return "any" if self.kind == "stride" and allowed in ("", "int") else allowed or "nonzero"

    @property
    def is_input(self) -> bool:
        """Whether it is memory that C reads."""
        return self.kind in ("input", "tensor")

    @property
    def as_tensor(self) -> bool:
        """Whether C gets what the mapping's ``tensor`` makes of it, its elements included."""
        return self.kind in ("input", "output") and self.type == TENSOR

    @property
    def as_descriptor(self) -> bool:
        """Whether C gets what the mapping's ``tensor`` makes of it, without its elements."""
        return self.kind == "descriptor" or (self.kind in ("input", "output", "tensor") and self.type == DESCRIPTOR)

    @property
    def is_late(self) -> bool:
        """Whether it is known only when memory is."""
        is_memory = self.kind in ("input", "output", "tensor") and self.type not in (TENSOR, DESCRIPTOR)
        return is_memory or self.kind in ("workspace", "workspace_size")


def key_of_tensor(tensor: str) -> str:
    """Under which what is made of a tensor is found when a call is made: no name in a mapping has a space."""
    return f"object:tensor {tensor}"


@lru_cache(maxsize=1024)
def parsed(texts: tuple[str, ...]) -> tuple[Argument, ...]:
    """Those that are of the right form."""
    return tuple(
        Argument(
            kind=each["kind"],
            name=each["name"] or "",
            optional=bool(each["optional"]),
            type=each["type"] or "",
            index=int(each["index"]) if each["index"] else None,
        )
        for each in map(_ARGUMENT.fullmatch, texts)
        if each is not None
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Words:
    """Which arguments may stand in a place: kinds that name something and words alone; ``dims`` are those of the
    operator, ``objects`` what is made before."""

    named: Sequence[str] = NAMED
    plain: Sequence[str] = PLAIN
    dims: Mapping[str, Sequence[str]] = field(default_factory=dict)
    objects: Collection[str] = ()
    has_workspace: bool = True
    what: str = "role"

    @property
    def kinds(self) -> tuple[str, ...]:
        return (*self.named, *self.plain)

    @property
    def dimensions(self) -> list[str]:
        names = {name.removesuffix("...") for dims in self.dims.values() for name in dims}
        return sorted(name for name in names if not name.isdecimal())

    @property
    def forms(self) -> str:
        named = [form for kind in self.named for form in _FORMS.get(kind, (f"{kind}:TENSOR",))]
        plain = [f"{word} as int64_t[]" if word in _ARRAYS else word for word in self.plain]
        return ", ".join((*named, *plain))

    def problems(self, where: str, texts: Sequence[str]) -> Iterator[str]:
        """What is wrong with a list of arguments that stands at ``where``."""
        for index, text in enumerate(texts):
            yield from self.problem(f"{where}[{index}]", text)

    def problem(self, where: str, text: str) -> Iterator[str]:
        why = wrong_argument(text, self)
        if why:
            yield f"{where} is {text!r}, {why}"


def words_of_tensor(*, struct: bool) -> Words:
    """What may be passed to make something of every tensor: it is not named."""
    making = () if struct else IN_MAKING
    return Words(named=("constant",), plain=(*_ELEMENTS_OF_TENSOR, *making, "handle", "null"), what="role of a tensor")


def wrong_argument(text: str, words: Words) -> str:
    """Why ``text`` is no argument; empty if it is."""
    found = _ARGUMENT.fullmatch(text)
    kind = found["kind"] if found else re.split(r"\W", text, maxsplit=1)[0]
    if kind not in words.kinds:
        hint = did_you_mean(kind, words.kinds, text="did you mean {}? ")
        return f"which is no {words.what} here; {hint}known: {words.forms}"
    if found is None or (kind in words.named) != (found["name"] is not None):
        return f"but should be one of {words.forms}"
    (argument,) = parsed((text,))
    return _wrong_name(argument, words) or _wrong_type(argument)


def _wrong_name(argument: Argument, words: Words) -> str:
    kind, name = argument.kind, argument.name
    if argument.optional and kind not in ("input", "descriptor"):
        return "but only an input can be left out"
    if kind in ("strides", "stride") and (kind == "stride") == (argument.index is None):
        return f"but one stride is 'stride:{name}[0]', all of them are 'strides:{name} as ptrdiff_t[]'"
    if argument.index is not None and kind not in ("attribute", "stride"):
        return "but only an attribute has numbers at places: 'attribute:padding[0] as int'; 'stride:a[0]' is a stride"
    if kind == "constant":
        is_known = literal(name, argument.type or "int") is not None or _NAME.fullmatch(name)
        return "" if is_known else "but a constant should be a number, or the name of one in the headers"
    if name and kind != "text" and not _NAME.fullmatch(name):
        return f"but {name!r} should be a name of letters, digits and underscores"
    if kind in ("workspace", "workspace_size") and not words.has_workspace:
        return "so the operator should say how large it is, under workspace"
    if kind == "size" and name not in words.dimensions:
        return f"but dims have {', '.join(words.dimensions) or 'none'}"
    if kind == "object" and name not in words.objects:
        hint = did_you_mean(name, words.objects, text="did you mean {}? ")
        return f"but there is no such object yet; {hint}objects above: {', '.join(words.objects) or 'none'}"
    return _wrong_tensor(argument, words.dims) if name and kind in _OF_TENSORS else ""


def wrong_in_template(arguments: Sequence[Argument], dims: Mapping[str, Sequence[str]]) -> str:
    """Why what is made of a tensor does not fit its dimensions; empty if it does."""
    return next(filter(None, (_wrong_tensor(each, dims) for each in arguments if each.kind in _OF_TENSORS)), "")


def _wrong_tensor(argument: Argument, dims: Mapping[str, Sequence[str]]) -> str:
    if argument.name not in dims:
        if not dims and argument.kind not in _ONLY_IN_DIMS:
            return ""  # C is told shapes and strides
        hint = " (`[n...]` for any number of them, `[1...]` for a single number)"
        return f"but dims should say the dimensions of {argument.name}{hint}"
    rank = len(dims[argument.name])
    if argument.kind in _OF_MATRICES and rank != 2:
        return f"but {argument.name} should have two dimensions in dims"
    if argument.kind == "stride" and (argument.index or 0) >= rank:
        return f"but {argument.name} has {rank} dimensions in dims, from 0 to {rank - 1}"
    if argument.kind == "increment" and rank != 1:
        return f"but {argument.name} should have one dimension in dims"
    return ""


def _wrong_type(argument: Argument) -> str:
    kind, type_, array = argument.kind, argument.type, argument.array
    form = str(argument)
    if kind == "attribute":
        is_array = array is not None and array.element in ELEMENTS and argument.index is None and not array.in_bytes
        if is_array and array is not None and array.length == 0:
            return "but an array should have one element or more"
        hint = did_you_mean(type_.partition("[")[0], (*NUMBERS, *ELEMENTS), text=" (did you mean {}?)")
        known = f"'{form} as {'|'.join(NUMBERS)}', or as an array: '{form} as int64_t[]'{hint}"
        return "" if type_ in NUMBERS or is_array else f"but should say its C type: {known}"
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
        types, words = _TYPES.get(kind, (("",), "'{0}' alone"))
        fits, known = type_ in types, words.format(form)
    return "" if fits else f"but should be {known}"


_TYPES: Mapping[str, tuple[Sequence[str], str]] = {
    "scalar": (NUMBERS[1:], f"'{{0}} as {'|'.join(NUMBERS[1:])}'"),
    "constant": (("", *NUMBERS), f"'{{0}} as {'|'.join(NUMBERS)}', or an enumerator alone"),
    **dict.fromkeys(("leading", "size", "elements"), (("", "bytes"), "'{0}' for elements, or '{0} as bytes'")),
    **dict.fromkeys(("input", "output"), (("", DESCRIPTOR, TENSOR), "'{0}', or '{0} as tensor'")),
    "tensor": (("", DESCRIPTOR), "'{0}' alone"),
}
"""What may stand behind ``as``, and in words."""
_INTEGERS = tuple(name for name in ELEMENTS if name not in ("float", "double"))


def literal(text: str, type_: str) -> float | int | None:
    """The number that a constant is, as its type; None for the name of one in the headers."""
    if not _LITERAL.fullmatch(text):
        return None
    if type_ in ("float", "double", "scalar"):
        return float(text)
    return int(text) if text.lstrip("+-").isdecimal() else None
