"""A file of cases names torch's operators and nothing else of torch's; which share of them was asked for."""

from __future__ import annotations

import pytest

pytest.importorskip("torch")
from optest.operators import operators
from optest.torch.calls.call import torch_call
from optest.torch.calls.names import NoSuchCallable, NotAnOperator, declared_operators, find_callable

pytestmark = pytest.mark.torch


@pytest.mark.parametrize(
    "name",
    [
        "torch.os.system", "torch.sys.exit", "torch.builtins.exec", "torch.load", "torch.save", "torch.hub.load",
        "torch.ops.load_library", "torch.classes.load_library", "torch.utils.cpp_extension.load_inline",
        "torch.jit.load", "torch.from_file", "torch.set_num_threads", "torch.set_default_dtype", "torch.compile",
        "torch.nn.functional.importlib.import_module", "torch.nn.functional.warnings.warn",
        "torch.nn.functional.torch.os.system", "torch.ops.aten.__init__", "torch.Tensor.__class__",
        "torch.ops.aten.from_file", "torch.ops.aten.from_file.default", "torch._VF.from_file",
        "torch._C._VariableFunctions.from_file", "torch.no_grad", "torch._C._log_api_usage_once",
        "torch.set_grad_enabled", "torch.pi", "torch.ops.profiler._record_function_enter_new",
        "torch.ops.profiler._record_function_exit._RecordFunction", "torch._C._jit_set_profiling_mode",
    ],
)  # fmt: skip
def test_what_is_no_operator_is_not_found(name: str) -> None:
    with pytest.raises(NotAnOperator):
        find_callable(name)


@pytest.mark.parametrize(
    "name",
    ["torch.abs.__class__.__base__.__subclasses__", "torch.load.__call__", "torch.linalg.__setattr__"],
)
def test_names_do_not_reach_other_modules(name: str) -> None:
    with pytest.raises(NoSuchCallable):
        find_callable(name)


@pytest.mark.parametrize(
    "name",
    [
        "torch.add", "torch.arange", "torch.einsum", "torch.stft", "torch.tensor", "torch._scaled_mm", "torch.view",
        "torch.Tensor.__getitem__", "torch.setitem", "torch.nn.functional.max_pool2d", "torch._C._nn.gelu",
        "torch.ops.aten.view", "torch.ops.aten.view.default", "torch.ops.aten.mm.out", "torch.special.erf",
        "torch.linalg.norm", "torch.fft.fft", "torch.signal.windows.hann", "torch.sparse.sum", "torch.split",
        "torch.nn.functional.silu", "torch.float", "torch.to", "torch.add_", "torch.Tensor.expand", "torch.getitem",
        "torch.and_", "torch.invert", "torch.truediv", "torch.floordiv",
    ],
)  # fmt: skip
def test_operators_are_found_without_a_table(name: str) -> None:
    assert callable(find_callable(name))
    assert operators.get(name).name == name


@pytest.mark.parametrize("name", ["torch.os.system", "torch.load", "torch.os", "torch.nope", "torch.Tensor"])
def test_what_is_no_constant_is_no_argument(name: str) -> None:
    with pytest.raises(NoSuchCallable, match=f"has no constant {name}"):
        torch_call(f"torch.add(input0, {name})")


def test_constants_are_arguments() -> None:
    for name in ("torch.float16", "torch.channels_last", "torch.strided", "torch.per_tensor_affine", "torch.inf"):
        torch_call(f"torch.to(input0, {name})")


ONE_OF_THEM = "torch.add", "torch.add_", "torch.Tensor.add", "torch.getitem", "torch.ops.aten.view", "torch.truediv"
NONE_OF_THEM = "torch.zeros", "torch.arange", "torch.ops.vendor.view", "torch.nonsense"


def test_every_form_counts_as_one_operator() -> None:
    count, others = declared_operators([*ONE_OF_THEM, *NONE_OF_THEM, "torch.nn.functional.linear"])
    assert others == sorted(NONE_OF_THEM)
    assert 500 < count < 2000
