"""Which node of ONNX computes which operator. Operators that ONNX has under an alias need no line of their own."""

from __future__ import annotations

import onnx

from optest.onnx.nodes import contractions, elementwise, movements, reductions
from optest.onnx.nodes.node import NodeOf, named
from optest.operators.onnx import SPELLINGS
from optest.spec import OperatorDescriptor

__all__ = ["NODES", "node_of"]

NODES: dict[str, NodeOf] = {
    name: node for family in (elementwise, reductions, contractions, movements) for name, node in family.NODES.items()
}
"""By canonical name, where more than names differs."""


def node_of(descriptor: OperatorDescriptor) -> NodeOf | None:
    """What makes a node of a call of the operator; None if ONNX has no such operator."""
    if descriptor.name in NODES:
        return NODES[descriptor.name]
    own = next((name for name in descriptor.alias_tensors if name not in SPELLINGS and onnx.defs.has(name)), None)
    return None if own is None else named(own)
