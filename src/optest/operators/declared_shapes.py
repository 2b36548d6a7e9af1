"""Inputs as operators declare them: ``"input: T[rows, depth], weight: T[depth, width], bias?: T[width]"``, and perhaps
their outputs, which have no names: ``" -> T[rows, width]"``.

- A size that occurs again is the same, ``2*size+1`` is made of it, ``*lead`` stands for any number of sizes.
- A capital is one dtype wherever it occurs, and ``T|float32`` is T or, beside 16 bits, float32. ``index`` is int64 or
  int32, other words are dtypes themselves; nothing is any dtype.
- An input with a ``?`` may be left out.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import cache
from types import SimpleNamespace
from typing import Any, NamedTuple

from optest.operators.shapes import Inference, Outputs, Shape, Specs, dense, given, require_index
from optest.spec import TensorSpec, UnfitArguments, dtype, format_shape

_TENSOR = re.compile(r"(?:(\w+)(\??): )?([\w|]*)\[([^\]]*)\]")
_SIZE = re.compile(r"(\*?)(?:(\d+)\*)?(\w+)([+-]\d+)?")


class _Size(NamedTuple):
    is_several: bool
    factor: int
    name: str
    more: int

    def of(self, known: Mapping[str, Any]) -> Shape:
        value: Any = known[self.name]
        return value if self.is_several else (self.factor * value + self.more,)


class _Tensor(NamedTuple):
    name: str
    is_optional: bool
    kind: str
    wide: str
    sizes: list[_Size]
    is_open: bool
    """Whether one of them stands for several."""


@cache
def _read(declaration: str) -> tuple[list[_Tensor], list[_Tensor]]:
    def tensors(text: str) -> list[_Tensor]:
        if _TENSOR.sub("", text).strip(" ,"):
            raise ValueError(f"{declaration!r} has something that is no tensor")
        read = []
        for name, mark, kind, sizes in _TENSOR.findall(text):
            kind, _, wide = kind.partition("|")
            found = [_Size(bool(star), int(n or 1), size, int(m or 0)) for star, n, size, m in _SIZE.findall(sizes)]
            read.append(_Tensor(name, bool(mark), kind, wide, found, any(each.is_several for each in found)))
        return read

    inputs, _, outputs = declaration.partition(" -> ")
    return tensors(inputs), tensors(outputs)


def inference(declaration: str) -> Inference:
    """The inference of an operator of which the declaration says all."""
    return lambda specs, _attributes: fitted(specs, declaration)[1]


def fitted(specs: Specs, declaration: str, **known: Any) -> tuple[Any, Outputs]:
    """The sizes and dtypes by their names, and the outputs; ``known`` are those that no input says.

    Raises:
        UnfitArguments: for an input that is missing, or does not fit its declaration and the inputs before it.
    """
    inputs, outputs = _read(declaration)
    stated = frozenset(known)
    for place, each in enumerate(inputs):
        if not each.is_optional or (len(specs) > place and specs[place] is not None):
            spec = given(specs, place, each.name)
            _require_dtype(each, spec, known, inputs[:place])
            _require_shape(each, spec, known, inputs[:place], stated)
    made = [dense(known.get(each.kind) or dtype(each.kind), _shape(each, known)) for each in outputs]
    return SimpleNamespace(**known), tuple(made)


def _require_dtype(declared: _Tensor, spec: TensorSpec, known: dict[str, Any], before: Sequence[_Tensor]) -> None:
    kind, wide = declared.kind, declared.wide
    if kind == "index":
        require_index(spec, declared.name)
    elif kind:
        wanted = known.setdefault(kind, spec.dtype) if kind.isupper() else dtype(kind)
        if spec.dtype == wanted or (wanted.bits == 16 and spec.dtype.name == wide):
            return
        words = f"{wanted} or {wide}" if wide and wanted.bits == 16 else wanted
        owner = next((f", as {each.name}" for each in before if each.kind == kind and kind.isupper()), "")
        raise UnfitArguments(f"{declared.name} is {spec.dtype}, but should be {words}{owner}")


def _require_shape(
    declared: _Tensor, spec: TensorSpec, known: dict[str, Any], before: Sequence[_Tensor], stated: frozenset[str]
) -> None:
    rest = spec.rank - len(declared.sizes) + declared.is_open
    if rest < 0 or (rest and not declared.is_open):
        raise UnfitArguments(
            f"{declared.name} is {format_shape(spec.shape)}, but should {_dimensions(declared, known)}"
        )
    at, stranger = 0, ""
    for size in declared.sizes:
        own = spec.shape[at : at + (rest if size.is_several else 1)]
        at += len(own)
        if size.name not in known:
            known[size.name] = own if size.is_several else own[0]
        if size.of(known) != own:
            stranger = stranger or size.name
    if stranger:
        owner = next((each.name for each in before if stranger in [size.name for size in each.sizes]), "")
        words = stranger.replace("_", " ")
        reason = f", with {words} as in {owner}" if owner and stranger not in stated else f", as {words}"
        wanted = format_shape(_shape(declared, known))
        raise UnfitArguments(f"{declared.name} is {format_shape(spec.shape)}, but should be {wanted}{reason}")


def _dimensions(declared: _Tensor, known: Mapping[str, Any]) -> str:
    """In words, where there are too few or too many."""
    words = ["…" if each.is_several else str(known.get(each.name, each.name)) for each in declared.sizes]
    count = len(words) - declared.is_open
    more = " or more" if declared.is_open else ""
    return f"have {count} dimension{'s' * (count != 1)}{more}, {' x '.join(words)}" if words else "be a scalar"


def _shape(declared: _Tensor, known: Mapping[str, Any]) -> Shape:
    return tuple([size for each in declared.sizes for size in each.of(known)])
