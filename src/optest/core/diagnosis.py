"""Diagnosis of a wrong output: a multiple of the right one, the right one of another call or dtype, or a varying one.

A sentence is reported only if it explains every element by the case's own rule.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from time import thread_time
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np

from optest.backends import BackendDriver
from optest.backends.abilities import Blames
from optest.compare import Expected
from optest.core.actual import run_backend
from optest.core.border import Border
from optest.core.comparison import Comparison
from optest.core.error_patterns import (
    RELATIONS,
    SURE_RELATIONS,
    describe_error_size,
    describe_multiple,
    describe_narrower_dtype,
    describe_shift,
    describe_truncation,
    errors_have_both_signs,
    has_values,
    other_last_steps,
    returned_inputs,
    scale_terms,
)
from optest.core.expected import BY_BACKEND, expected_of_other_inputs, expected_outputs
from optest.core.layers import composed_outputs, is_composed
from optest.core.operands import ELEMENTWISE
from optest.core.other_calls import CALLS, NONLINEAR_CALLS, Hypothesis, WrongCall, yields_shapes
from optest.core.phases import REFERENCE, RUN
from optest.numerics import Array, bits, dtype_of, round_to
from optest.spec import Check, CheckState, Fault, Measure, Reason, Status, TensorSpec, Terms, TestCase, Verdict, dtype

_OF_STRUCTURE = (Reason.SHAPE, Reason.DTYPE)
_REASONS = frozenset({Reason.VALUE, Reason.NAN, *_OF_STRUCTURE})
# Of inputs and outputs together, for a search: a reference takes milliseconds for as many.
_MOST_ELEMENTS = 1 << 17
# Above the first limit only hypotheses that fitted smaller cases are tried, above this one none.
_MOST_ELEMENTS_AT_ALL = 1 << 20
# Failures of an operator for which all other calls are tried; later, only calls that fitted one of them.
_SEARCHES = 12
# Limit of these for one dtype: roundings may hide in one what another shows, integers above all.
_SEARCHES_OF_A_DTYPE = 4
# Smaller outputs have a separate number of searches: much fits them by chance, and they take no time.
_FEW_ELEMENTS = 24
# Time limit of one search; the reference that runs then is still evaluated.
_SEARCH_S = 0.5
_MOST_CALLS = 400
# If more calls fit than these, none of them means much.
_MOST_FITS = 2
# Distinct values that an output needs: two or three of them agree with something by chance.
_LEAST_VALUES = 4
# Least number of elements of an output: with fewer, some hypothesis agrees by chance.
_LEAST_OF_A_CALL = 5

# One element is enough for a hypothesis if its error is _FAR_OFF times its bound and it is computed from _LEAST_SUMMED
# elements or more: from one or two, many calls have the same result.
_FAR_OFF = 1e3
_LEAST_SUMMED = 16
# Least wrong elements of an output with few distinct values: eight of two values agree by chance once in 256 times.
_LEAST_WRONG = 8
# Least wrong elements in general: one or two are as often infinite, zero, or rounded otherwise, for another reason.
_LEAST_EXPLAINED = 3
# Share of all elements that are wrong if an arithmetic is too narrow: it rounds every one.
_LEAST_SHARE = 0.05

# Size of all errors together, relative to the expectation for a narrower accumulator, that the accumulator explains.
# The rule itself allows more for few values.
_SIZES_OF_SUMS = (0.2, 1.25)
# Share of the sum of squared errors that another call may leave: its errors are half as large, or smaller.
_NEARER = 0.25
# Differences of two references, relative to the result or to the largest one, that are roundings in float64.
_SAME = 2.0**-36
_COPIES = (returned_inputs,)
# Only a backend that took no longer is called once more.
_QUICK_S = 0.1


@dataclass(slots=True)
class _History:
    """Searches and fits for the failures of one operator, by one driver in one process."""

    searches: Counter[str] = field(default_factory=Counter)
    varies: bool | None = None
    fitting: Counter[str] = field(default_factory=Counter)

    def begins_search(self, comparison: Comparison, elements: int) -> bool:
        """Return whether another failure may be searched, and count it."""
        kind = "few" if elements < _FEW_ELEMENTS or not comparison.inputs else comparison.inputs[0].dtype.name
        if _elements(comparison) > _MOST_ELEMENTS:
            return False
        if self.searches.total() >= _SEARCHES or self.searches[kind] >= _SEARCHES_OF_A_DTYPE:
            return False
        self.searches[kind] += 1
        return True


_histories: WeakKeyDictionary[BackendDriver, dict[tuple[str, str], _History]] = WeakKeyDictionary()


def add_diagnosis(comparison: Comparison, verdict: Verdict) -> Verdict:
    """Return ``verdict`` with its explanation as the detail ``diagnosis``; an error in here becomes a check."""
    outputs = comparison.outputs
    if verdict.reason not in _REASONS or len(outputs) != len(comparison.expected):
        return verdict
    if not all(each.size for each in outputs):
        return verdict
    try:
        with Border("the diagnosis", Reason.INTERNAL, comparison.interrupted), np.errstate(all="ignore"):
            sentences = _diagnosis(comparison, verdict)
    except Fault as fault:
        note = Check(name="diagnosis", state=CheckState.INCONCLUSIVE, detail=fault.message)
        return replace(verdict, checks=(*verdict.checks, note))
    return replace(verdict, details={**verdict.details, "diagnosis": sentences}) if sentences else verdict


def _diagnosis(comparison: Comparison, verdict: Verdict) -> list[str]:
    """Return the sentences that explain a failure: none, one, or two that both fit."""
    if _elements(comparison) > _MOST_ELEMENTS_AT_ALL:
        return []
    if is_composed(comparison.driver, comparison.case.descriptor):
        return [_wrong_part(comparison)]
    if verdict.reason in _OF_STRUCTURE:
        few = not all(has_values(bits(each), _LEAST_OF_A_CALL) for each in comparison.outputs)
        of_structure = _describe_wrong_structure(comparison, verdict)
        sentences = [of_structure or ("" if few else _explain(comparison, verdict, CALLS))]
    elif sure := _explain(comparison, verdict, SURE_RELATIONS):
        sentences = [sure]
    elif _has_enough_values(comparison, verdict):
        sentences = [_explain(comparison, verdict, RELATIONS)]
        if not any(sentences):
            # An ignored attribute or term is the cause; an output equal to an input is its effect, so it is tried last.
            multiple = _describe_ratio(comparison, verdict, describe_multiple)
            of_call = _explain(comparison, verdict, CALLS if multiple else NONLINEAR_CALLS)
            of_call = of_call or _explain(comparison, verdict, _COPIES)
            step = "" if of_call else _explain(comparison, verdict, (other_last_steps,))
            sentences = [step or multiple, of_call]
        if not any(sentences):
            shifted = _describe_ratio(comparison, verdict, describe_shift)
            sentences = [shifted or _describe_narrow(comparison, verdict) or _describe_second_call(comparison)]
    else:
        sentences = [_describe_constant(comparison)]
    return [sentence for sentence in sentences if sentence]


def _wrong_part(comparison: Comparison) -> str:
    """Describe the first call of a layer that is wrong by its own rule, or report that every call is right."""
    wrong: list[str] = []
    count = 0

    def run_part(part: TestCase, arrays: Sequence[Array]) -> Sequence[Array]:
        """Run a part with the backend, note it if it is wrong by its own rule, and return its outputs."""
        nonlocal count
        count += 1
        with comparison.clock.announced(RUN):
            answer = run_backend(part, comparison.driver, arrays, None, (), comparison.interrupted)
        if answer.fault is not None:
            raise answer.fault
        with comparison.clock.announced(REFERENCE):
            expected, _ = expected_outputs([part], arrays, None, comparison.driver, comparison.interrupted)
        of_part = comparison._replace(case=part, inputs=arrays, outputs=answer.outputs, expected=expected)
        if of_part.verdict().status is not Status.PASSED:
            wrong.append(f"call {count}, {part.identifier()}")
        return answer.outputs

    composed_outputs(comparison.case, comparison.driver, comparison.inputs, run_part)
    if not wrong:
        return f"each of the {count} calls of the layer is right by its own rule: small errors that add up, or a race"
    more = f", and {len(wrong) - 1} later ones" if wrong[1:] else ""
    return f"wrong by its own rule: {wrong[0]}{more}; check that operator"


def _elements(comparison: Comparison) -> int:
    return sum(array.size for array in (*comparison.inputs, *comparison.outputs))


def _is_right(comparison: Comparison, wrong: Verdict) -> bool:
    """Return whether every element is within its bound, and all errors together if only these are ``wrong``."""
    # All errors together may be too large: a kernel with a fault has roundings of its own.
    verdict = comparison.verdict(numerics=comparison.numerics)
    if verdict.status is Status.PASSED:
        return True
    if wrong.measures and not any(each.mismatched for each in wrong.measures):
        return False
    of_values = verdict.reason is Reason.VALUE and len(verdict.measures) == len(comparison.expected)
    return of_values and not any(each.mismatched or each.nonfinite_mismatched for each in verdict.measures)


def _has_enough_values(comparison: Comparison, verdict: Verdict) -> bool:
    """Return whether the wrong outputs have enough distinct and enough wrong values to exclude chance."""
    wrong = {measure.output: measure for measure in verdict.measures if measure.is_off}
    for output, expected in zip(comparison.outputs, comparison.expected, strict=True):
        if expected.name in wrong:
            if output.size < _LEAST_OF_A_CALL:
                if not _is_sure(comparison, wrong[expected.name]):
                    return False
                continue
            stored = bits(output)
            least = _LEAST_EXPLAINED if has_values(stored, _LEAST_VALUES) else _LEAST_WRONG
            # A count of 0: only the errors together are too large.
            if not has_values(stored, 2) or 0 < wrong[expected.name].mismatched < least:
                return False
    return bool(wrong)


def _is_sure(comparison: Comparison, measure: Measure) -> bool:
    """Return whether one wrong number is enough: far off, finite, not 0, computed from many elements."""
    is_summed = bool(comparison.inputs) and comparison.inputs[0].size >= _LEAST_SUMMED
    is_number = dtype(measure.dtype).is_float and not measure.nonfinite_mismatched and measure.worst_actual != 0
    return is_summed and is_number and (measure.worst_used is None or measure.worst_used >= _FAR_OFF)


def _describe_constant(comparison: Comparison) -> str:
    """Return a sentence if an output has the same value everywhere, though many values are expected; else ""."""
    for output, expected in zip(comparison.outputs, comparison.expected, strict=True):
        same = output.size >= _LEAST_WRONG and not has_values(bits(output), 2)
        if same and has_values(np.asarray(expected.value), _LEAST_VALUES):
            return f"every element of {expected.name} is {output.reshape(-1)[0]}"
    return ""


def _describe_wrong_structure(comparison: Comparison, verdict: Verdict) -> str:
    """Return a sentence if only the shape or only the dtype is wrong and the values are right; else ""."""
    if not all(map(_agrees_across_dtypes, comparison.outputs, comparison.expected)):
        return ""
    return f"the values are right, only the {'shape' if verdict.reason is Reason.SHAPE else 'dtype'} is wrong"


def _agrees_across_dtypes(output: Array, expected: Expected) -> bool:
    """Return whether the values agree in memory order: exactly for integers, else by rtol 2⁻⁷ and atol 1e-8."""
    # The rule of the operator is for the right dtype; 2⁻⁷ is a rounding of bfloat16, the coarsest that is likely.
    actual, value = np.asarray(output).reshape(-1), np.asarray(expected.value).reshape(-1)
    if actual.size != value.size:
        return False
    if actual.dtype.kind in "biu" and value.dtype.kind in "biu":
        return bool(np.array_equal(actual, value))
    return bool(np.allclose(actual.astype(np.complex128), value.astype(np.complex128), rtol=2.0**-7, equal_nan=True))


def _describe_ratio(comparison: Comparison, verdict: Verdict, look: Callable[..., str]) -> str:
    """Return the first sentence of ``look`` about a wrong output: a multiple of the right one, or shifted from it."""
    wrong = [index for index, measure in enumerate(verdict.measures) if measure.is_off]
    if len(verdict.measures) != len(comparison.expected):
        return ""
    for index in wrong if not any(verdict.measures[each].nonfinite_mismatched for each in wrong) else ():

        def fits(candidate: Expected, index: int = index) -> bool:
            # The other wrong outputs count as right: each output is explained for itself.
            expected = [
                _with_value(output, comparison.outputs[at]) if at in wrong else output
                for at, output in enumerate(comparison.expected)
            ]
            expected[index] = candidate
            return _is_right(comparison._replace(expected=expected), verdict)

        sentence = look(comparison.case, comparison.outputs[index], comparison.expected[index], fits)
        if sentence:
            return sentence if len(wrong) == 1 else f"{comparison.expected[index].name}: {sentence}"
    return ""


def _explain(comparison: Comparison, verdict: Verdict, table: Iterable[Callable[..., Any]]) -> str:
    """Describe the one or two hypotheses of ``table`` that explain the outputs; return "" for none or more.

    Hypotheses that fitted earlier failures are tried first, and all others only if none of them fits. Of hypotheses
    with the same outputs for this call, the one that explained more failures is named.
    """
    if BY_BACKEND in verdict.checks:
        return ""  # expected outputs of other calls are not known
    history = _history(comparison)
    off = [index for index, each in enumerate(verdict.measures) if each.is_off]
    wrong = WrongCall(comparison.case, comparison.inputs, comparison.outputs, comparison.expected, off)
    # Outputs of another shape have no distance to the expected ones.
    is_of_structure = verdict.reason in _OF_STRUCTURE
    distance = 0.0 if is_of_structure else sum(map(_distance, comparison.outputs, comparison.expected))
    # Time of this thread, so that a loaded machine has the same result as an idle one.
    until = thread_time() + _SEARCH_S
    elements = sum(each.size for each in comparison.outputs)
    fits: list[tuple[Hypothesis, Sequence[Expected]]] = []
    with comparison.clock.announced(REFERENCE):
        for is_search in (False, True):
            is_expensive = is_search and table in (CALLS, NONLINEAR_CALLS)
            if fits or (is_expensive and not history.begins_search(comparison, elements)):
                break
            for number, hypothesis in enumerate(each for build in table for each in build(wrong)):
                if number >= _MOST_CALLS or thread_time() > until:
                    break
                if is_search != (hypothesis.kind in history.fitting):
                    outputs = _outputs_if_fitting(comparison, verdict, hypothesis, distance)
                    fits += [] if outputs is None else [(hypothesis, outputs)]
    named: list[tuple[Hypothesis, Sequence[Expected]]] = []
    for hypothesis, outputs in sorted(fits, key=lambda each: -history.fitting[each[0].kind]):
        if not any(hypothesis.words == other.words or _are_equal(outputs, same) for other, same in named):
            named.append((hypothesis, outputs))
    if not 0 < len(named) <= (1 if elements < _LEAST_OF_A_CALL else _MOST_FITS):
        return ""
    history.fitting.update(hypothesis.kind for hypothesis, _ in named)
    words = "as if " + ", or ".join(hypothesis.words for hypothesis, _ in named)
    some = f", in {' and '.join(wrong.expected[at].name for at in off)} only"
    return words + some * (0 < len(off) < len(wrong.expected) and all(each.values is None for each, _ in named))


def _outputs_if_fitting(
    comparison: Comparison, verdict: Verdict, guess: Hypothesis, distance: float
) -> Sequence[Expected] | None:
    """Return the outputs that a hypothesis expects if the actual outputs match them, else None."""
    # ``distance`` is that of the actual outputs to those that the case expects.
    case, of_structure = guess.case, verdict.reason in _OF_STRUCTURE
    shapes = [each.shape for each in comparison.outputs]
    case_outputs, values = comparison.expected, guess.values
    expected: Sequence[Expected] | None = None
    if values is not None:
        unchanged = _outputs_of_hypothesis(comparison, guess, case) if guess.unless_seen else case_outputs
        if unchanged is None or not _are_equal(unchanged, case_outputs):
            return None
        expected = [_with_value(each, values[at]) if at in values else each for at, each in enumerate(case_outputs)]
        if not _is_nearer(comparison, expected, distance):
            return None
    elif not yields_shapes(guess, shapes):
        return None
    else:
        if of_structure:
            specs = [TensorSpec(dtype=dtype_of(each.dtype), shape=each.shape) for each in comparison.outputs]
            case = replace(case, outputs=tuple(specs))
        elif guess.first_only or guess.exchanged:
            case = replace(case, outputs=())
        # Values first: most hypotheses are far off, and the terms cost several times as much.
        for each in (replace(case, descriptor=replace(case.descriptor, terms=None)), case):
            off = [index for index, measure in enumerate(verdict.measures) if measure.is_off]
            expected = _outputs_of_hypothesis(comparison, guess, each, off)
            if expected is None or [np.shape(one.value) for one in expected] != shapes:
                return None
            if not of_structure and not _is_nearer(comparison, expected, distance):
                return None
    assert expected is not None
    with_other = comparison._replace(case=case, inputs=guess.inputs, expected=expected)
    return expected if _is_right(with_other, verdict) else None


def _with_value(expected: Expected, value: Array) -> Expected:
    """Return the expected output with another value, and with error terms that grow in proportion."""
    size, right = np.abs(_as_inexact(value)), np.abs(_as_inexact(expected.value))
    factor = np.where(np.isfinite(size) & (right > 0), np.maximum(1.0, size / right), 1.0)
    return replace(expected, value=value, terms=scale_terms(expected.terms, factor), alternatives=None)


def _outputs_of_hypothesis(
    comparison: Comparison, hypothesis: Hypothesis, case: TestCase, off: Sequence[int] = ()
) -> Sequence[Expected] | None:
    """Return the reference's outputs for the other call, None if it fails.

    If ``off`` names the wrong outputs, the others are those of the case.
    """
    expected = expected_of_other_inputs(case, hypothesis.inputs, comparison.driver, comparison.interrupted)
    if isinstance(expected, str) or len(expected) != len(comparison.expected):
        return None
    if hypothesis.first_only:
        changed, of_case = expected[0], comparison.expected
        first = replace(of_case[0], value=changed.value, terms=changed.terms, alternatives=changed.alternatives)
        return [first, *of_case[1:]]
    if hypothesis.exchanged:
        swapped = (np.swapaxes(each.value, *hypothesis.exchanged) for each in expected)
        pairs = zip(comparison.expected, swapped, strict=True)
        return [_with_value(right, other) if other.shape == right.shape else right for right, other in pairs]
    pairs = zip(comparison.expected, expected, strict=True)
    return [other if not off or at in off else right for at, (right, other) in enumerate(pairs)]


def _is_nearer(comparison: Comparison, expected: Sequence[Expected], distance: float) -> bool:
    """Return whether the outputs are clearly nearer to ``expected`` than ``distance``, that to the case's."""
    # A hypothesis that changes nothing explains nothing.
    return not distance or sum(map(_distance, comparison.outputs, expected)) <= _NEARER * distance


def _distance(output: Array, expected: Expected) -> float:
    """Return the sum of the squared errors of an output beyond the rounding to its dtype; infinite if one is NaN."""
    rounded = round_to(expected.value, expected.dtype) if expected.dtype.is_inexact else expected.value
    actual, right = _as_inexact(output), _as_inexact(rounded)
    same = (actual == right) | (np.isnan(actual) & np.isnan(right))
    total = float(np.sum(np.square(np.abs(np.where(same, 0.0, actual - right)))))
    return np.inf if np.isnan(total) else total


def _as_inexact(values: Any) -> Array:
    array = np.asarray(values)
    return array.astype(np.complex128 if array.dtype.kind == "c" else np.float64)


def _are_equal(left: Sequence[Expected], right: Sequence[Expected]) -> bool:
    """Return whether two lists of outputs differ by roundings of the reference only, as softmax of x and x + 1 do."""
    for pair in zip(left, right, strict=True):
        a, b = (np.asarray(each.value) for each in pair)
        if np.array_equal(a, b):
            continue
        if a.shape != b.shape or a.dtype.kind in "biu":
            return False
        largest = np.abs(a[np.isfinite(a)]).max(initial=0)
        if not np.allclose(_as_inexact(a), _as_inexact(b), rtol=_SAME, atol=_SAME * largest, equal_nan=True):
            return False
    return True


def _describe_narrow(comparison: Comparison, verdict: Verdict) -> str:
    """Return a sentence if values or errors of the first wrong output show a narrower dtype; else ""."""
    wrong = {measure.output for measure in verdict.measures if measure.is_off}
    is_elementwise = comparison.case.descriptor.category in ELEMENTWISE
    for output, expected in zip(comparison.outputs, comparison.expected, strict=True):
        if expected.name in wrong:
            if sentence := describe_narrower_dtype(output, expected) or describe_truncation(output, expected):
                return sentence
            if is_elementwise:
                return describe_error_size(output, expected)
            return _describe_narrow_sums(comparison, verdict)
    return ""


def _describe_narrow_sums(comparison: Comparison, wrong: Verdict) -> str:
    """Return a sentence if the errors are those of a narrower accumulator, neither larger nor far smaller; else ""."""
    if any(0 < each.mismatched < max(_LEAST_EXPLAINED, each.compared * _LEAST_SHARE) for each in wrong.measures):
        return ""
    # A budget of steps is a worst case, far above the errors that occur: only sums can be recognised by size.
    are_sums = all(isinstance(each.terms, Terms) for each in comparison.expected)
    if not are_sums or not all(map(errors_have_both_signs, comparison.outputs, comparison.expected)):
        return ""
    for name in ("float16", "bfloat16")["bfloat16" in map(str, comparison.case.dtypes) :]:
        verdict = comparison.verdict(numerics=replace(comparison.numerics, accumulator=name))
        sizes = [measure.statistic for measure in verdict.measures if measure.statistic is not None]
        if verdict.status is Status.PASSED and sizes and _SIZES_OF_SUMS[0] <= max(sizes) <= _SIZES_OF_SUMS[1]:
            return f"as if accumulated in {name}: errors as large as those of a backend that declares it"
    return ""


def _describe_second_call(comparison: Comparison) -> str:
    """Call the backend once more; return a sentence if it fails or has other bits, else ""."""
    # A driver that blames is called again anyway.
    case, driver, history = comparison.case, comparison.driver, _history(comparison)
    run_s = comparison.clock.timings().run_s
    may_vary = case.descriptor.is_random or isinstance(driver, Blames)
    if may_vary or history.varies is False or run_s is None or run_s > _QUICK_S:
        return ""
    history.varies = False
    layouts = [(each.name, TensorSpec(dtype=each.dtype, shape=each.shape)) for each in comparison.expected]
    with comparison.clock.announced(RUN):
        again = run_backend(case, driver, comparison.inputs, layouts, (), comparison.interrupted)
    if again.fault is not None:
        return f"another result when called once more: {again.fault.message.partition(chr(10))[0]}"
    for expected, first, second in zip(comparison.expected, comparison.outputs, again.outputs, strict=True):
        if first.shape == second.shape and first.dtype == second.dtype:
            history.varies = bool(differ := np.count_nonzero(bits(first) != bits(second)))
            if differ:
                where = f"{differ} of {first.size} elements of {expected.name} differ"
                return f"another result when called once more ({where}): a race, or memory that was never written"
    return ""


def _history(comparison: Comparison) -> _History:
    """Return the history of the case's operator and backend configuration with this driver."""
    of_driver, case = _histories.setdefault(comparison.driver, {}), comparison.case
    return of_driver.setdefault((case.descriptor.name, repr(case.backend_config)), _History())
