"""What a wrong answer is: a multiple of the right one, the right one of another call, a narrower dtype's, or another
each time.

Whatever is said fits every element by the case's own rule; where nothing fits, nothing is said.
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
from optest.core.actual import ask_backend
from optest.core.border import Border
from optest.core.comparison import Comparison
from optest.core.error_patterns import (
    RELATIONS,
    SURE_RELATIONS,
    as_multiple,
    as_shifted,
    cut_off,
    errors_are_on_both_sides,
    errors_of_a_step,
    has_values,
    held_by_a_narrower_dtype,
    other_last_step,
    returned_inputs,
    terms_scaled,
)
from optest.core.expected import BY_BACKEND, expected_of_other_inputs, expected_outputs
from optest.core.layers import composed_outputs, is_composed
from optest.core.operands import ELEMENTWISE
from optest.core.other_calls import CALLS, NONLINEAR_CALLS, Hypothesis, WrongCall, yields_shapes
from optest.core.phases import REFERENCE, RUN
from optest.numerics import bits, dtype_of, round_to
from optest.spec import Check, CheckState, Fault, Measure, Reason, Status, TensorSpec, Terms, TestCase, Verdict, dtype

Array = np.ndarray[Any, Any]

_OF_STRUCTURE = (Reason.SHAPE, Reason.DTYPE)
_REASONS = frozenset({Reason.VALUE, Reason.NAN, *_OF_STRUCTURE})
_MOST_ELEMENTS = 1 << 17
"""Of inputs and outputs together, for a search: a reference takes milliseconds for as many."""
_MOST_ELEMENTS_AT_ALL = 1 << 20
"""Beyond the first limit what fitted smaller cases is tried, beyond this one nothing."""
_SEARCHES = 12
"""Failures of an operator for which every other call is tried; after these, the calls that fitted one of them."""
_SEARCHES_OF_A_DTYPE = 4
"""Of these, so many of one dtype: what roundings hide in one shows in another, in integers above all."""
_FEW_ELEMENTS = 24
"""Outputs with fewer have a separate number of searches: much fits them by chance, and they take no time."""
_SEARCH_S = 0.5
"""For one failure: a search is cut off after the reference that ends later."""
_MOST_CALLS = 400
_MOST_FITS = 2
"""Where more calls fit than these, none of them says much."""
_LEAST_VALUES = 4
"""Different values that an output needs: two or three of them agree with something by chance."""
_LEAST_OF_A_CALL = 5
"""Least number of elements of an output: with fewer, some hypothesis agrees by chance."""
_FAR_OFF = 1e3
_LEAST_SUMMED = 16
"""One element is enough for a hypothesis if it is this many times its bound off, and computed from so many elements:
from one or two, many calls have the same result."""
_LEAST_WRONG = 8
"""Wrong elements of an output with fewer values than that: eight of two values agree by chance once in 256 times."""
_LEAST_EXPLAINED = 3
"""Wrong elements at all: one or two are as often infinite, zero, or rounded otherwise, for another reason."""
_LEAST_SHARE = 0.05
"""Of all elements that are wrong where an arithmetic is too narrow: it rounds every one."""
_SIZES_OF_SUMS = (0.2, 1.25)
"""Of what the rule of a narrower accumulator expects of all errors together. The rule allows more where few values
say little; but nothing beyond is explained by it."""
_NEARER = 0.25
"""Of the sum of squared errors: another call explains an answer if its errors are half as large, or less."""
_SAME = 2.0**-36
"""Differences of two references, in units of the result or of the largest one, that are roundings in float64."""
_COPIES = (returned_inputs,)
_QUICK_S = 0.1
"""A backend that took no longer is called once more."""


@dataclass(slots=True)
class _History:
    """What was tried for the failures of one operator, by one driver in one process."""

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


def diagnosed(comparison: Comparison, verdict: Verdict) -> Verdict:
    """``verdict`` with what fits it as the ``diagnosis`` among its details; whatever fails here becomes a check."""
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
    """One sentence, or two that both fit."""
    if _elements(comparison) > _MOST_ELEMENTS_AT_ALL:
        return []
    if is_composed(comparison.driver, comparison.case.descriptor):
        return [_of_parts(comparison)]
    if verdict.reason in _OF_STRUCTURE:
        few = not all(has_values(bits(each), _LEAST_OF_A_CALL) for each in comparison.outputs)
        sentences = [_right_values(comparison, verdict) or ("" if few else _by_hypotheses(comparison, verdict, CALLS))]
    elif sure := _by_hypotheses(comparison, verdict, SURE_RELATIONS):
        sentences = [sure]
    elif _can_tell(comparison, verdict):
        sentences = [_by_hypotheses(comparison, verdict, RELATIONS)]
        if not any(sentences):
            # An ignored attribute or term is the cause, an output that therefore equals an input only its effect.
            multiple = _multiple(comparison, verdict, as_multiple)
            of_call = _by_hypotheses(comparison, verdict, CALLS if multiple else NONLINEAR_CALLS)
            of_call = of_call or _by_hypotheses(comparison, verdict, _COPIES)
            step = "" if of_call else _by_hypotheses(comparison, verdict, (other_last_step,))
            sentences = [step or multiple, of_call]
        if not any(sentences):
            sentences = [
                _multiple(comparison, verdict, as_shifted) or _narrow(comparison, verdict) or _called_again(comparison)
            ]
    else:
        sentences = [_constant(comparison)]
    return [sentence for sentence in sentences if sentence]


def _of_parts(comparison: Comparison) -> str:
    """Which part of a layer is wrong by its own rule, for the inputs that it gets from the parts before it."""
    wrong: list[str] = []
    count = 0

    def ask(part: TestCase, arrays: Sequence[Array]) -> Sequence[Array]:
        nonlocal count
        count += 1
        with comparison.clock.announced(RUN):
            answer = ask_backend(part, comparison.driver, arrays, None, (), comparison.interrupted)
        if answer.fault is not None:
            raise answer.fault
        with comparison.clock.announced(REFERENCE):
            expected, _ = expected_outputs([part], arrays, None, comparison.driver, comparison.interrupted)
        of_part = comparison._replace(case=part, inputs=arrays, outputs=answer.outputs, expected=expected)
        if of_part.judged().status is not Status.PASSED:
            wrong.append(f"call {count}, {part.identifier()}")
        return answer.outputs

    composed_outputs(comparison.case, comparison.driver, comparison.inputs, ask)
    if not wrong:
        return f"each of the {count} calls of the layer is right by its own rule: small errors that add up, or a race"
    more = f", and {len(wrong) - 1} later ones" if wrong[1:] else ""
    return f"wrong by its own rule is {wrong[0]}{more}: check that operator"


def _elements(comparison: Comparison) -> int:
    return sum(array.size for array in (*comparison.inputs, *comparison.outputs))


def _is_right(comparison: Comparison, wrong: Verdict) -> bool:
    """Whether every element is within its bound.

    All errors together may be larger: a kernel with a fault has roundings of its own. But not where they alone are
    ``wrong``.
    """
    verdict = comparison.judged(numerics=comparison.numerics)
    if verdict.status is Status.PASSED:
        return True
    if wrong.measures and not any(each.mismatched for each in wrong.measures):
        return False
    of_values = verdict.reason is Reason.VALUE and len(verdict.measures) == len(comparison.expected)
    return of_values and not any(each.mismatched or each.nonfinite_mismatched for each in verdict.measures)


def _can_tell(comparison: Comparison, verdict: Verdict) -> bool:
    """Whether the wrong outputs have enough values for an agreement to be no chance."""
    wrong = {measure.output: measure for measure in verdict.measures if measure.is_off}
    for output, expected in zip(comparison.outputs, comparison.expected, strict=True):
        if expected.name in wrong:
            if output.size < _LEAST_OF_A_CALL:
                if not _is_sure(comparison, wrong[expected.name]):
                    return False
                continue
            stored = bits(output)
            is_constant, has_few = not has_values(stored, 2), not has_values(stored, _LEAST_VALUES)
            count = wrong[expected.name].mismatched
            if is_constant or 0 < count < (_LEAST_WRONG if has_few else _LEAST_EXPLAINED):
                return False
    return bool(wrong)


def _is_sure(comparison: Comparison, measure: Measure) -> bool:
    """Return whether one number is enough for a hypothesis: far off, finite, not 0, and computed from many elements."""
    is_summed = bool(comparison.inputs) and comparison.inputs[0].size >= _LEAST_SUMMED
    is_number = dtype(measure.dtype).is_float and not measure.nonfinite_mismatched and measure.worst_actual != 0
    return is_summed and is_number and (measure.worst_used is None or measure.worst_used >= _FAR_OFF)


def _constant(comparison: Comparison) -> str:
    """One value in place of many; nothing else can be told of that."""
    for output, expected in zip(comparison.outputs, comparison.expected, strict=True):
        same = output.size >= _LEAST_WRONG and not has_values(bits(output), 2)
        if same and has_values(np.asarray(expected.value), _LEAST_VALUES):
            return f"every element of {expected.name} is {output.reshape(-1)[0]}"
    return ""


def _right_values(comparison: Comparison, verdict: Verdict) -> str:
    """Of a wrong shape or dtype: whether the values are those that were expected."""
    made = []
    for output, wanted in zip(comparison.outputs, comparison.expected, strict=True):
        if output.size != np.prod(wanted.shape, dtype=np.int64):
            return ""
        made.append(TensorSpec(dtype=dtype_of(output.dtype), shape=output.shape))
    expected = [
        replace(wanted, shape=spec.shape, dtype=spec.dtype, value=np.reshape(wanted.value, spec.shape), terms=None)
        for wanted, spec in zip(comparison.expected, made, strict=True)
    ]
    same = all(_is_close(output, wanted) for output, wanted in zip(comparison.outputs, expected, strict=True))
    which = "shape" if verdict.reason is Reason.SHAPE else "dtype"
    return f"the values are right, the {which} alone is not" if same else ""


def _is_close(output: Array, expected: Expected) -> bool:
    """Right but for roundings, of whichever of the two dtypes is the narrower; the rule holds for the right one."""
    got, value = np.asarray(output), np.asarray(expected.value)
    if got.dtype.kind in "biu" and value.dtype.kind in "biu":
        return bool(np.array_equal(got, value))
    return bool(np.allclose(got.astype(np.complex128), value.astype(np.complex128), rtol=2.0**-7, equal_nan=True))


def _multiple(comparison: Comparison, verdict: Verdict, look: Callable[..., str]) -> str:
    """Return what ``look`` finds in the first wrong output that is a multiple of the right one, or shifted from it."""
    wrong = [place for place, measure in enumerate(verdict.measures) if measure.is_off]
    if len(verdict.measures) != len(comparison.expected):
        return ""
    for place in wrong if not any(verdict.measures[each].nonfinite_mismatched for each in wrong) else ():

        def fits(other: Expected, place: int = place) -> bool:
            expected = [
                _with_value(each, comparison.outputs[at]) if at in wrong else each
                for at, each in enumerate(comparison.expected)
            ]
            expected[place] = other
            return _is_right(comparison._replace(expected=expected), verdict)

        sentence = look(comparison.case, comparison.outputs[place], comparison.expected[place], fits)
        if sentence:
            return sentence if len(wrong) == 1 else f"{comparison.expected[place].name}: {sentence}"
    return ""


def _by_hypotheses(comparison: Comparison, verdict: Verdict, table: Iterable[Callable[..., Any]]) -> str:
    """Describe the one or two hypotheses that explain the outputs: of those that fitted earlier failures, else of all.

    Of hypotheses that expect the same of this call, the one that explained more failures is named.
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
            is_dear = is_search and table in (CALLS, NONLINEAR_CALLS)
            if fits or (is_dear and not history.begins_search(comparison, elements)):
                break
            for number, hypothesis in enumerate(each for build in table for each in build(wrong)):
                if number >= _MOST_CALLS or thread_time() > until:
                    break
                if is_search != (hypothesis.kind in history.fitting):
                    outputs = _fit_of(comparison, verdict, hypothesis, distance)
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


def _fit_of(comparison: Comparison, verdict: Verdict, guess: Hypothesis, distance: float) -> Sequence[Expected] | None:
    """Return the expected outputs of a hypothesis if the actual ones match; ``distance`` is theirs to the case's."""
    case, of_structure = guess.case, verdict.reason in _OF_STRUCTURE
    shapes = [each.shape for each in comparison.outputs]
    case_outputs, values = comparison.expected, guess.values
    expected: Sequence[Expected] | None = None
    if values is not None:
        unchanged = _expected_of(comparison, guess, case) if guess.unless_seen else case_outputs
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
            expected = _expected_of(comparison, guess, each, off)
            if expected is None or [np.shape(one.value) for one in expected] != shapes:
                return None
            if not of_structure and not _is_nearer(comparison, expected, distance):
                return None
    assert expected is not None
    with_other = comparison._replace(case=case, inputs=guess.inputs, expected=expected)
    return expected if _is_right(with_other, verdict) else None


def _with_value(expected: Expected, value: Array) -> Expected:
    """Return the expected output with another value, and with error terms that grow in proportion."""
    size, right = np.abs(_number(value)), np.abs(_number(expected.value))
    factor = np.where(np.isfinite(size) & (right > 0), np.maximum(1.0, size / right), 1.0)
    return replace(expected, value=value, terms=terms_scaled(expected.terms, factor), alternatives=None)


def _expected_of(
    comparison: Comparison, hypothesis: Hypothesis, case: TestCase, off: Sequence[int] = ()
) -> Sequence[Expected] | None:
    """Return the reference's outputs for another call, None if it fails; if ``off`` names the wrong outputs, the others
    are those of the case."""
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
    """Return whether the outputs are clearly nearer to ``expected`` than to the outputs that the case expects, whose
    ``distance`` is given: a hypothesis that changes nothing explains nothing."""
    return not distance or sum(map(_distance, comparison.outputs, expected)) <= _NEARER * distance


def _distance(output: Array, expected: Expected) -> float:
    """The sum of the squared errors of an output, beyond the rounding to its dtype; infinite where one is."""
    rounded = round_to(expected.value, expected.dtype) if expected.dtype.is_inexact else expected.value
    got, right = _number(output), _number(rounded)
    same = (got == right) | (np.isnan(got) & np.isnan(right))
    total = float(np.sum(np.square(np.abs(np.where(same, 0.0, got - right)))))
    return np.inf if np.isnan(total) else total


def _number(values: Any) -> Array:
    array = np.asarray(values)
    return array.astype(np.complex128 if array.dtype.kind == "c" else np.float64)


def _are_equal(one: Sequence[Expected], other: Sequence[Expected]) -> bool:
    """Return whether two calls differ by roundings of the reference only, as softmax of x and of x + 1 do."""
    for pair in zip(one, other, strict=True):
        values, others = (np.asarray(each.value) for each in pair)
        if np.array_equal(values, others):
            continue
        if values.shape != others.shape or values.dtype.kind in "biu":
            return False
        largest = np.abs(values[np.isfinite(values)]).max(initial=0)
        if not np.allclose(_number(values), _number(others), rtol=_SAME, atol=_SAME * largest, equal_nan=True):
            return False
    return True


def _narrow(comparison: Comparison, verdict: Verdict) -> str:
    """Of the first wrong output: whether a narrower dtype shows in its values, or in the size of its errors."""
    wrong = {measure.output for measure in verdict.measures if measure.is_off}
    is_elementwise = comparison.case.descriptor.category in ELEMENTWISE
    for output, expected in zip(comparison.outputs, comparison.expected, strict=True):
        if expected.name in wrong:
            if sentence := held_by_a_narrower_dtype(output, expected) or cut_off(output, expected):
                return sentence
            return errors_of_a_step(output, expected) if is_elementwise else _narrow_sums(comparison, verdict)
    return ""


def _narrow_sums(comparison: Comparison, wrong: Verdict) -> str:
    """Whether the errors are those of a narrower accumulator, neither larger nor far smaller. A budget of steps is the
    worst that may happen, and allows far more than they do."""
    if any(0 < each.mismatched < max(_LEAST_EXPLAINED, each.compared * _LEAST_SHARE) for each in wrong.measures):
        return ""
    are_sums = all(isinstance(each.terms, Terms) for each in comparison.expected)
    if not are_sums or not all(map(errors_are_on_both_sides, comparison.outputs, comparison.expected)):
        return ""
    for name in ("float16", "bfloat16")["bfloat16" in map(str, comparison.case.dtypes) :]:
        verdict = comparison.judged(numerics=replace(comparison.numerics, accumulator=name))
        sizes = [measure.statistic for measure in verdict.measures if measure.statistic is not None]
        if verdict.status is Status.PASSED and sizes and _SIZES_OF_SUMS[0] <= max(sizes) <= _SIZES_OF_SUMS[1]:
            return f"as if accumulated in {name}: errors as large as those of a backend that declares it"
    return ""


def _called_again(comparison: Comparison) -> str:
    """Whether the backend answers otherwise when it is called once more; those who look for blame call it anyway."""
    case, driver, history = comparison.case, comparison.driver, _history(comparison)
    run_s = comparison.clock.timings().run_s
    may_vary = case.descriptor.is_random or isinstance(driver, Blames)
    if may_vary or history.varies is False or run_s is None or run_s > _QUICK_S:
        return ""
    history.varies = False
    layouts = [(each.name, TensorSpec(dtype=each.dtype, shape=each.shape)) for each in comparison.expected]
    with comparison.clock.announced(RUN):
        again = ask_backend(case, driver, comparison.inputs, layouts, (), comparison.interrupted)
    if again.fault is not None:
        return f"another answer when called once more: {again.fault.message.partition(chr(10))[0]}"
    for expected, one, other in zip(comparison.expected, comparison.outputs, again.outputs, strict=True):
        if one.shape == other.shape and one.dtype == other.dtype:
            history.varies = bool(differ := np.count_nonzero(bits(one) != bits(other)))
            if differ:
                where = f"{differ} of {one.size} elements of {expected.name} differ"
                return f"another answer when called once more ({where}): a race, or memory that was never written"
    return ""


def _history(comparison: Comparison) -> _History:
    of_driver, case = _histories.setdefault(comparison.driver, {}), comparison.case
    return of_driver.setdefault((case.descriptor.name, repr(case.backend_config)), _History())
