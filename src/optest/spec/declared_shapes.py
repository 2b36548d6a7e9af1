"""Declarations of inputs: ``"input: T[rows, depth], weight: T[depth, width], bias?: T[width]"``, and perhaps
of outputs: ``" -> T[rows, width], scales: float32[rows]"``.

- A size that occurs again is the same, ``2*size+1`` is computed from it, ``*lead`` is any number of sizes.
- A capital is one dtype wherever it occurs, and ``T|float32`` is T or, if T has 16 bits, float32. ``index`` is int64 or
  int32, other words are names of dtypes; without a word any dtype is accepted.
- ``index(rows)`` holds indices from 0 to rows - 1, as does ``int32(rows)``; ``offsets(tokens)[batch+1]``, int64 or
  int32, ascends from 0 to tokens: the starts of a batch of sequences.
- An input with a ``?`` may be left out.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from types import SimpleNamespace
from typing import Any, NamedTuple

from optest.spec.dtypes import dtype
from optest.spec.signature import DECLARED, UnfitArguments
from optest.spec.tensors import TensorSpec, dense, format_shape

Shape = tuple[int, ...]
Specs = Sequence[TensorSpec | None]
OFFSETS = "offsets"
_SIZE = re.compile(r"(\*?)(?:(\d+)\*)?(\w+)([+-]\d+)?")  # the name may be a number


class DeclaredSize(NamedTuple):
    """A size ``factor * name + more``, or any number of sizes (``*lead``, ``is_several``)."""

    is_several: bool
    factor: int
    name: str
    more: int

    def of(self, known: Mapping[str, Any]) -> Shape:
        """Return the sizes that it declares, given the values of names."""
        value: Any = int(self.name) if self.name.isdigit() else known[self.name]
        return value if self.is_several else (self.factor * value + self.more,)


class DeclaredTensor(NamedTuple):
    name: str
    is_optional: bool
    kind: str
    wide: str
    limit: str
    """Size that its integers have to be below."""
    sizes: list[DeclaredSize]
    is_open: bool
    """True if one of the sizes is ``*lead``."""


@cache
def read_declaration(declaration: str) -> tuple[list[DeclaredTensor], list[DeclaredTensor]]:
    """Return the declared inputs and outputs; raise ValueError for any other text."""

    def tensors(text: str) -> list[DeclaredTensor]:
        if DECLARED.sub("", text).strip(" ,"):
            raise ValueError(f"{declaration!r} has something that is no tensor; write each as 'x: T[rows, depth]'")
        read = []
        for name, mark, kind, limit, sizes in DECLARED.findall(text):
            kind, _, wide = kind.partition("|")
            parts = [(part, _SIZE.fullmatch(part.strip())) for part in sizes.split(",") if sizes.strip()]
            if wrong := next((part for part, size in parts if size is None), None):
                raise ValueError(
                    f"{declaration!r} has the size {wrong!r}, but should have one like rows, 2*half+1, *lead"
                )
            matches = [size.groups() for _, size in parts if size is not None]
            declared_sizes = [DeclaredSize(bool(star), int(n or 1), size, int(m or 0)) for star, n, size, m in matches]
            is_open = any(each.is_several for each in declared_sizes)
            read.append(DeclaredTensor(name, bool(mark), kind, wide, limit, declared_sizes, is_open))
        return read

    inputs, _, outputs = declaration.partition("->")
    return tensors(inputs), tensors(outputs) if "[" in outputs else []


def given(specs: Specs, index: int, name: str) -> TensorSpec:
    spec = specs[index] if index < len(specs) else None
    if spec is None:
        raise UnfitArguments(f"{name} is missing, but should be given")
    return spec


def inference(declaration: str) -> Callable[[Specs, Mapping[str, Any]], tuple[TensorSpec, ...]]:
    """Return the inference hook of an operator with a complete declaration."""
    return lambda specs, _attributes: fitted(specs, declaration)[1]


def fitted(specs: Specs, declaration: str, **known: Any) -> tuple[Any, tuple[TensorSpec, ...]]:
    """Return the sizes and dtypes by name, and the outputs; ``known`` are sizes that no input determines.

    Raises:
        UnfitArguments: for an input that is missing, or does not fit its declaration and the inputs before it.
    """
    inputs, outputs = read_declaration(declaration)
    given_names = frozenset(known)
    for index, each in enumerate(inputs):
        if not each.is_optional or (len(specs) > index and specs[index] is not None):
            spec = given(specs, index, each.name)
            _require_dtype(each, spec, known, inputs[:index])
            rest = spec.rank - len(each.sizes) + each.is_open
            if rest < 0 or (rest and not each.is_open):
                wanted = _dimensions(each, known)
                raise UnfitArguments(f"{each.name} is {format_shape(spec.shape)}, but should {wanted}")
            at, misfit = 0, ""
            for size in each.sizes:
                sizes = spec.shape[at : at + (rest if size.is_several else 1)]
                at += len(sizes)
                if size.name not in known and not size.name.isdigit():
                    known[size.name] = sizes if size.is_several else max(0, (sizes[0] - size.more) // size.factor)
                if size.of(known) != sizes:
                    misfit = misfit or size.name
            if misfit:
                owners = (other.name for other in inputs[:index] if misfit in [size.name for size in other.sizes])
                owner, words = next(owners, ""), misfit.replace("_", " ")
                reason = f", with {words} as in {owner}" if owner and misfit not in given_names else f", as {words}"
                wanted = format_shape(shape_of(each, known))
                raise UnfitArguments(f"{each.name} is {format_shape(spec.shape)}, but should be {wanted}{reason}")
    output_specs = [dense(known.get(each.kind) or dtype(each.kind), shape_of(each, known)) for each in outputs]
    return SimpleNamespace(**known), tuple(output_specs)


_INDICES = ("int64", "int32")


def require_index(spec: TensorSpec, name: str) -> None:
    if spec.dtype.name not in _INDICES:
        raise UnfitArguments(f"{name} is {spec.dtype}, but should be {' or '.join(_INDICES)}")


def _require_dtype(
    declared: DeclaredTensor, spec: TensorSpec, known: dict[str, Any], before: Sequence[DeclaredTensor]
) -> None:
    kind, wide = declared.kind, declared.wide
    if kind in ("index", OFFSETS):
        require_index(spec, declared.name)
    elif kind:
        wanted = known.setdefault(kind, spec.dtype) if kind.isupper() else dtype(kind)
        if spec.dtype == wanted or (wanted.bits == 16 and spec.dtype.name == wide):
            return
        words = f"{wanted} or {wide}" if wide and wanted.bits == 16 else wanted
        owner = next((f", as {each.name}" for each in before if each.kind == kind and kind.isupper()), "")
        raise UnfitArguments(f"{declared.name} is {spec.dtype}, but should be {words}{owner}")


def _dimensions(declared: DeclaredTensor, known: Mapping[str, Any]) -> str:
    """Describe the expected dimensions, for an input with too few or too many."""
    words = ["…" if each.is_several else str(known.get(each.name, each.name)) for each in declared.sizes]
    count = len(words) - declared.is_open
    more = " or more" if declared.is_open else ""
    return f"have {count} dimension{'s' * (count != 1)}{more}, {' x '.join(words)}" if words else "be a scalar"


def shape_of(declared: DeclaredTensor, known: Mapping[str, Any]) -> Shape:
    return tuple([size for each in declared.sizes for size in each.of(known)])
