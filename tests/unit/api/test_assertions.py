"""assert_right and assert_close: a failure block as AssertionError, and errors for what is no fault of a kernel."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from texts import refusal, says_exactly

from optest.errors import UsageError
from optest.testing import Numerics, Rule, RuleClass, assert_close, assert_right

RNG = np.random.default_rng(0)
X = RNG.standard_normal((8, 100)).astype(np.float16)


def softmax(x: Any, scale: float = 1.0) -> Any:
    wide = np.exp(x.astype(np.float64))
    return (wide / wide.sum(-1, keepdims=True) * scale).astype(x.dtype)


class Dlpack:
    """A tensor of a library that NumPy does not know."""

    def __init__(self, array: Any) -> None:
        self.array = array

    def __dlpack__(self, **given: Any) -> Any:
        return self.array.__dlpack__(**given)

    def __dlpack_device__(self) -> Any:
        return self.array.__dlpack_device__()


@pytest.mark.parametrize("make", [lambda x: x, lambda x: x.astype(ml_dtypes.bfloat16), lambda x: x[:, ::-1]])
def test_a_right_result_passes_in_any_dtype_and_layout(make: Callable[[Any], Any]) -> None:
    x = make(X)
    assert_right(softmax(x), "softmax", [x], dim=-1)
    assert_right({"out": softmax(x)}, op="softmax", inputs={"input": x, "input1": None}, attributes={"dim": -1})


def test_a_wrong_result_is_told_as_a_run_tells_it() -> None:
    with pytest.raises(AssertionError) as caught:
        assert_right(softmax(X, 1.02), op="softmax", inputs=[X], dim=-1)
    head, *block = str(caught.value).splitlines()
    assert says_exactly(head, "api.failed_softmax_float_actual")
    assert block[0].startswith("  out: all 800 elements are off; worst at ")
    assert block[1].startswith("  rule: float16 in, float32 arithmetic")
    assert "reproduce:" not in str(caught.value)


@pytest.mark.parametrize(
    "call",
    [
        lambda: assert_right(softmax(X, 2), op="softmax", inputs=[X], dim=-1),
        lambda: assert_right(softmax(X), op="softmx", inputs=[X]),
        lambda: assert_right(softmax(X), op="softmax", inputs=[X, X]),
        lambda: assert_right(softmax(X), op="softmax", inputs=[X], dims=1),
        lambda: assert_right(softmax(X), op="softmax", inputs=X),
        lambda: assert_right(X, op="softmax", inputs=[X]),
        lambda: assert_close(X, X.copy(), rule="clos"),
        lambda: assert_close(X, X.copy(), tolerance={"rto": 1}),
    ],
)
def test_the_traceback_ends_at_the_line_of_the_test(call: Callable[[], None]) -> None:
    with pytest.raises((AssertionError, UsageError)) as caught:
        call()
    assert len(caught.traceback) > 2
    assert [entry.name for entry in caught.traceback.filter(caught)] == [
        "test_the_traceback_ends_at_the_line_of_the_test",
        "<lambda>",
    ]


PROVES_LITTLE = r"SUSPECT .*\n.*nothing but zeros passes too"
NAN, ONE, ZERO = (np.full(4, value, np.float32) for value in (np.nan, 1, 0))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda: assert_right(np.maximum(X.copy(), 0), op="relu", inputs=[np.asarray(X[:, ::-1])]),
            r"as if the strides of input were ignored[^\0]*strides \[100, -1\]",
        ),
        (lambda: assert_right(softmax(X), op="softmax", inputs=[X], dim=-1, tolerance={"atol": 2}), PROVES_LITTLE),
        (lambda: assert_close(X, X.copy(), tolerance={"atol": 100}), PROVES_LITTLE),
        (lambda: assert_right(NAN.copy(), op="exp", inputs=[NAN]), "SUSPECT"),
        (lambda: assert_right(ONE, op="sum", inputs=[np.zeros((0, 4), np.float32)], dim=0), "expected 0"),
        (lambda: assert_close(-ZERO, ZERO, rule="movement"), "the same bits"),
        (lambda: assert_close([ONE], [ONE.copy(), ZERO]), "MISSING_OUTPUT"),
        *(
            (lambda shape=shape: assert_right(np.zeros(shape), op="exp", inputs=[np.zeros(shape)]), "NOTHING_COMPARED")
            for shape in ((0,), (0, 4), (3, 0))
        ),
        *(
            (lambda shape=shape: assert_close(np.zeros(shape), np.zeros(shape)), "NOTHING_COMPARED")
            for shape in ((0,), (0, 4), (3, 0))
        ),
    ],
)
def test_wrong_or_inconclusive_results_fail(call: Callable[[], None], message: str) -> None:
    with pytest.raises(AssertionError, match=message):
        call()


def test_results_with_some_nan_or_of_empty_sums_pass() -> None:
    one = np.array([0.0, np.nan], np.float32)
    assert_right(np.exp(one), op="exp", inputs=[one])
    assert_right(ZERO.copy(), op="sum", inputs=[np.zeros((0, 4), np.float32)], dim=0)


@pytest.mark.parametrize(
    ("actual", "reason"),
    [
        (softmax(X).astype(np.float32), "the dtype is float32, expected float16"),
        (softmax(X)[:4], "the shape is 4x100, expected 8x100"),
        (None, "MISSING_OUTPUT"),
        ([softmax(X), X.copy()], "EXTRA_OUTPUT"),
        (np.ma.masked_array(softmax(X), X > 0), "output 0 is MaskedArray, a subclass"),
        (softmax(X).view(np.matrix), "output 0 is matrix, a subclass"),
    ],
)
def test_another_structure_is_a_failure(actual: Any, reason: str) -> None:
    with pytest.raises(AssertionError, match=reason):
        assert_right(actual, op="softmax", inputs=[X], dim=-1)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"op": "sofmax"}, "unknown operator 'sofmax'; did you mean 'softmax'"),
        ({"dmi": 1}, r"softmax: unknown attribute of softmax 'dmi'\n  .*dim"),
        ({"dim": 5}, "dim is 5, expected -2 to 1"),
        ({"inputs": X}, r"inputs is a ndarray, expected a list or a mapping of tensors"),
        ({"inputs": [X, X]}, r"softmax has 2 inputs, expected at most 1: input"),
        ({"inputs": []}, "softmax needs a shape of input0"),
        ({"inputs": {"y": X}}, "unknown tensor 'y'"),
        ({"inputs": [3.0]}, "input0 is a float, expected a tensor"),
        ({"inputs": [np.ma.masked_array(X, X > 0)]}, "input0 is a MaskedArray, expected a tensor"),
        ({"inputs": [np.array(["a"])]}, "input0 has elements of type <U1"),
        ({"tolerance": {"rtl": 1}}, "unknown key 'rtl' of tolerance"),
        ({"numerics": Numerics(denormals="flsh")}, "numerics.denormals = 'flsh'"),
        ({"op": "uniform_"}, "unknown operator"),
        ({"inputs": [softmax]}, "input0 is the function softmax, expected its result; call it"),
        ({"op": "matmul", "inputs": [X, X.copy()]}, "expected 100 rows"),
    ],
)
def test_a_wrong_call_is_no_failure_of_the_kernel(given: Mapping[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        assert_right(softmax(X), **{"op": "softmax", "inputs": [X], **given})


@pytest.mark.parametrize("function", [softmax, lambda x: x, Dlpack])
def test_a_function_in_place_of_its_result(function: Any) -> None:
    for call in (lambda: assert_right(function, "softmax", [X]), lambda: assert_close(function, X)):
        with refusal(UsageError, "api.itself_but_should_be"):
            call()


def test_an_output_in_the_memory_of_an_input_is_refused() -> None:
    """relu of what it has overwritten is what it wrote, whatever that is, if it is positive."""
    x = np.ones(4, np.float32)
    for actual in (x, x[1:], np.asarray(x[::-1])):
        with refusal(UsageError, "api.actual_shares_memory_with_input"):
            assert_right(actual, op="relu", inputs=[x])
    with refusal(UsageError, "api.actual_shares_memory_with"):
        assert_close(x, x)


def test_numerics_and_tolerance_widen_what_is_allowed() -> None:
    a, b = (RNG.standard_normal((64, 64)).astype(np.float32) for _ in "ab")
    low_a, low_b = ((each.view(np.uint32) & 0xFFFFE000).view(np.float32).astype(np.float64) for each in (a, b))
    cut = (low_a @ low_b).astype(np.float32)
    with refusal(AssertionError, "api.rule_float_in_float"):
        assert_right(cut, op="matmul", inputs=[a, b])
    assert_right(cut, op="matmul", inputs=[a, b], numerics=Numerics(operands="tf32", accumulator_truncates=True))
    assert_right(cut, op="matmul", inputs=[a, b], tolerance={"rtol": 1e-2, "atol": 1e-1, "mismatch_ratio": 0.01})


def test_outputs_of_several_tensors() -> None:
    x = RNG.permutation(100).astype(np.float32).reshape(4, 25)
    order = np.argsort(-x, axis=-1)[:, :3]
    values = np.take_along_axis(x, order, -1)
    assert_right((values, order), op="topk", inputs=[x], k=3)
    assert_right({"indices": order, "values": values}, op="topk", inputs=[x], k=3)
    with refusal(AssertionError, "api.indices_of_elements_are"):
        assert_right((values, order[:, ::-1].copy()), op="topk", inputs=[x], k=3)


def test_names_of_onnx_and_their_order_of_inputs() -> None:
    w = RNG.standard_normal((100, 3)).astype(np.float16)
    product = (X.astype(np.float64) @ w.astype(np.float64)).astype(np.float16)
    assert_right(product, op="Gemm", inputs={"B": w, "A": X})
    with pytest.raises(AssertionError, match=r"FAILED  gemm\[float16\]\(8x100, 100x3"):
        assert_right(2 * product, op="Gemm", inputs={"B": w, "A": X})


def test_tensors_of_dlpack() -> None:
    x = X.astype(np.float32)
    assert_right(Dlpack(np.exp(x.astype(np.float64)).astype(np.float32)), op="exp", inputs=[Dlpack(x)])


def test_a_wider_expected_tensor_is_the_exact_result() -> None:
    wide = np.exp(X.astype(np.float64))
    assert_close(wide.astype(np.float16), wide)
    assert_close(wide.astype(np.float32), wide, rule=Rule(kind=RuleClass.ULP, ulp=1))
    with refusal(AssertionError, "api.assert_close_float_actual"):
        assert_close((wide * 1.01).astype(np.float16), wide)
    with refusal(AssertionError, "api.the_dtype_is_float"):
        assert_close(wide.astype(np.float32), wide.astype(np.float16))


def test_rules_of_assert_close() -> None:
    assert_close(-ZERO, ZERO, rule="exact")
    with refusal(UsageError, "api.needs_the_terms_of"):
        assert_close(ZERO, -ZERO, rule=Rule(kind=RuleClass.ACCUMULATE))
    with pytest.raises(UsageError, match="unknown rule 'ulp'"):
        assert_close(ZERO, -ZERO, rule="ulp")


def test_mappings_of_assert_close_go_by_name() -> None:
    one, two = np.ones(3, np.int32), np.full(3, 2, np.int32)
    assert_close({"a": one, "b": two}, {"b": two.copy(), "a": one.copy()})
    with refusal(AssertionError, "api.all_elements_are_off"):
        assert_close({"a": one, "b": two}, {"a": one.copy(), "b": one.copy()})


def test_steps_of_subnormal_numbers_are_room_for_an_arithmetic_of_16_bits() -> None:
    """exp(-16.3) is 1.4 steps of float16; two of them are as right as arithmetic of float16 gets."""
    x = np.array([[0.0, -16.3]], np.float16)
    made = np.array([[1.0, 2.0**-23]], np.float16)
    in_float16 = Numerics(accumulator="float16")
    assert_right(made, op="softmax", inputs=[x], dim=1, numerics=in_float16)
    for actual, numerics in ((made, None), (4 * made, in_float16)):
        with pytest.raises(AssertionError):
            assert_right(actual, op="softmax", inputs=[x], dim=1, numerics=numerics)
