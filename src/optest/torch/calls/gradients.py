"""Gradients of torch calls: the actual ones, the expected ones, and the rule for each of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from math import prod, sqrt
from typing import Any

import numpy as np
import torch

from optest.generators import counter
from optest.numerics import dtype_of
from optest.spec import DType, ErrorBudget, Fault, NamedOutput, Reason, ReferenceNote, Rule, RuleClass, Terms, Unrounded
from optest.spec.calls import call_text
from optest.torch.calls.call import CPU, TorchCall, with_alpha_beta_to_power, with_rounded_scalars
from optest.torch.calls.descriptors import CLOSE, descriptor_of
from optest.torch.calls.refusals import NO_KERNEL, first_line
from optest.torch.tensors import WIDE, as_array, cpu_copies, is_inexact, wide_copies

Make = Callable[..., list[Any]]
# Returns the upstream gradient of an output, by its number; with the output's shape and dtype.
Draw = Callable[[int, torch.Tensor], torch.Tensor]


@dataclass(frozen=True, slots=True)
class Differentiated:
    """Results of a call and gradients by input number; None for an input on which no output depends."""

    leaves: list[Any]
    gradients: dict[int, torch.Tensor | None]

    def has_gradient(self) -> list[bool]:
        """Return for each floating input whether it has a gradient."""
        return [gradient is not None for gradient in self.gradients.values()]

    def outputs(self, tensors: Sequence[torch.Tensor], device: torch.device = CPU) -> list[Any]:
        """Return the results, a mask of the inputs that have a gradient, and all gradients."""
        exists = torch.tensor(self.has_gradient(), dtype=torch.bool, device=device)
        return [*self.leaves, exists, *self.dense(tensors)]

    def dense(self, tensors: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        """Return all gradients as dense tensors, zeros for missing ones."""
        gradients = []
        for index, gradient in self.gradients.items():
            if gradient is None:
                gradients.append(torch.zeros_like(tensors[index]))
            elif gradient.is_sparse:
                gradients.append(gradient.to_dense())
            else:
                # The zero gradients of some functions, such as sgn, have no memory to read.
                gradients.append(gradient.clone() if gradient._is_zerotensor() else gradient)
        return gradients


def differentiate(call: TorchCall, make: Make, tensors: Sequence[torch.Tensor], upstream: Draw) -> Differentiated:
    """Execute the call by ``make`` and return its results and the gradients of its floating inputs.

    ``make`` may be compiled. It has to copy the tensors that the call changes (:meth:`TorchCall.changeable`), since
    torch refuses in-place changes of autograd leaves.
    """
    floating = [index for index in sorted(set(call.call.tensors())) if is_inexact(tensors[index])]
    inputs = [tensor.detach() for tensor in tensors]
    differentiable = [index for index in floating if index not in call.constant]
    for index in differentiable:
        inputs[index].requires_grad_()
    with torch.enable_grad():
        leaves = make(*inputs)
        sources = [
            (number, leaf)
            for number, leaf in enumerate(leaves)
            if isinstance(leaf, torch.Tensor) and leaf.requires_grad and is_inexact(leaf)
        ]
        gradients: dict[int, torch.Tensor | None] = dict.fromkeys(floating)
        if sources:
            found = torch.autograd.grad(
                [leaf for _, leaf in sources],
                [inputs[index] for index in differentiable],
                [upstream(number, leaf.detach()) for number, leaf in sources],
                allow_unused=True,
            )
            gradients.update(zip(differentiable, found, strict=True))
    return Differentiated([leaf.detach() if isinstance(leaf, torch.Tensor) else leaf for leaf in leaves], gradients)


# Upstream gradients are derived from the call and its inputs only: the reference and the device get the same numbers
# without communication. Every number has few digits, so it is exact in each dtype that a gradient may have.

_WORD = np.uint64
_HASHED_BYTES = 256


@dataclass(frozen=True, slots=True)
class Upstream:
    """Upstream gradients by output number: whole numbers from 1 to 8, or 64ths from 1/4 to 2, of random sign."""

    key: str
    is_whole: bool

    def __call__(self, number: int, output: torch.Tensor) -> torch.Tensor:
        """Return the upstream gradient of output ``number``, on its device and in its dtype."""
        parts = [self._reals(number, part, output.shape) for part in range(1 + output.is_complex())]
        values = torch.complex(*parts) if output.is_complex() else parts[0]
        return values.to(device=output.device, dtype=output.dtype)

    def _reals(self, number: int, part: int, shape: Sequence[int]) -> torch.Tensor:
        blocks = counter.words(counter.Stream(self.key, f"{number}/{part}"), prod(shape))
        words = np.concatenate([np.empty(0, _WORD), *(block.copy() for block in blocks)])
        sign = np.where(words >> _WORD(63), 1.0, -1.0)
        if self.is_whole:
            size = 1.0 + (words & _WORD(7)).astype(np.float64)
        else:
            size = (16.0 + (words % _WORD(113)).astype(np.float64)) / 64.0
        return torch.from_numpy((sign * size).reshape(tuple(shape)))


def upstream_of(text: str, inputs: Sequence[Any], *, is_whole: bool) -> Upstream:
    """Return the upstream gradients of a call, keyed by its text and a sample of its unchanged inputs."""
    digest = blake2b(text.encode(), digest_size=16)
    for array in inputs:
        digest.update(f"{array.dtype}{array.shape}".encode())
        sample = np.ascontiguousarray(array[tuple(slice(0, 2) for _ in array.shape)])
        digest.update(sample.tobytes()[:_HASHED_BYTES])
    return Upstream(digest.hexdigest(), is_whole)


# A gradient is linear in the upstream gradients: that of a contraction is a contraction, that of moved elements a sum
# of upstream gradients. There the rule of sums holds, with terms from the gradient of magnitudes. The sums within
# other functions are unknown.

_MOVED = (RuleClass.MOVEMENT, RuleClass.EXACT)
_EXACT = Rule(kind=RuleClass.EXACT)
_SUM = Rule(kind=RuleClass.ACCUMULATE, fixed=True)
_LONG_SUM = Rule(
    kind=RuleClass.COMPOSED,
    fixed=True,
    formula="4·√k·Σ|t| units of the gradient's dtype, in which it may be summed",
)


def upstream_gradients(call: TorchCall, inputs: Sequence[Any]) -> Draw:
    """Return the upstream gradients of a call: whole numbers if it only moves elements, so that sums are exact."""
    return upstream_of(call_text(call.call), inputs, is_whole=_rule_kind(call) in _MOVED)


def _rule_kind(call: TorchCall) -> RuleClass | None:
    rule = descriptor_of(call.call.function).rule
    return None if rule is None else rule.kind


def expected_gradients(call: TorchCall, inputs: Sequence[Any], *, in_own_dtype: bool) -> list[Any]:
    """Return the mask of inputs with a gradient, and the gradient of every floating input, each with its rule.

    Computed in float64, or, with a note, in the case's dtype if torch has no such kernel.

    Raises:
        Fault: UNSUPPORTED if torch cannot differentiate the call.
    """
    if not has_floating_input(call, inputs):
        raise Fault(Reason.UNSUPPORTED, f"{call.call.function} has no floating input to differentiate by")
    draw = upstream_gradients(call, inputs)
    notes: list[Any] = []
    if in_own_dtype:
        derivative = _in_own_dtype(call, inputs, draw)
    else:
        try:
            derivative = in_float64(with_rounded_scalars(call, inputs), wide_copies(inputs), draw)
        except NO_KERNEL as error:
            derivative = _in_own_dtype(call, inputs, draw)
            in_own_dtype = True
            why = first_line(error)
            notes.append(ReferenceNote(f"gradients on the CPU in the case's own dtype, not in float64: {why}"))
    dtypes = [dtype_of(inputs[index].dtype) for index in derivative.gradients]
    rules = [(CLOSE, None)] * len(dtypes) if notes else _gradient_rules(call, inputs, derivative, draw, dtypes)
    if not any(derivative.has_gradient()):
        notes.append(ReferenceNote(f"{call.call.function} gives no gradient: none of its outputs depends on an input"))
    arrays = [
        as_array(gradient) for gradient in derivative.dense(cpu_copies(inputs) if in_own_dtype else wide_copies(inputs))
    ]
    return [
        NamedOutput("grad.exists", np.array(derivative.has_gradient(), dtype=bool), rule=_EXACT),
        *(
            NamedOutput(f"grad.input{index}", Unrounded(array, kind), rule=rule, terms=terms)
            for index, array, kind, (rule, terms) in zip(derivative.gradients, arrays, dtypes, rules, strict=True)
        ),
        *notes,
    ]


def has_floating_input(call: TorchCall, inputs: Sequence[Any]) -> bool:
    """Return whether the call takes an input of a floating or complex dtype."""
    return any(dtype_of(inputs[index].dtype).is_inexact for index in call.call.tensors())


def can_be_differentiated(call: TorchCall, inputs: Sequence[Any]) -> bool:
    """Return whether torch on the CPU can differentiate the call, in float64 or the case's dtype."""
    try:
        expected_gradients(call, inputs, in_own_dtype=False)
    except Fault:
        return False
    return True


def in_float64(call: TorchCall, tensors: Sequence[torch.Tensor], draw: Draw) -> Differentiated:
    """Return results and gradients of the call on float64 ``tensors``; ``draw`` draws the upstream gradients."""
    return differentiate(call, call.on_copies(dtypes=WIDE), tensors, draw)


def _in_own_dtype(call: TorchCall, inputs: Sequence[Any], draw: Draw) -> Differentiated:
    try:
        return differentiate(call, call.on_copies(), cpu_copies(inputs), draw)
    except NO_KERNEL as error:
        message = f"torch on the CPU cannot differentiate {call.call.function}: {first_line(error)}"
        raise Fault(Reason.UNSUPPORTED, message) from error


def _gradient_rules(
    call: TorchCall, inputs: Sequence[Any], derivative: Differentiated, draw: Draw, dtypes: Sequence[DType]
) -> list[tuple[Rule, Any]]:
    """Return the rule and error terms of each gradient, derived from the rule of the call."""
    kind = _rule_kind(call)
    if not any(derivative.has_gradient()):
        return [(_EXACT, None)] * len(dtypes)
    if kind is RuleClass.ACCUMULATE:
        return [(_SUM, terms) for terms in _gradient_terms(call, inputs, derivative, draw, of_magnitudes=True)]
    if kind in _MOVED:
        sums = _gradient_terms(call, inputs, derivative, draw, of_magnitudes=False)
        # Whole sums show that the upstream gradients are only moved and added: a factor would yield fractions.
        if all((terms.absolute == np.floor(terms.absolute)).all() for terms in sums):
            return [_rule_of_moved(terms, dtype) for terms, dtype in zip(sums, dtypes, strict=True)]
    return [(CLOSE, None)] * len(dtypes)


def _rule_of_moved(terms: Terms, dtype: DType) -> tuple[Rule, Any]:
    """Return the EXACT rule if the dtype holds all sums of whole numbers, else _LONG_SUM with its error budget."""
    if np.max(terms.absolute, initial=0.0) <= 2.0**dtype.precision:
        return _EXACT, None
    # The bound of the accumulate rule, 4·√k·u·Σ|t|, with the unit roundoff of the gradient's dtype instead of a wider
    # accumulator's; ``units`` is their ratio.
    units = 2.0 ** ((53 if dtype.precision > 24 else 24) - dtype.precision)
    return _LONG_SUM, ErrorBudget(4 * sqrt(terms.count) * units * terms.absolute)


def _gradient_terms(
    call: TorchCall, inputs: Sequence[Any], derivative: Differentiated, draw: Draw, *, of_magnitudes: bool
) -> list[Terms]:
    """Return Σ|t|, Σt² and the largest number of terms of each gradient: the gradient for |x|, x² and ones.

    These replace the upstream gradients and, with ``of_magnitudes``, the inputs.
    """

    def gradients_for(change: Callable[[torch.Tensor], torch.Tensor], power: int) -> list[Any]:
        tensors = wide_copies(inputs)
        if of_magnitudes:
            tensors = [change(tensor) if is_inexact(tensor) else tensor for tensor in tensors]

        def changed_draw(number: int, output: torch.Tensor) -> torch.Tensor:
            # The upstream gradient may be complex although this output is real; torch squares no float8.
            upper = draw(number, derivative.leaves[number])
            return change(upper if upper.is_complex() else upper.to(torch.float64)).to(output.dtype)

        changed = in_float64(with_alpha_beta_to_power(call, power), tensors, changed_draw)
        return [as_array(gradient.abs()) for gradient in changed.dense(tensors)]

    def ones(tensor: torch.Tensor) -> torch.Tensor:
        expanded = torch.ones((), dtype=torch.float64).expand(tensor.shape)
        return expanded.contiguous() if call.changes else expanded  # torch refuses writes into expanded memory

    absolute, squared = gradients_for(torch.abs, 1), gradients_for(lambda tensor: tensor.abs().square(), 2)
    return [
        Terms(total, squares, int(np.max(count, initial=0.0)))
        for total, squares, count in zip(absolute, squared, gradients_for(ones, 0), strict=True)
    ]
