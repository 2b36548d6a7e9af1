"""The calls by which products of matrices and einsum are checked."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from optest.operators.samples import (
    Call,
    call,
    in_every_layout,
    in_layouts_at_once,
    integer_exact,
    of_one_element,
    refused,
    standard,
    variations,
    with_further_layouts,
    with_special_rows,
    zero_mean,
)
from optest.operators.variants import FLOAT8, INTEGERS, NUMBERS
from optest.spec import Sample, Tier

__all__ = [
    "accumulator",
    "beyond_16_bits",
    "bmm_samples",
    "einsum_samples",
    "gemm_samples",
    "linear_samples",
    "matmul_samples",
    "special_operands",
    "zeros_times_special",
]

_DTYPES = (*NUMBERS, *FLOAT8)
_DEPTHS = (0, 1, 7, 15, 16, 17, 31, 33, 63, 65, 127, 129, 1023, 1025)
_NAN = {"fill": "full", "value": "nan"}


def accumulator(calls: Iterable[Call]) -> Iterator[Sample]:
    """Operands whose sums leave their own dtype: 8-bit integers into 32 bits, exact; and 16-bit floats into float32.

    Then integers that wrap, and 16-bit floats whose partial sums do not fit into 16 bits though the result does.
    """
    for each in calls:
        for narrow, wide in (("int8", "int32"), ("uint8", "int32"), ("float16", "float32"), ("bfloat16", "float32")):
            attributes = {**each.get("attributes", {}), "out_dtype": wide}
            dtypes = [narrow, narrow, *[wide] * (len(each["shapes"]) - 2)]
            yield Sample(case_set="accumulator", case={**each, "attributes": attributes, "dtypes": dtypes})
        # Instructions that add pairs of 8-bit products in 16 bits stop at the largest number.
        lowest = {name: {"fill": "full", "value": -128} for name in list(each["shapes"])[:2]}
        attributes = {**each.get("attributes", {}), "out_dtype": "int32"}
        dtypes = ["int8", "int8", *["int32"] * (len(each["shapes"]) - 2)]
        full = {**each, "attributes": attributes, "dtypes": dtypes, "generator": lowest}
        yield Sample(case_set="accumulator", case=full)
        highest = {name: {"fill": "full", "value": 255} for name in lowest}
        yield Sample(
            case_set="accumulator", case={**full, "dtypes": ["uint8", "uint8", *dtypes[2:]], "generator": highest}
        )


def small_floats(stated: Call) -> Iterator[Sample]:
    """Products of 8-bit floats into wider results, as every unit has them that multiplies such."""
    for narrow, wide in (("float8_e4m3fn", "float32"), ("float8_e5m2", "float32"), ("float8_e4m3fn", "bfloat16")):
        attributes = {**stated.get("attributes", {}), "out_dtype": wide}
        case = {**stated, "attributes": attributes, "dtypes": [narrow] * len(stated["shapes"])}
        yield Sample(case_set="accumulator", case=case)


def special_operands(
    calls: Iterable[Call],
    *names: str,
    dtypes: Sequence[str] = ("float32", "float16", "bfloat16"),
    tier: Tier = Tier.PARITY,
) -> Iterator[Sample]:
    """Special values in one operand at a time: what infinity times a subnormal is depends on whether the unit that
    multiplies takes subnormals for zeros, as bfloat16 units do."""
    for each in calls:
        for name in names:
            case = {**each, "generator": {name: "special"}}
            yield from variations("special", [case], dtypes=dtypes, tier=tier)
        if tier is Tier.PARITY:
            yield from with_special_rows([each], names, dtypes=dtypes)


def zeros_times_special(
    stated: Call, one: str, other: str, *, dtypes: Sequence[str] = ("float32", "float16", "bfloat16")
) -> Iterator[Sample]:
    """0 times NaN or infinity is NaN: a kernel that skips the zeros of one operand loses it."""
    for special, zeros in ((one, other), (other, one)):
        for each in with_special_rows([stated], [special], dtypes=dtypes):
            fills = {**each.case["generator"], zeros: "zeros"}
            yield Sample(case_set="special", case={**each.case, "generator": fills}, tier=each.tier)


def beyond_16_bits(*calls: Call) -> Iterator[Sample]:
    """More results, or more batches, than 16 bits count: a grid of a device has such limits in some dimensions."""
    yield from variations("sizes", calls, dtypes=("float32",))


@with_further_layouts
def matmul_samples() -> Iterator[Sample]:
    calls = [call(input=(5, 7), other=(7, 3)), call(input=(33, 65), other=(65, 17)), call(input=(1, 9), other=(9, 64))]
    yield from standard(calls, _DTYPES, sized=lambda n: call(input=(3, n), other=(n, 5)), sizes=_DEPTHS, special=False)
    yield from special_operands(calls[:2], "input", "other")
    yield from zeros_times_special(calls[0], "input", "other")
    yield from small_floats(call(input=(5, 65), other=(65, 3)))
    yield from variations("sizes", (call(input=(n, 9), other=(9, 4)) for n in (0, 15, 17, 65)), dtypes=("float32",))
    yield from variations("sizes", (call(input=(4, 9), other=(9, n)) for n in (0, 1, 15, 17, 65)), dtypes=("float32",))
    yield from in_layouts_at_once([call(input=(6, 6), other=(6, 6))])
    # A vector on either side of a square: neither order nor a transposition shows in the shape.
    square = [call(input=(6,), other=(6, 6)), call(input=(6, 6), other=(6,)), call(input=(6,), other=(2, 6, 6))]
    yield from variations("broadcast", square, dtypes=("float32", "float16"))
    batched = call(input=(2, 5, 7), other=(2, 7, 3))
    yield from in_every_layout([batched])
    yield from in_layouts_at_once([batched, call(input=(2, 3, 5, 7), other=(2, 3, 7, 4))], dtype="float16")
    yield from variations("sizes", [call(input=(17, 3, 4), other=(17, 4, 2))], dtypes=("float32", "float16"))
    yield from variations("sizes", [call(input=(3, 9), other=(9, 1025))], dtypes=("float32", "float16"))
    yield from beyond_16_bits(call(input=(257, 9), other=(9, 257)), call(input=(65_537, 2), other=(2, 1)))
    shapes = [
        ((7,), (7,)),
        ((7,), (7, 3)),
        ((5, 7), (7,)),
        ((7,), (2, 7, 3)),
        ((2, 5, 7), (7,)),
        ((2, 5, 7), (7, 3)),
        ((5, 7), (2, 7, 3)),
        ((2, 1, 5, 7), (3, 7, 4)),
        ((2, 1, 5, 7), (1, 3, 7, 4)),
        ((2, 3, 5, 7), (2, 3, 7, 4)),
        ((3, 1, 2, 5, 7), (1, 4, 2, 7, 3)),
        ((3, 2, 5, 7), (3, 1, 7, 4)),
        ((3, 1, 5, 7), (3, 2, 7, 4)),
        ((2, 3, 1, 5, 7), (3, 4, 7, 2)),
        ((1, 3, 2, 5, 7), (2, 1, 1, 7, 3)),
        ((3, 1, 2, 7), (4, 7, 2)),
        ((0, 5, 7), (7, 3)),
    ]
    yield from variations(
        "broadcast", (call(input=a, other=b) for a, b in shapes), dtypes=("float32", "bfloat16", "int32")
    )
    yield from accumulator([call(input=(5, 65), other=(65, 3))])
    yield from integer_exact([*calls, call(input=(17, 1025), other=(1025, 9)), call(input=(2, 3, 33), other=(33, 16))])
    yield from zero_mean(
        [call(input=(16, 1025), other=(1025, 17))], dtypes=("float32", "float16", "bfloat16", "float64")
    )
    yield from refused(
        [call(input=(3, 4), other=(5, 6)), call(input=(2, 3, 4), other=(3, 4, 5)), call(input=(), other=(3, 4))]
    )
    yield from variations("long", [call(input=(4, 65536), other=(65536, 4))], dtypes=("float32", "float16"))
    yield from of_one_element(call(input=(1, 1), other=(1, 1)), call(input=(1,), other=(1,)))
    yield from beyond_16_bits(call(input=(65_537, 1, 2), other=(65_537, 2, 1)))
    yield from variations(
        "long", [call(input=(256, 4096), other=(4096, 256))], dtypes=("float32", "bfloat16"), tier=Tier.FULL
    )


@with_further_layouts
def bmm_samples() -> Iterator[Sample]:
    calls = [call(input=(2, 5, 7), mat2=(2, 7, 3)), call(input=(3, 17, 33), mat2=(3, 33, 16))]
    yield from standard(
        calls, _DTYPES, sized=lambda n: call(input=(2, 3, n), mat2=(2, n, 5)), sizes=_DEPTHS, special=False
    )
    yield from special_operands(calls[:1], "input", "mat2")
    yield from zeros_times_special(calls[0], "input", "mat2")
    yield from small_floats(call(input=(2, 5, 65), mat2=(2, 65, 3)))
    wide = [call(input=(2, 1025, 3), mat2=(2, 3, 4)), call(input=(2, 4, 3), mat2=(2, 3, 1025))]
    yield from variations("sizes", wide, dtypes=("float32", "float16"))
    yield from beyond_16_bits(
        call(input=(70, 31, 5), mat2=(70, 5, 33)), call(input=(65_537, 1, 2), mat2=(65_537, 2, 1))
    )
    edges = [((0, 3, 4), (0, 4, 5)), ((1, 1, 4), (1, 4, 1)), ((17, 2, 3), (17, 3, 2)), ((2, 0, 4), (2, 4, 5))]
    yield from variations("sizes", (call(input=a, mat2=b) for a, b in edges), dtypes=("float32", "int32"))
    yield from accumulator([call(input=(2, 5, 65), mat2=(2, 65, 3))])
    yield from integer_exact([*calls, call(input=(2, 3, 1025), mat2=(2, 1025, 9))])
    yield from zero_mean([call(input=(2, 16, 1025), mat2=(2, 1025, 17))])
    yield from of_one_element(call(input=(1, 1, 1), mat2=(1, 1, 1)))
    yield from refused(
        [
            call(input=(2, 3, 4), mat2=(1, 4, 5)),
            call(input=(2, 3, 4), mat2=(2, 5, 4)),
            call(input=(3, 4), mat2=(4, 5)),
        ]
    )


@with_further_layouts
def gemm_samples() -> Iterator[Sample]:
    scaled = {"alpha": 0.5, "beta": -1.5}
    calls = [
        call(a=(5, 7), b=(7, 3), c=(5, 3)),
        call(scaled, a=(33, 65), b=(65, 17), c=(33, 17)),
        call({"alpha": 0.7}, a=(5, 17), b=(17, 3)),
    ]
    yield from standard(
        calls, _DTYPES, sized=lambda n: call(scaled, a=(3, n), b=(n, 5), c=(3, 5)), sizes=_DEPTHS, special=False
    )
    yield from special_operands(calls[:1], "a", "b", "c")
    yield from zeros_times_special(call(a=(5, 7), b=(7, 3)), "a", "b")
    yield from small_floats(call(a=(5, 65), b=(65, 3)))
    yield from variations("sizes", [call(scaled, a=(1025, 3), b=(3, 4), c=(1025, 4))], dtypes=("float32", "float16"))
    yield from beyond_16_bits(
        call(scaled, a=(257, 9), b=(9, 257), c=(257, 257)), call({"trans_b": True}, a=(2, 3), b=(65_537, 3), c=(2, 1))
    )
    yield from variations("attributes", _gemm_attributes(), dtypes=("float32", "float16"))
    batched = [
        call(scaled, a=(3, 5, 7), b=(3, 7, 4), c=(3, 5, 4)),
        call({"trans_a": True, "trans_b": True}, a=(2, 7, 5), b=(2, 4, 7), c=(4,)),
        call({"alpha": 0.7}, a=(4, 3, 33), b=(4, 33, 2)),
    ]
    yield from variations("batched", batched, dtypes=("float32", "float16", "float64"))
    yield from variations("batched", _batches(scaled), dtypes=("float32",))
    yield from variations("batched", batched[:1], dtypes=("bfloat16",))
    whole_batch = call({"alpha": 2.0, "beta": 3.0, "trans_b": True}, a=(3, 5, 7), b=(3, 4, 7), c=(3, 5, 4))
    yield from variations("batched", [whole_batch], dtypes=[name for (name,) in INTEGERS])
    yield from variations("batched", [call(a=(3, 5, 7), b=(3, 7, 4))], dtypes=[name for (name,) in FLOAT8])
    yield from in_every_layout([call(scaled, a=(3, 5, 7), b=(3, 7, 4), c=(3, 5, 4))])
    yield from in_layouts_at_once([call(a=(3, 6, 6), b=(3, 6, 6), c=(3, 6, 6))])
    yield from integer_exact([call(a=(3, 17, 129), b=(3, 129, 33), c=(3, 17, 33))])
    yield from zero_mean([call(a=(2, 16, 1025), b=(2, 1025, 17))])
    tenths = call({"alpha": 0.1, "beta": -0.3}, a=(5, 7), b=(7, 3), c=(5, 3))
    yield from variations("attributes", [tenths], dtypes=("float64", "bfloat16"))
    whole = {"alpha": 2.0, "beta": -3.0, "trans_a": True, "trans_b": True}
    yield from variations(
        "attributes", [call(whole, a=(7, 5), b=(3, 7), c=(3,))], dtypes=("int32", "int8", "uint8")[:2]
    )
    unread = call({"beta": 0.0}, a=(5, 7), b=(7, 3), c=(5, 3), generator={"c": _NAN})
    yield from variations(
        "beta",
        [
            unread,
            {
                **unread,
                "attributes": {"beta": 0.0, "alpha": 0.5, "trans_b": True},
                "shapes": {"a": [5, 7], "b": [3, 7], "c": [3]},
            },
            {**unread, "shapes": {"a": [2, 5, 7], "b": [2, 7, 3], "c": [2, 5, 3]}},
        ],
        dtypes=("float32", "float16", "bfloat16"),
    )
    for name in ("a", "b"):
        product = call({"alpha": 0.0}, a=(5, 7), b=(7, 3), c=(5, 3), generator={name: _NAN})
        yield from variations("beta", [product], dtypes=("float32",), tier=Tier.FULL)  # as BLAS; torch leaves it open
    yield from variations(
        "broadcast",
        (call(scaled, a=(5, 7), b=(7, 3), c=c) for c in ((), (1,), (3,), (1, 3), (5, 1), (1, 1))),
        dtypes=("float32", "bfloat16"),
    )
    # A depth of 1 with all of c added, and one column: libraries have kernels of their own for both.
    single = [call({"alpha": 0.7}, a=(5, 1), b=(1, 3), c=(5, 3)), call(scaled, a=(5, 7), b=(7, 1), c=(5, 1))]
    yield from variations("attributes", single, dtypes=("float32", "float16"))
    yield from accumulator(
        [
            call({"trans_b": True}, a=(5, 65), b=(3, 65), c=(5, 3)),
            call(a=(5, 65), b=(65, 3)),
            call(a=(2, 5, 65), b=(2, 65, 3)),
        ]
    )
    yield from integer_exact(
        [calls[0], call({"trans_a": True}, a=(1025, 5), b=(1025, 3), c=(3,)), call(a=(16, 33), b=(33, 17))]
    )
    yield from zero_mean([call(a=(16, 1025), b=(1025, 17), c=(16, 17))])
    yield from of_one_element(call(scaled, a=(1, 1), b=(1, 1), c=(1, 1)), call(a=(1, 1), b=(1, 1)))
    yield from refused(
        [
            call(a=(3, 4), b=(5, 6)),
            call({"trans_b": True}, a=(3, 4), b=(4, 6)),
            call(a=(3, 4), b=(4, 6), c=(3,)),
            call(a=(2, 3, 4), b=(4, 5)),
            call(a=(2, 3, 4), b=(1, 4, 5)),
            call(a=(2, 3, 4), b=(2, 4, 5), c=(1, 2, 3, 5)),
        ]
    )
    yield from variations("long", [call(scaled, a=(4, 65536), b=(65536, 4), c=(4,))], dtypes=("float32", "float16"))


def _batches(scaled: dict[str, float]) -> Iterator[dict[str, Any]]:
    """What single products are asked: every form of c, each transposition, nothing, beyond a tile and 16 bits."""
    yield from (call(scaled, a=(3, 5, 7), b=(3, 7, 4), c=c) for c in ((3, 1, 4), (5, 1), (1, 5, 4)))
    for trans_a, trans_b in ((True, False), (False, True), (True, True)):
        yield call({"trans_a": trans_a, "trans_b": trans_b}, a=(3, 6, 6), b=(3, 6, 6), c=(3, 6, 6))
    yield call(a=(0, 5, 7), b=(0, 7, 4))
    yield call(a=(1, 5, 0), b=(1, 0, 4))
    yield call(a=(65, 2, 3), b=(65, 3, 2), c=(65, 2, 2))
    yield call(scaled, a=(2, 65, 33), b=(2, 33, 67), c=(67,))
    yield call(a=(65_537, 1, 2), b=(65_537, 2, 1))


def _gemm_attributes() -> Iterator[dict[str, Any]]:
    for trans_a in (False, True):
        for trans_b in (False, True):
            for alpha, beta in ((1.0, 1.0), (-0.3, 2.5)):
                attributes = {"alpha": alpha, "beta": beta, "trans_a": trans_a, "trans_b": trans_b}
                a, b = ((7, 5) if trans_a else (5, 7)), ((3, 7) if trans_b else (7, 3))
                yield call(attributes, a=a, b=b, c=(5, 3))
    square: dict[str, Any] = {
        "a": (6, 6),
        "b": (6, 6),
        "c": (6, 6),
    }  # a forgotten transposition shows in the values alone
    yield from (call({"trans_a": a, "trans_b": b}, **square) for a, b in ((True, False), (False, True), (True, True)))
    for trans_a, trans_b in ((True, False), (False, True)):
        a, b = ((9, 5) if trans_a else (5, 9)), ((11, 9) if trans_b else (9, 11))
        yield call({"trans_a": trans_a, "trans_b": trans_b}, a=a, b=b)
    yield call(a=(6, 6), b=(6, 6), c=(6, 1))  # nor does a column that is taken for a row
    yield from (call({"alpha": alpha, "beta": beta}, **square) for alpha, beta in ((0.0, 1.0), (1.0, 0.0), (0.0, 2.0)))


@with_further_layouts
def linear_samples() -> Iterator[Sample]:
    calls = [
        call(input=(5, 7), weight=(3, 7), bias=(3,)),
        call(input=(2, 17, 33), weight=(16, 33)),
        call(input=(65, 129), weight=(31, 129), bias=(31,)),
    ]
    yield from standard(
        calls, _DTYPES, sized=lambda n: call(input=(3, n), weight=(5, n), bias=(5,)), sizes=_DEPTHS, special=False
    )
    yield from special_operands(calls[:1], "input", "weight", "bias")
    yield from zeros_times_special(call(input=(5, 7), weight=(3, 7)), "input", "weight")
    yield from small_floats(call(input=(5, 65), weight=(3, 65)))
    wide = call(input=(3, 9), weight=(1025, 9), bias=(1025,))
    yield from variations("sizes", [wide], dtypes=("float32", "float16"))
    yield from beyond_16_bits(
        call(input=(2, 129, 9), weight=(257, 9), bias=(257,)), call(input=(65_537, 3), weight=(2, 3), bias=(2,))
    )
    forms = [
        call(input=(7,), weight=(3, 7), bias=(3,)),
        call(input=(7,), weight=(7,)),
        call(input=(5, 7), weight=(7,)),
        call(input=(2, 3, 5, 7), weight=(4, 7), bias=(4,)),
        call(
            input=(7, 7), weight=(7, 7), bias=(7,)
        ),  # neither a transposed weight nor a bias by row shows in the shape
        call(input=(0, 7), weight=(3, 7), bias=(3,)),
        call(input=(5, 7), weight=(0, 7)),
    ]
    yield from variations("attributes", forms, dtypes=("float32", "bfloat16"))
    yield from accumulator([call(input=(5, 65), weight=(3, 65), bias=(3,)), call(input=(5, 65), weight=(3, 65))])
    yield from integer_exact([*calls, call(input=(3, 1025), weight=(9, 1025), bias=(9,))])
    yield from zero_mean([call(input=(16, 1025), weight=(17, 1025), bias=(17,))])
    yield from of_one_element(call(input=(1, 1), weight=(1, 1), bias=(1,)), call(input=(1,), weight=(1, 1)))
    yield from refused(
        [
            call(input=(3, 4), weight=(4, 5)),
            call(input=(3, 4), weight=(5, 4), bias=(4,)),
            call(input=(3, 4), weight=(2, 5, 4)),
        ]
    )


def _operands(shapes: Sequence[tuple[int, ...]]) -> dict[str, Any]:
    return {f"operands{index}": shape for index, shape in enumerate(shapes)}


@with_further_layouts
def einsum_samples() -> Iterator[Sample]:
    def ask(equation: str, *shapes: tuple[int, ...], **more: Any) -> dict[str, Any]:
        return call({"equation": equation}, **_operands(shapes), **more)

    calls = [
        ask("ij,jk->ik", (5, 7), (7, 3)),
        ask("bhid,bhjd->bhij", (2, 3, 5, 17), (2, 3, 4, 17)),
        ask("bij,bjk->bik", (2, 9, 33), (2, 33, 16)),
    ]
    yield from standard(
        calls,
        NUMBERS,
        sized=lambda n: ask("ij,kj->ik", (3, n), (5, n)),
        sizes=(0, 1, 15, 16, 17, 129, 1025),
        special=False,
    )
    yield from special_operands(calls[:2], "operands0", "operands1")
    yield from zeros_times_special(calls[0], "operands0", "operands1")
    yield from variations("sizes", [ask("ij,jk->ik", (3, 9), (9, 1025))], dtypes=("float32", "float16"))
    yield from beyond_16_bits(ask("bij,bkj->bik", (70, 31, 5), (70, 33, 5)), ask("ij,jk->ik", (65_537, 2), (2, 3)))
    equations = [
        ask("ij,jk", (5, 7), (7, 3)),
        ask("ji,jk->ki", (7, 5), (7, 3)),
        ask("ij->ji", (5, 7)),
        ask("ij->", (5, 7)),
        ask("ij->j", (5, 7)),
        ask("ii->i", (6, 6)),
        ask("ii", (6, 6)),
        ask("iji->j", (4, 3, 4)),
        ask("i,j->ij", (5,), (7,)),
        ask("i,i->", (33,), (33,)),
        ask("i,i->i", (5,), (5,)),
        ask("ij,ij->ij", (5, 7), (5, 7)),
        ask("...ij,...jk->...ik", (2, 1, 5, 7), (3, 7, 4)),
        ask("b...d,d...->b...", (2, 3, 4, 5), (5, 3, 4)),
        ask("...i->...", (2, 3, 4)),
        ask("ba,ca", (3, 4), (5, 4)),
        ask("Ab,bc", (3, 4), (4, 5)),
        ask("ij , jk -> ik", (5, 1), (7, 3)),
        ask("abcd,cdef->abef", (2, 3, 4, 5), (4, 5, 3, 2)),
        ask(",->", (), ()),
        ask("nlhd,nshd->nhls", (2, 5, 3, 8), (2, 4, 3, 8)),
        ask("cb,ba", (3, 4), (4, 5)),  # the labels of the result are in order
        ask("iij->ij", (3, 3, 3)),
        ask("...ij,...jk->...ik", (3, 4), (2, 4, 5)),
    ]
    yield from variations("equations", equations, dtypes=("float32", "int32"))
    alone = [ask("ij,jk->k", (5, 7), (7, 3)), ask("ij,kj->i", (5, 7), (3, 7))]  # torch sums one first, in 16 bits too
    yield from variations("equations", alone, dtypes=("float32", "float64"))
    several = [
        ask("ij,jk,kl->il", (3, 5), (5, 7), (7, 4)),
        ask("i,ij,j->", (5,), (5, 7), (7,)),
        ask("ij,ik,il->jkl", (9, 2), (9, 3), (9, 4)),
    ]
    yield from variations("equations", several, dtypes=("float32", "float64", "int32"))
    # Whole numbers, which 16 bits hold between two contractions too; and equations of one operand.
    counted = [{**each, "generator": "ones"} for each in several]
    alone = [each for each in equations if len(each["shapes"]) == 1]
    yield from variations("equations", [*counted, *alone], dtypes=("float16", "bfloat16"))
    yield from integer_exact(several, dtypes=("float32",))
    yield from integer_exact([*calls, ask("ij,kj->ik", (9, 1025), (5, 1025))])
    yield from zero_mean([ask("bij,bjk->bik", (2, 16, 257), (2, 257, 17))])
    yield from refused(
        [
            ask("ij,jk->ik", (3, 4), (5, 6)),
            ask("ij,jk->iz", (3, 4), (4, 5)),
            ask("ijk,jk->i", (3, 4), (4, 5)),
            ask("ii->i", (3, 4)),
            ask("ij->ii", (3, 4)),
        ]
    )
