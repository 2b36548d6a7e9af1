"""What a wrong answer is: a multiple of the right one, the right one of another call, a narrower dtype's, or another
each time.

Whatever is said fits every element by the case's own rule; where nothing fits, nothing is said.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from time import perf_counter
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np

from optest.backends import BackendDriver, declared_numerics
from optest.backends.abilities import Blames
from optest.compare import Expected
from optest.compare.verdict import judge
from optest.core.actual import ask_backend
from optest.core.border import Border
from optest.core.error_patterns import (
    as_multiple,
    as_shifted,
    cut_off,
    errors_are_on_both_sides,
    errors_of_a_step,
    held_by_a_narrower_dtype,
)
from optest.core.expected import BY_BACKEND, expected_of_other_inputs
from optest.core.other_calls import OtherCall, other_calls
from optest.core.phases import REFERENCE, RUN, Clock
from optest.core.worst_operands import ELEMENTWISE
from optest.numerics import bits, dtype_of
from optest.spec import Check, CheckState, Fault, Reason, Status, TensorSpec, TestCase, Verdict

__all__ = ["diagnosed"]

Array = np.ndarray[Any, Any]

_REASONS = frozenset({Reason.VALUE, Reason.NAN, Reason.SHAPE, Reason.DTYPE})
_MOST_ELEMENTS = 1 << 17
"""Of inputs and outputs together, for a search: a reference takes milliseconds for as many."""
_MOST_ELEMENTS_AT_ALL = 1 << 20
"""Beyond the first limit what fitted smaller cases is tried, beyond this one nothing."""
_SEARCHES = 12
"""Failures of an operator for which every other call is tried; after these, the calls that fitted one of them."""
_SEARCHES_OF_A_DTYPE = 4
"""Of these, so many of one dtype: what roundings hide in one shows in another, in integers above all."""
_SEARCH_S = 0.5
"""For one failure: a search is cut off after the reference that ends later."""
_MOST_CALLS = 80
_MOST_FITS = 2
"""Where more calls fit than these, none of them says much."""
_LEAST_VALUES = 4
"""Different values that an output needs: two or three of them agree with something by chance."""
_LEAST_WRONG = 8
"""Wrong elements of an output with fewer values than that: eight of two values agree by chance once in 256 times."""
_LEAST_OF_SUMS = 0.2
"""Of what the rule of a narrower accumulator expects of all errors together; less is of another size."""
_NEARER = 0.25
"""Of the sum of squared errors: another call explains an answer if its errors are half as large, or less."""
_QUICK_S = 0.1
"""A backend that took no longer is called once more."""


@dataclass(slots=True)
class _History:
    """What was tried for the failures of one operator, by one driver in one process."""

    searches: Counter[str] = field(default_factory=Counter)
    varies: bool | None = None
    fitting: set[str] = field(default_factory=set)

    def begins_search(self, case: TestCase) -> bool:
        """Whether another failure may be searched; it is counted."""
        kind = case.inputs[0].spec.dtype.name if case.inputs else ""
        if self.searches.total() >= _SEARCHES or self.searches[kind] >= _SEARCHES_OF_A_DTYPE:
            return False
        self.searches[kind] += 1
        return True


_histories: WeakKeyDictionary[BackendDriver, dict[str, _History]] = WeakKeyDictionary()


@dataclass(frozen=True, slots=True, kw_only=True)
class _Failure:
    case: TestCase
    driver: BackendDriver
    inputs: Sequence[Array]
    outputs: Sequence[Array]
    expected: Sequence[Expected]
    verdict: Verdict
    clock: Clock
    interrupted: Callable[[], bool] | None

    @property
    def elements(self) -> int:
        return sum(array.size for array in (*self.inputs, *self.outputs))

    def is_right_for(
        self, expected: Sequence[Expected], case: TestCase | None = None, inputs: Sequence[Array] | None = None
    ) -> bool:
        """Whether every element is within its bound where something else is expected, by the rule of the case.

        All errors together may be larger: a kernel with a fault has roundings of its own.
        """
        judged, given = case or self.case, self.inputs if inputs is None else inputs
        numerics = declared_numerics(self.driver, self.case)
        verdict = judge(judged, self.outputs, expected, numerics=numerics, inputs=given)
        if verdict.status is Status.PASSED:
            return True
        of_values = verdict.reason is Reason.VALUE and len(verdict.measures) == len(expected)
        return of_values and not any(each.mismatched or each.nonfinite_mismatched for each in verdict.measures)


def diagnosed(
    case: TestCase,
    driver: BackendDriver,
    inputs: Sequence[Array],
    outputs: Sequence[Any],
    expected: Sequence[Expected],
    verdict: Verdict,
    *,
    clock: Clock,
    interrupted: Callable[[], bool] | None,
) -> Verdict:
    """``verdict`` with what fits it as the ``diagnosis`` among its details; whatever fails here becomes a check."""
    if verdict.status is not Status.FAILED or verdict.reason not in _REASONS or len(outputs) != len(expected):
        return verdict
    if not all(isinstance(each, np.ndarray) and each.size for each in outputs):
        return verdict
    failure = _Failure(
        case=case,
        driver=driver,
        inputs=inputs,
        outputs=outputs,
        expected=expected,
        verdict=verdict,
        clock=clock,
        interrupted=interrupted,
    )
    try:
        with Border("the diagnosis", Reason.INTERNAL, interrupted), np.errstate(all="ignore"):
            sentences = _diagnosis(failure)
    except Fault as fault:
        note = Check(name="diagnosis", state=CheckState.INCONCLUSIVE, detail=fault.message)
        return replace(verdict, checks=(*verdict.checks, note))
    return replace(verdict, details={**verdict.details, "diagnosis": sentences}) if sentences else verdict


def _diagnosis(failure: _Failure) -> list[str]:
    """One sentence, or two that both fit."""
    if failure.elements > _MOST_ELEMENTS_AT_ALL:
        return []
    if failure.verdict.reason in (Reason.SHAPE, Reason.DTYPE):
        sentences = [_right_values(failure) or _of_other_call(failure)]
    elif _can_tell(failure):
        sentences = [_multiple(failure, as_multiple), _of_other_call(failure)]
        if not any(sentences):
            sentences = [_multiple(failure, as_shifted) or _narrow(failure) or _called_again(failure)]
    else:
        sentences = [_constant(failure)]
    return [sentence for sentence in sentences if sentence]


def _can_tell(failure: _Failure) -> bool:
    """Whether the wrong outputs have enough values for an agreement to be no chance."""
    wrong = {measure.output: measure for measure in failure.verdict.measures if measure.is_off}
    for output, expected in zip(failure.outputs, failure.expected, strict=True):
        if expected.name in wrong:
            values = np.unique(bits(output)).size
            if values < 2 or (values < _LEAST_VALUES and wrong[expected.name].mismatched < _LEAST_WRONG):
                return False
    return bool(wrong)


def _constant(failure: _Failure) -> str:
    """One value in place of many; nothing else can be told of that."""
    for output, expected in zip(failure.outputs, failure.expected, strict=True):
        same = output.size >= 2 * _LEAST_VALUES and np.unique(bits(output)).size == 1
        if same and np.unique(np.asarray(expected.value)).size >= _LEAST_VALUES:
            return f"every element of {expected.name} is {output.reshape(-1)[0]}"
    return ""


def _right_values(failure: _Failure) -> str:
    """Of a wrong shape or dtype: whether the values are those that were expected."""
    made = []
    for output, wanted in zip(failure.outputs, failure.expected, strict=True):
        if output.size != np.prod(wanted.shape, dtype=np.int64):
            return ""
        made.append(TensorSpec(dtype=dtype_of(output.dtype), shape=output.shape))
    expected = [
        replace(wanted, shape=spec.shape, dtype=spec.dtype, value=np.reshape(wanted.value, spec.shape), terms=None)
        for wanted, spec in zip(failure.expected, made, strict=True)
    ]
    same = all(_is_close(output, wanted) for output, wanted in zip(failure.outputs, expected, strict=True))
    which = "shape" if failure.verdict.reason is Reason.SHAPE else "dtype"
    return f"the values are right, the {which} alone is not" if same else ""


def _is_close(output: Array, expected: Expected) -> bool:
    """Right but for roundings, of whichever of the two dtypes is the narrower; the rule holds for the right one."""
    got, value = np.asarray(output), np.asarray(expected.value)
    if got.dtype.kind in "biu" and value.dtype.kind in "biu":
        return bool(np.array_equal(got, value))
    return bool(np.allclose(got.astype(np.complex128), value.astype(np.complex128), rtol=2.0**-7, equal_nan=True))


def _multiple(failure: _Failure, look: Callable[..., str]) -> str:
    """Of the one output that is wrong: whether it is a multiple of the right one, or lies beside it."""
    wrong = [place for place, measure in enumerate(failure.verdict.measures) if measure.is_off]
    if len(wrong) != 1 or len(failure.verdict.measures) != len(failure.expected):
        return ""
    if failure.verdict.measures[wrong[0]].nonfinite_mismatched:
        return ""

    def fits(other: Expected) -> bool:
        expected = list(failure.expected)
        expected[wrong[0]] = other
        return failure.is_right_for(expected)

    return look(failure.case, failure.outputs[wrong[0]], failure.expected[wrong[0]], fits)


def _of_other_call(failure: _Failure) -> str:
    """Another call to which the outputs are the right answer."""
    if BY_BACKEND in failure.verdict.checks:
        return ""  # nobody knows what is right for another call
    history = _history(failure)
    words_of: dict[str, str] = {}
    answers: list[Sequence[Expected]] = []
    known = set(history.fitting)
    searches = failure.elements <= _MOST_ELEMENTS and history.begins_search(failure.case)
    until = perf_counter() + _SEARCH_S
    calls = other_calls(failure.case, failure.inputs, failure.outputs)
    with failure.clock.announced(REFERENCE):
        for number, other in enumerate(calls):
            if number >= _MOST_CALLS or perf_counter() > until:
                break
            if not searches and other.kind not in known:
                continue
            answer = _answer_to(failure, other)
            if answer is not None and not any(_are_equal(answer, each) for each in answers):
                answers.append(answer)
                words_of[other.kind] = other.words
    if not 0 < len(words_of) <= _MOST_FITS:
        return ""
    history.fitting.update(words_of)
    return "as if " + ", or ".join(words_of.values())


def _answer_to(failure: _Failure, other: OtherCall) -> Sequence[Expected] | None:
    """What is expected of another call, if that is what the outputs are."""
    case = other.case
    if failure.verdict.reason in (Reason.SHAPE, Reason.DTYPE):
        made = [TensorSpec(dtype=dtype_of(each.dtype), shape=each.shape) for each in failure.outputs]
        case = replace(case, outputs=tuple(made))
    expected = expected_of_other_inputs(case, other.inputs, failure.driver, failure.interrupted)
    if isinstance(expected, str) or len(expected) != len(failure.outputs):
        return None
    is_right = failure.is_right_for(expected, case, other.inputs) and _is_nearer(failure, expected)
    return expected if is_right else None


def _is_nearer(failure: _Failure, expected: Sequence[Expected]) -> bool:
    """Whether the outputs lie clearly nearer to this than to what the case expects: a change that changes nothing, or
    less than the fault does, explains nothing."""
    if failure.verdict.reason in (Reason.SHAPE, Reason.DTYPE):
        return True
    own = sum(map(_distance, failure.outputs, failure.expected))
    return not own or sum(map(_distance, failure.outputs, expected)) <= _NEARER * own


def _distance(output: Array, expected: Expected) -> float:
    """The sum of the squared errors of an output, infinite where one is."""
    got, right = _number(output), _number(expected.value)
    same = (got == right) | (np.isnan(got) & np.isnan(right))
    total = float(np.sum(np.square(np.abs(np.where(same, 0.0, got - right)))))
    return np.inf if np.isnan(total) else total


def _number(values: Any) -> Array:
    array = np.asarray(values)
    return array.astype(np.complex128 if array.dtype.kind == "c" else np.float64)


def _are_equal(one: Sequence[Expected], other: Sequence[Expected]) -> bool:
    pairs = zip(one, other, strict=True)
    return all(np.array_equal(np.asarray(left.value), np.asarray(right.value)) for left, right in pairs)


def _narrow(failure: _Failure) -> str:
    """Of the first wrong output: whether a narrower dtype shows in its values, or in the size of its errors."""
    wrong = {measure.output for measure in failure.verdict.measures if measure.is_off}
    is_elementwise = failure.case.descriptor.category in ELEMENTWISE
    for output, expected in zip(failure.outputs, failure.expected, strict=True):
        if expected.name in wrong:
            sentence = held_by_a_narrower_dtype(output, expected) or cut_off(output, expected)
            return sentence or (errors_of_a_step(output, expected) if is_elementwise else _narrow_sums(failure))
    return ""


def _narrow_sums(failure: _Failure) -> str:
    """Whether the errors are those of a narrower accumulator, neither larger nor far smaller."""
    numerics = declared_numerics(failure.driver, failure.case)
    for name in ("float16", "bfloat16"):
        declared = replace(numerics, accumulator=name)
        verdict = judge(failure.case, failure.outputs, failure.expected, numerics=declared, inputs=failure.inputs)
        sizes = [measure.statistic for measure in verdict.measures if measure.statistic is not None]
        are_roundings = all(map(errors_are_on_both_sides, failure.outputs, failure.expected))
        if are_roundings and verdict.status is Status.PASSED and sizes and max(sizes) >= _LEAST_OF_SUMS:
            return f"as if accumulated in {name}: errors as large as those of a backend that declares it"
    return ""


def _called_again(failure: _Failure) -> str:
    """Whether the backend answers otherwise when it is called once more; those who look for blame call it anyway."""
    case, driver, history = failure.case, failure.driver, _history(failure)
    run_s = failure.clock.timings().run_s
    if isinstance(driver, Blames) or history.varies is False or run_s is None or run_s > _QUICK_S:
        return ""
    history.varies = False
    layouts = [(each.name, TensorSpec(dtype=each.dtype, shape=each.shape)) for each in failure.expected]
    with failure.clock.announced(RUN):
        again = ask_backend(case, driver, failure.inputs, layouts, (), failure.interrupted)
    if again.fault is not None:
        return f"another answer when called once more: {again.fault.message.partition(chr(10))[0]}"
    for expected, one, other in zip(failure.expected, failure.outputs, again.outputs, strict=True):
        if one.shape == other.shape and one.dtype == other.dtype:
            history.varies = bool(differ := np.count_nonzero(bits(one) != bits(other)))
            if differ:
                where = f"{differ} of {one.size} elements of {expected.name} differ"
                return f"another answer when called once more ({where}): a race, or memory that was never written"
    return ""


def _history(failure: _Failure) -> _History:
    return _histories.setdefault(failure.driver, {}).setdefault(failure.case.descriptor.name, _History())
