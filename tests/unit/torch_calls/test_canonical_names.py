"""Every spelling of a call is one operator: the same reference, rule and verdict, whichever name it goes by.

Which names spell an operator is found by asking torch: a name whose function yields the bits of ``torch.mul`` for
operands drawn at random is another name of ``mul``, whether or not anybody thought of it.
"""

from __future__ import annotations

import operator
import re
import subprocess
import sys
import warnings
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any

import numpy as np
import pytest
import torch
from torch_kit import Wrong, case, tensor, verdict

from optest.operators import operators
from optest.spec import Reason, Status
from optest.spec.call_names import canonical
from optest.torch.calls.call import torch_call
from optest.torch.calls.names import NoSuchCallable, NotAnOperator, declared_operators, find_callable
from optest.torch.fact_sheet import facts_of

HOMES = {
    "torch": torch,
    "torch.Tensor": torch.Tensor,
    "torch.special": torch.special,
    "torch.linalg": torch.linalg,
    "torch.nn.functional": torch.nn.functional,
}
OF_ATEN = {name.removeprefix("aten::") for name in torch._C._dispatch_get_all_op_names() if name.startswith("aten::")}
FLOATS = "add", "sub", "mul", "div", "floor_divide", "remainder", "pow", "eq", "ne", "lt", "le", "gt", "ge"
INTEGERS = "bitwise_and", "bitwise_or", "bitwise_xor"
UNARY = "abs", "neg", "sigmoid", "exp", "expm1", "erf", "tanh", "sin", "cos", "sinc", "acos", "bitwise_not"
OTHERS = "isclose", "isin", "norm_except_dim", "sym_sum"
"""They agree on these operands, and compute something else."""

COMMUTE = "add", "mul", "eq", "ne", *INTEGERS
GENERATOR = torch.Generator().manual_seed(7)
SIGNED = [torch.rand(64, generator=GENERATOR) * 2 - 1 for _ in range(2)]
SIGNED[1][::5] = SIGNED[0][::5]
WHOLE = [torch.randint(-99, 99, (64,), generator=GENERATOR) for _ in range(2)]
OPERANDS = {
    **dict.fromkeys(FLOATS, SIGNED),
    **dict.fromkeys(INTEGERS, WHOLE),
    **{name: (WHOLE if "not" in name else SIGNED)[:1] for name in UNARY},
}


def names() -> Iterator[str]:
    """All public names of functions, methods and dispatcher's operators, and those of Python's operators."""
    words = {f"{home}.{word}" for home, owner in HOMES.items() for word in dir(owner)}
    words |= {f"{home}.{word}" for home in ("torch", "torch.Tensor") for word in dir(operator)}
    words |= {f"torch.ops.aten.{name.partition('.')[0]}" for name in OF_ATEN} | {f"torch.ops.aten.{n}" for n in OF_ATEN}
    for name in sorted(words):
        word = name.rpartition(".")[2]
        if not word.startswith("_") or (word.startswith("__") and word.endswith("__")):
            yield name


def yields(function: Callable[..., Any], *operands: torch.Tensor) -> torch.Tensor | None:
    try:
        found = function(*(each.clone() for each in operands))
    except Exception:
        return None
    return found if isinstance(found, torch.Tensor) and found.layout is torch.strided else None


def same(one: torch.Tensor | None, other: torch.Tensor | None) -> bool:
    if one is None or other is None or one.dtype != other.dtype or one.shape != other.shape:
        return False
    return torch.equal(one.nan_to_num(0.125), other.nan_to_num(0.125))


@cache
def spellings() -> dict[str, list[tuple[str, bool]]]:
    """By operator its names, and whether the operands are the other way round."""
    found: dict[str, list[tuple[str, bool]]] = {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        wanted = {name: yields(getattr(torch, name), *operands) for name, operands in OPERANDS.items()}
        reflected = {name: yields(getattr(torch, name), *SIGNED[::-1]) for name in FLOATS if name not in COMMUTE}
        for name in names():
            try:
                function = find_callable(name)
            except (NoSuchCallable, NotAnOperator):
                continue
            results = [yields(function, *SIGNED), yields(function, *WHOLE)]
            results += [yields(function, SIGNED[0]), yields(function, WHOLE[0])]
            for each, value in wanted.items():
                if any(same(value, one) for one in results):
                    found.setdefault(each, []).append((name, False))
                elif any(same(reflected.get(each), one) for one in results):
                    found.setdefault(each, []).append((name, True))
    return found


@pytest.mark.heavy
def test_enough_spellings_are_found() -> None:
    found = {name for each in spellings().values() for name, _ in each}
    assert {"torch.imul", "torch.Tensor.__rsub__", "torch.Tensor.truediv", "torch.special.expit"} <= found
    assert {"torch.__eq__", "torch.Tensor.and_", "torch.ops.aten.rsub.Tensor", "torch.mod"} <= found
    assert len(found) > 150


@pytest.mark.parametrize("name", OPERANDS)
def test_what_computes_an_operator_is_called_by_it(name: str) -> None:
    """Comparisons read from the other side are comparisons of another name: ``x < y`` is ``y > x``."""
    mirrored = {"lt": "gt", "gt": "lt", "le": "ge", "ge": "le"}
    other = [
        spelling
        for spelling, is_reflected in spellings()[name]
        if canonical(spelling).operator not in OTHERS
        if (spelled := canonical(spelling)).operator != (mirrored.get(name, name) if is_reflected else name)
        or (spelled.is_reflected != is_reflected and name not in (*COMMUTE, *mirrored))
    ]
    assert other == []


@pytest.mark.parametrize("name", OPERANDS)
def test_each_spelling_has_the_facts_of_the_function(name: str) -> None:
    comparable = [spelling for spelling, _ in spellings()[name] if canonical(spelling).operator == name]
    assert [each for each in comparable if facts_of(each) != facts_of(f"torch.{name}")] == []


# 16 ulp beside what is right.
OFF = Wrong(lambda outputs: [x * np.float32(1 + 2.0**-19) if x.dtype == np.float32 else x for x in outputs])
COUNTED = tensor(64, fill="uniform", low=0.25, high=0.9)


def told(name: str, is_reflected: bool, count: int, driver: Any = None) -> tuple[Any, ...]:
    """Status, reason and rule of a call by that name, its operands in the order that makes it the same call."""
    places = [f"input{place}" for place in range(count)]
    found = verdict(case(f"{name}({', '.join(places[::-1] if is_reflected else places)})", *[COUNTED] * count), driver)
    assert found.measures, (name, found)
    return found.status, found.reason, found.measures[0].rule


@pytest.mark.parametrize("driver", [None, OFF], ids=["right", "off"])
@pytest.mark.parametrize("name", ["add", "remainder", "eq", "sigmoid", "sinc"])
def test_each_spelling_has_the_verdict_of_the_function(name: str, driver: Any) -> None:
    """One name of each rule; that all spellings have the same facts is tested above."""
    count = 2 if name in FLOATS else 1
    comparable = [(each, way) for each, way in spellings()[name] if canonical(each).operator == name]
    expected = told(f"torch.{name}", False, count, driver)
    assert {told(*each, count, driver) for each in comparable} == {expected}
    if name in ("add", "sigmoid") and driver:
        assert expected[:2] == (Status.FAILED, Reason.VALUE)


DOCUMENTED = re.compile(r"\s*(?:[\w.]+\([^\n]*\n+)?\s*Alias for :(?:func|meth|attr):`~?([\w.]+)")
"""What begins so is another name of what it names."""


def test_documented_aliases_are_one_operator() -> None:
    found = {}
    for home, owner in HOMES.items():
        for word in dir(owner):
            function = getattr(owner, word)
            text = getattr(function, "__doc__", None)
            match = DOCUMENTED.match(text) if callable(function) and isinstance(text, str) else None
            if match is not None:
                target = match[1] if match[1].startswith("torch.") else f"torch.{match[1]}"
                found[f"{home}.{word}"] = target
    assert len(found) > 50
    apart = {name: target for name, target in found.items() if canonical(name).operator != canonical(target).operator}
    assert {name for name in apart if name.rpartition(".")[2] not in ("ndimension", "nelement")} == set()


@pytest.mark.heavy
def test_namespaces_of_torch_are_not_foreign() -> None:
    code = "import torch; print(*{n.partition('::')[0] for n in torch._C._dispatch_get_all_op_names()})"
    made = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    shipped = made.stdout.split()
    assert "aten" in shipped
    assert [each for each in shipped if canonical(f"torch.ops.{each}.add").is_foreign] == []
    assert canonical("torch.ops.vendor.softmax.default").operator == "vendor::softmax"
    assert canonical("torch.ops.vendor.softmax").is_foreign


# A file of cases names torch's operators and nothing else of torch's; declared_operators counts them.


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
