"""A call of the catalogue as one node of ONNX, before it is a model; what the tables of several families need."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import onnx

from optest.backends.arguments import at_their_places
from optest.spec import TensorSpec, TestCase

OPSET = 23
"""The opset of all models, but of those with an operator that came later: they have its own. The first with
RMSNormalization, Attention and RotaryEmbedding."""


class Differs(Exception):
    """ONNX documents its operator otherwise than the catalogue, or has none, for these attributes or inputs."""


@dataclass(frozen=True, slots=True)
class Filled:
    """An input that ONNX wants and the case leaves out: all elements alike, in the dtype of the first input."""

    shape: tuple[int, ...]
    value: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """One node by ONNX's own names.

    ``attributes`` are those of the operator, and those of its inputs that the catalogue has as attributes; None leaves
    one out. ``inputs`` are places of the catalogue's signature, in ONNX's order; empty: as they are there. ``within``
    is a dtype to which inputs are cast before, where ONNX has the result in the dtype of the inputs alone.
    """

    op: str
    attributes: Mapping[str, Any] = field(default_factory=dict)
    inputs: Sequence[int | Filled] = ()
    outputs: int = 1
    within: str | None = None


class Asked:
    """A case as the tables see it: specs at the places of the signature, None for an input that is left out."""

    def __init__(self, case: TestCase) -> None:
        self.case = case
        self.specs: list[TensorSpec | None] = at_their_places(case, [each.spec for each in case.inputs])
        self.is_refused = case.expects_error is not None

    def __getitem__(self, name: str) -> Any:
        return self.case.attributes[name]

    def spec(self, place: int = 0) -> TensorSpec:
        """An input that has to be there."""
        found = self.has(place) and self.specs[place]
        if not found:
            raise Differs(f"{self.case.descriptor.name} has {len(self.case.inputs)} inputs here")
        return found

    def has(self, place: int) -> bool:
        return place < len(self.specs) and self.specs[place] is not None

    @property
    def dtype(self) -> str:
        return self.spec().dtype.name

    @property
    def rank(self) -> int:
        return self.spec().rank

    def require_rank(self, op: str, rank: int, *places: int) -> None:
        for place in places or (0,):
            if self.spec(place).rank != rank:
                raise Differs(f"{op} takes {rank} dimensions, not {self.spec(place).rank}")

    def axis(self, stated: int) -> int:
        """Counted from the front."""
        if not -self.rank <= stated < self.rank:
            raise Differs(f"there is no dimension {stated} of {self.rank}, which the model would be made with")
        return stated % self.rank


NodeOf = Callable[[Asked], Node]


@cache
def _first_versions() -> dict[str, int]:
    """The opset with which each operator came."""
    found: dict[str, int] = {}
    for each in onnx.defs.get_all_schemas_with_history():
        if each.domain == "":
            found[each.name] = min(each.since_version, found.get(each.name, each.since_version))
    return found


def opset_of(op: str) -> int:
    """The opset of a model with this operator."""
    return max(OPSET, _first_versions()[op])


@cache
def schema_of(op: str) -> Any:
    """What ONNX declares of an operator in the opset of its models."""
    return onnx.defs.get_schema(op, opset_of(op))


def named(op: str) -> NodeOf:
    """A node with the attributes of the case, under ONNX's names, which are aliases."""

    def node(asked: Asked) -> Node:
        schema = schema_of(op)
        known = {*schema.attributes, *(each.name for each in schema.inputs)}
        stated = {}
        for attribute in asked.case.descriptor.attributes:
            name, value = attribute.name, asked[attribute.name]
            own = next((each for each in (name, *attribute.aliases) if each in known), None)
            if own is not None:
                stated[own] = value
            elif value != attribute.default:
                raise Differs(f"{op} has no {name}")
        return Node(op=op, attributes=stated)

    return node
