"""Invariants: faults that further calls of a kernel show, with and without a reference."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import core_kit
import numpy as np
import pytest
from core_kit import Kernel, case_of, spec_of, values_of, verdict_of

from optest.backends import BackendDriver, ExtraOutput
from optest.errors import UnknownName, UsageError
from optest.spec import (
    CheckState,
    Evidence,
    Fill,
    OperatorDescriptor,
    Reason,
    Rule,
    RuleClass,
    Status,
    TestCase,
    Verdict,
)
from optest.spec.invariants import INVARIANTS

CLOSE = Rule(kind=RuleClass.CLOSE, source="torch.testing")


def softmax(x: Any) -> Any:
    powers = np.exp(x - x.max(-1, keepdims=True))
    return powers / powers.sum(-1, keepdims=True)


class WithState:
    """Kernel that adds a part of its former input."""

    def __init__(self) -> None:
        self.before = 0.0

    def __call__(self, x: Any) -> Any:
        out = softmax(x) + x.dtype.type(self.before)
        self.before = float(x.flat[0])
        return out


class KeepsFirst:
    """Kernel that always returns its first result."""

    def __init__(self) -> None:
        self.first: Any = None

    def __call__(self, x: Any) -> Any:
        self.first = softmax(x) if self.first is None else self.first
        return self.first


def over_the_batch(x: Any) -> Any:
    return softmax(x.T).T


def last_element_wrong(x: Any) -> Any:
    out = softmax(x)
    out[-1] *= x.dtype.type(1.25)
    return out


def by_place(x: Any) -> Any:
    """Return wrong results at 1 and 3 of five elements, neither the first, nor the middle, nor the last."""
    out = softmax(x)
    out[1::2] *= x.dtype.type(1.25)
    return out


class Calls(core_kit.Calls):
    reads_inputs = False


def unknown(*invariants: str, signature: str = "x -> out", **more: Any) -> OperatorDescriptor:
    """Return an operator without a reference."""
    return OperatorDescriptor(name="mine", signature=signature, invariants=invariants, **more)


def verdict(kernel: Kernel, case: TestCase) -> Verdict:
    return verdict_of(Calls(kernel), case)


# Without a reference


@pytest.mark.parametrize("kind", ["float32", "float16", "bfloat16"])
def test_right_kernel_passes_by_invariants_without_measures(kind: str) -> None:
    result = verdict(softmax, case_of(unknown(*INVARIANTS), spec_of(5, 8, kind=kind)))
    assert (result.status, result.evidence, result.measures) == (Status.PASSED, Evidence.INVARIANT, ())
    assert result.message.startswith("mine has no reference, so its values were never compared; held: invariant repeat")


@pytest.mark.parametrize(
    ("kernel", "invariant", "reason", "how"),
    [
        (WithState, "stateless", Reason.STATE, "called again after other values"),
        (lambda: over_the_batch, "batch", Reason.INVARIANT, "with only element 0 of the batch"),
        (lambda: last_element_wrong, "batch", Reason.INVARIANT, "with only element 0 of the batch"),
        (lambda: by_place, "permutation", Reason.INVARIANT, "with the elements of the batch permuted"),
    ],
)
def test_wrong_kernels(kernel: Callable[[], Kernel], invariant: str, reason: Reason, how: str) -> None:
    result = verdict(kernel(), case_of(unknown(invariant), spec_of(5, 8)))
    assert (result.status, result.reason, result.details["how"]) == (Status.FAILED, reason, how)
    assert result.message.endswith("(no reference: compared with the first call)")
    assert verdict(softmax, case_of(unknown(invariant), spec_of(5, 8))).status is Status.PASSED


def test_a_call_that_is_repeated() -> None:
    factors = iter((1, 2))
    result = verdict(lambda x: softmax(x) * x.dtype.type(next(factors)), case_of(unknown("repeat"), spec_of(5, 8)))
    assert result.reason is Reason.NONDETERMINISTIC


@pytest.mark.parametrize("kernel", [np.zeros_like, lambda x: np.ones_like(x) / x.dtype.type(x.shape[-1])])
def test_equal_rows_are_suspect(kernel: Kernel) -> None:
    result = verdict(kernel, case_of(unknown(*INVARIANTS), spec_of(5, 8)))
    assert (result.status, result.evidence) == (Status.SUSPECT, Evidence.INVARIANT)


def test_only_nan_is_suspect() -> None:
    result = verdict(lambda x: np.full_like(x, np.nan), case_of(unknown("batch"), spec_of(5, 8)))
    assert result.status is Status.SUSPECT


def test_the_operators_rule_holds_where_it_has_one() -> None:
    noise = iter(np.float32([1, 1 + 2**-20] * 4))

    def noisy(x: Any) -> Any:
        return softmax(x) * next(noise)

    rule = Rule(kind=RuleClass.ULP, ulp=2, source="here")
    assert verdict(noisy, case_of(unknown("repeat"), spec_of(5, 8))).status is Status.PASSED  # rtol of close results
    assert verdict(noisy, case_of(unknown("repeat", rule=rule), spec_of(5, 8))).reason is Reason.NONDETERMINISTIC


def test_integers_are_exact() -> None:
    numbers = iter(range(9))
    result = verdict(
        lambda x: x + next(numbers), case_of(unknown("repeat"), spec_of(5, 8, kind="int32"), fill=Fill(kind="ones"))
    )
    assert result.reason is Reason.NONDETERMINISTIC


def test_another_number_of_outputs_is_no_pass() -> None:
    two = unknown("batch", signature="x -> values, indices")
    assert verdict(softmax, case_of(two, spec_of(5, 8))).reason is Reason.MISSING_OUTPUT
    assert verdict(lambda x: (x, x, x), case_of(two, spec_of(5, 8))).reason is Reason.EXTRA_OUTPUT


# Which inputs hold the batch


def project(x: Any, weight: Any) -> Any:
    return x @ weight


def test_weights_with_as_many_rows_are_left_alone() -> None:
    square = case_of("matmul", spec_of(6, 6), spec_of(6, 6), invariants=("batch", "permutation"))
    driver = Calls(project)
    result = verdict_of(driver, square)
    assert (result.status, result.evidence) == (Status.PASSED, Evidence.MEASURED)
    assert driver.shapes == [(6, 6), (1, 6), (1, 6), (1, 6), (6, 6)]


def test_ambiguous_batch_inputs_must_be_named() -> None:
    unclear = verdict(project, case_of(unknown("batch", signature="x, weight -> out"), spec_of(6, 6), spec_of(6, 6)))
    assert (unclear.reason, "invariants: [batch(x)]" in unclear.message) == (Reason.BAD_CASE, True)
    stated = unknown("batch(x)", signature="x, weight -> out")
    assert verdict(project, case_of(stated, spec_of(6, 6), spec_of(6, 6))).evidence is Evidence.INVARIANT
    assert verdict(project, case_of(stated, spec_of(6, 4), spec_of(4, 7))).evidence is Evidence.INVARIANT
    other = unknown("batch(weight)", signature="x, weight -> out")
    assert verdict(project, case_of(other, spec_of(6, 4), spec_of(4, 7))).reason is Reason.BAD_CASE


@pytest.mark.parametrize("shape", [(1, 8), (8,)])
def test_impossible_invariant_is_no_pass(shape: Any) -> None:
    result = verdict(lambda x: softmax(x).sum(-1), case_of(unknown("batch"), spec_of(*shape)))
    assert result.status is Status.UNCHECKED
    assert [each.state for each in result.checks if each.name == "invariant batch"] == [CheckState.NOT_POSSIBLE]


def test_fixed_inputs_have_no_other_values() -> None:
    fill = values_of([1.0, 2.0], [3.0, 5.0])
    result = verdict(softmax, case_of(unknown("repeat", "stateless"), spec_of(2, 2), fill=fill))
    assert result.status is Status.PASSED
    assert "invariant stateless" not in result.message


# With a reference


def test_wrong_further_call_fails() -> None:
    def alone(x: Any) -> Any:
        return softmax(x) * x.dtype.type(1.25 if len(x) == 1 else 1)

    assert verdict(alone, case_of("softmax", spec_of(5, 8))).status is Status.PASSED
    result = verdict(alone, case_of("softmax", spec_of(5, 8), invariants=("batch",)))
    assert (result.reason, result.measures[0].where) == (Reason.INVARIANT, "row 0")


def test_invariant_missing_in_reference_is_bad_case() -> None:
    case = case_of("cumsum", spec_of(5, 8), attributes={"dim": 0}, invariants=("batch",))
    result = verdict(lambda x: np.cumsum(x, 0, dtype=x.dtype), case)
    assert result.reason is Reason.BAD_CASE
    assert "the reference itself" in result.message


def test_further_call_raises_or_changes_shape() -> None:
    def no_single(x: Any) -> Any:
        if len(x) == 1:
            raise ValueError("too few")
        return softmax(x)

    raised = verdict(no_single, case_of("softmax", spec_of(5, 8), invariants=("batch",)))
    assert (raised.status, raised.reason) == (Status.ERROR, Reason.RAISED)
    assert raised.message.startswith("with only element 0 of the batch: ")
    padded = verdict(lambda x: softmax(np.resize(x, (5, 8))), case_of(unknown("batch"), spec_of(5, 8)))
    assert padded.reason is Reason.SHAPE


def test_case_without_invariants_makes_one_call() -> None:
    driver = Calls(softmax)
    verdict_of(driver, case_of(unknown(*INVARIANTS), spec_of(5, 8), invariants=()))
    assert driver.shapes == [(5, 8)]


def test_unsupported_further_call_is_not_made() -> None:
    class Large(Calls):
        def unsupported(self, case: TestCase) -> str | None:
            return "one row" if case.inputs[0].spec.shape[0] == 1 else None

    driver = Large(softmax)
    result = verdict_of(driver, case_of(unknown("repeat", "batch"), spec_of(5, 8)))
    assert result.status is Status.PASSED
    assert driver.shapes == [(5, 8), (5, 8)]
    assert [each.detail for each in result.checks if each.name == "invariant batch"] == [
        "with only element 0 of the batch: one row"
    ]


def test_further_outputs_of_driver_are_compared() -> None:
    class Noticing(Calls):
        def further(self, case: TestCase) -> Sequence[ExtraOutput]:
            alone = len(self.shapes) == 1
            return [ExtraOutput(outputs=softmax(np.ones((5, 8), np.float32)), how="with 2 threads")] * alone

    case = case_of("softmax", spec_of(5, 8), invariants=("batch",))
    assert verdict_of(Noticing(softmax), case).message.startswith("with 2 threads: ")


# Statements


@pytest.mark.parametrize(
    ("text", "error", "words"),
    [
        ("bacth", UnknownName, "did you mean 'batch'"),
        ("batch(y)", UnknownName, "unknown tensor 'y'"),
        ("batch(out)", UsageError, "names an output"),
        ("repeat(x)", UsageError, "whole calls"),
        ("batch(x", UsageError, "expected a text like batch"),
    ],
)
def test_unknown_invariant_is_refused_by_descriptor(text: str, error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words.replace("(", r"\(")):
        unknown(text)


def test_repeated_invariant_is_refused() -> None:
    with pytest.raises(UsageError, match="occurs twice"):
        unknown("batch", "batch(x)")


def test_drivers_of_optests_buffers() -> None:
    class Writes(BackendDriver):
        name, kind = "writes", "cpu"

        def run_into(self, case: TestCase, inputs: Sequence[Any], outputs: Sequence[Any]) -> None:
            outputs[0][...] = softmax(inputs[0]) * (1.25 if len(inputs[0]) == 1 else 1)

    result = verdict_of(Writes(), case_of("softmax", spec_of(5, 8), invariants=("batch",)))
    assert result.reason is Reason.INVARIANT  # SHAPE, if the buffers of one element had the shape of all


def test_cached_result_fails_for_other_values() -> None:
    known = unknown(
        "repeat", "stateless", reference=lambda inputs, _: (softmax(inputs[0].astype(np.float64)),), rule=CLOSE
    )
    case = case_of(known, spec_of(5, 8))
    assert verdict(softmax, case).status is Status.PASSED
    result = verdict(KeepsFirst(), case)
    assert result.status is Status.FAILED
    assert result.message.startswith("called with other values")


def test_overwritten_result_is_state() -> None:
    buffer = np.empty((5, 8), np.float32)

    def static(x: Any) -> Any:
        buffer[:] = softmax(x)
        return buffer

    known = unknown("stateless", reference=lambda inputs, _: (softmax(inputs[0].astype(np.float64)),), rule=CLOSE)
    result = verdict(static, case_of(known, spec_of(5, 8)))
    assert (result.reason, "overwrote the result of the call before" in result.message) == (Reason.STATE, True)


def test_case_without_compared_call_is_unchecked() -> None:
    """Without a reference, a further call with other values has no expected outputs."""

    class RefusesTheLast(Calls):
        def unsupported(self, case: TestCase) -> str | None:
            return "no more" if len(self.shapes) > 2 else None

    result = verdict_of(RefusesTheLast(softmax), case_of(unknown("stateless"), spec_of(5, 8)))
    assert result.status is Status.UNCHECKED
