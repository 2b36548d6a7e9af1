"""Case sets that follow from a signature: shapes that fit, and no sample that the operator does not take."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from optest.operators.signature_samples import signature_samples
from optest.spec import Attribute, OperatorDescriptor, Rule, RuleClass, TensorSpec

Specs = Sequence[TensorSpec | None]


def product(specs: Specs, _: Mapping[str, Any]) -> bool:
    a, b = specs
    return a is not None and b is not None and a.rank == b.rank == 2 and a.shape[1] == b.shape[0]


def scaled(specs: Specs, _: Mapping[str, Any]) -> bool:
    """What broadcasting takes: rows, and whole tensors too."""
    x, weight = specs
    return x is not None and weight is not None and x.rank > 0 and weight.shape in (x.shape, x.shape[-1:])


def anything(specs: Specs, _: Mapping[str, Any]) -> bool:
    return True


def nothing(specs: Specs, _: Mapping[str, Any]) -> bool:
    return False


def first_shapes(signature: str, takes: Any, **stated: Any) -> dict[str, list[int]]:
    descriptor = OperatorDescriptor(name="own", signature=signature, **stated)
    first = signature_samples(descriptor, takes).samples[0]
    return dict(first.case["shapes"])


def test_shapes_are_those_that_fit() -> None:
    assert first_shapes("a, b -> out", product) == {"a": [4, 37], "b": [37, 5]}
    assert first_shapes("a, b -> out", anything) == {"a": [4, 37], "b": [4, 37]}


def test_a_weight_is_a_row_for_all() -> None:
    assert first_shapes("x, weight -> out", scaled) == {"x": [4, 37], "weight": [37]}
    assert first_shapes("x, other -> out", scaled) == {"x": [4, 37], "other": [4, 37]}


def test_every_sample_fits() -> None:
    samples = signature_samples(OperatorDescriptor(name="own", signature="a, b -> out"), product).samples
    assert {each.case_set for each in samples} == {"ordinary", "dtypes", "layouts", "sizes", "special"}
    for each in samples:
        a, b = (shape["shape"] if isinstance(shape, dict) else shape for shape in each.case["shapes"].values())
        assert a[1] == b[0]


def test_indices_are_within_every_dimension() -> None:
    variants = (("float32", "int64"),)
    samples = signature_samples(
        OperatorDescriptor(name="own", signature="x, index -> out", dtype_variants=variants), anything
    ).samples
    for each in samples:
        x, fill = each.case["shapes"]["x"], each.case["generator"]["index"]
        rows = (x["shape"] if isinstance(x, dict) else x)[0]
        assert (fill["fill"], fill["low"]) == ("randint", 0)
        assert 0 < fill["high"] <= rows


def test_nobody_declares_an_empty_output() -> None:
    def sizes(**stated: Any) -> set[int]:
        descriptor = OperatorDescriptor(name="own", signature="x -> out", **stated)
        samples = signature_samples(descriptor, anything).samples
        return {each.case["shapes"]["x"][1] for each in samples if each.case_set == "sizes"}

    rule = Rule(kind=RuleClass.EXACT)
    assert 0 not in sizes(rule=rule)
    assert {0, 1, 1025, 65_537} <= sizes(rule=rule, infer=lambda specs, _: specs)


@pytest.mark.parametrize(
    ("stated", "takes", "how"),
    [
        ({"attributes": (Attribute(name="k", type="int"),)}, anything, "nobody knows a value of k"),
        ({}, nothing, "no simple shapes of its inputs are taken"),
        ({"signature": " -> out"}, anything, "it has no inputs"),
    ],
)
def test_why_there_are_none(stated: dict[str, Any], takes: Any, how: str) -> None:
    found = signature_samples(OperatorDescriptor(**{"name": "own", "signature": "x -> out", **stated}), takes)
    assert (found.samples, found.how) == ((), how)
