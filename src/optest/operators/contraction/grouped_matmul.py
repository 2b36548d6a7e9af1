"""The operator grouped_matmul: one matrix product per expert."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import accumulate as running_sums
from typing import Any

from optest.operators.calls import MAIN_FLOATS, call, data_fill, in_dtypes
from optest.operators.describe import FLOATS, accumulate, in_module
from optest.operators.samples import error_samples, in_every_layout, in_layouts_at_once, variations
from optest.operators.shapes import Attributes, Specs, require_spec
from optest.spec import OperatorDescriptor, Sample, Tier
from optest.spec.declared_shapes import inference

DESCRIPTORS = in_module(
    __name__,
    OperatorDescriptor(
        name="grouped_matmul",
        signature="input, weight, offs -> out",
        aliases=("grouped_mm: mat_a, mat_b, offs -> out",),
        dtype_variants=tuple((name, name, index) for index in ("int32", "int64") for (name,) in FLOATS),
        alternatives="grouped_matmul_alternatives",
        sum_length="..shapes:length_of_dim",
        operations="grouped_matmul_operations",
        generator={"offs": "arange"},
        rule=accumulate("rows behind the last expert are not compared"),
        description="Rows of input, sorted by expert, times the expert's matrix: rows offs[e - 1] to offs[e] are those "
        "of expert e, as in torch.nn.functional.grouped_mm. weight is experts x K x N. Rows behind the last expert may "
        "have any values.",
    ),
    twin="contraction_reference",
)


infer_grouped_matmul = inference(
    "input: T[rows, depth], weight: T[experts, depth, width], offs: index[experts] -> T[rows, width]"
)


def grouped_matmul_operations(specs: Specs, _attributes: Attributes) -> int:
    """Return 2·M·K·N: every row is multiplied by one matrix."""
    weight = require_spec(specs, 1, "weight")
    return 2 * require_spec(specs, 0, "input").shape[0] * weight.shape[1] * weight.shape[2]


def _grouped(rows: Sequence[int], depth: int, width: int, generator: Any = None) -> dict[str, Any]:
    """Return a call in which expert i has ``rows[i]`` rows; ``generator`` adds or replaces fills."""
    offs = data_fill(list(running_sums(rows)))
    return call(
        generator={"offs": offs, **(generator or {})},
        input=(sum(rows), depth),
        weight=(len(rows), depth, width),
        offs=(len(rows),),
    )


def grouped_matmul_samples() -> Iterator[Sample]:
    calls = [_grouped((3, 1, 5), 16, 8), _grouped((17, 0, 2, 30), 37, 64), _grouped((4, 4), 64, 33)]
    yield Sample(case_set="ordinary", case=calls[0], tier=Tier.SMOKE)
    for name in (*MAIN_FLOATS, "float64"):
        kinds = [[name, name, index] for index in ("int32", "int64")]
        yield from variations("ordinary", [{**base_call, "dtypes": kinds[0]} for base_call in calls])
        yield from variations("dtypes", [{**calls[0], "dtypes": kinds[1]}])
    for name, base_call in zip(MAIN_FLOATS, calls, strict=True):
        laid = in_dtypes("input", [name], [base_call])
        yield from in_every_layout(laid, names=["input", "weight"])
        yield from in_layouts_at_once(laid)
        yield from in_layouts_at_once(laid, names=["offs"])
    sizes = [_grouped((n, 3), 16, 8) for n in (1, 15, 16, 17, 63, 64, 65, 129)]
    sizes += [_grouped((3, 2), n, 8) for n in (1, 7, 31, 33, 129, 1025)]
    sizes += [_grouped((3, 2), 16, n) for n in (1, 7, 31, 33, 129, 1025)]
    sizes += [
        _grouped((2,) * 65, 8, 4),
        _grouped((3, 5), 16, 16),
        _grouped((1,), 1, 1),
        _grouped((5,), 16, 8),
        _grouped((2049, 2049), 17, 2),
    ]
    yield from variations("sizes", in_dtypes("input", MAIN_FLOATS[:2], sizes))
    # Experts without rows in front, in the middle and behind, all rows of one, none at all.
    shares = ((0, 0, 5, 2), (4, 0, 0, 3), (4, 3, 0, 0), (0, 9, 0), (0, 0), (16, 16, 16), (15, 17, 1))
    several = [_grouped(rows, 16, 24) for rows in shares]
    yield from variations("groups", in_dtypes("input", MAIN_FLOATS, several))
    yield from variations("sizes", [_grouped((3, 2), 16, 0), _grouped((3, 2), 0, 8), _grouped((), 8, 4)])
    exact = {"input": "integer-exact", "weight": "integer-exact"}
    yield from variations("integer-exact", in_dtypes("input", MAIN_FLOATS, [_grouped((17, 0, 2, 30), 37, 64, exact)]))
    # NaN and infinity in one expert's matrix must not reach the rows of its neighbours.
    special = {"weight": data_fill([[[1.0], [2.0]], [["nan"], ["inf"]], [[0.5], [-1.0]]])}
    yield from variations("special", [_grouped((2, 0, 3), 2, 1, special), _grouped((2, 1, 3), 2, 1, special)])
    yield from error_samples(
        call(input=(5, 8), weight=(2, 7, 4), offs=(2,)),
        call(input=(5, 8), weight=(2, 8, 4), offs=(3,)),
        _grouped((3, 2), 8, 4, {"offs": data_fill([3, 6])}),
        _grouped((3, 2), 8, 4, {"offs": data_fill([3, 2])}),
    )
