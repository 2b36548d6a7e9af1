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

torch = pytest.importorskip("torch")
from torch_kit import Wrong, case, tensor, verdict  # noqa: E402

from optest.core.runner import why_not_run  # noqa: E402
from optest.spec import Reason, Status  # noqa: E402
from optest.spec.call_names import canonical  # noqa: E402
from optest.torch.calls.names import NoSuchCallable, NotAnOperator, find_callable  # noqa: E402
from optest.torch.eager import TorchBackend  # noqa: E402
from optest.torch.fact_sheet import facts_of  # noqa: E402

pytestmark = pytest.mark.torch

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
        wanted = {
            **{each: yields(getattr(torch, each), *SIGNED) for each in FLOATS},
            **{each: yields(getattr(torch, each), *WHOLE) for each in INTEGERS},
            **{each: yields(getattr(torch, each), (WHOLE if "not" in each else SIGNED)[0]) for each in UNARY},
        }
        reflected = {
            **{each: yields(getattr(torch, each), *SIGNED[::-1]) for each in FLOATS if each not in COMMUTE},
        }
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


@pytest.mark.parametrize("name", [*FLOATS, *INTEGERS, *UNARY])
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


@pytest.mark.parametrize("name", [*FLOATS, *INTEGERS, *UNARY])
def test_each_spelling_has_the_facts_of_the_function(name: str) -> None:
    comparable = [spelling for spelling, _ in spellings()[name] if canonical(spelling).operator == name]
    assert [each for each in comparable if facts_of(each) != facts_of(f"torch.{name}")] == []


def off(outputs: list[Any]) -> list[Any]:
    """16 ulp beside what is right."""
    return [
        (each * np.float32(1 + 16 * 2.0**-23)).astype(each.dtype) if each.dtype == np.float32 else each
        for each in outputs
    ]


def told(name: str, is_reflected: bool, count: int, driver: Any = None) -> tuple[Any, ...]:
    """Status, reason and rule of a call by that name, its operands in the order that makes it the same call."""
    places = [f"input{place}" for place in range(count)]
    found = verdict(case(f"{name}({', '.join(places[::-1] if is_reflected else places)})", *(COUNTED[:count])), driver)
    assert found.measures, (name, found)
    return found.status, found.reason, found.measures[0].rule


COUNTED = tensor(64, fill="uniform", low=0.25, high=0.9), tensor(64, fill="uniform", low=0.25, high=0.9)


@pytest.mark.parametrize("name", ["add", "remainder", "eq", "sigmoid", "sinc"])
def test_each_spelling_has_the_verdict_of_the_function(name: str) -> None:
    """One name of each rule; that all spellings have the same facts is tested above."""
    count = 2 if name in FLOATS else 1
    comparable = [(each, way) for each, way in spellings()[name] if canonical(each).operator == name]
    assert {told(*each, count) for each in comparable} == {told(f"torch.{name}", False, count)}
    assert {told(*each, count, Wrong(off)) for each in comparable} == {told(f"torch.{name}", False, count, Wrong(off))}
    if name in ("add", "sigmoid"):
        assert told(f"torch.{name}", False, count, Wrong(off))[:2] == (Status.FAILED, Reason.VALUE)


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


@pytest.mark.parametrize("name", ["torch.getitem", "torch.Tensor.__getitem__", "torch.Tensor.getitem"])
def test_mask_without_true_is_bad_case(name: str) -> None:
    found = why_not_run(case(f"{name}(input0, input1)", tensor(8), tensor(8, "bool", "zeros")), TorchBackend())
    assert found is not None
    assert found.reason is Reason.BAD_CASE


@pytest.mark.heavy
def test_namespaces_of_torch_are_not_foreign() -> None:
    code = "import torch; print(*{n.partition('::')[0] for n in torch._C._dispatch_get_all_op_names()})"
    made = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    shipped = made.stdout.split()
    assert "aten" in shipped
    assert [each for each in shipped if canonical(f"torch.ops.{each}.add").is_foreign] == []
    assert canonical("torch.ops.vendor.softmax.default").operator == "vendor::softmax"
    assert canonical("torch.ops.vendor.softmax").is_foreign
