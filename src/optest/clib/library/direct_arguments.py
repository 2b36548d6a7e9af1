"""One argument of a plain C function, as a mapping writes it: ``size:n``, ``attribute:padding as int64_t[2]``."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

from optest.clib.library.roles import ELEMENTS, Role
from optest.errors import nearest

__all__ = [
    "ARRAYS",
    "INCREMENTS",
    "NUMBERS",
    "Argument",
    "ArrayForm",
    "Known",
    "parsed",
    "wrong_argument",
    "wrong_in_template",
    "wrong_template",
]

NUMBERS = ("scalar", "float", "double", "int", "bool")
"""How a number goes over; a ``scalar`` has the dtype of the call: by value, or behind a pointer where C wants one."""
INCREMENTS = ("nonzero", "any", "positive")
ARRAYS = ("shape", "strides")
_OF_MATRICES = ("leading", "rows", "columns", "layout", "order")
_PAIRS = ("layout", "order")
_OF_TENSORS = ("input", "output", "elements", "increment", *_OF_MATRICES, "ndim", "dtype", "descriptor", *ARRAYS)
_PLAIN = ("handle", "workspace", "workspace_size", "null")
_OF_MAKING = ("self", "slot")
_OF_TEMPLATES = ("ndim", "dtype", "data", "elements", "rows", "columns", "leading", "increment", *ARRAYS)
TENSOR = "tensor"
"""``input:a as tensor``: what the mapping's ``tensor`` makes of it, the pointer to its elements included."""

_FORMS = (
    "constant:NAME",
    "constant:NUMBER",
    "constant:NUMBER as scalar",
    "text:WORD",
    "size:DIMENSION",
    "attribute:NAME as scalar",
    "attribute:NAME[0] as int",
    "attribute:NAME as int64_t[]",
    "count:ATTRIBUTE",
    "object:NAME",
    *(f"{kind}:TENSOR as ONE|OTHER" for kind in _PAIRS),
    *(f"{kind}:TENSOR" for kind in _OF_TENSORS if kind not in (*_PAIRS, *ARRAYS)),
    *(f"{kind}:TENSOR as int64_t[]" for kind in ARRAYS),
    *_PLAIN,
)
_KINDS = ("constant", "text", "size", "attribute", "count", "object", *_OF_TENSORS, *_PLAIN)
_ARGUMENT = re.compile(
    r"(?P<kind>\w+)(?::(?P<name>[-+\w.]+)(?:\[(?P<index>[0-9]{1,3})\])?(?P<optional>\?)?)?"
    r"(?: as (?P<type>[\w|\[\] ]+))?"
)
_ARRAY = re.compile(r"(?P<element>\w+)\[(?P<length>[0-9]{0,3})\](?P<words>(?: reversed| bytes)*)")


@dataclass(frozen=True, slots=True, kw_only=True)
class ArrayForm:
    """How numbers go over as an array: type of the elements in C; ``length`` of them, where it is stated; the last
    one first (``reversed``); counted in bytes and not in elements (``bytes``)."""

    element: str
    length: int | None = None
    is_reversed: bool = False
    in_bytes: bool = False

    @classmethod
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Argument:
    """One argument: its kind, of which tensor, dimension or attribute, and how (``scalar``, ``any``, ``A|B``).

    ``index`` is the place of a number in an attribute that lists several.
    """

    kind: str
    name: str = ""
    optional: bool = False
    type: str = ""
    index: int | None = None

    @property
    def key(self) -> str:
        return f"{self.kind}:{self.name}" if self.name else self.kind

    @property
    def text(self) -> str:
        """As it stands in the mapping."""
        place = "" if self.index is None else f"[{self.index}]"
        return f"{self.key}{place}" + (f" as {self.type}" if self.type else "")

    @property
    def pair(self) -> tuple[str, str]:
        """The two constants of a ``layout`` or an ``order``."""
        one, _, other = self.type.partition("|")
        return one, other

    @property
    def array(self) -> ArrayForm | None:
        """What it is as an array; None if it is a single value."""
        return ArrayForm.of(self.type)

    @property
    def as_tensor(self) -> bool:
        """Whether C gets what the mapping's ``tensor`` makes of it."""
        return self.kind in ("input", "output") and self.type == TENSOR

    @property
    def is_late(self) -> bool:
        """Whether it is known only when memory is."""
        return self.kind in ("input", "output", "workspace", "workspace_size")

    def role(self) -> Role:
        return Role(kind=self.kind, name=self.name, optional=self.optional, type=self.type)


@lru_cache(maxsize=512)
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
class Known:
    """What the arguments of an operator may name; ``making`` is whether they are those of something made,
    which is called ``own``."""

    dims: Mapping[str, Sequence[str]]
    dimensions: Collection[str]
    objects: Collection[str] = ()
    own: str = ""
    making: bool = False
    has_workspace: bool = True

    @property
    def plain(self) -> tuple[str, ...]:
        return (*_PLAIN, *_OF_MAKING) if self.making else _PLAIN


def wrong_argument(text: str, known: Known) -> str:
    """Why ``text`` is no argument; empty if it is."""
    found = _ARGUMENT.fullmatch(text)
    kinds = (*_KINDS, *known.plain)
    if found is None or found["kind"] not in kinds:
        word = found["kind"] if found else text
        near = nearest(word, kinds)
        return f"which is no role here; {f'did you mean {near}? ' if near else ''}known: {', '.join(_forms(known))}"
    (argument,) = parsed((text,))
    if (argument.kind in known.plain) != (not argument.name):
        return f"but should be one of {', '.join(_forms(known))}"
    if argument.kind in ("workspace", "workspace_size") and not known.has_workspace:
        return "so the operator should say how large it is, under workspace"
    if argument.index is not None and argument.kind != "attribute":
        return "but only an attribute has numbers at places: 'attribute:padding[0] as int'"
    if argument.kind == "size" and argument.name not in known.dimensions:
        return f"but dims have {', '.join(sorted(known.dimensions)) or 'none'}"
    if argument.kind == "object" and argument.name not in known.objects:
        near = nearest(argument.name, list(known.objects))
        hint = f"did you mean {near}? " if near else ""
        return f"but there is no such object yet; {hint}objects above: {', '.join(known.objects) or 'none'}"
    if argument.kind in _OF_TENSORS:
        return _wrong_tensor(argument, known.dims) or _wrong_type(argument)
    return _wrong_type(argument)


def wrong_template(text: str, *, struct: bool) -> str:
    """Why ``text`` is no argument, or field, of what is made of every tensor alike; empty if it is."""
    found = _ARGUMENT.fullmatch(text)
    words = (*_OF_TEMPLATES, *(() if struct else _OF_MAKING), "handle", "null", "constant")
    forms = (
        *(each for each in _OF_TEMPLATES if each not in ARRAYS),
        *(f"{each} as int64_t[]" for each in ARRAYS),
        *(f"{each}:NAME" if each == "constant" else each for each in words[len(_OF_TEMPLATES) :]),
    )
    if found is None or found["kind"] not in words:
        near = nearest(found["kind"] if found else text, words)
        hint = f"did you mean {near}? " if near else ""
        return f"which is no role of a tensor here; {hint}known: {', '.join(dict.fromkeys(forms))}"
    (argument,) = parsed((text,))
    if (argument.kind == "constant") != bool(argument.name):
        return f"but should be one of {', '.join(dict.fromkeys(forms))}"
    return "" if argument.kind == "data" and not argument.type else _wrong_type(argument)


def wrong_in_template(arguments: Sequence[Argument], dims: Mapping[str, Sequence[str]]) -> str:
    """Why what is made of a tensor does not fit its dimensions; empty if it does."""
    return next(filter(None, (_wrong_tensor(each, dims) for each in arguments if each.kind in _OF_TENSORS)), "")


def _forms(known: Known) -> tuple[str, ...]:
    return (*_FORMS, *(each for each in known.plain if each not in _FORMS))


def _wrong_tensor(argument: Argument, dims: Mapping[str, Sequence[str]]) -> str:
    if argument.name not in dims:
        hint = " (`[n...]` for any number of them, `[1...]` for a single number)"
        return f"but dims should say the dimensions of {argument.name}{hint}"
    rank = len(dims[argument.name])
    if argument.kind in _OF_MATRICES and rank != 2:
        return f"but {argument.name} should have two dimensions in dims"
    if argument.kind == "increment" and rank != 1:
        return f"but {argument.name} should have one dimension in dims"
    return ""


def _wrong_type(argument: Argument) -> str:
    kind, type_, array = argument.kind, argument.type, argument.array
    if kind in _PAIRS:
        fits, wanted = type_.count("|") == 1 and all(argument.pair), f"'{argument.key} as ONE|OTHER'"
    elif kind == "attribute":
        is_array = array is not None and array.element in ELEMENTS and argument.index is None and not array.in_bytes
        fits = type_ in NUMBERS or is_array
        wanted = f"'{argument.key} as {'|'.join(NUMBERS)}', or as an array: '{argument.key} as int64_t[]'"
    elif kind == "constant":
        fits, wanted = type_ in ("", *NUMBERS), f"'{argument.key} as {'|'.join(NUMBERS)}', or an enumerator alone"
    elif kind in ("leading", "size", "elements"):
        fits, wanted = type_ in ("", "bytes"), f"'{argument.key}' for elements, or '{argument.key} as bytes'"
    elif kind in ARRAYS:
        fits = array is not None and array.element in _INTEGERS and (kind == "strides" or not array.in_bytes)
        words = " (with a length for all, `int64_t[4]`; `reversed`; strides also in `bytes`)"
        wanted = f"'{argument.key} as int64_t[]'{words}"
    elif kind == "increment":
        words_ = type_.removesuffix("bytes").strip()
        fits, wanted = words_ in ("", *INCREMENTS), f"'{argument.key} as {'|'.join(INCREMENTS)}', perhaps with bytes"
    elif kind in ("input", "output"):
        fits, wanted = type_ in ("", TENSOR), f"'{argument.key}', or '{argument.key} as tensor'"
    else:
        fits, wanted = not type_, f"'{argument.key}' alone"
    return "" if fits else f"but should be {wanted}"


_INTEGERS = tuple(name for name in ELEMENTS if name not in ("float", "double"))
