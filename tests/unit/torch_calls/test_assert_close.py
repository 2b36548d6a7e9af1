"""``optest.testing.assert_close`` in place of ``torch.testing.assert_close``: the same decision, pair by pair."""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import torch

from optest.errors import UsageError
from optest.testing import assert_close

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")  # torch's, of complex32, nested and quantised tensors

RTOL = {
    "float16": 1e-3,
    "bfloat16": 1.6e-2,
    "float32": 1.3e-6,
    "float64": 1e-7,
    "complex32": 1e-3,
    "complex64": 1.3e-6,
    "complex128": 1e-7,
}
WHOLE = ("uint8", "int8", "int16", "int32", "int64", "bool")
NARROW = ("float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz", "float8_e5m2fnuz")
NO_DTYPE, STRIDE = {"check_dtype": False}, {"check_stride": True}
OPTIONS = ({}, NO_DTYPE, STRIDE, {"check_layout": False}, {"allow_subclasses": False})
WIDER = "narrower dtype, exchanged"
Pair = tuple[str, Any, Any, dict[str, Any]]


def rows() -> Any:
    return torch.linspace(-2, 3, 12).reshape(3, 4)


def ragged(*factors: float, layout: Any = torch.strided) -> Any:
    return torch.nested.nested_tensor([rows()[0] * each for each in factors] + [rows()[1, :2]], layout=layout)


def coo(scale: float = 1.0, at: int = 1) -> Any:
    return torch.sparse_coo_tensor([[0, at], [1, 0]], torch.tensor([1.0, 2.0]) * scale, (3, 3))


def quantised(scale: float = 0.1, dtype: Any = torch.quint8, shift: float = 0.0) -> Any:
    return torch.quantize_per_tensor(rows() + shift, scale, 20, dtype)


def dense_pairs() -> Iterator[Pair]:
    x, wide = rows(), {"rtol": 0.1, "atol": 0.01}
    for name, rtol in RTOL.items():
        kind = getattr(torch, name)
        for factor in (1, 1 + rtol / 2, 1 + 4 * rtol, 2, -1):
            yield f"{name} x {factor}", (x.double() * factor).to(kind), x.double().to(kind), {}
        for factor in (1.05, 1.2):
            yield f"{name} wide x {factor}", (x * factor).to(kind), x.to(kind), wide
    for name in NARROW:
        for factor in (1, 1.5):
            yield f"{name} x {factor}", (x * factor).to(getattr(torch, name)), x.to(getattr(torch, name)), {}
    for name in WHOLE:
        for shift in (0, 1):
            whole = torch.arange(2, 10) % 5
            yield f"{name} + {shift}", (whole + shift).to(getattr(torch, name)), whole.to(getattr(torch, name)), {}
    for shift in (0, 1, 2):
        yield f"int64 + {shift} within 1", torch.arange(9) + 50 + shift, torch.arange(9) + 50, {"rtol": 0, "atol": 1}
    for what, other in {
        "shape": x.reshape(4, 3),
        "rank": x.reshape(-1),
        "broadcast": x[:1],
        "narrower dtype": x.half(),
        "int": x.long(),
        "complex": x.cfloat(),
        "device": x.to("meta"),
        "layout": x.to_sparse(),
        "stride": x.t().contiguous().t(),
        "Parameter": torch.nn.Parameter(x.clone()),
        "requires grad": x.clone().requires_grad_(),
        "conjugate": x.cfloat().conj(),
        "text": "text",
        "list": x.tolist(),
        "None": None,
    }.items():
        for options in OPTIONS:
            yield what, x.clone(), other, options
            yield f"{what}, exchanged", other, x.clone(), options
    yield "off, dtypes left out", x, x.half() * 1.01, NO_DTYPE
    yield "whole, dtypes left out", torch.arange(1, 5), torch.arange(1, 5, dtype=torch.uint8), NO_DTYPE
    for name, other in (
        ("equal", x.numpy()),
        ("off", x.numpy() + 1),
        ("dtype", x.numpy().astype(np.int32)),
        ("shape", x.numpy().T),
        ("order", np.asfortranarray(x.numpy())),
        ("text", np.array(["a"])),
        ("list", x.tolist()),
    ):
        for options in OPTIONS[:3]:
            yield f"NumPy {name} {options}", x.clone().numpy(), other, options


def special_pairs() -> Iterator[Pair]:
    nan, inf = torch.tensor([1.0, math.nan, 2.0]), torch.tensor([1.0, math.inf, -math.inf])
    for equal_nan in (False, True):
        options = {"equal_nan": equal_nan}
        yield f"nan {equal_nan}", nan, nan, options
        yield f"nan {equal_nan}, wide", nan, nan, {**options, "rtol": 0.1, "atol": 0.0}
        yield f"nan {equal_nan}, float8", nan.to(torch.float8_e4m3fn), nan.to(torch.float8_e4m3fn), options
        yield f"nan {equal_nan}, list", [1.0, math.nan], [1.0, math.nan], options
        yield f"nan {equal_nan}, for a number", nan, torch.tensor([1.0, 1.5, 2.0]), options
        yield f"number for a nan {equal_nan}", torch.tensor([1.0, 1.5, 2.0]), nan, options
    yield "infinities", inf, inf, {}
    yield "infinities of the other sign", -inf, inf, {}
    yield "infinity for a number", inf, torch.tensor([1.0, 1e38, -math.inf]), {"rtol": 1, "atol": 1}
    yield "infinite number", math.inf, math.inf, {}
    yield "infinite tensor of a number", torch.tensor(math.inf), torch.tensor(math.inf), {}


def nested_values() -> Iterator[Pair]:
    for one, other in (
        *((1, 1), (1, 2), (1, 1.0), (1.0, 1.0 + 1e-9), (1.0, 1.001), (True, True), (True, False)),
        *((1j, 1j), (1j, 1j + 1e-3), (0.0, 0.0), (None, None), (None, 0), (0, None), ("a", "a"), (1.0, "a")),
        *((b"a", b"a"), (b"a", b"b"), (2**70, 2**70), (2**70, 2**70 + 1), (np.float32(1), np.float32(1))),
        *((np.float32(1), 1.0), (np.bool_(True), True), (np.int8(3), 3), (np.float64(1), np.float64(1.1))),
        *((1.0, torch.tensor(1.0)), (object(), object()), ({1.0}, {1.0}), ([1.0], 1.0), ({"a": 1.0}, [1.0])),
        *(([], [1.0]), ([1.0], []), ([1.0, 2], [1.0, 2]), ([1.0, 2], [1.0, 3]), ([1.0, 2], (1.0, 2))),
        *(([[1.0, [2]], None], [[1.0, [2]], None]), ([[1.0, [2]], None], [[1.0, [3]], None])),
        *(({"a": 1.0}, {"a": 1.0}), ({"a": 1.0}, {"b": 1.0}), ({"a": 1.0}, {"a": 1.0, "b": 1.0})),
        *(({"a": 1.0, "b": 1.0}, {"a": 1.0}), ({"a": 1, 1: 2}, {1: 2, "a": 1}), ({1: 1, "1": 2}, {1: 1, "1": 2})),
        *(({"a": {"b": [1.0, 2.0]}}, {"a": {"b": [1.0, 2.1]}}), (OrderedDict(a=1.0), {"a": 1.0})),
        *((torch.Size([2, 3]), (2, 3)), (range(1, 4), [1, 2, 3]), ({"a": [rows()]}, {"a": [rows()]})),
        *(({"a": [rows()]}, {"a": [rows() + 1]}), ({"a": (rows(), None)}, {"a": (rows(), rows())})),
    ):
        for options in OPTIONS[:2]:
            yield f"{one!r} and {other!r} {options}", one, other, options
    yield "bool and whole", True, 1, {}
    yield "whole within 0.9", [1.0, 5], [1.0, 6], {"rtol": 0, "atol": 0.9}
    yield "whole within 2", [10.0, 50], [10.0, 52], {"rtol": 0, "atol": 2}
    yield "whole within 10 %", [10.0, 50], [10.0, 51], {"rtol": 0.1, "atol": 0}


def pairs_of_layouts() -> Iterator[Pair]:
    x = rows()
    per_channel = torch.quantize_per_channel(x, torch.ones(3) / 9, torch.zeros(3), 0, torch.quint8)
    for name, made, wanted in (
        ("COO", coo(), coo()),
        ("COO values", coo(1.1), coo()),
        ("COO indices", coo(at=2), coo()),
        ("COO nnz", torch.eye(3).to_sparse(), coo()),
        ("COO dimensions", x.to_sparse(1), x.to_sparse(2)),
        ("COO dtype", coo().int(), coo()),
        ("COO shape", coo().sparse_resize_((4, 4), 2, 0), coo()),
        ("nested and not", ragged(1), x),
        ("quantised", quantised(), quantised()),
        ("quantised values", quantised(shift=1), quantised()),
        ("quantised scale", quantised(0.2), quantised()),
        ("quantised dtype", quantised(dtype=torch.qint8), quantised()),
        ("quantised and not", quantised(), x),
        ("quantised qint32", quantised(dtype=torch.qint32), quantised(dtype=torch.qint32)),
        ("quantised by channel", per_channel, per_channel),
        ("quantised in two ways", per_channel, quantised()),
        ("meta shape", x.to("meta"), x[:2].to("meta")),
        ("meta dtype", x.to("meta"), x.half().to("meta")),
    ):
        yield name, made, wanted, {}
    for layout in ("csr", "csc", "bsr", "bsc"):
        block = () if layout[0] == "c" else ((1, 2),)
        to = getattr(x, f"to_sparse_{layout}")(*block)
        for what, other in {"equal": x, "off": x * 1.1, "nnz": x * (x > 0), "places": x.flip(0) * (x > 0)}.items():
            yield f"{layout} {what}", to, getattr(other, f"to_sparse_{layout}")(*block), {}
        yield f"{layout} and dense", to, x, {"check_layout": False}
        yield f"{layout} and dense, off", to, x + 1, {"check_layout": False}


def deliberate() -> Iterator[tuple[bool, Any, Any, dict[str, Any]]]:
    """Yield the pairs of which optest decides otherwise, and whether it accepts them; the docstring has each kind."""
    x, nan, inf = rows(), torch.full((3,), math.nan), torch.full((3,), math.inf)
    yield False, x[:0], x[:0], {}
    yield False, [], [], {}
    yield False, x.to("meta"), x.to("meta"), {}
    yield False, x, x.to("meta"), {"check_device": False}
    yield False, x * 1.1, x, {"rtol": 0, "atol": 4}
    yield False, x / 10 + 2, x / 10 + 2.1, {"rtol": 0.2, "atol": 0.0}
    yield False, nan, nan, {"equal_nan": True}
    yield False, inf, inf, {}
    yield False, x * 1e-7, x * 2e-7, {}
    yield True, x.half(), x, {}
    yield True, x, x.numpy(), {}
    yield True, x, x.double().numpy(), {}
    yield True, x, x, {"rtol": 1e-3}
    yield True, True, 1, NO_DTYPE
    yield True, x.to(torch.float8_e5m2), x.to(torch.float8_e5m2), {"rtol": 0.1, "atol": 0.0}
    yield True, ragged(1, 2), ragged(1, 2), {}
    yield True, ragged(1, 2, layout=torch.jagged), ragged(1, 2, layout=torch.jagged), {}


def passes(compare: Callable[..., None], made: Any, wanted: Any, options: dict[str, Any]) -> bool:
    try:
        compare(made, wanted, **options)
    except (AssertionError, UsageError, TypeError, ValueError, RuntimeError):
        return False
    return True


def decisions(source: Callable[[], Iterator[tuple[Any, Any, Any, Any]]]) -> Iterator[tuple[Any, bool, bool]]:
    """Yield torch's decision and optest's of each pair, whose expected value comes from a second draw of the source."""
    for (name, made, _, options), (_, _, wanted, _) in zip(source(), source(), strict=True):
        yield name, *(passes(each, made, wanted, options) for each in (torch.testing.assert_close, assert_close))


@pytest.mark.parametrize("source", [dense_pairs, special_pairs, nested_values, pairs_of_layouts])
def test_the_same_decision_as_torch(source: Callable[[], Iterator[Pair]]) -> None:
    found = [each for each in decisions(source) if each[0] != WIDER]
    assert [each for each in found if each[1] is not each[2]] == []
    assert {theirs for _, theirs, _ in found} == {True, False}


def test_deliberate_differences() -> None:
    decided = list(decisions(deliberate))
    assert decided == [(accepts, not accepts, accepts) for accepts, _, _ in decided]
    x = rows()
    torch.testing.assert_close(x, x)
    ones = torch.ones(4, 6)
    assert_close(ones[:, 0], ones[:, 1])
    assert_close(ones[::2], ones[1::2])
    for made in (ones, ones.bfloat16()):
        for one, other in ((made, made.t().t()), (made[:, ::2], made[:, ::2]), (made[:, :3], made[:, 2:5])):
            with pytest.raises(UsageError, match="shares memory"):
                assert_close(one, other)


def told_pairs() -> Iterator[Pair]:
    """Yield pairs that differ, each with a pattern of what the failure says."""
    x, nan = rows(), torch.tensor([math.nan, 1])
    yield r"the stride is .*\n  SHAPE: .*check_stride=False skips th(e|is) check", x, x.t().contiguous().t(), STRIDE
    yield "the layout is torch.strided, expected torch.sparse_coo", x, x.to_sparse(), {}
    yield r"actual\.indices: 1 of 4 elements is off", coo(at=2), coo(), {}
    yield r"a\[1\]: ", {"a": [1.0, 2.0]}, {"a": [1.0, 3.0]}, {}
    yield "output0: the dtype is float, expected int", [1.0], [1], {}
    yield r"output1 is None, expected tensor[^\0]*MISSING_OUTPUT", [x, None], [x, x], {}
    yield r"actual has NaN, as expected\n.*equal_nan=True", nan, nan, {}
    yield r"assert_close\(.*, float32\[3x4\], 6 more\)", [x] * 9, [x + 1] * 9, {}
    yield "output1: all 4 elements are off", ragged(1, 3), ragged(1, 2), {}
    yield "actual has 2 elements, expected 3", ragged(1), ragged(1, 2), {}
    yield "^other words$", 1.0, 2.0, {"msg": "other words"}
    yield "^before FAILED", 1.0, 2.0, {"msg": lambda text: f"before {text}"}


def test_a_failure_says_what_differs() -> None:
    for (words, made, _, options), (_, _, wanted, _) in zip(told_pairs(), told_pairs(), strict=True):
        with pytest.raises(AssertionError, match=words):
            assert_close(made, wanted, **options)
