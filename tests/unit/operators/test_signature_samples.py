"""Samples derived from a signature: only shapes that the operator accepts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from texts import says

from optest.operators.signature_samples import Trial, signature_samples
from optest.spec import Attribute, OperatorDescriptor, Rule, RuleClass, TensorSpec

Specs = Sequence[TensorSpec | None]
Values = Mapping[str, Any]


def product(specs: Specs, _: Values, __: Values) -> Trial | str:
    a, b = specs
    assert a is not None
    assert b is not None
    return Trial() if a.rank == b.rank == 2 and a.shape[1] == b.shape[0] else "no product"


def scaled(specs: Specs, _: Values, __: Values) -> Trial | str:
    """Accept every weight that broadcasts: one row, or a full tensor."""
    x, weight = specs
    assert x is not None
    assert weight is not None
    return Trial() if x.rank > 0 and weight.shape in (x.shape, x.shape[-1:]) else "no row"


def anything(specs: Specs, _: Values, __: Values) -> Trial | str:
    return Trial()


def nothing(specs: Specs, _: Values, __: Values) -> Trial | str:
    return "of no shape"


def merged(specs: Specs, _: Values, __: Values) -> Trial | str:
    """Accept tokens x heads x width and heads x tokens, twice."""
    shapes = [each.shape for each in specs if each is not None]
    fits = list(map(len, shapes)) == [3, 2, 3, 2] and shapes[0] == shapes[2] and shapes[1] == shapes[3]
    return Trial() if fits and shapes[1] == shapes[0][1::-1] else "no partial results"


def first_shapes(signature: str, accepts: Any, **fields: Any) -> dict[str, list[int]]:
    descriptor = OperatorDescriptor(name="own", signature=signature, **fields)
    first = signature_samples(descriptor, accepts).samples[0]
    return dict(first.case["shapes"])


def test_accepted_shapes_are_chosen() -> None:
    assert first_shapes("a, b -> out", product) == {"a": [4, 37], "b": [37, 5]}
    assert first_shapes("a, b -> out", anything) == {"a": [4, 37], "b": [5, 3]}
    partial = {"a": [4, 5, 37], "b": [5, 4], "c": [4, 5, 37], "d": [5, 4]}
    assert first_shapes("a, b, c, d -> out", merged) == partial


def test_weight_is_one_row() -> None:
    assert first_shapes("x, weight -> out", scaled) == {"x": [4, 37], "weight": [37]}
    assert first_shapes("x, other -> out", scaled) == {"x": [4, 37], "other": [4, 37]}


def test_all_samples_are_accepted() -> None:
    samples = signature_samples(OperatorDescriptor(name="own", signature="a, b -> out"), product).samples
    assert {each.case_set for each in samples} == {"ordinary", "dtypes", "layouts", "sizes", "special"}
    for each in samples:
        a, b = (shape["shape"] if isinstance(shape, dict) else shape for shape in each.case["shapes"].values())
        assert a[1] == b[0]


def test_indices_are_within_all_dimensions() -> None:
    variants = (("float32", "int64"),)
    samples = signature_samples(
        OperatorDescriptor(name="own", signature="x, index -> out", dtype_variants=variants), anything
    ).samples
    for each in samples:
        x, fill = each.case["shapes"]["x"], each.case["generator"]["index"]
        rows = (x["shape"] if isinstance(x, dict) else x)[0]
        assert (fill["fill"], fill["low"]) == ("randint", 0)
        assert 0 < fill["high"] <= (rows or fill["high"])


def test_dimensions_are_empty_and_long_once() -> None:
    def refuses_empty(specs: Specs, _: Values, __: Values) -> Trial | str:
        (x,) = specs
        assert x is not None
        return Trial([x]) if x.shape[1:] != (0,) else "the reference refuses it"

    def memory_of(power: int) -> Any:
        return lambda specs, _, __: Trial(specs, specs[0].shape[0] ** power * 8.0)

    def sizes(accepts: Any, signature: str = "x -> out", **fields: Any) -> tuple[set[tuple[int, int]], str]:
        rule = Rule(kind=RuleClass.EXACT)
        derived = signature_samples(OperatorDescriptor(name="own", signature=signature, rule=rule, **fields), accepts)
        calls = [each.case for each in derived.samples if each.case_set == "sizes"]
        declared = {tuple(each["shapes"]["out"]) for each in calls if "out" in each["shapes"]}
        assert declared == ({(0, 8)} if accepts is refuses_empty else set())
        return {tuple(each["shapes"]["x"]) for each in calls}, derived.how

    derived, how = sizes(refuses_empty)
    assert {(0, 8), (3, 1), (3, 1025), (32_769, 3), (65_537, 3), (3, 65_537)} <= derived
    assert not any(columns == 0 for _, columns in derived)
    assert says(how, "operators.dimension_of_never_the")
    derived, _ = sizes(anything, "x: T[rows, 2*half] -> T[rows, 2*half]")
    assert {(0, 16), (3, 0), (3, 2050), (32_769, 6), (3, 131_074)} <= derived
    axis, width = Attribute(name="dim", type="int", default=-1), Attribute(name="width", type="int", default=6)
    derived, _ = sizes(anything, "x: T[rows, dim], w?: T[width] -> T[rows, dim]", attributes=(axis, width))
    assert {(0, 8), (3, 0), (3, 65_537)} <= derived
    derived, how = sizes(memory_of(2), infer=lambda specs, _: specs)
    assert max(max(each) for each in derived if each[1] <= 8) == 4099
    assert says(how, "operators.dimension_of_not_its")


DECLARED = (
    "x: T[tokens, heads, 4], cu: offsets(tokens)[batch+1], at: index(tokens)[n], w?: float32[heads] -> int8[tokens]"
)


def test_declared_signature_is_varied() -> None:
    attributes = (
        Attribute(name="causal", type="bool", default=False),
        Attribute(name="kind", type="str", default="a", choices=("a", "b")),
        Attribute(name="eps", type="float", default=1e-6),
    )
    descriptor = OperatorDescriptor(name="own", signature=DECLARED, attributes=attributes)
    derived = signature_samples(descriptor, lambda specs, _, values: Trial(descriptor.infer(specs, {})))  # type: ignore[operator]
    cases = [each.case for each in derived.samples]
    assert descriptor.generator == {"cu": "arange"}
    for case in cases:
        tokens = case["shapes"]["x"]["shape" if isinstance(case["shapes"]["x"], dict) else slice(None)][0]
        offsets = case["generator"]["cu"]["values"]
        assert (offsets[0], offsets[-1], offsets) == (0, tokens, sorted(offsets))
        assert descriptor.supports([*case["dtypes"].values()])
    changed = {tuple(case["attributes"].items()) for case in cases if "attributes" in case}
    assert changed == {(("causal", True),), (("kind", "b"),), (("causal", True), ("kind", "b"))}
    assert any("w" not in case["shapes"] for case in cases)
    assert {each.case_set for each in derived.samples} >= {"attributes", "optional", "dtypes", "layouts", "sizes"}
    for part in ("eps only at the default", "no NaN and infinities, which int8 does not have"):
        assert part in derived.how


@pytest.mark.parametrize(
    ("fields", "accepts", "how"),
    [
        (
            {"attributes": (Attribute(name="k", type="int"),)},
            anything,
            "no value of k is known; give Attribute(name='k'",
        ),
        (
            {},
            nothing,
            "no simple shapes of its inputs are accepted; declare them: signature='x: T[rows, …] -> out: T[rows, …]'",
        ),
        ({"signature": "x: T[rows] -> T[rows]"}, nothing, "no sizes of its inputs are accepted (of no shape)"),
        ({"signature": " -> out"}, anything, "it has no inputs"),
    ],
)
def test_missing_samples_have_a_reason(fields: dict[str, Any], accepts: Any, how: str) -> None:
    derived = signature_samples(OperatorDescriptor(**{"name": "own", "signature": "x -> out", **fields}), accepts)
    assert not derived.samples
    assert derived.how.startswith(how)
