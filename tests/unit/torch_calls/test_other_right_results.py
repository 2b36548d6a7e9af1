"""Results that are right beside the reference's: what torch leaves undefined, and the other reading of a number."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from texts import says

torch = pytest.importorskip("torch")

import torch_kit  # noqa: E402
from torch_kit import Answering, Outputs, Wrong, case, element, one_off, tensor, verdict, zeros  # noqa: E402

from optest.spec import Reason, Status, Verdict  # noqa: E402
from optest.torch.calls.other_right_results import with_scalars_of_16_bits  # noqa: E402
from optest.torch.calls.reference import compute_expected  # noqa: E402
from optest.torch.eager import TorchBackend  # noqa: E402

pytestmark = pytest.mark.torch


ROWS, MORE = tensor((3, 4)), tensor((5, 4))
TWICE = tensor(5, "int64", "data", values=[2, 0, 2, -3, 1])
TWICE_EACH = tensor((5, 4), "int64", "data", values=[[2] * 4, [0] * 4, [2] * 4, [0] * 4, [1] * 4])
ONCE = tensor(3, "int64", "data", values=[2, 0, 1])
PUT = "torch.index_put(input0, (input1,), input2)"
CALLS = [
    (PUT, TWICE),
    ("torch.index_put_(input0, (input1,), input2)", TWICE),
    ("torch.ops.aten.index_put.default(input0, [input1], input2)", TWICE),
    ("torch.setitem(input0, input1, input2)", TWICE),
    ("torch.setitem(input0, (input1, slice(None)), input2)", TWICE),
    ("torch.scatter(input0, 0, input1, input2)", TWICE_EACH),
    ("torch.Tensor.scatter_(input0, 0, input1, src=input2)", TWICE_EACH),
]


def first_stays(harm: float = 0.0) -> Answering:
    """Torch that writes the values in the reverse order; ``harm`` is added to one element."""

    def harmed(outputs: Outputs, _: Any) -> Outputs:
        for output in outputs:
            output[2, 1] += harm
        return outputs

    return Answering(harmed, lambda target, places, values: (target, places[::-1], values[::-1]))


@pytest.mark.parametrize(("text", "places"), CALLS)
def test_any_of_the_values_may_stay(text: str, places: Any) -> None:
    asked = case(text, ROWS, places, MORE)
    assert verdict(asked).status is Status.PASSED
    assert verdict(asked, first_stays()).status is Status.PASSED
    assert verdict(asked, first_stays(harm=0.25)).status is Status.FAILED


def test_index_copy_may_keep_any() -> None:
    twice = tensor(5, "int64", "data", values=[2, 0, 2, 0, 1])
    asked = case("torch.index_copy(input0, 0, input1, input2)", ROWS, twice, MORE)
    assert verdict(asked, first_stays()).status is Status.PASSED
    assert verdict(asked, Answering(lambda _, inputs: [inputs[0].copy()])).status is Status.FAILED


def test_what_is_added_up_counts_whole() -> None:
    def last_only(_: Outputs, inputs: Sequence[Any]) -> Outputs:
        found = inputs[0].copy()
        found[inputs[1]] = inputs[2]
        return [found]

    added = case(f"{PUT[:-1]}, accumulate=True)", ROWS, TWICE, MORE)
    assert verdict(added, Answering(last_only)).status is Status.FAILED


def test_single_write_has_to_remain() -> None:
    turned = Answering(lambda outputs, _: outputs, lambda target, places, values: (target, places, values[::-1]))
    assert verdict(case(PUT, ROWS, ONCE, ROWS)).status is Status.PASSED
    assert verdict(case(PUT, ROWS, ONCE, ROWS), turned).status is Status.FAILED


@pytest.mark.parametrize("text", ["torch.setitem(input0, input1, 7)", "torch.setitem(input0, input1, 7.0)"])
def test_equal_collided_writes_have_to_remain(text: str) -> None:
    missed = Wrong(lambda outputs: [one_off(9, lambda _: 6.0)(output) for output in outputs])
    asked = case(text, ROWS, TWICE)
    assert verdict(asked).status is Status.PASSED
    assert verdict(asked, missed).status is Status.FAILED


BYTES = "torch.Tensor.to(input0, torch.int8)"
SOME = [1.5, 127.9, 128.0, -128.9, -129.0, float("nan"), float("inf"), 3e9]
WITHIN = (0, 1, 3)


def of(values: list[float], kind: str = "float32") -> Any:
    return tensor(len(values), kind, "data", values=values)


@pytest.mark.parametrize("place", range(len(SOME)))
@pytest.mark.parametrize("kind", ["float32", "bfloat16"])
def test_only_numbers_that_fit_have_one_answer(place: int, kind: str) -> None:
    values = SOME if kind == "float32" else [1.5, 127.0, 128.0, -128.0, -129.0, *SOME[5:]]
    found = verdict(case(BYTES, of(values, kind)), element(place, lambda was: was ^ 5))
    if place in WITHIN:
        assert found.reason is Reason.VALUE, found
        assert says(found.message, "torch_calls.of_elements_is_off")
    else:
        assert found.status is Status.PASSED, found


@pytest.mark.parametrize(
    "text", ["torch.Tensor.long(input0)", "torch.ops.aten._to_copy.default(input0, dtype=torch.int64)"]
)
def test_largest_integers_exceed_float(text: str) -> None:
    last = case(text, of([1.0, 2.0**63, -(2.0**63)]))
    assert verdict(last, element(1, lambda was: was ^ 1)).status is Status.PASSED
    assert verdict(last, element(2, lambda was: was ^ 1)).reason is Reason.VALUE


def test_a_pass_where_no_number_fits_is_suspect() -> None:
    found = verdict(case(BYTES, of([300.0, -1000.0])), zeros())
    assert found.status is Status.SUSPECT, found
    assert found.message.startswith(
        "output0: no number is within int8, and torch does not define the conversion of others"
    )


def test_integers_and_bool_have_one_answer() -> None:
    wide = tensor(2, "int64", "data", values=[300, 1])
    assert verdict(case(BYTES, wide), element(0, lambda was: was ^ 1)).reason is Reason.VALUE
    truth = case("torch.Tensor.bool(input0)", of([300.0, 0.0]))
    assert verdict(truth, element(0, lambda was: not was)).reason is Reason.VALUE


# Python numbers as operands: rounded to float32, or by torch's CPU kernels to 16 bits; both are right.


OF_NUMBERS = {
    "torch.add(input0, 0.3)": lambda x, s: x + s,
    "torch.Tensor.__rsub__(input0, 0.3)": lambda x, s: s - x,
    "torch.ops.aten.sub.Tensor(input0, 0.3)": lambda x, s: x - s,
    "torch.remainder(input0, 0.1)": lambda x, s: torch.remainder(x, s),
    "torch.fmod(input0, 0.1)": lambda x, s: torch.fmod(x, s),
    "torch.pow(input0, 0.3)": lambda x, s: x**s,
    "torch.Tensor.add_(input0, 0.3)": lambda x, s: x + s,
}


def numbers(kind: str, shape: Any = 999) -> Any:
    return tensor(shape, kind, "uniform", low=0.01, high=0.19)


def number_verdict(text: str, kind: str, driver: TorchBackend | None = None) -> Verdict:
    return torch_kit.verdict(case(text, numbers(kind)), driver)


def computed(text: str, formula: Any) -> Answering:
    """A backend that computes a formula on the input in float32, given the text's number as float32 and rounded."""

    def outputs(own: Outputs, inputs: Sequence[Any]) -> Outputs:
        number = 0.1 if "0.1" in text else 0.3
        x = torch.from_numpy(np.asarray(inputs[0], dtype=np.float32))
        rounded = float(np.asarray(number).astype(inputs[0].dtype).astype(np.float32))
        return [formula(x, float(np.float32(number)), rounded).numpy().astype(inputs[0].dtype) for _ in own]

    return Answering(outputs)


@pytest.mark.parametrize("kind", ["float16", "bfloat16"])
@pytest.mark.parametrize("text", OF_NUMBERS)
def test_both_readings_pass(text: str, kind: str) -> None:
    formula = OF_NUMBERS[text]
    assert number_verdict(text, kind).status is Status.PASSED
    for reading in (lambda x, wide, _: formula(x, wide), lambda x, _, narrow: formula(x, narrow)):
        assert number_verdict(text, kind, computed(text, reading)).status is Status.PASSED


@pytest.mark.parametrize("text", OF_NUMBERS)
def test_another_number_fails(text: str) -> None:
    formula = OF_NUMBERS[text]
    assert (
        number_verdict(text, "bfloat16", computed(text, lambda x, wide, narrow: formula(x, narrow * 1.05))).reason
        is Reason.VALUE
    )


@pytest.mark.parametrize("text", [each for each in OF_NUMBERS if "fmod" not in each])
def test_mixed_promotions_fail(text: str) -> None:
    """Where the catalogue has a rule: torch.testing's tolerance sees no such difference."""
    formula = OF_NUMBERS[text]

    def mixed(x: torch.Tensor, wide: float, narrow: float) -> torch.Tensor:
        return torch.where(torch.arange(len(x)) % 2 == 0, formula(x, wide), formula(x, narrow))

    assert number_verdict(text, "float16", computed(text, mixed)).reason is Reason.VALUE


@pytest.mark.parametrize(
    ("text", "of", "narrow"),
    [
        ("torch.add(input0, 0.5)", np.float16, None),
        ("torch.add(input0, 0.3)", np.float32, None),
        ("torch.mul(input0, 0.3)", np.float16, None),
        ("torch.add(input0, 0.3)", np.float16, "torch.add(input0, 0.300048828125)"),
        ("torch.add(input0, 1e-08)", np.float16, "torch.add(input0, 0.0)"),
        ("torch.add(input0, 2, alpha=0.3)", np.float16, None),
    ],
)
def test_where_there_is_another_reading(text: str, of: Any, narrow: str | None) -> None:
    found = with_scalars_of_16_bits(text, [np.ones(3, of)])
    assert (found and found[0]) == narrow


def test_tensors_without_dimensions_are_numbers_too() -> None:
    x, number = np.ones(3, np.float16), np.asarray(0.3, np.float32)
    found = with_scalars_of_16_bits("torch.add(input0, input1)", [x, number])
    assert found is not None
    assert found[1][0] is x
    assert (found[1][1].dtype, float(found[1][1])) == (np.float32, 0.300048828125)
    assert with_scalars_of_16_bits("torch.add(input0, input1)", [x, x]) is None
    assert with_scalars_of_16_bits("torch.add(input0, input1)", [x, np.ones(3, np.float32)]) is None


@pytest.mark.parametrize("kind", ["float16", "bfloat16"])
def test_torch_itself_rounds_a_tensor_without_dimensions(kind: str) -> None:
    asked = case("torch.add(input0, input1)", numbers(kind), numbers("float32", ()))
    assert torch_kit.verdict(asked).status is Status.PASSED


@pytest.mark.parametrize("kind", ["float16", "bfloat16"])
@pytest.mark.parametrize("text", ["torch.truediv(0.3, input0)", "torch.Tensor.__rtruediv__(input0, 0.3)"])
def test_quotient_may_use_rounded_reciprocal(text: str, kind: str) -> None:
    """As torch's own method does it, and as its compiler does."""
    assert number_verdict(text, kind).status is Status.PASSED
    assert number_verdict(text, kind, computed(text, lambda x, wide, narrow: wide / x)).status is Status.PASSED
    wrong = computed(text, lambda x, wide, narrow: wide / x * (1 + 2.0**-6))
    assert number_verdict(text, kind, wrong).reason is Reason.VALUE


X = np.array([1.0, 3.0, -0.7], dtype=np.float32)


@pytest.mark.parametrize(
    ("call", "wanted"),
    [
        ("torch.mul(input0, 1.702)", X.astype(np.float64) * np.float64(np.float32(1.702))),
        ("torch.Tensor.mul(input0, 1.702)", X.astype(np.float64) * np.float64(np.float32(1.702))),
        ("torch.ops.aten.mul.Tensor(input0, 1.702)", X.astype(np.float64) * np.float64(np.float32(1.702))),
        ("torch.div(input0, 0.3)", X.astype(np.float64) / np.float64(np.float32(0.3))),
        ("torch.add(input0, input0, alpha=0.1)", X.astype(np.float64) * (1 + np.float64(np.float32(0.1)))),
        ("torch.truediv(0.3, input0)", np.float64(np.float32(0.3)) / X.astype(np.float64)),
        ("torch.mul(input0, 1e300)", X.astype(np.float64) * 1e300),
    ],
)
def test_number_is_rounded_to_compute_dtype(call: str, wanted: np.ndarray) -> None:
    (found,) = compute_expected([X], {"call": call})
    np.testing.assert_allclose(np.asarray(found.values), wanted, rtol=1e-15)


def test_16_bit_tensors_are_computed_in_float32_too() -> None:
    x = X.astype(ml_dtypes.bfloat16)
    (found,) = compute_expected([x], {"call": "torch.mul(input0, 1.702)"})
    wanted = x.astype(np.float64) * np.float64(np.float32(1.702))
    np.testing.assert_allclose(np.asarray(found.values), wanted, rtol=1e-15)


def test_float64_and_sizes_keep_their_number() -> None:
    (wide,) = compute_expected([X.astype(np.float64)], {"call": "torch.mul(input0, 1.702)"})
    np.testing.assert_array_equal(np.asarray(getattr(wide, "values", wide)), X.astype(np.float64) * 1.702)
    image = np.ones((1, 1, 10), dtype=np.float32)
    (larger,) = compute_expected([image], {"call": "torch.nn.functional.interpolate(input0, scale_factor=1.3)"})
    assert np.asarray(getattr(larger, "values", larger)).shape == (1, 1, 13)


def test_torch_itself_agrees() -> None:
    """A correctly rounded product is what torch gives, which it is only with the number rounded first."""
    x = np.linspace(-3, 3, 1001, dtype=np.float32)
    (found,) = compute_expected([x], {"call": "torch.mul(input0, 1.702)"})
    np.testing.assert_array_equal(np.asarray(found.values).astype(np.float32), (torch.from_numpy(x) * 1.702).numpy())
