"""``debug`` and related functions: compare tensors with optest's comparator and print a table of the wrong elements."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from optest.compare import Expected
from optest.compare.kernels import wrong_elements
from optest.compare.policy import resolve
from optest.compare.verdict import compare_outputs
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
    """Wrong values; ``verdict`` has the reason and the measures."""

    def __init__(self, verdict: Verdict) -> None:
        self.verdict = verdict
        lines = [line for measure in verdict.measures if measure.mismatched for line in measure_lines(measure)]
        by_value = verdict.reason is Reason.VALUE and lines
        super().__init__("\n".join(lines if by_value else [verdict.message, *lines]).strip())


def debug(
    actual: Any, desired: Any, atol: float = 0, rtol: float = 1e-2, equal_nan: bool = False, verbose: bool = True
) -> None:
    """Require ``|actual - desired| <= atol + rtol * |desired|``; ``verbose`` prints the wrong elements.

    Infinities match only infinities of the same sign; integers and bools have the same tolerance; NaNs on both sides
    match only with ``equal_nan``. Accepts test tensors, torch tensors and NumPy arrays.

    Raises:
        Discrepancy: an ``AssertionError`` with the verdict.
        UsageError: for values that are no tensors.
    """
    verdict = compare_tensors(actual, desired, atol, rtol, equal_nan)
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
    """Require that one pair (``or``) or every pair (``and``) passes :func:`debug`.

    Raises:
        Discrepancy: with the verdict of the first wrong pair.
        UsageError: for another condition, sequences of different lengths, or no pair.
    """
    if condition not in ("or", "and"):
        raise UsageError(f"condition is {condition!r}, expected 'or' or 'and'")
    if len(actual_vals) != len(desired_vals) or not actual_vals:
        counts = f"{len(actual_vals)} actual and {len(desired_vals)} desired"
        raise UsageError(f"debug_all got {counts} values, expected the same number of both, 1 or more")
    verdicts = []
    for number, (actual, desired) in enumerate(zip(actual_vals, desired_vals, strict=True), 1):
        verdicts.append(compare_tensors(actual, desired, atol, rtol, equal_nan))
        if verbose:
            _print_lines(f"pair {number} of {len(actual_vals)}, joined by {condition!r}:")
            print_discrepancy(actual, desired, atol, rtol, equal_nan)
    wrong = [verdict for verdict in verdicts if verdict.reason is not None]
    if wrong and (condition == "and" or len(wrong) == len(verdicts)):
        raise Discrepancy(wrong[0])


def compare_tensors(actual: Any, desired: Any, atol: float, rtol: float, equal_nan: bool) -> Verdict:
    """Return the verdict on a pair of tensors with this tolerance; NaNs on both sides fail unless ``equal_nan``."""
    output, expected, case = _comparison_case(actual, desired, atol, rtol)
    # for the message, also of measures that pass
    verdict = compare_outputs(case, [output], [expected], numerics=_NUMERICS, every_measure=True)
    if equal_nan or output.shape != expected.shape:
        return verdict
    nan_count = int((_is_nan(output) & _is_nan(expected.value)).sum())
    if not nan_count:
        return verdict
    message = f"{nan_count} of {output.size} elements are NaN on both sides; set equal_nan=True to accept them"
    joined = f"{verdict.message}; {message}" if verdict.reason is not None else message
    return Verdict(status=Reason.NAN.status, reason=Reason.NAN, message=joined, measures=verdict.measures)


@contextmanager
def failures_of_allclose() -> Iterator[list[Verdict]]:
    """Watch ``torch.allclose`` within the block; yield a list with the verdict of its latest call if that failed.

    Nothing is watched if torch is not imported before the block, and within :func:`optest.infiniop.scope.timed`.
    """
    # An assertion of torch.allclose does not show the values; the verdict does.
    verdicts: list[Verdict] = []
    torch: Any = sys.modules.get("torch")
    if torch is None:
        yield verdicts
        return
    watched = (torch.allclose, torch.Tensor.allclose)

    def compare(left: Any, other: Any, rtol: float = 1e-5, atol: float = 1e-8, equal_nan: bool = False) -> Verdict:
        return compare_tensors(left, other, atol, rtol, equal_nan)

    class Watch(torch.overrides.TorchFunctionMode):  # type: ignore[misc]  # torch leaves it without types
        def __torch_function__(self, function: Any, types: Any, arguments: Any = (), named: Any = None) -> Any:
            result = function(*arguments, **(named or {}))
            if function in watched:
                verdicts.clear()  # a later assertion is about the latest call
                keywords = {{"input": "left"}.get(key, key): value for key, value in (named or {}).items()}
                if not result and (verdict := compare(*arguments, **keywords)).reason is not None:
                    verdicts.append(verdict)
            return result

    with Watch():
        yield verdicts


def print_discrepancy(
    actual: Any, expected: Any, atol: float = 0, rtol: float = 1e-3, equal_nan: bool = True, verbose: bool = True
) -> Array:
    """Print the wrong elements and the range of both tensors; return the wrong elements' indices, one row each.

    Raise UsageError for tensors of different shapes or of dtypes that cannot be compared.
    """
    output, reference, case = _comparison_case(actual, expected, atol, rtol)
    if output.shape != reference.shape:
        shapes = f"{format_shape(output.shape)} and {format_shape(reference.shape)}"
        raise UsageError(f"shapes are {shapes}, expected equal ones")
    if dtype_of(output.dtype) is not reference.dtype:
        dtypes = f"{output.dtype} and {reference.dtype}"
        raise UsageError(f"dtypes are {dtypes}, expected equal ones or two floating-point ones")
    wrong = wrong_elements(output, reference.value, reference.dtype, resolve(case, reference, 0, _NUMERICS, None))
    indices: Array = np.argwhere(wrong if equal_nan else wrong | (_is_nan(output) & _is_nan(reference.value)))
    if verbose:
        _print_lines(*_table_lines(output, reference.value, indices))
        share = f" ({len(indices) / output.size:.4%})" if output.size else ""
        _print_lines(
            f"   actual {output.dtype}, expected {reference.value.dtype}, atol {atol}, rtol {rtol}",
            f"   wrong: {len(indices)} of {output.size} elements{share}",
            f"   actual   {_describe_range(output)}",
            f"   expected {_describe_range(reference.value)}",
        )
    return indices


def get_tolerance(
    tolerance_map: Any, tensor_dtype: Any, default_atol: float = 0, default_rtol: float = 1e-3
) -> tuple[float, float]:
    """Return ``atol, rtol`` for a dtype from the map, else the defaults, which are 0 for integers and bool."""
    requested = infini_dtype(tensor_dtype)
    for dtype, limits in tolerance_map.items():
        if infini_dtype(dtype) is requested:
            tolerance = Tolerance.from_mapping(limits)
            return tolerance.atol or 0.0, tolerance.rtol or 0.0
    is_exact = not any(letter in requested.name for letter in "FC")  # F16, BF16, C64 …
    return (0.0, 0.0) if is_exact else (default_atol, default_rtol)


def _comparison_case(actual: Any, desired: Any, atol: float, rtol: float) -> tuple[Array, Expected, TestCase]:
    """Return the output, the expected output and a case with this tolerance."""
    output, reference = _as_array(actual), _as_array(desired)
    dtype, value = dtype_of(output.dtype), reference
    if output.dtype != reference.dtype:
        reference_dtype = dtype_of(reference.dtype)
        if dtype.is_inexact and reference_dtype.is_inexact and dtype.kind is reference_dtype.kind:
            value = widen(reference)  # a reference in another precision keeps its full value
        else:
            dtype = reference_dtype
    expected = Expected(name="out", dtype=dtype, shape=reference.shape, value=value)
    case = TestCase(
        descriptor=_DESCRIPTOR,
        inputs=(),
        outputs=(TensorSpec(dtype=dtype, shape=reference.shape),),
        tolerances=(ToleranceLayer(layer=Layer.CASE, tolerance=Tolerance(atol=atol, rtol=rtol)),),
    )
    return output, expected, case


def _as_array(value: Any) -> Array:
    """Return the NumPy array of a test tensor, torch tensor or array; raise UsageError for other values."""
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


def _table_lines(output: Array, reference: Array, indices: Array) -> Iterator[str]:
    left, right = widen(output), widen(reference)
    for index in map(tuple, indices[:_SHOWN_ROWS].tolist()):
        # Python's integers do not wrap around.
        actual, expected = left[index].item(), right[index].item()
        yield (
            f" > index {list(index)!s:<16} actual {_colored(f'{actual!s:<24}', _RED)}"
            f" expected {_colored(f'{expected!s:<24}', _GREEN)} delta {_colored(str(actual - expected), _YELLOW)}"
        )
    if len(indices) > _SHOWN_ROWS:
        yield f"   and {len(indices) - _SHOWN_ROWS} more"


def _describe_range(array: Array) -> str:
    """Describe the smallest and the largest value, complex numbers by magnitude, and the number of NaNs."""
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


def _print_lines(*lines: str) -> None:
    sys.stdout.writelines(f"{line}\n" for line in lines)
