"""A call of torch differentiated: what its gradients are, what they should be, and which rule judges each of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from math import prod, sqrt
from typing import Any

import numpy as np
import torch

from optest.core.rounded_calls import mixed_words
from optest.numerics import dtype_of
from optest.spec import DType, ErrorBudget, Fault, NamedOutput, Reason, ReferenceNote, Rule, RuleClass, Terms, Unrounded
from optest.spec.calls import call_text
from optest.torch.calls.call import CPU, TorchCall, with_alpha_beta_to_power, with_rounded_scalars
from optest.torch.calls.descriptors import CLOSE, descriptor_of
from optest.torch.calls.refusals import NO_KERNEL, first_line
from optest.torch.tensors import WIDE, as_array, is_inexact, on_cpu, widened

Make = Callable[..., list[Any]]
Draw = Callable[[int, torch.Tensor], torch.Tensor]
"""The gradient from above of the output of this number, like that output."""


@dataclass(frozen=True, slots=True)
class Differentiated:
    """What a call yields, and by input number the gradient; None where no output depends on the input."""

    leaves: list[Any]
    gradients: dict[int, torch.Tensor | None]

    def has_gradient(self) -> list[bool]:
        return [each is not None for each in self.gradients.values()]

    def outputs(self, tensors: Sequence[torch.Tensor], device: torch.device = CPU) -> list[Any]:
        """What the call yields, which inputs have a gradient, and the gradients."""
        exists = torch.tensor(self.has_gradient(), dtype=torch.bool, device=device)
        return [*self.leaves, exists, *self.dense(tensors)]

    def dense(self, tensors: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        """Every gradient, zeros where there is none, so that each has its place."""
        return [
            torch.zeros_like(tensors[index]) if each is None else _with_memory(each)
            for index, each in self.gradients.items()
        ]


def _with_memory(gradient: torch.Tensor) -> torch.Tensor:
    """A gradient whose elements can be read: torch's own zeros, as of ``sgn``, have none."""
    if gradient.is_sparse:
        return gradient.to_dense()
    return gradient.clone() if gradient._is_zerotensor() else gradient


def differentiated(call: TorchCall, make: Make, tensors: Sequence[torch.Tensor], upstream: Draw) -> Differentiated:
    """Make the call on the tensors and go back from all its floating outputs; ``make`` may be compiled.

    Where no output depends on a floating input in a way that torch differentiates, there is no gradient of any.

    ``make`` has to copy what the call changes (:meth:`TorchCall.changeable`), since torch changes no leaf in place; in
    a model, too, it is an intermediate result that is changed.
    """
    floating = [index for index in sorted(set(call.call.tensors())) if is_inexact(tensors[index])]
    given = [each.detach() for each in tensors]
    differentiable = [index for index in floating if index not in call.constant]
    for index in differentiable:
        given[index].requires_grad_()
    with torch.enable_grad():
        leaves = make(*given)
        sources = [
            (number, leaf)
            for number, leaf in enumerate(leaves)
            if isinstance(leaf, torch.Tensor) and leaf.requires_grad and is_inexact(leaf)
        ]
        found = (
            ()
            if not sources
            else torch.autograd.grad(
                [leaf for _, leaf in sources],
                [given[index] for index in differentiable],
                [upstream(number, leaf.detach()) for number, leaf in sources],
                allow_unused=True,
            )
        )
    plain = [leaf.detach() if isinstance(leaf, torch.Tensor) else leaf for leaf in leaves]
    gradients: dict[int, torch.Tensor | None] = dict.fromkeys(floating)
    gradients.update(zip(differentiable, found, strict=bool(sources)))
    return Differentiated(plain, gradients)


# The gradients that a case's outputs get from above: numbers that follow from the call and its inputs alone.
#
# The reference and the device under test have to get the same ones without asking each other. Every number has few
# digits, so that it is the same one in each dtype that a gradient may have.

_WORD = np.uint64

_SHOWN_BYTES = 256
_SIXTY_FOURTHS = 64.0


@dataclass(frozen=True, slots=True)
class Upstream:
    """Gradients by the number of an output: whole numbers from 1 to 8, or 64ths from 1/4 to 2, of either sign."""

    key: bytes
    is_whole: bool

    def __call__(self, number: int, output: torch.Tensor) -> torch.Tensor:
        """The gradient of output ``number``, on its device and in its dtype."""
        parts = [self._reals(number, part, output.shape) for part in range(1 + output.is_complex())]
        values = torch.complex(*parts) if output.is_complex() else parts[0]
        return values.to(device=output.device, dtype=output.dtype)

    def _reals(self, number: int, part: int, shape: Sequence[int]) -> torch.Tensor:
        seed = int.from_bytes(blake2b(b"%s/%d/%d" % (self.key, number, part), digest_size=8).digest(), "little")
        words = mixed_words(seed, prod(shape))
        sign = np.where(words >> _WORD(63), 1.0, -1.0)
        if self.is_whole:
            size = 1.0 + (words & _WORD(7)).astype(np.float64)
        else:
            size = (16.0 + (words % _WORD(113)).astype(np.float64)) / _SIXTY_FOURTHS
        return torch.from_numpy((sign * size).reshape(tuple(shape)))


def upstream_of(text: str, inputs: Sequence[Any], *, is_whole: bool) -> Upstream:
    """The gradients for one call on inputs that have not been changed yet."""
    digest = blake2b(text.encode(), digest_size=16)
    for array in inputs:
        digest.update(f"{array.dtype}{array.shape}".encode())
        some = np.ascontiguousarray(array[tuple(slice(0, 2) for _ in array.shape)])
        digest.update(some.tobytes()[:_SHOWN_BYTES])
    return Upstream(digest.digest(), is_whole)


# What the gradients of a call should be, and which rule judges each of them.
#
# A gradient is linear in what comes from above. Of a contraction it is a contraction, of moved elements a sum of what
# comes from above; there the rule of sums holds, with terms that the gradient itself yields for magnitudes. Of any
# other function nobody knows the sums within.


_MOVED = (RuleClass.MOVEMENT, RuleClass.EXACT)
_EXACT = Rule(kind=RuleClass.EXACT)
_SUM = Rule(kind=RuleClass.ACCUMULATE, stands=True)
_LONG_SUM = Rule(
    kind=RuleClass.COMPOSED,
    stands=True,
    formula="4·√k·Σ|t| units of the gradient's own dtype, in which it may be added up",
)


def upstream_gradients(call: TorchCall, inputs: Sequence[Any]) -> Draw:
    """What every output gets from above: whole numbers where elements only move, so that their sums are exact."""
    return upstream_of(call_text(call.call), inputs, is_whole=_kind(call) in _MOVED)


def _kind(call: TorchCall) -> RuleClass | None:
    rule = descriptor_of(call.call.function).rule
    return None if rule is None else rule.kind


def expected_gradients(call: TorchCall, inputs: Sequence[Any], *, in_own_dtype: bool) -> list[Any]:
    """Which inputs have a gradient, and the gradient of every floating input, each with its rule.

    In float64, or where torch cannot, in the dtype of the case, which a note says.

    Raises:
        Fault: UNSUPPORTED if torch cannot differentiate the call.
    """
    if not has_floating_input(call, inputs):
        raise Fault(Reason.UNSUPPORTED, f"{call.call.function} is given nothing that it could be differentiated by")
    draw = upstream_gradients(call, inputs)
    notes: list[Any] = []
    if in_own_dtype:
        found = _in_own_dtype(call, inputs, draw)
    else:
        try:
            found = in_float64(with_rounded_scalars(call, inputs), widened(inputs), draw)
        except NO_KERNEL as error:
            found = _in_own_dtype(call, inputs, draw)
            in_own_dtype = True
            why = first_line(error)
            notes.append(ReferenceNote(f"gradients on the CPU in the case's own dtype, not in float64: {why}"))
    dtypes = [dtype_of(inputs[index].dtype) for index in found.gradients]
    judged = [(CLOSE, None)] * len(dtypes) if notes else _judged(call, inputs, found, draw, dtypes)
    if not any(found.has_gradient()):
        notes.append(ReferenceNote(f"{call.call.function} gives no gradient: none of its outputs depends on an input"))
    arrays = [as_array(each) for each in found.dense(on_cpu(inputs) if in_own_dtype else widened(inputs))]
    return [
        NamedOutput("grad.exists", np.array(found.has_gradient(), dtype=bool), rule=_EXACT),
        *(
            NamedOutput(f"grad.input{index}", Unrounded(array, kind), rule=rule, terms=terms)
            for index, array, kind, (rule, terms) in zip(found.gradients, arrays, dtypes, judged, strict=True)
        ),
        *notes,
    ]


def has_floating_input(call: TorchCall, inputs: Sequence[Any]) -> bool:
    """Whether there is an input that could have a gradient: ``linspace(0, 1, 5)`` has none."""
    return any(dtype_of(inputs[index].dtype).is_inexact for index in call.call.tensors())


def can_be_differentiated(call: TorchCall, inputs: Sequence[Any]) -> bool:
    """Whether torch on the CPU differentiates the call, in float64 or as it is."""
    try:
        expected_gradients(call, inputs, in_own_dtype=False)
    except Fault:
        return False
    return True


def in_float64(call: TorchCall, tensors: Sequence[torch.Tensor], draw: Draw) -> Differentiated:
    """The call differentiated on tensors that are wide already."""
    return differentiated(call, call.on_copies(dtypes=WIDE), tensors, draw)


def _in_own_dtype(call: TorchCall, inputs: Sequence[Any], draw: Draw) -> Differentiated:
    try:
        return differentiated(call, call.on_copies(), on_cpu(inputs), draw)
    except NO_KERNEL as error:
        message = f"torch on the CPU cannot differentiate {call.call.function}: {first_line(error)}"
        raise Fault(Reason.UNSUPPORTED, message) from error


_Judged = list[tuple[Rule, Any]]


def _judged(
    call: TorchCall, inputs: Sequence[Any], found: Differentiated, draw: Draw, dtypes: Sequence[DType]
) -> _Judged:
    """The rule of each gradient, with its terms."""
    kind = _kind(call)
    if not any(found.has_gradient()):
        return [(_EXACT, None)] * len(dtypes)
    if kind is RuleClass.ACCUMULATE:
        return [(_SUM, each) for each in _terms(call, inputs, found, draw, of_magnitudes=True)]
    if kind in _MOVED:
        sums = _terms(call, inputs, found, draw, of_magnitudes=False)
        # What comes from above is only passed on and added up, then: a factor would show.
        if all((each.absolute == np.floor(each.absolute)).all() for each in sums):
            return [_of_moved(each, dtype) for each, dtype in zip(sums, dtypes, strict=True)]
    return [(CLOSE, None)] * len(dtypes)


def _of_moved(terms: Terms, dtype: DType) -> tuple[Rule, Any]:
    """Whole numbers have one sum, in whatever order and precision they are added, as long as the dtype holds it."""
    if np.max(terms.absolute, initial=0.0) <= 2.0**dtype.precision:
        return _EXACT, None
    # The bound of the accumulate rule, 4·√k·u·Σ|t|, with the unit roundoff of the gradient's own dtype in place of that
    # of a wider accumulator; ``units`` says how many of the accumulator's that are.
    units = 2.0 ** ((53 if dtype.precision > 24 else 24) - dtype.precision)
    return _LONG_SUM, ErrorBudget(4 * sqrt(terms.count) * units * terms.absolute)


def _terms(
    call: TorchCall, inputs: Sequence[Any], found: Differentiated, draw: Draw, *, of_magnitudes: bool
) -> list[Terms]:
    """Σ|t|, Σt² and the largest number of terms of each gradient: its own value for magnitudes, squares and ones."""

    def made(change: Callable[[torch.Tensor], torch.Tensor], power: int) -> list[Any]:
        tensors = widened(inputs)
        if of_magnitudes:
            tensors = [change(each) if is_inexact(each) else each for each in tensors]

        def drawn(number: int, output: torch.Tensor) -> torch.Tensor:
            # The gradient of the call itself may be complex where these outputs are not; torch squares no float8.
            upper = draw(number, found.leaves[number])
            return change(upper if upper.is_complex() else upper.to(torch.float64)).to(output.dtype)

        found_for = in_float64(with_alpha_beta_to_power(call, power), tensors, drawn)
        return [as_array(each.abs()) for each in found_for.dense(tensors)]

    absolute, squared = made(torch.abs, 1), made(lambda each: each.abs().square(), 2)
    # of a call in place they are in memory of their own: torch writes into no repeated element
    counts = made((lambda each: _ones(each).contiguous()) if call.changes else _ones, 0)
    return [
        Terms(one, two, int(np.max(count, initial=0.0)))
        for one, two, count in zip(absolute, squared, counts, strict=True)
    ]


def _ones(tensor: torch.Tensor) -> torch.Tensor:
    return torch.ones((), dtype=torch.float64).expand(tensor.shape)
