"""debug and its kin: actual against desired by optest's own comparator, with a table of the elements that are off."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from optest.compare import Expected
from optest.compare.kernels import wrong_elements
from optest.compare.policy import resolve
from optest.compare.verdict import judge
from optest.errors import UsageError
from optest.infiniop.datatypes import InfiniDtype, from_codes, infini_dtype
from optest.infiniop.tensors import TestTensor
from optest.infiniop.torch_bridge import is_torch, to_array
from optest.numerics import Array, dtype_of, widen
from optest.reporting.explain import measure_lines
from optest.spec import (
    Layer,
    Numerics,
    OperatorDescriptor,
    Reason,
    TensorSpec,
    TestCase,
    Tolerance,
    ToleranceLayer,
    Verdict,
    format_shape,
)

_SHOWN_ROWS = 50
_DESCRIPTOR = OperatorDescriptor(name="debug", signature="input -> out")
_NUMERICS = Numerics()
_RED, _GREEN, _YELLOW = 31, 32, 33


class Discrepancy(AssertionError):
    """Values that are not what they should be; ``verdict`` says why."""

    def __init__(self, verdict: Verdict) -> None:
        self.verdict = verdict
        lines = [line for measure in verdict.measures if measure.mismatched for line in measure_lines(measure)]
        by_value = verdict.reason is Reason.VALUE and lines
        super().__init__("\n".join(lines if by_value else [verdict.message, *lines]).strip())


def debug(
    actual: Any, desired: Any, atol: float = 0, rtol: float = 1e-2, equal_nan: bool = False, verbose: bool = True
) -> None:
    """Require ``|actual - desired| <= atol + rtol * |desired|``; ``verbose`` prints what is off.

    Infinities match only infinities of the same sign, integers and bools are held to the tolerance as stated, a NaN
    on both sides counts as right with ``equal_nan``. Takes test tensors, torch tensors and NumPy arrays.

    Raises:
        Discrepancy: an ``AssertionError`` with the verdict.
        UsageError: for things that are no tensors.
    """
    verdict = compared(actual, desired, atol, rtol, equal_nan)
    if verbose:
        print_discrepancy(actual, desired, atol, rtol, equal_nan)
    if verdict.reason is not None:
        raise Discrepancy(verdict)


def debug_all(
    actual_vals: Sequence[Any],
    desired_vals: Sequence[Any],
    condition: str,
    atol: float = 0,
    rtol: float = 1e-2,
    equal_nan: bool = False,
    verbose: bool = True,
) -> None:
    """Require that one pair (``or``) or that every pair (``and``) is as :func:`debug` wants it.

    Raises:
        Discrepancy: with the verdict of the first pair that is off.
        UsageError: for another condition, sequences of different lengths, or no pair at all.
    """
    if condition not in ("or", "and"):
        raise UsageError(f"condition is {condition!r}, expected 'or' or 'and'")
    if len(actual_vals) != len(desired_vals) or not actual_vals:
        raise UsageError(
            f"there are {len(actual_vals)} actual and {len(desired_vals)} desired values; pairs are needed"
        )
    verdicts = []
    for number, (actual, desired) in enumerate(zip(actual_vals, desired_vals, strict=True), 1):
        verdicts.append(compared(actual, desired, atol, rtol, equal_nan))
        if verbose:
            _write(f"condition {number} of {len(actual_vals)}, all joined by {condition!r}:")
            print_discrepancy(actual, desired, atol, rtol, equal_nan)
    wrong = [verdict for verdict in verdicts if verdict.reason is not None]
    if wrong and (condition == "and" or len(wrong) == len(verdicts)):
        raise Discrepancy(wrong[0])


def compared(actual: Any, desired: Any, atol: float, rtol: float, equal_nan: bool) -> Verdict:
    """The verdict on a pair of tensors under a stated tolerance."""
    got, expected, case = _question(actual, desired, atol, rtol)
    verdict = judge(case, [got], [expected], numerics=_NUMERICS, every_measure=True)
    both = 0 if equal_nan or got.shape != expected.shape else int((_is_nan(got) & _is_nan(expected.value)).sum())
    if not both:
        return verdict
    message = f"{both} of {got.size} elements are NaN on both sides, which equal_nan=False does not allow"
    joined = f"{verdict.message}; {message}" if verdict.reason is not None else message
    return Verdict(status=Reason.NAN.status, reason=Reason.NAN, message=joined, measures=verdict.measures)


@contextmanager
def failures_of_allclose() -> Iterator[list[Verdict]]:
    """While inside, optest's verdicts on tensors that ``torch.allclose`` is called with and that are not close, so that
    an assertion of it says what is off."""
    verdicts: list[Verdict] = []
    torch: Any = sys.modules.get("torch")
    if torch is None:
        yield verdicts
        return
    allclose = torch.allclose

    def watched(input: Any, other: Any, rtol: float = 1e-5, atol: float = 1e-8, equal_nan: bool = False) -> bool:  # noqa: A002 - torch's names
        verdicts.clear()  # an assertion that fails later is about what came last
        is_close: bool = allclose(input, other, rtol=rtol, atol=atol, equal_nan=equal_nan)
        if not is_close and (verdict := compared(input, other, atol, rtol, equal_nan)).reason is not None:
            verdicts.append(verdict)
        return is_close

    torch.allclose = watched
    try:
        yield verdicts
    finally:
        torch.allclose = allclose


def print_discrepancy(
    actual: Any,
    expected: Any,
    atol: float = 0,
    rtol: float = 1e-3,
    equal_nan: bool = True,
    verbose: bool = True,
) -> Array:
    """Print the elements that are off and what is known of both tensors; return the indices, one row for each.

    Raises:
        UsageError: for tensors of different shapes or dtypes that cannot be compared.
    """
    got, reference, case = _question(actual, expected, atol, rtol)
    if got.shape != reference.shape:
        raise UsageError(f"shapes are {format_shape(got.shape)} and {format_shape(reference.shape)}, expected the same")
    if dtype_of(got.dtype) is not reference.dtype:
        raise UsageError(f"dtypes are {got.dtype} and {reference.dtype}, expected the same or both floating point")
    wrong = wrong_elements(got, reference.value, reference.dtype, resolve(case, reference, 0, _NUMERICS, None))
    indices: Array = np.argwhere(wrong if equal_nan else wrong | (_is_nan(got) & _is_nan(reference.value)))
    if verbose:
        _write(*_table(got, reference.value, indices))
        share = f" ({len(indices) / got.size:.4%})" if got.size else ""
        _write(
            f"   actual {got.dtype}, expected {reference.value.dtype}, atol {atol}, rtol {rtol}",
            f"   off: {len(indices)} of {got.size} elements{share}",
            f"   actual   {_extent(got)}",
            f"   expected {_extent(reference.value)}",
        )
    return indices


def get_tolerance(
    tolerance_map: Any, tensor_dtype: Any, default_atol: float = 0, default_rtol: float = 1e-3
) -> tuple[float, float]:
    """``atol, rtol`` for a dtype from ``{dtype: {"atol": …, "rtol": …}}``, in this order however it is written.

    A dtype that is not in the map has the default, but 0 where it is exact: integers and bool.
    """
    requested = infini_dtype(tensor_dtype)
    for dtype, limits in tolerance_map.items():
        if infini_dtype(dtype) is requested:
            tolerance = Tolerance.from_mapping(limits)
            return tolerance.atol or 0.0, tolerance.rtol or 0.0
    is_exact = not any(letter in requested.name for letter in "FC")
    return (0.0, 0.0) if is_exact else (default_atol, default_rtol)


def _question(actual: Any, desired: Any, atol: float, rtol: float) -> tuple[Array, Expected, TestCase]:
    got, reference = _as_array(actual), _as_array(desired)
    dtype, value = dtype_of(got.dtype), reference
    if got.dtype != reference.dtype:
        other = dtype_of(reference.dtype)
        if dtype.is_inexact and other.is_inexact and dtype.kind is other.kind:
            value = widen(reference)  # a reference in another precision is taken at its full value
        else:
            dtype = other
    expected = Expected(name="out", dtype=dtype, shape=reference.shape, value=value)
    case = TestCase(
        descriptor=_DESCRIPTOR,
        inputs=(),
        outputs=(TensorSpec(dtype=dtype, shape=reference.shape),),
        tolerances=(ToleranceLayer(layer=Layer.CASE, tolerance=Tolerance(atol=atol, rtol=rtol)),),
    )
    return got, expected, case


def _as_array(value: Any) -> Array:
    if isinstance(value, TestTensor):
        return value.actual_array()
    if is_torch(value):
        array = to_array(value)
        return from_codes(array, InfiniDtype.C32) if str(value.dtype) == "torch.complex32" else array
    if isinstance(value, (np.ndarray, np.generic)):
        return np.asarray(value)
    raise UsageError(f"value is a {type(value).__name__}, expected a TestTensor, a torch tensor or a NumPy array")


def _is_nan(array: Array) -> Array:
    wide = widen(array)
    return np.isnan(wide) if wide.dtype.kind in "fc" else np.zeros(array.shape, np.bool_)


def _table(got: Array, reference: Array, indices: Array) -> Iterator[str]:
    left, right = widen(got), widen(reference)
    for index in map(tuple, indices[:_SHOWN_ROWS].tolist()):
        actual, expected = left[index].item(), right[index].item()  # Python's integers do not wrap around
        yield (
            f" > index {list(index)!s:<16} actual {_colored(f'{actual!s:<24}', _RED)}"
            f" expected {_colored(f'{expected!s:<24}', _GREEN)} delta {_colored(str(actual - expected), _YELLOW)}"
        )
    if len(indices) > _SHOWN_ROWS:
        yield f"   and {len(indices) - _SHOWN_ROWS} more"


def _extent(array: Array) -> str:
    """The least and the largest value; NaN is counted, complex numbers by magnitude."""
    if not array.size:
        return "is empty"
    is_nan = _is_nan(array)
    numbers = widen(array)[~is_nan]
    if numbers.dtype.kind == "c":
        numbers = np.abs(numbers)
    extent = f"from {numbers.min()} to {numbers.max()}" if numbers.size else "has no number"
    return f"{extent}, {is_nan.sum()} NaN" if is_nan.any() else extent


def _colored(text: str, code: int) -> str:
    return f"\033[{code}m{text}\033[0m" if sys.stdout.isatty() else text


def _write(*lines: str) -> None:
    sys.stdout.writelines(f"{line}\n" for line in lines)
