"""What the rules of normalisations allow: right float32 kernels stay inside, wrong ones are outside."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from judged_arrays import measured, share_of_limit, verdict_of

from optest.numerics import round_to, widen
from optest.operators import operators
from optest.registry import load_object
from optest.spec import Status, dtype

Array = np.ndarray[Any, Any]
Kernel = Callable[..., Array]

f4 = np.float32
DTYPES = ("float32", "float16", "bfloat16")
WIDTHS = (2, 17, 257, 4096)
FILLS = ("normal", "uniform", "offset", "constant", "few", "tiny", "scaled rows")


def rows(kind: str, width: int, name: str, seed: int = 0) -> Array:
    rng = np.random.default_rng([width, seed])
    count = max(2, min(32, 65536 // width))
    base = rng.standard_normal((count, width))
    values = {
        "normal": base,
        "uniform": rng.random((count, width)),
        "offset": 100.0 + base,
        "far offset": 1000.0 + base,
        "constant": np.full((count, width), 7.3),
        "few": rng.choice([0.1, 0.7, 1.3], (count, width)),
        "tiny": base * 1e-3,
        "scaled rows": base * np.logspace(-3, 3, count)[:, None],
        "exponents": rng.uniform(84.0, 92.0, (count, width)),
        "wide": base * 50.0,
    }[kind]
    return round_to(values, dtype(name))


def parameters(width: int, name: str) -> tuple[Array, Array]:
    rng = np.random.default_rng(width + 1)
    return rounded(rng.standard_normal(width), name), rounded(rng.standard_normal(width), name)


def rounded(values: Array, name: str) -> Array:
    return round_to(values, dtype(name))


def wide(array: Array) -> Array:
    return widen(array).astype(f4)


def one_by_one(x: Array) -> Array:
    return np.asarray(np.add.accumulate(x, axis=-1, dtype=f4)[..., -1:])


def pairwise(x: Array) -> Array:
    return np.asarray(x.sum(-1, dtype=f4, keepdims=True))


def row_statistics(x: Array, eps: float, add: Kernel) -> tuple[Array, Array]:
    n = f4(x.shape[-1])
    mean = add(x) / n
    centred = x - mean
    return mean, f4(1) / np.sqrt(add(centred * centred) / n + f4(eps))


def layer_norm(x: Array, w: Array, b: Array, eps: float, add: Kernel) -> Array:
    mean, r = row_statistics(x, eps, add)
    return np.asarray((x - mean) * r * w + b)


def folded(x: Array, w: Array, b: Array, eps: float, add: Kernel) -> Array:
    """x·scale + shift, for one weight and bias for each row (a group of one channel)."""
    mean, r = row_statistics(x, eps, add)
    scale = w[: len(x), None] * r
    return np.asarray(x * scale + (b[: len(x), None] - mean * scale))


def rms_norm(x: Array, w: Array, eps: float, add: Kernel) -> Array:
    return np.asarray(x * (f4(1) / np.sqrt(add(x * x) / f4(x.shape[-1]) + f4(eps))) * w)


def softmax(x: Array, add: Kernel) -> Array:
    e = np.exp(x - x.max(-1, keepdims=True))
    return np.asarray(e / add(e))


@pytest.mark.parametrize("add", [one_by_one, pairwise])
@pytest.mark.parametrize("name", DTYPES)
@pytest.mark.parametrize("kind", FILLS)
def test_right_norms_stay_inside(kind: str, name: str, add: Kernel) -> None:
    for width in WIDTHS:
        x, (w, b) = rows(kind, width, name), parameters(width, name)
        values, eps = (wide(x), wide(w), wide(b)), 1e-5
        stated = {"normalized_shape": [width], "eps": eps}
        asked = [
            ("layer_norm", [x, w, b], layer_norm(*values, eps, add), stated),
            ("rms_norm", [x, w], rms_norm(values[0], values[1], eps, add), stated),
        ]
        if width >= len(x):
            w, b = w[: len(x)], b[: len(x)]
            y = folded(values[0], wide(w), wide(b), eps, add)
            asked.append(("group_norm", [x[None], w, b], y[None], {"num_groups": len(x), "eps": eps}))
            channels = np.ascontiguousarray(x[:, None].swapaxes(0, 1))
            training = {"training": True, "eps": eps}
            asked.append(("batch_norm", [channels, None, None, w, b], y[None], training))
        for operator, inputs, values_, attributes in asked:
            passed, measure = measured(operator, inputs, values_, **attributes)
            assert passed, (operator, width, measure)
            assert share_of_limit(measure) <= 0.81, (operator, width, measure)


@pytest.mark.parametrize("name", DTYPES)
@pytest.mark.parametrize("is_folded", [False, True])
def test_batch_norm_by_running_statistics_stays_inside(is_folded: bool, name: str) -> None:
    for seed in range(10):
        rng = np.random.default_rng(seed)
        channels = int(rng.integers(1, 40))
        x = rounded(rng.standard_normal((4, channels, 9)) * 3 + rng.choice([0.0, 30.0]), name)
        mean, w, b = (rounded(rng.standard_normal(channels), name) for _ in range(3))
        variance = rounded(rng.random(channels) * rng.choice([1.0, 1e-4]), name)
        m, v, weight, bias = (wide(each)[:, None] for each in (mean, variance, w, b))
        scale = weight * (f4(1) / np.sqrt(v + f4(1e-5)))
        y = wide(x) * scale + (bias - m * scale) if is_folded else (wide(x) - m) * scale + bias
        passed, measure = measured("batch_norm", [x, mean, variance, w, b], y)
        assert passed, measure
        assert share_of_limit(measure) <= 0.81


@pytest.mark.parametrize("add", [one_by_one, pairwise])
@pytest.mark.parametrize("name", DTYPES)
@pytest.mark.parametrize("kind", ["normal", "uniform", "offset", "constant", "few", "exponents", "wide"])
def test_right_softmaxes_stay_inside(kind: str, name: str, add: Kernel) -> None:
    for width in WIDTHS:
        x = rows(kind, width, name)
        values = wide(x)
        shifted = values - values.max(-1, keepdims=True)
        logarithm = np.log(add(np.exp(shifted)))
        for operator, y in (
            ("softmax", softmax(values, add)),
            ("log_softmax", shifted - logarithm),
            ("log_softmax", values - (values.max(-1, keepdims=True) + logarithm)),
        ):
            passed, measure = measured(operator, [x], y, dim=-1)
            assert passed, (operator, width, measure)
            assert share_of_limit(measure) <= 0.81


@pytest.mark.parametrize("name", DTYPES)
def test_right_causal_softmaxes_stay_inside(name: str) -> None:
    for count, width in ((5, 37), (33, 33), (129, 257)):
        x = rounded(np.random.default_rng(width).uniform(84.0, 92.0, (2, count, width)), name)
        seen = np.tri(count, width, width - count, dtype=bool)
        y = softmax(np.where(seen, wide(x), -np.inf).astype(f4), pairwise)
        assert measured("causal_softmax", [x], y)[0]


NAMES = ("softmax", "log_softmax", "causal_softmax", "layer_norm", "rms_norm", "group_norm", "batch_norm")
ROUNDED_ON_THE_WAY = {("log_softmax", name) for name in ("float16", "bfloat16")}
"""What torch on a CPU computes in 16 bits; stated among the expectations of that backend."""


@pytest.mark.torch
@pytest.mark.parametrize("name", ["float64", *DTYPES])
@pytest.mark.parametrize("operator", NAMES)
def test_torch_stays_inside(operator: str, name: str) -> None:
    """With one seed; benchmarks/widths.py asks a hundred."""
    if (operator, name) not in ROUNDED_ON_THE_WAY:
        for width in (1, 17, 4096, 65536):
            check_torch(operator, name, width)


def check_torch(operator: str, name: str, width: int) -> None:
    import torch

    from optest.torch.operators.normalization import CALLS
    from optest.torch.tensors import from_torch, to_torch

    kind = "exponents" if "softmax" in operator else "normal"
    x = rows(kind, width, name)[: 2 if width > 4096 else 32]
    w, b = parameters(width if operator in ("layer_norm", "rms_norm") else len(x), name)
    attributes: dict[str, Any] = {}
    inputs: list[Array | None] = [x]
    if operator in ("layer_norm", "rms_norm"):
        attributes, inputs = {"normalized_shape": [width]}, [x, w, b] if operator == "layer_norm" else [x, w]
    elif operator == "group_norm":
        inputs = [np.concatenate([x[None], x[None]]), w, b]
        attributes = {"num_groups": len(x)}
    elif operator == "batch_norm":
        inputs = [x.reshape(1, len(x), width), w, rounded(np.abs(widen(b)), name), b, w]
    elif operator == "causal_softmax":
        inputs = [x[: min(width, len(x))]]
    tensors = [None if each is None else to_torch(each, torch.device("cpu")) for each in inputs]
    output = CALLS[operator](tensors, operators.get(operator).bind(attributes))
    verdict = verdict_of(operator, inputs, [from_torch(output)], **attributes)
    assert verdict.status is Status.PASSED, (width, verdict.message)


def right(operator: str, *inputs: Array | None, **attributes: Any) -> Array:
    descriptor = operators.get(operator)
    (value,) = load_object(str(descriptor.reference))(list(inputs), descriptor.bind(attributes))
    return np.asarray(value)


def from_squares(x: Array, eps: float) -> Array:
    n = f4(x.shape[-1])
    mean = pairwise(x) / n
    return np.asarray((x - mean) / np.sqrt(np.maximum(pairwise(x * x) / n - mean * mean, f4(0)) + f4(eps)))


def unbiased(x: Array, eps: float = 1e-5) -> Array:
    values = widen(x)
    return np.asarray((values - values.mean(-1, keepdims=True)) / np.sqrt(values.var(-1, ddof=1, keepdims=True) + eps))


def outside_the_root(x: Array, eps: float = 1e-5) -> Array:
    values = widen(x)
    return np.asarray((values - values.mean(-1, keepdims=True)) / (values.std(-1, keepdims=True) + eps))


_W = 257
_NORM: dict[str, Any] = {"normalized_shape": [_W]}
Wrong = tuple[str, str, dict[str, Any], Callable[[Array, Array, Array], tuple[list[Array | None], Any]]]

WRONG: dict[str, Wrong] = {
    "layer_norm 1e-4 too large": (
        "layer_norm",
        "normal",
        _NORM,
        lambda x, w, b: ([x], right("layer_norm", x, **_NORM) * 1.0001),
    ),
    "rms_norm 1e-4 too large": (
        "rms_norm",
        "normal",
        _NORM,
        lambda x, w, b: ([x], right("rms_norm", x, **_NORM) * 1.0001),
    ),
    "group_norm 1e-4 too large": (
        "group_norm",
        "normal",
        {"num_groups": 4},
        lambda x, w, b: ([x[None, :4]], right("group_norm", x[None, :4], num_groups=4) * 1.0001),
    ),
    "batch_norm 1e-5 too large": (
        "batch_norm",
        "normal",
        {},
        lambda x, w, b: ([x, w, np.abs(b)], right("batch_norm", x, w, np.abs(b)) * 1.00001),
    ),
    "softmax 1e-4 too large": ("softmax", "normal", {}, lambda x, w, b: ([x], right("softmax", x) * 1.0001)),
    "log_softmax 1e-4 too large": (
        "log_softmax",
        "normal",
        {},
        lambda x, w, b: ([x], right("log_softmax", x) * 1.0001),
    ),
    "causal_softmax 1e-4 too large": (
        "causal_softmax",
        "normal",
        {},
        lambda x, w, b: ([x], right("causal_softmax", x) * 1.0001),
    ),
    "layer_norm with ten times eps": (
        "layer_norm",
        "tiny",
        _NORM,
        lambda x, w, b: ([x, w, b], right("layer_norm", x, w, b, eps=1e-4, **_NORM)),
    ),
    "layer_norm without eps": (
        "layer_norm",
        "tiny",
        _NORM,
        lambda x, w, b: ([x, w, b], right("layer_norm", x, w, b, eps=0.0, **_NORM)),
    ),
    "layer_norm with eps outside the root": ("layer_norm", "tiny", _NORM, lambda x, w, b: ([x], outside_the_root(x))),
    "layer_norm by the unbiased variance": ("layer_norm", "normal", _NORM, lambda x, w, b: ([x], unbiased(x))),
    "layer_norm from squares": ("layer_norm", "far offset", _NORM, lambda x, w, b: ([x], from_squares(wide(x), 1e-5))),
    "layer_norm without its mean": (
        "layer_norm",
        "uniform",
        _NORM,
        lambda x, w, b: ([x], right("rms_norm", x, **_NORM)),
    ),
    "layer_norm without its bias": (
        "layer_norm",
        "normal",
        _NORM,
        lambda x, w, b: ([x, w, b], right("layer_norm", x, w, **_NORM)),
    ),
    "layer_norm with weight and bias exchanged": (
        "layer_norm",
        "normal",
        _NORM,
        lambda x, w, b: ([x, w, b], right("layer_norm", x, b, w, **_NORM)),
    ),
    "layer_norm along the other axis": (
        "layer_norm",
        "normal",
        _NORM,
        lambda x, w, b: ([x], right("layer_norm", x.T.copy(), normalized_shape=[len(x)]).T),
    ),
    "layer_norm whose mean lacks the last element": (
        "layer_norm",
        "uniform",
        _NORM,
        lambda x, w, b: ([x], right("layer_norm", x, **_NORM) + widen(x)[..., -1:] / _W),
    ),
    "rms_norm with its mean": ("rms_norm", "uniform", _NORM, lambda x, w, b: ([x], right("layer_norm", x, **_NORM))),
    "rms_norm that divides by the sum": (
        "rms_norm",
        "normal",
        _NORM,
        lambda x, w, b: ([x], right("rms_norm", x, **_NORM) / np.sqrt(_W)),
    ),
    "rms_norm with layer_norm's eps": (
        "rms_norm",
        "tiny",
        _NORM,
        lambda x, w, b: ([x], right("rms_norm", x, eps=1e-5, **_NORM)),
    ),
    "rms_norm with 1 + weight": (
        "rms_norm",
        "normal",
        _NORM,
        lambda x, w, b: ([x, w], right("rms_norm", x, **_NORM) * (1.0 + widen(w))),
    ),
    "group_norm over the wrong groups": (
        "group_norm",
        "scaled rows",
        {"num_groups": 4},
        lambda x, w, b: ([x[None, :4]], right("group_norm", x[None, :4], num_groups=2)),
    ),
    "group_norm with weights by group": (
        "group_norm",
        "normal",
        {"num_groups": 2},
        lambda x, w, b: (
            [x[None, :4], w[:4], b[:4]],
            right("group_norm", x[None, :4], w[[0, 0, 1, 1]], b[[0, 0, 1, 1]], num_groups=2),
        ),
    ),
    "batch_norm by its own statistics": (
        "batch_norm",
        "normal",
        {},
        lambda x, w, b: (
            [x, w, np.abs(b)],
            right("batch_norm", x, None, None, training=True),
        ),
    ),
    "batch_norm with the deviation for the variance": (
        "batch_norm",
        "normal",
        {},
        lambda x, w, b: ([x, w, np.abs(b)], (x - w) / (np.abs(b) + 1e-5)),
    ),
    "batch_norm with ten times eps": (
        "batch_norm",
        "normal",
        {},
        lambda x, w, b: (
            [x, w, np.abs(b) * f4(1e-4)],
            right("batch_norm", x, w, np.abs(b) * f4(1e-4), eps=1e-4),
        ),
    ),
    "batch_norm training with the unbiased variance": (
        "batch_norm",
        "normal",
        {"training": True},
        lambda x, w, b: ([x, None, None], unbiased(x.T).T),
    ),
    "softmax without a term": (
        "softmax",
        "normal",
        {"dim": -1},
        lambda x, w, b: ([x], right("softmax", x, dim=-1) / (1.0 - right("softmax", x, dim=-1)[..., -1:])),
    ),
    "softmax in base 2": (
        "softmax",
        "normal",
        {"dim": -1},
        lambda x, w, b: ([x], right("softmax", x * f4(0.6931), dim=-1)),
    ),
    "softmax along the other axis": (
        "softmax",
        "normal",
        {"dim": -1},
        lambda x, w, b: ([x], right("softmax", x, dim=0)),
    ),
    "softmax by a rough exp": (
        "softmax",
        "normal",
        {"dim": -1},
        lambda x, w, b: ([x], right("softmax", x, dim=-1) * (1.0 + 2e-5 * np.sin(widen(x) * 50.0))),
    ),
    "log_softmax of softmax": (
        "log_softmax",
        "wide",
        {"dim": -1},
        lambda x, w, b: ([x], np.log(softmax(x, pairwise))),
    ),
    "log_softmax to base 2": (
        "log_softmax",
        "normal",
        {"dim": -1},
        lambda x, w, b: ([x], right("log_softmax", x, dim=-1) / np.log(2.0)),
    ),
    "log_softmax without its sum": (
        "log_softmax",
        "normal",
        {"dim": -1},
        lambda x, w, b: ([x], widen(x) - widen(x).max(-1, keepdims=True)),
    ),
    "causal_softmax of everything": (
        "causal_softmax",
        "normal",
        {},
        lambda x, w, b: ([x], right("softmax", x, dim=-1)),
    ),
    "causal_softmax one column off": (
        "causal_softmax",
        "normal",
        {},
        lambda x, w, b: ([x], right("causal_softmax", np.c_[x[:, 1:], np.zeros(len(x), f4)])),
    ),
    "causal_softmax aligned to the left": (
        "causal_softmax",
        "normal",
        {},
        lambda x, w, b: (
            [x],
            right("softmax", np.where(np.tri(len(x), _W, dtype=bool), x, -np.inf).astype(f4), dim=-1),
        ),
    ),
}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("fault", WRONG)
def test_wrong_kernels_are_outside(fault: str) -> None:
    operator, kind, attributes, kernel = WRONG[fault]
    x, (w, b) = rows(kind, _W, "float32"), parameters(_W, "float32")
    inputs, value = kernel(x, w, b)
    assert measured(operator, inputs, right(operator, *inputs, **attributes), **attributes)[0]
    assert not measured(operator, inputs, value, **attributes)[0]


@pytest.mark.parametrize(
    ("operator", "attributes", "share"),
    [
        ("layer_norm", _NORM, 4e-5),
        ("rms_norm", _NORM, 2e-5),
        ("group_norm", {"num_groups": 32}, 5e-5),
        ("batch_norm", {"training": True}, 3e-5),
        ("softmax", {}, 4e-5),
        ("log_softmax", {}, 2e-5),
    ],
)
def test_one_element_that_is_little_off_is_outside(operator: str, attributes: dict[str, Any], share: float) -> None:
    """Too little for the statistic over thousands of elements: the bound of the element has to be sharp."""
    x = rows("normal", _W, "float32")
    inputs: list[Array | None] = [x[None]] if operator == "group_norm" else [x]
    inputs = [x, None, None] if operator == "batch_norm" else inputs
    value = right(operator, *inputs, **attributes)
    flat = value.reshape(-1)
    place = int(np.argsort(np.abs(flat))[flat.size // 2])
    flat[place] *= 1.0 + share
    passed, measure = measured(operator, inputs, value, **attributes)
    assert not passed
    assert measure.mismatched == 1
    assert share_of_limit(measure) < 1.0, "the statistic alone would have found it"


def truncated(value: Array, name: str) -> Array:
    stored = widen(round_to(value, dtype(name)))
    spacing = np.abs(stored) * 2.0 ** (1 - dtype(name).precision)
    cut = np.where(np.abs(stored) > np.abs(value), stored - np.sign(value) * spacing / 2.0, stored)
    return widen(round_to(cut, dtype(name)))


@pytest.mark.parametrize("name", ["float16", "bfloat16"])
@pytest.mark.parametrize("operator", NAMES)
def test_truncated_results_are_outside(operator: str, name: str) -> None:
    x = rows("normal", 65, name)
    attributes = {"layer_norm": {"normalized_shape": [65]}, "rms_norm": {"normalized_shape": [65]}}.get(operator, {})
    inputs: list[Array | None] = [x]
    if operator == "group_norm":
        inputs, attributes = [x[None]], {"num_groups": len(x)}
    if operator == "batch_norm":
        inputs, attributes = [x, None, None], {"training": True}
    value = right(operator, *inputs, **attributes)
    assert measured(operator, inputs, value, **attributes)[0]
    assert not measured(operator, inputs, truncated(value, name), **attributes)[0]


CALLS: list[tuple[str, list[tuple[int, ...] | None], dict[str, Any]]] = [
    ("log_softmax", [(3, 4)], {"dim": 0}),
    ("log_softmax", [()], {"dim": 0}),
    ("log_softmax", [(3, 0)], {}),
    ("causal_softmax", [(2, 3, 5)], {}),
    ("causal_softmax", [(0, 3)], {}),
    ("rms_norm", [(2, 3, 4), (3, 4)], {"normalized_shape": [3, 4]}),
    ("rms_norm", [(0, 4)], {"normalized_shape": [4]}),
    ("group_norm", [(2, 6, 5), (6,), (6,)], {"num_groups": 3}),
    ("group_norm", [(2, 6), None, (6,)], {"num_groups": 2}),
    ("group_norm", [(2, 6, 0), None, None], {"num_groups": 2}),
    ("batch_norm", [(2, 3, 4), (3,), (3,), (3,), (3,)], {}),
    ("batch_norm", [(2, 3), (3,), (3,), None, (3,)], {}),
    ("batch_norm", [(2, 3, 4), None, None, (3,), None], {"training": True}),
    ("batch_norm", [(0, 3), (3,), (3,)], {}),
]


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("special", [False, True])
@pytest.mark.parametrize(("operator", "shapes", "attributes"), CALLS)
def test_terms_are_shaped_like_the_output(
    operator: str, shapes: list[tuple[int, ...] | None], attributes: dict[str, Any], special: bool
) -> None:
    values = np.array([np.nan, np.inf, -np.inf, 3e38, -0.0]) if special else np.random.default_rng(0).random(12) + 0.1
    inputs = [None if shape is None else np.resize(values, shape).astype(f4) for shape in shapes]
    descriptor = operators.get(operator)
    bound = descriptor.bind(attributes)
    (y,) = load_object(str(descriptor.reference))(inputs, bound)
    (budget,) = load_object(str(descriptor.terms))(inputs, bound)
    assert budget.worst.shape == budget.variance.shape == y.shape
    if not special:
        assert (budget.worst >= 0).all()
        assert (budget.variance <= 4.0 * budget.worst**2 * (1 + 1e-9)).all()


def test_rows_with_infinity_have_bounds_where_their_results_are_numbers() -> None:
    x = np.array([[np.inf, 1.0, 0.0], [1.0, 2.0, 3.0]], f4)
    descriptor = operators.get("rms_norm")
    bound = descriptor.bind({"normalized_shape": [3]})
    (y,) = load_object(str(descriptor.reference))([x], bound)
    (budget,) = load_object(str(descriptor.terms))([x], bound)
    assert np.isfinite(budget.worst[np.isfinite(y)]).all()
    assert np.isfinite(budget.variance[np.isfinite(y)]).all()
