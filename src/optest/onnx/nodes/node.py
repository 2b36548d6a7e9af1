"""Description of an operator call as one ONNX node, shared by the tables of all families."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import onnx

from optest.backends.arguments import in_signature_order
from optest.spec import TensorSpec, TestCase

# The first opset with RMSNormalization, Attention and RotaryEmbedding.
OPSET = 23
"""Opset of all models, except those with an operator of a later opset."""


class Differs(Exception):
    """ONNX lacks the operator for these attributes or inputs, or defines it differently."""


@dataclass(frozen=True, slots=True)
class Filled:
    """An input that ONNX requires and the case omits: all elements equal, in the dtype of the first input."""

    shape: tuple[int, ...]
    value: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """One node under ONNX's names.

    ``attributes`` also hold inputs of the ONNX operator that are attributes in optest; None omits one. ``inputs`` are
    indices into the case's signature, in ONNX's order; empty means unchanged order. ``within`` is the dtype to which
    inputs are cast, for operators whose result has the dtype of the inputs.
    """

    op: str
    attributes: Mapping[str, Any] = field(default_factory=dict)
    inputs: Sequence[int | Filled] = ()
    outputs: int = 1
    within: str | None = None


class OnnxCall:
    """A case to convert; ``specs`` are in the order of the signature, None for an omitted input."""

    def __init__(self, case: TestCase) -> None:
        self.case = case
        self.specs: list[TensorSpec | None] = in_signature_order(case, [argument.spec for argument in case.inputs])
        self.is_refused = case.expects_error is not None

    def __getitem__(self, name: str) -> Any:
        return self.case.attributes[name]

    def spec(self, index: int = 0) -> TensorSpec:
        """Return the spec of a required input; raise Differs if the case omits it."""
        spec = self.has(index) and self.specs[index]
        if not spec:
            count = len(self.case.inputs)
            raise Differs(f"{self.case.descriptor.name} has {count} inputs here, ONNX needs input {index + 1}")
        return spec

    def has(self, index: int) -> bool:
        return index < len(self.specs) and self.specs[index] is not None

    @property
    def dtype(self) -> str:
        return self.spec().dtype.name

    @property
    def rank(self) -> int:
        return self.spec().rank

    def require_rank(self, op: str, rank: int, *indices: int) -> None:
        """Raise Differs unless these inputs, by default the first one, have ``rank`` dimensions."""
        for index in indices or (0,):
            if self.spec(index).rank != rank:
                raise Differs(f"{op} needs {rank} dimensions, not {self.spec(index).rank}")

    def axis(self, dim: int) -> int:
        """Return a dimension counted from the front; raise Differs if the first input has no such dimension."""
        if not -self.rank <= dim < self.rank:
            raise Differs(f"dimension {dim} is outside of the {self.rank} dimensions, so that no model can be built")
        return dim % self.rank


NodeOf = Callable[[OnnxCall], Node]
NODES: dict[str, NodeOf] = {}
"""Functions that build nodes by canonical operator name, for operators that differ in more than names."""


def builds(*operators: str) -> Callable[[NodeOf], NodeOf]:
    """Register the decorated function in :data:`NODES` under the names of operators."""

    def add(build: NodeOf) -> NodeOf:
        NODES.update(dict.fromkeys(operators, build))
        return build

    return add


@cache
def opset_of(op: str) -> int:
    """Return the opset of a model with this operator: :data:`OPSET`, or that of its first version if later."""
    history = [x for x in onnx.defs.get_all_schemas_with_history() if x.domain == "" and x.name == op]
    first_version: int = min(x.since_version for x in history)
    return max(OPSET, first_version)


@cache
def schema_of(op: str) -> Any:
    """Return ONNX's schema of an operator in the opset of its models."""
    return onnx.defs.get_schema(op, opset_of(op))


def node_with_attributes(op: str) -> NodeOf:
    """Return a builder of ``op`` with the case's attributes; their aliases are ONNX's names."""

    def node(call: OnnxCall) -> Node:
        schema = schema_of(op)
        known = {*schema.attributes, *(value.name for value in schema.inputs)}
        stated = {}
        for attribute in call.case.descriptor.attributes:
            name, value = attribute.name, call[attribute.name]
            onnx_name = next((alias for alias in (name, *attribute.aliases) if alias in known), None)
            if onnx_name is not None:
                stated[onnx_name] = value
            elif value != attribute.default:
                raise Differs(f"{op} has no {name}")
        return Node(op=op, attributes=stated)

    return node
