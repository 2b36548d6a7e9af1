"""What the built-in rules allow: correct kernels stay well inside, typical faults fall outside."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from optest.numerics import dtype_of, round_to, ulp, widen
from optest.operators import operators
from optest.registry import load_object
from optest.spec import ErrorBudget, RuleClass, Terms, dtype

Array = np.ndarray[Any, Any]

HALVES = ("float16", "bfloat16")
WIDTHS = (1, 2, 17, 4096, 65536)


def hooks(operator: str, inputs: list[Array | None], attributes: dict[str, Any]) -> tuple[Array, Any]:
    descriptor = operators.get(operator)
    bound = descriptor.bind(attributes)
    (reference,) = load_object(descriptor.reference)(inputs, bound)
    (terms,) = load_object(descriptor.terms)(inputs, bound)
    return reference, terms


def judged(operator: str, inputs: list[Array | None], got: Array, **attributes: Any) -> tuple[float, float]:
    """The largest error as a share of the bound, and z, for float32 arithmetic (float64 for float64)."""
    y, terms = hooks(operator, inputs, attributes)
    out = dtype_of(got.dtype)
    u = 2.0**-53 if out.name == "float64" else 2.0**-24
    rule = operators.get(operator).rule
    assert rule is not None
    if isinstance(terms, Terms):
        worst = 4.0 * np.sqrt(terms.count) * terms.absolute
        variance: Any = terms.count * (y * y / 3.0 + terms.squared / 2.0)
    else:
        worst, variance = (0.0, None) if terms is None else (terms.worst, terms.variance)
    bound = worst * u + 0.5 * ulp(np.abs(y) + worst * u, out)
    if rule.kind is RuleClass.ULP:
        if out.name == "float64":  # the reference is float64 too, and has errors of the same size
            bound = 2.0 * worst * u + (rule.ulp + 1.0) * ulp(y, out)
        else:
            bound = worst * u + rule.ulp * ulp(y, dtype("float32"))
            bound = bound if out.bits == 32 else bound + 0.5 * ulp(np.abs(y) + bound, out)
    error = np.abs(widen(got).astype(np.float64) - y)
    share = float(np.max(error / bound))
    if variance is None:
        return share, 0.0
    rounding = np.maximum(ulp(y, out) ** 2 / 12.0, (widen(round_to(y, out)) - y) ** 2)
    return share, float(np.sqrt(np.mean(error**2 / (u * u * variance + rounding))))


def torch_of(array: Array) -> Any:
    torch = pytest.importorskip("torch")
    name = dtype_of(array.dtype).name
    if name == "bfloat16":
        return torch.from_numpy(array.view(np.int16).copy()).view(torch.bfloat16)
    return torch.from_numpy(array.copy())


def array_of(tensor: Any, name: str) -> Array:
    if name == "bfloat16":
        import torch

        return np.asarray(tensor.contiguous().view(torch.int16).numpy()).view(round_to(0.0, dtype(name)).dtype)
    return np.asarray(tensor.contiguous().numpy())


def rows(kind: str, width: int, name: str) -> Array:
    rng = np.random.default_rng(width)
    count = max(2, min(64, 65536 // width))
    base = rng.standard_normal((count, width))
    values = {
        "normal": base,
        "offset": base + 1000.0,
        "constant": np.full((count, width), 7.3),
        "constant rows": np.broadcast_to(np.linspace(1.1, 9.7, count)[:, None], (count, width)),
        "large constant": np.full((count, width), 1000.1),
        "uniform": rng.random((count, width)),
        "tiny": base * 1e-3,
        "tiny with offset": 10.0 + base * 1e-3,
        "scaled rows": base * np.logspace(-3, 3, count)[:, None],
        "wide": base * 50.0,
        "masked": np.where(base > 1.0, -np.inf, base),
        "default": rng.uniform(84.0, 92.0, (count, width)),
    }[kind]
    if kind == "masked":
        values[:, 0] = 0.0
    return round_to(values, dtype(name))


NORM_ROWS = (
    "normal",
    "offset",
    "constant",
    "constant rows",
    "large constant",
    "uniform",
    "tiny",
    "tiny with offset",
    "scaled rows",
)
SOFTMAX_ROWS = ("normal", "constant", "wide", "masked", "default")


def sequential(values: Array) -> Array:
    return np.add.accumulate(values, axis=-1, dtype=np.float32)[..., -1:]


def plain_sum(values: Array) -> Array:
    return np.sum(values, axis=-1, dtype=np.float32, keepdims=True)


def float32_layer_norm(x: Array, eps: float, add: Any = plain_sum) -> Array:
    x, n = widen(x).astype(np.float32), np.float32(x.shape[-1])
    centred = x - add(x) / n
    return np.asarray(centred * (np.float32(1) / np.sqrt(add(centred * centred) / n + np.float32(eps))))


def squares_layer_norm(x: Array, eps: float) -> Array:
    x, n = widen(x).astype(np.float32), np.float32(x.shape[-1])
    mean = plain_sum(x) / n
    variance = np.maximum(plain_sum(x * x) / n - mean * mean, np.float32(0))
    return np.asarray((x - mean) / np.sqrt(variance + np.float32(eps)))


def rounded(values: Array, name: str) -> Array:
    return round_to(values.astype(np.float64), dtype(name))


@pytest.mark.torch
@pytest.mark.parametrize("name", ["float64", "float32", *HALVES])
@pytest.mark.parametrize("kind", NORM_ROWS)
@pytest.mark.parametrize("width", WIDTHS)
def test_torch_layer_norm_stays_inside(width: int, kind: str, name: str) -> None:
    import torch

    x, w, b = rows(kind, width, name), rows("normal", width, name)[0], rows("normal", width, name)[1]
    layer_norm = torch.nn.functional.layer_norm
    got = array_of(layer_norm(torch_of(x), (width,)), name)
    share, z = judged("layer_norm", [x, None, None], got, normalized_shape=[width])
    assert share <= 1.0
    assert z < 1.0
    got = array_of(layer_norm(torch_of(x), (width,), torch_of(w), torch_of(b)), name)
    share, z = judged("layer_norm", [x, w, b], got, normalized_shape=[width])
    assert share <= 1.0 + 1e-9  # halves: half an ulp of the output is reached at ties
    assert z < 1.0


@pytest.mark.parametrize("name", ["float32", *HALVES])
@pytest.mark.parametrize("kind", NORM_ROWS)
@pytest.mark.parametrize("width", WIDTHS)
def test_sequential_layer_norm_stays_inside(width: int, kind: str, name: str) -> None:
    x = rows(kind, width, name)
    share, z = judged(
        "layer_norm", [x], rounded(float32_layer_norm(x, 1e-5, sequential), name), normalized_shape=[width]
    )
    assert share <= 1.0
    assert z < 1.0


@pytest.mark.parametrize("width", [17, 4096, 65536])
@pytest.mark.parametrize("name", ["float32", *HALVES])
def test_layer_norm_with_ten_times_eps_on_tiny_variance_is_outside(name: str, width: int) -> None:
    x = rows("tiny", width, name)
    share, _ = judged("layer_norm", [x], rounded(float32_layer_norm(x, 1e-4), name), normalized_shape=[width])
    assert share > 100.0


@pytest.mark.parametrize("width", [2, 17, 4096, 65536])
def test_layer_norm_from_squares_is_outside_where_the_mean_is_large(width: int) -> None:
    x = rows("offset", width, "float32")
    share, z = judged("layer_norm", [x], squares_layer_norm(x, 1e-5), normalized_shape=[width])
    assert share > 2.0
    assert z > 1.25


def test_unbiased_variance_is_outside() -> None:
    x = rows("normal", 4096, "float32")
    wide = x.astype(np.float64)
    y = (wide - wide.mean(-1, keepdims=True)) / np.sqrt(wide.var(-1, ddof=1, keepdims=True) + 1e-5)
    assert judged("layer_norm", [x], rounded(y, "float32"), normalized_shape=[4096])[1] > 5.0


def float32_softmax(x: Array, add: Any = plain_sum, shift: bool = True) -> Array:
    x = widen(x).astype(np.float32)
    e = np.exp(x - x.max(-1, keepdims=True) if shift else x)
    return np.asarray(e / add(e))


@pytest.mark.torch
@pytest.mark.parametrize("name", ["float64", "float32", *HALVES])
@pytest.mark.parametrize("kind", SOFTMAX_ROWS)
@pytest.mark.parametrize("width", WIDTHS)
def test_torch_softmax_stays_inside(width: int, kind: str, name: str) -> None:
    x = rows(kind, width, name)
    share, z = judged("softmax", [x], array_of(torch_of(x).softmax(-1), name))
    assert share <= 1.0 + 1e-9
    assert z <= 1.01  # a constant row in 16 bits has one value, whose own rounding is all there is: z = 1


@pytest.mark.parametrize("name", ["float32", *HALVES])
@pytest.mark.parametrize("kind", SOFTMAX_ROWS)
@pytest.mark.parametrize("width", WIDTHS)
def test_sequential_softmax_stays_inside(width: int, kind: str, name: str) -> None:
    x = rows(kind, width, name)
    share, z = judged("softmax", [x], rounded(float32_softmax(x, sequential), name))
    assert share <= 1.0 + 1e-9
    assert z <= 1.01


def test_softmax_through_powers_of_two_stays_inside() -> None:
    for kind in SOFTMAX_ROWS:
        x = rows(kind, 4096, "float32")
        e = np.exp2((x - x.max(-1, keepdims=True)) * np.float32(1.4426950408889634))
        share, z = judged("softmax", [x], np.asarray(e * (np.float32(1) / plain_sum(e))))
        assert share <= 1.0
        assert z < 1.0


def test_sequential_softmax_of_terms_that_vanish_stays_inside() -> None:
    x = np.random.default_rng(0).uniform(80.0, 100.0, (2, 65536)).astype(np.float32)
    share, z = judged("softmax", [x], float32_softmax(x, sequential))
    assert share <= 1.0
    assert z < 1.0


@pytest.mark.filterwarnings("ignore:overflow", "ignore:invalid value")
@pytest.mark.parametrize("width", [17, 4096, 65536])
def test_softmax_without_shift_is_not_finite_on_default_inputs(width: int) -> None:
    """NaN where the reference has numbers: nothing that a bound could excuse."""
    x = rows("default", width, "float32")
    y, budget = hooks("softmax", [x], {})
    assert np.isfinite(y).all()
    assert np.isfinite(budget.worst).all()
    assert np.isnan(float32_softmax(x, shift=False)).any()


@pytest.mark.parametrize("kind", ["normal", "default"])
@pytest.mark.parametrize("width", [17, 4096])
def test_softmax_that_drops_a_term_is_outside(width: int, kind: str) -> None:
    x = rows(kind, width, "float32")
    e = np.exp(x - x.max(-1, keepdims=True))
    share, z = judged("softmax", [x], np.asarray(e / plain_sum(e[:, :-1])))
    assert share > 10.0
    assert z > 10.0


@pytest.mark.torch
@pytest.mark.parametrize("approximate", ["none", "tanh"])
@pytest.mark.parametrize("name", ["float64", "float32", *HALVES])
def test_torch_gelu_stays_inside_from_end_to_end(name: str, approximate: str) -> None:
    import torch

    near_zero = np.logspace(-30, -1, 20000)
    x = round_to(np.concatenate([np.linspace(-40.0, 40.0, 200001), near_zero, -near_zero]), dtype(name))
    got = array_of(torch.nn.functional.gelu(torch_of(x), approximate=approximate), name)
    share, _ = judged("gelu", [x], got, approximate=approximate)
    assert share <= 1.0


@pytest.mark.torch
@pytest.mark.parametrize("name", ["float32", *HALVES])
def test_gelu_by_the_other_formula_is_outside(name: str) -> None:
    import torch

    x = round_to(np.linspace(-8.0, 8.0, 4001), dtype(name))
    gelu = torch.nn.functional.gelu
    least = 50.0 if name == "float32" else 1.5
    assert judged("gelu", [x], array_of(gelu(torch_of(x), approximate="tanh"), name))[0] > least
    assert judged("gelu", [x], array_of(gelu(torch_of(x)), name), approximate="tanh")[0] > least


@pytest.mark.torch
@pytest.mark.parametrize("name", ["float64", "float32", *HALVES])
@pytest.mark.parametrize("alpha", [1.0, -0.3, 1000.1])
def test_torch_add_stays_inside_and_a_lost_alpha_does_not(name: str, alpha: float) -> None:
    import torch

    x, y = rows("normal", 4096, name)[:, :4095], rows("normal", 4096, name)[::-1, :4095]  # an odd end for vectors
    x, y = x.copy(), y.copy()
    got = array_of(torch.add(torch_of(x), torch_of(y), alpha=alpha), name)
    assert judged("add", [x, y], got, alpha=alpha)[0] <= 1.0
    lost = array_of(torch.add(torch_of(x), torch_of(y), alpha=alpha * 1.05), name)
    assert judged("add", [x, y], lost, alpha=alpha)[0] > 1.5
    unrounded = rounded(widen(x).astype(np.float64) + alpha * widen(y).astype(np.float64), name)
    assert judged("add", [x, y], unrounded, alpha=alpha)[0] <= 1.0


@pytest.mark.torch
@pytest.mark.parametrize("name", ["float64", "float32", *HALVES])
@pytest.mark.parametrize("with_c", [False, True])
def test_torch_gemm_stays_inside_and_a_lost_factor_does_not(name: str, with_c: bool) -> None:
    import torch

    a, b = rows("normal", 257, name), round_to(np.random.default_rng(1).standard_normal((257, 33)), dtype(name))
    c = round_to(np.random.default_rng(2).standard_normal((33,)), dtype(name)) if with_c else None
    left, right = torch_of(a), torch_of(b)
    zero = torch.zeros((), dtype=left.dtype)
    got = torch.addmm(zero if c is None else torch_of(c), left, right, alpha=0.7, beta=-1.5)
    share, z = judged("gemm", [a, b, c], array_of(got, name), alpha=0.7, beta=-1.5)
    assert share <= 1.0
    assert z < 1.25
    lost = torch.addmm(zero if c is None else torch_of(c), left, right, alpha=0.71, beta=-1.5)
    assert judged("gemm", [a, b, c], array_of(lost, name), alpha=0.7, beta=-1.5)[1] > 1.25


@pytest.mark.torch
@pytest.mark.parametrize("name", ["float64", "float32", *HALVES])
@pytest.mark.parametrize("dim", [0, 1, None])
def test_torch_sum_stays_inside(name: str, dim: int | None) -> None:
    x = rows("normal", 1031, name)
    share, z = judged("sum", [x], array_of(torch_of(x).sum(dim=dim), name), dim=dim)
    assert share <= 1.0
    assert z < 1.25 if dim is not None else z < 4.0  # a single value proves little


CALLS: list[tuple[str, list[tuple[int, ...] | None], dict[str, Any]]] = [
    ("add", [(3, 1), (4,)], {"alpha": 2.0}),
    ("gelu", [(3, 4)], {}),
    ("gelu", [()], {"approximate": "tanh"}),
    ("sum", [(3, 4)], {"dim": 0, "keepdim": True}),
    ("sum", [(3, 4)], {}),
    ("sum", [()], {"dim": 0, "keepdim": True}),
    ("sum", [(3, 0)], {"dim": 1}),
    ("matmul", [(3, 4), (4, 5)], {}),
    ("matmul", [(4,), (4,)], {}),
    ("matmul", [(2, 1, 3, 4), (5, 4, 2)], {}),
    ("matmul", [(3, 0), (0, 2)], {}),
    ("gemm", [(4, 3), (5, 4), (5,)], {"trans_a": True, "trans_b": True, "alpha": -2.0, "beta": 0.5}),
    ("gemm", [(3, 4), (4, 5), None], {"alpha": 0.0}),
    ("softmax", [(3, 4)], {"dim": 0}),
    ("softmax", [()], {"dim": 0}),
    ("softmax", [(3, 0)], {}),
    ("layer_norm", [(3, 4), None, (4,)], {"normalized_shape": [4]}),
    ("layer_norm", [(2, 3, 4), (3, 4), None], {"normalized_shape": [3, 4]}),
    ("layer_norm", [(0, 4), None, None], {"normalized_shape": [4]}),
]


@pytest.mark.parametrize(("operator", "shapes", "attributes"), CALLS)
def test_terms_are_shaped_like_the_output(
    operator: str, shapes: list[tuple[int, ...] | None], attributes: dict[str, Any]
) -> None:
    rng = np.random.default_rng(0)
    inputs = [None if s is None else np.asarray(rng.standard_normal(s), np.float32) for s in shapes]
    y, terms = hooks(operator, inputs, attributes)
    if isinstance(terms, Terms):
        assert terms.absolute.shape == terms.squared.shape == y.shape
        assert (terms.absolute >= np.abs(y) * (1 - 1e-12)).all()
        assert (terms.squared <= terms.absolute**2 * (1 + 1e-12)).all()
        assert (terms.absolute**2 <= terms.squared * terms.count * (1 + 1e-12)).all()
    else:
        assert isinstance(terms, ErrorBudget)
        assert terms.worst.shape == y.shape
        assert (terms.worst >= 0).all()
        if terms.variance is not None:
            assert terms.variance.shape == y.shape
            assert (terms.variance <= 2.0 * terms.worst**2).all()


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize(("operator", "shapes", "attributes"), CALLS)
def test_terms_of_special_values_warn_nobody(
    operator: str, shapes: list[tuple[int, ...] | None], attributes: dict[str, Any]
) -> None:
    values = np.array([np.nan, np.inf, -np.inf, 3e38, -0.0], np.float32)
    inputs = [None if s is None else np.resize(values, s).astype(np.float32) for s in shapes]
    hooks(operator, inputs, attributes)


@pytest.mark.parametrize(
    ("operator", "attributes"), [("gelu", {}), ("gelu", {"approximate": "tanh"}), ("add", {"alpha": 0.9})]
)
def test_bounds_of_the_largest_doubles_are_finite(operator: str, attributes: dict[str, Any]) -> None:
    largest = np.finfo(np.float64).max
    x = np.array([largest, -largest])
    inputs: list[Array | None] = [x] if operator == "gelu" else [-x, x]
    y, budget = hooks(operator, inputs, attributes)
    assert np.isfinite(y).all()
    assert np.isfinite(budget.worst).all()


def test_softmax_bounds_are_finite_where_the_result_is() -> None:
    x = np.array([[-np.inf, 0.0, -800.0], [-np.inf, -np.inf, 5.0]], np.float32)
    y, budget = hooks("softmax", [x], {})
    assert np.isfinite(y).all()
    assert np.isfinite(budget.worst).all()
    assert np.isfinite(budget.variance).all()
