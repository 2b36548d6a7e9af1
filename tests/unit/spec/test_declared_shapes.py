"""Declared shapes: what they make of inputs, and in which words they refuse."""

from __future__ import annotations

import dataclasses
import pickle
import re
from typing import Any

import pytest
from references import spec

from optest.errors import UnknownName
from optest.spec import Interval, OperatorDescriptor, TensorSpec, UnfitArguments
from optest.spec.declared_shapes import inference, match_declaration

Specs = list["TensorSpec | None"]
CONVOLVED = "x: T[batch, dim, *length], weight: T|float32[dim, width], state?: T[batch, dim, 2*width-1]"
PACKED = "packed: int32[rows, columns], scales: S[groups, 8*columns], places?: index[rows+1]"
X, WEIGHT = spec((2, 5, 9), "float16"), spec((5, 4), "float16")
WORDS = spec((4, 3), "int32")


def test_sizes_dtypes_and_outputs() -> None:
    declared = f"{CONVOLVED} -> T[batch, *length, 2*width-1], R[], int32[*more]"
    n, outputs = match_declaration([X, spec((5, 4)), None], declared, R=X.dtype, more=(3, 4))
    assert (n.batch, n.length, n.width, n.T.name) == (2, (9,), 4, "float16")
    made = [(each.dtype.name, each.shape) for each in outputs]
    assert made == [("float16", (2, 9, 7)), ("float16", ()), ("int32", (3, 4))]


def test_stars_stand_for_none_and_for_many() -> None:
    infer = inference("a: [*lead, size], b: B[size, *rest] -> B[*lead, *rest]")
    for lead, rest in (((), ()), ((2, 3), (4,))):
        assert infer([spec((*lead, 7)), spec((7, *rest))], {})[0].shape == (*lead, *rest)


@pytest.mark.parametrize(
    ("declaration", "specs", "message"),
    [
        (CONVOLVED, [X], "weight is missing, expected given"),
        (CONVOLVED, [X, spec((4, 4), "float16")], "weight is 4x4, expected 5x4, with dim as in x"),
        (CONVOLVED, [X, spec((4,), "float16")], "weight is 4, expected 2 dimensions, 5 x width"),
        (CONVOLVED, [spec((2,)), WEIGHT], "x is 2, expected 2 dimensions or more, batch x dim x …"),
        (CONVOLVED, [X, spec((5, 4), "bfloat16")], "weight is bfloat16, expected float16 or float32"),
        (CONVOLVED, [spec((2, 5)), WEIGHT], "weight is float16, expected float32"),
        (CONVOLVED, [spec((2, 5), "float64"), spec((5, 4))], "weight is float32, expected float64, as x"),
        (CONVOLVED, [X, WEIGHT, spec((2, 5, 7))], "state is float32, expected float16, as x"),
        (CONVOLVED, [X, WEIGHT, spec((2, 5, 8), "float16")], "state is 2x5x8, expected 2x5x7, with width as in"),
        (PACKED, [spec((4, 3)), spec((2, 24))], "packed is float32, expected int32"),
        (PACKED, [WORDS, spec((2, 23))], "scales is 2x23, expected 2x24, with columns as in packed"),
        (PACKED, [WORDS, spec((2, 24)), spec((5,), "int16")], "places is int16, expected int64 or int32"),
        (PACKED, [WORDS, spec((2, 24)), spec((4,), "int64")], "places is 4, expected 5, with rows as in packed"),
        ("a: [3, 2*half]", [WORDS], "a is 4x3, expected 3x2, as 3"),
        ("a: [rows, 2*half]", [WORDS], "a is 4x3, expected 4x2, as half"),
        ("a: offsets(rows)[batch+1]", [spec((0,), "int64")], "a is 0, expected 1, as batch"),
        ("a: []", [WORDS], "a is 4x3, expected a scalar"),
        ("a: [*kept_sizes]", [WORDS], "a is 4x3, expected 3, as kept sizes"),
        ("a: [*kept_sizes], b: [*kept_sizes]", [spec((3,)), WORDS], "b is 4x3, expected 3, as kept sizes"),
    ],
)
def test_what_does_not_fit(declaration: str, specs: Specs, message: str) -> None:
    known: dict[str, Any] = {"kept_sizes": (3,)}
    with pytest.raises(UnfitArguments, match=re.escape(message)):
        match_declaration(specs, declaration, **known)


def test_descriptor_follows_its_signature() -> None:
    inputs = "x: T[rows, depth], at: index(rows)[k], n: uint8(9)[k], w?: T|float32[depth]"
    signature = f"{inputs} -> out: T[k, depth], top: float32[k]"
    stated = OperatorDescriptor(name="own", signature=signature, dtype_variants=(("float32",), ("float16",)))
    descriptor: Any = pickle.loads(pickle.dumps(stated))
    given = [spec((5, 8), "float16"), spec((3,), "int32"), spec((3,), "uint8"), None]
    outputs = [(each.dtype.name, each.shape) for each in descriptor.infer(given, {})]
    assert outputs == [("float16", (3, 8)), ("float32", (3,))]
    assert descriptor.domain(given, {}) == {"at": Interval(low=0.0, high=4.0), "n": Interval(low=0.0, high=8.0)}
    assert descriptor.tensors.outputs == ("out", "top")
    legal = [descriptor.supports(names.split()) for names in ("float16 int32 uint8 float32", "float16 int64 uint8")]
    wrong = [descriptor.supports(names.split()) for names in ("float16 float16 uint8", "bfloat16 int64 uint8")]
    assert (legal, wrong) == ([True, True], [False, False])
    changed: Any = dataclasses.replace(descriptor, signature="x: T[rows] -> T[rows+1]")
    assert changed.infer([spec((5,))], {})[0].shape == (6,)


WRONG = ("x: T[a b]", "x: T[rows/2]", "x: T[(a)]", "x: T[a], y -> out", "x: fp[a] -> T[a]", "x: index(b)[a]")


@pytest.mark.parametrize("declaration", WRONG)
def test_unreadable_declaration_is_an_error(declaration: str) -> None:
    with pytest.raises((ValueError, UnknownName)):
        OperatorDescriptor(name="own", signature=declaration)


@pytest.mark.parametrize("declaration", ["x T[rows]", "x: T(rows)", "x: T[rows], y", "x: T[rows] -> out T[rows]"])
def test_a_declaration_with_something_else_is_an_error(declaration: str) -> None:
    with pytest.raises(ValueError, match="no tensor"):
        match_declaration([X, X], declaration)
