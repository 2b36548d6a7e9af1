"""Functions as a backend: what they get, what is a gap, and what is refused before anything runs."""

from __future__ import annotations

import io
import re
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from texts import refusal, says

import optest
from optest.api.checking import check, check_request
from optest.api.report import Report
from optest.api.run_request import run_request
from optest.backends import Capability, function
from optest.cli import main
from optest.errors import UsageError
from optest.reporting.explain import explain
from optest.spec import CaseResult, Reason, Status

pytestmark = pytest.mark.torch  # the functions' module imports it

MODULE = """
    import functools
    import numpy as np
    import torch
    import optest
    from optest.backends import Numerics

    def softmax(x, axis=-1):
        e = np.exp(x.astype(np.float64) - x.max(axis=axis, keepdims=True, initial=-np.inf).astype(np.float64))
        return (e / e.sum(axis=axis, keepdims=True)).astype(x.dtype)

    def forgets_the_axis(x):
        return softmax(x)

    def relu_of_tensors(x: torch.Tensor) -> torch.Tensor:
        assert isinstance(x, torch.Tensor)
        return torch.relu(x)

    def one_tensor(x):
        return x

    def not_yet(x):
        raise NotImplementedError("not for this shape")

    @optest.kernel("relu", dtypes=("float32",), ranks=(2,), refuses=True)
    def narrow(x):
        return np.maximum(x, 0)

    @optest.kernel("topk", dtypes=("float32",), ignores=("sorted",))
    def by_name(x, k, dim=-1, largest=True):
        indices = np.take(np.argsort(-x if largest else x, axis=dim, kind="stable"), range(k), axis=dim)
        return {"indices": indices, "values": np.take_along_axis(x, indices, dim)}

    class Tensor:
        def __init__(self, array):
            self.array = array

        def __array__(self):
            return self.array

    @optest.kernel("sin", dtypes=("float32",), numerics=Numerics(denormals="flush"))
    def of_another_library(x):
        with np.errstate(invalid="ignore"):
            y = np.sin(x)
        return Tensor(np.where(abs(y) < np.finfo(np.float32).tiny, 0, y).astype(np.float32))

    def by_torchs_signature(x, normalized_shape, weight=None, bias=None, eps=1e-5):
        axes = tuple(range(-len(normalized_shape), 0))
        wide = x.astype(np.float64)
        out = (wide - wide.mean(axes, keepdims=True)) / np.sqrt(wide.var(axes, keepdims=True) + eps)
        out = out if weight is None else out * weight
        return (out if bias is None else out + bias).astype(x.dtype)

    def not_yet_and_no_word(x):
        raise NotImplementedError

    def says_nothing(x, dim=-1):
        return x.softmax(dim)

    def branches(x):
        return x.relu() if x.ndim == 3 else np.maximum(x, 0)

    def changes_arrays(x):
        if isinstance(x, np.ndarray):
            x += x + 1
            x.setflags(write=False)
        return x.relu()

    def writes_arrays(x, out):
        if isinstance(x, np.ndarray):
            out[...] = 7
        x.relu()

    def my_layernorm(beta, gamma, x, epsilon=1e-5):
        wide = x.double()
        mean, variance = wide.mean(-1, keepdim=True), wide.var(-1, keepdim=True, unbiased=False)
        return ((wide - mean) * torch.rsqrt(variance + epsilon) * gamma + beta).to(x.dtype)

    def layernorm_of(x, shape, weight=None, bias=None, eps=1e-5):
        return torch.nn.functional.layer_norm(x, shape, weight, bias, eps)

    def norm_over(x, these, weight=None, bias=None, eps=1e-5):
        return torch.nn.functional.layer_norm(x, these, weight, bias, eps)

    def scaled_scores(query, key, value, sm_scale):
        return (query @ key.mT * sm_scale).softmax(-1) @ value

    def table_of(rows, values):
        return values[rows]

    def tanh_gelu(x):
        return torch.nn.functional.gelu(x, approximate="tanh")

    def strided_pool(x, kernel, strides=None, pad=0):
        return torch.nn.functional.max_pool2d(x, kernel, strides, pad)

    def fused_add_rms_norm(x, residual, weight, eps):
        total = x + residual
        wide = total.double()
        return (wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + eps) * weight).to(x.dtype), total

    def attention(q, k, v, causal=True): ...

    flash_attention = attention

    def quantize_int8(x): ...

    def mha(query, key, value, attn_mask=None, is_causal=False): ...

    def ce_loss(logits, labels): ...

    def quant_per_token(x): ...

    def attend(q, k, v, mask=None, causal=False, scale=None):
        return torch.nn.functional.scaled_dot_product_attention(q, k, v, mask, 0.0, causal, scale=scale)

    def writes_into_c(a, b, c) -> None:
        c[...] = a + b

    def norm_in_place(input: torch.Tensor, residual: torch.Tensor, weight: torch.Tensor, epsilon: float) -> None:
        residual += input
        scale = torch.rsqrt(residual.pow(2).mean(-1, keepdim=True) + epsilon)
        input[...] = residual * scale * weight

    @optest.kernel("add_rms_norm", in_place=("input",))
    def norm_half_declared(input: torch.Tensor, residual: torch.Tensor, weight: torch.Tensor, epsilon: float) -> None:
        norm_in_place(input, residual, weight, epsilon)

    @optest.kernel("add_rms_norm", in_place=("input", "residual"))
    def norm_declared(input: torch.Tensor, residual: torch.Tensor, weight: torch.Tensor, epsilon: float) -> None:
        norm_in_place(input, residual, weight, epsilon)

    @optest.kernel("add", dtypes=("float32",), in_place=("a",))
    def adds_to_a(a, b):
        a += b

    def cut_to_64_columns(x):
        e = (x - x.amax(-1, keepdim=True)).exp()
        return e / e[..., :64].sum(-1, keepdim=True)

    def of_the_last_dimension(x):
        return torch.softmax(x, -1)

    class Module(torch.nn.Module):
        def forward(self, x):
            return torch.softmax(x, -1)

    class OfAutograd(torch.autograd.Function):
        @staticmethod
        def forward(context, x):
            return torch.softmax(x, -1)

    a_module = Module()
    compiled = torch.compile(a_module, backend="eager")
    part = functools.partial(a_module)
    wrapped = functools.wraps(a_module)(lambda *args, **keywords: a_module(*args, **keywords))

    NUMBER = 3

    class OfWeights(torch.nn.Linear):
        def forward(self, input, dim=-1):
            return input

    of_weights = OfWeights(2, 2)

    def conv_by_one(x: torch.Tensor, weight, bias=None, stride: int = 1, padding=0):
        assert type(stride) is int
        if x.ndim != 4:
            raise NotImplementedError
        padded = torch.nn.functional.pad(x, (padding,) * 4)
        out = torch.nn.functional.conv2d(padded, weight, None, stride)
        return out if bias is None else out + bias[:, None, None]

    def conv_by_either(x: torch.Tensor, weight, bias=None, stride=1, padding=0):
        if x.ndim != 4 or isinstance(padding, str):
            raise NotImplementedError
        down, right = stride if isinstance(stride, tuple) else (stride, stride)
        return torch.nn.functional.conv2d(x, weight, bias, (right, down), padding)  # wrong if they differ

    def conv_by_pairs(x: torch.Tensor, w, b=None, stride=(1, 1), padding=(0, 0), dilation=(1, 1), groups=1):
        (down, right), (rows, columns), (deep, wide) = stride, padding, dilation
        if x.ndim != 4:
            raise NotImplementedError
        return torch.nn.functional.conv2d(x, w, b, (down, right), (rows, columns), (deep, wide), groups)

    def pool_by_pairs(x: torch.Tensor, kernel_size, stride=None, padding: int = 0):
        (high, wide), (down, right) = kernel_size, stride or kernel_size
        if x.ndim != 4:
            raise NotImplementedError
        return torch.nn.functional.max_pool2d(x, (high, wide), (down, right), padding + 0)
"""


@pytest.fixture(autouse=True)
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    (tmp_path / "kernels_under_test.py").write_text(textwrap.dedent(MODULE))
    (tmp_path / "softmax.py").write_text("def helper(x): ...\ndef my_softmax(x): ...\n")
    (tmp_path / "raises.py").write_text("def softmax(x): ...\nsoftmax.absent()\n")
    (tmp_path / "no_python.py").write_text("def softmax(x: return x\n")
    launches = "import numpy\nclass Jitted:\n    __module__ = 'triton.runtime.jit'\nkernel = Jitted()\n"
    (tmp_path / "launches.py").write_text(f"{launches}def softmax(x, dim: int): return kernel[1](x)\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(function, "_DECLARED", {})
    yield
    sys.modules.pop("kernels_under_test", None)


def printed_check(name: str, **options: Any) -> tuple[Report, str]:
    stream = io.StringIO()
    outcome = check({"function": (name,), "isolate": "none", "jobs": 1, **options}, stream=stream)
    return outcome, stream.getvalue()


def asked(name: str, **options: Any) -> Report:
    return printed_check(name, **{"tier": "parity", **options})[0]


def of_float32(name: str, *case_sets: str) -> Report:
    return asked(name, dtype=("float32",), case_set=case_sets)


def by_status(outcome: Report, status: Status) -> list[CaseResult]:
    return [each for each in outcome.results if each.status is status]


def gaps_of(outcome: Report) -> list[str]:
    return [each.verdict.message for each in by_status(outcome, Status.SKIPPED)]


NO_DIM = "takes no dim, which is 0 here"


@pytest.mark.parametrize(
    ("name", "case_sets", "least", "gap"),
    [
        ("softmax=softmax", "ordinary attributes", 6, ""),
        ("add=adds_to_a", "ordinary", 4, ""),  # a parameter names the input that is written
        ("sin=of_another_library", "ordinary special", 6, ""),  # returns another library's tensors
        ("topk=by_name", "ordinary", 1, ""),  # returns its outputs by name
        ("softmax=forgets_the_axis", "attributes", 1, NO_DIM),
        ("softmax=a_module", "attributes", 1, NO_DIM),
        ("softmax=compiled", "attributes", 1, NO_DIM),
        ("softmax=part", "attributes", 1, NO_DIM),
        ("softmax=wrapped", "attributes", 1, NO_DIM),
        ("softmax=OfAutograd.apply", "attributes", 1, NO_DIM),
        ("conv2d=conv_by_one", "ordinary attributes", 9, "takes no stride of"),
        ("conv2d=conv_by_pairs", "ordinary attributes", 9, "takes no padding of 'same'"),
        ("max_pool2d=pool_by_pairs", "ordinary attributes", 9, "takes no padding of (2, 1"),
    ],
)
def test_functions_pass_the_cases_that_they_take(name: str, case_sets: str, least: int, gap: str) -> None:
    operator, _, function_name = name.partition("=")
    outcome = of_float32(f"{operator}=kernels_under_test:{function_name}", *case_sets.split())
    assert {each.status for each in outcome.results} <= {Status.PASSED, Status.SKIPPED}
    assert {each.operator for each in outcome.results} == {operator}
    assert len(by_status(outcome, Status.PASSED)) >= least
    assert not gap or any(gap in message for message in gaps_of(outcome))


def test_torchs_signature_passes_tensors_behind_an_attribute() -> None:
    """As of torch.nn.functional.layer_norm(x, normalized_shape, weight, bias, eps)."""
    outcome = of_float32("layer_norm=kernels_under_test:by_torchs_signature", "attributes")
    assert {each.status for each in outcome.results} == {Status.PASSED}
    assert {each.operator for each in outcome.results} == {"layer_norm"}
    assert len(outcome.results) >= 3
    assert {len(each.shapes) for each in outcome.results} >= {1, 3}


@pytest.mark.heavy
def test_dimension_counted_from_front_equals_default() -> None:
    for name, status in (("cut_to_64_columns", Status.FAILED), ("of_the_last_dimension", Status.PASSED)):
        outcome = of_float32(f"softmax=kernels_under_test:{name}", "sizes", "attributes")
        assert len([each for each in by_status(outcome, status) if "/sizes/" in each.id]) > 5, name
        gaps = [each.id for each in by_status(outcome, Status.SKIPPED) if "takes no dim" in each.verdict.message]
        assert gaps
        assert all("/attributes/" in each for each in gaps), name
    assert not by_status(outcome, Status.FAILED)


def test_the_decorator_for_all_changed_inputs_is_printed() -> None:
    pasted = '@optest.kernel("add_rms_norm", in_place=("input", "residual"))'
    given: dict[str, Any] = {"op": ("add_rms_norm",), "dtype": ("float32",), "case_set": ("ordinary",)}
    first = by_status(asked("kernels_under_test:norm_in_place", **given), Status.FAILED)[0]
    assert first.reason is Reason.INPUT_MUTATED
    assert "input1 (other)" in first.verdict.message
    assert any(line.endswith(pasted) for line in explain(first))
    skipped = by_status(asked("kernels_under_test:norm_half_declared", **given), Status.SKIPPED)
    assert any(f"(out, residual): {pasted}" in each.verdict.message for each in skipped)
    outcome = asked("kernels_under_test:norm_declared", **given)
    assert by_status(outcome, Status.PASSED)
    assert not by_status(outcome, Status.FAILED)


def test_an_annotation_says_that_it_takes_torch_tensors() -> None:
    outcome = asked("relu=kernels_under_test:relu_of_tensors")
    assert by_status(outcome, Status.PASSED)
    assert {message.removesuffix(" (3 cases)") for message in gaps_of(outcome)} == {
        "torch has no negative strides",
        "relu_of_tensors: it declares no error handling (refuses=True)",
    }
    assert {each.status for each in outcome.results} == {Status.PASSED, Status.SKIPPED}


def test_only_promised_cases_of_kernel_run() -> None:
    outcome = asked("kernels_under_test:narrow", tier="full")
    assert {each.operator for each in outcome.results} == {"relu"}
    passed = by_status(outcome, Status.PASSED)
    assert {(*map(len, each.shapes.values()), *each.dtypes) for each in passed} == {(2, "float32")}
    assert {each.reason for each in by_status(outcome, Status.FAILED)} <= {Reason.NOT_REFUSED}


def test_too_few_parameters_and_not_implemented_are_gaps() -> None:
    for name, own, why in (
        ("add", "one_tensor", "fewer tensors"),
        ("add", "writes_into_c", 'needs c, .*: @optest.kernel\\("add", out=\\("c",\\)\\)'),
        ("relu", "not_yet", "not for this shape"),
        ("relu", "not_yet_and_no_word", "not_yet_and_no_word: NotImplementedError"),
    ):
        outcome = asked(f"{name}=kernels_under_test:{own}", case_set=("ordinary",))
        assert {each.status for each in outcome.results} == {Status.SKIPPED}
        assert all(re.search(why, message) for message in gaps_of(outcome))


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("kernels_under_test:absent", "no attribute 'absent'"),
        ("no_such_module:f", "does not exist on the import path"),
        ("kernels_under_test:NUMBER", "is 3, expected a function"),
        ("nothing_of_the_kind=kernels_under_test:softmax", "is no operator.*\n  for a .*--reference"),
        ("kernels_under_test:quantize_int8", "\n  for quantize, rename the parameters .*\n  for a .*--reference"),
        ("kernels_under_test:flash_attention", "did you mean --function scaled_dot_product_attention=k"),
        ("kernels_under_test:mha", "did you mean --function scaled_dot_product_attention=k"),
        ("kernels_under_test:ce_loss", "operators\\)\n  for a .*--reference"),
        ("kernels_under_test:quant_per_token", "(?s)operators\\)\n  for .*--reference"),
        ("kernels_under_test:Module(3, bias=1.5)", r"not a call\n.* instance = Module\(3, bias=1\.5\)"),
        ("kernels_under_test:my_layernorm", "did you mean --function layer_norm=kernels_under_test:my_lay"),
        ("kernels_under_test:layernorm_of", "did you mean --function layer_norm=kernels_under_test:layern"),
        ("softmax=kernels_under_test:Module", r"Module is a class, expected an .*function: Module\(\.\.\.\)"),
        ("kernels_under_test:OfAutograd", r"is a class, .*: OfAutograd\.apply"),
        ("kernels_under_test.py", "did you mean kernels_under_test.py:[a-z]"),
        ("kernels_under_test:", r"did you mean kernels_under_test:\w+\?\n  functions: .*and \d+ more"),
        ("kernels_under_test", "did you mean kernels_under_test:[a-z]"),
        ("softmax.py", "did you mean softmax.py:my_softmax"),
        ("raises.py:softmax", r"at .*raises.py:2, in <module>: .*\n  correct the module at this line"),
        ("no_python.py:softmax", r"at .*no_python.py:1: def .*\n  correct the module at this line"),
        ("absent_file.py:softmax", "there is no file absent_file.py"),
    ],
)
def test_refused_before_anything_runs(name: str, words: str) -> None:
    with pytest.raises(UsageError, match=words):
        asked(name)


@pytest.mark.heavy
def test_function_that_fits_no_case_leads_on() -> None:
    for name, meant in (
        ("kernels_under_test:attention", "did you mean --function scaled_dot_product_attention=k"),
        ("attention=kernels_under_test:mha", "did you mean --function scaled_dot_product_attention=k"),
        ("quantize=kernels_under_test:quantize_int8", "takes no call of quantize; for quantize, rename .*--reference"),
        ("layer_norm=kernels_under_test:norm_over", "of layer_norm; for layer_norm, rename .*--reference"),
        ("softmax=kernels_under_test:softmax", ""),
        ("softmax=kernels_under_test:of_weights", ""),
        ("softmax=launches:softmax", ""),
    ):
        _, text = printed_check(name, tier="smoke")
        lines = [line for line in text.splitlines() if "takes no call" in line]
        assert len(lines) == bool(meant)
        assert ("has weights, which the cases do not use" in text) == name.endswith("of_weights")
        assert ("--backend triton" in text) == ("launches" in name)
        assert re.search(meant, "".join(lines)), lines


def test_file_of_a_package_imports_its_neighbours(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = tmp_path / "src" / "kernels_of_mine"
    package.mkdir(parents=True)
    (package / "__init__.py").touch()
    (package / "parts.py").write_text("import numpy as np\n")
    (package / "rows.py").write_text("from .parts import np\n\n\ndef neg(x: np.ndarray):\n    return np.negative(x)\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    outcome = asked("src/kernels_of_mine/rows.py:neg", case_set=("ordinary",), dtype=("float32",))
    assert by_status(outcome, Status.PASSED)
    assert not outcome.exit_status


def test_what_may_be_meant_if_most_calls_fail() -> None:
    for name, meant in (
        ("embedding=kernels_under_test:table_of", "assigned by position: rows is weight, values is indices"),
        ("gelu=kernels_under_test:tanh_gelu", "give it a parameter approximate='tanh' and raise NotImplementedError"),
        ("softmax=kernels_under_test:softmax", ""),
    ):
        _, text = printed_check(name, case_set=("ordinary",))
        assert meant in text
        assert ("assigned by position" in text or "give it" in text) == bool(meant)


def test_decorators_add_up_for_all_aliases() -> None:
    @optest.kernel("scaled_dot_product_attention", dtypes=("float32",), ignores=("enable_gqa",))
    @optest.kernel("scaled_dot_product_attention", ranks=(4,), broadcasts=False)
    def attend(q: object, k: object, v: object) -> None: ...

    for name in ("", "sdpa", "scaled_dot_product_attention"):
        found = function.kernel_of(attend, name)
        assert found.promised == Capability(dtypes=("float32",), ranks=(4,), broadcasts=False, refuses=False)
        assert found.ignores == ("enable_gqa",)
    assert function.kernel_of(attend, "softmax").promised == Capability(refuses=False)


def test_names_that_functions_have_for_tensors_and_attributes() -> None:
    lacking = r"takes no (normalized_shape, which .*: add it|dilation|ceil_mode|is_causal|enable_gqa)"
    for name, case_set, most_skipped in (
        ("layer_norm=kernels_under_test:my_layernorm", "ordinary", 1),
        ("layer_norm=kernels_under_test:layernorm_of", "ordinary", 0),
        ("max_pool2d=kernels_under_test:strided_pool", "ordinary", 3),
        ("add_rms_norm=kernels_under_test:fused_add_rms_norm", "ordinary", 1),
        ("scaled_dot_product_attention=kernels_under_test.py:attend", "attributes", 0),
        ("scaled_dot_product_attention=kernels_under_test:scaled_scores", "ordinary", 2),
    ):
        outcome = of_float32(name, case_set)
        assert {each.status for each in outcome.results} <= {Status.PASSED, Status.SKIPPED}, name
        skipped = gaps_of(outcome)
        assert len(skipped) <= most_skipped < len(by_status(outcome, Status.PASSED)), name
        assert all(re.search(lacking, message) for message in skipped)


def test_function_accepting_other_forms_is_compared() -> None:
    failed = by_status(of_float32("conv2d=kernels_under_test:conv_by_either", "attributes"), Status.FAILED)
    assert failed
    assert all(len({*each.attributes["stride"]}) == 2 for each in failed)


def test_jax_indices_and_scalar_dimensions(tmp_path: Path) -> None:
    pytest.importorskip("jax")
    (tmp_path / "of_jax.py").write_text("import jax\ndef topk(x, k, dim=-1): return jax.lax.top_k(x, k)\n")
    outcome = of_float32("of_jax:topk", "ordinary")
    passed = by_status(outcome, Status.PASSED)
    assert passed
    assert not by_status(outcome, Status.FAILED)
    assert all(any("int32 indices of JAX" in check.detail for check in each.verdict.checks) for each in passed)
    (tmp_path / "of_jax.py").write_text("def cumsum(x, dim): return jnp.cumsum(x, dim)\nimport jax.numpy as jnp\n")
    sys.modules.pop("of_jax")
    outcome = of_float32("of_jax:cumsum", "attributes")
    assert any("no dimension for a 0-d array" in message for message in gaps_of(outcome))
    assert Reason.RAISED not in {each.reason for each in outcome.results}


def test_one_function_is_for_the_one_operator_requested(capsys: pytest.CaptureFixture[str]) -> None:
    outcome = asked("kernels_under_test:relu_of_tensors", op=("relu",), case_set=("ordinary",), dtype=("float32",))
    assert {(each.operator, each.status) for each in outcome.results} == {("relu", Status.PASSED)}
    assert not check_request({"function": ("softmax=kernels_under_test:softmax",)}).unsupported
    for word, option in (("m:softmax", "--function m:softmax"), ("softmax", "--op softmax")):
        assert main(["check", word]) == 2
        assert says(capsys.readouterr().err, "backends.did_you_mean", option=option)


def test_a_function_that_fails_on_arrays_gets_tensors(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("optest.backends.function.arrays_of", lambda _: "numpy")
    given = {"dtype": ("float32",), "case_set": ("ordinary",)}
    outcome, text = printed_check("softmax=kernels_under_test:says_nothing", **given)
    assert {each.status for each in outcome.results} == {Status.PASSED}
    assert says(text, "backends.gets_torch_tensors_where")
    monkeypatch.setattr("optest.backends.function.is_installed", lambda _: False)
    outcome, text = printed_check("softmax=kernels_under_test:says_nothing", **given)
    assert {each.reason for each in outcome.results} == {Reason.RAISED}
    assert says(text, "backends.raised_it_got_numpy")


def test_cases_get_tensors_independently(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("optest.backends.function.arrays_of", lambda _: "numpy")
    given: dict[str, Any] = {"dtype": ("float32",), "case_set": ("ordinary", "layouts")}

    def notes(outcome: Report) -> dict[str, tuple[Status, list[str | None]]]:
        return {
            each.id: (each.status, [check.detail for check in each.verdict.checks if check.name == "arrays"])
            for each in outcome.results
        }

    together = notes(asked("relu=kernels_under_test:branches", **given))
    alone = notes(asked("relu=kernels_under_test:branches", **given, case=("relu/*3x5x7*",)))
    assert {each: together[each] for each in alone} == alone
    assert {status for status, _ in together.values()} <= {Status.PASSED, Status.SKIPPED}  # no negative strides
    assert all(said for _, said in alone.values())
    assert 0 < len([said for _, said in together.values() if said]) < len(together)

    changed = asked("relu=kernels_under_test:changes_arrays", **given)
    assert {each.status for each in changed.results} == {Status.PASSED, Status.SKIPPED}, "what the first call wrote"
    written = asked("relu=kernels_under_test:writes_arrays", **given)
    with_elements = [each for each in written.results if 0 not in each.shapes["input0"]]
    assert {each.reason for each in with_elements} == {Reason.UNWRITTEN, Reason.UNSUPPORTED}


_WAYS_TO_WRITE = {
    "torch": (
        "import numpy as np, torch\ndef f(x, dim: int = -1): return torch.exp(x)",
        "import numpy as np, torch\ndef f(x, dim: int = -1) -> None: return x.amax(dim)",
        "import torch.nn.functional as F\ndef f(x): return F.relu(x)",
        "from torch import exp\ndef f(x): return exp(x)",
        "import torch\nclass M(torch.nn.Module):\n  def forward(self, x): return x\nf = M()",
        "import functools, torch\ndef g(x, dim): return torch.softmax(x, dim)\nf = functools.partial(g, dim=1)",
        "import torch\nf = torch.compile(lambda x: x, backend='eager')",
        "import torch\ndef make(act=torch.exp):\n  def f(x): return act(x)\n  return f\nf = make()",
        "def f(x):\n  import torch\n  return torch.exp(x)",
        "from __future__ import annotations\ndef f(x: Tensor, n: int = 1) -> Tensor: return x.exp()",
        "import torch, numpy as np\ndef helper(x): return torch.exp(x)\ndef f(x): return helper(x) * np.log2(np.e)",
        "import functools, torch\ndef d(f):\n  @functools.wraps(f)\n  def inner(*a): return f(*a)\n  return inner\n"
        "@d\ndef f(x): return torch.exp(x)",
        "import torch\nclass A(torch.autograd.Function):\n  forward = staticmethod(lambda ctx, x: x)\nf = A.apply",
        "import torch\nf = torch.nn.functional.softplus",
    ),
    "jax": (
        "import jax.numpy as jnp\ndef f(x): return jnp.exp(x)",
        "import jax\n@jax.jit\ndef f(x): return x.at[0].set(0)",
        "import numpy as np, jax\n@jax.jit\ndef f(x): return x * np.float32(2)",
        "from jax import Array\ndef f(x: Array, n: int = 1): return x",
        "import jax\nf = jax.numpy.exp",
    ),
    "numpy": (
        "import numpy as np\ndef f(x): return np.exp(x)",
        "import numpy as np, torch\ndef f(x): return np.exp(x)\ndef other(x): return torch.exp(x)",
        "import numpy as np, torch\ndef f(x: np.ndarray): return torch.exp(torch.from_numpy(x)).numpy()",
        "def f(x: 'np.ndarray', dtype: 'np.dtype' = None): return x",
        "def f(x): return x.clip(0)",
        "import numpy as np\nf = np.exp",
        "class Tensor: pass\ndef f(x: Tensor): return x",
    ),
}


@pytest.mark.parametrize("arrays", _WAYS_TO_WRITE)
def test_source_of_a_function_decides_its_arrays(arrays: str) -> None:
    for package in {"torch", arrays}:
        pytest.importorskip(package)
    for text in _WAYS_TO_WRITE[arrays]:
        module: dict[str, Any] = {"__name__": "written_for_this_test"}
        exec(compile(text, "written_for_this_test", "exec", dont_inherit=True), module)
        assert function.arrays_of(module["f"]) == arrays, text


def test_a_decorator_with_a_wrong_word() -> None:
    with refusal(UsageError, "backends.dtypes_of_capability_has"):
        optest.kernel("relu", dtypes=("float",))
    with refusal(UsageError, "backends.expected_one_of_numpy"):
        optest.kernel("relu", arrays="cupy")
    with refusal(UsageError, "backends.has_parameter_normalized_shape"):
        optest.kernel("layer_norm", ignores=("normalized_shape",))(lambda x, normalized_shape: x)
    with pytest.raises(UsageError, match="expected a function"):
        optest.kernel("relu")(3)  # type: ignore[arg-type]


def test_a_run_finds_the_backend_by_the_option() -> None:
    with refusal(UsageError, "backends.no_function_is_named"):
        check({"backend": "function"}, stream=io.StringIO())
    named = {"function": ("kernels_under_test:softmax",)}
    case = {**named, "op": ("softmax",), "dtype": "float32"}
    assert run_request({**case, "shape": ("input0=2x3",)}).driver.name == "function"
    with refusal(UsageError, "backends.optest_check_function_kernels"):
        run_request(named)
    with refusal(UsageError, "backends.function_is_not_for"):
        run_request({**case, "backend": "numpy"})
