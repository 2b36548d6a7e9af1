"""The call of a case, made once on the CPU: whether torch takes it, and what has to be said of its outputs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from optest.compare.assert_close import close_tolerance
from optest.numerics import Array
from optest.operators import operators
from optest.spec import DType, Fault, OperatorDescriptor, RuleClass, UnfitArguments, dtype, dtype_names
from optest.spec.calls import Call
from optest.torch.calls.binding import CannotBind, bound
from optest.torch.calls.call import TorchCall, torch_call
from optest.torch.calls.descriptors import Alternatives, CatalogueAlternatives, CatalogueTerms
from optest.torch.calls.reference import expected
from optest.torch.calls.refusals import REFUSALS, first_line
from optest.torch.fact_sheet import facts_of
from optest.torch.opinfo.fill import array_of
from optest.torch.tensors import copied


class Refused(ValueError):
    """Nothing can be asked of the call: torch on the CPU does not take it, or yields nothing that can be compared."""


def facts_of_outputs(text: str, tensors: Sequence[torch.Tensor]) -> dict[str, Any]:
    """The keys of an entry about the outputs of the call: that one has no elements, that no rule judges them.

    Where rtol and atol of torch.testing judge, zeros must not meet them: for an output that is as small as atol, and
    where errors are normwise for one that is large, atol follows its largest element.

    Raises:
        Refused: if torch on the CPU raises.
    """
    call = torch_call(text)
    try:
        leaves = _made(call, tensors)
    except REFUSALS as error:
        raise Refused(f"torch on the CPU refuses it, {type(error).__name__}: {first_line(error)[:200]}") from None
    if not leaves:
        raise Refused("it yields nothing that could be compared")
    if not all(isinstance(leaf, torch.Tensor) for leaf in leaves):
        return {}
    leaves = leaves[: len(leaves) - len(call.beside)]  # what is changed beside the results has a rule of its own
    dtypes = [_dtype(leaf) for leaf in leaves]
    facts: dict[str, Any] = {}
    if not all(leaf.numel() for leaf in leaves):
        facts["shapes"] = {f"output{index}": list(leaf.shape) for index, leaf in enumerate(leaves)}
        facts["dtypes"] = {f"output{index}": kind.name for index, kind in enumerate(dtypes)}
    is_judged, is_close = _judges(call.call, text, tensors, leaves)
    stated = [_allowed(call.call, kind) for kind in dtypes]
    is_normwise = facts_of(call.call.function).is_normwise
    fitting = [_fitting(leaf, *allowed, is_normwise) for leaf, allowed in zip(leaves, stated, strict=True)]
    if any(map(_has_infinite_parts, leaves)) and _is_infinite_noise(text, tensors, leaves):
        raise Refused("parts of its result are rounding noise around 0, divided by 0: no sign of them is the right one")
    # Torch's CPU kernels weigh pixels that are integers in fixed point, with weights of 16 bits, and miss the nearest
    # integer (4 for 3.375); its compiler hits it. Both are within 1 of what is right, or of torch.
    values = (call.call.function, *call.call.args, *call.call.kwargs.values())
    is_weighed = any(word in each for each in values if isinstance(each, str) for word in _WEIGHED)
    if is_weighed and all(not each.is_inexact for each in dtypes):
        facts["tolerance"] = _tolerance_keys([(0.0, 1.0)] * len(dtypes))
    elif not is_judged or (is_close and fitting != stated):
        # Below torch.testing's atol of float32 and 16 bits a result may be what rounding leaves of 0.
        if fitting != stated and any(atol < 1e-5 for _, atol in fitting) and _is_noise(text, tensors, leaves):
            raise Refused("its result is rounding noise around 0")
        facts["tolerance"] = _tolerance_keys(fitting)
    return facts


def refusal_of(text: str, tensors: Sequence[torch.Tensor]) -> Exception:
    """What torch on the CPU refuses the call with.

    Raises:
        Refused: if it takes it, so that there is no refusal to be asked for.
    """
    call = torch_call(text)
    try:
        _made(call, tensors)
    except REFUSALS as error:
        return error
    raise Refused("OpInfo says that it is refused, but torch on the CPU takes it")


def _made(call: TorchCall, tensors: Sequence[torch.Tensor]) -> list[Any]:
    """What the call yields on the CPU on copies of the tensors."""
    with torch.no_grad():
        return call.on([copied(tensor.detach()) for tensor in tensors])()


def _dtype(tensor: torch.Tensor) -> DType:
    """The dtype of an output.

    Raises:
        Refused: for one that optest does not know.
    """
    name = str(tensor.dtype).removeprefix("torch.")
    if name not in dtype_names():
        raise Refused(f"an output is {name}, which optest does not know")
    return dtype(name)


def _allowed(call: Call, output: DType) -> tuple[float, float]:
    """What torch.testing allows; eight times as much for complex powers, whose error grows with |y·log x|."""
    rtol, atol = close_tolerance(output) or (0.0, 0.0)
    # x**y is exp(y·log x), so that one rounding of the exponent is |y·log x| of them in the result: up to 32 in
    # OpInfo's samples of pow. Of float32 8·rtol is 174 roundings (8·1.3e-6).
    is_wide = output.is_complex and facts_of(call.function).is_power
    return (8 * rtol, atol) if is_wide else (rtol, atol)


_WEIGHED = ("bilinear", "bicubic")


def _fitting(leaf: torch.Tensor, rtol: float, atol: float, is_normwise: bool) -> tuple[float, float]:
    """rtol and atol for an output of this size."""
    if not rtol or not leaf.numel() or leaf.layout is not torch.strided:
        return rtol, atol
    magnitude = leaf.detach().abs().to(torch.float64)
    largest = float(torch.where(torch.isfinite(magnitude), magnitude, 0.0).max())
    if is_normwise and largest > 1.0:
        return rtol, atol * largest
    return (rtol, rtol * largest) if 0.0 < largest <= atol + rtol * largest else (rtol, atol)


def _is_noise(text: str, tensors: Sequence[torch.Tensor], leaves: Sequence[torch.Tensor]) -> bool:
    """Whether nothing of a small result is right in its own dtype: float64 says something else."""
    for own, values in _beside_float64(text, tensors, leaves):
        small = own.astype(values.dtype)
        if small.size and small.dtype.kind in "fc" and bool((np.abs(small - values) > 0.5 * np.abs(small)).all()):
            return True
    return False


def _beside_float64(
    text: str, tensors: Sequence[torch.Tensor], leaves: Sequence[torch.Tensor]
) -> list[tuple[Array, Array]]:
    """Each result, and what it is in float64; nothing where that cannot be had, of which the run says why."""
    try:
        wide = expected([array_of(tensor) for tensor in tensors], {"call": text})
    except Fault:
        return []
    pairs = zip(leaves, wide, strict=False)  # behind the outputs may stand notes
    return [(array_of(leaf), np.asarray(getattr(right, "values", right))) for leaf, right in pairs]


def _has_infinite_parts(leaf: torch.Tensor) -> bool:
    return leaf.is_complex() and leaf.layout is torch.strided and bool(torch.isinf(leaf).any())


def _is_infinite_noise(text: str, tensors: Sequence[torch.Tensor], leaves: Sequence[torch.Tensor]) -> bool:
    """Whether float64 has no finite parts where torch has none, and some of another sign: noise by 0, or 0 by 0."""
    for own, values in _beside_float64(text, tensors, leaves):
        if not np.iscomplexobj(own) or own.shape != values.shape:
            continue
        parts = [(own.real, values.real), (own.imag, values.imag)]
        is_alike = all(np.array_equal(np.isfinite(one), np.isfinite(other)) for one, other in parts)
        if is_alike and not all(
            np.array_equal(one[~np.isfinite(one)], other[~np.isfinite(other)], equal_nan=True) for one, other in parts
        ):
            return True
    return False


def _tolerance_keys(allowed: Sequence[tuple[float, float]]) -> dict[str, Any]:
    """The tolerance of every output; that of the first where nothing is said of another."""
    each = [{"rtol": rtol, "atol": atol} for rtol, atol in allowed]
    return {**each[0], **{f"output{index}": one for index, one in enumerate(each) if one != each[0]}}


def _judges(
    call: Call, text: str, tensors: Sequence[torch.Tensor], leaves: Sequence[torch.Tensor]
) -> tuple[bool, bool]:
    """Whether the rule of the function has a word for all that the call says, and whether it is that of torch.testing.

    The catalogue's ceilings for functions are those of real numbers, and what is clipped is not only moved.
    """
    descriptor = operators.get(call.function)
    kind = descriptor.rule.kind if descriptor.rule is not None else None
    if descriptor.rule is not None and descriptor.rule.stands:
        return True, False
    if kind in (RuleClass.ULP, RuleClass.COMPOSED) and any(each.is_complex() for each in (*tensors, *leaves)):
        return False, False
    if kind is RuleClass.MOVEMENT and call.kwargs.get("max_norm") is not None:
        return False, False
    known = _known(descriptor)
    if known is not None:
        inputs = [array_of(tensor) for tensor in tensors]
        try:
            bound(known.operator, text, inputs)
            if isinstance(known, CatalogueTerms) and len(known(inputs, {"call": text})) != len(leaves):
                return False, False
        except (CannotBind, UnfitArguments):
            return False, False
    return True, kind is RuleClass.CLOSE


def _known(descriptor: OperatorDescriptor) -> CatalogueTerms | CatalogueAlternatives | None:
    """What asks the catalogue's operator when the case runs."""
    if isinstance(descriptor.terms, CatalogueTerms):
        return descriptor.terms
    return descriptor.alternatives.known if isinstance(descriptor.alternatives, Alternatives) else None
