"""einsum."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

from optest.operators.calls import call
from optest.operators.contraction.helpers import beyond_16_bits, special_operands, zeros_times_special
from optest.operators.describe import NUMBERS, accumulate, attribute, in_module
from optest.operators.samples import integer_exact, refused, standard, variations, zero_mean
from optest.operators.shapes import Attributes, Outputs, Shape, Specs, dense, given, require_same_dtype
from optest.spec import OperatorDescriptor, Sample, UnfitArguments, format_shape

DESCRIPTORS = in_module(
    __name__,
    OperatorDescriptor(
        name="einsum",
        signature="*operands -> out",
        aliases=("Einsum: *Inputs -> Output",),
        attributes=(
            attribute(
                "equation: str", "Labels of the operands, '->' and those of the output, as torch.einsum reads them."
            ),
        ),
        dtype_variants=NUMBERS,
        sum_length="einsum_length",
        operations="einsum_operations",
        rule=accumulate("terms are the products of one element of each operand; + 1 for each operand beyond two"),
        description="Sums of products over the labels that the output does not have; repeated labels are diagonals. "
        "Whatever the order of contraction, 16-bit results are computed in float32 and rounded once.",
    ),
    twin="contraction_reference",
)


def infer_einsum(specs: Specs, attributes: Attributes) -> Outputs:
    equation = equation_of(specs, attributes)
    return (dense(given(specs, 0, "operands0").dtype, equation.shape),)


def equation_of(specs: Specs, attributes: Attributes) -> Equation:
    first = given(specs, 0, "operands0")
    shapes = []
    for index in range(len(specs)):
        spec = given(specs, index, f"operands{index}")
        require_same_dtype(first, spec, f"operands{index}")
        shapes.append(spec.shape)
    return read_equation(attributes["equation"], shapes)


def einsum_length(specs: Specs, attributes: Attributes) -> int:
    return equation_of(specs, attributes).length


def einsum_operations(specs: Specs, attributes: Attributes) -> int | None:
    """For two operands; with more of them the number depends on the order of contraction, so none is declared."""
    if len(specs) != 2:
        return None
    equation = equation_of(specs, attributes)
    return 2 * prod(equation.shape) * equation.length


def einsum_samples() -> Iterator[Sample]:
    def ask(equation: str, *shapes: tuple[int, ...], **more: Any) -> dict[str, Any]:
        operands: dict[str, Any] = {f"operands{index}": shape for index, shape in enumerate(shapes)}
        return call({"equation": equation}, **operands, **more)

    calls = [
        ask("ij,jk->ik", (5, 7), (7, 3)),
        ask("bhid,bhjd->bhij", (2, 3, 5, 17), (2, 3, 4, 17)),
        ask("bij,bjk->bik", (2, 9, 33), (2, 33, 16)),
    ]
    yield from standard(
        calls,
        NUMBERS,
        sized=lambda n: ask("ij,kj->ik", (3, n), (5, n)),
        sizes=(0, 1, 15, 16, 17, 129, 1025),
        special=False,
    )
    yield from special_operands(calls[:2], "operands0", "operands1")
    yield from zeros_times_special(calls[0], "operands0", "operands1")
    yield from variations("sizes", [ask("ij,jk->ik", (3, 9), (9, 1025))], dtypes=("float32", "float16"))
    yield from beyond_16_bits(ask("bij,bkj->bik", (70, 31, 5), (70, 33, 5)), ask("ij,jk->ik", (65_537, 2), (2, 3)))
    equations = [
        ask("ij,jk", (5, 7), (7, 3)),
        ask("ji,jk->ki", (7, 5), (7, 3)),
        ask("ij->ji", (5, 7)),
        ask("ij->", (5, 7)),
        ask("ij->j", (5, 7)),
        ask("ii->i", (6, 6)),
        ask("ii", (6, 6)),
        ask("iji->j", (4, 3, 4)),
        ask("i,j->ij", (5,), (7,)),
        ask("i,i->", (33,), (33,)),
        ask("i,i->i", (5,), (5,)),
        ask("ij,ij->ij", (5, 7), (5, 7)),
        ask("...ij,...jk->...ik", (2, 1, 5, 7), (3, 7, 4)),
        ask("b...d,d...->b...", (2, 3, 4, 5), (5, 3, 4)),
        ask("...i->...", (2, 3, 4)),
        ask("ba,ca", (3, 4), (5, 4)),
        ask("Ab,bc", (3, 4), (4, 5)),
        ask("ij , jk -> ik", (5, 1), (7, 3)),
        ask("abcd,cdef->abef", (2, 3, 4, 5), (4, 5, 3, 2)),
        ask(",->", (), ()),
        ask("nlhd,nshd->nhls", (2, 5, 3, 8), (2, 4, 3, 8)),
        ask("cb,ba", (3, 4), (4, 5)),  # the labels of the result are in order
        ask("iij->ij", (3, 3, 3)),
        ask("...ij,...jk->...ik", (3, 4), (2, 4, 5)),
    ]
    yield from variations("equations", equations, dtypes=("float32", "int32"))
    alone = [ask("ij,jk->k", (5, 7), (7, 3)), ask("ij,kj->i", (5, 7), (3, 7))]  # torch sums one first, in 16 bits too
    yield from variations("equations", alone, dtypes=("float32", "float64"))
    several = [
        ask("ij,jk,kl->il", (3, 5), (5, 7), (7, 4)),
        ask("i,ij,j->", (5,), (5, 7), (7,)),
        ask("ij,ik,il->jkl", (9, 2), (9, 3), (9, 4)),
    ]
    yield from variations("equations", several, dtypes=("float32", "float64", "int32"))
    # Whole numbers, which 16 bits hold between two contractions too; and equations of one operand.
    counted = [{**each, "generator": "ones"} for each in several]
    alone = [each for each in equations if len(each["shapes"]) == 1]
    yield from variations("equations", [*counted, *alone], dtypes=("float16", "bfloat16"))
    yield from integer_exact(several, dtypes=("float32",))
    yield from integer_exact([*calls, ask("ij,kj->ik", (9, 1025), (5, 1025))])
    yield from zero_mean([ask("bij,bjk->bik", (2, 16, 257), (2, 257, 17))])
    yield from refused(
        ask("ij,jk->ik", (3, 4), (5, 6)),
        ask("ij,jk->iz", (3, 4), (4, 5)),
        ask("ijk,jk->i", (3, 4), (4, 5)),
        ask("ii->i", (3, 4)),
        ask("ij->ii", (3, 4)),
    )


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
    if arrow:
        hidden = sum(label.startswith(".") for label in sizes) if "..." in right else 0
        output = _labels(right, text, hidden + len(right.replace("...", "")))
    else:
        counts = Counter(label for labels in operands for label in labels)
        ellipsis = sorted((label for label in counts if label.startswith(".")), key=lambda label: -int(label[1:]))
        once = sorted(label for label, count in counts.items() if count == 1 and not label.startswith("."))
        output = (*ellipsis, *once)
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
