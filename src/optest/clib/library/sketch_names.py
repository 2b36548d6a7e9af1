"""What names in a header say: a function's operator, an argument's tensor or attribute, a word's dtype."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from optest.clib.ffi.signatures import CKind, CType, Prototype
from optest.errors import UnknownName
from optest.spec import OperatorDescriptor, dtype

__all__ = [
    "OUTPUTS",
    "SMALLEST_STEP",
    "Catalogue",
    "Guessed",
    "assigned",
    "attribute_called",
    "dtype_called",
    "dtype_of_function",
    "element_of",
    "fold",
    "named_throughout",
    "plain",
    "words",
]

_WORD = re.compile(r"[A-Z]+(?=[A-Z][a-z])|[A-Z]?[a-z]+|[A-Z]+|\d+")
_AROUND = frozenset({"desc", "descriptor", "ptr", "val", "value", "table", "tensor", "data", "buf", "buffer", "array"})
"""What stands beside the name of an argument and says nothing about which one it is."""
_BEHIND = frozenset({"forward", "fwd", "op", "kernel", "cpu", "impl", "ref"})
"""What stands behind the name of an operator and does not make it another."""
_LETTERS = {"s": "float32", "d": "float64", "c": "complex64", "z": "complex128", "f": "float32", "cf": "complex64"}
SMALLEST_STEP = {"float64": 2.220446049250313e-16, "other": 1.1920928955078125e-07}
"""What an ``eps`` of none means: the step of the dtype, that of float32 for those that are narrower."""
_WIDTHS = {"16f": "float16", "32f": "float32", "64f": "float64", "8u": "uint8", "8s": "int8", "32s": "int32"}

OUTPUTS = ("out", "output", "y", "dst", "dest", "z", "c", "r", "res", "result", "ret")
"""Names of outputs where no ``const`` tells them from inputs."""
_SYNONYMS: dict[str, tuple[str, ...]] = {
    "out": OUTPUTS,
    "input": ("x", "in", "src", "source", "data"),
    "weight": ("w", "gamma", "g", "kernel", "filter"),
    "bias": ("bias", "shift"),
    "position_ids": ("pos", "posids", "positions", "position"),
    "logits": ("logits", "probs"),
    "query": ("q",),
    "key": ("k",),
    "value": ("v",),
    "index": ("idx", "indices", "ids"),
    "indices": ("idx", "index", "ids"),
    "condition": ("cond", "mask"),
    "attn_mask": ("mask",),
    "running_mean": ("mean",),
    "running_var": ("var", "variance"),
    "zero_point": ("zp", "zeropoint"),
    "std": ("stddeviation", "rstd", "inputstddeviation"),
    "standardization": ("inputstandardization",),
    "eps": ("epsilon",),
    "dim": ("axis",),
    "negative_slope": ("slope", "alpha", "negativeslope"),
    "random_value": ("random", "rand", "randomval"),
    "padding": ("pads", "pad"),
    "stride": ("strides",),
    "dilation": ("dilations",),
    "min": ("minimum", "lo", "low", "lower", "minval"),
    "max": ("maximum", "hi", "high", "upper", "maxval"),
}
_IN_ORDER = (("a", "b", "c"), ("x", "y", "z"), ("lhs", "rhs"), ("x1", "x2"), ("in1", "in2"), ("src1", "src2"))
_ALIKE = ("input", "other", "tensor", "mat2", "exponent", "a", "b", "c")
"""Inputs that stand in the order in which people write them."""
_ONE = ("a", "x", "in", "input", "src", "source", "in0", "src0", "lhs", "x1", "in1", "src1", "i")


def words(name: str) -> tuple[str, ...]:
    """``infiniopRMSNorm_f32`` as ``infiniop, rms, norm, f, 32``, in small letters."""
    return tuple(each.lower() for each in _WORD.findall(name))


def fold(name: str) -> str:
    return re.sub(r"[^a-z0-9]", "", name.lower())


def plain(name: str) -> str:
    """An argument's name without what says nothing: ``min_val_desc`` and ``_min`` are ``min``."""
    parts = [each for each in name.strip("_").split("_") if each]
    while len(parts) > 1 and parts[-1].lower() in _AROUND:
        parts.pop()
    while len(parts) > 1 and parts[0] in ("p", "h", "d"):
        parts.pop(0)
    return fold("".join(parts))


def dtype_called(text: str) -> str:
    """The dtype that a word means (``F16``, ``half``, ``32f``), by the name of optest; empty for none."""
    folded = fold(text)
    if folded in _WIDTHS:
        return _WIDTHS[folded]
    if folded in ("f8", "fp8", "e4m3"):
        return "float8_e4m3fn"
    try:
        return dtype(folded).name
    except UnknownName:
        return ""


_OF_KIND = {CKind.FLOAT: "float", CKind.INT: "int", CKind.UINT: "uint", CKind.BOOL: "bool", CKind.COMPLEX: "complex"}


def element_of(type_: CType) -> str:
    """The dtype of the elements that a C type is, by the name of optest; empty for void, structs, text and the like."""
    if type_.kind not in _OF_KIND or type_.spelling == "char":
        return ""
    if type_.kind is CKind.BOOL:
        return "bool"
    name = f"{_OF_KIND[type_.kind]}{8 * type_.size}"
    return name if name in _ELEMENTS else ""


_INTEGERS = [f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)]
_ELEMENTS = frozenset({"float32", "float64", "complex64", "complex128", *_INTEGERS})


def dtype_of_function(name: str, *, is_blas: bool) -> str:
    """The dtype that a function's name ends with, or, in BLAS, that its last word begins with; empty for none."""
    parts = [each for each in words(name) if each not in _BEHIND]
    for count in (2, 1):
        found = dtype_called("".join(parts[-count:])) if len(parts) > count else ""
        if found:
            return found
    return _LETTERS.get(parts[-1][:1], "") if is_blas and parts else ""


def named_throughout(prototype: Prototype) -> Prototype:
    """With a name for every argument, since a header need not give any: ``argument2``."""
    parameters = tuple(
        each if each.name else replace(each, name=f"argument{place}")
        for place, each in enumerate(prototype.parameters, 1)
    )
    return replace(prototype, parameters=parameters)


class Catalogue:
    """Operators by what they may be called in C."""

    def __init__(self, descriptors: Iterable[OperatorDescriptor]) -> None:
        self._by_name: dict[str, OperatorDescriptor] = {}
        known = list(descriptors)
        for descriptor in known:
            self._by_name[fold(descriptor.name)] = descriptor
        for descriptor in known:
            for alias in descriptor.aliases:
                self._by_name.setdefault(fold(alias), descriptor)

    def called(self, name: str) -> tuple[OperatorDescriptor, ...]:
        """The operators of a name: one, none, or those for 1, 2 and 3 dimensions."""
        folded = fold(name)
        if folded in self._by_name:
            return (self._by_name[folded],)
        several = [self._by_name[f"{folded}{rank}d"] for rank in (1, 2, 3) if f"{folded}{rank}d" in self._by_name]
        return tuple(several)

    def of_function(self, name: str) -> OperatorDescriptor | None:
        """The operator that a function's name ends with, apart from a dtype: ``mine_relu_f32``, ``cblas_sgemm``."""
        parts = list(words(name))
        while parts and not self._ends_with_operator(parts) and (nothing := _saying_nothing(parts)):
            del parts[-nothing:]
        for start in range(len(parts)):
            found = self._by_name.get("".join(parts[start:]))
            if found is not None:
                return found
        return self._behind_a_letter(parts[-1]) if parts else None

    def _ends_with_operator(self, parts: Sequence[str]) -> bool:
        return any("".join(parts[start:]) in self._by_name for start in range(len(parts)))

    def _behind_a_letter(self, last: str) -> OperatorDescriptor | None:
        return self._by_name.get(last[1:]) if last[:1] in ("s", "d", "c", "z") and len(last) > 3 else None


def _saying_nothing(parts: Sequence[str]) -> int:
    """How many words at the end are a dtype, which a number may end or begin."""
    last = parts[-1]
    if len(parts) > 1 and dtype_called(parts[-2] + last):
        return 2
    return int(last in _BEHIND or last in _LETTERS or bool(dtype_called(last)) or last.isdigit())


@dataclass(frozen=True, slots=True, kw_only=True)
class Guessed:
    """``names`` of optest for names of C, in C's order; ``by_order`` are those that only their place tells."""

    names: tuple[str, ...]
    by_order: tuple[str, ...] = ()


def assigned(in_c: Sequence[str], wanted: Sequence[str]) -> Guessed | None:
    """Which of the ``wanted`` tensors each argument is: by its name, the rest in order; None if there are too many."""
    if len(in_c) > len(wanted):
        return None
    found: dict[int, str] = {}
    for index, name in enumerate(in_c):
        match = next((each for each in wanted if each not in found.values() and _is_called(each, plain(name))), None)
        if match is not None:
            found[index] = match
    left = [each for each in wanted if each not in found.values()]
    by_order = []
    for index, name in enumerate(in_c):
        if index not in found:
            found[index] = left.pop(0)
            by_order.append(name)
    names = tuple(found[index] for index in range(len(in_c)))
    plainly = [plain(each) for each in in_c]
    is_first = len(wanted) == 1 and plainly[:1] and plainly[0] in _ONE
    is_a_row = set(names) <= set(_ALIKE) and any(plainly == list(row[: len(plainly)]) for row in _IN_ORDER)
    if list(names) == list(wanted[: len(names)]) and (is_first or is_a_row):
        by_order = []
    return Guessed(names=names, by_order=tuple(by_order))


def _is_called(name: str, in_c: str) -> bool:
    return in_c == fold(name) or in_c in _SYNONYMS.get(name, ())


def attribute_called(descriptor: OperatorDescriptor, in_c: str) -> str:
    """The attribute that an argument is, by its name, an alias or a usual word for it; empty for none."""
    wanted = plain(in_c)
    for attribute in descriptor.attributes:
        if any(_is_called(each, wanted) for each in (attribute.name, *attribute.aliases)):
            return attribute.name
    return ""
