"""Calls of torch differentiated: the right gradient passes, a wrong one is found, a missing one is told."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
import torch_kit
from torch._dynamo.backends.common import aot_autograd
from torch_kit import Wrong, by, only, verdict

from optest.backends import ScriptInput
from optest.core.benchmarking import BenchOptions
from optest.core.runner import execute
from optest.spec import Reason, Status, TestCase, Tolerance
from optest.torch.calls.memory_needed import bytes_needed
from optest.torch.eager import TorchBackend

LOOSE = Tolerance(rtol=5e-3, atol=5e-3)


def tensor(kind: str, *shape: int, **given: Any) -> Any:
    return torch_kit.tensor(shape, kind, **given)


def case(text: str, *tensors: Any, grad: bool = True, **more: Any) -> TestCase:
    return torch_kit.case(text, *tensors, grad=grad, **more)


def calls(kind: str) -> list[TestCase]:
    rows, row = tensor(kind, 12, 16), tensor(kind, 16)
    heads = tensor(kind, 2, 2, 9, 8)
    return [
        case("torch.add(input0, input1, alpha=2)", rows, row),
        case("torch.mul(input0, input1)", rows, tensor(kind, 12, 16, strides=(0, 1))),
        case("torch.add_(input0, input1)", rows, tensor(kind, 1, 16)),
        case("torch.nn.functional.silu(input0, inplace=True)", rows),
        case("torch.mul(input0, input1)", tensor(kind, 12, 16, strides=(1, 12)), rows),
        case("torch.nn.functional.softmax(input0, dim=-1)", rows),
        case("torch.nn.functional.layer_norm(input0, [16], input1, input2)", rows, row, row),
        case("torch.cat([input0, input1], dim=0)", rows, rows),
        case("torch.stack([input0, input0, input1])", rows, rows),
        case("torch.getitem(input0, (0, [1, 1, 2]))", rows),
        case("torch.setitem(input0, (0,), input1)", rows, row),
        case("torch.view(input0, [-1])", rows),
        case("torch.contiguous(input0)", rows),
        case("torch.expand(input0, [40, 16])", tensor(kind, 1, 16)),
        case("torch.chunk(input0, 3, dim=0)", rows),
        case("torch.float(input0)", rows),
        case("torch.where(input0, input1, 0.0)", tensor("bool", 12, 16, fill="randint"), rows),
        case("torch.nn.functional.embedding(input0, input1)", tensor("int64", 20, fill="randint"), rows),
        case("torch.nn.functional.linear(input0, input1, input2)", rows, tensor(kind, 5, 16), tensor(kind, 5)),
        case("torch.matmul(input0, input0)", tensor(kind, 16, 16)),
        case(
            "torch.nn.functional.conv2d(input0, input1, padding=1)", tensor(kind, 2, 3, 8, 8), tensor(kind, 4, 3, 3, 3)
        ),
        case("torch.nn.functional.scaled_dot_product_attention(input0, input1, input2)", heads, heads, heads),
        case(
            "torch.nn.functional.scaled_dot_product_attention(input0, input1, input2, is_causal=True)",
            heads,
            heads,
            heads,
        ),
        case("torch.addmm_(input0, input1, input2)", rows, tensor(kind, 12, 5), tensor(kind, 5, 16)),
        case("torch.addmv_(input0, input1, input2, alpha=2)", row, tensor(kind, 16, 5), tensor(kind, 5)),
        case("torch.max(input0, dim=1)", rows),
        case("torch.cumsum(input0, dim=0)", rows),
        case("torch.sum(input0)", rows),
        case("torch.floor(input0)", rows),
        case("torch.special.i0(input0)", rows),
        case("torch.lerp(input0, input1, 0.3)", rows, rows),
    ]


@pytest.mark.parametrize("kind", ["float32", "bfloat16"])
@pytest.mark.parametrize("number", range(len(calls("float32"))))
def test_torch_agrees_with_its_gradient_in_float64(kind: str, number: int) -> None:
    found = verdict(calls(kind)[number])
    assert found.status is Status.PASSED, found
    assert any(measure.output.startswith("grad.input") for measure in found.measures)


COMPILED = ("torch.add_", "torch.cat", "torch.getitem", "torch.chunk", "torch.where", "torch.nn.functional.linear",
            "torch.addmm_", "torch.max", "torch.special.i0", "torch.floor")  # fmt: skip
"""In place, of lists, of positions, of a mask, with several outputs, of a sum, without a gradient that is not zero."""


@pytest.mark.parametrize("name", COMPILED)
def test_a_compiled_gradient_passes(name: str) -> None:
    (asked,) = (each for each in calls("float32") if each.attributes["call"].partition("(")[0] == name)
    found = verdict(asked, by("aot_eager"))
    assert found.status is Status.PASSED, found


def test_gradient_has_input_shape_for_any_strides() -> None:
    repeated = tensor("float32", 12, 16, strides=(0, 1))
    found = verdict(case("torch.mul(input0, input1)", tensor("float32", 12, 16), repeated))
    shapes = {measure.output: measure.shape for measure in found.measures}
    assert shapes["grad.input1"] == (12, 16)
    assert [*shapes] == ["output0", "grad.exists", "grad.input0", "grad.input1"]


def changed(place: int, change: Callable[[Any], Any]) -> Wrong:
    """Torch with one output changed."""
    return Wrong(only(place, change))


def test_gradient_of_moved_elements_is_exact() -> None:
    """Twenty rows of twelve: a row is named several times. 5e-3 of 40 is more than what is lost."""
    asked = case(
        "torch.nn.functional.embedding(input0, input1)",
        tensor("int64", 20, fill="randint"),
        tensor("float32", 12, 16),
        stated=LOOSE,
    )
    assert verdict(asked).status is Status.PASSED
    found = verdict(asked, changed(2, lambda gradient: gradient + np.float32(2e-3)))
    assert (found.reason, found.message.partition(":")[0]) == (Reason.VALUE, "grad.input1")


def test_dropped_gradient_term_fails_despite_file_tolerance() -> None:
    """The gradient of a weight is a sum over all rows."""
    asked = case(
        "torch.nn.functional.linear(input0, input1)",
        tensor("float32", 2048, 8, fill="uniform"),
        tensor("float32", 4, 8),
        stated=Tolerance(rtol=0.5, atol=5.0),
    )
    assert verdict(asked).status is Status.PASSED
    found = verdict(asked, changed(3, lambda gradient: gradient + np.float32(0.25)))
    assert (found.reason, found.message.partition(":")[0]) == (Reason.VALUE, "grad.input1")


def test_long_gradient_sum_uses_rounding_bound() -> None:
    """1024 products are rounded to bfloat16 before they are added, and some of their sums cancel."""
    asked = case("torch.mul(input0, input1)", tensor("bfloat16", 1024, 16), tensor("bfloat16", 16), stated=LOOSE)
    assert verdict(asked).status is Status.PASSED
    assert verdict(asked, changed(3, lambda gradient: gradient * gradient.dtype.type(1.1))).reason is Reason.VALUE


def test_tolerance_met_by_zeros_is_not_used() -> None:
    """The gradients are about 1/4096, and the file's atol is 5e-3."""
    asked = case("torch.mean(input0, dim=-1)", tensor("float32", 2, 4096, fill="uniform"), stated=LOOSE)
    wrong = verdict(asked, changed(2, lambda gradient: gradient * np.float32(1.2)))
    assert (wrong.reason, wrong.message.partition(":")[0]) == (Reason.VALUE, "grad.input0")
    right = verdict(asked)
    rules = {measure.output: measure.rule.text for measure in right.measures if measure.rule}
    assert "torch.testing's default for float32" in rules["grad.input0"]


@pytest.fixture(scope="module")
def library() -> None:
    """Operators that compute x·y·2, each with a gradient of its own."""

    def right(ctx: Any, above: Any) -> Any:
        left, other = ctx.saved_tensors
        return above * other * 2, above * left * 2

    wrongs = {
        "right": right,
        "scaled": lambda ctx, above: tuple(1.01 * each for each in right(ctx, above)),
        "exchanged": lambda ctx, above: right(ctx, above)[::-1],
        "forgotten": lambda ctx, above: (right(ctx, above)[0], None),
        "narrow": lambda ctx, above: tuple(each.bfloat16().float() for each in right(ctx, above)),
    }
    for name, backward in wrongs.items():
        made = torch.library.custom_op(f"optest_gradients::{name}", _product, mutates_args=())
        made.register_fake(lambda left, other: torch.empty_like(left))
        made.register_autograd(backward, setup_context=_keep)


def _product(left: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
    return left * other * 2


def _keep(ctx: Any, inputs: Any, output: Any) -> None:
    ctx.save_for_backward(*inputs)


def _right_twin(name: str) -> TestCase:
    square = tensor("float32", 12, 12)
    return case(f"torch.ops.optest_gradients.{name}(input0, input1)", square, square)


class Library(TorchBackend):
    """The device whose operator has another gradient than that of the reference."""

    def __init__(self, name: str) -> None:
        super().__init__()
        self._name = name

    def run(self, case: TestCase, inputs: Any) -> Any:
        return super().run(_right_twin(self._name), inputs)


@pytest.mark.usefixtures("library")
@pytest.mark.parametrize(
    ("name", "output", "compiler"),
    [
        ("right", None, None),
        ("right", None, "aot_eager"),
        ("scaled", "grad.input0", None),
        ("scaled", "grad.input0", "aot_eager"),
        ("exchanged", "grad.input0", None),
        ("forgotten", "grad.exists", None),
        ("narrow", "grad.input0", None),
    ],
)
def test_an_operator_with_a_wrong_backward_is_found(name: str, output: str | None, compiler: str | None) -> None:
    driver = Library(name)
    if compiler is not None:
        driver.configure({"compile_backend": compiler})
    asked = _right_twin("right")
    found = verdict(asked, _AboveOf(asked, driver))
    if output is None:
        assert found.status is Status.PASSED, found
    else:
        assert (found.reason, found.message.partition(":")[0]) == (Reason.VALUE, output), found


class _AboveOf(TorchBackend):
    """Gradients from above follow from the text of the call, so the twin has to be asked with the other's."""

    def __init__(self, asked: TestCase, inner: TorchBackend) -> None:
        super().__init__()
        self._of, self._inner = asked, inner

    def device(self) -> str:
        """On the CPU the operator would be its own reference."""
        return "npu:0"

    def run(self, case: TestCase, inputs: Any) -> Any:
        from optest.torch.calls import device_call

        of_case, above = device_call.upstream_gradients, device_call.parse_case_call(self._of)
        device_call.upstream_gradients = lambda _, given: of_case(above, given)
        try:
            return self._inner.run(case, inputs)
        finally:
            device_call.upstream_gradients = of_case


def _backward_by(change: Callable[[torch.Tensor], torch.Tensor]) -> Any:
    """A compiler that changes what its backward graphs return."""

    def backward(graph: Any, _: Any) -> Any:
        return lambda arguments: [None if each is None else change(each) for each in graph(*arguments)]

    from functorch.compile import make_boxed_func

    return aot_autograd(
        fw_compiler=lambda graph, _: make_boxed_func(graph.forward),
        bw_compiler=lambda graph, given: _boxed(backward(graph, given)),
    )


def _boxed(function: Any) -> Any:
    function._boxed_call = True
    return function


@pytest.mark.parametrize(
    ("name", "change", "status"),
    [
        ("optest_backward_right", lambda each: each, Status.PASSED),
        ("optest_backward_scaled", lambda each: each * 1.001, Status.FAILED),
        ("optest_backward_dropped", torch.zeros_like, Status.FAILED),
    ],
)
def test_a_compiler_with_a_wrong_backward_is_found(
    name: str, change: Callable[[torch.Tensor], torch.Tensor], status: Status
) -> None:
    torch._dynamo.register_backend(_backward_by(change), name=name)
    asked = case("torch.nn.functional.silu(input0)", tensor("float32", 6, 7))
    found = verdict(asked, by(name))
    assert found.status is status, found
    assert verdict(case("torch.nn.functional.silu(input0)", tensor("float32", 6, 7), grad=False), by(name)).status is (
        Status.PASSED
    )


def test_a_compiler_without_a_backward_falls_back() -> None:
    torch._dynamo.register_backend(lambda graph, _: lambda *given: graph(*given), name="optest_forward_alone")
    found = verdict(case("torch.nn.functional.silu(input0)", tensor("float32", 6, 7)), by("optest_forward_alone"))
    assert (found.reason, "eager torch computed the gradients" in found.message) == (Reason.FALLBACK, True)


def test_a_compiler_whose_backward_fails_is_told() -> None:
    def backward(_: Any, __: Any) -> Any:
        raise NotImplementedError("no backward here")

    compiler = aot_autograd(fw_compiler=lambda graph, _: _boxed(lambda given: graph(*given)), bw_compiler=backward)
    torch._dynamo.register_backend(compiler, name="optest_backward_fails")
    found = verdict(case("torch.nn.functional.silu(input0)", tensor("float32", 6, 7)), by("optest_backward_fails"))
    assert found.reason is Reason.COMPILE, found
    assert "no backward here" in found.message


def test_gradients_depend_on_the_inputs_and_the_call() -> None:
    """The same for the same, in every process; others for other inputs, calls and outputs."""
    from optest.torch.calls.gradients import upstream_of

    one, other = np.arange(6.0).reshape(2, 3), np.arange(1.0, 7.0).reshape(2, 3)
    output = torch.zeros(4, 5)
    drawn = [
        upstream_of(text, [array], is_whole=False)(number, output)
        for text, array, number in [("f", one, 0), ("g", one, 0), ("f", other, 0), ("f", one, 1)]
    ]
    assert torch.equal(drawn[0], upstream_of("f", [one], is_whole=False)(0, output))
    assert all(not torch.equal(drawn[0], each) for each in drawn[1:])
    assert drawn[0][0, :3].tolist() == [0.609375, 1.15625, 1.640625]


@pytest.mark.parametrize("kind", [torch.float32, torch.bfloat16, torch.complex64])
@pytest.mark.parametrize("is_whole", [True, False])
def test_upstream_gradients_are_equal_in_every_dtype(kind: torch.dtype, is_whole: bool) -> None:
    from optest.torch.calls.gradients import upstream_of

    draw = upstream_of("torch.add(input0)", [np.ones(3)], is_whole=is_whole)
    wide = torch.complex128 if kind.is_complex else torch.float64
    narrow = draw(0, torch.zeros(50, dtype=kind))
    assert torch.equal(narrow.to(wide), draw(0, torch.zeros(50, dtype=wide)))
    assert narrow.abs().min() > 0


def test_a_gradient_is_timed_with_its_call() -> None:
    asked = case("torch.nn.functional.silu(input0)", tensor("float32", 12, 16))
    found = execute([asked], TorchBackend(), bench=BenchOptions(target_s=0.01))
    assert found.verdicts[0].status is Status.PASSED, found
    assert found.benchmark is not None


def test_script_with_gradients_needs_optest() -> None:
    asked = case("torch.nn.functional.silu(input0)", tensor("float32", 12, 16))
    values = np.ones((12, 16), np.float32)
    given = ScriptInput(name="input0", source='saved["input0"]', spec=asked.inputs[0].spec, array=values)
    assert "gradients" in str(TorchBackend().script(asked, [given], may_run=True))


def test_gradients_need_more_memory() -> None:
    plain, both = (
        bytes_needed(case("torch.abs(input0)", tensor("float32", 12, 16), grad=grad)) for grad in (False, True)
    )
    assert both >= 2 * plain


def test_call_without_floating_inputs_compares_results() -> None:
    """Numbers and integers have no gradient, so there is nothing that could say which of them exist."""
    for text, *given in (
        ("torch.linspace(0, 1, 5)",),
        ("torch.linspace(input0, 3, 5)", tensor("int64", fill="ones")),
        ("torch.add(input0, input0)", tensor("int64", 4, fill="arange")),
    ):
        found = verdict(case(text, *given))
        assert found.status is Status.PASSED, found
        assert [measure.output for measure in found.measures] == ["output0"]


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("torch.Tensor.to(input0, torch.float8_e4m3fn)", "float32"),
        ("torch.Tensor.to(input0, torch.float8_e5m2)", "bfloat16"),
        ("torch.Tensor.float(input0)", "float8_e4m3fn"),
    ],
)
def test_float8_conversion_gradient_is_exact(text: str, kind: str) -> None:
    """Torch squares no float8, and nobody has to."""
    asked = case(text, tensor(kind, 4, 16, fill="uniform", low=-4.0, high=4.0))
    found = verdict(asked)
    assert found.status is Status.PASSED, found.message
    rule = found.measures[-1].rule
    assert rule is not None
    assert rule.name == "exact"
    doubled = changed(-1, lambda gradient: (gradient.astype(np.float32) * 2).astype(gradient.dtype))
    assert verdict(asked, doubled).reason is Reason.VALUE


@pytest.mark.parametrize("kind", ["float32", "bfloat16"])
@pytest.mark.parametrize(
    ("text", "shapes"),
    [
        ("torch.nn.functional.layer_norm(input0, [1], input1, input2)", [(4, 1), (1,), (1,)]),
        ("torch.nn.functional.normalize(input0)", [(4, 1)]),
    ],
)
def test_only_noise_around_zero_passes(text: str, shapes: list[tuple[int, ...]], kind: str) -> None:
    asked = case(text, *(tensor(kind, *shape) for shape in shapes))
    assert verdict(asked).status is Status.PASSED
    by_more = 0.01 if kind == "float32" else 0.25
    off = changed(-len(shapes), lambda gradient: (gradient.astype(np.float32) + by_more).astype(gradient.dtype))
    assert verdict(asked, off).status is Status.FAILED
