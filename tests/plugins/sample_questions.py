"""The samples of an operator as questions with judged answers, asked of functions in place of backends."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from optest.backends.arguments import in_signature_order
from optest.backends.numpy_reference import NumpyBackend
from optest.compare import Expected
from optest.compare.verdict import compare_outputs
from optest.core.expected import expected_outputs
from optest.generators.fills import check_fill
from optest.generators.random_tensors import RandomTensorGenerator
from optest.numerics import numpy_dtype, round_to, widen
from optest.operators import operators
from optest.operators.derived_samples import further_layouts
from optest.plan import CaseRequest, PlanHost
from optest.plan.from_samples import cases_of_samples
from optest.registry import load_object
from optest.spec import BackendTarget, Numerics, Sample, Status, TestCase, Tier

__all__ = ["Kernel", "Question", "by_reference", "question", "questions", "widened_as_kernels_do", "wrong_answers"]

Kernel = Callable[[Sequence[Any], Mapping[str, Any]], Any]
"""``(inputs at their places, attributes)`` to the output, or a tuple of all, in their dtypes or not yet rounded."""


@dataclass(frozen=True)
class Question:
    """One sample with its inputs and what they should give; none where it has to be refused."""

    case: TestCase
    inputs: Sequence[Any]
    expected: Sequence[Expected]

    def is_answered(self, kernel: Kernel) -> bool:
        """Whether the answer is right, or the refusal."""
        try:
            with np.errstate(all="ignore"):
                found = kernel(in_signature_order(self.case, self.inputs), self.case.attributes)
                answers = [np.asarray(each) for each in (found if isinstance(found, tuple) else (found,))]
        except (ValueError, IndexError, TypeError):
            return self.case.expects_error is not None
        if self.case.expects_error is not None:
            return False
        for index, (answer, spec) in enumerate(zip(answers, self.case.outputs, strict=False)):
            if answer.shape == spec.shape:
                answers[index] = _rounded(answer, spec.dtype)
        verdict = compare_outputs(self.case, answers, self.expected, numerics=Numerics(), inputs=self.inputs)
        return verdict.status is Status.PASSED


def _rounded(answer: Any, dtype: Any) -> Any:
    if answer.dtype == numpy_dtype(dtype):
        return answer
    return answer.astype(numpy_dtype(dtype)) if dtype.is_integer else round_to(answer.astype(np.float64), dtype)


@lru_cache(maxsize=2)
def questions(name: str, seed: int = 0) -> tuple[Question, ...]:
    """What a check with default settings asks of an operator by its own samples."""
    descriptor = operators.get(name)
    own = list(load_object(str(descriptor.samples))())
    asked = [sample for sample in (*own, *further_layouts(own)) if sample.tier is not Tier.FULL]
    return tuple(_asked(name, asked, seed))


def question(name: str, call: Mapping[str, Any], seed: int = 0) -> Question:
    """One call of an operator, as a sample states it."""
    return next(_asked(name, [Sample(case_set="ordinary", case=call)], seed))


def _asked(name: str, samples: Sequence[Sample], seed: int) -> Iterator[Question]:
    built = cases_of_samples(
        operators.get(name),
        samples,
        CaseRequest(seed=seed),
        PlanHost(operators=operators, target=BackendTarget(name="numpy"), check_fill=check_fill),
    )
    generator, driver = RandomTensorGenerator(), NumpyBackend()
    for case in built.cases:
        inputs, _ = generator.generate(case)
        known = [] if case.expects_error else expected_outputs([case], inputs, None, driver)[0]
        yield Question(case, inputs, known)


def by_reference(name: str) -> Kernel:
    """The operator's own reference as a kernel."""
    hook = load_object(str(operators.get(name).reference))
    return lambda inputs, attributes: hook(inputs, attributes)[0]


def widened_as_kernels_do(array: Any) -> Any:
    """In the arithmetic of an honest kernel: float32 for floats of up to 32 bits, float64, or 64-bit integers."""
    if array is None:
        return None
    wide = widen(np.asarray(array))
    if wide.dtype.kind in "iu":
        return wide.astype(np.int64)
    return wide if np.asarray(array).dtype == np.float64 else wide.astype(np.float32)


def wrong_answers(name: str, kernel: Kernel, seed: int = 0) -> list[str]:
    """The names of the samples that find fault with the values of a kernel; what has to be refused is left out."""
    return [
        question.case.name
        for question in questions(name, seed)
        if question.case.expects_error is None and not question.is_answered(kernel)
    ]
