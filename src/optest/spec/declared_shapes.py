"""Declarations of tensors: inputs ``"input: T[rows, depth], weight: T[depth, width], bias?: T[width]"``, and
optionally outputs ``" -> T[rows, width], scales: float32[rows]"``.

- A size name has the same value everywhere, ``2*size+1`` is computed from it, ``*lead`` is any number of sizes.
- A capital letter is one dtype wherever it occurs; ``T|float32`` is T or, if T has 16 bits, float32. ``index`` is
  int64 or int32, other words are names of dtypes; without a word any dtype is accepted.
- ``index(rows)`` and ``int32(rows)`` hold indices from 0 to rows - 1. ``offsets(tokens)[batch+1]``, int64 or int32,
  ascends from 0 to tokens: the starts of a batch of sequences.
- An input with a ``?`` is optional.
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
    """Size ``factor * name + more``, or with ``is_several`` any number of sizes (``*lead``)."""

    is_several: bool
    factor: int
    name: str
    more: int

    def of(self, known: Mapping[str, Any]) -> Shape:
        """Return the declared sizes for the ``known`` values of names: one, or all of ``*lead``."""
        value: Any = int(self.name) if self.name.isdigit() else known[self.name]
        return value if self.is_several else (self.factor * value + self.more,)


class DeclaredTensor(NamedTuple):
    """One tensor of a declaration: ``kind`` is its dtype word, ``wide`` the alternative dtype after ``|``."""

    name: str
    is_optional: bool
    kind: str
    wide: str
    # Size that its integers have to be smaller than.
    limit: str
    sizes: list[DeclaredSize]
    # True if one of the sizes is `*lead`.
    is_open: bool


@cache
def read_declaration(declaration: str) -> tuple[list[DeclaredTensor], list[DeclaredTensor]]:
    """Parse a declaration and return its inputs and outputs; the outputs are empty if they declare no sizes.

    Raises:
        ValueError: if the text has another form.
    """

    def tensors(text: str) -> list[DeclaredTensor]:
        if DECLARED.sub("", text).strip(" ,"):
            raise ValueError(f"{declaration!r} has a part that is no tensor; write each as 'x: T[rows, depth]'")
        declared = []
        for name, mark, kind, limit, sizes in DECLARED.findall(text):
            kind, _, wide = kind.partition("|")
            parts = [(part, _SIZE.fullmatch(part.strip())) for part in sizes.split(",") if sizes.strip()]
            if wrong := next((part for part, size in parts if size is None), None):
                raise ValueError(f"{declaration!r} has the size {wrong!r}, expected one like rows, 2*half+1 or *lead")
            matches = [size.groups() for _, size in parts if size is not None]
            declared_sizes = [DeclaredSize(bool(star), int(n or 1), size, int(m or 0)) for star, n, size, m in matches]
            is_open = any(size.is_several for size in declared_sizes)
            declared.append(DeclaredTensor(name, bool(mark), kind, wide, limit, declared_sizes, is_open))
        return declared

    inputs, _, outputs = declaration.partition("->")
    return tensors(inputs), tensors(outputs) if "[" in outputs else []


def require_spec(specs: Specs, index: int, name: str) -> TensorSpec:
    """Return the spec of input ``index``; raise UnfitArguments, naming the input, if it is missing or None."""
    spec = specs[index] if index < len(specs) else None
    if spec is None:
        raise UnfitArguments(f"{name} is missing, expected given")
    return spec


def inference(declaration: str) -> Callable[[Specs, Mapping[str, Any]], tuple[TensorSpec, ...]]:
    """Return a function ``(input specs, attributes) -> output specs`` for a declaration with outputs."""
    return lambda specs, _attributes: match_declaration(specs, declaration)[1]


def match_declaration(specs: Specs, declaration: str, **known: Any) -> tuple[Any, tuple[TensorSpec, ...]]:
    """Match input specs with a declaration; return sizes and dtypes by name, and the output specs.

    ``known`` holds sizes that are attributes instead of sizes of an input.

    Raises:
        UnfitArguments: for an input that is missing, or does not fit its declaration and the inputs before it.
    """
    inputs, outputs = read_declaration(declaration)
    attribute_names = frozenset(known)
    for index, tensor in enumerate(inputs):
        if not tensor.is_optional or (len(specs) > index and specs[index] is not None):
            spec = require_spec(specs, index, tensor.name)
            _require_dtype(tensor, spec, known, inputs[:index])
            rest = spec.rank - len(tensor.sizes) + tensor.is_open
            if rest < 0 or (rest and not tensor.is_open):
                wanted = _describe_rank(tensor, known)
                raise UnfitArguments(f"{tensor.name} is {format_shape(spec.shape)}, expected {wanted}")
            start, misfit = 0, ""
            for size in tensor.sizes:
                sizes = spec.shape[start : start + (rest if size.is_several else 1)]
                start += len(sizes)
                if size.name not in known and not size.name.isdigit():
                    known[size.name] = sizes if size.is_several else max(0, (sizes[0] - size.more) // size.factor)
                if size.of(known) != sizes:
                    misfit = misfit or size.name
            if misfit:
                owners = (x.name for x in inputs[:index] if misfit in [size.name for size in x.sizes])
                owner, words = next(owners, ""), misfit.replace("_", " ")
                reason = f", with {words} as in {owner}" if owner and misfit not in attribute_names else f", as {words}"
                wanted = format_shape(shape_of(tensor, known))
                raise UnfitArguments(f"{tensor.name} is {format_shape(spec.shape)}, expected {wanted}{reason}")
    output_specs = [dense(known.get(tensor.kind) or dtype(tensor.kind), shape_of(tensor, known)) for tensor in outputs]
    return SimpleNamespace(**known), tuple(output_specs)


_INDICES = ("int64", "int32")


def require_index(spec: TensorSpec, name: str) -> None:
    """Raise UnfitArguments, naming the tensor ``name``, unless its dtype is int64 or int32."""
    if spec.dtype.name not in _INDICES:
        raise UnfitArguments(f"{name} is {spec.dtype}, expected {' or '.join(_INDICES)}")


def _require_dtype(
    declared: DeclaredTensor, spec: TensorSpec, known: dict[str, Any], before: Sequence[DeclaredTensor]
) -> None:
    """Raise UnfitArguments if the dtype does not fit; store the dtype of a capital letter in ``known``.

    ``before`` are the earlier inputs, which a message names as the origin of the dtype.
    """
    kind, wide = declared.kind, declared.wide
    if kind in ("index", OFFSETS):
        require_index(spec, declared.name)
    elif kind:
        wanted = known.setdefault(kind, spec.dtype) if kind.isupper() else dtype(kind)
        if spec.dtype == wanted or (wanted.bits == 16 and spec.dtype.name == wide):
            return
        words = f"{wanted} or {wide}" if wide and wanted.bits == 16 else wanted
        owner = next((f", as {tensor.name}" for tensor in before if tensor.kind == kind and kind.isupper()), "")
        raise UnfitArguments(f"{declared.name} is {spec.dtype}, expected {words}{owner}")


def _describe_rank(declared: DeclaredTensor, known: Mapping[str, Any]) -> str:
    """Return the end of a message about a wrong rank: ``2 dimensions, 4 x depth`` or ``a scalar``."""
    words = ["…" if size.is_several else str(known.get(size.name, size.name)) for size in declared.sizes]
    count = len(words) - declared.is_open
    more = " or more" if declared.is_open else ""
    return f"{count} dimension{'s' * (count != 1)}{more}, {' x '.join(words)}" if words else "a scalar"


def shape_of(declared: DeclaredTensor, known: Mapping[str, Any]) -> Shape:
    """Return the shape of a declared tensor, given the values of all size names."""
    return tuple([value for size in declared.sizes for value in size.of(known)])
