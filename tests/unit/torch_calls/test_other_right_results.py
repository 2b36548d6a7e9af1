"""Results that are right beside the reference's: what torch leaves undefined, and the other reading of a number."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import ml_dtypes
import numpy as np
import pytest
import torch
import torch_kit
from texts import says
from torch_kit import Answering, Outputs, Wrong, case, element, fails, one_off, passes, separates, tensor, verdict

from optest.spec import Reason, Status
from optest.torch.calls.other_right_results import with_scalars_of_16_bits
from optest.torch.calls.reference import compute_expected
from optest.torch.eager import TorchBackend

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
    ("torch.index_copy(input0, 0, input1, input2)", tensor(5, "int64", "data", values=[2, 0, 2, 0, 1])),
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
    passes(asked, None, first_stays())
    fails(asked, first_stays(harm=0.25))
    fails(asked, Answering(lambda outputs, inputs: [inputs[0].copy() for _ in outputs]))


def last_only(_: Outputs, inputs: Sequence[Any]) -> Outputs:
    found = inputs[0].copy()
    found[inputs[1]] = inputs[2]
    return [found]


TURNED = Answering(lambda outputs, _: outputs, lambda target, places, values: (target, places, values[::-1]))
MISSED = Wrong(lambda outputs: [one_off(9, lambda _: 6.0)(output) for output in outputs])


@pytest.mark.parametrize(
    ("text", "inputs", "wrong"),
    [
        (f"{PUT[:-1]}, accumulate=True)", (ROWS, TWICE, MORE), Answering(last_only)),
        (PUT, (ROWS, ONCE, ROWS), TURNED),
        ("torch.setitem(input0, input1, 7)", (ROWS, TWICE), MISSED),
        ("torch.setitem(input0, input1, 7.0)", (ROWS, TWICE), MISSED),
    ],
    ids=["sum counts whole", "single write remains", "equal writes remain", "equal floats remain"],
)
def test_defined_write_has_to_remain(text: str, inputs: tuple[Any, ...], wrong: TorchBackend) -> None:
    separates(case(text, *inputs), wrong)


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
    passes(last, element(1, lambda was: was ^ 1))
    fails(last, element(2, lambda was: was ^ 1))


NO_NUMBER = "output0: no number is within int8, and torch does not define the conversion of others"


def test_a_pass_where_no_number_fits_is_suspect() -> None:
    found = verdict(case(BYTES, of([300.0, -1000.0])), torch_kit.zeros())
    assert found.status is Status.SUSPECT, found
    assert found.message.startswith(NO_NUMBER)


def test_integers_and_bool_have_one_answer() -> None:
    wide = tensor(2, "int64", "data", values=[300, 1])
    fails(case(BYTES, wide), element(0, lambda was: was ^ 1))
    truth = case("torch.Tensor.bool(input0)", of([300.0, 0.0]))
    fails(truth, element(0, lambda was: not was))


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
    wide, narrow = (lambda x, wide, _: formula(x, wide)), (lambda x, _, narrow: formula(x, narrow))
    passes(case(text, numbers(kind)), None, computed(text, wide), computed(text, narrow))


@pytest.mark.parametrize("text", OF_NUMBERS)
def test_another_number_fails(text: str) -> None:
    """Mixed readings fail if the catalogue has a rule: torch.testing's tolerance sees no such difference."""
    formula = OF_NUMBERS[text]
    fails(case(text, numbers("bfloat16")), computed(text, lambda x, _, narrow: formula(x, narrow * 1.05)))

    def mixed(x: torch.Tensor, wide: float, narrow: float) -> torch.Tensor:
        return torch.where(torch.arange(len(x)) % 2 == 0, formula(x, wide), formula(x, narrow))

    if "fmod" not in text:
        fails(case(text, numbers("float16")), computed(text, mixed))


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
    assert found[1][0] is x
    assert (found[1][1].dtype, float(found[1][1])) == (np.float32, 0.300048828125)
    assert with_scalars_of_16_bits("torch.add(input0, input1)", [x, x]) is None
    assert with_scalars_of_16_bits("torch.add(input0, input1)", [x, np.ones(3, np.float32)]) is None


@pytest.mark.parametrize("kind", ["float16", "bfloat16"])
def test_torch_itself_rounds_a_tensor_without_dimensions(kind: str) -> None:
    passes(case("torch.add(input0, input1)", numbers(kind), numbers("float32", ())))


@pytest.mark.parametrize("kind", ["float16", "bfloat16"])
@pytest.mark.parametrize("text", ["torch.truediv(0.3, input0)", "torch.Tensor.__rtruediv__(input0, 0.3)"])
def test_quotient_may_use_rounded_reciprocal(text: str, kind: str) -> None:
    """As torch's own method does it, and as its compiler does."""
    of_number = case(text, numbers(kind))
    passes(of_number, None, computed(text, lambda x, wide, _: wide / x))
    fails(of_number, computed(text, lambda x, wide, _: wide / x * (1 + 2.0**-6)))


X = np.array([1.0, 3.0, -0.7], dtype=np.float32)
WIDE, NARROW, LINE = X.astype(np.float64), X.astype(ml_dtypes.bfloat16), np.linspace(-3, 3, 1001, dtype=np.float32)
FACTOR = np.float64(np.float32(1.702))


@pytest.mark.parametrize(
    ("call", "given", "wanted"),
    [
        ("torch.mul(input0, 1.702)", X, WIDE * FACTOR),
        ("torch.Tensor.mul(input0, 1.702)", X, WIDE * FACTOR),
        ("torch.ops.aten.mul.Tensor(input0, 1.702)", X, WIDE * FACTOR),
        ("torch.div(input0, 0.3)", X, WIDE / np.float64(np.float32(0.3))),
        ("torch.add(input0, input0, alpha=0.1)", X, WIDE * (1 + np.float64(np.float32(0.1)))),
        ("torch.truediv(0.3, input0)", X, np.float64(np.float32(0.3)) / WIDE),
        ("torch.mul(input0, 1e300)", X, WIDE * 1e300),
        ("torch.mul(input0, 1.702)", NARROW, NARROW.astype(np.float64) * FACTOR),
    ],
)
def test_number_is_rounded_to_compute_dtype(call: str, given: np.ndarray, wanted: np.ndarray) -> None:
    np.testing.assert_allclose(expected(given, call), wanted, rtol=1e-15)


def expected(given: np.ndarray, call: str) -> np.ndarray:
    (found,) = compute_expected([given], {"call": call})
    return np.asarray(getattr(found, "values", found))


def test_float64_and_sizes_keep_their_number() -> None:
    np.testing.assert_array_equal(expected(WIDE, "torch.mul(input0, 1.702)"), WIDE * 1.702)
    image = np.ones((1, 1, 10), dtype=np.float32)
    assert expected(image, "torch.nn.functional.interpolate(input0, scale_factor=1.3)").shape == (1, 1, 13)


def test_torch_itself_agrees() -> None:
    """A correctly rounded product is what torch gives, which it is only with the number rounded first."""
    found = expected(LINE, "torch.mul(input0, 1.702)").astype(np.float32)
    np.testing.assert_array_equal(found, (torch.from_numpy(LINE) * 1.702).numpy())
