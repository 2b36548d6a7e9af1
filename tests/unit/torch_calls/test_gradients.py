"""Calls of torch differentiated: the right gradient passes, a wrong one is found, a missing one is told."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
import torch
import torch_kit
from torch_kit import Wrong, by, compiled_both_ways, fails, only, passes, separates, verdict

from optest.backends import ScriptInput
from optest.spec import Reason, TestCase, Tolerance
from optest.torch.calls import device_call
from optest.torch.calls.call import torch_call
from optest.torch.calls.gradients import upstream_of
from optest.torch.calls.memory_needed import bytes_needed
from optest.torch.eager import TorchBackend

SILU = "torch.nn.functional.silu(input0)", torch_kit.tensor((12, 16))
PLACES = torch_kit.tensor(20, "int64", "randint")
LOOSE = Tolerance(rtol=5e-3, atol=5e-3)


def tensor(kind: str, *shape: int, **given: Any) -> Any:
    return torch_kit.tensor(shape, kind, **given)


def case(text: str, *tensors: Any, grad: bool = True, **more: Any) -> TestCase:
    return torch_kit.case(text, *tensors, grad=grad, **more)


def calls(kind: str) -> list[TestCase]:
    rows, row = tensor(kind, 12, 16), tensor(kind, 16)
    images, heads = [tensor(kind, 2, 3, 8, 8), tensor(kind, 4, 3, 3, 3)], [tensor(kind, 2, 2, 9, 8)] * 3
    attention = "torch.nn.functional.scaled_dot_product_attention(input0, input1, input2"
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
        case("torch.nn.functional.embedding(input0, input1)", PLACES, rows),
        case("torch.nn.functional.linear(input0, input1, input2)", rows, tensor(kind, 5, 16), tensor(kind, 5)),
        case("torch.matmul(input0, input0)", tensor(kind, 16, 16)),
        case("torch.nn.functional.conv2d(input0, input1, padding=1)", *images),
        case(f"{attention})", *heads),
        case(f"{attention}, is_causal=True)", *heads),
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
    found = passes(calls(kind)[number])
    assert any(measure.output.startswith("grad.input") for measure in found.measures)


# In place, of lists, of positions, of a mask, with several outputs, of a sum, without a gradient that is not zero.
COMPILED = "add_ cat getitem chunk where nn.functional.linear addmm_ max special.i0 floor"


@pytest.mark.parametrize("name", COMPILED.split())
def test_a_compiled_gradient_passes(name: str) -> None:
    (asked,) = (each for each in calls("float32") if each.attributes["call"].startswith(f"torch.{name}("))
    passes(asked, by("aot_eager"))


def test_gradient_has_input_shape_for_any_strides() -> None:
    repeated = tensor("float32", 12, 16, strides=(0, 1))
    found = verdict(case("torch.mul(input0, input1)", SILU[1], repeated))
    assert [measure.output for measure in found.measures] == ["output0", "grad.exists", "grad.input0", "grad.input1"]
    assert found.measures[-1].shape == (12, 16)


def changed(place: int, change: Callable[[Any], Any]) -> Wrong:
    """Torch with one output changed."""
    return Wrong(only(place, change))


EMBEDDED = case("torch.nn.functional.embedding(input0, input1)", PLACES, tensor("float32", 12, 16), stated=LOOSE)
LONG = tensor("float32", 2048, 8, fill="uniform"), tensor("float32", 4, 8)
PRODUCTS = case("torch.nn.functional.linear(input0, input1)", *LONG, stated=Tolerance(rtol=0.5, atol=5.0))
ROUNDED = tensor("bfloat16", 1024, 16), tensor("bfloat16", 16)


@pytest.mark.parametrize(
    ("of", "place", "change"),
    [
        # Twenty rows of twelve: a row is named several times. 5e-3 of 40 is more than what is lost.
        (EMBEDDED, 2, lambda gradient: gradient + np.float32(2e-3)),
        # The gradient of a weight is a sum over all rows.
        (PRODUCTS, 3, lambda gradient: gradient + np.float32(0.25)),
        # 1024 products are rounded to bfloat16 before they are added, and some of their sums cancel.
        (case("torch.mul(input0, input1)", *ROUNDED, stated=LOOSE), 3, lambda x: x * x.dtype.type(1.1)),
    ],
    ids=["moved elements", "dropped term", "long sum"],
)
def test_wrong_gradient_fails_despite_file_tolerance(of: TestCase, place: int, change: Callable[[Any], Any]) -> None:
    separates(of, changed(place, change), output="grad.input1")


def test_tolerance_met_by_zeros_is_not_used() -> None:
    """The gradients are about 1/4096, and the file's atol is 5e-3."""
    asked = case("torch.mean(input0, dim=-1)", tensor("float32", 2, 4096, fill="uniform"), stated=LOOSE)
    fails(asked, changed(2, lambda gradient: gradient * np.float32(1.2)), output="grad.input0")
    rules = {measure.output: measure.rule.text for measure in passes(asked).measures if measure.rule}
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


def _twin(name: str) -> TestCase:
    return case(f"torch.ops.optest_gradients.{name}(input0, input1)", *[tensor("float32", 12, 12)] * 2)


class Library(TorchBackend):
    """A device whose operator has another gradient than that of the reference."""

    def __init__(self, name: str, compiler: str | None) -> None:
        super().__init__()
        self.configure({"compile_backend": compiler})
        self._name = name

    def device(self) -> str:
        """On the CPU the operator would be its own reference."""
        return "npu:0"

    def run(self, case: TestCase, inputs: Any) -> Any:
        """Gradients from above follow from the text of the call, so the twin gets the other's."""
        of_case, above = device_call.upstream_gradients, device_call.parse_case_call(case)
        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(device_call, "upstream_gradients", lambda _, given: of_case(above, given))
            return super().run(_twin(self._name), inputs)


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
    driver = Library(name, compiler)
    if output is None:
        passes(_twin("right"), driver)
    else:
        fails(_twin("right"), driver, output=output)


@pytest.mark.parametrize("change", [None, lambda x: x * 1.001, torch.zeros_like], ids=["right", "scaled", "dropped"])
def test_a_compiler_with_a_wrong_backward_is_found(change: Callable[[Any], Any] | None) -> None:
    def changed_all(gradients: Sequence[Any]) -> list[Any]:
        return [change(each) if change and each is not None else each for each in gradients]

    driver = compiled_both_ways(backward=torch_kit.changing_results(changed_all))
    (fails if change else passes)(case(*SILU), driver)
    passes(case(*SILU, grad=False), driver)


def test_a_compiler_without_a_backward_falls_back() -> None:
    driver = torch_kit.registered(lambda graph, _: lambda *given: graph(*given))
    fails(case(*SILU), driver, reason=Reason.FALLBACK, words="eager torch computed the gradients")


def test_a_compiler_whose_backward_fails_is_told() -> None:
    def backward(_: Any, __: Any) -> Any:
        raise NotImplementedError("no backward here")

    driver = compiled_both_ways(backward=backward)
    fails(case(*SILU), driver, reason=Reason.COMPILE, words="no backward here")


def test_gradients_depend_on_the_inputs_and_the_call() -> None:
    """The same for the same, in every process; others for other inputs, calls and outputs."""
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
    draw = upstream_of("torch.add(input0)", [np.ones(3)], is_whole=is_whole)
    wide = torch.complex128 if kind.is_complex else torch.float64
    narrow = draw(0, torch.zeros(50, dtype=kind))
    assert torch.equal(narrow.to(wide), draw(0, torch.zeros(50, dtype=wide)))
    assert narrow.abs().min() > 0


def test_script_with_gradients_needs_optest() -> None:
    values, asked = np.ones((12, 16), np.float32), case(*SILU)
    given = ScriptInput(name="input0", source='saved["input0"]', spec=asked.inputs[0].spec, array=values)
    assert "gradients" in str(TorchBackend().script(asked, [given], may_run=True))


def test_gradients_need_more_memory() -> None:
    plain, both = (bytes_needed(case("torch.abs(input0)", SILU[1], grad=grad)) for grad in (False, True))
    assert both >= 2 * plain


def test_call_without_floating_inputs_compares_results() -> None:
    """Numbers and integers have no gradient, so there is nothing that could say which of them exist."""
    for text, *given in (
        ("torch.linspace(0, 1, 5)",),
        ("torch.linspace(input0, 3, 5)", tensor("int64", fill="ones")),
        ("torch.add(input0, input0)", tensor("int64", 4, fill="arange")),
    ):
        assert [measure.output for measure in passes(case(text, *given)).measures] == ["output0"]


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
    assert passes(asked).measures[-1].rule.name == "exact"
    fails(asked, changed(-1, lambda gradient: gradient.astype(np.float32) * 2))


@pytest.mark.parametrize(("kind", "more"), [("float32", 0.01), ("bfloat16", 0.25)])
@pytest.mark.parametrize(
    ("text", "shapes"),
    [
        ("torch.nn.functional.layer_norm(input0, [1], input1, input2)", [(4, 1), (1,), (1,)]),
        ("torch.nn.functional.normalize(input0)", [(4, 1)]),
    ],
)
def test_only_noise_around_zero_passes(text: str, shapes: list[tuple[int, ...]], kind: str, more: float) -> None:
    asked = case(text, *(tensor(kind, *shape) for shape in shapes))
    separates(asked, changed(-len(shapes), lambda gradient: gradient.astype(np.float32) + more))


# Calls without a gradient: results are compared all the same, and a note says that there is none.


ROWS = tensor("float32", 6, 5)
STATISTIC = tensor("float32", 5, fill="uniform", low=0.5, high=2.0)
NORM = "torch.nn.functional.batch_norm(input0, input1, input2, input3, input4, training={})"
CALLS = {
    "argmax": case("torch.argmax(input0, 1)", ROWS),
    "eq": case("torch.eq(input0, input1)", ROWS, ROWS),
    "integers": case("torch.add(input0, input0)", tensor("int64", 3, fill="randint")),
    "zeta": case("torch.special.zeta(input0, input0)", tensor("float32", 3, fill="uniform", low=1.5, high=3.0)),
    "detach": case("torch.detach(input0)", ROWS),
}
NORMS = {mode: case(NORM.format(mode), ROWS, *[STATISTIC] * 4) for mode in ("True", "False")}


def first_wrong(outputs: list[Any]) -> list[Any]:
    first = outputs[0]
    return [~first if first.dtype == bool else first + first.dtype.type(1), *outputs[1:]]


@pytest.mark.parametrize("name", [*CALLS])
def test_results_without_a_gradient_are_judged(name: str) -> None:
    notes = " ".join(check.detail for check in passes(CALLS[name]).checks)
    assert re.search("gives no gradient|cannot differentiate|has no floating input", notes)
    fails(CALLS[name], Wrong(first_wrong))


@pytest.mark.filterwarnings("ignore:Error detected in SpecialZetaBackward")  # torch says so while it compiles
@pytest.mark.parametrize("name", ["argmax", "eq", "zeta"])
def test_compiled_results_without_a_gradient_are_judged(name: str) -> None:
    passes(CALLS[name], by("aot_eager"))


@pytest.mark.heavy
@pytest.mark.parametrize("mode", NORMS)
def test_running_statistics_have_no_gradient(mode: str) -> None:
    found = passes(NORMS[mode])
    assert torch_call(NORMS[mode].attributes["call"]).constant == (1, 2)
    assert [each.output for each in found.measures][-5:] == [f"grad.input{index}" for index in range(5)]
    fails(NORMS[mode], Wrong(first_wrong))
    for place, name in ((-1, "grad.input4"), (-5, "grad.input0")):
        fails(NORMS[mode], changed(place, lambda gradient: gradient * gradient.dtype.type(1.01)), output=name)


def test_wrong_existence_of_gradient_fails() -> None:
    """The result does not depend on the input, or torch has no gradient."""
    separates(case(*SILU), Wrong(lambda outputs: [outputs[0], ~outputs[1], 0 * outputs[-1]]), output="grad.exists")
    fails(CALLS["argmax"], Wrong(lambda outputs: [outputs[0], ~outputs[1], *outputs[2:]]))


def test_failing_backward_is_not_skipped(monkeypatch: pytest.MonkeyPatch) -> None:
    """Torch on the CPU can: so the device has to."""

    def no_way_back(*_: Any) -> Any:
        raise RuntimeError("no way back here")

    monkeypatch.setattr("optest.torch.calls.device_call.differentiate", no_way_back)
    fails(case(*SILU), reason=Reason.RAISED, words="no way back here")
