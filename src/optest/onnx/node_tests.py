"""ONNX's own tests of its operators as cases: ``optest run --source onnx-node:all --backend onnxruntime``.

A test is a model, inputs, and the outputs that ONNX expects, with the tolerance that it states for them.
"""

from __future__ import annotations

import fnmatch
import warnings
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

import numpy as np
import onnx
from onnx.backend.test.loader import load_model_tests

from optest.errors import UnknownName
from optest.numerics import dtype_of
from optest.plan.sources import Collected, SourceRequest
from optest.spec import Attribute, OperatorDescriptor, TestCase

__all__ = ["CATEGORY", "TestTensors", "collect", "descriptor_of", "model_of_test"]

CATEGORY = "ONNX node test"
PREFIX = "onnx."
_OWN_DOMAINS = ("", "ai.onnx")


@cache
def _tests() -> Mapping[str, Any]:
    """The tests by name, as the installed package makes them; its casts overflow on purpose."""
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        return {each.name: each for each in load_model_tests(kind="node")}


def collect(request: SourceRequest) -> Collected:
    """The tests of operators, by name or glob: ``Softmax``, ``test_softmax_*``, ``all``.

    One that has no tensors of dtypes that optest knows is an entry that is skipped.

    Raises:
        UnknownName: for an operator of which there is no test.
    """
    known = {name: _operators_of(test) for name, test in _tests().items()}
    chosen: dict[str, None] = {}
    for asked in request.names:
        matching = [name for name, of in known.items() if asked == "all" or asked in of or fnmatch.fnmatch(name, asked)]
        if not matching:
            raise UnknownName("ONNX operator with tests", asked, sorted({each for of in known.values() for each in of}))
        chosen |= dict.fromkeys(matching)
    entries = [_entry(name, known[name]) for name in chosen]
    if request.dtypes:
        entries = [each for each in entries if not {*request.dtypes}.isdisjoint(each.get("dtypes", ()))]
    notes = () if entries else (f"no test has inputs of {', '.join(request.dtypes)}",)
    return Collected(origin=f"node tests of onnx {onnx.__version__}", entries=entries, notes=notes)


def _operators_of(test: Any) -> tuple[str, ...]:
    """The operators of a test's model; one that is expanded to others has the name of the test's function."""
    return tuple(dict.fromkeys(node.op_type for node in test.model.graph.node))


def _entry(name: str, operators: Sequence[str]) -> dict[str, Any]:
    test = _tests()[name]
    entry: dict[str, Any] = {
        "op": f"{PREFIX}{operators[0]}",
        "name": f"onnx-node::{name}",
        "attributes": {"test": name},
        "tags": ["onnx-node", *(["expanded"] if len(operators) > 1 else [])],
    }
    if why := _why_not(test):
        return {**entry, "skip": why}
    inputs, _ = test.data_sets[0]
    return {
        **entry,
        "shapes": {f"input{place}": list(array.shape) for place, array in enumerate(map(np.asarray, inputs))},
        "dtypes": [dtype_of(np.asarray(array).dtype).name for array in inputs],
        "generator": f"{__name__}:TestTensors",
        "tolerance": {"rtol": test.rtol, "atol": test.atol},
    }


def _why_not(test: Any) -> str | None:
    """Why a test is none of tensors that optest knows."""
    if not test.data_sets:
        return "the test has no values"
    for array in (*test.data_sets[0][0], *test.data_sets[0][1]):
        if isinstance(array, (list, dict)) or array is None:
            return "it has sequences, maps or optional values, which are no tensors"
        try:
            dtype_of(np.asarray(array).dtype)
        except (KeyError, UnknownName, TypeError, ValueError):
            return f"optest has no tensors of {np.asarray(array).dtype}"
    domains = {node.domain for node in test.model.graph.node} - {*_OWN_DOMAINS}
    return f"it is of the domain {', '.join(sorted(domains))}" if domains else None


class TestTensors:
    """The generator of a test's inputs, and of what ONNX expects."""

    __test__ = False  # pytest would take the name for a test class

    def generate(self, case: TestCase, rng: Any = None) -> tuple[Sequence[Any], Sequence[Any]]:  # noqa: ARG002
        """Raises:
        UnknownName: if the installed package has no such test.
        """
        inputs, outputs = _test_of(case).data_sets[0]
        return [np.array(each) for each in inputs], [np.array(each) for each in outputs]


def _test_of(case: TestCase) -> Any:
    name = case.attributes["test"]
    if name not in _tests():
        raise UnknownName("node test of onnx", name, _tests())
    return _tests()[name]


def model_of_test(case: TestCase) -> onnx.ModelProto:
    """The model of a test, whose inputs are the case's in order."""
    model: onnx.ModelProto = _test_of(case).model
    return model


def descriptor_of(name: str, _: object = None) -> OperatorDescriptor:
    """The descriptor of an operator of ONNX in such tests, which bring what they expect."""
    return OperatorDescriptor(
        name=name,
        category=CATEGORY,
        signature="*input -> *output",
        attributes=(Attribute(name="test", type="str"),),
    )
