"""The equations of einsum: labels of operands and output, with an ellipsis written out; standard library only."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod

from optest.operators.shapes import Shape
from optest.spec import UnfitArguments, format_shape

__all__ = ["Equation", "read_equation"]

Labels = tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Equation:
    """Labels of each operand and of the output, and the size of each label.

    The dimensions of an ellipsis have the labels ``.1``, ``.2`` …, counted from the last one. An operand may have
    the size 1 where its label has another: it is broadcast.
    """

    operands: tuple[Labels, ...]
    output: Labels
    sizes: Mapping[str, int]

    @property
    def shape(self) -> Shape:
        return tuple(self.sizes[label] for label in self.output)

    @property
    def length(self) -> int:
        """How many products each output element adds up."""
        return prod(size for label, size in self.sizes.items() if label not in self.output)


def read_equation(text: str, shapes: Sequence[Shape]) -> Equation:
    """Read ``"bij,bjk->bik"``, explicit or implicit, as torch.einsum does: spaces do not count.

    An output without the ellipsis sums over its dimensions. Without ``->`` the output has them first, then the labels
    that occur once, capitals before small letters.

    Raises:
        UnfitArguments: for text that is no equation, or shapes that do not fit it.
    """
    left, arrow, right = text.replace(" ", "").partition("->")
    terms = left.split(",")
    if len(terms) != len(shapes):
        raise UnfitArguments(f"equation {text!r} has {len(terms)} operands, but should have {len(shapes)}")
    operands = tuple(_labels(term, text, len(shape)) for term, shape in zip(terms, shapes, strict=True))
    sizes = _sizes(operands, shapes, text)
    if arrow:
        hidden = sum(label.startswith(".") for label in sizes) if "..." in right else 0
        output = _labels(right, text, hidden + len(right.replace("...", "")))
    else:
        output = _implicit(operands)
    if len(set(output)) < len(output) or any(label not in sizes for label in output):
        raise UnfitArguments(f"the output of equation {text!r} should have each label once, and only of operands")
    return Equation(operands=operands, output=output, sizes=sizes)


def _labels(term: str, text: str, rank: int) -> Labels:
    """The label of each dimension of a term of ``rank`` dimensions."""
    before, dots, after = term.partition("...")
    if not all(each.isascii() and each.isalpha() for each in before + after):
        raise UnfitArguments(f"equation is {text!r}, but should have letters, ',', '->' and '...' alone")
    hidden = rank - len(before) - len(after)
    if hidden < 0 or (hidden and not dots):
        raise UnfitArguments(f"{term!r} in equation {text!r} should have {rank} labels, as its operand has dimensions")
    return (*before, *(f".{index}" for index in range(hidden, 0, -1)), *after)


def _sizes(operands: Sequence[Labels], shapes: Sequence[Shape], text: str) -> dict[str, int]:
    sizes: dict[str, int] = {}
    for labels, shape in zip(operands, shapes, strict=True):
        own: dict[str, int] = {}
        for label, size in zip(labels, shape, strict=True):
            if own.setdefault(label, size) != size:
                raise UnfitArguments(
                    f"{label} in equation {text!r} is {own[label]} and {size} in one operand {format_shape(shape)}, "
                    "but should be one size"
                )
        for label, size in own.items():
            known = sizes.get(label, 1)
            if known != size and 1 not in (known, size):
                raise UnfitArguments(f"{label} in equation {text!r} is {size}, but should be {known} or 1")
            sizes[label] = size if known == 1 else known
    return sizes


def _implicit(operands: Sequence[Labels]) -> Labels:
    counts = Counter(label for labels in operands for label in labels)
    hidden = sorted((label for label in counts if label.startswith(".")), key=lambda label: -int(label[1:]))
    return (*hidden, *sorted(label for label, count in counts.items() if count == 1 and not label.startswith(".")))
