"""Patterns of wrong outputs: one ratio, one difference, a dtype that holds all values, one size of errors; and
hypotheses that follow from inputs, outputs and expected values without another run of the reference.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from fractions import Fraction
from functools import partial
from typing import Any

import numpy as np

from optest.compare import Expected
from optest.core.other_calls import TILES, Hypothesis, WrongCall, narrower_dtypes
from optest.numerics import Array, bits, round_to, ulp, widen
from optest.spec import DType, ErrorBudget, Terms, TestCase, dtype

Fits = Callable[[Expected], bool]

# Distinct right values among the wrong elements: fewer have one ratio by chance, or by one wrong value.
_LEAST_VALUES = 4
_FIRST = 256
_PLAIN_DENOMINATOR = 64
# Least ratio of an element's error to the rest of it, to count for a pattern: the other elements are small.
_EXPLAINED = 8
# A ratio this near to 1 means nothing unless it has a name: an eps at another position has such a ratio.
_AT_1 = 1e-3
_CONSTANTS = {
    "ln(2)": math.log(2),
    "1/ln(2)": 1 / math.log(2),
    "ln(10)": math.log(10),
    "1/ln(10)": 1 / math.log(10),
    "√2": math.sqrt(2),
    "1/√2": math.sqrt(0.5),
    "π": math.pi,
    "1/π": 1 / math.pi,
    "π/180": math.pi / 180,
    "180/π": 180 / math.pi,
    "e": math.e,
}
# Dtypes with the half step of rounding to nearest, relative to a number.
_STEPS = (
    ("bfloat16", 2.0**-9, "as if computed in bfloat16"),
    ("float16", 2.0**-12, "as if computed in float16 or tf32"),
    ("float32", 2.0**-25, "as if computed in float32"),
)
# Half of all rounded numbers have the last bit set; fewer by chance if there are few numbers.
_LEAST_OF_LAST_BITS = 0.2
# Steps of a narrower dtype that roundings of partial sums in it may lose; larger errors have another cause.
_MOST_STEPS = 64
_LEAST_ON_A_SIDE = 0.2
# Relative errors of handbook formulas and of fast intrinsics in place of functions of float32 or float64.
_APPROXIMATE = (2e-7, 2e-4)


def has_values(array: Array, count: int) -> bool:
    """Return whether an array holds ``count`` distinct values or more."""
    flat = array.reshape(-1)  # the first elements are enough for most arrays
    return any(np.unique(some).size >= count for some in (flat[:_FIRST], flat))


def describe_multiple(case: TestCase, output: Array, expected: Expected, fits: Fits) -> str:
    """Describe the ratio if the wrong elements are all one multiple of the right ones; else return "".

    ``fits`` returns whether the output passes if another output is expected.
    """
    if (pair := _as_real_pair(output, expected)) is None:
        return ""
    actual, right = pair
    step = _step(expected.dtype)
    error = np.abs(actual - right)
    wrong = np.isfinite(error) & (error > 8 * step * np.abs(right)) & (right != 0)
    if not has_values(right[wrong], _LEAST_VALUES):
        return ""
    large = wrong & (np.abs(right) >= np.median(np.abs(right[wrong])))
    ratio = float(np.median(actual[large] / right[large]))
    for name, value in _names_of(ratio, case, max(4 * step, 1e-9)):
        near = np.abs(actual - value * right) < error
        is_representable = expected.dtype.is_float or not np.any(np.mod(value * right[near], 1))
        explained = np.abs(actual - value * right) <= error / _EXPLAINED
        is_pattern = is_representable and has_values(right[near & explained], _LEAST_VALUES)
        if is_pattern and fits(_scaled(expected, right, near, value)):
            return _with_count(f"actual / expected is one ratio: the ratio is {name}", near)
    return ""


def describe_shift(case: TestCase, output: Array, expected: Expected, fits: Fits) -> str:  # noqa: ARG001 - as describe_multiple
    """Describe the difference if the wrong elements all differ from the right ones by one number; else return ""."""
    if (pair := _as_real_pair(output, expected)) is None:
        return ""
    actual, right = pair
    wrong = np.isfinite(actual - right) & (actual != right)
    if not has_values(right[wrong], _LEAST_VALUES):
        return ""
    # A difference of a few ulp is a rounding, no offset.
    difference = float(np.median((actual - right)[wrong]))
    if abs(difference) <= 64 * _step(expected.dtype) * float(np.median(np.abs(right[wrong]))):
        return ""
    near = np.abs(actual - right - difference) < np.abs(actual - right)
    value = np.where(near, right + difference, right).astype(np.asarray(expected.value).dtype)
    if not fits(replace(expected, value=value, alternatives=None)):
        return ""
    return _with_count(f"actual - expected is one number: the difference is {difference:.6g}", near)


def _with_count(words: str, near: Array) -> str:
    """Append the number of elements that are ``near`` to ``words``, unless it is all."""
    count = int(np.count_nonzero(near))
    return words if count == near.size else f"{words} ({count} of {near.size} elements)"


def _as_real(values: Any) -> Array | None:
    """Convert values to float64; return None for complex numbers, bool, and integers that float64 cannot hold."""
    array = np.asarray(values)
    if array.dtype.kind in "cb":
        return None
    wide = widen(array) if array.dtype.kind not in "iu" else array.astype(np.float64)
    return None if array.dtype.kind in "iu" and np.abs(wide).max(initial=0) >= 2.0**53 else wide


def _as_real_pair(output: Array, expected: Expected) -> tuple[Array, Array] | None:
    """Return the actual and right values in float64; None if it cannot hold them."""
    actual, right = _as_real(output), _as_real(expected.value)
    return None if actual is None or right is None else (actual, right)


def _finite_pair(output: Array, expected: Expected) -> tuple[Array, Array]:
    """Return the actual and right values of elements finite in both; empty arrays if float64 cannot hold the output."""
    if (pair := _as_real_pair(output, expected)) is None:
        return np.empty(0), np.empty(0)
    actual, right = pair
    both = np.isfinite(actual) & np.isfinite(right)
    return actual[both], right[both]


def _step(kind: DType) -> float:
    """Return the distance of 1 to the next number of a dtype, 0 for integers."""
    return 2.0 ** (1 - kind.precision) if kind.is_float else 0.0


def _scaled(expected: Expected, right: Array, near: Array, ratio: float) -> Expected:
    """Return the expected output with elements ``near`` multiplied by the ratio, and error terms to match."""
    value = np.where(near, right * ratio, right)
    factor = np.where(near, abs(ratio), 1.0)
    if expected.dtype.is_float:
        return replace(expected, value=value, terms=scale_terms(expected.terms, factor), alternatives=None)
    return replace(expected, value=np.rint(value).astype(np.asarray(expected.value).dtype), alternatives=None)


def scale_terms(terms: Any, factor: Array) -> Any:
    """Return the error terms of values that are ``factor`` times as large."""
    if isinstance(terms, Terms):
        return terms._replace(absolute=terms.absolute * factor, squared=terms.squared * factor**2)
    if isinstance(terms, ErrorBudget):
        variance = None if terms.variance is None else terms.variance * factor**2
        return terms._replace(worst=terms.worst * factor, variance=variance)
    return terms


def _names_of(ratio: float, case: TestCase, tolerance: float) -> Iterator[tuple[str, float]]:
    """Yield names of a ratio with their values: only the plain fraction if it is one, else a known name, then it."""
    if not math.isfinite(ratio):
        return
    if abs(ratio) <= tolerance:
        yield "0", 0.0
        return
    known = [*_ratios_of_attributes(case), *_ratios_of_sizes(case), *_CONSTANTS.items()]
    named = [(name, value) for name, value in known if abs(ratio / value - 1) <= tolerance and value != 1]
    # Fractions that are closer together than ten tolerances fit by chance.
    plain = Fraction(ratio).limit_denominator(min(_PLAIN_DENOMINATOR, max(1, int(math.sqrt(0.1 / tolerance)))))
    if plain and plain != 1 and abs(ratio / float(plain) - 1) <= tolerance:
        also = f" ({named[0][0]})" if named else ""
        decimal = f" = {plain}" if plain.denominator > 1 else ""
        yield f"{float(plain):.6g}{decimal}{also}", float(plain)
        return
    yield from named[:1]
    if abs(ratio - 1) > _AT_1:
        yield f"{ratio:.6g}", ratio


def _ratios_of_sizes(case: TestCase) -> Iterator[tuple[str, float]]:
    """Yield the sizes of the inputs, their inverses, roots and the like as ratios with a name."""
    sizes = {(size, f"a size of {argument.name}"): None for argument in case.inputs for size in argument.spec.shape}
    sizes |= {(argument.spec.elements, f"the elements of {argument.name}"): None for argument in case.inputs}
    for size, meaning in sizes:
        if size <= 1:
            continue
        if (padded := 1 << (size - 1).bit_length()) != size:
            yield f"{size}/{padded}, {meaning} for a padded one", size / padded
            yield f"√({padded}/{size}), a padded size for {meaning}", math.sqrt(padded / size)
        yield f"{size}, {meaning}", float(size)
        yield f"1/{size}, {meaning}", 1 / size
        yield f"√{size}, {meaning}", math.sqrt(size)
        yield f"1/√{size}, {meaning}", 1 / math.sqrt(size)
        yield f"{size}/({size}-1), {meaning}", size / (size - 1)
        yield f"({size}-1)/{size}, {meaning}", (size - 1) / size


def _ratios_of_attributes(case: TestCase) -> Iterator[tuple[str, float]]:
    """Yield the numbers among the attributes and their inverses as ratios with a name."""
    for name, value in case.attributes.items():
        if isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value) and value:
            yield name, float(value)
            yield f"1/{name}", 1 / value


def describe_narrower_dtype(output: Array, expected: Expected) -> str:
    """Name the narrower dtype that holds every number of the output, though not the right ones; else return ""."""
    actual, right = _finite_pair(output, expected)
    stored = widen(round_to(right, expected.dtype)) if expected.dtype.is_float else right
    for name in narrower_dtypes(expected.dtype.name):
        narrow = dtype(name)
        differs = widen(round_to(stored, narrow)) != stored
        if not has_values(right[differs], _LEAST_VALUES):
            continue
        near = np.abs(actual - right) <= _MOST_STEPS * _step(narrow) * np.abs(right).max()
        is_held = bool(near.all()) and bool((widen(round_to(actual, narrow)) == actual).all())
        if is_held and _uses_last_bit(actual, narrow):
            also = " (or of tf32)" if name == "float16" else ""
            return f"every result is a number of {name}{also}: an intermediate is rounded to it or accumulated in it"
    return ""


def _uses_last_bit(values: Array, kind: DType) -> bool:
    """Return whether the last bit of the significands is set about as often as in rounded numbers."""
    # If it is not, the numbers have fewer bits than the dtype, as differences of large numbers do.
    last = np.abs(values[values != 0])
    return bool(np.mod(last / ulp(last, kind), 2).mean() > _LEAST_OF_LAST_BITS) if last.size else False


def describe_truncation(output: Array, expected: Expected) -> str:
    """Return a sentence if every element is the right one truncated to its dtype, not rounded; else ""."""
    if not expected.dtype.is_float:
        return ""
    actual, right = _finite_pair(output, expected)
    cut = (
        (np.abs(actual) <= np.abs(right))
        & (np.abs(right - actual) < ulp(actual, expected.dtype))
        & (actual * right >= 0)
    )
    wrong = widen(round_to(right, expected.dtype)) != actual
    if not bool(cut.all()) or not has_values(right[wrong], _LEAST_VALUES):
        return ""
    return "every result is the right one truncated toward zero, not rounded to the nearest"


def describe_error_size(output: Array, expected: Expected) -> str:
    """Return a sentence if relative errors are as large as steps of a narrower dtype or an approximation."""
    if (pair := _as_real_pair(output, expected)) is None or expected.dtype.bits < 32:
        return ""
    actual, right = pair
    both = np.isfinite(actual) & np.isfinite(right) & (right != 0)
    relative = np.abs(actual - right)[both] / np.abs(right[both])
    if relative.size < 2 * _LEAST_VALUES or not bool((np.isfinite(actual) == np.isfinite(right)).all()):
        return ""
    largest, upper_quartile = float(relative.max()), float(np.quantile(relative, 0.75))
    if not errors_have_both_signs(output, expected):
        return ""  # a wrong constant in a formula, no roundings
    for name, half_step, words in _STEPS:
        if dtype(name).bits < expected.dtype.bits and half_step / 4 <= upper_quartile and largest <= 4 * half_step:
            return f"{words}: relative errors of {largest:.2g} at most"
    if _APPROXIMATE[0] <= upper_quartile and largest <= _APPROXIMATE[1] and expected.dtype.bits >= 32:
        return f"as if by an approximate function: relative errors of {largest:.2g} at most"
    return ""


def errors_have_both_signs(output: Array, expected: Expected) -> bool:
    """Return whether errors are above and below the right values, and nearer to and farther from 0."""
    if (pair := _as_real_pair(output, expected)) is None:
        return False
    actual, right = pair
    both = np.isfinite(actual) & np.isfinite(right) & (right != 0)
    error = (actual - right)[both]
    return _have_both_signs(error) and _have_both_signs(error / right[both])


def _have_both_signs(errors: Array) -> bool:
    """Return whether at least 20 % of the errors that are not 0 have each sign."""
    above = float(np.mean(errors[errors != 0] > 0)) if errors.any() else 0.5
    return _LEAST_ON_A_SIDE <= above <= 1 - _LEAST_ON_A_SIDE


# Hypotheses that need no reference


def _hypothesis(wrong: WrongCall, words: str, values: Mapping[int, Array]) -> Hypothesis:
    """Return the hypothesis that the outputs at these indices have these ``values``."""
    return Hypothesis(words=words, case=wrong.case, inputs=wrong.inputs, values=values)


def _one_output(wrong: WrongCall) -> tuple[int, Array, Array] | None:
    """Return the index of the only wrong output, its actual and right values; None if several, or no real numbers."""
    if len(wrong.off) != 1:
        return None
    pair = _as_real_pair(wrong.outputs[wrong.off[0]], wrong.expected[wrong.off[0]])
    return None if pair is None or pair[0].shape != pair[1].shape else (wrong.off[0], *pair)


def returned_inputs(wrong: WrongCall) -> Iterator[Hypothesis]:
    """Yield the hypothesis that every wrong output is a returned input, bit for bit."""
    values, names = {}, []
    for index in wrong.off:
        output = wrong.outputs[index]
        for argument, array in zip(wrong.case.inputs, wrong.inputs, strict=True):
            same = (array.shape, array.dtype) == (output.shape, output.dtype)
            if index not in values and same and np.array_equal(bits(array), bits(output)):
                values[index] = array
                names.append(f"{wrong.expected[index].name} were {argument.name}, returned unchanged")
    if len(values) == len(wrong.off):
        yield _hypothesis(wrong, " and ".join(names), values)


def _lost_ends(wrong: WrongCall) -> Iterator[Hypothesis]:
    """Yield hypotheses that the last rows of an output are zeros, rows of an input, or rows before them."""
    if (single := _one_output(wrong)) is None:
        return
    index, actual, right = single
    expected = wrong.expected[index]
    is_wrong = ~np.isclose(actual, right, rtol=16 * _step(expected.dtype), atol=0.0, equal_nan=True)
    fillings = {"0": np.zeros_like(right)}
    for argument, array in zip(wrong.case.inputs, wrong.inputs, strict=True):
        if array.shape == actual.shape and (values := _as_real(array)) is not None:
            fillings[argument.name] = values
    for axis, size in enumerate(actual.shape):
        first = int(np.argmax(np.moveaxis(is_wrong, axis, 0).reshape(size, -1).any(axis=1)))
        tail = (slice(None),) * axis + (slice(first, None),)
        before = {"the row before": np.broadcast_to(actual.take([first - 1], axis), actual.shape)}
        before |= {f"those {tile} before": np.roll(actual, tile, axis) for tile in (first, *TILES) if 1 < tile <= first}
        for filling, filled in {**fillings, **before}.items() if first else ():
            if np.array_equal(actual[tail], filled[tail], equal_nan=True) and not np.array_equal(actual, filled):
                value = np.array(expected.value)
                value[tail] = filled[tail].astype(value.dtype)
                rows = f"{size - first} of {size} along dimension {axis} of {expected.name}"
                yield _hypothesis(wrong, f"the last {rows} were {filling}", {index: value})
                break


def _partial_sums(wrong: WrongCall) -> Iterator[Hypothesis]:
    """Yield hypotheses that the sum in softmax left out its last terms, or has terms of a padding with 0."""
    if wrong.case.descriptor.name != "softmax" or (single := _one_output(wrong)) is None or not single[2].ndim:
        return
    axis = wrong.case.attributes["dim"]
    size = single[2].shape[axis]
    for cut in sorted({(size - 1) // tile * tile for tile in (1, *TILES) if size > tile}):
        total = single[2].take(np.arange(cut), axis).sum(axis, keepdims=True)
        words = f"the sum left out the last {size - cut} of {size} along dimension {axis}"
        yield _hypothesis(wrong, words, {0: single[2] / total})
    x = widen(wrong.inputs[0])
    top = np.maximum(x.max(axis, keepdims=True, initial=0), 0)
    powers = np.exp(x - top)
    for padded in sorted({1 << (size - 1).bit_length(), *(-(-size // tile) * tile for tile in TILES)} - {size}):
        total = powers.sum(axis, keepdims=True) + (padded - size) * np.exp(-top)
        words = f"dimension {axis} of {size} were padded with 0, not with -inf, to {padded} or more"
        yield _hypothesis(wrong, words, {0: powers / total})


def _without_shift(wrong: WrongCall) -> Iterator[Hypothesis]:
    """Yield the hypothesis that exponentials overflow or are all 0, since the maximum was not subtracted first.

    It is tried in float32 and in the dtype of the input.
    """
    case, name = wrong.case, wrong.case.descriptor.name
    dim = case.attributes.get("dim")
    if name not in ("softmax", "log_softmax", "logsumexp") or not wrong.off or wrong.inputs[0].dtype.itemsize > 4:
        return
    for kind in dict.fromkeys((np.dtype(np.float32), wrong.inputs[0].dtype)):
        powers = np.exp(widen(wrong.inputs[0]).astype(kind))
        total = powers.sum(axis=None if dim == () else dim, keepdims=True, dtype=kind)
        naive = widen(np.log(total) if name == "logsumexp" else powers / total)
        value = np.log(naive) if name == "log_softmax" else naive
        words = f"the maximum were not subtracted before exp in {kind.name}"
        if name == "logsumexp" and np.isposinf(value).any():  # the sum itself overflows as well
            words += f", or {wrong.expected[0].name} were the exponential of it"
        yield _hypothesis(wrong, words, {0: np.reshape(value, wrong.outputs[0].shape)})


def _scans_in_blocks(wrong: WrongCall) -> Iterator[Hypothesis]:
    """Yield the hypothesis that a scan starts anew in blocks whose size is the index of the first wrong element."""
    start = {"cumsum": np.subtract, "cumprod": np.divide}.get(wrong.case.descriptor.name)
    single = _one_output(wrong)
    if start is None or single is None or not single[2].ndim or not wrong.expected[single[0]].dtype.is_inexact:
        return
    axis = int(wrong.case.attributes["dim"])
    actual, right = np.moveaxis(single[1], axis, -1), np.moveaxis(single[2], axis, -1)
    least = 16 * _step(wrong.expected[single[0]].dtype) * np.abs(right[np.isfinite(right)]).max(initial=0)
    is_wrong = ~np.isclose(actual, right, rtol=0.0, atol=least, equal_nan=True)
    if (size := int(np.argmax(is_wrong.any(axis=tuple(range(right.ndim - 1)))))) > 1:
        value = right.copy()
        for at in range(size, right.shape[-1], size):
            value[..., at : at + size] = start(value[..., at : at + size], right[..., at - 1 : at])
        words = f"every {size} elements along dimension {axis} started anew, without the elements before them"
        yield _hypothesis(wrong, words, {single[0]: np.moveaxis(value, -1, axis)})


def _last_of_equal(wrong: WrongCall) -> Iterator[Hypothesis]:
    """Yield the hypothesis that an index of an extreme value is that of the last of equal elements."""
    case, x = wrong.case, _as_real(wrong.inputs[0]) if wrong.inputs else None
    if case.descriptor.name in ("argmax", "argmin") and x is not None and x.ndim and wrong.off:
        axis = case.attributes["dim"]
        values = np.flip(x if case.descriptor.name == "argmax" else -x, axis)
        last = (x.size if axis is None else x.shape[axis]) - 1 - np.argmax(values, axis)
        words = "the index were that of the last of equal elements, not of the first"
        yield _hypothesis(wrong, words, {0: np.reshape(last, wrong.outputs[0].shape)})


def _wrapped(wrong: WrongCall) -> Iterator[Hypothesis]:
    """Yield hypotheses that integers were computed in fewer bits and wrapped."""
    for bits_kept in (32, 16):
        right = {at: np.asarray(wrong.expected[at].value) for at in wrong.off}
        if right and all(each.dtype.kind in "iu" and each.dtype.itemsize * 8 > bits_kept for each in right.values()):
            values = {
                at: each.astype(f"{each.dtype.kind}{bits_kept // 8}").astype(each.dtype) for at, each in right.items()
            }
            yield _hypothesis(wrong, f"integers were computed in {bits_kept} bits, which wrap", values)


def _rows_without_keys(wrong: WrongCall) -> Iterator[Hypothesis]:
    """Yield the hypothesis that only rows of attention without a visible key are wrong; their right result is 0."""
    if wrong.case.descriptor.category != "attention" or (single := _one_output(wrong)) is None:
        return
    index, actual, right = single
    empty = np.broadcast_to((right == 0).all(axis=-1, keepdims=True), right.shape)
    if empty.any() and bool(right.any()):
        result = "0 / 0" if np.isnan(actual[empty & (actual != 0)]).all() else "that of masked keys, as if it saw them"
        words = f"the result of a query that sees no key were {result}; it is 0"
        yield _hypothesis(wrong, words, {index: np.where(empty, actual, right)})


def _spread_nan(wrong: WrongCall) -> Iterator[Hypothesis]:
    """Yield hypotheses that NaN or infinity in elements to be ignored turned results to NaN."""
    finite = [array.dtype.kind in "biuc" or np.isfinite(widen(array)) for array in wrong.inputs]
    bad = [at for at, each in enumerate(finite) if not np.all(each)]
    lost = {at: np.not_equal(each, each) for at, each in enumerate(wrong.outputs) if at in wrong.off}
    shown = bad and any(map(np.any, lost.values()))
    for chosen in dict.fromkeys([tuple(bad), *((at,) for at in bad)]) if shown else ():
        inputs = [
            np.where(finite[at], array, array.dtype.type(0)) if at in chosen else array
            for at, array in enumerate(wrong.inputs)
        ]
        values = {at: np.where(each, np.nan, wrong.expected[at].value) for at, each in lost.items()}
        names = " and ".join(wrong.case.inputs[at].name for at in chosen)
        words = f"NaN and infinity in elements of {names} that do not count were multiplied by 0, which is NaN"
        yield replace(_hypothesis(wrong, words, values), inputs=inputs, unless_seen=True)


# Functions that reshape a tensor to rows with one mean and one variance each, by operator.
_NORMALISED: Mapping[str, Callable[[TestCase, Array], Array]] = {
    "layer_norm": lambda case, x: x.reshape(-1, math.prod(case.attributes["normalized_shape"])),
    "rms_norm": lambda case, x: x.reshape(-1, math.prod(case.attributes["normalized_shape"])),
    "group_norm": lambda case, x: x.reshape(x.shape[0] * case.attributes["num_groups"], -1),
    "instance_norm": lambda case, x: x.reshape(x.shape[0] * x.shape[1], -1),  # noqa: ARG005 - one signature
    "batch_norm": lambda case, x: np.moveaxis(x, 1, 0).reshape(x.shape[1], -1),  # noqa: ARG005
}
# Largest error of a variance, in units of the mean of squares: rounding to float32, and that of two sums.
_CANCELLED = 32 * 2.0**-24


def _other_statistics(wrong: WrongCall) -> Iterator[Hypothesis]:
    """Yield hypotheses about wrong statistics of a normalisation or of var and std.

    A variance is a difference of squares, which cancel, or divided by n - 1; no mean was subtracted; or eps was added
    to the root of the variance.
    """
    case, name = wrong.case, wrong.case.descriptor.name
    single, x = _one_output(wrong), _as_real(wrong.inputs[0]) if wrong.inputs else None
    has_mean = not case.attributes.get("training", True) and any(each.name == "running_mean" for each in case.inputs)
    if single is None or single[0] or x is None or not x.size or case.inputs[0].spec.dtype.bits > 32 or has_mean:
        return
    _, actual, right = single
    if name in ("var", "std"):
        axes = tuple(each % x.ndim for each in case.attributes["dim"] or range(x.ndim))
        count = math.prod(x.shape[each] for each in axes)
        square, variance = np.mean(x * x, axes).reshape(-1), np.var(x, axes).reshape(-1)
        implied, share = (actual if name == "var" else actual * actual).reshape(-1), np.divide(count - 1, count)
        unbiased = variance * (share if case.attributes["correction"] else 1 / share)
        implied, least, values = implied * ((count - case.attributes["correction"]) / count), 0.0, actual
    elif name in _NORMALISED and case.attributes["eps"]:
        as_rows, eps = partial(_NORMALISED[name], case), case.attributes["eps"]
        bias = {each.name: array for each, array in zip(case.inputs, wrong.inputs, strict=True)}.get("bias")
        shape = x.shape if name == "layer_norm" else (1, -1, *[1] * (x.ndim - 2))
        offset = np.zeros(1) if bias is None else widen(bias) if name == "layer_norm" else widen(bias).reshape(shape)
        rows, part, expected_part = as_rows(x), as_rows(actual - offset), as_rows(right - offset)
        mean, square, variance = rows.mean(axis=1), np.mean(rows * rows, axis=1), np.var(rows, axis=1)

        def unrolled(values: Array) -> Array:
            """Return the rows in the shape of the tensor, with the bias."""
            if name == "batch_norm":
                values = np.moveaxis(values.reshape(x.shape[1], x.shape[0], *x.shape[2:]), 0, 1)
            return np.asarray(values.reshape(x.shape) + offset)

        scales = square if name == "rms_norm" else variance
        of_outside = expected_part * (np.sqrt(scales + eps) / (np.sqrt(scales) + eps))[:, None]
        yield _hypothesis(wrong, "eps were added to the root, not below it", {0: unrolled(of_outside)})
        if name == "rms_norm":
            return
        with_mean = expected_part * rows / (rows - mean[:, None])
        of_squares = np.sqrt((variance + eps) / (square + eps))[:, None]
        for words, factor in (("", of_squares), (", except in the variance", np.ones(1))):
            yield _hypothesis(wrong, f"the mean were not subtracted{words}", {0: unrolled(with_mean * factor)})
        ratio = np.sum(part * expected_part, axis=1) / np.sum(expected_part * expected_part, axis=1)
        implied, least = (variance + eps) / (ratio * ratio) - eps, eps
        values = unrolled(np.where(np.isnan(part), np.nan, expected_part * ratio[:, None]))
        count = rows.shape[1]
        unbiased = variance * np.divide(count, count - 1)  # 0 · inf, which is NaN, for one element
        of_unbiased = expected_part * np.sqrt((variance + eps) / (unbiased + eps))[:, None]
        yield _hypothesis(wrong, "the variance were divided by n - 1 not n", {0: unrolled(of_unbiased)})
    else:
        return
    error = np.where(np.isnan(implied), variance + least, np.abs(implied - variance))
    is_unbiased = np.nansum(np.abs(implied - unbiased)) < np.nansum(np.abs(implied - variance)) / 4
    if not is_unbiased and bool((error <= _CANCELLED * square).all()) and bool((square > 4 * variance).any()):
        words = "the variance were the mean of squares minus the square of the mean (E[x²] - E[x]²), which cancel"
        yield _hypothesis(wrong, words, {0: values})


# A last step that is one too many or, as its inverse, missing.
_LAST_STEPS: Mapping[str, Callable[[Array], Array]] = {
    "squared": np.square,
    "the square root of it": np.sqrt,
    "the exponential of it": np.exp,
    "the logarithm of it": np.log,
    "the reciprocal of it": np.reciprocal,
    "the size of it, without a sign": np.abs,
    "subtracted from 1": lambda right: 1 - right,
    "0 where negative, as behind a relu": lambda right: np.maximum(right, 0),
    "cut to whole numbers": np.trunc,
    "rounded to whole numbers": np.rint,
}


def other_last_steps(wrong: WrongCall) -> Iterator[Hypothesis]:
    """Yield hypotheses that an output is a function of the right one: its square, if a root is missing."""
    if (single := _one_output(wrong)) is not None and wrong.expected[single[0]].dtype.is_inexact:
        name = wrong.expected[single[0]].name
        # Results that have underflowed are near to 0, but not cut to whole numbers.
        is_integral = bool((np.rint(single[1]) == single[1]).all())
        for how, step in _LAST_STEPS.items():
            if is_integral or "whole" not in how:
                yield _hypothesis(wrong, f"{name} were {how}", {single[0]: step(single[2])})


_Hypotheses = tuple[Callable[[WrongCall], Iterator[Hypothesis]], ...]
# Hypotheses for which one wrong element is enough, since the inputs show them.
SURE_RELATIONS: _Hypotheses = (_rows_without_keys, _spread_nan, _wrapped, _without_shift)
RELATIONS: _Hypotheses = (_lost_ends, _partial_sums, _scans_in_blocks, _last_of_equal, _other_statistics)
