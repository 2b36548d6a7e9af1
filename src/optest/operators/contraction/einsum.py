"""The operator einsum, and its equations."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

from optest.operators.calls import call
from optest.operators.contraction.helpers import beyond_16_bits, special_operands, zeros_times_special
from optest.operators.describe import NUMBERS, accumulate, attribute, in_module
from optest.operators.samples import error_samples, integer_exact, standard_samples, variations, zero_mean
from optest.operators.shapes import Attributes, Outputs, Shape, Specs, dense, require_same_dtype, require_spec
from optest.spec import OperatorDescriptor, Sample, UnfitArguments, format_shape

DESCRIPTORS = in_module(
    __name__,
    OperatorDescriptor(
        name="einsum",
        signature="*operands -> out",
        aliases=("Einsum: *Inputs -> Output",),
        attributes=(
            attribute("equation: str", "Labels of the operands, '->' and labels of the output, as in torch.einsum."),
        ),
        dtype_variants=NUMBERS,
        sum_length="einsum_length",
        operations="einsum_operations",
        rule=accumulate("terms are the products of one element of each operand; + 1 for each operand beyond two"),
        description="Sums of products over the labels that the output does not have; repeated labels are diagonals. "
        "16-bit results are computed in float32 and rounded once, in every order of contraction.",
    ),
    twin="contraction_reference",
)


def infer_einsum(specs: Specs, attributes: Attributes) -> Outputs:
    """Return an output of the operands' dtype and of the shape of the equation's output."""
    equation = equation_of(specs, attributes)
    return (dense(require_spec(specs, 0, "operands0").dtype, equation.shape),)


def equation_of(specs: Specs, attributes: Attributes) -> Equation:
    """Return the equation of a call; raise UnfitArguments if the operands do not fit it or differ in dtype."""
    first = require_spec(specs, 0, "operands0")
    shapes = []
    for index in range(len(specs)):
        spec = require_spec(specs, index, f"operands{index}")
        require_same_dtype(first, spec, f"operands{index}")
        shapes.append(spec.shape)
    return read_equation(attributes["equation"], shapes)


def einsum_length(specs: Specs, attributes: Attributes) -> int:
    """Return the number of products in an output element of einsum."""
    return equation_of(specs, attributes).length


def einsum_operations(specs: Specs, attributes: Attributes) -> int | None:
    """Return the multiplications and additions of einsum with two operands; None for any other number of operands."""
    if len(specs) != 2:
        # The number depends on the order of contraction.
        return None
    equation = equation_of(specs, attributes)
    return 2 * prod(equation.shape) * equation.length


def einsum_samples() -> Iterator[Sample]:
    def einsum_call(equation: str, *shapes: tuple[int, ...]) -> dict[str, Any]:
        operands: dict[str, Any] = {f"operands{index}": shape for index, shape in enumerate(shapes)}
        return call({"equation": equation}, **operands)

    calls = [
        einsum_call("ij,jk->ik", (5, 7), (7, 3)),
        einsum_call("bhid,bhjd->bhij", (2, 3, 5, 17), (2, 3, 4, 17)),
        einsum_call("bij,bjk->bik", (2, 9, 33), (2, 33, 16)),
    ]
    yield from standard_samples(
        calls,
        NUMBERS,
        sized=lambda n: einsum_call("ij,kj->ik", (3, n), (5, n)),
        sizes=(0, 1, 15, 16, 17, 129, 1025),
        special=False,
    )
    yield from special_operands(calls[:2], "operands0", "operands1")
    yield from zeros_times_special(calls[0], "operands0", "operands1")
    yield from variations("sizes", [einsum_call("ij,jk->ik", (3, 9), (9, 1025))], dtypes=("float32", "float16"))
    yield from beyond_16_bits(
        einsum_call("bij,bkj->bik", (70, 31, 5), (70, 33, 5)), einsum_call("ij,jk->ik", (65_537, 2), (2, 3))
    )
    equations = [
        einsum_call("ij,jk", (5, 7), (7, 3)),
        einsum_call("ji,jk->ki", (7, 5), (7, 3)),
        einsum_call("ij->ji", (5, 7)),
        einsum_call("ij->", (5, 7)),
        einsum_call("ij->j", (5, 7)),
        einsum_call("ii->i", (6, 6)),
        einsum_call("ii", (6, 6)),
        einsum_call("iji->j", (4, 3, 4)),
        einsum_call("i,j->ij", (5,), (7,)),
        einsum_call("i,i->", (33,), (33,)),
        einsum_call("i,i->i", (5,), (5,)),
        einsum_call("ij,ij->ij", (5, 7), (5, 7)),
        einsum_call("...ij,...jk->...ik", (2, 1, 5, 7), (3, 7, 4)),
        einsum_call("b...d,d...->b...", (2, 3, 4, 5), (5, 3, 4)),
        einsum_call("...i->...", (2, 3, 4)),
        einsum_call("ba,ca", (3, 4), (5, 4)),
        einsum_call("Ab,bc", (3, 4), (4, 5)),
        einsum_call("ij , jk -> ik", (5, 1), (7, 3)),
        einsum_call("abcd,cdef->abef", (2, 3, 4, 5), (4, 5, 3, 2)),
        einsum_call(",->", (), ()),
        einsum_call("nlhd,nshd->nhls", (2, 5, 3, 8), (2, 4, 3, 8)),
        einsum_call("cb,ba", (3, 4), (4, 5)),  # implicit output labels are sorted: "ac"
        einsum_call("iij->ij", (3, 3, 3)),
        einsum_call("...ij,...jk->...ik", (3, 4), (2, 4, 5)),
    ]
    yield from variations("equations", equations, dtypes=("float32", "int32"))
    # A label of one operand only. Not in 16 bits: torch sums that operand first and rounds the sum to 16 bits.
    summed_first = [einsum_call("ij,jk->k", (5, 7), (7, 3)), einsum_call("ij,kj->i", (5, 7), (3, 7))]
    yield from variations("equations", summed_first, dtypes=("float32", "float64"))
    several = [
        einsum_call("ij,jk,kl->il", (3, 5), (5, 7), (7, 4)),
        einsum_call("i,ij,j->", (5,), (5, 7), (7,)),
        einsum_call("ij,ik,il->jkl", (9, 2), (9, 3), (9, 4)),
    ]
    yield from variations("equations", several, dtypes=("float32", "float64", "int32"))
    # In 16 bits: ones, whose sums are exact between two contractions, too; and equations of one operand.
    ones = [{**base_call, "generator": "ones"} for base_call in several]
    single = [base_call for base_call in equations if len(base_call["shapes"]) == 1]
    yield from variations("equations", [*ones, *single], dtypes=("float16", "bfloat16"))
    yield from integer_exact(several, dtypes=("float32",))
    yield from integer_exact([*calls, einsum_call("ij,kj->ik", (9, 1025), (5, 1025))])
    yield from zero_mean([einsum_call("bij,bjk->bik", (2, 16, 257), (2, 257, 17))])
    yield from error_samples(
        einsum_call("ij,jk->ik", (3, 4), (5, 6)),
        einsum_call("ij,jk->iz", (3, 4), (4, 5)),
        einsum_call("ijk,jk->i", (3, 4), (4, 5)),
        einsum_call("ii->i", (3, 4)),
        einsum_call("ij->ii", (3, 4)),
    )


Labels = tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Equation:
    """Labels of each operand and of the output, and the size of each label.

    The dimensions of an ellipsis have the labels ``.1``, ``.2`` …, counted from the last one. An operand of size 1
    along a label with another size is broadcast.
    """

    operands: tuple[Labels, ...]
    output: Labels
    sizes: Mapping[str, int]

    @property
    def shape(self) -> Shape:
        """Shape of the output."""
        return tuple(self.sizes[label] for label in self.output)

    @property
    def length(self) -> int:
        """Number of products in each output element."""
        return prod(size for label, size in self.sizes.items() if label not in self.output)


def read_equation(text: str, shapes: Sequence[Shape]) -> Equation:
    """Parse an equation such as ``"bij,bjk->bik"``, with or without an output, as torch.einsum does.

    Spaces do not count. If the operands have an ellipsis and the output has none, its dimensions are summed. Without
    ``->`` the output has the ellipsis first, then the labels that occur once, capitals before small letters.

    Raises:
        UnfitArguments: for text that is no equation, or shapes that do not fit it.
    """
    left, arrow, right = text.replace(" ", "").partition("->")
    terms = left.split(",")
    if len(terms) != len(shapes):
        raise UnfitArguments(f"equation {text!r} has {len(terms)} operands, expected {len(shapes)}")
    operands = tuple(_labels(term, text, len(shape)) for term, shape in zip(terms, shapes, strict=True))
    sizes = _sizes_of_labels(text, operands, shapes)
    if arrow:
        hidden = sum(label.startswith(".") for label in sizes) if "..." in right else 0
        output = _labels(right, text, hidden + len(right.replace("...", "")))
    else:
        counts = Counter(label for labels in operands for label in labels)
        ellipsis = sorted((label for label in counts if label.startswith(".")), key=lambda label: -int(label[1:]))
        once = sorted(label for label, count in counts.items() if count == 1 and not label.startswith("."))
        output = (*ellipsis, *once)
    if len(set(output)) < len(output) or any(label not in sizes for label in output):
        raise UnfitArguments(
            f"the output of equation {text!r} has the labels {', '.join(output)}, expected each once, and in an operand"
        )
    return Equation(operands=operands, output=output, sizes=sizes)


def _sizes_of_labels(text: str, operands: Sequence[Labels], shapes: Sequence[Shape]) -> dict[str, int]:
    """Return the size of each label; raise UnfitArguments if it has several, except 1, which broadcasts."""
    sizes: dict[str, int] = {}
    for labels, shape in zip(operands, shapes, strict=True):
        # Within one operand a label is a diagonal, which does not broadcast.
        in_operand: dict[str, int] = {}
        for label, size in zip(labels, shape, strict=True):
            if in_operand.setdefault(label, size) != size:
                raise UnfitArguments(
                    f"{label} in equation {text!r} is {in_operand[label]} and {size} in one operand "
                    f"{format_shape(shape)}, expected one size"
                )
        for label, size in in_operand.items():
            known = sizes.get(label, 1)
            if known != size and 1 not in (known, size):
                raise UnfitArguments(f"{label} in equation {text!r} is {size}, expected {known} or 1")
            sizes[label] = size if known == 1 else known
    return sizes


def _labels(term: str, text: str, rank: int) -> Labels:
    """Return the label of each of ``rank`` dimensions of a term; raise UnfitArguments if it has other labels."""
    before, dots, after = term.partition("...")
    if not all(label.isascii() and label.isalpha() for label in before + after):
        raise UnfitArguments(f"equation is {text!r}, expected only letters, ',', '->' and '...'")
    hidden = rank - len(before) - len(after)
    if hidden < 0 or (hidden and not dots):
        raise UnfitArguments(
            f"{term!r} in equation {text!r} has {len(before) + len(after)} labels, "
            f"expected {rank}, one for each dimension of its operand"
        )
    return (*before, *(f".{index}" for index in range(hidden, 0, -1)), *after)
