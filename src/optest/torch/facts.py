"""What is known of one function of torch, whichever name it is called by.

A record holds facts alone. How a fact is used stands in the check that uses it; which function has which facts stands
in :mod:`optest.torch.fact_sheet`. Neither needs torch.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, NamedTuple

from optest.spec import RuleClass


@dataclass(frozen=True, slots=True, kw_only=True)
class FactorKind:
    """Factors of a matrix that are unique up to sign, phase or order alone.

    ``family`` says what the factors are, ``outputs`` how many there are, ``threshold`` is that of LAPACK's tests.
    ``yields_v`` is True where the last factor of a singular value decomposition is V, not its adjoint.
    """

    family: str
    outputs: int
    threshold: float
    formula: str
    yields_v: bool = False


class ChangedInputs(NamedTuple):
    """Inputs that a call changes where it is asked to."""

    asks: str
    """The argument that asks; "" where the inputs are always changed."""

    default: bool | None
    """What that argument is where it is left out."""

    inputs: tuple[str, ...]

    @property
    def are_statistics(self) -> bool:
        """Whether they are running statistics, of which torch takes no gradient."""
        return "running_mean" in self.inputs


class Collisions(NamedTuple):
    """How a call says where it writes; several of its values may go to one place."""

    way: Literal["subscript", "dimensions", "slices", "elements"]
    arguments: tuple[str, ...]
    """Names of the positional arguments."""


class ArgumentPlace(NamedTuple):
    """An argument by its position and by its name."""

    position: int
    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """Of a function that nothing is known of, every fact has its default."""

    # Which rule judges the results.

    rule: RuleClass | None = None
    """MOVEMENT of what only moves elements; EXACT of what converts them, or makes tensors of one number; ACCUMULATE of
    what adds up products of its operands. None: the rule of the operator of the catalogue, else torch.testing's."""

    factors: FactorKind | None = None
    ceiling_holds_for_complex: bool = False
    """Whether the catalogue's ceiling is that of complex numbers, too."""

    is_comparison: bool = False
    """It only compares: a number beside tensors has their dtype there, and float64 has other ties."""

    # What the reference needs to know.

    terms: Literal["", "product", "product added", "convolution", "product of groups"] = ""
    """What an element of the result adds up, where shapes say how many terms that are."""

    operands_in_blocks: int = 0
    """The most operands with which a large product may be made block by block."""

    scalars: Literal["", "float32", "operands"] = ""
    """A Python number beside 16 bits is rounded to float32; by torch's CPU kernels, to the dtype of the operands."""

    may_multiply_by_reciprocal: bool = False
    """A number divided by a tensor of 16 bits may be the product with its rounded reciprocal."""

    # What roundings do to it, one step of a call among others.

    has_exact_result: bool = False
    """Its results are elements of its operands, or need no rounding."""

    is_sum_of_products: bool = False
    is_backward_stable: bool = False
    """Its errors follow the largest element of a matrix, as those of LAPACK do (Users' Guide, 3rd edition, 4.1.1)."""

    rounds_at_every_step: bool = False
    """It is a recurrence over its first dimension, and rounds once a step."""

    gradients_of: str = ""
    """The operator whose gradients it makes, where that operator alone is taken apart."""

    # What it does to memory.

    is_view: bool = False
    """Torch promises a view wherever it is one on the CPU; ``reshape`` and ``contiguous`` may copy."""

    makes_contiguous: bool = False
    is_unwritten: bool = False
    """It returns memory that nobody has written."""

    changed: ChangedInputs | None = None
    sets_one_value: Literal["", "always", "of a number"] = ""
    """Every element that it changes gets one value, so the order does not matter."""

    collisions: Collisions | None = None

    # What its arguments are.

    positions: Literal[
        "", "rows", "rows stated", "along", "along from either end", "along or all", "all elements",
        "classes", "classes of a gradient", "classes stated", "plane of the result", "plane of the input",
        "subscript", "dimensions",
    ] = ""  # fmt: skip
    """Where tensors of positions stand, and what they are positions in."""

    literal_positions: Literal["", "subscript", "index"] = ""
    mask: Literal["", "argument", "subscript"] = ""
    """Where a mask stands that chooses elements."""

    mask_must_fit: bool = False
    """The number of true elements of a mask has to fit another shape."""

    attention_mask: ArgumentPlace | None = None
    """A mask that hides keys: one that is drawn may hide every key from a query."""

    ascending: ArgumentPlace | None = None
    """Its elements have to ascend, so that there is one place for a value."""

    takes_counts: bool = False
    """Integers have to add up to a size that is stated."""

    takes_structured_matrix: bool = False
    """A matrix has to be positive definite, or a factor of another one: a drawn one overflows."""

    is_given_strides: bool = False

    # How large its results are.

    size: Literal["", "given", "product", "rows", "attention"] = ""
    """``given``: each output is made of elements of the tensors that the call is given, each of them once."""

    bins_follow_values: bool = False
    """Bins are made around the values, unless the call states a range or edges."""

    # Whether it can be a case.

    no_operator: str = ""
    """Why it is no operator, as the end of "NAME …"."""

    no_case: str = ""
    """Why a call that a model makes is no case, as the end of "left out: …"."""

    no_sample: str = ""
    """Why no sample of torch's own is asked."""

    no_refusal: str = ""
    """Why no refusal of torch's own samples is asked for."""

    commutes: bool = False
    """Its operands may change their places, so that a tensor can stand first."""

    is_captured_as_function: bool = False
    """Python's operators call the method; torch has a function that takes the same arguments."""

    # What torch's own samples are allowed.

    is_normwise: bool = False
    """Errors follow the largest element of a result: of a factorisation, or where float32 coordinates weigh inputs."""

    is_power: bool = False
    """The error of complex results grows with |y·log x|."""
