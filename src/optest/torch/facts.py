"""Types of the facts about one torch function; :mod:`optest.torch.fact_sheet` has the facts. Neither imports torch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, NamedTuple

from optest.spec import RuleClass


@dataclass(frozen=True, slots=True, kw_only=True)
class FactorKind:
    """Factors of a matrix that are unique only up to sign, phase or order.

    ``family`` names the factorisation, ``outputs`` is the number of factors, ``threshold`` that of LAPACK's tests.
    """

    family: str
    outputs: int
    threshold: float
    formula: str
    # The last factor of a singular value decomposition is V, not its adjoint.
    yields_v: bool = False


class ChangedInputs(NamedTuple):
    """Inputs that a call changes in place if the argument ``asks`` is set, always if that is ""."""

    argument: str
    default: bool | None
    inputs: tuple[str, ...]

    @property
    def are_statistics(self) -> bool:
        """True for running statistics, for which torch computes no gradient."""
        return "running_mean" in self.inputs


class Collisions(NamedTuple):
    """How the positional arguments of a call select the elements that it writes; an element may be written twice."""

    way: Literal["subscript", "dimensions", "slices", "elements"]
    arguments: tuple[str, ...]


class ArgumentPosition(NamedTuple):
    """Position and name of an argument."""

    position: int
    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """Facts about one torch function; a function without a record has the defaults."""

    # Rule of comparison: MOVEMENT if the function only moves elements, EXACT if it converts them or fills a tensor with
    # one number, ACCUMULATE if it adds up products of its operands. None: the rule of the catalogue's operator, else
    # that of torch.testing.
    rule: RuleClass | None = None
    factors: FactorKind | None = None
    # The catalogue's error ceiling for real numbers holds for complex ones, too.
    ceiling_holds_for_complex: bool = False
    # Comparisons round a Python number to the dtype of the tensors, and values that tie may differ in float64.
    is_comparison: bool = False

    # Terms that an element of the result sums, if their number follows from the shapes.
    terms: Literal["", "product", "product added", "convolution", "product of groups"] = ""
    # Maximum number of operands with which a large product may be computed block by block.
    operands_in_blocks: int = 0
    # Dtype to which a Python number is rounded next to 16-bit operands; "operands": by torch's CPU kernels, to theirs.
    scalars: Literal["", "float32", "operands"] = ""
    # A number divided by a 16-bit tensor may be the product with its rounded reciprocal.
    may_multiply_by_reciprocal: bool = False

    # Results are elements of the operands, or need no rounding.
    has_exact_result: bool = False
    is_sum_of_products: bool = False
    # Errors follow the largest element of a matrix, as those of LAPACK do (Users' Guide, 3rd edition, 4.1.1).
    is_backward_stable: bool = False
    # A recurrence over the first dimension, which rounds once per step.
    rounds_at_every_step: bool = False
    # Operator whose gradients the function computes, if only that operator has a decomposition.
    gradients_of: str = ""

    # torch promises a view whenever the result is one on the CPU; ``reshape`` and ``contiguous`` may copy.
    is_view: bool = False
    makes_contiguous: bool = False
    # The result is uninitialised memory.
    is_unwritten: bool = False
    changed: ChangedInputs | None = None
    # All elements that the function changes get one value, so the order of writes does not matter.
    sets_one_value: Literal["", "always", "of a number"] = ""
    collisions: Collisions | None = None

    # The arguments that hold indices, and the dimension that they index.
    positions: Literal[
        "", "rows", "rows stated", "along", "along from either end", "along or all", "all elements",
        "classes", "classes of a gradient", "classes stated", "plane of the result", "plane of the input",
        "subscript", "dimensions",
    ] = ""  # fmt: skip
    literal_positions: Literal["", "subscript", "index"] = ""
    # The argument that holds a boolean mask of selected elements.
    mask: Literal["", "argument", "subscript"] = ""
    # The number of true elements of the mask must fit another shape.
    mask_must_fit: bool = False
    # A mask that hides keys: a random one may hide every key from a query.
    attention_mask: ArgumentPosition | None = None
    # Elements must ascend, so that each value has one position.
    ascending: ArgumentPosition | None = None
    # Integers must add up to a size that the call specifies.
    takes_counts: bool = False
    # The matrix must be positive definite, or a factor of another one: a random one overflows.
    takes_structured_matrix: bool = False
    is_given_strides: bool = False

    # Size of the results. ``given``: each output consists of elements of the input tensors, each of them once.
    size: Literal["", "given", "product", "rows", "attention"] = ""
    # Bins are computed from the values, unless the call specifies a range or edges.
    bins_follow_values: bool = False

    # The function is no operator; the end of the sentence "NAME …".
    no_operator: str = ""
    # A call in a model is no case; the end of the sentence "left out, as they …".
    no_case: str = ""
    # OpInfo's samples, or its samples of errors, are no cases.
    no_sample: str = ""
    no_refusal: str = ""

    # Operands may be exchanged, so that a tensor can be the first one.
    commutes: bool = False
    # Python's operators call the method; torch has a function with the same arguments.
    is_captured_as_function: bool = False

    # Errors follow the largest element of a result: of a factorisation, or of inputs weighted by float32 coordinates.
    is_normwise: bool = False
    # The error of complex results grows with |y·log x|.
    is_power: bool = False
