"""The calls by which reductions are checked."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from optest.operators.samples import call, integer_exact, refused, standard, variations, zero_mean
from optest.operators.variants import BOOL, FLOATS, INTEGERS
from optest.spec import Sample, Tier

__all__ = ["sum_samples"]


def sum_samples() -> Iterator[Sample]:
    calls = [
        call({"dim": 1}, input=(4, 37)),
        call(input=(3, 5, 7)),
        call({"dim": [0, 2], "keepdim": True}, input=(3, 5, 7)),
    ]
    yield from standard(calls, (*FLOATS, *INTEGERS, *BOOL), sized=lambda n: call({"dim": 1}, input=(3, n)))
    yield from variations("attributes", _sum_attributes(), dtypes=("float32", "int32"))
    yield from variations("long", [call({"dim": -1}, input=(2, 65536))], dtypes=("float32", "float16", "bfloat16"))
    yield from integer_exact([*calls, call({"dim": 1}, input=(3, 1025))])
    yield from zero_mean([call({"dim": 1}, input=(3, 4097))])
    yield from refused([call({"dim": 2}, input=(3, 4)), call({"dim": [0, 0]}, input=(3, 4))])
    yield from variations("long", [call({"dim": 0}, input=(65537, 3))], dtypes=("float32",), tier=Tier.FULL)


def _sum_attributes() -> Iterator[dict[str, Any]]:
    for dim in (0, 1, -1, -2, -3, [0, 1], [-1, 0], [0, 1, 2], None):
        for keepdim in (False, True):
            yield call({"dim": dim, "keepdim": keepdim}, input=(2, 3, 5))
