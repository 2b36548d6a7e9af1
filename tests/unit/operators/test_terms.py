"""Error terms of every operator: shaped like its outputs, finite, computed without warnings."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from optest.api.checking import sample_cases
from optest.backends.arguments import in_signature_order
from optest.core.expected import make_inputs
from optest.operators import operators
from optest.registry import load_object
from optest.spec import Rule, Terms, TestCase

# Most elements of the inputs of a tested call: large calls repeat the forms and values of small ones.
SMALL = 4096
WITH_TERMS = [each.name for each in operators if each.terms is not None and each.samples is not None]


def small_calls(name: str) -> Iterator[TestCase]:
    for case in sample_cases(name):
        is_small = sum(argument.spec.elements for argument in case.inputs) <= SMALL
        if is_small and case.expects_error is None and case.outputs[0].dtype.is_float:
            yield case


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=pytest.mark.heavy if name == "multi_head_attention" else ()) for name in WITH_TERMS],
)
def test_terms_match_output_shape_and_finiteness(name: str) -> None:
    descriptor = operators.get(name)
    reference, terms = (load_object(str(hook)) for hook in (descriptor.reference, descriptor.terms))
    for case in small_calls(name):
        inputs = in_signature_order(case, make_inputs(case)[0])
        outputs = reference(inputs, case.attributes)
        for output, term in zip(outputs, terms(inputs, case.attributes), strict=True):
            if term is None or isinstance(term, Rule):
                continue
            worst, variance = (term.absolute, term.squared) if isinstance(term, Terms) else (term.worst, term.variance)
            shapes = {np.shape(each) for each in (worst, variance) if each is not None}
            assert shapes == {np.shape(output)}, case.name
            finite = np.isfinite(output)
            assert np.isfinite(worst[finite]).all(), case.name
            assert (worst[finite] >= 0).all(), case.name
            if variance is not None:
                normal = finite & (worst > 1e-30)
                assert (variance[normal] <= 4.0 * worst[normal] ** 2 * (1 + 1e-9)).all(), case.name


OF_LARGEST: list[tuple[str, dict[str, Any]]] = [
    ("add", {"alpha": 0.9}),
    ("sub", {"alpha": -7.0}),
    ("round", {"decimals": 2}),
    ("round", {"decimals": -2}),
    ("leaky_relu", {"negative_slope": -0.3}),
    ("sigmoid", {}),
    ("silu", {}),
    ("softplus", {"beta": 0.3, "threshold": 2.0}),
    ("softplus", {"beta": 3.0}),
    ("elu", {"alpha": -1.7}),
    ("selu", {}),
    ("logaddexp", {}),
    ("digamma", {}),
    ("hardswish", {}),
    ("gelu", {}),
    ("gelu", {"approximate": "tanh"}),
    ("swiglu", {}),
]


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize(("operator", "attributes"), OF_LARGEST, ids=str)
def test_terms_of_largest_numbers_are_finite(operator: str, attributes: dict[str, Any]) -> None:
    descriptor = operators.get(operator)
    bound = descriptor.bind(attributes)
    for kind in (np.float32, np.float64):
        values = np.array([np.nan, np.inf, np.finfo(kind).max, -np.finfo(kind).max, 0.0, -0.0, 1.5, -100.0], kind)
        inputs = [values, values[::-1]][: len(descriptor.tensors.inputs)]
        (out,) = load_object(str(descriptor.reference))(inputs, bound)
        (budget,) = load_object(str(descriptor.terms))(inputs, bound)
        assert np.isfinite(budget.worst[np.isfinite(out)]).all()


VALUES = np.random.default_rng(5).standard_normal((4, 256)).astype(np.float32)
SUMS = [
    ("sum", {"dim": (1,)}, ()),
    ("mean", {"dim": (1,)}, ()),
    ("cumsum", {"dim": 1}, ()),
    ("scatter_add", {"dim": 0}, (np.zeros((4, 256), np.int64),)),
]


def terms_of_sum(name: str, attributes: dict[str, Any], values: Any, more: tuple[Any, ...]) -> Terms:
    hook = load_object(operators.get(name).terms)
    return hook([values, *more, *([values] if more else [])], attributes)[0]  # type: ignore[no-any-return]


@pytest.mark.parametrize(("name", "attributes", "more"), SUMS, ids=[name for name, _, _ in SUMS])
@pytest.mark.parametrize("phase", [1.0, 1j, 0.6 - 0.8j])
def test_complex_phase_does_not_change_terms(
    name: str, attributes: dict[str, Any], more: tuple[Any, ...], phase: complex
) -> None:
    real = terms_of_sum(name, attributes, VALUES, more)
    turned = terms_of_sum(name, attributes, (VALUES * phase).astype(np.complex64), more)
    assert np.array_equal(turned.count, real.count)
    assert np.allclose(turned.absolute, real.absolute, rtol=1e-6)
    assert np.allclose(turned.squared, real.squared, rtol=1e-6)
