"""ONNX's node tests as cases: ``optest run --source onnx-node:all --backend onnxruntime``.

A test is a model, inputs, and the outputs that ONNX expects, with their tolerance.
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
from optest.onnx.driver import NODE_TEST
from optest.onnx.models import Model
from optest.plan.sources import Collected, SourceRequest
from optest.spec import Attribute, OperatorDescriptor, TestCase

PREFIX = "onnx."
_OWN_DOMAINS = ("", "ai.onnx")


@cache
def _tests() -> Mapping[str, Any]:
    """Return the node tests of the installed package by name."""
    # Casts in the tests overflow on purpose.
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        return {test.name: test for test in load_model_tests(kind="node")}


def collect(request: SourceRequest) -> Collected:
    """Return the tests that operator names or globs select: ``Softmax``, ``test_softmax_*``, ``all``.

    A test with values that optest does not support is an entry to skip.

    Raises:
        UnknownName: for a name that selects no test.
    """
    # An expanded test replaces its operator by others; the plain test names the operator.
    plain = {name: name.partition("_expanded")[0] for name in _tests()}
    models = {name: _tests()[plain[name] if plain[name] in _tests() else name].model for name in plain}
    known = {name: str(model.graph.node[0].op_type) for name, model in models.items()}
    chosen: dict[str, None] = {}
    for pattern in request.names:
        matching = [name for name, op in known.items() if pattern in ("all", op) or fnmatch.fnmatch(name, pattern)]
        if not matching:
            raise UnknownName("ONNX operator with tests", pattern, sorted({*known.values()}))
        chosen |= dict.fromkeys(matching)
    entries = [_entry_of_test(name, known[name]) for name in chosen]
    if request.dtypes:
        entries = [x for x in entries if not {*request.dtypes}.isdisjoint(x.get("dtypes", {}).values())]
    notes = () if entries else (f"no test has inputs of {', '.join(request.dtypes)}",)
    origin = f"node tests of onnx {onnx.__version__}"
    return Collected(backend="onnxruntime", origin=origin, entries=entries, notes=notes)


def _entry_of_test(name: str, operator: str) -> dict[str, Any]:
    test = _tests()[name]
    entry: dict[str, Any] = {
        "op": f"{PREFIX}{operator}",
        "name": f"onnx-node::{name}",
        "attributes": {"test": name},
        "tags": ["onnx-node", *(["expanded"] if "_expanded" in name else [])],
    }
    if why := _why_not(test):
        return {**entry, "skip": why}
    tensors = {
        f"{side}{index}": _array_of_message(value)
        for side, arrays in zip(("input", "output"), test.data_sets[0], strict=True)
        for index, value in enumerate(arrays)
    }
    return {
        **entry,
        "shapes": {name: list(array.shape) for name, array in tensors.items()},
        "dtypes": {name: dtype_of(array.dtype).name for name, array in tensors.items()},
        "generator": f"{__name__}:TestTensors",
        "tolerance": {"rtol": test.rtol, "atol": test.atol},
    }


def _why_not(test: Any) -> str | None:
    """Return why optest cannot run a test; None if it can."""
    if not test.data_sets:
        return "the test has no values"
    for array in (*test.data_sets[0][0], *test.data_sets[0][1]):
        if isinstance(array, (list, dict)) or array is None:
            return "the test has sequences, maps or optional values, which are not tensors"
        kind = _array_of_message(array).dtype
        try:
            known = dtype_of(kind)
        except (KeyError, UnknownName, TypeError, ValueError):
            return f"optest has no tensors of {'text' if kind.hasobject else kind}"
        if known.bits == 4:
            return f"tensors of {known} hold two elements in a byte, which is not supported here"
    domains = {node.domain for node in test.model.graph.node} - {*_OWN_DOMAINS}
    return f"the test is of the domain {', '.join(sorted(domains))}" if domains else None


def _array_of_message(value: Any) -> Any:
    # Tensors of dtypes that NumPy lacks are protobuf messages.
    return onnx.numpy_helper.to_array(value) if isinstance(value, onnx.TensorProto) else np.asarray(value)


class TestTensors:
    """Generator of a node test's inputs and expected outputs."""

    __test__ = False  # by its name pytest would collect it

    def generate(self, case: TestCase, rng: Any = None) -> tuple[Sequence[Any], Sequence[Any]]:  # noqa: ARG002
        """Return copies of the test's inputs and outputs; raise UnknownName if the package has no such test."""
        inputs, outputs = _test_of(case).data_sets[0]
        return [np.array(_array_of_message(x)) for x in inputs], [np.array(_array_of_message(x)) for x in outputs]


def _test_of(case: TestCase) -> Any:
    name = case.attributes["test"]
    if name not in _tests():
        raise UnknownName("node test of onnx", name, _tests())
    return _tests()[name]


def model_of_test(case: TestCase) -> Model:
    """Return the model of a node test; its graph reads the case's inputs in order."""
    model = _test_of(case).model
    feeds = tuple((value.name, index) for index, value in enumerate(model.graph.input))
    outputs = tuple(value.name for value in model.graph.output)
    return Model(model.SerializeToString(), model.graph.node[0].op_type, feeds, outputs)


def descriptor_of(name: str, _: object = None) -> OperatorDescriptor:
    """Return the descriptor of an ONNX operator in node tests, which contain their expected outputs."""
    return OperatorDescriptor(
        name=name,
        category=NODE_TEST,
        signature="*input -> *output",
        attributes=(Attribute(name="test", type="str"),),
    )
