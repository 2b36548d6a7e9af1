"""What the samples of reductions find out: one fault in a kernel at a time, and none in honest ones."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import pytest
from sample_questions import questions, wrong_answers

from optest.compare import judge
from optest.numerics import dtype_of, round_to, widen
from optest.operators import operators
from optest.operators.reduction.sums_reference import as_asked, in_asked_dtype, rows_of
from optest.registry import load_object
from optest.spec import Numerics, Status

Array = np.ndarray[Any, Any]
Inputs = Sequence[Any]
Attributes = Mapping[str, Any]
Kernel = Callable[[Inputs, Attributes], Any]

f4 = np.float32


def by_reference(name: str, **changed: Any) -> Kernel:
    """The reference under other attributes."""
    hook = load_object(str(operators.get(name).reference))
    return lambda inputs, attributes: hook(inputs, {**attributes, **changed})[0]


def on_inputs(name: str, change: Callable[[Array], Array]) -> Kernel:
    """The reference of changed inputs."""
    hook = load_object(str(operators.get(name).reference))
    return lambda inputs, attributes: hook([change(np.asarray(each)) for each in inputs], attributes)[0]


def row_by_row(kernel: Callable[[Array], Any]) -> Kernel:
    """A kernel of rows (last axis) that knows dim, keepdim and dtype."""

    def call(inputs: Inputs, attributes: Attributes) -> Any:
        rows = rows_of(as_asked(inputs[0], attributes), attributes)
        return rows.placed(in_asked_dtype(np.asarray(kernel(rows.values)), attributes))

    return call


def in_float32(kernel: Callable[[Array], Any]) -> Kernel:
    """A right kernel in float32 (float64 for float64), which rounds once at the end."""

    def call(rows: Array) -> Any:
        wide = rows if rows.dtype == np.float64 or rows.dtype.kind in "biu" else widen(rows).astype(f4)
        return kernel(wide)

    return row_by_row(call)


def one_by_one(x: Array) -> Array:
    start = np.zeros((*x.shape[:-1], 1), x.dtype)
    return np.asarray(np.add.accumulate(np.concatenate([start, x], axis=-1), axis=-1, dtype=x.dtype)[..., -1])


def blocks(x: Array, size: int) -> Array:
    """The elements of whole blocks: the tail is lost."""
    return x[..., : x.shape[-1] - x.shape[-1] % size] if x.shape[-1] > size else x


def at_the_end(x: Array) -> Array:
    """One element lost, as by an off-by-one bound."""
    return x[..., :-1]


def in_16_bits(x: Array) -> Any:
    """Sums that are kept in the 16 bits of the input."""
    if x.dtype.itemsize != 2 or x.dtype.kind in "iu":
        return widen(x).sum(-1)
    entry = dtype_of(x.dtype)
    total = np.zeros(x.shape[:-1])
    for i in range(x.shape[-1]):
        total = widen(round_to(total + widen(x[..., i]), entry))
    return total


def dense(array: Array) -> Array:
    """Storage read as if it were dense."""
    if array.base is None or not array.size:
        return array
    base = array
    while isinstance(base.base, np.ndarray):
        base = base.base
    flat = base.reshape(-1) if base.flags.c_contiguous else base.ravel()
    return np.resize(flat, array.shape) if flat.dtype == array.dtype else array


def without_nan(function: Callable[..., Any]) -> Callable[[Array], Any]:
    """fmax in place of maximum, or comparisons that NaN loses."""

    def call(x: Array) -> Any:
        wide = widen(x)
        if wide.dtype.kind != "f":
            return function(wide, axis=-1)
        worst = -np.inf if "max" in function.__name__ else np.inf
        return function(np.where(np.isnan(wide), worst, wide), axis=-1)

    return call


def last_place(x: Array) -> Array:
    return np.asarray(x.shape[-1] - 1 - widen(x)[..., ::-1].argmax(-1))


def from_zero(x: Array) -> Array:
    """A maximum that starts at 0."""
    return np.asarray(np.maximum(widen(x).max(-1), 0))


def narrow(x: Array) -> Any:
    """A sum of integers that wraps in their own dtype."""
    return x.sum(-1, dtype=x.dtype) if x.dtype.kind in "iu" else widen(x).sum(-1)


def variance_of(x: Array, correction: float) -> Any:
    return (
        np.var(widen(x).astype(np.float64), axis=-1, ddof=correction) if x.shape[-1] else np.full(x.shape[:-1], np.nan)
    )


def from_squares(x: Array) -> Any:
    x = x if x.dtype == np.float64 else widen(x).astype(f4)
    n = x.dtype.type(x.shape[-1])
    mean = x.sum(-1) / n
    return ((x * x).sum(-1) / n - mean * mean) * (n / (n - 1))


def norm_without_roots(x: Array) -> Any:
    return (widen(x) ** 2).sum(-1)


def exponentials(x: Array) -> Any:
    x = x if x.dtype == np.float64 else widen(x).astype(f4)
    return np.log(np.exp(x).sum(-1))


def swapped_keepdim(name: str) -> Kernel:
    hook = load_object(str(operators.get(name).reference))
    return lambda inputs, attributes: hook(inputs, {**attributes, "keepdim": not attributes["keepdim"]})[0]


def positive_dims(name: str) -> Kernel:
    """A negative dim is taken for the first."""
    hook = load_object(str(operators.get(name).reference))

    def call(inputs: Inputs, attributes: Attributes) -> Any:
        dim = attributes["dim"]
        dims = {max(each, 0) for each in ((dim,) if isinstance(dim, int) else dim or ())}
        return hook(inputs, {**attributes, "dim": sorted(dims) if isinstance(dim, tuple) else dim and max(dim, 0)})[0]

    return call


def scanned(kernel: Callable[[Array], Array]) -> Kernel:
    """A kernel of the last axis for cumsum."""

    def call(inputs: Inputs, attributes: Attributes) -> Any:
        array = np.asarray(inputs[0])
        wide = array.astype(np.int64) if array.dtype.kind in "biu" else widen(array)
        if not wide.ndim:
            return wide
        moved = np.moveaxis(wide, attributes["dim"], -1)
        return np.moveaxis(kernel(moved), -1, attributes["dim"])

    return call


FAULTS: dict[str, tuple[str, Kernel]] = {
    **{
        f"{name}: {what}": (name, kernel)
        for name in (
            "sum",
            "mean",
            "var",
            "norm",
            "logsumexp",
            "amax",
            "amin",
            "all",
            "any",
            "argmax",
            "argmin",
            "prod",
        )
        for what, kernel in (
            ("keepdim the other way", swapped_keepdim(name)),
            ("negative dims wrong", positive_dims(name)),
            ("storage read as dense", on_inputs(name, dense)),
            ("dim ignored", by_reference(name, dim=None)),
        )
    },
    "sum: last element lost": ("sum", row_by_row(lambda x: widen(at_the_end(x)).sum(-1))),
    "sum: tail of 32 lost": ("sum", row_by_row(lambda x: widen(blocks(x, 32)).sum(-1))),
    "sum: tail of 1024 lost": ("sum", row_by_row(lambda x: widen(blocks(x, 1024)).sum(-1))),
    "sum: kept in 16 bits": ("sum", row_by_row(in_16_bits)),
    "sum: wraps in its own dtype": ("sum", row_by_row(narrow)),
    "sum: of magnitudes": ("sum", on_inputs("sum", lambda x: x if x.dtype.kind == "b" else np.abs(x))),
    "sum: nan as 0": ("sum", on_inputs("sum", lambda x: np.where(x == x, x, x * 0 if x.dtype.kind == "b" else 0))),
    "mean: by n - 1": (
        "mean",
        lambda i, a: by_reference("mean")(i, a) * (n := max(rows_of(np.asarray(i[0]), a).length, 2)) / (n - 1),
    ),
    "mean: the sum": ("mean", by_reference("sum")),
    "mean: kept in 16 bits": ("mean", row_by_row(lambda x: in_16_bits(x) / x.shape[-1])),
    "mean: by the first dimension": (
        "mean",
        lambda i, a: by_reference("sum")(i, a) / (np.shape(i[0]) or (1,))[0],
    ),
    "mean: 0 of nothing": ("mean", lambda i, a: np.nan_to_num(by_reference("mean")(i, a))),
    "prod: in float for integers": (
        "prod",
        lambda i, a: rows_of(np.asarray(i[0]), a).placed(
            np.clip(widen(rows_of(np.asarray(i[0]), a).values).astype(np.float64).prod(-1), -(2.0**62), 2.0**62)
        ),
    ),
    "prod: last factor lost": ("prod", row_by_row(lambda x: widen(at_the_end(x)).prod(-1))),
    "prod: of magnitudes": ("prod", lambda i, a: np.abs(by_reference("prod")(i, a))),
    "prod: wraps in its own dtype": (
        "prod",
        row_by_row(lambda x: x.prod(-1, dtype=x.dtype) if x.dtype.kind in "iu" else widen(x).prod(-1)),
    ),
    "prod: 0 of nothing": (
        "prod",
        lambda i, a: by_reference("prod")(i, a) * (rows_of(np.asarray(i[0]), a).length > 0),
    ),
    "cumsum: exclusive": ("cumsum", scanned(lambda x: np.cumsum(x, -1) - x)),
    "cumsum: from the end": ("cumsum", scanned(lambda x: np.cumsum(x[..., ::-1], -1)[..., ::-1])),
    "cumsum: blocks of 256 apart": (
        "cumsum",
        scanned(
            lambda x: np.concatenate(
                [np.cumsum(part, -1) for part in np.split(x, range(256, x.shape[-1], 256), axis=-1)], axis=-1
            )
        ),
    ),
    "cumsum: along the last dimension": ("cumsum", by_reference("cumsum", dim=-1)),
    "dot: last element lost": ("dot", on_inputs("dot", at_the_end)),
    "dot: of the first with itself": ("dot", lambda i, a: by_reference("dot")([i[0], i[0]], a)),
    "dot: storage read as dense": ("dot", on_inputs("dot", dense)),
    "dot: in int32 for integers": (
        "dot",
        lambda i, a: (
            np.clip((widen(i[0]).astype(float) * widen(i[1]).astype(float)).sum(), -(2.0**31), 2.0**31)
            if i[0].dtype.kind in "iu"
            else by_reference("dot")(i, a)
        ),
    ),
    "var: biased": ("var", row_by_row(lambda x: variance_of(x, 0.0))),
    "var: correction ignored": ("var", by_reference("var", correction=1.0)),
    "var: from squares": ("var", row_by_row(from_squares)),
    "var: around 0": ("var", row_by_row(lambda x: (widen(x) ** 2).sum(-1) / max(x.shape[-1] - 1, 1))),
    "var: the deviation": ("var", lambda i, a: np.sqrt(by_reference("var")(i, a))),
    "var: 0 of one element": ("var", lambda i, a: np.nan_to_num(by_reference("var")(i, a))),
    "norm: without its root": ("norm", row_by_row(norm_without_roots)),
    "norm: order ignored": ("norm", by_reference("norm", p=2.0)),
    "norm: squares in 16 bits": (
        "norm",
        lambda i, a: (
            by_reference("norm")(i, a)
            if a["p"] != 2.0 or i[0].dtype.itemsize != 2
            else np.sqrt(by_reference("sum")([round_to(widen(i[0]) ** 2, dtype_of(i[0].dtype))], a))
        ),
    ),
    "norm: -inf as inf": (
        "norm",
        lambda i, a: by_reference("norm", p=float("inf") if a["p"] == float("-inf") else a["p"])(i, a),
    ),
    "norm: 0 counts all": (
        "norm",
        lambda i, a: by_reference("norm")([np.ones_like(i[0])] if a["p"] == 0 else i, a),
    ),
    "logsumexp: without the shift": ("logsumexp", row_by_row(exponentials)),
    "logsumexp: nan for nothing but -inf": (
        "logsumexp",
        lambda i, a: np.where(np.isneginf(y := by_reference("logsumexp")(i, a)), np.nan, y),
    ),
    "logsumexp: the maximum": ("logsumexp", row_by_row(lambda x: widen(x).max(-1, initial=-np.inf))),
    "logsumexp: last element lost": ("logsumexp", row_by_row(lambda x: np.log(np.exp(widen(at_the_end(x))).sum(-1)))),
    "amax: starts at 0": ("amax", row_by_row(from_zero)),
    "amax: NaN loses": ("amax", row_by_row(without_nan(np.max))),
    "amax: last element lost": ("amax", row_by_row(lambda x: widen(at_the_end(x)).max(-1, initial=-np.inf))),
    "amax: of magnitudes": ("amax", on_inputs("amax", lambda x: x if x.dtype.kind == "b" else np.abs(x))),
    "amax: starts at the smallest positive": (
        "amax",
        row_by_row(lambda x: np.maximum(widen(x).max(-1), np.float64(1.17549435e-38) if x.dtype.kind == "f" else 0)),
    ),
    "amax: compares unsigned": (
        "amax",
        row_by_row(
            lambda x: x.view(f"u{x.dtype.itemsize}").max(-1).view(x.dtype) if x.dtype.kind == "i" else widen(x).max(-1)
        ),
    ),
    "amax: compares int64 as floats": (
        "amax",
        row_by_row(lambda x: x.astype(f4).max(-1).astype(float) if x.dtype == np.int64 else widen(x).max(-1)),
    ),
    "amin: the largest": ("amin", by_reference("amax")),
    "amin: NaN loses": ("amin", row_by_row(without_nan(np.min))),
    "amin: starts at 0": ("amin", row_by_row(lambda x: np.minimum(widen(x).min(-1), 0))),
    "argmax: the last of equal ones": ("argmax", row_by_row(last_place)),
    "argmax: NaN loses": ("argmax", row_by_row(without_nan(np.argmax))),
    "argmax: counts from 1": ("argmax", lambda i, a: by_reference("argmax")(i, a) + 1),
    "argmax: the least": ("argmax", by_reference("argmin")),
    "argmax: last element lost": (
        "argmax",
        row_by_row(lambda x: widen(at_the_end(x) if x.shape[-1] > 1 else x).argmax(-1)),
    ),
    "argmax: in float16": (
        "argmax",
        row_by_row(lambda x: (x.astype(np.float16) if x.dtype == np.int32 else widen(x)).argmax(-1)),
    ),
    "argmin: NaN loses": ("argmin", row_by_row(without_nan(np.argmin))),
    "argmin: of magnitudes": ("argmin", on_inputs("argmin", lambda x: np.abs(widen(x)))),
    "all: any": ("all", by_reference("any")),
    "all: last element lost": ("all", row_by_row(lambda x: (widen(at_the_end(x)) != 0).all(-1))),
    "all: tail of 32 lost": ("all", row_by_row(lambda x: (widen(blocks(x, 32)) != 0).all(-1))),
    "all: NaN is false": ("all", row_by_row(lambda x: ((w := widen(x)) == w).all(-1) & (w != 0).all(-1))),
    "all: false of nothing": (
        "all",
        lambda i, a: by_reference("all")(i, a) & (rows_of(np.asarray(i[0]), a).length > 0),
    ),
    "any: all": ("any", by_reference("all")),
    "any: first element lost": ("any", row_by_row(lambda x: (widen(x[..., 1:]) != 0).any(-1))),
    "any: casts to int": (
        "any",
        row_by_row(lambda x: np.trunc(np.nan_to_num(widen(x).astype(float), nan=1.0, posinf=1.0)).any(-1)),
    ),
    "any: reads the lowest byte": (
        "any",
        row_by_row(lambda x: ((x.astype(np.int64) & 0xFF) if x.dtype.kind in "iu" else widen(x) != 0).any(-1)),
    ),
}


def answering(kernel: Kernel) -> Kernel:
    """A kernel that crashes is not what these faults are about, and found by any call."""

    def call(inputs: Inputs, attributes: Attributes) -> Any:
        try:
            return kernel(inputs, attributes)
        except (ValueError, IndexError, TypeError) as error:
            raise RuntimeError("the fault itself is faulty") from error

    return call


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("fault", FAULTS)
def test_faults_are_found(fault: str) -> None:
    operator, kernel = FAULTS[fault]
    assert wrong_answers(operator, answering(kernel), first=True), "no sample notices"


def variance_in_two_passes(inputs: Inputs, attributes: Attributes) -> Any:
    def kernel(x: Array) -> Any:
        t = x.dtype.type
        centred = x - (one_by_one(x) / t(x.shape[-1]))[..., None]
        return one_by_one(centred * centred) / t(max(0.0, x.shape[-1] - attributes["correction"]))

    return in_float32(kernel)(inputs, attributes)


def variance_by_updates(inputs: Inputs, attributes: Attributes) -> Any:
    """Welford's, for rows that are not long."""

    def kernel(x: Array) -> Any:
        t = x.dtype.type
        mean, squares = np.zeros(x.shape[:-1], x.dtype), np.zeros(x.shape[:-1], x.dtype)
        for i in range(x.shape[-1]):
            step = x[..., i] - mean
            mean = mean + step / t(i + 1)
            squares = squares + step * (x[..., i] - mean)
        return squares / t(max(0.0, x.shape[-1] - attributes["correction"]))

    is_long = rows_of(np.asarray(inputs[0]), attributes).length > 5000
    return (by_reference("var") if is_long else in_float32(kernel))(inputs, attributes)


def is_vast(x: Array) -> bool:
    """Whether squares leave float32's range, where a right kernel scales."""
    finite = np.abs(widen(x)[np.isfinite(widen(x))])
    return x.dtype == f4 and bool((finite > 1e18).any())


def norm_in_float32(inputs: Inputs, attributes: Attributes) -> Any:
    p = attributes["p"]
    if p in (0.0, float("inf"), float("-inf")) or is_vast(inputs[0]):
        return by_reference("norm")(inputs, attributes)
    root = {1.0: lambda x: x, 2.0: np.sqrt}.get(p, lambda x: x ** x.dtype.type(1.0 / p))
    return in_float32(lambda x: root(one_by_one(np.abs(x) ** x.dtype.type(p))))(inputs, attributes)


def logarithm_of_sum(x: Array) -> Any:
    largest = x.max(-1, initial=-np.inf)
    shift = np.where(np.isinf(largest), x.dtype.type(0), largest)
    return shift + np.log(one_by_one(np.exp(x - shift[..., None])))


def running_sum(inputs: Inputs, attributes: Attributes) -> Any:
    x = np.asarray(inputs[0])
    wide = attributes["dtype"] == "float64" or x.dtype == np.float64
    if x.dtype.kind in "biu" or not x.ndim or attributes["dtype"] == "int32":
        return by_reference("cumsum")(inputs, attributes)
    return np.add.accumulate(widen(x).astype(np.float64 if wide else f4), axis=attributes["dim"])


HONEST: dict[str, tuple[str, Kernel]] = {
    "var in two passes": ("var", variance_in_two_passes),
    "var by updates": ("var", variance_by_updates),
    "norm in float32": ("norm", norm_in_float32),
    "logsumexp in float32": ("logsumexp", in_float32(logarithm_of_sum)),
    "cumsum in float32": ("cumsum", running_sum),
    "sum": ("sum", in_float32(lambda x: x.sum(-1))),
    "sum one by one": ("sum", in_float32(lambda x: one_by_one(x) if x.dtype.kind == "f" else x.sum(-1))),
    "mean one by one": ("mean", in_float32(lambda x: one_by_one(x) / x.dtype.type(x.shape[-1]))),
    "mean by the reciprocal": ("mean", in_float32(lambda x: x.sum(-1) * (x.dtype.type(1) / x.dtype.type(x.shape[-1])))),
    "prod one by one": ("prod", in_float32(lambda x: x.prod(-1))),
    "norm 2": (
        "norm",
        lambda i, a: (
            in_float32(lambda x: np.sqrt((x * x).sum(-1)))(i, a)
            if a["p"] == 2 and not is_vast(i[0])
            else by_reference("norm")(i, a)
        ),
    ),
    "dot": (
        "dot",
        lambda i, a: (
            by_reference("dot")(i, a)
            if i[0].dtype.kind in "iu"
            else one_by_one(widen(i[0]).astype(t) * widen(i[1]).astype(t))
            if (t := np.float64 if i[0].dtype == np.float64 else f4)
            else None
        ),
    ),
    **{name: (name, by_reference(name)) for name in ("cumsum", "var", "logsumexp", "amax", "amin", "argmax", "argmin")},
    "all": ("all", by_reference("all")),
    "any": ("any", by_reference("any")),
}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("kernel", HONEST)
def test_honest_kernels_raise_no_alarm(kernel: str) -> None:
    operator, function = HONEST[kernel]
    assert wrong_answers(operator, answering(function)) == []


Outputs = Sequence[Array]


def last_of_equal(inputs: Inputs, attributes: Attributes, right: Outputs) -> Outputs:
    if attributes["dim"] is None:
        return right
    x = np.asarray(inputs[0])
    if not x.ndim:
        return right
    values, places = by_both("max", [np.flip(x, attributes["dim"])], attributes)
    return values, x.shape[attributes["dim"]] - 1 - places


def by_both(name: str, inputs: Inputs, attributes: Attributes) -> Outputs:
    outputs: Outputs = load_object(str(operators.get(name).reference))(inputs, attributes)
    return outputs


TWO_OUTPUTS: dict[str, Callable[[Inputs, Attributes, Outputs], Outputs]] = {
    "the last of equal elements": last_of_equal,
    "places as int32": lambda i, a, right: [*right[:1], *(each.astype(np.int32) for each in right[1:])],
    "places from 1": lambda i, a, right: [*right[:1], *(each + 1 for each in right[1:])],
    "places of the least": lambda i, a, right: [*right[:1], *by_both("min", i, a)[1:]],
    "values of the least": lambda i, a, right: [*by_both("min", i, a)[:1], *right[1:]],
    "no places": lambda i, a, right: right[:1],
    "places without dim": lambda i, a, right: [*right, *([np.array(0)] if len(right) == 1 else [])],
    "NaN loses": lambda i, a, right: by_both(
        "max", [np.where(np.isnan(i[0]), -np.inf, i[0]) if i[0].dtype.kind == "f" else i[0]], a
    ),
}


def is_answered(question: Any, outputs: Outputs) -> bool:
    case = question.case
    dtypes = [spec.dtype for spec in case.outputs] + [case.inputs[0].spec.dtype]
    stored = [round_to(each, dtypes[i]) if each.dtype == np.float64 else each for i, each in enumerate(outputs)]
    return judge(case, stored, question.expected, numerics=Numerics(), inputs=question.inputs).status is Status.PASSED


@pytest.mark.parametrize("fault", [*TWO_OUTPUTS, "honest"])
def test_both_outputs_of_max_are_asked(fault: str) -> None:
    change = TWO_OUTPUTS.get(fault, lambda i, a, right: right)
    wrong = []
    for question in questions("max"):
        if question.case.expects_error is None:
            right = by_both("max", question.inputs, question.case.attributes)
            if not is_answered(question, change(question.inputs, question.case.attributes, right)):
                wrong.append(question.case.name)
    assert bool(wrong) is (fault != "honest"), wrong


@pytest.mark.parametrize("name", [each.name for each in operators if each.category == "reduction"])
def test_samples_are_of_the_named_sets_and_few_enough(name: str) -> None:
    descriptor = operators.get(name)
    sets = {sample.case_set for sample in load_object(str(descriptor.samples))()}
    assert sets == set(descriptor.case_sets)
    assert 100 <= len(questions(name)) <= 270
