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
from optest.onnx.driver import NODE_TEST
from optest.onnx.models import Model
from optest.plan.sources import Collected, SourceRequest
from optest.spec import Attribute, OperatorDescriptor, TestCase

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
    # Where the model has an operator expanded to others, that of the plain test.
    plain = {name: name.partition("_expanded")[0] for name in _tests()}
    models = {name: _tests()[plain[name] if plain[name] in _tests() else name].model for name in plain}
    known = {name: str(each.graph.node[0].op_type) for name, each in models.items()}
    chosen: dict[str, None] = {}
    for asked in request.names:
        matching = [name for name, of in known.items() if asked in ("all", of) or fnmatch.fnmatch(name, asked)]
        if not matching:
            raise UnknownName("ONNX operator with tests", asked, sorted({*known.values()}))
        chosen |= dict.fromkeys(matching)
    entries = [_entry(name, known[name]) for name in chosen]
    if request.dtypes:
        entries = [each for each in entries if not {*request.dtypes}.isdisjoint(each.get("dtypes", {}).values())]
    notes = () if entries else (f"no test has inputs of {', '.join(request.dtypes)}",)
    origin = f"node tests of onnx {onnx.__version__}"
    return Collected(backend="onnxruntime", origin=origin, entries=entries, notes=notes)


def _entry(name: str, operator: str) -> dict[str, Any]:
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
        f"{side}{place}": _array(each)
        for side, arrays in zip(("input", "output"), test.data_sets[0], strict=True)
        for place, each in enumerate(arrays)
    }
    return {
        **entry,
        "shapes": {name: list(array.shape) for name, array in tensors.items()},
        "dtypes": {name: dtype_of(array.dtype).name for name, array in tensors.items()},
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
        kind = _array(array).dtype
        try:
            known = dtype_of(kind)
        except (KeyError, UnknownName, TypeError, ValueError):
            return f"optest has no tensors of {'text' if kind.hasobject else kind}"
        if known.bits == 4:
            return f"tensors of {known} hold two elements in a byte, which is not supported here"
    domains = {node.domain for node in test.model.graph.node} - {*_OWN_DOMAINS}
    return f"it is of the domain {', '.join(sorted(domains))}" if domains else None


def _array(value: Any) -> Any:
    """Tensors of dtypes that NumPy lacks come as messages."""
    return onnx.numpy_helper.to_array(value) if isinstance(value, onnx.TensorProto) else np.asarray(value)


class TestTensors:
    """The generator of a test's inputs, and of what ONNX expects."""

    __test__ = False  # pytest would take the name for a test class

    def generate(self, case: TestCase, rng: Any = None) -> tuple[Sequence[Any], Sequence[Any]]:  # noqa: ARG002
        """Raises:
        UnknownName: if the installed package has no such test.
        """
        inputs, outputs = _test_of(case).data_sets[0]
        return [np.array(_array(each)) for each in inputs], [np.array(_array(each)) for each in outputs]


def _test_of(case: TestCase) -> Any:
    name = case.attributes["test"]
    if name not in _tests():
        raise UnknownName("node test of onnx", name, _tests())
    return _tests()[name]


def model_of_test(case: TestCase) -> Model:
    """The model of a test; the case's inputs are those of its graph in order."""
    model = _test_of(case).model
    feeds = tuple((each.name, place) for place, each in enumerate(model.graph.input))
    outputs = tuple(each.name for each in model.graph.output)
    return Model(model.SerializeToString(), model.graph.node[0].op_type, feeds, outputs)


def descriptor_of(name: str, _: object = None) -> OperatorDescriptor:
    """The descriptor of an operator of ONNX in such tests, which bring what they expect."""
    return OperatorDescriptor(
        name=name,
        category=NODE_TEST,
        signature="*input -> *output",
        attributes=(Attribute(name="test", type="str"),),
    )
