"""What the fills draw: every fill into every type and layout, distributions, domains, refusals."""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import subprocess
import sys
from collections.abc import Mapping
from itertools import product
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from texts import refusal

from optest.errors import UnknownName, UsageError
from optest.generators import FILLS, RandomTensorGenerator, check_fill
from optest.numerics import bits, numpy_dtype, round_to, widen
from optest.spec import (
    DTYPES,
    Argument,
    DType,
    Fault,
    Fill,
    Interval,
    Kind,
    OperatorDescriptor,
    Reason,
    Rule,
    RuleClass,
    TensorSpec,
    TestCase,
    dtype,
)

DRAWN = ("randn", "uniform", "randint", "integer-exact", "special")
NEEDS: dict[str, dict[str, Any]] = {"full": {"value": 1}, "data": {"values": [[1, 0, 1], [1, 1, 0]]}}
PLAIN = OperatorDescriptor(name="op", signature="a, b? -> out")


def case_of(*specs: TensorSpec, fill: Fill, descriptor: OperatorDescriptor = PLAIN, **fields: Any) -> TestCase:
    names = [descriptor.tensors.input_name(index) for index in range(len(specs))]
    arguments = [
        Argument(name=name, path=f"input{index}", spec=spec, fill=fill)
        for index, (name, spec) in enumerate(zip(names, specs, strict=True))
    ]
    return TestCase(descriptor=descriptor, inputs=tuple(arguments), **fields)


def generated(spec: TensorSpec, kind: str, parameters: Mapping[str, Any] | None = None, **more: Any) -> np.ndarray:
    case = case_of(spec, fill=Fill(kind=kind, parameters=parameters or {}), **more)
    (array,), expected = RandomTensorGenerator().generate(case)
    assert expected is None
    return array


def draw(
    name: str,
    kind: str,
    parameters: Mapping[str, Any] | None = None,
    *,
    shape: tuple[int, ...] = (20_000,),
    **more: Any,
) -> np.ndarray:
    return generated(TensorSpec(dtype=dtype(name), shape=shape), kind, parameters, **more)


def matrix(*strides: int, offset: int = 0) -> TensorSpec:
    return TensorSpec(dtype=dtype("float32"), shape=(2, 3), strides=strides, offset=offset)


def limited(interval: Interval) -> OperatorDescriptor:
    return dataclasses.replace(PLAIN, domain={"a": interval})


def test_golden_draws() -> None:
    """A digest over every drawn fill in every type; it never changes."""
    digest = hashlib.sha256()
    for entry in DTYPES:
        for kind in DRAWN:
            array = draw(entry.name, kind, shape=(1_000,), seed=5)
            digest.update(bits(array).tobytes())
    assert digest.hexdigest() == GOLDEN_DRAWS


@pytest.mark.parametrize("kind", [kind for kind in FILLS if kind not in ("file", "opinfo")])
def test_every_fill_into_every_type(kind: str) -> None:
    for entry in DTYPES:
        array = draw(entry.name, kind, NEEDS.get(kind), shape=(2, 3))
        assert (array.dtype, array.shape, array.flags.writeable) == (numpy_dtype(entry), (2, 3), True)
        if kind != "special":
            assert np.isfinite(widen(array).astype(complex)).all()


LAYOUTS = {
    "dense": ((4, 5), None, 0),
    "offset": ((4, 5), None, 3),
    "transposed": ((4, 5), (1, 4), 0),
    "broadcast": ((4, 5), (0, 1), 0),
    "one element": ((4, 5), (0, 0), 2),
    "backwards": ((4, 5), (-5, -1), 19),
    "overlapping": ((4, 5), (1, 1), 0),
    "gaps": ((4, 5), (20, 3), 1),
    "scalar": ((), None, 0),
    "empty": ((4, 0), None, 0),
    "empty strided": ((4, 0), (3, 1), 2),
}


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("name", ["float32", "bfloat16", "int4", "complex64"])
def test_every_fill_into_every_layout(name: str, layout: str) -> None:
    """The storage is drawn as if it were dense, and viewed."""
    shape, strides, offset = LAYOUTS[layout]
    spec = TensorSpec(dtype=dtype(name), shape=shape, strides=strides, offset=offset)
    for kind in set(FILLS) - {"file", "data", "eye", "opinfo"}:
        array = generated(spec, kind, NEEDS.get(kind))
        assert (array.dtype, array.shape) == (numpy_dtype(spec.dtype), shape), kind
        if strides and array.size:
            assert array.strides == tuple(stride * array.itemsize for stride in strides), kind
            for axis in (axis for axis, stride in enumerate(strides) if stride == 0):
                assert (bits(array) == bits(array.take([0], axis=axis))).all(), kind


def test_a_draw_depends_on_key_path_and_index_alone() -> None:
    short, long = (TensorSpec(dtype=dtype("float32"), shape=(size,)) for size in (50, 70_000))
    generate = RandomTensorGenerator().generate
    fill = Fill(kind="randn")
    case = case_of(short, short, fill=fill)
    (a, b), _ = generate(case)
    assert not (a == b).any()
    (again_b,), _ = generate(_with_key(dataclasses.replace(case, inputs=(case.inputs[1],)), case.key))
    assert (b == again_b).all()
    (other_a, _), _ = generate(dataclasses.replace(case, seed=1))
    assert not (a == other_a).any()
    (wide,), _ = generate(_with_key(case_of(long, fill=fill), case.key))
    assert (wide[:50] == a).all()


def _with_key(case: TestCase, key: str) -> TestCase:
    """A case whose key is given: inputs are a function of the key, whatever else the case says."""
    object.__setattr__(case, "_key", key)
    return case


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "int8"])
def test_slices_of_stated_signs_take_turns(dtype: str) -> None:
    values = draw(dtype, "randn", {"signs": "-+0"}, shape=(6, 50)).astype(float)
    assert (values[::3] < 0).all()
    assert (values[1::3] >= 0).all()
    assert all((row < 0).any() and (row > 0).any() for row in values[2::3])
    planes = draw(dtype, "randn", {"signs": "-+", "dims": 2}, shape=(2, 5, 5)).astype(float)
    assert (planes[0] < 0).all()
    assert (planes[1] >= 0).all()


def test_randn_with_mean_and_std() -> None:
    values = draw("float32", "randn", {"mean": 100, "std": 0.5})
    assert abs(values.astype(float).mean() - 100) < 0.02
    assert abs(values.astype(float).std() - 0.5) < 0.02
    whole = draw("int8", "randn", {"mean": 10, "std": 20}).astype(float)
    assert abs(whole.mean() - 10) < 1
    assert abs(whole.std() - 20) < 1
    folded = draw("uint8", "randn", {"std": 20}).astype(float)
    assert folded.std() > 10
    assert np.isfinite(widen(draw("float16", "randn", {"std": 1e6}))).all()


@pytest.mark.parametrize("name", ["float64", "float32", "float16", "bfloat16", "float8_e4m3fn"])
def test_uniform_is_even(name: str) -> None:
    values = widen(draw(name, "uniform"))
    assert values.min() >= -1
    assert values.max() <= 1
    counts, _ = np.histogram(values, bins=8, range=(-1.0001, 1.0001)) if dtype(name).bits > 8 else ([2500] * 8, None)
    assert np.abs(np.array(counts) - 2500).max() < 5 * np.sqrt(2500)
    assert abs(values.mean()) < 5 * 0.58 / np.sqrt(values.size)
    shifted = widen(draw(name, "uniform", {"low": 4, "high": 8}))
    assert shifted.min() >= 4
    assert shifted.max() <= 8
    assert abs(shifted.mean() - 6) < 0.1


INTEGERS = [entry for entry in DTYPES if entry.is_integer]


@pytest.mark.parametrize("entry", INTEGERS, ids=str)
def test_randint_is_half_open_and_even(entry: DType) -> None:
    values = widen(draw(entry.name, "randint", {"low": 1, "high": 7})).astype(int)
    assert np.unique(values).tolist() == [1, 2, 3, 4, 5, 6]
    counts = np.bincount(values)[1:]
    assert np.abs(counts - values.size / 6).max() < 5 * np.sqrt(values.size / 6)
    assert widen(draw(entry.name, "randint", {"low": -3, "high": 2})).min() == (0 if entry.kind is Kind.UINT else -3)
    assert widen(draw(entry.name, "randint", {"high": 3})).max() == 2


@pytest.mark.parametrize(
    ("name", "low", "high"),
    [
        ("uint64", 0, 2**64),
        ("uint64", 2**63, 2**64),
        ("uint64", 0, 3 * 2**62),
        ("uint64", 2**40, 2**40 + 2**33),
        ("int64", -(2**63), 2**63),
    ],
)
def test_wide_ranges_of_64_bit_integers(name: str, low: int, high: int) -> None:
    values = [int(each) for each in draw(name, "randint", {"low": low, "high": high})]
    quarter = (high - low) // 4
    counts = np.bincount([(each - low) // quarter for each in values], minlength=4)
    assert counts.size == 4
    assert np.abs(counts - 5_000).max() < 5 * np.sqrt(5_000)


@pytest.mark.parametrize("entry", [each for each in DTYPES if each.is_inexact], ids=str)
def test_randint_into_floats_is_whole(entry: DType) -> None:
    values = widen(draw(entry.name, "randint")).astype(complex)
    assert set(values.real) == set(range(-8, 8))
    wide = widen(draw(entry.name, "randint", {"low": -(10**6), "high": 10**6})).astype(complex).real
    assert (wide == np.rint(wide)).all()
    assert np.isfinite(wide).all()


ACCUMULATE = OperatorDescriptor(name="sum", signature="a, b? -> out", rule=Rule(kind=RuleClass.ACCUMULATE))


@pytest.mark.parametrize("name", ["float32", "bfloat16", "float16", "float8_e4m3fn", "float8_e5m2", "int8", "float64"])
@pytest.mark.parametrize("terms", [1, 7, 64, 1000, 65_536])
@pytest.mark.parametrize("operands", [1, 2, 3])
def test_integer_exact_sums_are_exact_in_any_order(name: str, terms: int, operands: int) -> None:
    parameters = {"terms": terms, "operands": operands}
    values = widen(draw(name, "integer-exact", parameters)).astype(float)
    assert (values != 0).all()
    assert (values == np.rint(values)).all()
    assert abs(np.mean(np.sign(values))) < 0.05
    largest = np.abs(values).max()
    assert terms * largest**operands <= (2**53 if name == "float64" else 2**31 if name == "int8" else 2**24)
    if terms == 1 and operands == 1:
        assert largest >= 8


def test_integer_exact_fits_the_sum() -> None:
    with refusal(Fault, "generators.terms_is_too_many") as caught:
        draw("float32", "integer-exact", {"terms": 2**24 + 1}, shape=(2,))
    assert caught.value.reason is Reason.BAD_CASE
    assert set(np.abs(draw("float32", "integer-exact", {"terms": 2**24}, shape=(9,)))) == {1.0}
    # float16 sums stay below 65504 although float32 would accumulate more exactly.
    out = (TensorSpec(dtype=dtype("float16"), shape=()),)
    values = draw("float16", "integer-exact", {"terms": 64}, outputs=out).astype(float)
    assert 65 * np.abs(values).max() ** 2 <= 65504
    wide = (TensorSpec(dtype=dtype("float32"), shape=()),)
    assert np.abs(draw("float16", "integer-exact", {"terms": 64}, outputs=wide).astype(float)).max() > 400
    with pytest.raises(Fault, match="no integer"):
        draw("int32", "uniform", {"low": 0.25, "high": 0.75})
    left = draw("float16", "integer-exact", {"terms": 512}, shape=(512,), seed=1).astype(np.float32)
    right = draw("float16", "integer-exact", {"terms": 512}, shape=(512,), seed=2).astype(np.float32)
    products = left * right
    rng = np.random.default_rng(0)
    sums = {float(np.cumsum(rng.permutation(products))[-1]) for _ in range(20)}
    assert len(sums) == 1
    assert abs(sums.pop()) <= 65504


def test_integers_of_sums_wrap() -> None:
    """A kernel that saturates, loses the sign or reads half of the bits gives other results."""
    for name, kind in (("int32", "randn"), ("int32", "uniform"), ("uint8", "randn"), ("int16", "randint")):
        spec = TensorSpec(dtype=dtype(name), shape=(64, 64))
        (a, b), _ = RandomTensorGenerator().generate(case_of(spec, spec, fill=Fill(kind=kind), descriptor=ACCUMULATE))
        product = a.astype(object) @ b.astype(object)
        assert max(abs(each) for each in product.flat) > spec.dtype.max_int


def test_constants() -> None:
    assert draw("bfloat16", "ones", shape=(3,)).tolist() == [1, 1, 1]
    assert draw("int4", "zeros", shape=(2,)).tolist() == [0, 0]
    assert draw("float16", "full", {"value": 0.1}, shape=(1,))[0] == np.float16(0.1)
    assert np.isnan(draw("float32", "full", {"value": "nan"}, shape=(1,))).all()
    assert draw("float32", "full", {"value": float("-inf")}, shape=(1,))[0] == -np.inf
    assert draw("complex64", "full", {"value": "1+2j"}, shape=(1,))[0] == 1 + 2j
    assert draw("uint64", "full", {"value": 2**64 - 1}, shape=(1,))[0] == 2**64 - 1
    negative, positive = (draw("float32", "full", {"value": zero}, shape=(1,)) for zero in (-0.0, 0.0))
    assert np.signbit([negative[0], positive[0]]).tolist() == [True, False]


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("int8", 300, "from -128 to 127"),
        ("uint8", -1, "from 0 to 255"),
        ("int32", 0.5, "an integer"),
        ("int32", "nan", "from -"),
        ("float32", "1+2j", "expected a real number"),
    ],
)
def test_full_refuses_what_the_type_does_not_hold(name: str, value: Any, words: str) -> None:
    with pytest.raises(Fault, match=words) as caught:
        draw(name, "full", {"value": value}, shape=(2,))
    assert caught.value.reason is Reason.BAD_CASE


def test_eye_is_the_identity_of_a_matrix() -> None:
    assert draw("int8", "eye", shape=(2, 3)).tolist() == [[1, 0, 0], [0, 1, 0]]
    assert draw("bfloat16", "eye", shape=(3, 2)).astype(float).tolist() == [[1, 0], [0, 1], [0, 0]]
    array = generated(matrix(1, 2, offset=1), "eye")
    assert (array.tolist(), array.strides) == ([[1, 0, 0], [0, 1, 0]], (4, 8))
    with refusal(Fault, "generators.elements_that_share_memory"):
        generated(matrix(0, 1), "eye")
    with refusal(Fault, "generators.shape_which_is_no") as caught:
        draw("float32", "eye", shape=(2, 2, 2))
    assert caught.value.reason is Reason.BAD_CASE


def test_arange_starts_again_before_it_is_inexact() -> None:
    assert draw("float32", "arange", {"start": 2, "step": 3}, shape=(2, 2)).tolist() == [[2, 5], [8, 11]]
    eight = draw("float8_e4m3fn", "arange", shape=(40,)).astype(float)
    assert eight.tolist() == [*range(17), *range(17), *range(6)]
    small = draw("int8", "arange", {"start": 126}, shape=(4,))
    assert small.tolist() == [126, 127, 126, 127]
    assert draw("int8", "arange", {"start": -127, "step": -1}, shape=(3,)).tolist() == [-127, -128, -127]
    assert draw("bool", "arange", shape=(4,)).tolist() == [False, True, False, True]
    assert draw("int64", "arange", {"start": 2**62}, shape=(3,)).tolist() == [2**62, 2**62 + 1, 2**62 + 2]
    assert draw("uint64", "arange", {"start": 2**63}, shape=(2,)).tolist() == [2**63, 2**63 + 1]
    assert draw("float64", "arange", {"step": 0.25}, shape=(3,)).tolist() == [0, 0.25, 0.5]
    assert draw("float32", "arange", {"step": 0}, shape=(3,)).tolist() == [0, 0, 0]


@pytest.mark.parametrize("entry", [each for each in DTYPES if each.is_float], ids=str)
def test_special_has_what_the_type_has(entry: DType) -> None:
    values = widen(draw(entry.name, "special"))
    smallest = 2.0**entry.emin * 2.0 ** (1 - entry.precision)
    wanted = [0.0, smallest, 2.0**entry.emin - smallest, 2.0**entry.emin, entry.max_finite, 1.0, 2.0]
    for each in wanted:
        assert (values == each).any(), each
        assert (values == -each).any(), -each
    assert np.signbit(values[values == 0]).any()
    assert not np.signbit(values[values == 0]).all()
    assert np.isnan(values).any()
    assert np.isposinf(values).any() == np.isneginf(values).any() == entry.has_infinity


def test_special_values_by_rate() -> None:
    every = draw("float16", "special", {"rate": 1}, shape=(28,))
    assert np.unique(every.view(np.uint16)).size == 28
    # among them a NaN that rounding as a number makes a zero
    stored = draw("float32", "special", {"rate": 1}, shape=(30,)).view(np.uint32)
    assert 0x7FFFFFFF in stored
    assert ((stored + 0x7FFF + (stored >> 16 & 1)).astype(np.uint32) >> 16 & 0x7FFF == 0)[stored == 0x7FFFFFFF].all()
    mixed = draw("float64", "special", shape=(50_000,))
    assert abs(np.mean(~np.isfinite(mixed)) - 0.25 * 4 / 28) < 0.01
    never = draw("float32", "special", {"rate": 0, "base": "uniform"})
    assert np.abs(never).max() <= 1
    always = draw("float32", "special", {"rate": 1})
    assert np.unique(always[np.isfinite(always)]).size < 30


@pytest.mark.parametrize("entry", INTEGERS, ids=str)
def test_special_integers(entry: DType) -> None:
    values = {int(each) for each in widen(draw(entry.name, "special"))}
    assert {entry.min_int, entry.max_int, 0, 1, 2, 4} <= values
    legal = draw(entry.name, "special", {"rate": 1}, descriptor=limited(Interval(low=1, high=5)))
    assert {int(each) for each in widen(legal)} == {1, 2, 4, 5}


DOMAINS = {
    "positive": Interval(low=0.0),
    "log": Interval(low=1e-3, high=100.0),
    "asin": Interval(low=-1.0, high=1.0),
    "acosh": Interval(low=1.0),
    "divisor": Interval(low=-8.0, high=8.0, avoid=0.25),
    "reciprocal": Interval(avoid=0.5),
    "far": Interval(low=84.0, high=92.0),
    "negative": Interval(high=-2.0),
    "narrow": Interval(low=0.25, high=0.3125),
    "above only": Interval(low=-0.1, high=4.0, avoid=0.5),
}


def legal(values: np.ndarray, interval: Interval) -> np.ndarray:
    return (values >= interval.low) & (values <= interval.high) & (np.abs(values.astype(np.float64)) >= interval.avoid)


@pytest.mark.parametrize("name", ["float64", "float32", "float16", "bfloat16", "float8_e4m3fn", "complex64"])
def test_floats_keep_to_their_domain(name: str) -> None:
    for kind, (domain, interval) in product(("randn", "uniform"), DOMAINS.items()):
        values = widen(draw(name, kind, descriptor=limited(interval)))
        values = values.view(np.float64) if np.iscomplexobj(values) else values
        assert legal(values, interval).all(), (kind, domain)
        if dtype(name).bits >= 16:
            _, counts = np.unique(values, return_counts=True)
            few_to_choose_from = domain in ("narrow", "far")
            most = values.size * (0.3 if few_to_choose_from else 0.05)
            assert counts.max() < most, (kind, domain, "values pile up")


@pytest.mark.parametrize("name", ["int8", "int32", "int64", "int4", "uint8", "uint64"])
def test_integers_keep_to_their_domain(name: str) -> None:
    domains = ("positive", "divisor", "reciprocal", "far", "negative", "above only")
    for kind, domain in product(("randn", "uniform", "randint", "integer-exact"), domains):
        is_exact, interval = kind == "integer-exact", DOMAINS[domain]
        if is_exact and domain == "far":
            continue  # exact sums matter more than the size; only signs are kept
        if (domain == "negative" and name.startswith("u")) or (domain == "far" and name == "int4"):
            with pytest.raises(Fault, match="contains no"):
                draw(name, kind, descriptor=limited(interval))
            continue
        values = widen(draw(name, kind, descriptor=limited(interval)))
        if is_exact:
            assert interval.low < 0 or values.min() > 0
            assert interval.high > 0 or values.max() < 0
        else:
            assert legal(values, interval).all(), (kind, domain)
            assert np.unique(values).size > 1, (kind, domain)


@given(
    low=st.floats(-1e4, 1e4),
    width=st.floats(0, 1e4),
    avoid=st.floats(0, 10),
    std=st.floats(1e-3, 1e3),
    seed=st.integers(0, 9),
)
@settings(max_examples=80, deadline=None)
def test_any_domain_is_kept(low: float, width: float, avoid: float, std: float, seed: int) -> None:
    interval = Interval(low=low, high=low + width, avoid=avoid)
    for name in ("float32", "bfloat16", "int16"):
        probes = np.array([low, low + width, avoid, -avoid, np.ceil(low), np.ceil(max(low, avoid))])
        held = legal(widen(round_to(np.clip(np.rint(probes), -32768, 32767), dtype(name))).astype(float), interval)
        with contextlib.nullcontext() if held.any() else contextlib.suppress(Fault):
            values = draw(name, "randn", {"std": std}, shape=(64,), descriptor=limited(interval), seed=seed)
            assert legal(widen(values).astype(float), interval).all()


def test_legal_values_are_not_touched_by_a_domain() -> None:
    """Only what lies outside is mirrored; the rest is the plain draw."""
    free = _with_key(case_of(TensorSpec(dtype=dtype("float64"), shape=(5_000,)), fill=Fill(kind="randn")), "k1:1")
    held = _with_key(dataclasses.replace(free, descriptor=limited(Interval(low=-1.0))), "k1:1")
    (plain,), _ = RandomTensorGenerator().generate(free)
    (kept,), _ = RandomTensorGenerator().generate(held)
    inside = plain >= -1
    assert (plain[inside] == kept[inside]).all()
    np.testing.assert_allclose(kept[~inside], -2 - plain[~inside], rtol=1e-12)


@pytest.mark.parametrize(
    ("fill", "words"),
    [
        (Fill(kind="randm"), "did you mean 'randn'"),
        (Fill(kind="normal"), "did you mean 'randn'"),
        (Fill(kind="randn", parameters={"sdt": 1}), "did you mean 'std'"),
        (Fill(kind="randn", parameters={"std": 0}), "std of generator randn is 0, expected a finite"),
        (Fill(kind="randn", parameters={"mean": "x"}), "expected a finite number"),
        (Fill(kind="uniform", parameters={"low": float("nan")}), "expected a finite number"),
        (Fill(kind="uniform", parameters={"low": True}), "expected a finite number"),
        (Fill(kind="uniform", parameters={"low": 3}), "expected a number below high, which is 1"),
        (Fill(kind="randint", parameters={"low": 3, "high": 3}), "expected a number below high"),
        (Fill(kind="randint", parameters={"high": 0}), "expected a number below high"),
        (Fill(kind="randint", parameters={"low": 3}), "no high"),
        (Fill(kind="randint", parameters={"low": 0, "high": 2.5}), "an integer"),
        (Fill(kind="integer-exact", parameters={"terms": -1}), "0 or more"),
        (Fill(kind="integer-exact", parameters={"operands": 0}), "1 or more"),
        (Fill(kind="full"), "needs the parameter value"),
        (Fill(kind="full", parameters={"value": "one"}), "expected a number"),
        (Fill(kind="special", parameters={"rate": 2}), "from 0 to 1"),
        (Fill(kind="special", parameters={"base": "ones"}), "one of randn"),
        (Fill(kind="special", parameters={"base": [1]}), "one of randn"),
        (Fill(kind="data"), "needs the parameter values"),
        (Fill(kind="data", parameters={"values": {"a": 1}}), "a list"),
        (Fill(kind="file"), "needs the parameter path"),
        (Fill(kind="file", parameters={"path": ""}), "a string"),
        (Fill(kind="ones", parameters={"value": 1}), "unknown parameter"),
    ],
    ids=str,
)
def test_what_cannot_be_drawn_is_refused(fill: Fill, words: str) -> None:
    with pytest.raises(UsageError, match=words):
        check_fill(fill)
    with pytest.raises(UsageError, match=words):
        draw("float32", fill.kind, fill.parameters, shape=(2,))


def test_names_of_fills() -> None:
    with pytest.raises(UnknownName):
        check_fill(Fill(kind="gauss"))
    for kind in set(FILLS) - {"full", "data", "file", "opinfo"}:
        check_fill(Fill(kind=kind))
    code = "import sys; from optest.generators import check_fill; sys.exit('numpy' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_data() -> None:
    assert draw("float16", "data", {"values": [[0.1, "nan"], [1, "-inf"]]}, shape=(2, 2))[1, 1] == -np.inf
    assert draw("int64", "data", {"values": [2**63 - 1, 2**53 + 1]}, shape=(2,)).tolist() == [2**63 - 1, 2**53 + 1]
    assert draw("float32", "data", {"values": 5}, shape=()) == 5
    assert draw("complex128", "data", {"values": ["1+2j", 3]}, shape=(2,)).tolist() == [1 + 2j, 3]
    assert draw("float32", "data", {"values": []}, shape=(0,)).size == 0
    for values, words in (
        ([1, 2], "have the shape 2, expected 3"),
        ([[1, 2, 3]], "have the shape 1x3"),
        ([[1, 2], [3]], "rows of different shapes"),
        ([[1, None, 2]], "contain None"),
    ):
        with pytest.raises(Fault, match=words) as caught:
            draw("float32", "data", {"values": values}, shape=(3,))
        assert caught.value.reason is Reason.BAD_CASE
    with pytest.raises(Fault, match="from -128"):
        draw("int8", "data", {"values": [200]}, shape=(1,))


def test_data_in_layouts() -> None:
    values = [[1, 2, 3], [4, 5, 6]]
    array = generated(matrix(-1, 4, offset=1), "data", {"values": values})
    assert (array.tolist(), array.strides) == (values, (-4, 16))
    repeated = [[1, 2, 3], [1, 2, 3]]
    assert generated(matrix(0, 1), "data", {"values": repeated}).tolist() == repeated
    with pytest.raises(Fault, match="share memory"):
        generated(matrix(0, 1), "data", {"values": values})


GOLDEN_DRAWS = "791b752abf4b31f623baaf7a6a452418375ba385fea1774dae68610660f53052"


@pytest.mark.parametrize("name", ["float64", "float32", "bfloat16", "float16", "float8_e4m3fn"])
def test_special_values_leave_sums_something_to_tell(name: str) -> None:
    """About one in what a result adds up, and none so large that a partial sum of products overflows."""
    product_case: dict[str, Any] = {
        "shape": (64, 1000),
        "outputs": (TensorSpec(dtype=dtype(name), shape=(64, 16)),),
        "descriptor": dataclasses.replace(ACCUMULATE, name="product", signature="x -> out"),
    }
    values = widen(draw(name, "special", **product_case))
    odd = ~np.isfinite(values)
    assert 0 < odd.sum() < values.size / 200
    top = 2.0**1023 if name == "float64" else 2.0**127
    assert np.square(values[~odd]).max() * values.size < top
    if name == "float32":  # an explicit rate is kept
        assert 0.05 < (~np.isfinite(draw(name, "special", {"rate": 0.5}, **product_case))).mean() < 0.2
