"""Run the call of a case once on the CPU, to see whether torch accepts it and which tolerances its outputs need."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from optest.compare.assert_close import close_tolerance
from optest.numerics import Array
from optest.operators import operators
from optest.spec import DType, Fault, RuleClass, UnfitArguments, dtype, dtype_names
from optest.spec.calls import Call
from optest.torch.calls.binding import CannotBind, bind_call
from optest.torch.calls.call import TorchCall, torch_call
from optest.torch.calls.descriptors import Alternatives, CatalogueAlternatives, CatalogueTerms
from optest.torch.calls.reference import compute_expected
from optest.torch.calls.refusals import REFUSALS, first_line
from optest.torch.fact_sheet import facts_of
from optest.torch.opinfo.fill import array_of
from optest.torch.tensors import strided_copy


class Refused(ValueError):
    """Error for a call that is no useful case: torch on the CPU rejects it, or its output cannot be compared."""


def facts_of_outputs(text: str, tensors: Sequence[torch.Tensor]) -> dict[str, Any]:
    """Return the keys of an entry about the outputs of the call ``text``: empty outputs, tolerances.

    Tolerances are set if no comparison rule fits, or if those of torch.testing would accept zeros because the output is
    as small as atol. Then, and for large outputs with normwise errors, atol follows the largest element.

    Raises:
        Refused: if torch on the CPU raises, or the outputs cannot be compared or are rounding noise.
    """
    call = torch_call(text)
    try:
        leaves = _run_on_copies(call, tensors)
    except REFUSALS as error:
        raise Refused(f"torch on the CPU refuses it, {type(error).__name__}: {first_line(error)[:200]}") from None
    if not leaves:
        raise Refused("it returns nothing that could be compared")
    if not all(isinstance(leaf, torch.Tensor) for leaf in leaves):
        return {}
    # Inputs that the call changes, the last leaves, have another rule.
    leaves = leaves[: len(leaves) - len(call.beside)]
    dtypes = [_output_dtype(leaf) for leaf in leaves]
    facts: dict[str, Any] = {}
    if not all(leaf.numel() for leaf in leaves):
        facts["shapes"] = {f"output{index}": list(leaf.shape) for index, leaf in enumerate(leaves)}
        facts["dtypes"] = {f"output{index}": kind.name for index, kind in enumerate(dtypes)}
    has_rule, is_close = _has_rule(call.call, text, tensors, leaves)
    defaults = [_default_tolerance(call.call, kind) for kind in dtypes]
    is_normwise = facts_of(call.call.function).is_normwise
    fitting = [_fit_tolerance(leaf, *pair, is_normwise) for leaf, pair in zip(leaves, defaults, strict=True)]
    complex_leaves = [leaf for leaf in leaves if leaf.is_complex() and leaf.layout is torch.strided]
    if any(bool(torch.isinf(leaf).any()) for leaf in complex_leaves) and _is_infinite_noise(text, tensors, leaves):
        raise Refused("parts of its result are rounding noise around 0, divided by 0: no sign of them is the right one")
    # Torch's CPU kernels interpolate integer pixels in fixed point, with weights of 16 bits, and miss the nearest
    # integer (4 for 3.375); its compiler does not. Both are within 1 of the right value.
    values = (call.call.function, *call.call.args, *call.call.kwargs.values())
    interpolates = any(word in value for value in values if isinstance(value, str) for word in _INTERPOLATIONS)
    if interpolates and all(not kind.is_inexact for kind in dtypes):
        facts["tolerance"] = _tolerance_keys([(0.0, 1.0)] * len(dtypes))
    elif not has_rule or (is_close and fitting != defaults):
        # A result below torch.testing's atol of float32 and 16 bits may be the rounding error of 0.
        if fitting != defaults and any(atol < 1e-5 for _, atol in fitting) and _is_noise(text, tensors, leaves):
            raise Refused("its result is rounding noise around 0")
        facts["tolerance"] = _tolerance_keys(fitting)
    return facts


def refusal_of(text: str, tensors: Sequence[torch.Tensor]) -> Exception:
    """Return the error that torch on the CPU raises for the call; raise Refused if it raises none."""
    call = torch_call(text)
    try:
        _run_on_copies(call, tensors)
    except REFUSALS as error:
        return error
    raise Refused("OpInfo expects an error, but torch on the CPU accepts the call")


def _run_on_copies(call: TorchCall, tensors: Sequence[torch.Tensor]) -> list[Any]:
    """Return the outputs of the call on copies of the tensors."""
    with torch.no_grad():
        return call.on([strided_copy(tensor.detach()) for tensor in tensors])()


def _output_dtype(tensor: torch.Tensor) -> DType:
    """Return the dtype of an output; raise Refused if optest does not know it."""
    name = str(tensor.dtype).removeprefix("torch.")
    if name not in dtype_names():
        raise Refused(f"an output is {name}, which optest does not know")
    return dtype(name)


def _default_tolerance(call: Call, output: DType) -> tuple[float, float]:
    """Return rtol and atol of torch.testing, with 8 times its rtol for complex powers."""
    rtol, atol = close_tolerance(output) or (0.0, 0.0)
    # x**y is exp(y·log x), so that one rounding of the exponent is |y·log x| of them in the result: up to 32 in
    # OpInfo's samples of pow. In float32, 8·rtol (8·1.3e-6) is 174 roundings.
    is_wide = output.is_complex and facts_of(call.function).is_power
    return (8 * rtol, atol) if is_wide else (rtol, atol)


_INTERPOLATIONS = ("bilinear", "bicubic")


def _fit_tolerance(leaf: torch.Tensor, rtol: float, atol: float, is_normwise: bool) -> tuple[float, float]:
    """Return rtol, and atol scaled to the largest element: up if errors are normwise, down if zeros would pass."""
    if not rtol or not leaf.numel() or leaf.layout is not torch.strided:
        return rtol, atol
    magnitude = leaf.detach().abs().to(torch.float64)
    largest = float(torch.where(torch.isfinite(magnitude), magnitude, 0.0).max())
    if is_normwise and largest > 1.0:
        return rtol, atol * largest
    return (rtol, rtol * largest) if 0.0 < largest <= atol + rtol * largest else (rtol, atol)


def _is_noise(text: str, tensors: Sequence[torch.Tensor], leaves: Sequence[torch.Tensor]) -> bool:
    """Return whether all elements of some output differ from float64 by more than half their magnitude."""
    for output, reference in _with_float64(text, tensors, leaves):
        values = output.astype(reference.dtype)
        is_inexact = bool(values.size) and values.dtype.kind in "fc"
        if is_inexact and bool((np.abs(values - reference) > 0.5 * np.abs(values)).all()):
            return True
    return False


def _with_float64(
    text: str, tensors: Sequence[torch.Tensor], leaves: Sequence[torch.Tensor]
) -> list[tuple[Array, Array]]:
    """Return each output with its float64 reference; [] if there is no reference (the run will report why)."""
    try:
        references = compute_expected([array_of(tensor) for tensor in tensors], {"call": text})
    except Fault:
        return []
    # Notes may follow the outputs.
    pairs = zip(leaves, references, strict=False)
    return [(array_of(leaf), np.asarray(getattr(reference, "values", reference))) for leaf, reference in pairs]


def _is_infinite_noise(text: str, tensors: Sequence[torch.Tensor], leaves: Sequence[torch.Tensor]) -> bool:
    """Return whether float64 has infinite or NaN parts in the same positions with other signs: noise / 0, or 0 / 0."""
    for output, reference in _with_float64(text, tensors, leaves):
        if not np.iscomplexobj(output) or output.shape != reference.shape:
            continue
        parts = [(output.real, reference.real), (output.imag, reference.imag)]
        is_alike = all(np.array_equal(np.isfinite(a), np.isfinite(b)) for a, b in parts)
        if is_alike and not all(
            np.array_equal(a[~np.isfinite(a)], b[~np.isfinite(b)], equal_nan=True) for a, b in parts
        ):
            return True
    return False


def _tolerance_keys(tolerances: Sequence[tuple[float, float]]) -> dict[str, Any]:
    """Return the key ``tolerance``: rtol and atol of the first output, and those of other outputs that differ."""
    first, *others = ({"rtol": rtol, "atol": atol} for rtol, atol in tolerances)
    return {**first, **{f"output{index}": keys for index, keys in enumerate(others, 1) if keys != first}}


def _has_rule(
    call: Call, text: str, tensors: Sequence[torch.Tensor], leaves: Sequence[torch.Tensor]
) -> tuple[bool, bool]:
    """Return whether the function's comparison rule covers this call, and whether it is that of torch.testing."""
    descriptor = operators.get(call.function)
    kind = descriptor.rule.kind if descriptor.rule is not None else None
    if descriptor.rule is not None and descriptor.rule.fixed:
        return True, False
    # The catalogue's error ceilings hold for real numbers.
    if kind in (RuleClass.ULP, RuleClass.COMPOSED) and any(tensor.is_complex() for tensor in (*tensors, *leaves)):
        return False, False
    # Clipped values are not only moved.
    if kind is RuleClass.MOVEMENT and call.kwargs.get("max_norm") is not None:
        return False, False
    model: CatalogueTerms | CatalogueAlternatives | None = None
    if isinstance(descriptor.terms, CatalogueTerms):
        model = descriptor.terms
    elif isinstance(descriptor.alternatives, Alternatives):
        model = descriptor.alternatives.known
    if model is not None:
        inputs = [array_of(tensor) for tensor in tensors]
        try:
            bind_call(model.operator, text, inputs)
            if isinstance(model, CatalogueTerms) and len(model(inputs, {"call": text})) != len(leaves):
                return False, False
        except (CannotBind, UnfitArguments):
            return False, False
    return True, kind is RuleClass.CLOSE
